"""NAT from outside, compared with Linux's nftables as in test_nat: admission to outside endpoints of inside hosts, from outside
and from inside (hairpinning), and forwarding (destination NAT).
"""

import json

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether

from . import sockets
from .programs import fetch, ping
from .routed import INSIDE4, INSIDE6, NAT4, NAT6, UNANSWERED, OUTSIDE4, OUTSIDE6, SOURCE, SOURCE_NFT
from .sockets import closing, listener, opened, receive, refused, talk, udp

A, B = INSIDE4[:2]
WEB = OUTSIDE4[0]

# Filtering and hairpinning


def test_strangers_stay_outside_by_default(nat):
    """RFC 4787 REQ-8: address-dependent filtering at least."""
    nat.tested.policy(SOURCE, SOURCE_NFT)
    with closing(udp(nat.client, A), udp(nat.server, WEB, 9000), udp(nat.server, OUTSIDE4[1], 9000)) as ends:
        near, far, stranger = ends
        mapped = sockets.ask(near, far)
        stranger.sendto(b"let me in", mapped)
        assert not sockets.heard(near)
        sockets.ask(near, stranger)
        stranger.sendto(b"let me in", mapped)
        assert receive(near, b"let me in") == (OUTSIDE4[1], 9000)


@pytest.mark.parametrize(
    ("filtering", "other_port", "other_host"),
    [
        ("endpoint-independent", True, True),
        ("address-dependent", True, False),
        ("address-and-port-dependent", False, False),
    ],
)
def test_filtering_is_as_it_is_set(of_mmb, filtering, other_port, other_host):
    """RFC 4787 REQ-8, RFC 5382 REQ-3; nftables supports the last of the three."""
    of_mmb.tested.policy([f"set nat filtering {filtering}", *SOURCE])
    ends = udp(of_mmb.server, WEB, 9000), udp(of_mmb.server, WEB, 9001), udp(of_mmb.server, OUTSIDE4[1], 9000)
    with closing(udp(of_mmb.client, A), *ends) as (near, far, same_host, stranger):
        mapped = sockets.ask(near, far)
        for end, comes_in in ((same_host, other_port), (stranger, other_host)):
            end.sendto(b"let me in", mapped)
            assert sockets.heard(near) == comes_in
        far.sendto(b"still there", mapped)
        assert receive(near, b"still there")


def test_an_answer_to_a_stranger_keeps_the_mapping(of_mmb):
    """RFC 4787 REQ-1 and REQ-8 together: the reply to an outside host comes from the endpoint that it sent to."""
    of_mmb.tested.policy(["set nat filtering endpoint-independent", *SOURCE])
    with closing(udp(of_mmb.client, A), udp(of_mmb.server, WEB, 9000), udp(of_mmb.server, OUTSIDE4[1], 9000)) as ends:
        near, far, stranger = ends
        mapped = sockets.ask(near, far)
        stranger.sendto(b"let me in", mapped)
        near.sendto(b"come in", receive(near, b"let me in"))
        assert receive(stranger, b"come in") == mapped


def test_two_inside_hosts_meet_by_their_outside_addresses(of_mmb):
    """RFC 4787 REQ-9, RFC 5382 REQ-8: hairpinning, with the outside source address and port. nftables has none for mappings that
    traffic created."""
    of_mmb.tested.policy(["set nat filtering endpoint-independent", *SOURCE])
    with closing(udp(of_mmb.client, A, 5000), udp(of_mmb.client, B, 6000), udp(of_mmb.server, WEB, 9000)) as ends:
        one, two, far = ends
        one_outside, two_outside = sockets.ask(one, far), sockets.ask(two, far)
        assert sockets.ask_at(one, two, two_outside) == one_outside
        assert sockets.ask_at(two, one, one_outside) == two_outside
    with closing(listener(of_mmb.server, WEB, 9001), listener(of_mmb.client, B, 6001)) as (listening, inside):
        # B's mapping of port 6001 comes from a connection of its own to the outside (REQ-1: the same for all).
        from_b = opened(of_mmb.client, B, (WEB, 9001), listening, 6001)
        near, far, seen = opened(of_mmb.client, A, from_b[2], inside, 5001)
        with closing(*from_b[:2], near, far):
            assert seen == (NAT4, 5001)
            talk(near, far)


@pytest.mark.parametrize("filtering", ["endpoint-independent", "address-dependent"])
def test_a_mapping_of_udp_lets_in_no_tcp(of_mmb, filtering):
    """RFC 7857 sections 5 and 6: protocols have mappings of their own."""
    of_mmb.tested.policy([f"set nat filtering {filtering}", *SOURCE])
    with closing(udp(of_mmb.client, A, 5000), udp(of_mmb.server, WEB, 9000), listener(of_mmb.client, A, 5000)) as ends:
        near, far, _ = ends
        mapped = sockets.ask(near, far)
        assert refused(of_mmb.server, WEB, mapped, timeout=0.5) is not None


def test_holes_are_punched_from_both_sides(of_mmb):
    """RFC 4787 REQ-9 under address-dependent filtering: both hosts behind one NAT send first."""
    of_mmb.tested.policy(SOURCE)
    with closing(udp(of_mmb.client, A, 5000), udp(of_mmb.client, B, 6000), udp(of_mmb.server, WEB, 9000)) as ends:
        one, two, far = ends
        one_outside, two_outside = sockets.ask(one, far), sockets.ask(two, far)
        one.sendto(b"punch", two_outside)
        two.sendto(b"punch", one_outside)
        assert receive(one, b"punch") == two_outside
        one.sendto(b"and through", two_outside)
        assert receive(two, b"and through") == one_outside


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_a_forwarded_port_is_reached_from_inside(nat, protocol):
    """Hairpinning through a port forward, which both support."""
    nat.tested.policy(
        [
            f"add-stateful in lan ip-saddr 10.0.0.0/24 map ip-saddr {NAT4}",
            f"add-stateful ip-daddr {NAT4} {protocol}-dport 8080 map ip-daddr {B} map {protocol}-dport 80",
            # The outside router returns the packets, so replies arrive on the side of the first packet.
            "set conn same-port on",
        ],
        [
            f"before: ip daddr {NAT4} {protocol} dport 8080 dnat to {B}:80",
            f"behind: ip saddr 10.0.0.0/24 snat to {NAT4}",
        ],
    )
    if protocol == "udp":
        with closing(udp(nat.client, A), udp(nat.client, B, 80)) as (near, far):
            assert sockets.ask_at(near, far, (NAT4, 8080))[0] == NAT4
    else:
        with closing(listener(nat.client, B, 80)) as (listening,):
            near, far, seen = opened(nat.client, A, (NAT4, 8080), listening)
            with closing(near, far):
                assert seen[0] == NAT4
                talk(near, far)


def test_tcp_may_be_opened_from_both_ends_at_once(nat):
    """RFC 5382 REQ-2a: simultaneous open. Both SYNs cross, and both are answered."""
    nat.tested.policy(SOURCE, SOURCE_NFT)
    inside = nat.from_inside()
    with nat.inside_wire() as here, nat.outside_wire() as there:

        def segment(wire, source, target, **fields):
            """Sends a segment on one side and waits for it on the other; returns it as it arrives."""
            addresses = IP(src=source[0], dst=target[0])
            header = inside if wire is here else Ether(src=back.dst, dst=back.src)
            wire.send(header / addresses / TCP(sport=source[1], dport=target[1], window=1000, **fields))
            for frame in map(Ether, (there if wire is here else here).frames()):
                if TCP in frame and UNANSWERED in (frame[IP].src, frame[IP].dst):
                    return frame

        one, other = ("10.0.0.77", 5000), (UNANSWERED, 9000)
        back = segment(here, one, other, flags="S", seq=1000)
        mapped = back[IP].src, back[TCP].sport
        for wire, source, target, fields in (
            (there, other, mapped, {"flags": "S", "seq": 5000}),
            (here, one, other, {"flags": "SA", "seq": 1000, "ack": 5001}),
            (there, other, mapped, {"flags": "SA", "seq": 5000, "ack": 1001}),
            (here, one, other, {"flags": "A", "seq": 1001, "ack": 5001}),
            (there, other, mapped, {"flags": "A", "seq": 5001, "ack": 1001}),
        ):
            came = segment(wire, source, target, **fields)
            assert (came[IP].src, came[IP].dst) == ((NAT4, UNANSWERED) if wire is here else (UNANSWERED, one[0]))
    if nat.tested.kind == "mmb":
        assert [each["state"] for each in nat.tested.daemon.connections("ip-proto tcp")] == ["established"]


def test_a_ping_between_inside_hosts_is_turned_round(nat):
    """RFC 5508 REQ-7: hairpinned queries, to an address that belongs to one host."""
    nat.tested.policy(
        [*SOURCE, f"add-stateful ip-daddr 200.0.0.5 map ip-daddr {B}", "set conn same-port on"],
        [f"before: ip daddr 200.0.0.5 dnat to {B}", f"behind: ip saddr 10.0.0.0/24 snat to {NAT4}"],
    )
    assert ping(nat, "200.0.0.5", count=3, options=["-I", A]) == 3


# Destination NAT


def test_a_port_is_forwarded(nat):
    nat.tested.policy(
        [f"add-stateful in wan ip-daddr {NAT4} tcp-dport 8080 map ip-daddr {A} map tcp-dport 8081"],
        [f"before: iif vr ip daddr {NAT4} tcp dport 8080 dnat to {A}:8081"],
    )
    with closing(listener(nat.client, A, 8081)) as (listening,):
        made = [opened(nat.server, address, (NAT4, 8080), listening, 45000) for address in OUTSIDE4]
        with closing(*(end for near, far, _ in made for end in (near, far))):
            assert [seen for *_, seen in made] == [(address, 45000) for address in OUTSIDE4]
            for near, far, _ in made:
                talk(near, far)
    assert refused(nat.server, WEB, (NAT4, 8082)) is not None


@pytest.mark.parametrize(
    ("outside", "stands_for", "inside", "field"),
    [(WEB, NAT4, A, "ip-daddr"), (OUTSIDE6[0], NAT6, INSIDE6[0], "ip6-daddr")],
    ids=["v4", "v6"],
)
def test_an_address_stands_for_a_host(nat, outside, stands_for, inside, field):
    """One-to-one NAT: whichever side begins, one address represents the other."""
    source, nft = field.replace("daddr", "saddr"), "ip6" if ":" in inside else "ip"
    nat.tested.policy(
        [
            f"add-stateful in wan {field} {stands_for} map {field} {inside}",
            f"add-stateful in lan {source} {inside} map {source} {stands_for}",
        ],
        [
            f"before: iif vr {nft} daddr {stands_for} dnat to {inside}",
            f"behind: oif vr {nft} saddr {inside} snat to {stands_for}",
        ],
    )
    with closing(udp(nat.client, inside, 7000), udp(nat.server, outside, 9000)) as (near, far):
        assert sockets.ask_at(far, near, (stands_for, 7000)) == (outside, 9000)
    with closing(udp(nat.client, inside, 7001), udp(nat.server, outside, 9001)) as (near, far):
        assert sockets.ask(near, far) == (stands_for, 7001)
    answered = nat.server.run("ping", "-n", "-c", "2", "-i", "0.2", "-I", outside, stands_for, check=False)
    assert " 2 received" in answered.stdout, answered.stdout


def test_an_outside_address_may_be_a_neighbours(of_mmb):
    """Without a route: the outside router has a neighbour entry with the inside router's MAC address."""
    stands_for = "192.0.2.100"
    of_mmb.tested.policy([f"add-stateful in lan ip-saddr 10.0.0.0/24 map ip-saddr {stands_for}"])
    (link,) = json.loads(of_mmb.inner.ip("-j", "link", "show", "dev", "mid").stdout)
    words = [stands_for, "lladdr", link["address"], "dev", "mid", "nud", "permanent"]
    of_mmb.outer.ip("neigh", "replace", *words)
    try:
        with closing(udp(of_mmb.client, A), udp(of_mmb.server, WEB, 9000)) as (near, far):
            assert sockets.ask(near, far)[0] == stands_for
        assert fetch(of_mmb, f"http://{WEB}/big", source=A)[1] == of_mmb.nginx.digest("big")
    finally:
        of_mmb.outer.ip("neigh", "del", *words)
