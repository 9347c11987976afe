"""The flow cache with real packets: it answers for packets of known flows, a change of the policy holds for the next packet, and counters
are exact; and the memory that tables of very many rules have."""

import ipaddress

import pytest

from lab.process import wait_until

from .sockets import closing, udp
from .topology import CLIENT4, SERVER4

PACKETS = 3000
# Rules that every packet of the test matches, in several tables: searching them costs more than the cache.
RULES = (
    "add id 1 ip-saddr 10.0.0.0/24 udp-dport 9000-9010 accept",
    "add id 2 ip-daddr 10.0.0.0/28 ip-ttl 1-200 accept",
    "add id 3 udp-sport 7000-7100 udp-dport 9000-9100 accept",
    "add id 4 ip-proto udp ip-dscp < 60 accept",
    *(f"add id {100 + n} ip-saddr 10.{n}.0.0/{16 + n % 9} udp-dport {n + 1}-{n + 900} drop" for n in range(1, 60)),
)


def cache(mmb):
    return mmb.ask("show", "runtime")["flow_cache"]


def packets(mmb, rule):
    return next(line["packets"] for line in mmb.ask("list")["rules"] if line["id"] == rule)


@pytest.fixture
def seen(mmb):
    """A daemon that starts now, whose workers see every packet: packets of tests before say nothing about what its flow cache is worth."""
    mmb.stop()
    mmb.start()
    mmb("set offload off")
    yield mmb
    mmb("set offload auto")
    mmb("set flow-cache auto")


def test_known_flows_are_answered_by_the_cache_and_a_change_holds_at_once(site, seen):
    mmb = seen
    for rule in RULES:
        mmb(rule)
    before = cache(mmb)
    with closing(udp(site.client, CLIENT4, 7001), udp(site.server, SERVER4, 9001)) as (near, far):
        for _ in range(PACKETS):
            near.sendto(b"x", (SERVER4, 9001))
            assert far.recv(10) == b"x"
        after = cache(mmb)
        assert after["hits"] - before["hits"] > PACKETS / 2, after
        # Every one of them is counted, whether the cache knew it or not.
        assert [packets(mmb, rule) for rule in (1, 2, 3, 4)] == [PACKETS] * 4
        # What lines say of the policy before holds no more.
        for _ in range(20):
            mmb("add id 50 prio 1 udp-dport 9001 drop")
            near.sendto(b"dropped", (SERVER4, 9001))
            wait_until(lambda: packets(mmb, 50) == 1, "the packet is counted")
            mmb("del 50")
            near.sendto(b"passes", (SERVER4, 9001))
            assert far.recv(10) == b"passes"
        mmb("set flow-cache off")
        before = cache(mmb)
        for _ in range(100):
            near.sendto(b"x", (SERVER4, 9001))
            assert far.recv(10) == b"x"
        after = cache(mmb)
        assert after["hits"] == before["hits"]
        assert after["bypassed"]["off"] >= before["bypassed"].get("off", 0) + 100


def test_show_tables_tells_the_memory_of_very_many_rules(site, mmb, tmp_path):
    first = ipaddress.ip_address("11.0.0.0")
    mmb.apply(tmp_path, *(f"add ip-saddr {first + 5 * n} drop" for n in range(100_000)))
    memory = mmb.ask("show", "tables")["memory"]
    # Of 100,000 entries the buckets alone take more than 2 MB, the counters of a worker 3.
    assert memory["bytes"] > 5 << 20
    assert 0 < memory["huge_bytes"] < memory["bytes"]
    with open("/sys/kernel/mm/transparent_hugepage/enabled") as enabled:
        if "[never]" not in enabled.read():
            assert memory["daemon_huge_bytes"] > 0
    assert "MB of tables, actions and counters" in mmb("show tables")
