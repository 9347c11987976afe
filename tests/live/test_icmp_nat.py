"""ICMP through NAT and past connections (RFC 5508, RFC 4787 REQ-10 and REQ-13, RFC 5382 REQ-7 and REQ-9): traceroute,
path-MTU discovery, refusals.

With mmb in the middle and, for reference, with nftables.
"""

import re
import threading

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPerror, IPOption, UDPerror
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from lab.process import wait_until

from . import sockets
from .frames import summed_up
from .programs import ping
from .routed import BOTH_FAMILIES, INSIDE4, INSIDE6, NAT4, NAT6, OUTER4, OUTSIDE4, OUTSIDE6, SOURCE, SOURCE_NFT
from .sockets import closing, listener, receive, refused, udp

A, B = INSIDE4[:2]
WEB = OUTSIDE4[0]
families = pytest.mark.parametrize(
    ("inside", "outside"), [(A, WEB), (INSIDE6[0], OUTSIDE6[0])], ids=["v4", "v6"]
)


def hops(host, words, target):
    """The hops that traceroute reports."""
    command = ["traceroute", "-n", "-q", "1", "-w", "3", "-m", "8", *words, target]
    lines = host.run(*command, timeout=60).stdout.splitlines()[1:]
    return [line.split()[1] for line in lines]


METHODS = pytest.mark.parametrize("method", [[], ["-I"], ["-T", "-p", "80"]], ids=["udp", "icmp", "tcp"])


@families
@METHODS
def test_traceroute_sees_every_hop_through_source_nat(nat, inside, outside, method):
    nat.tested.policy(*BOTH_FAMILIES)
    way = hops(nat.client, ["-s", inside, *method], outside)
    routers = ["10.0.0.254", OUTER4] if "." in inside else ["fd00:a::fe", "2001:db8::2"]
    assert way[0] == routers[0] and way[-2:] == [routers[1], outside], way
    # The reference is a hop of its own; mmb is a bump in the wire.
    assert len(way) == (3 if nat.tested.kind == "mmb" else 4)


@METHODS
def test_traceroute_from_outside_sees_the_hops_behind_an_address(nat, method):
    """Errors from the inside leave as if they came from the path of the outside address: they quote the packet that the outside
    sent."""
    nat.tested.policy(
        [f"add-stateful in wan ip-daddr {NAT4} map ip-daddr {A}"], [f"before: iif vr ip daddr {NAT4} dnat to {A}"]
    )
    way = hops(nat.server, ["-s", WEB, *method], NAT4)
    assert way[0] == "198.51.100.254" and way[-1] == NAT4, way
    assert not any(hop.startswith("10.") for hop in way), way
    assert len(way) == (3 if nat.tested.kind == "mmb" else 4)


def test_mtr_sees_every_hop(nat):
    nat.tested.policy(SOURCE, SOURCE_NFT)
    words = ["mtr", "-n", "-r", "-c", "3", "-i", "0.3", "-a", A, WEB]
    lines = nat.client.run(*words, timeout=60).stdout.splitlines()
    way = [match[1] for line in lines if (match := re.match(r"\s*\d+\.\|-- (\S+)", line))]
    assert way[0] == "10.0.0.254" and way[-2:] == [OUTER4, WEB], lines


@families
def test_a_large_upload_finds_the_path_s_mtu(nat, inside, outside):
    """A router outside sends "fragmentation needed", or "packet too big", about translated packets."""
    nat.tested.policy(*BOTH_FAMILIES)
    prefix = "198.51.100.0/24" if "." in outside else "2001:db8:1::/64"
    with nat.narrow(nat.outer, prefix, 1300), closing(listener(nat.server, outside, 9000)) as (listening,):
        near, far, _ = sockets.opened(nat.client, inside, (outside, 9000), listening)
        with closing(near, far):
            _carry(near, far, 300_000)
        route = nat.client.run("ip", "route", "get", outside, "from", inside).stdout
    assert "mtu 1300" in route, route


@families
def test_a_large_download_finds_the_path_s_mtu(nat, inside, outside):
    """A router inside sends the same errors about packets whose destination was translated back."""
    nat.tested.policy(*BOTH_FAMILIES)
    prefix = "10.0.0.0/24" if "." in outside else "fd00:a::/64"
    stands_for = NAT4 if "." in outside else NAT6
    with nat.narrow(nat.inner, prefix, 1300), closing(listener(nat.server, outside, 9000)) as (listening,):
        near, far, _ = sockets.opened(nat.client, inside, (outside, 9000), listening)
        with closing(near, far):
            _carry(far, near, 300_000)
        route = nat.server.run("ip", "route", "get", stands_for).stdout
    assert "mtu 1300" in route, route


def _carry(source, target, size):
    content = bytes(size)
    sender = threading.Thread(target=source.sendall, args=(content,))
    sender.start()
    got = 0
    while got < size:
        data = target.recv(1 << 16)
        assert data, "the connection ended"
        got += len(data)
    sender.join(10)


@families
def test_a_closed_port_outside_is_told_inside(nat, inside, outside):
    """RFC 5508 REQ-4: the error about a translated datagram refers to the one that was sent."""
    nat.tested.policy(*BOTH_FAMILIES)
    with closing(udp(nat.client, inside)) as (near,):
        near.connect((outside, 9))
        near.send(b"anybody there?")
        with pytest.raises(ConnectionRefusedError):
            near.recv(100)
    assert refused(nat.client, inside, (outside, 9)) == "ConnectionRefusedError"


def test_a_closed_port_inside_is_told_outside(nat):
    """RFC 5508 REQ-5 and REQ-8: an error from the inside comes from the outside address and quotes it."""
    nat.tested.policy(
        [f"add-stateful in wan ip-daddr {NAT4} udp-dport 8080 map ip-daddr {A} map udp-dport 9"],
        [f"before: iif vr ip daddr {NAT4} udp dport 8080 dnat to {A}:9"],
    )
    with closing(udp(nat.server, WEB)) as (far,), nat.outside_wire() as wire:
        far.connect((NAT4, 8080))
        far.send(b"anybody there?")
        with pytest.raises(ConnectionRefusedError):
            far.recv(100)
        error = next(error for frame in wire.frames() if (error := Ether(frame)).haslayer(ICMP))
    assert error[IP].src == NAT4
    assert (error[IPerror].src, error[IPerror].dst, error[UDPerror].dport) == (WEB, NAT4, 8080)
    assert all(summed_up(part) for part in (bytes(error[IP])[:20], bytes(error[ICMP]), bytes(error[IPerror])[:20]))


@pytest.fixture
def errors(nat):
    """A datagram from the inside to the outside, and errors about it."""
    nat.tested.policy(SOURCE, SOURCE_NFT)
    with closing(udp(nat.client, A), udp(nat.server, WEB, 9000)) as (near, far):
        with nat.outside_wire() as outside, nat.inside_wire() as inside:
            yield ErrorPath(nat, near, far, outside, inside)


class ErrorPath:
    """Crafted errors about a datagram, and those that the other side receives."""

    def __init__(self, nat, near, far, outside, inside):
        self.near, self.far, self.outside, self.inside = near, far, outside, inside
        near.connect((WEB, 9000))
        near.send(b"quote me")
        self.mapped = receive(far, b"quote me")
        self.sent = next(sent for frame in outside.drain() if UDP in (sent := Ether(frame)))

    def quote(self, size=28):
        return bytes(self.sent[IP])[:size]

    def send(self, error, to=A):
        """Errors to a host that arrived, before a datagram that marks the end."""
        self.outside.send(Ether(src=self.sent.dst, dst=self.sent.src) / error)
        self.far.sendto(b"the end", self.mapped)
        come = []
        for frame in map(Ether, self.inside.frames()):
            if frame.haslayer(UDP) and bytes(frame[UDP].payload) == b"the end":
                return come
            if ICMP in frame and frame[IP].dst == to:
                come.append(frame)
        raise AssertionError("the datagram behind the error did not come")


def unreachable(quoted, source="203.0.113.7", **fields):
    return IP(src=source, dst=NAT4) / ICMP(**{"type": 3, "code": 3, **fields}) / Raw(quoted)


@pytest.mark.parametrize("size", [28, 29, 36])
def test_an_error_may_quote_eight_bytes_and_more(errors, size):
    """Old hosts quote the IP header and 64 bits (RFC 792). All checksums are correct, including that of the quoted header (RFC
    5508 REQ-4)."""
    (came,) = errors.send(unreachable(errors.quote(size)))
    assert (came[IP].src, came[IP].dst) == ("203.0.113.7", A)
    assert (came[ICMP].type, came[ICMP].code) == (3, 3)
    inner = came[IPerror]
    assert (inner.src, inner.dst, inner[UDPerror].sport) == (A, WEB, errors.near.getsockname()[1])
    assert len(bytes(inner)) == size
    assert all(summed_up(part) for part in (bytes(came[IP])[:20], bytes(came[ICMP]), bytes(inner)[:20]))
    with pytest.raises(ConnectionRefusedError):
        for _ in range(2):  # "the end" may have arrived before the error
            errors.near.recv(100)


def test_an_error_may_quote_options(errors):
    """RFC 5508 REQ-3b: the transport header follows the options."""
    quoted = IP(errors.quote())
    quoted.options, quoted.ihl, quoted.chksum = [IPOption(b"\x94\x04\0\0")], None, None
    (came,) = errors.send(unreachable(bytes(quoted)))
    inner = came[IPerror]
    assert (inner.src, inner.ihl, inner[UDPerror].sport) == (A, 6, errors.near.getsockname()[1])


def test_an_error_whose_checksum_is_wrong_has_no_effect(errors, nat):
    """RFC 5508 REQ-3: it is dropped, or arrives as wrong as it was sent."""
    error = unreachable(errors.quote(), chksum=0x1234)
    assert all(not summed_up(bytes(came[ICMP])) for came in errors.send(error))
    errors.near.send(b"no error")
    assert receive(errors.far, b"no error") == errors.mapped


def test_an_error_does_not_keep_a_connection_alive(of_mmb, errors):
    """RFC 5508 REQ-6, RFC 7857 section 8."""
    (before,) = of_mmb.tested.daemon.connections("udp-dport 9000")
    errors.outside.send(Ether(src=errors.sent.dst, dst=errors.sent.src) / unreachable(errors.quote()))
    next(frame for frame in errors.inside.frames() if ICMP in Ether(frame))
    (after,) = of_mmb.tested.daemon.connections("udp-dport 9000")
    assert after["idle_ms"] >= before["idle_ms"]
    assert after["reply"] == before["reply"]


def test_a_router_inside_does_not_show_its_address(errors, nat):
    """RFC 5508 REQ-5c: an error from a host without a mapping comes from the outside address of the host that the error is about."""
    errors.far.sendto(b"too far", errors.mapped)
    came = next(frame for frame in map(Ether, errors.inside.frames()) if UDP in frame)
    errors.outside.drain()
    error = IP(src="10.0.0.254", dst=WEB) / ICMP(type=11, code=0) / Raw(bytes(came[IP])[:28])
    errors.inside.send(nat.from_inside() / error)
    sent = next(frame for frame in map(Ether, errors.outside.frames()) if ICMP in frame)
    assert (sent[IP].src, sent[IPerror].src, sent[IPerror].dst) == (NAT4, WEB, NAT4)
    assert all(summed_up(part) for part in (bytes(sent[IP])[:20], bytes(sent[ICMP]), bytes(sent[IPerror])[:20]))


@pytest.mark.parametrize(
    "change",
    [{"src": "200.0.0.77"}, {"dst": "203.0.113.99"}, {"sport": 9}, {"dport": 9}, {"proto": 6}],
    ids=lambda change: next(iter(change)),
)
def test_an_error_about_nothing_that_was_sent_is_not_let_in(errors, change):
    """RFC 5508 REQ-4: an error that quotes no packet of a mapping is not translated."""
    quoted = IP(errors.quote())
    for name, value in change.items():
        setattr(quoted[UDP] if name in ("sport", "dport") else quoted, name, value)
    quoted.chksum = None
    assert errors.send(unreachable(bytes(quoted))) == []


def test_an_error_about_one_host_s_packet_is_told_to_no_other(nat):
    """CVE-2019-5598: a reflexive list admits errors only to the sender of the quoted packet, as Linux's conntrack does."""
    nat.tested.policy(
        ["add-stateful in lan ip-saddr 10.0.0.0/24 accept", "add in wan net-proto ip4 drop"],
        [
            "filter: ct state established,related accept",
            "filter: iif vl ip saddr 10.0.0.0/24 accept",
            "filter: iif vr ip version 4 drop",
        ],
    )
    with closing(udp(nat.client, A), udp(nat.server, WEB, 9000)) as (near, far):
        with nat.outside_wire() as outside, nat.inside_wire() as inside:
            errors = ErrorPath(nat, near, far, outside, inside)

            def error(to):
                return IP(src="203.0.113.7", dst=to) / ICMP(type=3, code=1) / Raw(errors.quote())

            assert errors.send(error(B), to=B) == []
            assert [came[IP].dst for came in errors.send(error(A))] == [A]


def test_an_unrequested_answer_does_not_show_an_inside_address(of_mmb, errors):
    """The packet belongs to no connection, so nothing translates it: it must not leave. The same holds for errors about nothing
    and unknown types."""
    error = ICMP(type=3, code=3) / Raw(bytes(IP(src=WEB, dst=A) / UDP(sport=9, dport=9)))
    for message in (ICMP(type=0, id=77), ICMP(type=14, id=77), ICMP(type=42), error):
        errors.inside.send(of_mmb.from_inside() / IP(src=A, dst=WEB) / message)
    errors.near.send(b"the end")
    for frame in map(Ether, errors.outside.frames()):
        assert ICMP not in frame, frame
        if UDP in frame and bytes(frame[UDP].payload) == b"the end":
            return
    raise AssertionError("the datagram behind them did not come")


def test_an_error_between_inside_hosts_is_turned_round(of_mmb):
    """RFC 5508 REQ-7: hairpinned errors; they come from the outside address."""
    of_mmb.tested.policy(["set nat filtering endpoint-independent", *SOURCE])
    with closing(udp(of_mmb.client, A), udp(of_mmb.client, B, 6000), udp(of_mmb.server, WEB, 9000)) as (one, two, far):
        mapped = sockets.ask(two, far)
        two.close()
        one.connect(mapped)
        one.send(b"anybody there?")
        with pytest.raises(ConnectionRefusedError):
            one.recv(100)


def test_an_error_does_not_end_a_connection(nat):
    """RFC 5508 REQ-6 (RFC 4787 REQ-12): the mapping outlives the error."""
    nat.tested.policy(SOURCE, SOURCE_NFT)
    with closing(udp(nat.client, A), udp(nat.server, WEB, 9000)) as (near, far):
        mapped = sockets.ask(near, far)
        far.close()
        near.sendto(b"nobody now", (WEB, 9000))
        with nat.inside_wire() as inside:
            near.sendto(b"nobody now", (WEB, 9000))
            assert next(frame for frame in inside.frames() if ICMP in Ether(frame))
        with closing(udp(nat.server, WEB, 9000)) as (again,):
            wait_until(lambda: _asks(near, again) == mapped, "the mapping is as it was")


def test_an_error_does_not_end_a_tcp_connection(nat):
    """RFC 5382 REQ-10: here "port unreachable", correct in every respect, about the last segment."""
    nat.tested.policy(SOURCE, SOURCE_NFT)
    with closing(listener(nat.server, WEB, 9000)) as (listening,), nat.outside_wire() as outside:
        near, far, _ = sockets.opened(nat.client, A, (WEB, 9000), listening)
        with closing(near, far):
            sockets.talk(near, far)
            seen = []

            def is_acknowledged():
                seen.extend(frame for frame in map(Ether, outside.drain()) if TCP in frame and frame[IP].dst == WEB)
                return seen and seen[-1][IP].len == 4 * (seen[-1][IP].ihl + seen[-1][TCP].dataofs)

            # The client may delay this (RFC 9293 3.8.6.3), and by then its last segment has arrived.
            wait_until(is_acknowledged, "the client acknowledges what it read")
            sent = seen[-1]
            with nat.inside_wire() as inside:
                outside.send(Ether(src=sent.dst, dst=sent.src) / unreachable(bytes(sent[IP])[:28]))
                assert next(frame for frame in map(Ether, inside.frames()) if ICMP in frame)[IP].dst == A
            sockets.talk(near, far)


def _asks(near, far):
    # The next call reports the error that arrived in the meantime.
    try:
        return sockets.ask(near, far)
    except ConnectionRefusedError:
        return None


def test_errors_come_through_a_reflexive_firewall(nat):
    """The rules of a connection that admit its packets also admit the errors about them; other errors are dropped."""
    nat.tested.policy(
        ["add-stateful in lan ip-saddr 10.0.0.0/24 accept", "add in wan net-proto ip4 drop"],
        [
            "filter: ct state established,related accept",
            "filter: iif vl ip saddr 10.0.0.0/24 accept",
            "filter: iif vr ip version 4 drop",
        ],
    )
    with closing(udp(nat.client, A)) as (near,):
        near.connect((WEB, 9))
        near.send(b"anybody there?")
        with pytest.raises(ConnectionRefusedError):
            near.recv(100)
    assert ping(nat, WEB, count=2, options=["-I", A]) == 2
    assert hops(nat.client, ["-s", A], WEB)[-2:] == [OUTER4, WEB]
    answered = nat.server.run("ping", "-n", "-c", "1", "-W", "0.4", A, check=False)
    assert " 0 received" in answered.stdout


def test_a_port_forward_s_far_host_finds_the_mtu(nat):
    """Path-MTU discovery against a forwarded port, with the narrow hop on either side."""
    nat.tested.policy(
        [f"add-stateful in wan ip-daddr {NAT4} tcp-dport 8080 map ip-daddr {A} map tcp-dport 8081"],
        [f"before: iif vr ip daddr {NAT4} tcp dport 8080 dnat to {A}:8081"],
    )
    for router, prefix in ((nat.inner, "10.0.0.0/24"), (nat.outer, "198.51.100.0/24")):
        with nat.narrow(router, prefix, 1300), closing(listener(nat.client, A, 8081)) as (listening,):
            far, near, _ = sockets.opened(nat.server, WEB, (NAT4, 8080), listening)
            with closing(near, far):
                _carry(far, near, 200_000)
                _carry(near, far, 200_000)
