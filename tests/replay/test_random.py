"""Random policies on random packets: mmb against a model of its language in Python.

`MMB_ROUNDS=2000 pytest tests/replay/test_random.py` runs more rounds than the default; a failure names its seed, and `MMB_SEED=N
MMB_ROUNDS=1` repeats it.
"""

import json
import os
import subprocess
from collections import Counter

import pytest
from captures import replay
from generate import packets_and_policy
from model import definitions, evaluate

ROUNDS = int(os.environ.get("MMB_ROUNDS", "60"))
FIRST = int(os.environ.get("MMB_SEED", "1"))
PACKETS, RULES = 120, 8
PORTS = {"in": "a", "out": "b"}


def refused(mmb, folder, rules):
    """The rules that mmb refuses, with its messages: each is checked alone."""
    path = folder / "check.mmb"
    sets = definitions(rules)
    path.write_text("".join(f"{line}\n" for line in [*sets, *rules]))
    run = subprocess.run([mmb, "check", "--json", path], capture_output=True, text=True)
    if run.returncode == 0:
        return {}
    answer = json.loads(run.stdout)
    errors = answer.get("errors", [answer])
    return {error["line"] - 1 - len(sets): error["error"] for error in errors}


def can_matter(rule, frames):
    """Whether some packet matches the rule: in this case mmb must not report that none can."""
    return any(rule.id in evaluate([rule], frame, PORTS).matched for frame in frames)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + ROUNDS))
def test_mmb_does_what_the_model_says(mmb, tmp_path, seed):
    frames, rules = packets_and_policy(seed, PACKETS, RULES)
    for number, why in sorted(refused(mmb, tmp_path, rules).items(), reverse=True):
        rule = rules.pop(number)
        assert "can never match" not in why or not can_matter(rule, frames), f"refused: {rule}\n{why}"
    policy = "".join(f"{line}\n" for line in [*definitions(rules), *rules])
    out, summary = replay(mmb, tmp_path, policy, frames)

    written = dict(out)
    assert [number for number, _ in out] == sorted(written), "the order changed"
    drops, counts, missed = Counter(), Counter(), Counter()
    for number, frame in enumerate(frames):
        expected = evaluate(rules, frame, PORTS)
        counts.update({identity: 1 for identity in expected.matched})
        missed.update(expected.not_applied)
        if expected.reason:
            drops[expected.reason] += 1
        got = written.get(number)
        assert got == expected.data, "\n".join([
            f"seed {seed}, packet {number}, rules {expected.matched}, {expected.reason or 'passes'}",
            f"in        {frame.hex()}", f"out       {got.hex() if got else got}",
            f"expected  {expected.data.hex() if expected.data is not None else None}",
            *[str(rule) for rule in rules if rule.id in expected.matched],
        ])
    assert summary["drops"] == dict(drops)
    assert summary.get("not_applied", {}) == dict(missed)
    assert {rule["id"]: rule["packets"] for rule in summary["rules"]} == {rule.id: counts[rule.id] for rule in rules}
