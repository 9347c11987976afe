"""Runs `mmb import`, and its policies on packets."""

import json
import subprocess
from dataclasses import dataclass

from captures import replay


@dataclass
class Imported:
    """The result of one import."""
    status: int
    policy: str
    rules: int
    left_out: list
    effect: str
    notes: list


def import_policy(mmb, form, text, *options):
    """Imports a text and checks the policy."""
    run = subprocess.run([mmb, "import", form, "--json", *options, "-"], input=text, capture_output=True, text=True)
    assert run.stdout, run.stderr
    answer = json.loads(run.stdout)
    assert "error" not in answer, answer
    assert run.returncode == (1 if answer["left_out"] else 0)
    checked = subprocess.run([mmb, "check", "-"], input=answer["policy"], capture_output=True, text=True)
    # Rules that an earlier one hides are noted with two lines each; the originals may have such rules.
    about = [line for line in checked.stderr.splitlines() if not line.startswith((" ", "note: rule "))]
    assert checked.returncode == 0 and not about, f"{checked.stderr}\n{answer['policy']}"
    return Imported(run.returncode, **{key: answer[key] for key in ("policy", "rules", "left_out", "effect", "notes")})


def accepted(mmb, folder, policy, packets):
    """For each packet whether the policy passes it; no packet may be dropped for another reason."""
    out, summary = replay(mmb, folder, policy, [bytes(packet) for packet in packets])
    assert set(summary["drops"]) <= {"rule"}, summary["drops"]
    passed = {number for number, _ in out}
    return [number in passed for number in range(len(packets))]
