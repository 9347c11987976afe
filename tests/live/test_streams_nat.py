"""Rules on streams beside translations, load balancing and header edits, in one rule and in several: both ends of a closed
connection get a RST that they believe, with the addresses, numbers and headers that they know."""

import contextlib

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from . import topology
from .frames import rebuilt
from .programs import Nginx, fetch
from .routed import INSIDE4, INSIDE6, NAT4, NAT6, OUTSIDE4, OUTSIDE6, SOURCE
from .sockets import closing, connected, listener, opened, talk
from .test_balance import accepted
from .test_streams import ATTACK, BOTH, is_reset, pair, received

PORT = 9100
A, B = INSIDE4[:2]
WEB = OUTSIDE4[0]
SERVERS = INSIDE4[1:4]
STREAM = f'tcp-dport {PORT} stream "ATTACK" close'

families = pytest.mark.parametrize(
    ("inside", "outside", "stands_for", "field"),
    [(A, WEB, NAT4, "ip"), (INSIDE6[0], OUTSIDE6[0], NAT6, "ip6")],
    ids=["v4", "v6"],
)
directions = pytest.mark.parametrize("from_near", [True, False], ids=["forward", "reply"])


def closes(near, far, from_near=True):
    """The connection carries bytes, then the text in two pieces ends it at both ends, and nobody has it."""
    talk(near, far)
    here, there = (near, far) if from_near else (far, near)
    here.sendall(b"an ATTA")
    assert received(there, 7) == b"an ATTA"
    here.sendall(b"CK begins")
    assert read(there) == b""
    assert is_reset(here)


def read(end):
    """What else an end reads before the RST."""
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while True:
            more = end.recv(1 << 16)
            assert more, "no RST but a FIN"
            got += more
    return got


# Translations


@families
@directions
def test_close_in_the_rule_of_a_source_nat(of_mmb, inside, outside, stands_for, field, from_near):
    network = "10.0.0.0/24" if field == "ip" else "fd00:a::/64"
    of_mmb.tested.policy([f"add-stateful in lan {field}-saddr {network} {STREAM} map {field}-saddr {stands_for}"])
    with closing(listener(of_mmb.server, outside, PORT)) as (listening,):
        near, far, seen = opened(of_mmb.client, inside, (outside, PORT), listening)
        with closing(near, far):
            assert seen[0] == stands_for
            closes(near, far, from_near)
    assert of_mmb.tested.daemon.rule(1)["hits"] == 1


@directions
def test_close_in_a_rule_beside_a_source_nat(of_mmb, from_near):
    """With other ports and numbers as well: the RST has what each end knows."""
    of_mmb.tested.policy(
        [
            f"add-stateful in lan ip-saddr 10.0.0.0/24 ip-proto tcp tcp-syn shuffle tcp-sport shuffle tcp-seq-num map ip-saddr {NAT4}",
            f"add-stateful {STREAM}",
        ]
    )
    with closing(listener(of_mmb.server, WEB, PORT)) as (listening,):
        for sport in (40300, 40302):
            near, far, seen = opened(of_mmb.client, A, (WEB, PORT), listening, sport)
            with closing(near, far):
                assert seen[0] == NAT4 and seen[1] != sport
                closes(near, far, from_near)
    assert of_mmb.tested.daemon.rule(2)["hits"] == 2


@pytest.mark.parametrize("method", ["rr", "hash", "least"])
def test_close_in_the_rule_of_a_balancer(of_mmb, method):
    """The client outside knows one address only, and each of the servers its own."""
    servers = ", ".join(SERVERS)
    of_mmb.tested.policy(
        [f'add-stateful in wan ip-daddr {NAT4} tcp-dport 8000 stream "ATTACK" lb ip-daddr {{{servers}}} {method} close']
    )
    with closing(*(listener(of_mmb.client, server, 8000) for server in SERVERS)) as listening:
        for number in range(6):
            near, far = balanced(of_mmb, listening)
            with closing(near, far):
                closes(near, far, from_near=number % 2 == 0)
    assert of_mmb.tested.daemon.rule(1)["hits"] == 6


def balanced(nat, listening):
    with nat.server.entered():
        near = connected((OUTSIDE4[1], 0), (NAT4, 8000))
    _, far, seen = accepted(listening)
    assert seen == near.getsockname(), "a balancer leaves the client's own address"
    return near, far


@directions
def test_close_in_one_rule_with_source_nat_and_balancing(of_mmb, from_near):
    """One rule translates both ends, shuffles the numbers, edits the header and searches."""
    outside = ", ".join(OUTSIDE4[:2])
    of_mmb.tested.policy(
        [
            f'add-stateful in lan ip-saddr 10.0.0.0/24 ip-daddr 203.0.113.80 {STREAM} shuffle tcp-seq-num '
            f"map ip-saddr {NAT4} lb ip-daddr {{{outside}}} rr mod ip-ttl 33"
        ]
    )
    with closing(*(listener(of_mmb.server, address, PORT) for address in OUTSIDE4[:2])) as listening:
        for sport in range(40310, 40314):
            with of_mmb.client.entered():
                near = connected((A, sport), ("203.0.113.80", PORT))
            _, far, seen = accepted(listening)
            with closing(near, far):
                assert seen[0] == NAT4
                closes(near, far, from_near)
    assert of_mmb.tested.daemon.rule(1)["hits"] == 4


@directions
def test_close_of_a_hairpinned_connection(of_mmb, from_near):
    """RFC 5382 REQ-8: both ends are inside, and each knows the other by its outside address."""
    of_mmb.tested.policy(["set nat filtering endpoint-independent", *SOURCE, f'add-stateful tcp-dport {6001} stream "ATTACK" close'])
    with closing(listener(of_mmb.server, WEB, 9001), listener(of_mmb.client, B, 6001)) as (listening, inside):
        # B's mapping of port 6001 comes from a connection of its own to the outside.
        from_b = opened(of_mmb.client, B, (WEB, 9001), listening, 6001)
        near, far, seen = opened(of_mmb.client, A, from_b[2], inside, 5001)
        with closing(*from_b[:2], near, far):
            assert seen == (NAT4, 5001)
            closes(near, far, from_near)
            talk(*from_b[:2])


@directions
def test_close_of_a_connection_through_a_port_forward_from_inside(of_mmb, from_near):
    of_mmb.tested.policy(
        [
            f"add-stateful in lan ip-saddr 10.0.0.0/24 map ip-saddr {NAT4}",
            f'add-stateful ip-daddr {NAT4} tcp-dport 8080 stream "ATTACK" map ip-daddr {B} map tcp-dport 80 close',
            "set conn same-port on",
        ]
    )
    try:
        with closing(listener(of_mmb.client, B, 80)) as (listening,):
            near, far, seen = opened(of_mmb.client, A, (NAT4, 8080), listening)
            with closing(near, far):
                assert seen[0] == NAT4
                closes(near, far, from_near)
    finally:
        of_mmb.tested.daemon("set conn same-port off")


def test_pages_through_source_nat_and_shuffled_numbers_are_searched(of_mmb):
    """curl and nginx, with loss made by rules: numbers, acknowledgments and SACK are translated beside the search."""
    of_mmb.tested.policy(
        [
            f"add-stateful in lan ip-saddr 10.0.0.0/24 tcp-dport 80 stream {{/GET .small.q=ATTACK/}} shuffle tcp-seq-num map ip-saddr {NAT4} close",
            "add in wan ip-proto tcp drop 0.5",
            "add in lan ip-proto tcp drop 0.5",
        ]
    )
    assert fetch(of_mmb, f"http://{WEB}/big", source=A, timeout=60)[1] == of_mmb.nginx.digest("big")
    assert fetch(of_mmb, f"http://{WEB}/small?q=ATTACK", source=A, check=False)[0] == 56, "curl: connection reset"
    assert of_mmb.tested.daemon.rule(1)["hits"] == 1


# Header edits


@pytest.fixture(scope="module")
def plain(namespaces, tmp_path_factory):
    with topology.Site(tmp_path_factory.mktemp("plain"), "af_xdp") as made:
        made.nginx = Nginx(made)
        made.daemon = made.mmb().start()
        yield made


@pytest.fixture
def between(plain):
    plain.reset()
    yield plain
    assert plain.daemon.running(), "mmb ended"
    plain.daemon.wait_until_settled()


def resets(wire):
    """The RSTs that arrived: their IP and TCP headers. Their lengths and checksums must be right."""
    found = []
    for frame in wire.drain():
        packet = Ether(frame)
        if TCP in packet and packet[TCP].flags.R:
            assert rebuilt(frame) == bytes(packet), "lengths and checksums"
            found.append(packet)
    return found


EDITS = {
    "one rule": ["add-stateful id 1 {proto} tcp-dport 9100 stream \"ATTACK\" mod {life} 9 close"],
    "two stateful rules": [
        "add-stateful id 1 tcp-dport 9100 stream \"ATTACK\" close",
        "add-stateful id 2 {proto} tcp-dport 9100 mod {life} 9",
    ],
    "a stateless rule": [
        "add-stateful id 1 tcp-dport 9100 stream \"ATTACK\" close",
        "add id 2 {proto} mod {life} 9",
    ],
    "stateless rules of ports": [
        "add-stateful id 1 tcp-dport 9100 stream \"ATTACK\" close",
        "add id 2 in lan {proto} mod {life} 9",
        "add id 3 in wan {proto} mod {life} 9",
    ],
    "stateless rules on link headers": [
        "add-stateful id 1 tcp-dport 9100 stream \"ATTACK\" close",
        "add id 2 eth-type 0-0xffff {proto} mod {life} 9",
    ],
}


@BOTH
@pytest.mark.parametrize("shape", EDITS)
def test_header_edits_apply_to_resets_and_to_what_passes(between, addresses, shape):
    """The packets that mmb makes look as if the other end had sent them, and go through edits like all others."""
    v6 = ":" in addresses[0]
    names = {"proto": "ip-proto tcp", "life": "ip6-hop-limit" if v6 else "ip-ttl"}
    between.daemon.apply(between.folder, *(rule.format(**names) for rule in EDITS[shape]))
    with between.client_wire() as client, between.server_wire() as server:
        with pair(between, addresses) as (near, far):
            closes(near, far)
            made = {"client": resets(client), "server": resets(server)}
    assert all(made.values()), made
    lives = {
        side: {packet[IPv6].hlim if v6 else packet[IP].ttl for packet in packets} for side, packets in made.items()
    }
    # A stateful rule without directions edits what its first packet's direction sends; one without state edits all.
    assert lives["server"] == {9}, made
    if "stateless" in shape:
        assert lives["client"] == {9}, made
    assert between.daemon.rule(1)["hits"] == 1


def test_a_changed_port_and_a_closed_connection(between):
    """The server listens on another port than the client knows; replies are edited back by a rule of their own."""
    between.daemon.apply(
        between.folder,
        "add-stateful id 1 tcp-dport 9200 stream \"ATTACK\" map tcp-dport 9100 close",
    )
    with closing(listener(between.server, topology.SERVER4, PORT)) as (listening,):
        near, far, _ = opened(between.client, topology.CLIENT4, (topology.SERVER4, 9200), listening)
        with closing(near, far):
            closes(near, far, from_near=False)
