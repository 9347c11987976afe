"""The policy changes while traffic flows, and no packet is lost because of it."""

import threading

import pytest

from lab.process import wait_until

from .programs import NumberedStream, fetch, report
from .topology import SERVER4

CHANGES = 1000


def changes(count):
    """Commands, each of which changes the policy in force: they add and delete rules of every kind."""
    shapes = (
        "ip-saddr 192.0.2.{n} drop",
        "tcp-dport 200{n} mod tcp-dport 80",
        "ip6-daddr 2001:db8::{n} ip-proto tcp drop",
        "tcp-opt 2{n} strip tcp-opt 2{n}",
        "ip-ttl > 2{n} ip-daddr 198.51.100.0/2{n} mod ip-ttl 9",
        'udp-payload "nothing sends this {n}" drop',
    )
    for number in range(count // 2):
        rule = 1000 + number % 7
        if number >= 7:
            yield f"del {rule}"
        yield f"add id {rule} {shapes[number % len(shapes)].format(n=number % 5)}"
    for number in range(7):
        yield f"del {1000 + number}"


def feed(mmb, commands):
    """Runs the commands in one shell, each with its answer."""
    with mmb.shell() as shell:
        try:
            output, _ = shell.communicate("".join(f"{command}\n" for command in commands), timeout=180)
        finally:
            # Without effect on one that has ended. What remains must not change the policy of the next test.
            shell.kill()
    assert shell.returncode == 0, output
    return output


def change_under_load(site, mmb, seconds, *options):
    """A thousand changes beside an iperf3 run, or as many as a busy machine makes while it runs; and its result."""
    commands = list(changes(CHANGES))
    with site.iperf.start(SERVER4, seconds, *options) as load:
        fed = 0
        while load.running() and fed < len(commands):
            feed(mmb, commands[fed:fed + 50])
            fed += 50
        assert fed >= 100
        load.wait(30)
        result = report(load.output())
    mmb.wait_until_settled()
    if fed >= len(commands):
        assert mmb.ask("list")["rules"] == []
    # Packets that queues dropped under load are not lost because of a change; a drop by a rule would be.
    assert set(mmb.drops()) <= {"tx-full"}
    return result


@pytest.mark.alone
def test_a_thousand_changes_under_full_load(site, mmb):
    baseline = site.iperf.measure(SERVER4, 2)
    result = change_under_load(site, mmb, 8)
    assert result["sum_received"]["bits_per_second"] > baseline["sum_received"]["bits_per_second"] / 5


def test_a_thousand_changes_make_tcp_send_nothing_again(site, mmb):
    """At a rate that all queues can take; packets that a queue on the path dropped and counted are excepted."""
    lost, again = site.lost(mmb), site.sent_again()
    result = change_under_load(site, mmb, 4, "-b", "100M")
    assert result["sum_received"]["bits_per_second"] > 10e6
    # On a busy machine, the replies to a few probes are still in flight at the end.
    assert site.sent_again() - again <= site.lost(mmb) - lost + 5


def test_a_thousand_changes_lose_no_packet_of_a_steady_stream(site, mmb):
    with NumberedStream(site, mmb) as stream:
        # The number of packets during a thousand changes depends on the machine.
        for _ in range(20):
            feed(mmb, changes(CHANGES))
            if stream.sent > 500:
                break
    assert stream.sent > 500
    stream.check()
    assert set(mmb.drops()) <= {"tx-full"}


def test_every_packet_sees_the_old_policy_or_the_new_one(site, mmb):
    """Two policies that mark packets in two fields at once: no packet has one mark of each."""
    paths = []
    for number in (1, 2):
        path = site.folder / f"marks{number}.mmb"
        path.write_text(f"add udp-dport 9999 mod ip-dscp {number}\nadd udp-dport 9999 mod ip-ttl {number}\n")
        paths.append(path)
    mmb("apply", paths[0])
    marks = set()
    with site.server_wire() as wire, NumberedStream(site, mmb) as stream:
        for round_ in range(60):
            mmb("apply", paths[round_ % 2])
            marks |= {(f[15] >> 2, f[22]) for f in wire.drain() if f[12:14] == b"\x08\x00" and f[36:38] == b"\x27\x0f"}
    stream.check()
    assert marks == {(1, 1), (2, 2)}


def test_a_port_can_be_closed_and_opened_under_a_transfer(site, mmb):
    mmb("add id 5 udp-dport 1 drop")
    done = []
    url = f"http://{SERVER4}/big"
    transfer = threading.Thread(target=lambda: done.append(fetch(site, url, rate="10M")))
    transfer.start()
    try:
        for _ in range(20):
            mmb("add id 9 tcp-dport 81 drop")
            mmb("del 9")
    finally:
        transfer.join(40)
    assert done and done[0][1] == site.nginx.digest("big")


def test_counters_of_rules_that_stay_go_on(site, mmb):
    mmb.apply(site.folder, "add in lan ip-proto tcp tcp-dport 80 mod ip-ttl 63", "add udp-dport 1 drop")
    fetch(site, f"http://{SERVER4}/small")
    before = mmb.rule(1)
    assert before["packets"] > 0
    answer = mmb.apply(site.folder, "add in lan ip-proto tcp tcp-dport 80 mod ip-ttl 63", "add udp-dport 2 drop")
    assert mmb.rule(1)["packets"] >= before["packets"]
    assert [rule["rule"] for rule in answer["added"]] == ["add udp-dport 2 drop"]
    assert [rule["rule"] for rule in answer["removed"]] == ["add udp-dport 1 drop"]


def test_a_transfer_goes_on_with_fifty_thousand_rules(site, mmb):
    """The rules are put in force, joined by one, and removed, all under a stream of numbered packets."""
    count = 50_000
    rules = [f"add ip-saddr 192.0.{n >> 8}.{n & 255} tcp-dport {n + 1} drop" for n in range(count)]
    with NumberedStream(site, mmb) as stream:
        mmb.apply(site.folder, *rules)
        mmb("add udp-dport 1 drop")
        assert len(mmb.ask("list")["rules"]) == count + 1
        mmb("del", count // 2)
        mmb("flush")
    stream.check()


def test_rules_are_put_in_force_one_by_one(site, mmb):
    rules = [f"add ip-saddr 192.0.{n >> 8}.{n & 255} tcp-dport {n + 1} drop" for n in range(500)]
    feed(mmb, rules)
    assert len(mmb.ask("list")["rules"]) == len(rules)
    assert fetch(site, f"http://{SERVER4}/small")[1] == site.nginx.digest("small")


def test_changes_and_clients_leave_nothing_behind(site, mmb):
    """Memory and open files of the daemon after some thousand changes by a hundred clients."""

    def round_of_changes():
        for _ in range(50):
            feed(mmb, [*(f"add id {number} tcp-dport {number} drop" for number in range(1, 21)), "flush"])

    round_of_changes()
    memory, files = mmb.process.memory(), mmb.process.open_files()
    round_of_changes()
    assert mmb.process.memory() < memory + (8 << 20)
    wait_until(lambda: mmb.process.open_files() <= files, "the files of clients that are gone are closed")
