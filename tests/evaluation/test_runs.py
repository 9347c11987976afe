"""How runs are made and stored, with stubs for systems and loads."""

import pytest

from evaluation import campaign, live, systems
from evaluation.experiments import Experiment, Plan
from evaluation.loads import Failed
from evaluation.method import Repetitions
from evaluation.store import Store
from evaluation.systems import Unable
from lab.process import CommandFailed


class FakeSystem:
    """A system that records the calls."""

    name = title = "fake"

    def __init__(self, folder, cores, offloads):
        self.asked = []
        self.site = self

    def open(self):
        pass

    def need(self, policy):
        pass

    def install(self, policy):
        self.asked.append(policy.size)

    def forget(self):
        self.asked.append("forget")

    def close(self):
        self.asked.append("close")


class NotInstalled(FakeSystem):
    def open(self):
        raise Unable("not installed here")


class Broken(FakeSystem):
    def open(self):
        raise CommandFailed("no such\n  device")


class WithoutPolicy(FakeSystem):
    def need(self, policy):
        raise Unable("no such policy")


class Weak(FakeSystem):
    def install(self, policy):
        raise CommandFailed("too many rules")


class Load:
    """Fails every second run."""

    name = "load"
    title = "a load"

    def __init__(self):
        self.runs = []

    def run(self, site, tsc_hz):
        self.runs.append(site)
        if len(self.runs) % 2 == 0:
            raise Failed("it did not come up")
        return {"mpps": float(len(self.runs))}


@pytest.fixture
def measured(monkeypatch, tmp_path):
    kinds = {"one": FakeSystem, "other": FakeSystem, "absent": NotInstalled, "broken": Broken}
    kinds |= {"without-policy": WithoutPolicy, "weak": Weak}
    monkeypatch.setattr(systems, "ALL", kinds)
    load = Load()
    experiment = Experiment("e", "title", "firewall", tuple(kinds), ("load",), sizes=(10, 20))
    monkeypatch.setattr("evaluation.experiments.make_load", lambda *_: load)
    plan = Plan("quick", Repetitions(4, 4, 0.05), 0.1, 0.1, None, (experiment,))
    every, store = live.planned(plan), Store(tmp_path / "points", "quick", "hash", {})
    between = live.Live(tmp_path, None, 1e9, campaign.session(plan, every, store, seed=1))
    between.run(every)
    points = {(point["system"], point["x"]): point for point in campaign.collected(every, store)[0]}
    between.close()
    return between, load, points


def test_every_system_has_a_point_for_every_size(measured):
    _, _, points = measured
    assert len(points) == 6 * 2


def test_each_round_runs_every_system_once(measured):
    _, _, points = measured
    for x in (10, 20):
        orders = [[run["order"] for run in points[name, x]["runs"]] for name in ("one", "other")]
        for first, second in zip(*orders, strict=True):
            assert (first - 1) // 2 == (second - 1) // 2, "the same round of two runs"
    assert sorted(run["order"] for point in points.values() for run in point["runs"]) == list(range(1, 17))


def test_failed_runs_are_kept_with_their_reason(measured):
    _, _, points = measured
    runs = [run for point in points.values() for run in point["runs"]]
    assert [run["ok"] for run in sorted(runs, key=lambda run: run["order"])] == [True, False] * 8
    assert {run["error"] for run in runs if not run["ok"]} == {"it did not come up"}


@pytest.mark.parametrize(
    ("system", "why"),
    [
        ("absent", "not installed here"),
        ("broken", "no such device"),
        ("without-policy", "no such policy"),
        ("weak", "could not be set up: too many rules"),
    ],
)
def test_who_takes_no_part_says_why(measured, system, why):
    _, _, points = measured
    assert [points[system, x]["absent"] for x in (10, 20)] == [why, why]
    assert not points[system, 10]["runs"]


def test_policies_change_once_a_size_and_connections_are_forgotten_before_each_run(measured):
    live, _, _ = measured
    asked = live.opened["one", False].asked
    assert asked == [10, *["forget"] * 4, 20, *["forget"] * 4, "close"]
