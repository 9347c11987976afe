"""The plans of the evaluation: the measurements, and how long they take."""

import pytest

from evaluation import budget, campaign, experiments, figures, loads
from evaluation.policies import FUNCTIONS
from evaluation.report import targets
from evaluation.systems import ALL, Unable



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


@pytest.mark.parametrize(("quick", "share"), [(True, 0.8), (False, 0.7)])
def test_the_minimum_of_runs_leaves_time_for_points_that_scatter(quick, share):
    plan = experiments.plan(quick)
    assert plan.repeat.least >= 3 and plan.repeat.most >= 5
    every = campaign.planned(plan)
    for each in every:
        # As if every program were installed.
        each.missing = False
    minutes = campaign.minimum([each for each in every if not each.absent], plan.repeat.least, budget.Durations()) / 60
    assert minutes < share * plan.minutes


def test_a_number_of_runs_is_exact_and_has_no_limit_of_time():
    plan = experiments.plan(quick=False, runs=10, seconds=2.0)
    assert (plan.repeat.least, plan.repeat.most, plan.minutes, plan.seconds) == (10, 10, None, 2.0)
    assert experiments.plan(quick=False, minutes=30).minutes == 30


@pytest.mark.parametrize("quick", [True, False])
def test_planned_points_differ_and_cover_every_experiment(quick):
    every = campaign.planned(experiments.plan(quick))
    keys = [tuple(each.point[key] for key in ("experiment", "load", "x", "system")) for each in every]
    assert len(keys) == len(set(keys))
    assert {each.point["experiment"] for each in every} == set(campaign.names(experiments.plan(quick)))


def test_every_experiment_of_a_figure_is_planned():
    planned = {(each.point["experiment"], each.point["load"]) for each in campaign.planned(experiments.plan(quick=False))}
    for figure in figures.FIGURES:
        for experiment, load in figure.experiments:
            assert any(experiment == name and load in (None, of_load) for name, of_load in planned), figure.label


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
