"""Pages from made-up results: each figure appears where it belongs, and nothing is omitted."""

import json
import re

import pytest

from evaluation import report
from evaluation.report import answers, papers, targets
from evaluation.report.data import Results, large, number

MACHINE = {
    "cpu": "a processor",
    "cpu_id": "family 1",
    "cores": 2,
    "middle_core": 1,
    "end_cores": [0],
    "memory_gb": 4.0,
    "distribution": "Debian",
    "kernel": "6.1",
    "congestion_control": "cubic",
    "mitigations": {"spectre_v1": "Mitigation: some"},
    "commit": "0123456789ab",
    "versions": {"mmb": "mmb 0.1.0", "wrk": "not installed here"},
}


def runs(**metrics):
    """Runs with these metrics, a list of values each; a text instead of a value is the reason why a run failed."""
    made = []
    for order, values in enumerate(zip(*metrics.values(), strict=True)):
        failed = next((value for value in values if isinstance(value, str)), None)
        if failed:
            made.append({"order": order, "ok": False, "error": failed})
        else:
            made.append({"order": order, "ok": True, "metrics": dict(zip(metrics, values, strict=True))})
    return made


def point(experiment, system, load="iperf", x=0, axis="", absent=None, offloads=False, **metrics):
    return {
        "experiment": experiment,
        "title": f"title of {experiment}",
        "paper": "figure 1",
        "load": load,
        "load_title": f"load {load}",
        "axis": axis,
        "x": x,
        "offloads": offloads,
        "system": system,
        "system_title": f"<{system}>",
        "absent": absent,
        "runs": runs(**metrics) if metrics else [],
    }


def results(*points, **more):
    return more | {
        "format": 2,
        "plan": "quick",
        "only": "",
        "command": "python3 -m evaluation run --quick",
        "seed": 1,
        "repetitions": {"least": 3, "most": 8, "target": 0.05},
        "seconds_a_run": 0.8,
        "begun": "2026-01-01 00:00 UTC",
        "seconds": 61.0,
        "tsc_hz": 2_000_000_000,
        "offloads": {"plain": "off: tx", "offloads": "as the kernel sets them"},
        "machine": MACHINE,
        "idle": {"before": {"middle_busy": 0.01, "ends_busy": 0.01}, "after": {"middle_busy": 0.02, "ends_busy": 0.01}},
        "points": list(points),
    }


def firewall(system, gbit_s, cycles, x=100, **more):
    busy = [0.5] * len(gbit_s)
    return point("firewall", system, x=x, axis="rules", gbit_s=gbit_s, cycles_per_packet=cycles, middle_busy=busy, **more)


def pages(system, requests_s, cost, latency=100.0, experiment="rewrite-http-body", load="wrk-pages"):
    each = {"requests_s": requests_s, "mbyte_s": requests_s / 100, "latency_p50_us": latency, "latency_p99_us": 3 * latency}
    metrics = {name: [value] for name, value in each.items()} | {"middle_busy": [0.5], "middle_us_per_request": [cost]}
    return point(experiment, system, load, x=8, axis="KB", **metrics)


ALL = results(
    firewall("mmb", [1.0, 1.1, 1.2], [900, 910, 920]),
    firewall("nftables", [4.0, 4.1, 4.2], [400, 410, 420]),
    firewall("mmb", [1.0, 1.1, 1.2], [900, 910, 920], x=10_000),
    firewall("nftables", [4.0, "it fell | over", 4.2], [400, 410, 420], x=10_000),
    point("firewall", "iptables", x=10_000, axis="rules", absent="no kernel for it"),
    point("rtt", "mmb", "ping", x=10_000, axis="rules", rtt_p50_us=[50], rtt_p99_us=[99], rtt_quantiles_s=[[1e-6] * 101]),
    point("cycles", "mmb", "five-tuple", x=100_000, axis="rules", cycles_per_packet=[51.0], mpps=[40.0], classify_cycles=[17.0]),
    point("chain", "mmb", x=1, axis="functions", gbit_s=[3.0], cycles_per_packet=[700], middle_busy=[0.5]),
    point("chain", "mmb", x=2, axis="functions", gbit_s=[2.0], cycles_per_packet=[900], middle_busy=[0.5]),
    pages("mmb", 9000.0, 30.0),
    pages("nginx", 3000.0, 120.0),
    point("rewrite-http-body", "apache", "wrk-pages", x=8, axis="KB", absent="apache2 not installed here"),
    pages("mmb-no-rules", 5000.0, 1.0, 90.0, "rewrite-http-latency", "wrk-one-page"),
    pages("mmb", 5000.0, 1.0, 97.0, "rewrite-http-latency", "wrk-one-page"),
    point("streams", "mmb", "chain: NAT", x=1, axis="cores", gbit_s=[160.0], cycles_per_byte=[0.125], cycles_per_packet=[123.0]),
    point("streams", "mmb", "chain: NAT", x=2, axis="cores", gbit_s=[320.0], scaling=[2.0]),
    point("streams", "mmb", "chain: + digest", x=1, axis="cores", gbit_s=["no | memory"], cycles_per_byte=[1.0]),
    point("memif", "mmb", "none", x=64, axis="bytes", mpps=[6.5], gbit_s=[3.3], middle_busy=[1.0], cycles_per_packet=[300]),
    point("vpp", "vpp-acl", absent="not installed here"),
)


PLOTS = {"firewall.svg", "rtt.svg", "chain.svg", "cycles.svg", "rewrite-http-body.svg", "rewrite-http-latency.svg"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("matplotlib")
    made = tmp_path_factory.mktemp("report")
    (made / "stale.svg").write_text("of an earlier run")
    report.write(json.loads(json.dumps(ALL)), made)
    return made


@pytest.fixture(scope="module")
def page(folder):
    return (folder / "README.md").read_text()


def test_a_row_has_median_quartiles_share_and_cost(page):
    assert "| 100 | <nftables> | **4.10** (4.05–4.15) | 50% | **410** (405–415) |  |" in page


def test_runs_that_failed_are_in_their_row_and_in_a_table(page):
    assert "1 of 3 runs failed" in page
    assert "| firewall | iperf | 10 K | <nftables> | 1 | it fell \\| over |" in page


def test_who_is_absent_has_a_row_that_says_why(page):
    assert "| 10 K | <iptables> | – | – | – | no kernel for it |" in page
    assert re.search(r"vpp-acl.*not installed here", page)


def test_functions_on_streams_have_a_row_each_with_one_core_and_two(page):
    assert "| NAT | **0.125** (0.125–0.125) | **160** (160–160) | **320** (320–320) | 2.00 |  |" in page
    assert "| + digest | – | – | – | – | 1 of 1 runs failed |" in page


def test_rewriting_has_its_rates_its_latency_and_its_cost(page):
    row = "| 8 | <nginx> | **3,000** (3,000–3,000) | **30.0** (30.0–30.0) | **100** (100–100) | **300** (300–300) | 50% | **120** (120–120) |  |"
    assert row in page
    assert "| 8 | <apache> | – | – | – | – | – | – | apache2 not installed here |" in page
    assert "| 8 KB | 3.00 | 0.250 | +7 µs |" in page
    row = "| title of rewrite-http-body, by KB | wrk and nginx | <nginx> | 8: **ahead** 3.00 | 8: 0.250 |"
    assert row in page and "Ahead: a reverse proxy ends each connection" in page


def test_plots_and_tables_name_the_figures_that_they_correspond_to(page):
    assert "![title of firewall](firewall.svg)\n\n*Corresponds to mmb, figure 9a (firewall of five-tuples under iperf, by" in page
    assert "load iperf (mmb, figure 9a):" in page
    assert "![title of rtt](rtt.svg)\n\n*Corresponds to mmb, figure 8 (" in page
    assert "![Cycles of a packet](cycles.svg)\n\n*Corresponds to mmb, figure 11 (" in page
    assert "*Corresponds to MiddleClick, figure 13 (" in page
    assert "![title of rewrite-http-body](rewrite-http-body.svg)\n\n*In no paper.*" in page


def test_every_figure_is_listed_with_the_section_that_measures_it_or_the_reason_why_none_does(page):
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in page.splitlines() if line.startswith(("| mmb, ", "| Mid", "| DDoS"))}
    numbers = ("7", "8", "9a", "9b", "9c", "9d", "9e", "9f", "10", "11")
    assert {f"mmb, figure {number}" for number in numbers} <= set(rows)
    assert {"MiddleClick, figure 12", "MiddleClick, figure 13"} <= set(rows)
    assert {"DDoS filter, table of mask shapes", "DDoS filter, table of engines"} <= set(rows)
    assert "[title of firewall](#title-of-firewall) | FastClick: " in rows["mmb, figure 9a"]
    # A load without points, an experiment without points, a system that is absent.
    assert "| – |" in rows["mmb, figure 9d"] and "`firewall` under wrk: not in these results" in rows["mmb, figure 9d"]
    assert "`files`: not in these results" in rows["mmb, section 4.1"]
    assert "VPP is installed" in rows["DDoS filter, table of engines"]
    assert all(line.count(" | ") == 3 for line in rows.values())


def test_links_to_sections_lead_to_headings(page):
    headings = {papers.anchor(line.lstrip("# ")) for line in page.splitlines() if line.startswith("#")}
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= headings


def stopped(why, runs, half_width, session="2026-01-01 00:00 UTC"):
    made = firewall("mmb", [1.0] * runs, [900] * runs, x=runs)
    made["stopped"] = {"why": why, "runs": runs, "metric": "gbit_s", "half_width": half_width}
    return made | {"session": session, "busy_before": 0.01}


def test_the_page_tells_how_many_runs_points_took_and_why(tmp_path):
    points = stopped("steady", 3, 0.02), stopped("most", 8, 0.12), stopped("time", 4, 0.09, "2026-01-02 00:00 UTC")
    report.write(results(*points, missing={"nat": 4}, reused=2), tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert "| 3 runs, ±2.0% |" in page
    assert "| 8 runs, ±12.0%, the most |" in page
    assert "| 4 runs, ±9.0%, no time for more |" in page
    assert "A point is 3 to 8 runs: it has enough when the 95 % confidence interval of its mean is within ±5%." in page
    assert "3 points took 15 runs. The points were measured in 2 sessions" in page
    assert "| the most runs that a point gets; the interval is wider | 1 | 8–8 | 8 | ±12.0% |" in page
    assert "Not measured yet: nat (4 points)." in page
    assert "in 61 seconds (2 points are of earlier sessions)." in page


def test_a_machine_that_was_busy_in_an_earlier_session_spoils_the_figures(tmp_path):
    busy = stopped("steady", 3, 0.02) | {"busy_before": 0.4}
    report.write(results(busy, stopped("steady", 4, 0.02)), tmp_path)
    assert "The machine had other work meanwhile" in (tmp_path / "README.md").read_text()


def test_results_of_the_first_format_still_have_their_page(tmp_path):
    old = {key: value for key, value in ALL.items() if key != "repetitions"} | {"format": 1, "runs": 5}
    report.write(old, tmp_path)
    assert "A point is 5 runs in turn" in (tmp_path / "README.md").read_text()


def test_losing_is_shown_with_its_reason(page):
    row = "| title of firewall, by rules | load iperf | <nftables> | 100: **behind** 0.268; 10 K: **behind** 0.268 | 100: 2.22; 10 K: 2.22 |"
    assert row in page
    assert "leaves the kernel for mmb and comes back" in page


def test_the_page_names_the_machine_and_the_versions(page):
    assert "a processor (family 1)" in page and "2.000 GHz" in page
    assert "| wrk | not installed here |" in page


def test_every_picture_of_the_page_is_there_and_no_other(folder, page):
    linked = set(re.findall(r"\]\(([\w-]+\.svg)\)", page))
    assert linked == {path.name for path in folder.glob("*.svg")} == PLOTS


def test_the_same_results_give_the_same_bytes(folder, tmp_path):
    report.write(ALL, tmp_path)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (folder / path.name).read_bytes(), path.name


def test_a_busy_machine_spoils_the_figures_and_the_page_says_so(folder, tmp_path, page):
    busy = ALL | {"idle": {"before": {"middle_busy": 0.4, "ends_busy": 0}, "after": {"middle_busy": 0, "ends_busy": 0}}}
    report.write(busy, tmp_path)
    warning = "The machine had other work meanwhile"
    assert warning in (tmp_path / "README.md").read_text() and warning not in page


def test_the_knees_are_those_of_the_curves():
    falling = [firewall("iptables", [gbit_s], [1], x=x) for x, gbit_s in ((100, 4.0), (1000, 3.9), (10_000, 0.2))]
    assert "| five-tuple rules | <iptables>, iperf3 | 4.00 at 100 → 0.200 at 10 K | 10 K on |" in answers.knees(
        Results(results(*falling))
    )


@pytest.mark.parametrize(
    ("plain", "xdp", "advice"),
    [
        (3.0, 2.0, "use `eth1`: it was ahead"),
        (2.0, 3.0, "use `af_xdp:eth1`: it was ahead"),
        (2.0, 2.0, "overlap, or were not compared"),
    ],
)
def test_the_advice_on_devices_follows_the_figures(plain, xdp, advice):
    made = [
        point(wanted["experiment"], system, wanted["load"], **{metric: [value]})
        for (_, wanted), metric in zip(answers.ADVISING, ("mpps", "gbit_s", "gbit_s"), strict=True)
        for system, value in (("mmb", plain), ("mmb-af_xdp", xdp))
    ]
    assert advice in answers.devices(Results(results(*made)))


def test_advice_names_each_form_that_is_ahead_somewhere():
    made = [
        point(wanted["experiment"], system, wanted["load"], **{metric: [value]})
        for (_, wanted), metric, plain in zip(answers.ADVISING, ("mpps", "gbit_s", "gbit_s"), (1.0, 3.0, 2.0), strict=True)
        for system, value in (("mmb", plain), ("mmb-af_xdp", 2.0))
    ]
    advice = "`af_xdp:eth1` for 64-byte UDP, established flows, `eth1` for TCP, 7 streams"
    assert advice in answers.devices(Results(results(*made)))


def targeted(experiment, load, metric, values, x=0, cost="cycles_per_packet", **more):
    """Points of systems with a value and cycles each."""
    axis = "rules" if x else ""
    return [
        point(experiment, system, load, x=x, axis=axis, **{metric: [value], cost: [cycles]}, **more)
        for system, (value, cycles) in values.items()
    ]


def test_targets_are_ratios_to_each_peer_by_rates_and_by_cycles():
    four = {"forward": (10.0, 100), "mmb": (9.6, 220), "mmb-offload-off": (5.0, 400), "nftables": (8.0, 200)}
    made = [
        *targeted("default-forwarding", "iperf", "gbit_s", four, cost="cycles_per_kb", offloads=True),
        *(each for x in (10, 100) for each in targeted("firewall", "iperf", "gbit_s", four, x=x)),
        *targeted("balance", "wrk-balanced", "gbit_s", {"mmb": (3.0, 10), "nftables": (3.0, 20), "haproxy": (2.5, 30)}),
        *targeted("rtt", "ping", "rtt_p50_us", {"mmb": (22.0, 1), "nftables": (20.0, 1)}, x=10_000),
        *targeted("rtt", "ping-iperf", "rtt_p50_us", {"mmb": (40.0, 1), "nftables": (20.0, 1)}, x=10_000),
        *targeted("connections", "wrk-close", "requests_s", {"mmb": (90.0, 1), "nftables": (100.0, 1)}),
    ]
    table = targets.table(Results(results(*made))).splitlines()
    assert table[2:] == [
        "| 7 × iperf3, offloads at defaults: forwarding | <forward> | 0.960 | ≥ 0.95 | yes | 0.500 |",
        "| 7 × iperf3, offloads at defaults: forwarding | <nftables> | 1.20 | ≥ 1.0 | yes | 0.625 |",
        "| 7 × iperf3, offloads off: five-tuple firewall, 100 rules | <forward> | 0.960 | ≥ 1.0 | no | 0.500 |",
        "| 7 × iperf3, offloads off: five-tuple firewall, 100 rules | <nftables> | 1.20 | ≥ 1.0 | yes | 0.625 |",
        "| wrk, 128 KB files, balancing | <haproxy> | 1.20 | ≥ 1.5 | no | – |",
        "| wrk, 128 KB files, balancing | <nftables> | 1.00 | ≥ 1.0 | yes | – |",
        "| ping alone | <nftables> | 1.10 | ≤ 1.1 | yes | – |",
        "| ping beside 7 × iperf3 | <nftables> | 2.00 | ≤ 1.5 | no | – |",
        "| cycles a KB of the middle's core: 7 × iperf3, offloads at defaults: forwarding | <nftables> | 1.10 | ≤ 1.0 | no | 2.00 |",
        "| cycles a packet of the middle's core: 7 × iperf3, offloads off: five-tuple firewall, 100 rules | <nftables> | 1.10 | ≤ 1.0 | no | 2.00 |",
        "| cycles a packet of the middle's core: wrk, 128 KB files, balancing | <nftables> | 0.500 | ≤ 1.0 | yes | – |",
        "",
        "New connections through a source NAT, requests/s: 0.900 of nftables', target ≥ 1.0.",
    ]


def test_a_target_whose_run_failed_has_a_row_without_a_ratio():
    made = [point("rtt", "mmb", "ping", rtt_p50_us=["no answer"]), point("rtt", "nftables", "ping", rtt_p50_us=[20.0])]
    assert "| ping alone | <nftables> | – | ≤ 1.1 | – | – |" in targets.table(Results(results(*made)))


@pytest.mark.parametrize(("value", "text"), [(None, "–"), (1234.5, "1,234"), (12.34, "12.3"), (1.234, "1.23"), (0.1234, "0.123")])
def test_three_digits_count(value, text):
    assert number(value) == text


@pytest.mark.parametrize(("value", "text"), [(1, "1"), (1000, "1 K"), (65_536, "65,536"), (1_000_000, "1 M")])
def test_counts_as_people_say_them(value, text):
    assert large(value) == text
