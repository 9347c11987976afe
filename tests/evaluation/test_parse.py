"""Recorded outputs of programs, parsed."""

from pathlib import Path

import pytest

from evaluation import accounting, parse, vpp
from lab.vpp import Node, runtime

SAMPLES = Path(__file__).parent / "samples"


def sample(name):
    return (SAMPLES / f"{name}.txt").read_text()


def test_wrk():
    measured = parse.wrk(sample("wrk"))
    assert measured["requests_s"] == 1811.00
    assert measured["gbit_s"] == pytest.approx(226.87 * 2**20 * 8 / 1e9)
    assert (measured["latency_p50_s"], measured["latency_p99_s"]) == pytest.approx((0.03029, 0.11586))
    assert measured["errors"] == 0


def test_wrk_counts_errors():
    lines = "  Socket errors: connect 1, read 20, write 300, timeout 4000\n  Non-2xx or 3xx responses: 5\nRequests/sec:"
    assert parse.wrk(sample("wrk").replace("Requests/sec:", lines))["errors"] == 4326


def test_wrk_with_seconds_which_it_writes_with_a_blank_behind():
    measured = parse.wrk(sample("wrk").replace(" 99%  115.86ms", " 99%    1.79s "))
    assert (measured["latency_p50_s"], measured["latency_p99_s"]) == pytest.approx((0.03029, 1.79))


def test_a_header_field_of_a_head():
    head = "HTTP/1.1 200 OK\r\nserver:  a b \r\nX-Server: c\r\nVia: 1\r\nVia: 2\r\n\r\n"
    assert parse.header(head, "Server") == "a b"
    assert parse.header(head, "Via") == "1, 2"
    assert parse.header(head, "Age") is None


def test_ping():
    measured = parse.ping(sample("ping"))
    assert measured["times_s"][:3] == pytest.approx([0.000222, 0.000115, 0.000088])
    assert measured["sent"] == 222


def test_what_sockets_have_received():
    sockets, received = parse.received(sample("ss"))
    assert sockets == 4
    assert received == 166 + 1767629 + 166 + 2097189
    assert parse.received("") == (0, 0)


def test_blast():
    assert parse.blast(sample("blast")) == {"sent": 139392, "refused": 0}


def test_an_interface_is_found_by_its_name():
    assert parse.interface(sample("net_dev"), "eth0") == {
        "rx_bytes": 206866094,
        "rx_packets": 143938,
        "tx_bytes": 24188798,
        "tx_packets": 170044,
    }


def test_cores_without_their_sum():
    times = parse.cpu_times(sample("proc_stat"))
    assert set(times) == {0, 1}
    assert times[0] == {"idle": 1347161 + 2186, "steal": 2276, "softirq": 77447}


@pytest.mark.parametrize("read", [parse.wrk, parse.ping, parse.blast])
@pytest.mark.parametrize("text", ["", "connection refused\n"])
def test_other_output_is_refused(read, text):
    with pytest.raises(parse.Unreadable):
        read(text)


def test_the_clocks_of_a_feature_of_vpp():
    nodes = runtime(sample("vpp_show_runtime"))
    assert nodes["pg-input"] == Node(2_000_000, 2680.0)
    found = vpp.clocks(nodes, "nat|sv-reassembly")
    assert found["cycles_per_packet"] == pytest.approx(51.7 + 11.2 + 465 + 988528 / 2_000_000 * 1870)
    with pytest.raises(parse.Unreadable, match="inacl"):
        vpp.clocks(nodes, "inacl")


def test_an_unknown_interface_is_refused():
    with pytest.raises(parse.Unreadable, match="eth7"):
        parse.interface(sample("net_dev"), "eth7")


def test_a_core_is_busy_when_it_is_not_idle():
    before = {0: {"idle": 1000, "steal": 0, "softirq": 0}, 1: {"idle": 2000, "steal": 0, "softirq": 0}}
    ticks = accounting.TICKS
    after = {0: {"idle": 1000 + ticks, "steal": 0, "softirq": 0}, 1: {"idle": 2000, "steal": 0, "softirq": 0}}
    assert accounting.busy(before, after, [0], 2.0) == 0.5
    assert accounting.busy(before, after, [1], 2.0) == 1.0
    assert accounting.busy(before, after, [0, 1], 2.0) == 0.75


def test_a_busy_core_never_passes_its_time():
    before, after = {0: {"idle": 0}}, {0: {"idle": 3 * accounting.TICKS}}
    assert accounting.busy(before, after, [0], 2.0) == 0.0
