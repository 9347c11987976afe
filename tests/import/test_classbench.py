"""`mmb import classbench`: the policy decides as the first filter that matches, found by the simple implementation.

The sets of ClassBench are read from $CLASSBENCH, or from ../shared/classbench beside the project; they are not part of it.
"""

import lzma
import os
import pathlib
import random
import subprocess

import pytest
from classbench import first_match, packet_near, random_filter, read
from running import accepted, import_policy

HERE = pathlib.Path(__file__).resolve().parent
SETS = pathlib.Path(os.environ.get("CLASSBENCH", HERE.parents[2] / "shared/classbench"))
ROUNDS = int(os.environ.get("MMB_ROUNDS", "20"))
READINGS = [{"portless": portless, "upper": upper} for portless in (False, True) for upper in (False, True)]


def options(portless, upper):
    return ["--action", "alternate", "--portless", "always" if portless else "never",
            "--tcp-flags", "upper-byte" if upper else "lower-byte"]


def compare(mmb, folder, text, packets, **reading):
    """Alternating actions also reveal a wrong order."""
    filters = read(text)
    imported = import_policy(mmb, "classbench", text, *options(**reading))
    places = [first_match(filters, packet, **reading) for packet in packets]
    expected = [place is None or place % 2 == 0 for place in places]
    got = accepted(mmb, folder, imported.policy, packets)
    wrong = [number for number, pair in enumerate(zip(got, expected)) if pair[0] != pair[1]]
    assert not wrong, "\n".join(
        f"filter {places[number]}: {packets[number].summary()} {bytes(packets[number]).hex()}" for number in wrong[:5])
    return imported, places


@pytest.mark.parametrize("seed", range(1, ROUNDS + 1))
def test_random_sets(mmb, tmp_path, seed):
    chance = random.Random(seed)
    text = "".join(random_filter(chance) + "\n" for _ in range(12))
    packets = [packet_near(chance.choice(read(text)), chance) for _ in range(80)]
    compare(mmb, tmp_path, text, packets, **READINGS[seed % len(READINGS)])


def sets():
    return sorted(SETS.glob("*.xz")) or [None]


@pytest.mark.parametrize("path", sets(), ids=lambda path: path.stem if path else "none")
def test_classbench_sets(mmb, tmp_path, path):
    if path is None:
        pytest.skip(f"no ClassBench sets in {SETS}: name their directory with CLASSBENCH=DIR")
    text, chance = lzma.open(path, "rt").read(), random.Random(1)
    filters = read(text)
    packets = [packet_near(chance.choice(filters), chance) for _ in range(200)]
    for reading in (READINGS[0], READINGS[3]):
        imported, places = compare(mmb, tmp_path, text, packets, **reading)
        assert sum(place is not None for place in places) > 40, "too few packets match to mean anything"
        assert imported.effect == "none"
        if reading["portless"] and reading["upper"]:
            assert not imported.left_out


def test_a_filter_without_packets_is_listed(mmb):
    imported = import_policy(mmb, "classbench", "@0.0.0.0/0 10.0.0.0/8 25 : 25 0 : 65535 0x02/0xFF\n")
    assert imported.status == 1 and imported.rules == 0
    [left_out] = imported.left_out
    assert (left_out["line"], left_out["effect"]) == (1, "none")
    assert "no packet matches" in left_out["reason"]


def test_strict_writes_nothing_if_something_is_left_out(mmb, tmp_path):
    good, bad, out = "@0.0.0.0/0 10.0.0.0/8 0 : 65535 0 : 65535 0x02/0xFF\n", "1 : 1 0 : 65535 0x02/0xFF\n", tmp_path / "o"
    for text, status in [(good + "@0.0.0.0/0 10.0.0.0/8 " + bad, 1), (good, 0)]:
        run = subprocess.run([mmb, "import", "classbench", "--strict", "-o", out, "-"], input=text, text=True)
        assert run.returncode == status and out.exists() == (status == 0)


@pytest.mark.parametrize("line, message", [
    ("10.0.0.0/8 10.0.0.0/8 0 : 1 0 : 1 6/255", "line 2: a filter begins with `@`"),
    ("@10.0.0.0/8 10.0.0.0/8 1 : 0 0 : 1 6/255", "line 2: the ports 1 to 0 are in the wrong order"),
])
def test_a_line_that_is_no_filter_stops(mmb, line, message):
    run = subprocess.run([mmb, "import", "classbench", "-"], input=f"# set\n{line}\n", capture_output=True, text=True)
    assert run.returncode == 1 and message in run.stderr and not run.stdout


def test_compressed_sets_are_refused_with_the_remedy(mmb, tmp_path):
    (tmp_path / "set.xz").write_bytes(lzma.compress(b"@0.0.0.0/0 10.0.0.0/8 0 : 65535 0 : 65535 0x02/0xFF\n"))
    run = subprocess.run([mmb, "import", "classbench", tmp_path / "set.xz"], capture_output=True, text=True)
    assert run.returncode == 1 and "xz -dc" in run.stderr
