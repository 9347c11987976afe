"""An evaluation that is stopped goes on where it was: stored points, the number of runs, the time. Measurements are made up."""

import argparse
import contextlib
import errno
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evaluation import __main__ as main
from evaluation import budget, campaign, exclusive, experiments, method, session
from evaluation.method import Repetitions
from evaluation.session import Planned, Session, Unit, grouped
from evaluation.store import Store, Unwritable, parsed, probe, write_atomically

ROOT = Path(__file__).parents[2]
REPEAT = Repetitions(3, 6, 0.05)
MACHINE = {"cpu": "a processor", "kernel": "6.1"}


def planned(system, x=1, group="nat 1", seconds=1.0, **parameters):
    point = {"experiment": group.split()[0], "load": "iperf", "x": x, "system": system, "axis": "", "offloads": False}
    return Planned(
        point=point | {"absent": None, "runs": []},
        parameters={"seconds": seconds, **REPEAT._asdict(), **parameters},
        group=group,
        metric="mpps",
        seconds=seconds,
        around_s=1.0,
    )


class Evaluation:
    """A folder with points, and sessions that measure with made-up functions: `values` gives for each system the values of its runs,
    or an exception to raise."""

    def __init__(self, folder):
        self.folder, self.calls = folder, []

    def store(self, binary="hash", machine=None, fresh=False):
        return Store(self.folder / "points", "full", binary, machine or MACHINE, fresh)

    def run(self, points, values, minutes=None, clock=None, **store):
        made = Session(self.store(**store), REPEAT, 1, self.budget(minutes, clock))
        for group, chosen in grouped(points):
            units = {each.point["system"]: made.unit(each, self._measure(each, values)) for each in made.pending(chosen)}
            with made.comparison(group):
                made.take_turns(group, units)
        return made

    @staticmethod
    def budget(minutes, clock):
        return budget.Budget(minutes, {}, *([clock] if clock else []))

    def _measure(self, each, values):
        system = each.point["system"]
        following = itertools.cycle(values[system])

        def measure():
            self.calls.append(system)
            value = next(following)
            if isinstance(value, BaseException):
                raise value
            return {"mpps": value}

        return measure

    def files(self):
        return sorted(path.name for path in self.folder.rglob("*") if path.is_file())


@pytest.fixture
def evaluation(tmp_path):
    return Evaluation(tmp_path)


STEADY, SCATTERED = [5.0, 5.0, 5.0], [1.0, 9.0, 3.0]


def test_stored_points_are_not_measured_again(evaluation):
    first = evaluation.run([planned("a"), planned("b")], {"a": STEADY, "b": STEADY})
    assert (len(first.measured), len(first.reused)) == (2, 0)
    evaluation.calls.clear()
    second = evaluation.run([planned("a"), planned("b"), planned("c")], {"a": STEADY, "b": STEADY, "c": STEADY})
    assert (len(second.measured), len(second.reused)) == (1, 2)
    assert set(evaluation.calls) == {"c"}
    # The order goes on.
    assert {run["order"] for run in second.measured[0]["runs"]} == {7, 8, 9}


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), SystemExit(143)])
def test_an_interruption_in_a_point_keeps_the_complete_ones_and_no_part_of_it(evaluation, interruption):
    first, second = planned("a", group="nat 1"), planned("b", group="nat 2")
    with pytest.raises(type(interruption)):
        evaluation.run([first, second], {"a": STEADY, "b": [5.0, interruption]})
    assert evaluation.files() == ["iperf-1-a.json"]
    evaluation.calls.clear()
    resumed = evaluation.run([planned("a", group="nat 1"), planned("b", group="nat 2")], {"a": STEADY, "b": STEADY})
    assert evaluation.calls == ["b"] * 3
    assert (len(resumed.measured), len(resumed.reused)) == (1, 1)
    assert len(resumed.measured[0]["runs"]) == 3


def test_a_system_that_is_complete_is_kept_if_the_comparison_is_interrupted(evaluation):
    with pytest.raises(KeyboardInterrupt):
        evaluation.run([planned("a"), planned("b")], {"a": STEADY, "b": [1.0, 9.0, 1.0, KeyboardInterrupt()]})
    assert evaluation.files() == ["iperf-1-a.json"]


def test_a_file_that_was_being_written_is_not_there(evaluation, monkeypatch, tmp_path):
    path = tmp_path / "nat" / "kept.json"
    path.parent.mkdir()
    write_atomically(path, "before")

    def power_is_lost(_):
        raise OSError("no power")

    monkeypatch.setattr("os.fsync", power_is_lost)
    with pytest.raises(OSError, match="no power"):
        write_atomically(path, "after")
    assert path.read_text() == "before"
    path.unlink()
    # What is left of it is no point of a later session.
    assert not list(Store(tmp_path, "", "hash", MACHINE).all())


@pytest.mark.parametrize(
    "changed",
    [{"binary": "another program"}, {"machine": MACHINE | {"kernel": "6.2"}}, {"fresh": True}],
    ids=["binary", "machine", "fresh"],
)
def test_another_program_or_machine_is_measured_anew(evaluation, changed):
    evaluation.run([planned("a")], {"a": STEADY})
    again = evaluation.run([planned("a")], {"a": [7.0]}, **changed)
    assert (len(again.measured), len(again.reused)) == (1, 0)
    assert method.values(again.measured[0], "mpps") == [7.0] * 3
    assert len(evaluation.files()) == 1, "the new point takes the place of the old one"


def test_other_parameters_are_measured_anew(evaluation):
    evaluation.run([planned("a")], {"a": STEADY})
    assert not evaluation.run([planned("a", seconds=2.0)], {"a": STEADY}).reused
    assert not evaluation.run([planned("a", seconds=2.0, policy=["nat", 2])], {"a": STEADY}).reused


def test_another_method_is_measured_anew(evaluation, monkeypatch):
    evaluation.run([planned("a")], {"a": STEADY})
    monkeypatch.setattr(method, "VERSION", method.VERSION + 1)
    assert not evaluation.run([planned("a")], {"a": STEADY}).reused


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 1}', "\x00" * 100])
def test_a_damaged_file_is_measured_anew_with_a_warning(evaluation, capsys, text):
    evaluation.run([planned("a")], {"a": STEADY})
    path = evaluation.store().path(planned("a").point)
    path.write_text(text)
    again = evaluation.run([planned("a")], {"a": STEADY})
    assert len(again.measured) == 1 and not again.reused
    assert capsys.readouterr().err.count(f"{path} is damaged and is measured anew") == 1
    assert parsed(path.read_text())


def test_half_a_file_is_damaged(evaluation, capsys):
    evaluation.run([planned("a")], {"a": STEADY})
    path = evaluation.store().path(planned("a").point)
    path.write_text(path.read_text()[:200])
    assert evaluation.run([planned("a")], {"a": STEADY}).measured
    assert "damaged" in capsys.readouterr().err


def test_a_point_tells_how_it_was_measured(evaluation):
    evaluation.run([planned("a")], {"a": STEADY})
    record = json.loads(evaluation.store().path(planned("a").point).read_text())
    assert (record["binary"], record["machine"], record["method"]) == ("hash", MACHINE, method.VERSION)
    assert record["parameters"]["least"] == 3 and record["point"]["measured"].endswith("UTC")
    assert all(run["took_s"] >= 0 for run in record["point"]["runs"])


def test_the_failure_of_a_point_is_kept_and_loses_no_other(evaluation):
    broken = {"a": [RuntimeError("it fell\nover")], "b": STEADY, "c": [5.0, ValueError("once"), 5.0, 5.0]}
    first = evaluation.run([planned(name) for name in "abc"], broken)
    assert [point["system"] for point in first.failed] == ["a"]
    assert {point["system"] for point in first.measured} == {"b", "c"}
    (failed,) = first.failed
    assert failed["stopped"]["why"] == method.FAILED and len(failed["runs"]) == 3
    assert {run["error"] for run in failed["runs"]} == {"it fell over"}
    # The next session tries it again, and only it.
    evaluation.calls.clear()
    second = evaluation.run([planned(name) for name in "abc"], {"a": STEADY})
    assert evaluation.calls == ["a"] * 3 and len(second.reused) == 2


def test_little_scatter_stops_at_the_minimum_and_much_goes_to_the_maximum(evaluation):
    made = evaluation.run([planned("a"), planned("b")], {"a": [5.0, 5.02, 5.01], "b": SCATTERED})
    stopped = {point["system"]: point["stopped"] for point in made.measured}
    assert (stopped["a"]["runs"], stopped["a"]["why"]) == (3, method.STEADY) and stopped["a"]["half_width"] < 0.05
    assert (stopped["b"]["runs"], stopped["b"]["why"]) == (6, method.MOST) and stopped["b"]["half_width"] > 0.05
    texts = {point["system"]: method.repetitions(point) for point in made.measured}
    assert texts["a"].startswith("3 runs, ±0.") and texts["b"].startswith("6 runs, ±") and texts["b"].endswith(", the most")


class Clock:
    """A clock that a run advances by a second."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def budgeted(evaluation, monkeypatch, minutes, groups):
    """Points in groups, of which all scatter; a run takes a second."""
    clock = Clock()
    monkeypatch.setattr(session.time, "monotonic", clock)
    made = Session(evaluation.store(), REPEAT, 1, budget.Budget(minutes, {group: 3.0 for group in groups}, clock))

    def measure(values=itertools.cycle(SCATTERED)):
        clock.now += 1
        return {"mpps": next(values)}

    for group in groups:
        with made.comparison(group):
            made.take_turns(group, {"a": made.unit(planned("a", group=group, x=group.split()[1]), measure)})
    return made, clock


def test_without_time_for_more_every_point_has_its_minimum_and_says_so(evaluation, monkeypatch):
    made, clock = budgeted(evaluation, monkeypatch, 5 / 60, [f"nat {n}" for n in range(4)])
    assert [point["stopped"]["runs"] for point in made.measured] == [3] * 4
    assert {point["stopped"]["why"] for point in made.measured} == {method.TIME}
    assert "no time for more" in method.repetitions(made.measured[0])


def test_the_first_points_do_not_use_the_time_of_the_last(evaluation, monkeypatch):
    made, clock = budgeted(evaluation, monkeypatch, 20 / 60, [f"nat {n}" for n in range(4)])
    assert [point["stopped"]["runs"] for point in made.measured] == [5] * 4
    assert clock.now == 20


def test_with_enough_time_scatter_takes_the_most(evaluation, monkeypatch):
    made, _ = budgeted(evaluation, monkeypatch, 1.0, [f"nat {n}" for n in range(4)])
    assert [point["stopped"]["runs"] for point in made.measured] == [6] * 4


def test_a_slow_machine_slows_the_expectation():
    clock = Clock()
    limited = budget.Budget(10, {"a": 50.0, "b": 50.0}, clock)
    limited.begin("a")
    clock.now = 100.0
    limited.end("a")
    limited.begin("b")
    # 100 s for b are reserved of the 500 s that are left.
    assert limited.extra == pytest.approx(400.0)


def test_points_of_one_measurement_stop_together(evaluation):
    made = Session(evaluation.store(), REPEAT, 1, budget.Budget(None, {}))
    points = {"one": planned("one"), "other": planned("other"), "lost": planned("lost")}
    scattered = itertools.cycle(SCATTERED)
    unit = Unit(points, lambda: {"one": {"mpps": 5.0}, "other": {"mpps": next(scattered)}})
    with made.comparison("nat 1"):
        made.take_turns("nat 1", {"all": unit})
    why = {name: (each.point["stopped"]["runs"], each.point["stopped"]["why"]) for name, each in points.items()}
    assert why == {"one": (6, method.STEADY), "other": (6, method.MOST), "lost": (6, method.FAILED)}


def test_an_unknown_name_is_an_error_that_lists_the_known_ones():
    plan = experiments.plan(quick=False)
    assert campaign.chosen(plan, "streams, nat") == ["nat", "streams"]
    assert campaign.chosen(plan, "") == campaign.names(plan)
    with pytest.raises(campaign.UnknownName, match="has no tan and no strems; it has: default-forwarding, .*nat, .*streams"):
        campaign.chosen(plan, "tan,nat,strems")
    with pytest.raises(campaign.UnknownName, match="the quick evaluation has no files"):
        campaign.chosen(experiments.plan(quick=True), "files")


def test_the_command_refuses_an_unknown_name_before_it_needs_anything(tmp_path):
    words = [sys.executable, "-m", "evaluation", "run", "--only", "tan", "--out", tmp_path]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "has no tan; it has: " in done.stderr


def test_the_list_has_every_experiment_with_its_points_and_minutes(tmp_path):
    words = [sys.executable, "-m", "evaluation", "list", "--only", "nat,streams", "--out", tmp_path]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["nat", "streams", "all"]
    assert "mmb, figure 9c" in lines[1] and lines[1].split()[1:3] == ["10", "0"]
    assert "Estimate: " in done.stdout and not list(tmp_path.iterdir())


def test_estimates_follow_the_durations_of_stored_points(evaluation):
    slow = planned("a").point | {"seconds": 1.0, "runs": [{"ok": True, "took_s": 4.0, "metrics": {}}] * 3}
    durations = budget.Durations([slow])
    assert durations.run(planned("a", seconds=2.0)) == 5.0
    # A system without points takes as long as the others of its experiment; another experiment has its default.
    assert durations.run(planned("b", seconds=2.0)) == 5.0
    assert durations.run(planned("a", group="masks 1", seconds=2.0)) == 3.0


def test_the_list_counts_stored_points(evaluation):
    points = [planned("a"), planned("b")]
    evaluation.run(points, {"a": STEADY, "b": [RuntimeError("x")]})
    text = campaign.listing(experiments.plan(quick=False), [planned("a"), planned("b")], evaluation.store())
    assert text.splitlines()[1].split()[:3] == ["nat", "2", "1"]


def test_points_of_a_busy_machine_are_counted(evaluation):
    evaluation.run([planned("a")], {"a": STEADY})
    assert campaign.reuse([planned("a"), planned("b")], evaluation.store()).endswith("1 are to be measured")
    point = next(evaluation.store().all()) | {"busy_before": 0.5}
    evaluation.store().write(point, planned("a").parameters)
    assert "1 of those that are reused are of a busy machine" in campaign.reuse([planned("a")], evaluation.store())


def test_results_have_points_of_earlier_sessions_and_name_what_is_missing(evaluation):
    evaluation.run([planned("a")], {"a": STEADY})
    found, missing = campaign.collected([planned("a"), planned("b"), planned("c", group="masks 1")], evaluation.store())
    assert [point["system"] for point in found] == ["a"] and missing == {"nat": 1, "masks": 1}
    assert campaign.collected([planned("a")], evaluation.store(binary="another")) == ([], {"nat": 1})


def refused(words, status, **options):
    """What an evaluation prints that ends with this status."""
    done = subprocess.run(
        [sys.executable, "-m", "evaluation", *map(str, words)], cwd=ROOT, capture_output=True, text=True, timeout=60, **options
    )
    assert done.returncode == status and "Traceback" not in done.stderr, done.stderr
    return done.stderr


@pytest.fixture
def as_root(monkeypatch):
    """Runs the command in this process, as if it were root with a program; nothing may be measured."""
    monkeypatch.setattr(main.os, "geteuid", lambda: 0)
    monkeypatch.setattr(main, "BINARY", sys.executable)
    monkeypatch.setattr(main.signal, "signal", lambda *_: None)
    monkeypatch.setattr(main, "need_matplotlib", lambda: None)
    monkeypatch.setattr(main, "_measure", lambda *_: pytest.fail("it measures"))

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["evaluation", "run", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main.main()
        return ended.value.code

    return run


def test_a_second_evaluation_is_refused(as_root, monkeypatch, tmp_path):
    path = tmp_path / "lock"
    alone = exclusive.alone
    monkeypatch.setattr(exclusive, "alone", lambda: alone(path))
    holds = "import sys, time; from evaluation import exclusive\nwith exclusive.alone(sys.argv[1]): print('held', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", holds, path], cwd=ROOT, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        assert as_root("--out", tmp_path / "out") == f"evaluation: another evaluation (process {other.pid}) is running"
        other.kill()
    assert not (tmp_path / "out").exists() and path.stat().st_mode & 0o777 == 0o666
    # The file of an evaluation that was killed refuses nothing.
    with alone(path):
        assert path.read_text() == f"{exclusive.os.getpid()}\n"


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "file")
    with pytest.raises(OSError), exclusive.alone(tmp_path / "lock"):
        pass
    assert not (tmp_path / "file").exists()


@pytest.fixture
def unlocked(monkeypatch):
    monkeypatch.setattr(exclusive, "alone", contextlib.nullcontext)


@pytest.mark.parametrize("below", ["", "results"])
def test_a_file_in_place_of_the_directory_is_refused_before_anything_is_measured(as_root, unlocked, capsys, tmp_path, below):
    (tmp_path / "file").write_text("kept")
    out = tmp_path / "file" / below
    assert as_root("--out", out) == main.FAILED
    assert capsys.readouterr().err == f"evaluation: {out} cannot be written: Not a directory\n"
    assert (tmp_path / "file").read_text() == "kept"


def full_disk(_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_found_before_anything_is_measured(as_root, unlocked, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("os.fsync", full_disk)
    assert as_root("--out", tmp_path / "out") == main.FAILED
    assert capsys.readouterr().err == f"evaluation: {tmp_path / 'out'} cannot be written: No space left on device\n"
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_probe_leaves_no_file_and_removes_those_of_killed_evaluations(tmp_path):
    left, kept = tmp_path / "points/full/nat/.a.json.new", tmp_path / "points/full/nat/a.json"
    left.parent.mkdir(parents=True)
    left.write_text("half")
    kept.write_text("whole")
    probe(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [kept]


def test_a_disk_that_fills_up_ends_the_session_at_once(evaluation, monkeypatch):
    points = [planned("a", group="nat 1"), planned("b", group="nat 2")]
    made = Session(evaluation.store(), REPEAT, 1, budget.Budget(None, {}))

    class Between:
        def __init__(self, *_):
            pass

        def run(self, points):
            for group, (each,) in grouped(points):
                with made.comparison(group):
                    made.take_turns(group, {each.point["system"]: made.unit(each, evaluation._measure(each, {"a": STEADY, "b": STEADY}))})

        def close(self):
            evaluation.calls.append("closed")

    monkeypatch.setattr(campaign.live, "Live", Between)
    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(Unwritable, match=f"^{evaluation.folder} cannot be written: No space left on device$"):
        campaign.run(evaluation.folder, None, 1e9, experiments.plan(quick=False), made, points, contextlib.nullcontext)
    assert evaluation.calls == ["a"] * 3 + ["closed"] and not evaluation.files()


@pytest.mark.parametrize(
    ("changed", "parameters", "text"),
    [
        ({"binary": "another"}, {}, "2 stored points are of another program: measured anew"),
        ({"machine": MACHINE | {"kernel": "6.2"}}, {}, "2 stored points are of another machine: measured anew"),
        ({}, {"seconds": 2.0}, "2 stored points are with other parameters: measured anew"),
        ({"fresh": True, "binary": "another"}, {}, None),
        ({}, {}, None),
    ],
)
def test_stored_points_that_are_not_used_are_counted_by_the_reason(evaluation, changed, parameters, text):
    evaluation.run([planned("a"), planned("b")], {"a": STEADY, "b": STEADY})
    points, store = [planned(name, **parameters) for name in "abc"], evaluation.store(**changed)
    assert list(campaign.outdated(points, store)) == ([text] if text else [])
    assert not text or campaign.listing(experiments.plan(quick=False), points, store).endswith(text)


def test_stored_points_of_another_method_are_counted(evaluation, monkeypatch):
    evaluation.run([planned("a")], {"a": STEADY})
    monkeypatch.setattr(method, "VERSION", method.VERSION + 1)
    assert list(campaign.outdated([planned("a")], evaluation.store())) == ["1 stored point is of another method: measured anew"]


def test_a_part_does_not_replace_results_with_more(evaluation):
    every = [planned("a"), planned("b", group="masks 1"), planned("c", group="masks 1")]
    evaluation.run(every, {name: STEADY for name in "abc"})
    results = {"points": campaign.collected(every, evaluation.store())[0]}
    fresh = [planned("a"), planned("b", group="masks 1"), planned("c", group="masks 1")]
    assert campaign.dropped(results, fresh, ["nat"], evaluation.store()) == []
    assert campaign.dropped(results, fresh, ["nat"], evaluation.store(binary="another")) == ["masks"]
    assert campaign.dropped(results, fresh, ["nat", "masks"], evaluation.store(binary="another")) == []
    # Another program has measured one of the two points so far.
    evaluation.run(fresh[:2], {"a": STEADY, "b": STEADY}, binary="another")
    assert campaign.dropped(results, fresh, ["nat"], evaluation.store(binary="another")) == ["masks"]


def test_the_refusal_to_drop_results_names_another_directory(evaluation):
    (evaluation.folder / "results.json").write_text(json.dumps({"points": [planned("a").point | {"runs": [{"ok": True}]}]}))
    options = argparse.Namespace(out=evaluation.folder, only="masks")
    with pytest.raises(SystemExit, match=r"results.json has points of other experiments \(nat\).*OUT=DIR"):
        main.refuse_to_drop(options, [planned("a")], ["masks"], evaluation.store())
    options.only = ""
    main.refuse_to_drop(options, [planned("a")], ["masks"], evaluation.store())
    (evaluation.folder / "results.json").write_text("{")
    options.only = "masks"
    main.refuse_to_drop(options, [planned("a")], ["masks"], evaluation.store())


@pytest.mark.parametrize("option", ["--seconds", "--runs", "--minutes"])
@pytest.mark.parametrize("value", ["0", "-1", "x"])
def test_numbers_of_options_are_above_zero(option, value):
    text = refused(["list", f"{option}={value}"], 2)
    assert f"argument {option}: " in text and (f"{value} is not above zero" in text or f"value: '{value}'" in text)


@pytest.mark.parametrize("only", [",", " ", " , "])
def test_a_list_without_names_is_an_error(only):
    assert f"'{only}' names no experiment; there are: default-forwarding, " in refused(["list", "--only", only], 1)


def test_estimates_below_two_minutes_are_in_seconds():
    assert [budget.duration(minutes) for minutes in (0.2, 1.99, 2.0, 90.0)] == ["12 seconds", "119 seconds", "2 minutes", "90 minutes"]


def test_make_quotes_its_variables_and_lists_the_quick_plan(tmp_path):
    words = ["make", "-s", "--no-print-directory", "evaluate-list", "QUICK=1", "ONLY=nat, streams", f"OUT={tmp_path}/a b"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert [line.split()[0] for line in done.stdout.splitlines()[1:4]] == ["nat", "streams", "all"], done.stderr
    assert "A point takes 3 to 5 runs" in done.stdout


def test_a_list_may_be_cut_by_its_reader():
    """Each output is written at once, so that the pipe is closed by then."""
    line = f"{sys.executable} -u -m evaluation list | (exec 0<&-; sleep 0.1)"
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == ""


def test_the_list_needs_no_matplotlib(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError('not here')")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    words = [sys.executable, "-m", "evaluation", "list", "--out", tmp_path]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "Estimate: " in done.stdout, done.stderr
