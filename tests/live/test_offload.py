"""Flow offload: the kernel forwards settled flows. What arrives and what is counted must be as without it."""

import contextlib
import json
import random
import socket
import struct
import time

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

from lab.net import RawPort
from lab.process import wait_until

from .frames import MAC, OTHER_MAC, rebuilt
from .offloading import PLACES, hits, offload, pass_until_offloaded, running
from .programs import Iperf, Nginx, fetch
from .sockets import closing, listener, opened, resetting, talk, udp
from .topology import CLIENT4, CLIENT6, SERVER4, SERVER6

pytestmark = pytest.mark.usefixtures("namespaces")


@pytest.fixture(scope="module", params=PLACES)
def offloading(request, namespaces, tmp_path_factory):
    with running(tmp_path_factory.mktemp("offload"), request.param) as site:
        site.nginx = Nginx(site)
        site.iperf = Iperf(site)
        yield site


@pytest.fixture(scope="module", params=PLACES)
def cables(request, namespaces, tmp_path_factory):
    """A site on whose cables are only the test's own frames."""
    with running(tmp_path_factory.mktemp("cables"), request.param) as site:
        for host in (site.client, site.server):
            host.sysctl(net__ipv6__conf__all__disable_ipv6=1)
        yield site


@pytest.fixture
def mmb(offloading):
    daemon = offloading.daemon
    if not daemon.running():
        daemon.start()
    offloading.reset()
    yield daemon
    assert daemon.running(), "mmb ended"
    daemon.wait_until_settled()


def transfer(near, far, size):
    """Sends so many bytes from one end to the other, in pieces that a socket takes."""
    while size > 0:
        piece = min(size, 50_000)
        near.sendall(bytes(piece))
        size -= piece
        while piece > 0:
            piece -= len(far.recv(1 << 16))


# What passes


def test_a_download_passes_in_the_kernel_and_is_counted(offloading, mmb):
    """Both directions of a connection: rules, connections and ports have the same sums, and most of it never met a worker."""
    mmb.apply(offloading.folder, "add-stateful in lan accept", "add prio 200 all drop")
    before, ports = hits(mmb), [mmb.port(name) for name in ("lan", "wan")]
    _, digest = fetch(offloading, f"http://{SERVER4}/big")
    assert digest == offloading.nginx.digest("big")
    mmb.wait_until_settled()
    passed = hits(mmb) - before
    (connection,) = mmb.connections()
    rule = mmb.rule(1)
    now = [mmb.port(name) for name in ("lan", "wan")]
    received = [new["rx"]["packets"] - old["rx"]["packets"] for new, old in zip(now, ports)]
    of_connection = [connection["forward"]["packets"], connection["reply"]["packets"]]
    assert rule["packets"] == sum(of_connection)
    # Beside it there is at most ARP.
    assert all(0 <= all_packets - its <= 4 for all_packets, its in zip(received, of_connection))
    assert passed > 0.3 * sum(received), f"{passed} of {received}: {offload(mmb)}"


def packets_of(host):
    """What the ends of a cable have counted: packets and bytes, sent and received."""
    stats = json.loads(host.ip("-json", "-s", "link", "show", "eth0").stdout)[0]["stats64"]
    return [stats[way][what] for way in ("tx", "rx") for what in ("packets", "bytes")]


def test_counts_are_those_of_the_ends(offloading, mmb):
    """The ends' own counters are the reference; their devices cut segments, so that both count the same packets."""
    if offloading.place == "tc":
        for host in (offloading.client, offloading.server):
            host.run("ethtool", "-K", "eth0", "tso", "off", "gso", "off", "gro", "off")
    try:
        mmb.apply(offloading.folder, "add-stateful in lan accept")
        for attempt in range(3):
            mmb.wait_until_settled()
            before = packets_of(offloading.client), mmb.port("lan"), hits(mmb)
            fetch(offloading, f"http://{SERVER4}/big")
            time.sleep(0.3)
            mmb.wait_until_settled()
            client = [new - old for new, old in zip(packets_of(offloading.client), before[0])]
            now = mmb.port("lan")
            lan = [now[way][what] - before[1][way][what] for way in ("rx", "tx") for what in ("packets", "bytes")]
            if offloading.place == "xdp":
                # A veth leaves the Ethernet header out of some of these bytes.
                client, lan = client[::2], lan[::2]
            assert hits(mmb) - before[2] > 0.3 * (now["rx"]["packets"] - before[1]["rx"]["packets"])
            if lan == client:
                break
            # A packet of neighbour discovery may come between the two readings.
            assert attempt < 2, (lan, client)
    finally:
        offloading.set_devices()


# The same packets with and without


def udp4(number, **fields):
    return IP(**{"src": f"10.0.0.{50 + number}", "dst": SERVER4, **fields}) / UDP(sport=4000 + number, dport=53)


def flow(kind, number):
    """A flow's headers, without link header."""
    if kind == "udp4":
        return udp4(number)
    if kind == "udp6":
        return IPv6(src=CLIENT6, dst=SERVER6) / UDP(sport=4000 + number, dport=53)
    if kind == "tcp4":
        return IP(src=f"10.0.0.{50 + number}", dst=SERVER4) / TCP(sport=4000 + number, dport=80, flags="A", window=900)
    if kind == "tcp6":
        return IPv6(src=CLIENT6, dst=SERVER6) / TCP(sport=4000 + number, dport=80, flags="A", window=900)
    if kind == "echo4":
        return IP(src=f"10.0.0.{50 + number}", dst=SERVER4) / ICMP(id=number, seq=1)
    return IPv6(src=CLIENT6, dst=SERVER6) / ICMPv6EchoRequest(id=number, seq=1)


KINDS = ("udp4", "udp6", "tcp4", "tcp6", "echo4", "echo6")


def traffic(random_numbers, flows, packets):
    """Packets of flows that differ in all that may differ within a flow, some of them not for the kernel."""
    frames = []
    for number in range(flows):
        kind = random_numbers.choice(KINDS)
        tag = random_numbers.choice((None, None, 5, 77))
        for serial in range(packets):
            packet = flow(kind, number)
            network = packet
            if network.name == "IP":
                network.ttl, network.tos = random_numbers.randrange(2, 256), random_numbers.randrange(256)
                network.id = random_numbers.randrange(65536)
                if serial > 6 and random_numbers.random() < 0.1:
                    network.options = [b"\x01\x01\x01\x01"]
            else:
                network.hlim, network.tc = random_numbers.randrange(2, 256), random_numbers.randrange(256)
                network.fl = random_numbers.randrange(1 << 20)
            if packet.haslayer(TCP):
                packet[TCP].seq, packet[TCP].ack = random_numbers.randrange(1 << 32), random_numbers.randrange(1 << 32)
                if serial > 6:
                    packet[TCP].flags = random_numbers.choice(("A", "A", "PA", "UA", "FA", "R", "S", "A"))
            load = bytes(random_numbers.randrange(256) for _ in range(random_numbers.choice((0, 1, 7, 64, 600, 1300))))
            packet = packet / Raw(struct.pack("!II", number, serial) + load)
            if serial > 6 and network.name == "IP" and random_numbers.random() < 0.05:
                network.chksum = 0x1234
            frame = Ether(src=MAC, dst=OTHER_MAC) / (Dot1Q(vlan=tag, prio=number % 8) if tag else packet)
            frames.append(bytes(frame / packet if tag else frame))
    # In turn, so that flows mix; each stays in order.
    order = [serial * flows + number for number in range(flows) for serial in range(packets)]
    return [frame for _, frame in sorted(zip(order, frames), key=lambda pair: pair[0])]


def has_options(frame):
    parsed = Ether(frame)
    return parsed.haslayer(IP) and parsed[IP].ihl > 5


# Rules, and whether flows are offloaded under them.
POLICIES = [
    ([], True),
    (["add udp-dport 53 mod udp-dport 5353", "add tcp-dport 80 mod ip-dscp 10 mod tcp-sport 999"], True),
    (["add ip-proto udp mod ip-ttl 9", "add net-proto ip6 mod ip6-hop-limit 3 mod ip6-flow-label 77", "add ip-ttl < 20 drop"], True),
    (["add ip-saddr 10.0.0.48/29 drop", "add udp-sport 4001-4003 drop", "add ip-daddr 10.0.0.2 mod ip-daddr 10.0.0.9"], True),
    (["add vlan-id 5 drop", "add ip6-saddr fd00::1 mod ip6-daddr fd00::7", "add tcp-dport 80 ip-len > 600 mod ip-ecn 2"], True),
    (["add ip-proto icmp mod ip-ttl 44", "add udp-dport 53 mod ip-saddr 192.0.2.1", "add prio 5 ip-proto tcp accept", "add all drop 30%"], False),
    (["add ip-proto udp ip-id 7 drop", "add tcp-fin mod tcp-push 1", "add tcp-syn drop", "add net-proto ip6 mod ip6-traffic-class 32"], True),
]


def pass_all(site, frames, at_half=lambda: None):
    """Sends frames from the client's cable, in small groups, and calls `at_half` between; returns those that arrive at the server's."""
    arrived = []
    with site.client_wire() as source, site.server_wire() as target:
        for start in range(0, len(frames), 32):
            if start == len(frames) // 64 * 32:
                at_half()
            for frame in frames[start : start + 32]:
                source.send(frame)
            time.sleep(0.004)
        quiet = time.monotonic() + 1
        while time.monotonic() < quiet:
            got = [frame for frame in target.drain() if frame[6:12] == bytes.fromhex(MAC.replace(":", ""))]
            if got:
                arrived += got
                quiet = time.monotonic() + 0.3
    return arrived


def wait_until_offloaded(daemon):
    """Waits until flows are offloaded, and no further ones."""
    wait_until(lambda: offload(daemon)["installed"] > 0, "flows are offloaded")
    before = 0
    while (installed := offload(daemon)["installed"]) != before:
        before = installed
        time.sleep(0.2)


def by_flow(frames):
    """Frames of each flow in order; the flow is in the first bytes of the payload, which no policy changes."""
    flows = {}
    for frame in frames:
        payload = bytes(Ether(frame).lastlayer())
        flows.setdefault(payload[:4], []).append(frame)
    return flows


@pytest.mark.parametrize("number", range(len(POLICIES)))
def test_packets_are_those_of_the_workers(cables, number):
    """Random packets of some flows, with the offload and without: the same frames in the same order within a flow, and the same
    counters. A rule that drops by chance is tested for the flows that it does not reach."""
    mmb = cables.daemon
    cables.reset()
    rules, offloads = POLICIES[number]
    by_chance = any("%" in rule for rule in rules)
    random_numbers = random.Random(number)
    frames = traffic(random_numbers, flows=12, packets=30)
    if by_chance:
        frames = [frame for frame in frames if Ether(frame).haslayer(TCP)]
    outcomes = []
    for setting in ("off", "auto"):
        mmb.apply(cables.folder, f"set offload {setting}", *rules)
        mmb("clear counters")
        # On a busy machine, all frames would pass before the first flow is offloaded.
        wait = (lambda: wait_until_offloaded(mmb)) if offloads and setting == "auto" else (lambda: None)
        arrived = by_flow(pass_all(cables, frames, wait))
        mmb.wait_until_settled()
        counts = [(rule["packets"], rule["bytes"], rule["dropped_packets"], rule["dropped_bytes"]) for rule in mmb.ask("list")["rules"]]
        ports = [mmb.port(name)[way] for name in ("lan", "wan") for way in ("rx", "tx")]
        outcomes.append((arrived, counts, ports, mmb.ask("show", "errors")["drops"]))
        passed = hits(mmb)
        assert passed == 0 or setting == "auto"
    (expected, *expected_counts), (arrived, *counts) = outcomes
    assert arrived.keys() == expected.keys()
    for key, wanted in expected.items():
        assert sorted(arrived[key]) == sorted(wanted), f"flow {key}"
        # Packets with IP options are not looked up, and may be overtaken.
        in_order = [[frame for frame in each if not has_options(frame)] for each in (arrived[key], wanted)]
        assert in_order[0] == in_order[1], f"flow {key}"
    assert counts == expected_counts
    assert passed > len(frames) / 12 if offloads else passed == 0, f"{passed} of {len(frames)}: {offload(mmb)}"


@pytest.mark.parametrize("family", [4, 6])
def test_translated_connections_are_those_of_the_workers(offloading, mmb, family):
    """NAT of addresses and ports: data and checksums arrive, by programs that check both."""
    here, there = (CLIENT4, SERVER4) if family == 4 else (CLIENT6, SERVER6)
    ip, net = ("ip", "10.0.0.2") if family == 4 else ("ip6", SERVER6)
    rule = f"add-stateful in lan {ip}-daddr {net} tcp-dport 8000 map tcp-dport 9000"
    mmb.apply(offloading.folder, rule, f"add-stateful in lan {ip}-daddr {net} udp-dport 8001 map udp-dport 9001")
    with closing(listener(offloading.server, there, 9000)) as (listening,):
        near, far, _ = opened(offloading.client, here, (there, 8000), listening)
        with closing(near, far):
            before = hits(mmb)
            for size in (10, 1000, 100_000, 10_000_000):
                transfer(near, far, size)
                far.sendall(b"ok")
                assert near.recv(10) == b"ok"
            assert hits(mmb) > before + 50, offload(mmb)
            talk(near, far)
    with closing(udp(offloading.client, here, 7001), udp(offloading.server, there, 9001)) as (near, far):

        def ask():
            for serial in range(50):
                near.sendto(b"ask %d" % serial, (there, 8001))
                text, peer = far.recvfrom(100)
                assert text == b"ask %d" % serial
                far.sendto(b"answer %d" % serial, peer)
                assert near.recvfrom(100)[0] == b"answer %d" % serial

        pass_until_offloaded(mmb, ask, 60)
    mmb.wait_until_settled()


# Never a stale decision


def test_an_acknowledged_change_holds_for_the_next_packet(offloading, mmb):
    """A flow that the kernel forwards, and a rule that changes: the first datagram after the answer has the new value."""
    mmb.apply(offloading.folder, "add udp-dport 7000 mod ip-ttl 100")
    with contextlib.ExitStack() as stack:
        sender = stack.enter_context(offloading.client.socket(2, 2))
        wire = stack.enter_context(offloading.server_wire())
        before = hits(mmb)
        for change in range(200):
            for _ in range(12):
                sender.sendto(b"settles", (SERVER4, 7000))
                time.sleep(0.0005)
            mmb.apply(offloading.folder, f"add udp-dport 7000 mod ip-ttl {2 + change}")
            sender.sendto(b"probe %d" % change, (SERVER4, 7000))
        time.sleep(0.2)
        seen = {}
        for frame in wire.drain():
            if b"probe " in frame[42:]:
                seen[int(frame[42:].split(b"probe ")[1].split(b"\0")[0])] = frame[22]
    assert seen.keys() == set(range(200))
    # A worker that is kept waiting may decide under the next policy already, never under an earlier one.
    assert all(2 + change <= life <= 3 + change for change, life in seen.items()), seen
    assert hits(mmb) > before + 100, offload(mmb)


def test_a_deleted_accept_stops_an_offloaded_connection(offloading, mmb):
    mmb.apply(offloading.folder, "add-stateful in lan accept", "add prio 200 all drop")
    with closing(listener(offloading.server, SERVER4, 9000)) as (listening,):
        near, far, _ = opened(offloading.client, CLIENT4, (SERVER4, 9000), listening)
        with resetting(near, far):
            pass_until_offloaded(mmb, lambda: talk(near, far))
            mmb("del 1 --kill")
            near.sendall(b"after")
            far.settimeout(0.5)
            with pytest.raises(TimeoutError):
                far.recv(100)
    assert mmb.drops().get("rule", 0) > 0


def test_a_killed_connection_has_no_flow(offloading, mmb):
    mmb.apply(offloading.folder, "set conn pickup strict", "add-stateful in lan accept", "add prio 200 all drop")
    with closing(listener(offloading.server, SERVER4, 9000)) as (listening,):
        near, far, _ = opened(offloading.client, CLIENT4, (SERVER4, 9000), listening)
        with resetting(near, far):
            for _ in range(20):
                talk(near, far)
            assert offload(mmb)["flows"] == 2
            mmb("conn kill tcp-dport 9000")
            assert offload(mmb)["flows"] == 0
            near.sendall(b"after")
            far.settimeout(0.5)
            with pytest.raises(TimeoutError):
                far.recv(100)
    mmb("set conn pickup loose")


def test_a_disabled_port_takes_no_flow(offloading, mmb):
    with closing(udp(offloading.client, CLIENT4, 7001), udp(offloading.server, SERVER4, 9001)) as (near, far):

        def passes():
            near.sendto(b"x", (SERVER4, 9001))
            far.recv(10)

        pass_until_offloaded(mmb, passes)
        passed = hits(mmb)
        mmb("disable lan")
        near.sendto(b"bypass", (SERVER4, 9001))
        assert far.recv(10) == b"bypass"
        assert hits(mmb) == passed, "packets of a disabled port are not matched and not offloaded"
        mmb("enable lan")


def test_a_host_with_an_address_on_a_port_stays_reachable(offloading, mmb):
    if offloading.place == "xdp":
        pytest.skip("AF_XDP takes all frames of an interface")
    offloading.middle.ip("addr", "add", "10.0.0.200/24", "dev", "vl")
    try:
        with closing(udp(offloading.client, CLIENT4, 7001), udp(offloading.middle, "10.0.0.200", 9001)) as (near, far):
            for serial in range(100):
                near.sendto(b"%d" % serial, ("10.0.0.200", 9001))
                text, peer = far.recvfrom(10)
                assert text == b"%d" % serial
                far.sendto(text, peer)
                assert near.recv(10) == text
        with closing(udp(offloading.client, CLIENT4, 7001), udp(offloading.server, SERVER4, 9001)) as (near, far):

            def passes():
                near.sendto(b"x", (SERVER4, 9001))
                far.recv(10)

            pass_until_offloaded(mmb, passes)
        # What is sent to all reaches both too.
        target = "10.0.0.255"
        with contextlib.ExitStack() as stack:
            near = stack.enter_context(udp(offloading.client, CLIENT4, 7001))
            near.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            ends = [stack.enter_context(udp(namespace, "0.0.0.0", 9002)) for namespace in (offloading.middle, offloading.server)]
            for serial in range(50):
                near.sendto(b"%d" % serial, (target, 9002))
                for end in ends:
                    assert end.recv(10) == b"%d" % serial
    finally:
        offloading.middle.ip("addr", "del", "10.0.0.200/24", "dev", "vl")


# Tracking


def test_both_fins_end_an_offloaded_connection(offloading, mmb):
    mmb.apply(offloading.folder, "add-stateful in lan accept")

    def state():
        return mmb.connections("dport 9011")[0]["state"]

    with closing(listener(offloading.server, SERVER4, 9011)) as (listening,):
        near, far, _ = opened(offloading.client, CLIENT4, (SERVER4, 9011), listening)
        with closing(near, far):
            transfer(near, far, 3_000_000)
            assert state() == "established"
    wait_until(lambda: state() == "time-wait", "both FINs are in window")


def stack_of_frames(site):
    """A function that returns the last segment to port 9000 that arrived at the server."""
    wire = RawPort(site.server, "eth0")

    def last():
        with wire:
            frames = [Ether(frame) for frame in wire.drain()]
        return [frame for frame in frames if frame.haslayer(TCP) and frame[TCP].dport == 9000][-1]

    return last


def test_a_reset_out_of_window_does_not_end_an_offloaded_connection(offloading, mmb):
    """RFC 5961: only the number that the receiver expects. The kernel's numbers are those of the connection."""
    mmb.apply(offloading.folder, "set conn invalid drop", "add-stateful in lan accept", "add prio 200 all drop")
    with closing(listener(offloading.server, SERVER4, 9000)) as (listening,), offloading.client_wire() as wire:
        seen = stack_of_frames(offloading)
        near, far, _ = opened(offloading.client, CLIENT4, (SERVER4, 9000), listening)
        with closing(near, far):
            transfer(near, far, 2_000_000)
            talk(near, far)
            assert hits(mmb) > 100
            last = seen()
            header = Ether(src=last.src, dst=last.dst) / IP(src=CLIENT4, dst=SERVER4)
            number = last[TCP].seq
            # Data far beyond the window must not move what a reset is measured by.
            for offset in (1 << 30, 200_000_000):
                forged = TCP(sport=last[TCP].sport, dport=9000, seq=number + offset & 0xFFFFFFFF, ack=last[TCP].ack, flags="A")
                wire.send(bytes(header / forged / Raw(b"forged")))
                forged.flags = "R"
                wire.send(bytes(header / forged))
                forged.seq = number + offset + 6 & 0xFFFFFFFF
                wire.send(bytes(header / forged))
            time.sleep(0.2)
            (connection,) = mmb.connections(f"sport {near.getsockname()[1]}")
            assert connection["state"] == "established"
            assert mmb.drops().get("conn-invalid", 0) >= 4
            talk(near, far)
    mmb("set conn invalid pass")


@pytest.mark.parametrize("forged", ["F", "P", "", "RA", "FPU", "SF"])
def test_a_forged_segment_gets_no_flow_past_a_rule_on_flags(offloading, mmb, forged):
    """The rules keep the connection with mmb. They do not match the forged segment, which passes as the setting says and must not begin a flow."""
    rules = ["add-stateful in lan accept", "add in lan ! tcp-fin mod ip-dscp 46", "add in lan tcp-ack mod ip-ttl 9"]
    mmb.apply(offloading.folder, "set conn invalid pass", *rules)
    with closing(listener(offloading.server, SERVER4, 9000)) as (listening,), offloading.client_wire() as wire:
        near, far, _ = opened(offloading.client, CLIENT4, (SERVER4, 9000), listening)
        with resetting(near, far):
            for _ in range(5):
                talk(near, far)
            port = near.getsockname()[1]
            header = Ether(src=MAC, dst=OTHER_MAC) / IP(src=CLIENT4, dst=SERVER4)
            for _ in range(10):
                wire.send(bytes(header / TCP(sport=port, dport=9000, seq=0x7FFFFFFF, ack=1, flags=forged)))
            with RawPort(offloading.server, "eth0") as seen:
                for _ in range(30):
                    talk(near, far)
                frames = [Ether(frame) for frame in seen.drain()]
            segments = [frame[IP] for frame in frames if frame.haslayer(TCP) and frame[TCP].dport == 9000 and frame[TCP].payload]
    assert len(segments) >= 30
    assert {(segment.tos >> 2, segment.ttl) for segment in segments} == {(46, 9)}


def test_an_idle_flow_times_out_and_a_busy_one_does_not(offloading, mmb):
    mmb.apply(offloading.folder, "set timeout udp 2", "add-stateful in lan accept")
    with closing(udp(offloading.client, CLIENT4, 7001), udp(offloading.server, SERVER4, 9001)) as (near, far):
        until = time.monotonic() + 5
        while time.monotonic() < until:
            near.sendto(b"x", (SERVER4, 9001))
            _, peer = far.recvfrom(10)
            far.sendto(b"y", peer)
            near.recv(10)
            time.sleep(0.05)
        assert hits(mmb) > 100
        assert mmb.ask("show", "conn", "summary")["connections"] == 1
        assert offload(mmb)["flows"] == 2
        wait_until(lambda: not mmb.connections(), "it timed out", timeout=6)
        assert offload(mmb)["flows"] == 0
    mmb("set timeout udp 300")


def test_packets_beyond_the_mtu_are_dropped_and_counted(offloading, mmb):
    # Otherwise the client knows the MTU after the first one.
    mmb("set mtu-errors off")
    offloading.middle.ip("link", "set", "vr", "mtu", "1300")
    try:
        wait_until(lambda: mmb.port("wan")["mtu"] == 1300, "the MTU is taken up")
        with closing(udp(offloading.client, CLIENT4, 7001), udp(offloading.server, SERVER4, 9001)) as (near, far):

            def passes():
                near.sendto(b"small", (SERVER4, 9001))
                far.recv(10)

            pass_until_offloaded(mmb, passes)
            for _ in range(5):
                near.sendto(bytes(1400), (SERVER4, 9001))
            wait_until(lambda: mmb.drops().get("mtu-exceeded") == 5, "they are counted")
    finally:
        mmb("set mtu-errors on")
        offloading.middle.ip("link", "set", "vr", "mtu", "1500")
        wait_until(lambda: mmb.port("wan")["mtu"] == 1500, "the MTU is taken up")


# What rules keep, and what devices do


def test_rules_on_other_protocols_keep_no_flow(offloading, mmb):
    """Rules on options of SYNs, on pings and on fields of IPv6 say nothing about the packets of a flow of UDP over IPv4."""
    rules = [
        "add tcp-syn strip ! tcp-opt-mss strip ! tcp-opt-wscale",
        "add tcp-opt-mss mod tcp-opt-mss 1400",
        "add icmp-type echo-request drop",
        "add ip6-hop-limit < 5 drop",
        "add ip6-eh-routing drop",
        "add ip-frag-offset > 0 drop",
        "add all mod ip-ecn 0",
    ]
    mmb.apply(offloading.folder, *rules)
    with closing(udp(offloading.client, CLIENT4, 7003), udp(offloading.server, SERVER4, 9003)) as (near, far):

        def passes():
            for _ in range(100):
                near.sendto(b"x", (SERVER4, 9003))
                assert far.recv(10) == b"x"

        pass_until_offloaded(mmb, passes, 1000)


def test_frames_are_whole_after_the_kernel_cut_them(offloading, mmb):
    """A connection with NAT, seen behind the receiving device: each frame has right lengths and checksums."""
    if offloading.place == "xdp":
        pytest.skip("the receiving device joins frames again")
    mmb.apply(offloading.folder, "add-stateful in lan tcp-dport 8000 map tcp-dport 9000")
    offloading.client.run("ethtool", "-K", "eth0", "tso", "off", "gso", "off", "tx", "off")
    try:
        with closing(listener(offloading.server, SERVER4, 9000)) as (listening,):
            near, far, _ = opened(offloading.client, CLIENT4, (SERVER4, 8000), listening)
            with closing(near, far), RawPort(offloading.server, "eth0") as wire:
                transfer(near, far, 200_000)
                frames = [frame for frame in wire.drain() if Ether(frame).haslayer(TCP) and Ether(frame)[TCP].dport == 9000]
        assert len(frames) > 100 and all(rebuilt(frame) == frame for frame in frames)
        assert hits(mmb) > 50
    finally:
        offloading.set_devices()
