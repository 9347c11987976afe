"""The plans of the evaluation: the measurements, and the duration of the quick evaluation."""

import pytest

from evaluation import experiments, loads
from evaluation.policies import FUNCTIONS
from evaluation.report import targets
from evaluation.systems import ALL, Unable

# The time to start and end the programs of a run, on a machine that runs nothing else.
AROUND_A_RUN = 0.7
TWELVE_MINUTES = 720


def points(plan):
    for experiment in plan.experiments:
        for x, policy, load in experiment.points(plan.seconds):
            for system in experiment.systems:
                yield experiment, x, policy, load, system


def can(system, policy):
    try:
        ALL[system]("", None).need(policy)
    except Unable:
        return False
    return True


QUICK_OMITS = {"mmb-no-rules", "mmb-af_packet", "iptables", "xdp", "apache", "haproxy-http", "squid"}


@pytest.mark.parametrize(("quick", "omitted"), [(True, QUICK_OMITS), (False, set())])
def test_every_point_is_there_once(quick, omitted):
    keys = [(experiment.name, x, load.name, system) for experiment, x, _, load, system in points(experiments.plan(quick))]
    assert len(keys) == len(set(keys))
    assert {system for *_, system in keys} == set(ALL) - omitted


@pytest.mark.parametrize("quick", [True, False])
def test_five_runs_at_least(quick):
    assert experiments.plan(quick).runs >= 5


def test_the_quick_plan_leaves_three_minutes_of_twelve_for_the_rest():
    plan = experiments.plan(quick=True)
    able = [system for *_, policy, _, system in points(plan) if can(system, policy)]
    assert len(able) * plan.runs * (loads.SETTLING + plan.seconds + AROUND_A_RUN) < TWELVE_MINUTES - 180


def test_the_full_plan_has_the_sizes_of_the_paper():
    sizes = {experiment.name: experiment.sizes for experiment in experiments.plan(quick=False).experiments}
    assert {100_000, 1_000_000} <= set(sizes["firewall"])
    assert {1, 10_000} <= set(sizes["options"])
    assert {1, 26, 40, 256} <= set(sizes["masks"])
    assert sizes["chain"] == tuple(range(len(FUNCTIONS)))


def test_files_change_the_load_and_not_the_policy():
    by_name = {experiment.name: experiment for experiment in experiments.plan(quick=False).experiments}
    for name in ("files", "balance-files", "rewrite-http-body", "rewrite-http-latency", "rewrite-http-mask", "rewrite-http-head"):
        made = list(by_name[name].points(1.0))
        assert [x for x, _, _ in made] == [load.size_kb for *_, load in made] == list(by_name[name].files)
        assert len({policy for _, policy, _ in made}) == 1
        # Files that nginx has.
        pages = name.startswith("rewrite")
        assert set(by_name[name].files) <= set(loads.Web.pages_kb if pages else (*loads.Web.sizes_kb, *loads.Web.large_kb))


@pytest.mark.parametrize("quick", [True, False])
def test_what_users_have_is_measured_first(quick):
    devices = [experiment.offloads for experiment in experiments.plan(quick).experiments]
    assert devices[:4] == [True] * 4 and not any(devices[4:])


@pytest.mark.parametrize("quick", [True, False])
def test_every_target_has_mmb_with_and_without_offload_and_its_peers_in_one_run(quick):
    by_name = {experiment.name: experiment for experiment in experiments.plan(quick).experiments}
    for target in targets.TARGETS:
        for name in target.experiments:
            measured = by_name[name]
            assert target.load in measured.loads
            assert {"mmb", "mmb-offload-off", "nftables", *target.peers} <= set(measured.systems), name
    assert "wrk-close" in by_name["connections"].loads
    for name in ("default-firewall", "firewall"):
        assert {targets.FEWEST_RULES, targets.MOST_RULES} <= set(by_name[name].sizes)


def test_peers_of_the_targets_support_the_work():
    for experiment, _, policy, _, system in points(experiments.plan(quick=True)):
        if experiment.offloads or experiment.name in ("established", "connections"):
            assert system == "direct" or can(system, policy), (experiment.name, system)
