"""NAT of connections that begin inside, with mmb in the middle, and with Linux's nftables in the same place for reference: the
requirements of the RFCs on both.

Where the two differ by design, the test runs only with mmb, and docs/nat.md describes the difference. Each test names the
requirement that it checks.
"""

import contextlib
import resource
import socket
import struct
import time

import pytest
from scapy.layers.inet import ICMP, IP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import checksum

from lab.net import ip_counters
from lab.process import wait_until

from . import sockets
from .programs import BIG, Nginx, NumberedStream, fetch, ping
from .routed import (
    BOTH_FAMILIES,
    INSIDE4,
    INSIDE6,
    NAT4,
    NAT6,
    UNANSWERED,
    OUTSIDE4,
    OUTSIDE6,
    SOURCE,
    SOURCE6,
    SOURCE_NFT,
)
from .sockets import closing, listener, opened, receive, talk, udp

A, B, C, D = INSIDE4
WEB = OUTSIDE4[0]

# The line as the paper prints it.
PAPER = "mmb add-stateful ip-saddr 10.0.0.0/24 ip-proto tcp tcp-syn shuffle tcp-sport mod ip-saddr 200.0.0.1"
POOL = ["200.0.0.4", "200.0.0.5", "200.0.0.6", "200.0.0.7"]

families = pytest.mark.parametrize(
    ("inside", "outside", "stands_for"), [(A, WEB, NAT4), (INSIDE6[0], OUTSIDE6[0], NAT6)], ids=["v4", "v6"]
)


def bracketed(address):
    return f"[{address}]" if ":" in address else address


# Source NAT


def test_the_paper_s_line_translates_tcp(nat):
    nat.tested.policy([PAPER], [f"behind: oif vr ip saddr 10.0.0.0/24 meta l4proto tcp snat to {NAT4} random"])
    with closing(listener(nat.server, WEB, 9000)) as (listening,):
        ports = []
        for sport in (40000, 40001, 40002, 40003):
            near, far, (address, port) = opened(nat.client, A, (WEB, 9000), listening, sport)
            with closing(near, far):
                assert address == NAT4
                ports.append(port)
                talk(near, far)
    assert ports != [40000, 40001, 40002, 40003] and len(set(ports)) == 4
    assert fetch(nat, f"http://{WEB}/big", source=A)[1] == nat.nginx.digest("big")


@families
def test_source_nat_carries_web_pages_udp_and_ping(nat, inside, outside, stands_for):
    nat.tested.policy(*BOTH_FAMILIES)
    for name in ("small", "big"):
        assert fetch(nat, f"http://{bracketed(outside)}/{name}", source=inside)[1] == nat.nginx.digest(name)
    with closing(udp(nat.client, inside), udp(nat.server, outside, 9000)) as (near, far):
        assert sockets.ask(near, far)[0] == stands_for
    with closing(listener(nat.server, outside, 9001)) as (listening,):
        near, far, seen = opened(nat.client, inside, (outside, 9001), listening)
        with closing(near, far):
            assert seen[0] == stands_for
            talk(near, far)
    assert ping(nat, outside, count=5, options=["-I", inside]) == 5


@pytest.mark.parametrize(
    ("inside", "outside", "pool", "field", "network"),
    [(A, WEB, "192.0.2.100/32", "ip", "10.0.0.0/24"), (INSIDE6[0], OUTSIDE6[0], "2001:db8::100/128", "ip6", "fd00:a::/64")],
    ids=["v4", "v6"],
)
def test_the_inside_router_answers_for_an_address_of_its_network(of_mmb, inside, outside, pool, field, network):
    """docs/nat.md: the outside router knows nothing of the pool, and finds it on the link."""
    address = pool.split("/")[0]
    of_mmb.inner.ip("addr", "add", pool, "dev", "mid", *(["nodad"] if field == "ip6" else []))
    try:
        of_mmb.tested.policy(
            [
                f"add-stateful in lan {field}-saddr {network} map {field}-saddr {address} accept",
                f"add in wan {field}-daddr {address} drop",
            ]
        )
        assert fetch(of_mmb, f"http://{bracketed(outside)}/big", source=inside)[1] == of_mmb.nginx.digest("big")
        with closing(udp(of_mmb.client, inside), udp(of_mmb.server, outside, 9000)) as (near, far):
            assert sockets.ask(near, far)[0] == address
        knock = of_mmb.server.run("ping", "-n", "-c", "1", "-W", "0.5", address, check=False)
        assert knock.returncode == 1, f"the router itself is not reached: {knock.stdout}{knock.stderr}"
    finally:
        of_mmb.inner.ip("addr", "del", pool, "dev", "mid")


def test_what_is_not_inside_is_left_alone(nat):
    nat.tested.policy(
        [f"add-stateful ip-saddr {A} map ip-saddr {NAT4}"], [f"behind: oif vr ip saddr {A} snat to {NAT4}"]
    )
    with closing(udp(nat.client, A), udp(nat.client, B), udp(nat.server, WEB, 9000)) as (one, two, far):
        assert sockets.ask(one, far)[0] == NAT4
        assert sockets.ask(two, far)[0] == B


def test_one_inside_port_is_one_outside_port_for_every_destination(nat):
    """RFC 4787 REQ-1, RFC 5382 REQ-1: endpoint-independent mapping."""
    nat.tested.policy(SOURCE, SOURCE_NFT)
    targets = [udp(nat.server, address, port) for address in OUTSIDE4[:3] for port in (9000, 9001)]
    with closing(udp(nat.client, A), *targets) as (near, *_):
        assert len({sockets.ask(near, far) for far in targets}) == 1
    listening = [listener(nat.server, address, 9002) for address in OUTSIDE4[:3]]
    with closing(*listening):
        made = [opened(nat.client, A, each.getsockname(), each, 40100) for each in listening]
        with closing(*(end for near, far, _ in made for end in (near, far))):
            assert len({seen for *_, seen in made}) == 1


def test_a_collision_does_not_end_endpoint_independence(nat):
    """RFC 4787 REQ-1 if the outside port must differ from the inside one."""
    nat.tested.policy(SOURCE, SOURCE_NFT)
    targets = [udp(nat.server, address, 9000) for address in OUTSIDE4[:3]]
    with closing(udp(nat.client, A, 5000), udp(nat.client, B, 5000), *targets) as (first, second, *_):
        assert sockets.ask(first, targets[0]) == (NAT4, 5000)
        seen = {sockets.ask(second, far) for far in targets}
        assert len(seen) == 1 and seen != {(NAT4, 5000)}


def test_an_outside_port_is_one_hosts_whatever_the_destination(nat):
    """RFC 4787 REQ-3: no port overloading. nftables overloads for different destinations."""
    nat.tested.policy(SOURCE, SOURCE_NFT)
    targets = [udp(nat.server, address, 9000) for address in OUTSIDE4[:2]]
    with closing(udp(nat.client, A, 5000), udp(nat.client, B, 5000), *targets) as (one, two, *_):
        seen = {sockets.ask(one, targets[0]), sockets.ask(two, targets[1])}
    assert len(seen) == (2 if nat.tested.kind == "mmb" else 1)


def test_hosts_that_use_one_port_do_not_mix(nat):
    """Replies reach the host that sent the request."""
    nat.tested.policy(SOURCE, SOURCE_NFT)
    with closing(*(udp(nat.client, host, 5000) for host in INSIDE4), udp(nat.server, WEB, 9000)) as (*hosts, far):
        seen = [sockets.ask(host, far, text=host.getsockname()[0].encode()) for host in hosts]
        assert len(set(seen)) == 4
        for host, mapped in zip(reversed(hosts), reversed(seen)):
            far.sendto(b"later", mapped)
            assert receive(host, b"later") == (WEB, 9000)
    with closing(listener(nat.server, WEB, 9001)) as (listening,):
        made = [opened(nat.client, host, (WEB, 9001), listening, 5000) for host in INSIDE4]
        with closing(*(end for near, far, _ in made for end in (near, far))):
            assert len({seen for *_, seen in made}) == 4
            for near, far, _ in made:
                talk(near, far)


@pytest.mark.parametrize("port", [700, 1023, 1024, 5000, 50001, 65535])
def test_the_inside_port_is_kept_where_it_is_free(nat, port):
    """RFC 4787 section 4.2.1, port preservation; it also keeps REQ-3a's ranges and REQ-4's parity."""
    nat.tested.policy(SOURCE, SOURCE_NFT)
    with closing(udp(nat.client, A, port), udp(nat.server, WEB, 9000)) as (near, far):
        assert sockets.ask(near, far) == (NAT4, port)


@pytest.mark.parametrize("port", [800, 801, 1022, 6000, 6001])
def test_a_port_that_is_taken_gives_one_of_its_range_and_parity(of_mmb, port):
    """RFC 4787 REQ-3a and REQ-4; nftables keeps the range but not the parity."""
    of_mmb.tested.policy(SOURCE)
    with closing(*(udp(of_mmb.client, host, port) for host in INSIDE4), udp(of_mmb.server, WEB, 9000)) as (*hosts, far):
        ports = [sockets.ask(host, far)[1] for host in hosts]
    assert len(set(ports)) == 4 and ports[0] == port
    assert {number < 1024 for number in ports} == {port < 1024}
    assert {number % 2 for number in ports} == {port % 2}


def test_a_pool_gives_one_host_one_address(nat):
    """RFC 4787 REQ-2: paired."""
    pool = f"{POOL[0]}-{POOL[-1]}"
    nat.tested.policy(
        [f"add-stateful in lan ip-saddr 10.0.0.0/24 map ip-saddr {pool}"],
        [f"behind: oif vr ip saddr 10.0.0.0/24 snat to {pool} persistent"],
    )
    targets = [udp(nat.server, address, 9000) for address in OUTSIDE4]
    with closing(*targets, listener(nat.server, WEB, 9001)) as (*_, listening):
        for host in INSIDE4:
            made = [udp(nat.client, host) for _ in range(4)]
            near, far, seen = opened(nat.client, host, (WEB, 9001), listening)
            with closing(*made, near, far):
                used = {sockets.ask(each, target)[0] for each in made for target in targets} | {seen[0]}
            assert len(used) == 1 and used <= set(POOL)


def test_ports_stay_within_the_range_that_is_named(nat):
    nat.tested.policy(
        [f"add-stateful in lan ip-saddr 10.0.0.0/24 ip-proto udp map ip-saddr {NAT4} map udp-sport 30000-30099"],
        [f"behind: oif vr ip saddr 10.0.0.0/24 meta l4proto udp snat to {NAT4}:30000-30099"],
    )
    with closing(*(udp(nat.client, A, 7000 + n) for n in range(50)), udp(nat.server, WEB, 9000)) as (*hosts, far):
        seen = {sockets.ask(host, far) for host in hosts}
    assert len(seen) == 50
    assert all(address == NAT4 and 30000 <= port <= 30099 for address, port in seen)


def test_when_all_ports_are_used_new_flows_are_refused_and_old_ones_go_on(nat):
    nat.tested.policy(
        [f"add-stateful in lan ip-saddr 10.0.0.0/24 ip-proto udp map ip-saddr {NAT4} map udp-sport 30000-30003"],
        [f"behind: oif vr ip saddr 10.0.0.0/24 meta l4proto udp snat to {NAT4}:30000-30003"],
    )
    with closing(*(udp(nat.client, A, 7000 + n) for n in range(5)), udp(nat.server, WEB, 9000)) as (*hosts, far):
        for host in hosts[:4]:
            sockets.ask(host, far)
        hosts[4].sendto(b"one too many", (WEB, 9000))
        assert not sockets.heard(far)
        for host in hosts[:4]:
            sockets.ask(host, far)
    if nat.tested.kind == "mmb":
        assert nat.tested.drops()["nat-no-port"] == 1


def test_shuffled_ports_cannot_be_foreseen(nat):
    """RFC 6056: no port reveals the next one, and ports are distributed over the range."""
    nat.tested.policy(
        [f"add-stateful in lan ip-saddr 10.0.0.0/24 ip-proto udp map ip-saddr {NAT4} shuffle udp-sport 10000-59999"],
        [f"behind: oif vr ip saddr 10.0.0.0/24 meta l4proto udp snat to {NAT4}:10000-59999 random"],
    )
    with closing(*(udp(nat.client, A, 7000 + n) for n in range(64)), udp(nat.server, WEB, 9000)) as (*hosts, far):
        ports = [sockets.ask(host, far)[1] for host in hosts]
    assert len(set(ports)) == 64 and all(10000 <= port <= 59999 for port in ports)
    steps = [after - before for before, after in zip(ports, ports[1:])]
    assert len(set(steps)) > 48
    assert max(ports) - min(ports) > 20000


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_one_host_leaves_ports_to_others(nat, protocol):
    """RFC 6888 REQ-4. One host sends 5,000 flows to one server through 2,000 ports, so that no port could be used twice."""
    match, ports = f"ip saddr 10.0.0.0/24 meta l4proto {protocol}", "30000-31999"
    nat.tested.policy(
        [f"add-stateful in lan ip-saddr 10.0.0.0/24 ip-proto {protocol} map ip-saddr {NAT4} map {protocol}-sport {ports}"],
        [f"behind: oif vr {match} snat to {NAT4}:{ports}"],
    )
    is_udp = protocol == "udp"
    number = socket.IPPROTO_UDP if is_udp else socket.IPPROTO_TCP
    with nat.client.entered(), socket.socket(socket.AF_INET, socket.SOCK_RAW, number) as raw:
        raw.bind((A, 0))
        for n in range(5000):
            rest = struct.pack("!HHx", 9, 0) if is_udp else struct.pack("!IIBBHHH", n, 0, 80, 2, 999, 0, 0)
            segment = struct.pack("!HH", 10000 + n, 9) + rest
            if not is_udp:
                ends = socket.inet_aton(A) + socket.inet_aton(UNANSWERED)
                total = checksum(ends + struct.pack("!HH", number, len(segment)) + segment)
                segment = segment[:16] + struct.pack("!H", total) + segment[18:]
            # The kernel reports errors about the previous datagram.
            with contextlib.suppress(OSError):
                raw.sendto(segment, (UNANSWERED, 0))
            if n % 100 == 0:
                time.sleep(0.005)
    nat.tested.wait_until_settled()
    if is_udp:
        with closing(*(udp(nat.client, B, 7000 + n) for n in range(50)), udp(nat.server, WEB, 9000)) as (*hosts, far):
            assert len({sockets.ask(host, far) for host in hosts}) == 50
    else:
        with closing(listener(nat.server, WEB, 9001)) as (listening,):
            for n in range(50):
                near, far, _ = opened(nat.client, B, (WEB, 9001), listening, 7000 + n)
                with closing(near, far):
                    talk(near, far)
    if nat.tested.kind == "mmb":
        assert nat.tested.drops()["nat-host-limit"] > 1000


# Programs


@pytest.mark.parametrize("direction", [[], ["-R"]], ids=["up", "down"])
def test_iperf_through_source_nat(nat, direction):
    nat.tested.policy(*BOTH_FAMILIES)
    assert nat.iperf.measure(WEB, 1, "-P", "4", *direction)["sum_received"]["bytes"] > 1e6
    assert nat.iperf.measure(OUTSIDE6[0], 1, *direction)["sum_received"]["bytes"] > 1e6
    assert nat.iperf.measure(WEB, 1, "-u", "-b", "10M", *direction)["sum"]["packets"] > 500


def test_source_nat_by_the_other_driver(fresh):
    """AF_PACKET, which delivers unsegmented packets and unfinished checksums."""
    site = fresh.routed("af_packet")
    mmb = fresh.daemon(site)
    mmb.apply(site.folder, *SOURCE, *SOURCE6)
    nginx = Nginx(site)
    for host, source in ((WEB, A), (f"[{OUTSIDE6[0]}]", INSIDE6[0])):
        assert fetch(site, f"http://{host}/big", source=source)[1] == nginx.digest("big")
    with closing(udp(site.client, A), udp(site.server, WEB, 9000)) as (near, far):
        assert sockets.ask(near, far, text=bytes(20000))[0] == NAT4
    assert ping(site, WEB, count=3, options=["-I", A]) == 3
    mmb.wait_until_settled()


def test_many_connections_at_once_and_one_after_another(nat):
    """wrk: persistent connections, then a new connection for every page. A busy machine may be slow, but no request fails."""
    nat.tested.policy(SOURCE, SOURCE_NFT)
    for options in ([], ["-H", "Connection: close"]):
        words = ["wrk", "-t", "2", "-c", "400", "-d", "2", "--timeout", "20", *options, f"http://{WEB}/small"]
        done = nat.client.run(*words, timeout=40)
        assert "Socket errors" not in done.stdout, done.stdout
        assert "Non-2xx" not in done.stdout, done.stdout
        (requests,) = [line.split()[0] for line in done.stdout.splitlines() if " requests in " in line]
        assert int(requests) > 400


def test_a_connection_is_kept_alive_over_many_requests(nat):
    nat.tested.policy([PAPER], [f"behind: oif vr ip saddr 10.0.0.0/24 snat to {NAT4} random"])
    pages = [f"http://{WEB}/small"] * 50
    done = nat.client.run("curl", "-sS", "--interface", A, "-w", "%{num_connects}\n", *pages, timeout=30)
    lines = done.stdout.splitlines()
    assert lines.count("mmb was here") == 50
    assert sum(int(line) for line in lines if line.isdigit()) == 1


@pytest.fixture
def many_files():
    """Room for ten thousand sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 11000:
        pytest.skip(f"only {hard} open files are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_ten_thousand_connections_are_open_together(nat, many_files):
    """Four hosts use the same 2,500 ports and one outside address; all connections are open at the end."""
    # A separate address: if ports were used before, the web server remembers them for a minute (TIME-WAIT).
    nat.tested.policy(*([line.replace(NAT4, "200.0.0.99") for line in lines] for lines in (SOURCE, SOURCE_NFT)))
    with contextlib.ExitStack() as stack:
        with nat.client.entered():
            made = [
                stack.enter_context(sockets.connected((INSIDE4[n % 4], 20000 + n // 4), (WEB, 80)))
                for n in range(10000)
            ]
        for each in made[::100]:
            each.sendall(b"GET /small HTTP/1.1\r\nHost: web\r\n\r\n")
            got = b""
            while b"mmb was here" not in got:
                got += each.recv(4096) or pytest.fail("the connection ended")


def test_a_stream_of_datagrams_loses_nothing_that_is_not_counted(of_mmb):
    of_mmb.tested.policy(SOURCE)
    with NumberedStream(of_mmb, of_mmb.tested.daemon, target=WEB) as stream:
        assert fetch(of_mmb, f"http://{WEB}/big", source=A)[1] == of_mmb.nginx.digest("big")
    stream.check()
    assert of_mmb.tested.daemon.port("wan")["rx"]["bytes"] > BIG


# Other values that a connection may get


def test_shuffled_sequence_numbers_carry_a_file_both_ways(of_mmb):
    """With the hosts' defaults for selective acknowledgments and timestamps; nftables has no such target."""
    of_mmb.tested.policy(
        [
            f"add-stateful in lan ip-saddr 10.0.0.0/24 ip-proto tcp tcp-syn shuffle tcp-seq-num map ip-saddr {NAT4}",
            "add in wan ip-proto tcp drop 0.5",
            "add in lan ip-proto tcp drop 0.5",
        ]
    )
    assert fetch(of_mmb, f"http://{WEB}/big", source=A, timeout=60)[1] == of_mmb.nginx.digest("big")
    before = ip_counters(of_mmb.client)
    result = of_mmb.iperf.measure(WEB, 2)
    after = ip_counters(of_mmb.client)
    assert result["sum_received"]["bytes"] > 1e5
    assert after["TcpExt: TCPSackRecovery"] > before["TcpExt: TCPSackRecovery"], "lost segments were reported by SACK"
    assert after["TcpExt: TCPSACKDiscard"] == before["TcpExt: TCPSACKDiscard"], "and about numbers that the sender used"


def test_shuffled_identifiers_do_no_harm(of_mmb):
    of_mmb.tested.policy(
        [
            "add-stateful in lan ip-saddr 10.0.0.0/24 shuffle ip-id",
            "add-stateful in lan ip6-saddr fd00:a::/64 shuffle ip6-flow-label",
        ]
    )
    for host, source in ((WEB, A), (f"[{OUTSIDE6[0]}]", INSIDE6[0])):
        assert fetch(of_mmb, f"http://{host}/big", source=source)[1] == of_mmb.nginx.digest("big")


def test_pings_with_one_identifier_do_not_mix(nat):
    """RFC 5508 REQ-1 and REQ-3: identifiers are translated like ports."""
    nat.tested.policy(SOURCE, SOURCE_NFT)
    ends = [nat.client.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) for _ in INSIDE4]
    with closing(*ends):
        # All are bound before the first is answered: until then, they would receive the answers to others.
        for host, end in zip(INSIDE4, ends):
            end.bind((host, 0))
            end.connect((WEB, 0))
        for number in range(10):
            for host, end in zip(INSIDE4, ends):
                end.send(bytes(ICMP(type="echo-request", id=77, seq=number) / f"{number} of {host}".encode()))
            time.sleep(0.05)
        for host, end in zip(INSIDE4, ends):
            end.settimeout(5)
            answers = [IP(end.recv(1500))[ICMP] for _ in range(10)]
            assert {answer.type for answer in answers} == {0}
            expected = [(77, number, f"{number} of {host}".encode()) for number in range(10)]
            assert sorted((answer.id, answer.seq, answer.load) for answer in answers) == expected
            end.settimeout(0.2)
            with pytest.raises(TimeoutError):
                end.recv(1500)


def test_a_mapping_ends_when_its_time_is_over(of_mmb):
    """RFC 4787 REQ-5 and REQ-6: the timeout is set, outbound packets refresh it, and the port is free afterwards."""
    of_mmb.tested.policy(["set timeout udp 2", "set timeout udp-unreplied 2", *SOURCE])
    with closing(udp(of_mmb.client, A, 5000), udp(of_mmb.client, B, 5000), udp(of_mmb.server, WEB, 9000)) as ends:
        one, two, far = ends
        assert sockets.ask(one, far) == (NAT4, 5000)
        wait_until(lambda: of_mmb.tested.daemon.connections("ip-proto udp") == [], "the mapping is gone")
        assert sockets.ask(two, far) == (NAT4, 5000)
        assert sockets.ask(one, far) != (NAT4, 5000)


def test_a_protocol_without_ports_is_translated_by_address(nat):
    """One inside host for each destination; a second one has to wait for another outside address."""
    nat.tested.policy(SOURCE, SOURCE_NFT)
    experimental = 253  # RFC 3692
    with nat.inside_wire() as inside, nat.outside_wire() as outside:

        def seen(wire):
            return next(frame for frame in map(Ether, wire.frames()) if IP in frame and frame[IP].proto == experimental)

        inside.send(nat.from_inside() / IP(src=A, dst=WEB, proto=experimental) / Raw(b"there"))
        there = seen(outside)
        assert (there[IP].src, bytes(there[IP].payload)[:5]) == (NAT4, b"there")
        back = Ether(src=there.dst, dst=there.src) / IP(src=WEB, dst=NAT4, proto=experimental) / Raw(b"back")
        outside.send(back)
        assert seen(inside)[IP].dst == A
        inside.send(nat.from_inside() / IP(src=B, dst=WEB, proto=experimental) / Raw(b"too"))
        inside.send(nat.from_inside() / IP(src=B, dst=OUTSIDE4[1], proto=experimental) / Raw(b"elsewhere"))
        assert bytes(seen(outside)[IP].payload)[:9] == b"elsewhere"
    if nat.tested.kind == "mmb":
        assert list(nat.tested.drops().values()) == [1], nat.tested.drops()
