"""The rows and the summary of `scripts/bench`; nothing is measured."""

import importlib.util
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

LOADER = SourceFileLoader("bench_script", str(Path(__file__).resolve().parents[2] / "scripts/bench"))
bench = importlib.util.module_from_spec(importlib.util.spec_from_loader(LOADER.name, LOADER))
LOADER.exec_module(bench)


@pytest.fixture(autouse=True)
def two_sets(tmp_path, monkeypatch):
    monkeypatch.setenv("CLASSBENCH", str(tmp_path))
    for name in ("a", "b.xz", "LICENSE"):
        (tmp_path / name).touch()


@pytest.mark.parametrize("quick", [False, True])
def test_titles_are_distinct_and_fit_their_column(quick):
    titles = [row.title for row in bench.rows(quick)]
    assert len(titles) == len(set(titles))
    width = bench.COLUMNS[0][1]
    assert [title for title in titles if len(title) > width] == []


def test_rows_of_the_flow_cache_have_flows_and_its_cost():
    cached = [row for row in bench.rows(False) if "--flow-cache" in row.words]
    groups = [row for row in cached if isinstance(row, bench.InClass)]
    assert len(groups) == 5 and all(row.group == bench.CACHED and "--zipf" in row.words for row in groups)
    # What a miss costs is the difference from the same words without the switch.
    misses = [row for row in cached if row.above]
    assert misses and all(row.above == [word for word in row.words if word != "--flow-cache"] for row in misses)
    assert all(int(row.above[-1]) >= 4_000_000 for row in misses)


def line(cost, group=None, rules=10_000, size=0, load=0, title="a row"):
    result = {"rules": rules, "policy_bytes": size / 2, "engine_bytes": size / 2, "publish_ms": load}
    return {"title": title, "cost": cost, "group": group, "result": result}


def test_the_summary_has_medians_worst_sets_and_the_largest_policies():
    lines = [line(cost, bench.TABLES) for cost in (250, 900, 290, 310)] + [line(70, bench.CACHED), line(5)]
    for size, load in ((150e6, 5000), (170e6, 3000)):
        lines.append(line(1, rules=bench.MILLION, size=size, load=load, title="1,000,000 rules, 8 tuples, missing"))
    # Connections and IPv6 have figures of their own.
    lines.append(line(1, rules=4 * bench.MILLION, size=2e9, load=12_000, title="10,000,000 connections, random order"))
    found = {entry["title"]: (entry["figure"], entry["target"], entry["within"]) for entry in bench.summary(lines, 1.4)}
    assert found == {
        "ClassBench sets, tables only: median": (300, 300, True),
        "ClassBench sets, tables only: worst": (900, 600, False),
        "the same, as lists of accept and drop with distinct prio: median": (300, 200, False),
        "ClassBench sets, flow cache, 64 K Zipf flows: median": (70, 60, True),
        "ClassBench sets, flow cache, 64 K Zipf flows: worst": (70, 120, True),
        "a million rules: most bytes a rule": (170, 160, False),
        "a million rules: longest load, s": (5, 4, False),
    }
    assert bench.summary([], 1.4) == []
