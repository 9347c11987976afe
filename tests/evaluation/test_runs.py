"""How runs are made and stored, with stubs for systems and loads."""

import contextlib

import pytest

from evaluation import campaign, experiments, live, systems
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


def test_a_system_that_ends_in_a_point_is_opened_again_for_the_next(monkeypatch, tmp_path):
    class Mortal(FakeSystem):
        """Ends at the policy of size 10."""

        def forget(self):
            super().forget()
            if 10 in self.asked:
                raise CommandFailed("it has ended")

    class Sound(Load):
        def run(self, site, tsc_hz):
            return {"gbit_s": 1.0}

    monkeypatch.setattr(systems, "ALL", {"mortal": Mortal, "other": FakeSystem})
    monkeypatch.setattr("evaluation.experiments.make_load", lambda *_: Sound())
    experiment = Experiment("e", "title", "firewall", ("mortal", "other"), ("load",), sizes=(10, 20))
    plan = Plan("quick", Repetitions(3, 5, 0.05), 0.1, 0.1, None, (experiment,))
    every, store = live.planned(plan), Store(tmp_path / "points", "quick", "hash", {})
    session = campaign.session(plan, every, store, seed=1)
    between = live.Live(tmp_path, None, 1e9, session)
    between.run(every)
    between.close()
    assert [(point["system"], point["x"]) for point in session.failed] == [("mortal", 10)]
    assert sorted((point["system"], point["x"]) for point in session.measured) == [("mortal", 20), ("other", 10), ("other", 20)]


def test_an_error_that_ends_a_part_does_not_end_the_others(monkeypatch, tmp_path):
    measured = []

    def breaks(*_):
        raise OSError("no namespaces here")

    monkeypatch.setattr(live.Live, "run", breaks)
    monkeypatch.setattr(campaign.memory.Memory, "run", lambda _, points: measured.extend(points))
    monkeypatch.setattr(campaign.vpp, "measure", breaks)
    plan = experiments.plan(quick=True)
    every = campaign.planned(plan)
    session = campaign.session(plan, every, Store(tmp_path, "quick", "hash", {}), seed=1)
    broken = campaign.run(tmp_path, None, 1e9, plan, session, every, contextlib.nullcontext)
    assert broken == {"namespaces": "no namespaces here", "vpp": "no namespaces here"} and measured


def test_policies_change_once_a_size_and_connections_are_forgotten_before_each_run(measured):
    live, _, _ = measured
    asked = live.opened["one", False].asked
    assert asked == [10, *["forget"] * 4, 20, *["forget"] * 4, "close"]
