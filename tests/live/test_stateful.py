"""Connections and stateful rules: reflexive lists, the end of connections, limits, and changes of the policy."""

import json
import threading

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether

from lab.daemon import Mmb
from lab.net import RawPort, veth
from lab.process import wait_until

from . import sockets
from .frames import ip4, pass_through
from .frames import udp as scapy_udp
from .programs import Nginx, fetch, ping
from .routed import INSIDE4, INSIDE6, NAT4, UNANSWERED, OUTSIDE4, OUTSIDE6, SOURCE
from .sockets import closing, listener, opened, receive, refused, talk, udp
from .topology import CLIENT4, SERVER4

A, B = INSIDE4[:2]
WEB = OUTSIDE4[0]

# As the user guide prints it.
REFLEXIVE = ["add-stateful ip-proto tcp ip-saddr 10.0.0.0/24 accept", "add ip-proto tcp drop"]
REFLEXIVE_NFT = [
    "filter: ct state established,related accept",
    "filter: ip saddr 10.0.0.0/24 meta l4proto tcp accept",
    "filter: meta l4proto tcp drop",
]


# Reflexive lists


def test_a_reflexive_list_lets_in_what_was_asked_for(nat):
    nat.tested.policy(REFLEXIVE, REFLEXIVE_NFT)
    assert fetch(nat, f"http://{WEB}/big", source=A)[1] == nat.nginx.digest("big")
    with closing(listener(nat.server, WEB, 9000), listener(nat.client, A, 9000)) as (outside, _):
        near, far, seen = opened(nat.client, A, (WEB, 9000), outside)
        with closing(near, far):
            assert seen[0] == A
            talk(near, far)
            # In the other direction no packet enters, not even from the connection's own server.
            assert refused(nat.server, WEB, (A, 9000)) == "timeout"
            talk(near, far)
    with closing(udp(nat.client, A, 9001), udp(nat.server, WEB, 9001)) as (near, far):
        assert sockets.ask(far, near) == (WEB, 9001), "UDP is not spoken of"


def test_a_reflexive_list_of_ipv6(nat):
    nat.tested.policy(
        ["add-stateful ip-proto tcp ip6-saddr fd00:a::/64 accept", "add ip-proto tcp drop"],
        [line.replace("ip saddr 10.0.0.0/24", "ip6 saddr fd00:a::/64") for line in REFLEXIVE_NFT],
    )
    assert fetch(nat, f"http://[{OUTSIDE6[0]}]/big", source=INSIDE6[0])[1] == nat.nginx.digest("big")
    with closing(listener(nat.client, INSIDE6[0], 9000)):
        assert refused(nat.server, OUTSIDE6[0], (INSIDE6[0], 9000)) == "timeout"


def test_a_connection_that_is_half_closed_still_carries(nat):
    nat.tested.policy(REFLEXIVE, REFLEXIVE_NFT)
    with closing(listener(nat.server, WEB, 9000)) as (listening,):
        near, far, _ = opened(nat.client, A, (WEB, 9000), listening)
        with closing(near, far):
            near.sendall(b"and that is all")
            near.shutdown(1)
            assert far.recv(100) == b"and that is all" and far.recv(100) == b""
            sender = threading.Thread(target=lambda: (far.sendall(bytes(500_000)), far.shutdown(1)))
            sender.start()
            got = 0
            while data := near.recv(1 << 16):
                got += len(data)
            sender.join(10)
            assert got == 500_000


def test_a_closed_connection_lets_nobody_in(of_mmb):
    """No rule admits a SYN from outside with the addresses and ports of a closed connection. Linux takes it for a connection
    whose ends have exchanged their roles."""
    of_mmb.tested.policy(REFLEXIVE)
    with closing(listener(of_mmb.server, WEB, 9000)) as (listening,):
        with of_mmb.outside_wire() as outside, of_mmb.inside_wire() as inside:
            near, far, _ = opened(of_mmb.client, A, (WEB, 9000), listening, 41000)
            talk(near, far)
            near.close()
            assert far.recv(10) == b""
            far.close()
            daemon = of_mmb.tested.daemon
            wait_until(lambda: daemon.connections("state time-wait"), "both ends are closed")
            last = [frame for frame in map(Ether, outside.drain()) if TCP in frame and frame[TCP].sport == 41000][-1]
            inside.drain()
            syn = Ether(src=last.dst, dst=last.src) / IP(src=WEB, dst=A, id=777)
            syn /= TCP(sport=9000, dport=41000, flags="S", seq=(last[TCP].ack + 100000) % (1 << 32))
            outside.send(syn)
            assert ping(of_mmb, WEB, count=1, options=["-I", A]) == 1
            assert not [frame for frame in map(Ether, inside.drain()) if TCP in frame and frame[TCP].flags == "S"]
    assert of_mmb.tested.daemon.rule(2)["packets"] >= 1


def test_rules_without_a_mapping_touch_both_directions(of_mmb):
    of_mmb.tested.policy(["add-stateful in lan udp-dport 9000 mod ip-ttl 9"])
    with closing(udp(of_mmb.client, A), udp(of_mmb.server, WEB, 9000)) as (near, far):
        with of_mmb.inside_wire() as inside, of_mmb.outside_wire() as outside:
            sockets.ask(near, far)
            lives = [Ether(frame)[IP].ttl for wire in (inside, outside) for frame in wire.drain() if IP in Ether(frame)]
    assert lives == [9, 9]


# The end of connections


@pytest.mark.parametrize("off_by", [1 << 20, 1 << 30, -(1 << 20)])
def test_a_reset_outside_the_window_ends_nothing(nat, off_by):
    """RFC 5961 section 3, RFC 7857 section 2.2: a sender that does not know the sequence numbers cannot end a connection."""
    nat.tested.policy(REFLEXIVE, REFLEXIVE_NFT)
    with closing(listener(nat.server, WEB, 9000)) as (listening,):
        with nat.outside_wire() as outside:
            near, far, _ = opened(nat.client, A, (WEB, 9000), listening, 41001)
            with closing(near, far):
                talk(near, far)
                seen = [Ether(frame) for frame in outside.drain()]
                last = [frame for frame in seen if TCP in frame and frame[TCP].sport == 41001][-1]
                reset = Ether(src=last.dst, dst=last.src) / IP(src=WEB, dst=A)
                reset /= TCP(sport=9000, dport=41001, flags="R", seq=(last[TCP].ack + off_by) % (1 << 32))
                for _ in range(3):
                    outside.send(reset)
                talk(near, far)
                if nat.tested.kind == "mmb":
                    (connection,) = nat.tested.daemon.connections("tcp-dport 9000")
                    assert connection["state"] == "established"


def test_a_reset_ends_the_connection(of_mmb):
    of_mmb.tested.policy(["set timeout tcp-reset 1", *REFLEXIVE])
    with closing(listener(of_mmb.server, WEB, 9000)) as (listening,):
        near, far, _ = opened(of_mmb.client, A, (WEB, 9000), listening)
        talk(near, far)
        far.setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # SO_LINGER with a time of zero: close sends a RST
        far.close()
        with closing(near), pytest.raises(ConnectionResetError):
            near.recv(10)
    wait_until(lambda: of_mmb.tested.daemon.connections("tcp-dport 9000") == [], "the entry is gone")


def test_states_follow_a_connection(of_mmb):
    daemon = of_mmb.tested.daemon
    of_mmb.tested.policy(SOURCE)

    def state():
        return [connection["state"] for connection in daemon.connections("ip-proto tcp")]

    with closing(listener(of_mmb.server, WEB, 9000)) as (listening,):
        near, far, _ = opened(of_mmb.client, A, (WEB, 9000), listening)
        talk(near, far)
        assert state() == ["established"]
        near.shutdown(1)
        assert far.recv(10) == b""
        assert state() == ["fin-wait"]
        far.close()
        assert near.recv(10) == b""
        near.close()
        wait_until(lambda: state() == ["time-wait"], "both ends are acknowledged")
    with closing(udp(of_mmb.client, A), udp(of_mmb.server, WEB, 9000)) as (near, far):
        near.sendto(b"hello", (WEB, 9000))
        mapped = receive(far, b"hello")
        assert [each["state"] for each in daemon.connections("ip-proto udp")] == ["unreplied"]
        far.sendto(b"hello", mapped)
        receive(near, b"hello")
        assert [each["state"] for each in daemon.connections("ip-proto udp")] == ["replied"]


# Pick-up


@pytest.mark.parametrize("pickup", ["loose", "strict"])
def test_connections_from_before_are_picked_up_if_that_is_wanted(of_mmb, pickup):
    with closing(listener(of_mmb.server, WEB, 9000)) as (listening,):
        near, far, _ = opened(of_mmb.client, A, (WEB, 9000), listening)
        with closing(near, far):
            talk(near, far)
            of_mmb.tested.policy([f"set conn pickup {pickup}", *REFLEXIVE])
            near.sendall(b"still there?")
            far.settimeout(1)
            if pickup == "loose":
                assert far.recv(100) == b"still there?"
                far.sendall(b"yes")
                assert near.recv(100) == b"yes"
            else:
                with pytest.raises(TimeoutError):
                    far.recv(100)
                # It creates no connection, so the stateful rule's accept does not apply, and the other rule drops it.
                assert of_mmb.tested.drops()["rule"] >= 1
                of_mmb.tested.policy(["set conn pickup strict", "add-stateful ip-proto tcp accept"])
                near.sendall(b"and now?")
                with pytest.raises(TimeoutError):
                    far.recv(100)
                assert of_mmb.tested.drops()["conn-not-syn"] >= 1


# Changes


def test_a_transfer_goes_on_while_policies_are_applied(of_mmb):
    """The translation stays, whatever changes in the policy."""
    daemon = of_mmb.tested.daemon
    of_mmb.tested.policy(SOURCE)
    results = []
    transfer = threading.Thread(
        target=lambda: results.append(fetch(of_mmb, f"http://{WEB}/big", 60, check=False, rate="10M", source=A))
    )
    transfer.start()
    wait_until(lambda: daemon.connections("tcp-dport 80"), "the transfer has begun")
    for number in range(20):
        of_mmb.tested.policy([*SOURCE, f"add udp-dport {number + 1} drop", "add tcp-dport 81 mod tcp-dport 80"])
        of_mmb.tested.policy([f"add-stateful in lan ip-saddr 10.0.0.0/24 map ip-saddr 200.0.0.{number + 2}"])
    transfer.join(90)
    assert results == [(0, of_mmb.nginx.digest("big"))]


def test_a_rule_that_is_deleted_leaves_its_connections_going(of_mmb):
    daemon = of_mmb.tested.daemon
    of_mmb.tested.policy(SOURCE)
    with closing(listener(of_mmb.server, WEB, 9000)) as (listening,):
        near, far, seen = opened(of_mmb.client, A, (WEB, 9000), listening)
        with closing(near, far):
            assert seen[0] == NAT4
            daemon("del 1")
            talk(near, far)
            later = opened(of_mmb.client, A, (WEB, 9000), listening)
            with closing(*later[:2]):
                assert later[2][0] == A, "a new connection is not translated any more"
            talk(near, far)


def test_a_rule_that_is_deleted_with_kill_takes_its_connections_along(of_mmb):
    daemon = of_mmb.tested.daemon
    of_mmb.tested.policy(
        [f"add-stateful in lan ip-saddr {A} map ip-saddr {NAT4}", SOURCE[0].replace(NAT4, "200.0.0.2")]
    )
    with closing(udp(of_mmb.client, A), udp(of_mmb.client, B), udp(of_mmb.server, WEB, 9000)) as (one, two, far):
        # If two rules map one field, the later one decides: both translate A.
        assert {sockets.ask(one, far)[0], sockets.ask(two, far)[0]} == {"200.0.0.2"}
        assert len(daemon.connections("ip-proto udp")) == 2
        daemon("del 1 --kill")
        (left,) = daemon.connections("ip-proto udp")
        assert left["arrived"]["src"] == B
        daemon("del 2 --kill")
        assert daemon.connections("ip-proto udp") == []


def test_a_rule_that_is_replaced_hands_over_its_connections(of_mmb):
    daemon = of_mmb.tested.daemon
    of_mmb.tested.policy([f"add-stateful name nat in lan ip-saddr 10.0.0.0/24 map ip-saddr {NAT4}"])
    with closing(udp(of_mmb.client, A), udp(of_mmb.client, B), udp(of_mmb.server, WEB, 9000)) as (one, two, far):
        assert sockets.ask(one, far)[0] == NAT4
        answer = daemon.ask(f"replace 1 name nat prio 7 in lan ip-saddr {B} map ip-saddr 200.0.0.2")
        assert answer["connections"]["handed_over"] == 1 and (answer["added"][0]["id"], answer["removed"][0]["id"]) == (1, 1)
        assert sockets.ask(one, far)[0] == NAT4, "its translation stays"
        assert sockets.ask(two, far)[0] == "200.0.0.2"
        assert daemon.ask(f"replace 1 name nat in lan ip-saddr {B} map ip-saddr 200.0.0.3 --kill")["killed"] == 2
        assert sockets.ask(two, far)[0] == "200.0.0.3"
        daemon("add name nat tcp-dport 7 drop")
        assert "no rule called 'nut'" in daemon.refused("del name nut --kill")
        answer = daemon.ask("del name nat --kill")
        assert len(answer["removed"]) == 2 and answer["killed"] == 1
        assert daemon.ask("list")["rules"] == [] and daemon.connections("ip-proto udp") == []


def test_connections_are_killed_by_filter(of_mmb):
    daemon = of_mmb.tested.daemon
    of_mmb.tested.policy(SOURCE)
    with closing(udp(of_mmb.client, A), udp(of_mmb.client, B), udp(of_mmb.server, WEB, 9000)) as (one, two, far):
        whom_one, whom_two = sockets.ask(one, far), sockets.ask(two, far)
        daemon(f"conn kill ip-saddr {A}")
        assert [each["arrived"]["src"] for each in daemon.connections("ip-proto udp")] == [B]
        far.sendto(b"too late", whom_one)
        assert not sockets.heard(one), "its mapping went with it"
        far.sendto(b"still open", whom_two)
        assert receive(two, b"still open")
        daemon("conn kill all")
        assert daemon.connections("ip-proto udp") == []


# Output


def test_connections_are_shown_with_both_ends_before_and_after(of_mmb):
    daemon = of_mmb.tested.daemon
    of_mmb.tested.policy(SOURCE)
    with closing(udp(of_mmb.client, A, 5000), udp(of_mmb.server, WEB, 9000)) as (near, far):
        for _ in range(3):
            sockets.ask(near, far, text=bytes(100))
        (shown,) = daemon.connections("ip-proto udp udp-dport 9000")
    assert shown["arrived"] == {"src": A, "sport": 5000, "dst": WEB, "dport": 9000}
    assert shown["sent"] == {"src": NAT4, "sport": 5000, "dst": WEB, "dport": 9000}
    assert shown["state"] == "replied" and shown["rules"] == [1]
    # 100 bytes and "re " after the headers of Ethernet, IP and UDP.
    assert shown["forward"] == {"packets": 3, "bytes": 3 * 142}
    assert shown["reply"] == {"packets": 3, "bytes": 3 * 145}
    assert 0 < shown["expires_ms"] <= 300_000 and shown["idle_ms"] <= shown["age_ms"]
    text = daemon("show connections verbose")
    assert all(word in text for word in (A, WEB, NAT4, "replied")), text
    # A last segment of an earlier test may still arrive and be picked up: the test ignores other TCP connections.
    assert daemon.connections("tcp-sport 5000") == [] == daemon.connections("udp-dport 9001")
    assert len(daemon.connections("state replied")) == len(daemon.connections(f"ip-saddr {NAT4} udp-sport 5000")) == 1


def test_the_summary_adds_up(of_mmb):
    daemon = of_mmb.tested.daemon
    of_mmb.tested.policy(SOURCE)
    before = daemon.ask("show conn summary")
    with closing(*(udp(of_mmb.client, A) for _ in range(20)), udp(of_mmb.server, WEB, 9000)) as (*many, far):
        for near in many[:10]:
            sockets.ask(near, far)
        for near in many[10:]:
            near.sendto(b"no answer", (WEB, 9000))
            receive(far, b"no answer")
    shown = daemon.ask("show conn summary")
    # A host may retransmit a packet of an earlier test, which creates another connection.
    assert len(daemon.connections("ip-proto udp")) == 20 <= shown["connections"]
    assert len(daemon.connections("ip-proto udp state unreplied")) == 10 <= shown["half_open"]
    assert shown["created"] - before["created"] >= 20
    assert shown["created"] == shown["connections"] + sum(shown["closed"].values())
    assert shown["max"] == 1_000_000


def test_a_monitor_tells_of_connections_as_they_come_and_go(of_mmb):
    daemon = of_mmb.tested.daemon
    of_mmb.tested.policy(["set timeout udp-unreplied 1", "set timeout udp 1", *SOURCE])
    log = of_mmb.folder / "monitor.log"
    log.unlink(missing_ok=True)
    words = [daemon.binary, "monitor", "--json", "--socket", daemon.socket]

    def reported_events(**wanted):
        events = [json.loads(line) for line in monitor.output().splitlines()]
        return [event for event in events if wanted.items() <= event.items()]

    with of_mmb.middle.start(words, log) as monitor, closing(udp(of_mmb.server, WEB, 9000)) as (far,):

        def sees_a_new_one():
            """Connections that begin before the monitor runs are not reported."""
            with closing(udp(of_mmb.client, A)) as (near,):
                sockets.ask(near, far)
            return reported_events(what="created")

        created = wait_until(sees_a_new_one, "the monitor tells of a connection that is made")[0]["connection"]
        assert (created["arrived"]["src"], created["sent"]["src"], created["rules"]) == (A, NAT4, [1])
        wait_until(lambda: reported_events(what="closed", reason="timeout"), "and that its time is over")
        with closing(udp(of_mmb.client, A, 5077)) as (near,):
            sockets.ask(near, far)
            daemon("conn kill udp-sport 5077")
        (killed,) = wait_until(lambda: reported_events(what="closed", reason="killed"), "and that one was killed")
        assert killed["connection"]["sent"] == {"src": NAT4, "sport": 5077, "dst": WEB, "dport": 9000}


# Limits


def test_a_full_table_refuses_new_connections_and_keeps_the_old_ones(of_mmb):
    of_mmb.tested.policy(["set conn max 10", *SOURCE])
    with closing(*(udp(of_mmb.client, A) for _ in range(11)), udp(of_mmb.server, WEB, 9000)) as (*many, far):
        for near in many[:10]:
            sockets.ask(near, far)
        many[10].sendto(b"one too many", (WEB, 9000))
        assert not sockets.heard(far)
        assert of_mmb.tested.drops()["conn-full"] == 1
        for near in many[:10]:
            sockets.ask(near, far)


def test_half_open_connections_make_room(of_mmb):
    daemon = of_mmb.tested.daemon
    of_mmb.tested.policy(["set conn max 10", *SOURCE])
    with closing(*(udp(of_mmb.client, A) for _ in range(40)), udp(of_mmb.server, WEB, 9000)) as (*many, far):
        sockets.ask(many[0], far)
        for near in many[1:]:
            near.sendto(b"no answer", (WEB, 9000))
            receive(far, b"no answer")
        assert len(daemon.connections()) == 10
        far.sendto(b"still open", sockets.ask(many[0], far))
        assert receive(many[0], b"still open")


def test_a_syn_flood_ends_no_connection_and_stops_no_new_one(of_mmb):
    """Half-open connections evict each other, so that the flood does not keep out clients that answer."""
    daemon = of_mmb.tested.daemon
    of_mmb.tested.policy(
        ["set conn max 2000", "add-stateful in lan ip-proto tcp accept", "add in wan ip-proto tcp drop"]
    )
    with closing(listener(of_mmb.server, WEB, 9000)) as (listening,):
        near, far, _ = opened(of_mmb.client, A, (WEB, 9000), listening)
        log = of_mmb.folder / "hping3.log"
        words = ["hping3", "-q", "-n", "-S", "-p", "80", "--rand-source", "-i", "u100", "-c", "30000", UNANSWERED]
        with closing(near, far), of_mmb.client.start(words, log) as flood:
            wait_until(lambda: daemon.ask("show conn summary")["half_open"] > 1500, "the table is full of SYNs", 30)
            for _ in range(10):
                talk(near, far)
                assert fetch(of_mmb, f"http://{WEB}/small", source=B)[1] == of_mmb.nginx.digest("small")
            assert fetch(of_mmb, f"http://{WEB}/big", source=B)[1] == of_mmb.nginx.digest("big")
            talk(near, far)
            summary = daemon.ask("show conn summary")
            flood.close()
        assert summary["connections"] <= 2000
        assert of_mmb.tested.drops().get("conn-full", 0) == 0


# Workers and wires


def test_two_workers_translate_as_one_does(fresh):
    """Replies arrive at the worker that the card selects; each connection belongs to one worker."""
    site = fresh.routed(queues=2)
    mmb = fresh.daemon(site, "--workers", 2)
    nginx = Nginx(site)
    mmb.apply(site.folder, *SOURCE)
    with closing(*(udp(site.client, host) for host in INSIDE4 * 16), udp(site.server, WEB, 9000)) as (*many, far):
        seen = [sockets.ask(near, far) for near in many]
        assert len(set(seen)) == 64 and {address for address, _ in seen} == {NAT4}
        for near, mapped in zip(many, seen):
            far.sendto(b"later", mapped)
            assert receive(near, b"later")
        for near in many[:8]:
            assert sockets.ask(near, far, text=bytes(20000))[0] == NAT4, "in fragments"
        for host in INSIDE4:
            with closing(udp(site.client, host)) as (near,):
                near.connect((WEB, 9))
                near.send(b"nobody there")
                with pytest.raises(ConnectionRefusedError):
                    near.recv(100)
        for host in INSIDE4:
            assert fetch(site, f"http://{WEB}/big", source=host)[1] == nginx.digest("big")
        assert ping(site, WEB, count=20, options=["-I", A]) == 20
        mmb("del 1")
        for near, mapped in zip(many, seen):
            far.sendto(b"without the rule", mapped)
            assert receive(near, b"without the rule")
    assert mmb.ask("show conn summary")["handed"] > 0
    mmb.wait_until_settled()


def test_wires_have_connections_of_their_own(fresh):
    """Connections that one wire's inside began admit no packet on another wire, even with the same addresses and ports."""
    site = fresh("af_xdp")
    veth(site.middle, "xl", site.client, "eth1")
    veth(site.middle, "xr", site.server, "eth1")
    ports = {"lan": "vl", "lan2": "xl", "wan": "vr", "wan2": "xr"}
    there = bytes(ip4() / scapy_udp())
    back = bytes(ip4(src=SERVER4, dst=CLIENT4) / scapy_udp(sport=53, dport=40000))
    with Mmb(site.middle, site.folder, ports, "wires").start("--wire", "lan,wan", "--wire", "lan2,wan2") as mmb:
        mmb.apply(site.folder, "add-stateful in {lan, lan2} udp-dport 53 accept", "add in {wan, wan2} ip-proto udp drop")
        with site.client_wire() as lan, site.server_wire() as wan:
            with RawPort(site.client, "eth1") as lan2, RawPort(site.server, "eth1") as wan2:
                assert pass_through(lan, wan, [there]) == [there]
                assert pass_through(wan2, lan2, [back]) == []
                assert pass_through(wan, lan, [back]) == [back]
                assert pass_through(lan2, wan2, [there]) == [there]
                assert pass_through(wan2, lan2, [back]) == [back]
        assert [each["state"] for each in mmb.connections()] == ["replied", "replied"]


# Changes of the policy under live connections


def test_a_pool_that_grows_keeps_its_connections(of_mmb):
    """The policy of docs/nat.md, without ids: a file with one more address in the pool is applied under a TCP connection."""

    def gateway(last):
        outside = f"200.0.0.1-200.0.0.{last}"
        return [
            f"add-stateful in lan ip-saddr 10.0.0.0/24 map ip-saddr {outside} accept",
            "add in wan ip-daddr 200.0.0.0/24 drop",
        ]

    of_mmb.tested.policy(gateway(4))
    with closing(listener(of_mmb.server, WEB, 9000)) as (listening,):
        near, far, seen = opened(of_mmb.client, A, (WEB, 9000), listening)
        with closing(near, far):
            talk(near, far)
            answer = of_mmb.tested.daemon.apply(of_mmb.folder, *gateway(5))
            assert answer["connections"] == {"handed_over": 1, "lose_rules": 0, "lose_accept": 0}
            talk(near, far)
            (connection,) = of_mmb.tested.daemon.connections("tcp-dport 9000")
            assert connection["sent"]["src"] == seen[0] and connection["rules"] == [1]
            of_mmb.tested.daemon("del", "1")
            far.sendall(b"nobody accepts this")
            near.settimeout(sockets.SILENCE)
            with pytest.raises(TimeoutError):
                near.recv(100)


def test_a_server_that_is_drained_keeps_its_connections(of_mmb):
    """Connections stay at a server that a changed `lb` rule no longer names, and new ones go elsewhere."""

    def balance(*servers):
        return [
            f"add-stateful in lan ip-daddr 203.0.113.80 tcp-dport 9080 lb ip-daddr {{{', '.join(servers)}}} accept",
            "add ip-proto tcp drop",
        ]

    first, second, third = OUTSIDE4[:3]
    of_mmb.tested.policy(balance(first, second, third))
    listening = {server: listener(of_mmb.server, server, 9080) for server in (first, second, third)}
    with closing(*listening.values()):
        pairs = {}
        while len(pairs) < 3:
            near = sockets.tcp(of_mmb.client, A, ("203.0.113.80", 9080))
            (connection,) = of_mmb.tested.daemon.connections(f"sport {near.getsockname()[1]}")
            server = connection["sent"]["dst"]
            far, _ = listening[server].accept()
            pairs[server] = near, far
        of_mmb.tested.daemon.apply(of_mmb.folder, *balance(second, third))
        for near, far in pairs.values():
            talk(near, far)
        for _ in range(4):
            with closing(sockets.tcp(of_mmb.client, A, ("203.0.113.80", 9080))) as (near,):
                (connection,) = of_mmb.tested.daemon.connections(f"sport {near.getsockname()[1]}")
                assert connection["sent"]["dst"] != first
        for pair in pairs.values():
            for end in pair:
                end.close()


def test_a_connection_goes_on_after_its_port_was_disabled(of_mmb):
    """Bytes that pass while a port is disabled move the windows on unseen. Under `conn invalid drop`, the connection resumes."""
    of_mmb.tested.policy(["set conn invalid drop", *REFLEXIVE])
    with closing(listener(of_mmb.server, WEB, 9000)) as (listening,):
        near, far, _ = opened(of_mmb.client, A, (WEB, 9000), listening)
        with closing(near, far):
            talk(near, far)
            for port in ("lan", "wan"):
                of_mmb.tested.daemon("disable", port)
            for _ in range(40):
                talk(near, far, bytes(100_000))
            for port in ("lan", "wan"):
                of_mmb.tested.daemon("enable", port)
            for _ in range(3):
                talk(near, far)
            (connection,) = of_mmb.tested.daemon.connections("tcp-dport 9000")
            assert connection["state"] == "established"
        wait_until(lambda: of_mmb.tested.daemon.connections("tcp-dport 9000 state time-wait"), "both ends are closed")
