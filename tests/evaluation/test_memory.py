"""Measurements in one process, with few packets: every function of the chain has its figures."""

import os

import pytest

from evaluation.campaign import session
from evaluation.experiments import Plan
from evaluation.memory import FUNCTIONS, Memory, planned
from evaluation.method import Repetitions
from evaluation.store import Store
from evaluation.topology import Cores

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


def test_every_function_on_streams_is_measured_on_one_core_and_on_two(tmp_path):
    allowed = os.sched_getaffinity(0)
    try:
        plan = Plan("quick", Repetitions(1, 1, 0.05), 0.1, 0.01, None, ())
        every, store = planned(plan, ["streams"]), Store(tmp_path / "points", "quick", "hash", {})
        Memory(tmp_path, Cores.chosen(), 1e9, plan, session(plan, every, store, seed=1)).run(every)
        points = list(store.all())
    finally:
        os.sched_setaffinity(0, allowed)
    by_key = {(point["load"], point["x"]): [run["metrics"] for run in point["runs"] if run["ok"]] for point in points}
    assert set(by_key) == {(name, cores) for name in FUNCTIONS for cores in (1, 2)}
    for (_, cores), (metrics,) in by_key.items():
        assert metrics["gbit_s"] > 0
        assert (metrics["cycles_per_byte"] if cores == 1 else metrics["scaling"]) > 0
    # Neighbours in the chain may change places in runs this short; its ends are a factor of ten apart and more.
    assert by_key[FUNCTIONS[0], 1][0]["cycles_per_byte"] < by_key[FUNCTIONS[-1], 1][0]["cycles_per_byte"]
