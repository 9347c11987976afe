"""One tiny point of the evaluation, run as a user runs it; and what is left when it is interrupted."""

import os
import signal
from pathlib import Path

import pytest

from evaluation import systems, topology
from evaluation.loads import Small
from evaluation.policies import Policy
from lab.process import Background, run, wait_until

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or len(os.sched_getaffinity(0)) < 2, reason="needs root for network namespaces, and two cores"
)


def namespaces():
    return run(["ip", "netns", "list"]).stdout


@pytest.mark.parametrize("name", ["forward", "mmb-af_packet"])
def test_packets_that_a_system_forwards_are_counted(tmp_path, name):
    allowed = os.sched_getaffinity(0)
    cores = topology.Cores.chosen()
    system = systems.ALL[name](tmp_path / "site", cores)
    try:
        system.open()
        system.install(Policy("none"))
        metrics = Small(0.2).run(system.site, tsc_hz=1e9)
    finally:
        system.close()
        os.sched_setaffinity(0, allowed)
    assert 0 < metrics["packets"] <= metrics["blast_sent"]
    assert 0 < metrics["middle_busy"] <= 1


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 1), (signal.SIGTERM, 143)])
def test_an_interrupted_evaluation_leaves_no_namespaces(tmp_path, number, status):
    words = ["/usr/bin/python3", "-m", "evaluation", "run", "--quick", "--only", "forwarding", "--out", tmp_path / "out"]
    with Background(words, tmp_path / "log", cwd=ROOT) as evaluation:
        ours = f"-{evaluation.pid}-"
        wait_until(lambda: ours in namespaces() or not evaluation.running(), "it is under way", timeout=30)
        evaluation.signal(number)
        assert evaluation.wait(30) == status, evaluation.output()
        assert ours not in namespaces()
    assert not (tmp_path / "out").exists()
