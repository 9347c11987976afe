"""Rules that edit streams with all sizes of packets, VLANs, both families, and beside rules on headers."""

import threading

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether

from . import vlan
from .edits import PORT, TARGETS, Flow, carry, edited, full_of, pairs, rule, small
from .frames import rebuilt
from .test_streams import BOTH
from .topology import CLIENT4, CLIENT6, SERVER4, SERVER6, Site

FAMILIES = {"v4": (CLIENT4, SERVER4), "v6": (CLIENT6, SERVER6)}
# A text that grows to more than a segment of most MTUs, and to many of the smallest.
LONG = b"(\\m" + b"-long" * 600 + b")"


def grown(found):
    return LONG.replace(b"\\m", found)


def long_rule(port=PORT):
    return f'tcp-dport {port} stream "MATCH" mod stream "{LONG.decode()}"'


def duplex(ends, count, edit, text=b"MATCH", pieces=None):
    """A flow each way for each connection."""
    made = []
    for number, (near, far) in enumerate(ends):
        for way, (here, there) in enumerate(((near, far), (far, near))):
            data = full_of(text, count, seed=2 * number + way)
            made.append(Flow(here, there, data, edited(data, (text, edit)), pieces))
    return made


@pytest.mark.parametrize("mtu", [576, 1280, 1500, 9000])
def test_packets_of_all_sizes_are_edited(fresh, mtu):
    """Both directions of four connections at once: texts of five bytes become 3,007, or nothing. No packet exceeds an MTU."""
    site = fresh(mtu=mtu if mtu > 1280 else None)
    for namespace, name in site.links():
        namespace.ip("link", "set", name, "mtu", str(mtu))
    mmb = fresh.daemon(site)
    mmb("add-stateful id 1", long_rule())
    mmb("add-stateful id 2", rule("strip", port=PORT + 1))
    for family, addresses in FAMILIES.items():
        if family == "v6" and mtu < 1280:
            continue
        with pairs(site, 2, addresses) as growing, pairs(site, 2, addresses, PORT + 1) as shrinking:
            carry(duplex(growing, 150, grown) + duplex(shrinking, 600, b""), 30)
    assert mmb.drops() == {}
    assert mmb.ask("show", "errors")["made"]["data"] > 100
    mmb.wait_until_settled()


def test_a_receiver_of_small_segments_gets_small_segments(fresh):
    """The ends of a path have different MTUs, which TCP tells by its MSS."""
    site = fresh()
    for namespace, name in ((site.middle, "vr"), (site.server, "eth0")):
        namespace.ip("link", "set", name, "mtu", "700")
    mmb = fresh.daemon(site)
    mmb("add-stateful id 1", long_rule())
    with pairs(site, 2) as ends:
        carry(duplex(ends, 150, grown), 30)
    assert mmb.drops() == {}
    mmb.wait_until_settled()


@BOTH
def test_edits_across_vlans(fresh, addresses):
    """The client is on VLAN 10, the server on VLAN 20, and other rules join them: made packets have tags like all others."""
    site = fresh("af_packet")
    vlan.push_and_pop(site, site.client, (), 10)
    vlan.push_and_pop(site, site.server, (), 20)
    mmb = fresh.daemon(site)
    mmb.apply(
        site.folder,
        "set conn zone wire",
        "add in lan eth-type 0-0xffff vlan-id 10 mod vlan-id 20",
        "add in wan eth-type 0-0xffff vlan-id 20 mod vlan-id 10",
        f"add-stateful {long_rule()}",
    )
    with site.client_wire() as client, site.server_wire() as server:
        with pairs(site, 1, addresses) as ends:
            carry(duplex(ends, 60, grown, pieces=small(1)), 20)
        for wire, tag in ((client, 10), (server, 20)):
            frames = [frame for frame in map(Ether, wire.drain()) if TCP in frame]
            assert {frame[Dot1Q].vlan for frame in frames if Dot1Q in frame} == {tag}
            assert all(Dot1Q in frame for frame in frames)
    assert mmb.ask("show", "errors")["made"]["data"] > 0
    mmb.wait_until_settled()


@pytest.fixture(scope="module")
def plain(namespaces, tmp_path_factory):
    with Site(tmp_path_factory.mktemp("sizes"), "af_xdp") as made:
        # Segments as they are on a wire, so that the captures below show what mmb sends.
        for namespace, name in made.links():
            namespace.run("ethtool", "-K", name, *(word for offload in ("tso", "gso", "gro") for word in (offload, "off")))
        made.daemon = made.mmb().start()
        yield made


@pytest.fixture
def between(plain):
    plain.reset()
    yield plain
    assert plain.daemon.running(), "mmb ended"
    plain.daemon.wait_until_settled()


def segments(wire):
    """The TCP segments that arrived, at most some hundreds of them; their lengths and checksums must be right."""
    found = []
    for frame in wire.drain():
        packet = Ether(frame)
        if TCP in packet and len(found) < 400:
            assert rebuilt(frame) == frame, packet.show(dump=True)
            found.append(packet)
    return found


HEADERS = {
    "one rule": ["add-stateful {proto} {edit} mod {dscp} {value}"],
    "two rules": ["add-stateful {edit}", f"add-stateful {{proto}} tcp-dport {PORT} mod {{dscp}} {{value}}"],
    "a stateless rule": ["add-stateful {edit}", "add {proto} mod {dscp} {value}"],
    "stateless rules of ports": ["add-stateful {edit}", "add in lan {proto} mod {dscp} {value}", "add in wan {proto} mod {dscp} {value}"],
}


@BOTH
@pytest.mark.parametrize("shape", HEADERS)
def test_header_edits_apply_to_what_is_made(between, addresses, shape):
    v6 = ":" in addresses[0]
    names = {"proto": "ip-proto tcp", "dscp": "ip6-traffic-class" if v6 else "ip-dscp", "value": 184 if v6 else 46, "edit": long_rule()}
    between.daemon.apply(between.folder, *(line.format(**names) for line in HEADERS[shape]))
    with between.client_wire() as client, between.server_wire() as server:
        with pairs(between, 1, addresses) as ends:
            carry(duplex(ends, 30, grown), 20)
        arrived = {"client": segments(client), "server": segments(server)}
    assert between.daemon.ask("show", "errors")["made"]["data"] > 0
    for side, packets in arrived.items():
        marks = {packet[IPv6].tc >> 2 if v6 else packet[IP].tos >> 2 for packet in packets}
        assert packets and marks == {46}, side


# Rules on the options of SYNs, and whether SACK, timestamps and scaled windows are in use behind them.
OPTIONS = {
    "no option but MSS": ["add tcp-opt strip ! tcp-opt-mss"],
    "no timestamps": ["add tcp-opt-timestamp strip tcp-opt-timestamp"],
    "no SACK": ["add tcp-opt-sackp strip tcp-opt-sackp"],
    "no timestamps in SYNs": ["add tcp-syn tcp-opt-timestamp strip tcp-opt-timestamp"],
    "a small MSS": ["add tcp-syn tcp-opt-mss > 700 mod tcp-opt-mss 700"],
    "no scaled windows": ["add tcp-syn tcp-opt-wscale strip tcp-opt-wscale"],
}


@pytest.mark.parametrize("what", OPTIONS)
def test_edits_beside_rules_on_tcp_options(between, what):
    between.daemon.apply(between.folder, f"add-stateful {long_rule()}", f"add-stateful {rule('strip', port=PORT + 1)}", *OPTIONS[what])
    with between.server_wire() as server:
        with pairs(between, 1) as growing, pairs(between, 1, port=PORT + 1) as shrinking:
            carry(duplex(growing, 100, grown) + duplex(shrinking, 400, b""), 20)
        arrived = segments(server)
    options = {name for packet in arrived for name, _ in packet[TCP].options} - {"NOP", "EOL"}
    gone = {
        "no option but MSS": {"Timestamp", "SAckOK", "SAck", "WScale"},
        "no timestamps": {"Timestamp"},
        "no SACK": {"SAckOK", "SAck"},
        "no scaled windows": {"WScale"},
    }.get(what, set())
    assert not options & gone
    if what == "a small MSS":
        assert max(len(packet[TCP].payload) for packet in arrived) <= 700
    assert between.daemon.drops() == {}


@BOTH
def test_two_rules_edit_one_direction_each(between, addresses):
    """And an alert and a guard watch beside them."""
    between.daemon.apply(
        between.folder,
        f'add-stateful tcp-dport {PORT} stream-forward "MATCH" strip stream-forward',
        f'add-stateful tcp-dport {PORT} stream-reply "MATCH" mod stream-reply "<\\m>"',
        f'add-stateful tcp-dport {PORT} stream "MATCH" alert',
        f'add-stateful tcp-dport {PORT} stream "NOT IN THERE" close',
        f"add-stateful tcp-dport {PORT} digest",
    )
    count = 500
    with pairs(between, 2, addresses) as ends:
        made = duplex(ends, count, b"")
        for reply in made[1::2]:
            reply.expected = edited(reply.data, (b"MATCH", lambda found: b"<" + found + b">"))
        carry(made, 20)
    hits = [between.daemon.rule(number)["hits"] for number in (1, 2, 3, 4)]
    assert hits == [2 * count, 2 * count, 4 * count, 0]


@pytest.mark.parametrize("target", TARGETS)
def test_two_hundred_connections_at_once(between, target):
    between.daemon("add-stateful id 1", rule(target))
    before = threading.stack_size(256 << 10)
    try:
        with pairs(between, 200) as ends:
            carry(duplex(ends, 20, TARGETS[target][1]), 30)
    finally:
        threading.stack_size(before)
    assert between.daemon.rule(1)["hits"] == 200 * 2 * 20
