"""Rules that edit streams beside translations and load balancing, in one rule and in several, and across a restart with the connections' state."""

import contextlib
import threading
import time

import pytest

from lab.process import wait_until

from .edits import TARGETS, Flow, carry, edited, full_of, small
from .programs import Nginx, fetch
from .routed import INSIDE4, INSIDE6, NAT4, NAT6, OUTSIDE4, OUTSIDE6, SOURCE
from .sockets import closing, connected, listener, opened
from .test_balance import accepted
from .test_streams import received

PORT = 9100
A, B = INSIDE4[:2]
WEB = OUTSIDE4[0]
SERVERS = INSIDE4[1:4]
MOD, GROWS = 'mod stream "<\\m! and more>"', TARGETS["mod"][1]
EDIT = f'tcp-dport {PORT} stream "MATCH"'

families = pytest.mark.parametrize(
    ("inside", "outside", "stands_for", "field"),
    [(A, WEB, NAT4, "ip"), (INSIDE6[0], OUTSIDE6[0], NAT6, "ip6")],
    ids=["v4", "v6"],
)


def exchange(near, far, by=GROWS, count=400, pieces=None):
    """Many texts each way at once, to the ends of both directions."""
    for end in (near, far):
        end.settimeout(20)
    made = []
    for way, (here, there) in enumerate(((near, far), (far, near))):
        data = full_of(b"MATCH", count, seed=way)
        made.append(Flow(here, there, data, edited(data, (b"MATCH", by)), pieces))
    carry(made, 30)


@families
@pytest.mark.parametrize(("target", "by"), [(MOD, GROWS), ("strip stream", b"")], ids=["mod", "strip"])
def test_an_edit_in_the_rule_of_a_source_nat(of_mmb, inside, outside, stands_for, field, target, by):
    """With other sequence numbers on the outside, too."""
    network = "10.0.0.0/24" if field == "ip" else "fd00:a::/64"
    of_mmb.tested.policy(
        [f"add-stateful in lan {field}-saddr {network} {EDIT} shuffle tcp-seq-num shuffle tcp-ack-num map {field}-saddr {stands_for} {target}"]
    )
    with closing(listener(of_mmb.server, outside, PORT)) as (listening,):
        near, far, seen = opened(of_mmb.client, inside, (outside, PORT), listening)
        with closing(near, far):
            assert seen[0] == stands_for
            exchange(near, far, by)
    assert of_mmb.tested.daemon.rule(1)["hits"] == 800


def test_an_edit_in_a_rule_beside_a_source_nat(of_mmb):
    of_mmb.tested.policy(
        [
            f"add-stateful in lan ip-saddr 10.0.0.0/24 ip-proto tcp tcp-syn shuffle tcp-sport shuffle tcp-seq-num map ip-saddr {NAT4}",
            f"add-stateful {EDIT} {MOD}",
        ]
    )
    with closing(listener(of_mmb.server, WEB, PORT)) as (listening,):
        for sport in (40320, 40322):
            near, far, seen = opened(of_mmb.client, A, (WEB, PORT), listening, sport)
            with closing(near, far):
                assert seen[0] == NAT4 and seen[1] != sport
                exchange(near, far, pieces=small(sport))


@pytest.mark.parametrize("method", ["rr", "hash", "least"])
def test_an_edit_in_the_rule_of_a_balancer(of_mmb, method):
    servers = ", ".join(SERVERS)
    of_mmb.tested.policy(
        [f'add-stateful in wan ip-daddr {NAT4} tcp-dport 8000 stream "MATCH" lb ip-daddr {{{servers}}} {method} {MOD}']
    )
    with closing(*(listener(of_mmb.client, server, 8000) for server in SERVERS)) as listening:
        for _ in range(4):
            with of_mmb.server.entered():
                near = connected((OUTSIDE4[1], 0), (NAT4, 8000))
            _, far, _ = accepted(listening)
            with closing(near, far):
                exchange(near, far, count=100)


def test_an_edit_in_one_rule_with_source_nat_and_balancing(of_mmb):
    """One rule translates both ends, shuffles the numbers of both, edits the header and the bytes."""
    outside = ", ".join(OUTSIDE4[:2])
    of_mmb.tested.policy(
        [
            f"add-stateful in lan ip-saddr 10.0.0.0/24 ip-daddr 203.0.113.80 {EDIT} shuffle tcp-seq-num shuffle tcp-ack-num "
            f"map ip-saddr {NAT4} lb ip-daddr {{{outside}}} rr mod ip-ttl 33 mod ip-dscp 46 {MOD}"
        ]
    )
    with closing(*(listener(of_mmb.server, address, PORT) for address in OUTSIDE4[:2])) as listening:
        servers = set()
        for sport in range(40330, 40334):
            with of_mmb.client.entered():
                near = connected((A, sport), ("203.0.113.80", PORT))
            number, far, seen = accepted(listening)
            servers.add(number)
            with closing(near, far):
                assert seen[0] == NAT4
                exchange(near, far, count=200)
    assert servers == {0, 1}
    assert of_mmb.tested.daemon.rule(1)["hits"] == 4 * 400


def test_an_edit_of_a_hairpinned_connection(of_mmb):
    """RFC 5382 REQ-8: both ends are inside, and each knows the other by its outside address."""
    of_mmb.tested.policy(["set nat filtering endpoint-independent", *SOURCE, f'add-stateful tcp-dport 6001 stream "MATCH" {MOD}'])
    with closing(listener(of_mmb.server, WEB, 9001), listener(of_mmb.client, B, 6001)) as (listening, inside):
        from_b = opened(of_mmb.client, B, (WEB, 9001), listening, 6001)
        near, far, seen = opened(of_mmb.client, A, from_b[2], inside, 5001)
        with closing(*from_b[:2], near, far):
            assert seen == (NAT4, 5001)
            exchange(near, far)


@pytest.mark.parametrize("hairpinned", [False, True], ids=["outside", "inside"])
def test_an_edit_through_a_port_forward(of_mmb, hairpinned):
    of_mmb.tested.policy(
        [
            f"add-stateful in lan ip-saddr 10.0.0.0/24 map ip-saddr {NAT4}",
            f'add-stateful ip-daddr {NAT4} tcp-dport 8080 stream "MATCH" map ip-daddr {B} map tcp-dport 80 {MOD}',
            "set conn same-port on",
        ]
    )
    where, source = (of_mmb.client, A) if hairpinned else (of_mmb.server, WEB)
    try:
        with closing(listener(of_mmb.client, B, 80)) as (listening,):
            near, far, seen = opened(where, source, (NAT4, 8080), listening)
            with closing(near, far):
                assert seen[0] == (NAT4 if hairpinned else WEB)
                exchange(near, far)
    finally:
        of_mmb.tested.daemon("set conn same-port off")


def test_edited_pages_through_source_nat_over_loss(of_mmb):
    """curl and nginx, with loss made by rules: retransmissions, SACK and both shifts of the numbers at once."""
    of_mmb.tested.policy(
        [
            "add-stateful in lan ip-saddr 10.0.0.0/24 tcp-dport 80 stream-forward \"/notsobig\" shuffle tcp-seq-num shuffle tcp-ack-num "
            f'map ip-saddr {NAT4} mod stream-forward "/big"',
            "add in wan ip-proto tcp drop 0.5",
            "add in lan ip-proto tcp drop 0.5",
        ]
    )
    assert fetch(of_mmb, f"http://{WEB}/notsobig", source=A, timeout=60)[1] == of_mmb.nginx.digest("big")
    assert of_mmb.tested.daemon.rule(1)["hits"] == 1


# A restart


@pytest.fixture
def restarted(fresh):
    site = fresh.routed()
    mmb = fresh.daemon(site)
    policy, state = site.folder / "policy.mmb", site.folder / "state"
    policy.write_text(f"add-stateful in lan ip-saddr 10.0.0.0/24 {EDIT} map ip-saddr {NAT4} {MOD}\n")
    mmb("apply", policy)

    def restart():
        wait_until(lambda: settled(mmb), "all is acknowledged")
        said = mmb.client("save-state", state)
        assert mmb.stop() == 0
        mmb.start("-c", policy)
        mmb("load-state", state)
        return said.stdout + said.stderr

    return site, mmb, restart


def settled(mmb):
    sides = [listed["stream"][side] for listed in mmb.ask("show streams")["streams"] for side in ("forward", "reply") if side in listed["stream"]]
    return all(side["kept"] + side["waiting"] == 0 for side in sides)


def test_a_connection_goes_on_after_a_restart_with_the_difference_that_edits_made(restarted):
    """docs/streams.md: it is not edited any more, and its numbers fit."""
    site, mmb, restart = restarted
    with closing(listener(site.server, WEB, PORT)) as (listening,):
        near, far, _ = opened(site.client, A, (WEB, PORT), listening)
        with closing(near, far):
            for here, there in ((near, far), (far, near)):
                here.sendall(b"a MATCH.")
                assert received(there, 19) == b"a <MATCH! and more>"
                assert received(there, 1) == b"."
            assert "closed" not in restart()
            for _ in range(3):
                for here, there in ((near, far), (far, near)):
                    here.sendall(b"a MATCH." * 1000)
                    assert received(there, 8000) == b"a MATCH." * 1000
            assert len(mmb.connections("tcp-dport", PORT)) == 1


def test_a_connection_with_edits_in_flight_is_over(restarted):
    """Its numbers are lost: both ends are told when they send, at once, and nothing of the one reaches the other."""
    site, mmb, _ = restarted
    state = site.folder / "other"
    with closing(listener(site.server, WEB, PORT)) as (listening,):
        near, far, _ = opened(site.client, A, (WEB, PORT), listening)
        with closing(near, far):
            mmb("set stream hold 10000")
            near.sendall(b"a MATCH, a MAT")
            assert received(far, 22) == b"a <MATCH! and more>, a"
            said = mmb.client("save-state", state)
            assert "closed" in said.stdout + said.stderr
            assert mmb.stop() == 0
            mmb.start("-c", site.folder / "policy.mmb")
            mmb("load-state", state)
            assert len(mmb.connections()) == 1
            for end in (near, far):
                end.settimeout(5)
                with pytest.raises(ConnectionResetError):
                    while True:
                        end.sendall(b"more")
                        time.sleep(0.1)
            assert set(mmb.drops()) == {"stream-lost"}
        # The ends begin anew.
        near, far, _ = opened(site.client, A, (WEB, PORT), listening)
        with closing(near, far):
            near.sendall(b"a MATCH.")
            assert received(far, 20) == b"a <MATCH! and more>."


def test_a_transfer_across_a_restart_delivers_no_other_bytes(fresh):
    """An edited page, and mmb restarted in its middle with the state: the page is whole, or it ends."""
    site = fresh.routed()
    mmb, nginx = fresh.daemon(site), Nginx(site)
    policy, state = site.folder / "policy.mmb", site.folder / "state"
    edit = 'stream-forward "/notsobig" mod stream-forward "/big"'
    policy.write_text(f"add-stateful in lan ip-saddr 10.0.0.0/24 tcp-dport 80 {edit} map ip-saddr {NAT4}\n")
    mmb("apply", policy)
    results = []
    transfer = threading.Thread(
        target=lambda: results.append(fetch(site, f"http://{WEB}/notsobig", 20, check=False, rate="8M", source=A))
    )
    transfer.start()
    with contextlib.ExitStack() as stack:
        stack.callback(transfer.join, 60)
        wait_until(lambda: mmb.port("wan")["rx"]["packets"] > 500, "the transfer is under way")
        mmb("save-state", state)
        assert mmb.stop() == 0
        mmb.start("-c", policy)
        mmb("load-state", state)
    [(status, digest)] = results
    assert status != 0 or digest == nginx.digest("big")
