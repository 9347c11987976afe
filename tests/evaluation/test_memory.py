"""Measurements in one process, with few packets: every function of the chain has its figures."""

import os

import pytest

from evaluation.experiments import Plan
from evaluation.memory import Memory
from evaluation.topology import Cores

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


def test_every_function_on_streams_is_measured_on_one_core_and_on_two(tmp_path):
    allowed = os.sched_getaffinity(0)
    try:
        points = Memory(tmp_path, Cores.chosen(), 1e9, Plan("quick", 1, 0.1, 0.01, ()), seed=1, only="streams").run()
    finally:
        os.sched_setaffinity(0, allowed)
    by_key = {(point["load"], point["x"]): [run["metrics"] for run in point["runs"] if run["ok"]] for point in points}
    names = ["forwarding", "chain: NAT", "chain: + reassembly", "chain: + balancing", "chain: + digest", "chain: + 100 literals"]
    assert set(by_key) == {(name, cores) for name in names for cores in (1, 2)}
    for (_, cores), (metrics,) in by_key.items():
        assert metrics["gbit_s"] > 0
        assert (metrics["cycles_per_byte"] if cores == 1 else metrics["scaling"]) > 0
    # Neighbours in the chain may change places in runs this short; its ends are a factor of ten apart and more.
    assert by_key[names[0], 1][0]["cycles_per_byte"] < by_key[names[-1], 1][0]["cycles_per_byte"]
