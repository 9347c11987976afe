"""Named sets in replay, check and explain: which packets they match, by Python's ipaddress; files of elements; a policy that holds them."""

import ipaddress
import json
import random
import subprocess

from captures import replay
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether


# With addresses of both ends, so that scapy asks no neighbour for them.
ETHER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")


def networks(rng, count):
    """Networks of both versions in few places, so that they overlap."""
    ip4 = [ipaddress.ip_network((0x0A000000 | rng.getrandbits(16), rng.randrange(25, 33)), strict=False) for _ in range(count)]
    base = int(ipaddress.ip_address("2001:db8::"))
    ip6 = [ipaddress.ip_network((base | rng.getrandbits(12) << 64 | rng.getrandbits(8), rng.choice([60, 64, 120, 128])), strict=False)
           for _ in range(count)]
    return ip4 + ip6


def test_packets_match_the_networks_of_a_file(mmb, tmp_path):
    rng = random.Random(11)
    bad = networks(rng, 300)
    lines = [f"{network}{rng.choice(['', ' # why', ' timeout 1h', ' ; SBL1'])}" for network in bad]
    (tmp_path / "bad.txt").write_text("# networks\n\n" + "\n".join(lines) + "\n")
    policy = f"set bad file {tmp_path}/bad.txt\nadd id 1 ip-saddr @bad drop\nadd id 2 ip6-daddr != @bad drop\n"
    sources = [ipaddress.ip_address(0x0A000000 | rng.getrandbits(16)) for _ in range(300)]
    base = int(ipaddress.ip_address("2001:db8::"))
    targets = [ipaddress.ip_address(base | rng.getrandbits(12) << 64 | rng.getrandbits(8)) for _ in range(300)]
    frames = [bytes(ETHER / IP(src=str(source), dst="192.0.2.1") / UDP(sport=1, dport=2)) for source in sources]
    frames += [bytes(ETHER / IPv6(src="2001:db8::1", dst=str(target)) / TCP()) for target in targets]
    out, summary = replay(mmb, tmp_path, policy, frames)
    member = lambda address: any(address in network for network in bad if network.version == address.version)
    expected = [number for number, source in enumerate(sources) if not member(source)]
    expected += [number for number, target in enumerate(targets, 300) if member(target)]
    assert [number for number, _ in out] == expected
    counts = {rule["id"]: rule["packets"] for rule in summary["rules"]}
    assert counts == {1: sum(map(member, sources)), 2: 300 - sum(map(member, targets))}
    assert min(counts.values()) > 20 and max(counts.values()) < 280


def test_check_tells_what_is_wrong_with_a_set(mmb, tmp_path):
    path = tmp_path / "policy.mmb"

    def refused(text):
        path.write_text(text)
        done = subprocess.run([mmb, "check", path], capture_output=True, text=True)
        assert done.returncode == 1
        return done.stderr

    message = refused("set web {80}\nadd ip-saddr @web drop\n")
    assert "policy.mmb:2:14" in message and "numbers" in message and "              ^^^^" in message
    assert "did you mean `@web`?" in refused("set web {80}\nadd tcp-dport @wbe drop\n")
    (tmp_path / "bad.txt").write_text("10.0.0.0/8\n10.0.0.0/33\n")
    message = refused("set bad file bad.txt\n")
    assert "bad.txt: line 2" in message and "too long" in message
    assert "rule 1 names @web" in refused("set web {80}\nadd tcp-dport @web drop\ndel set web\n")


def test_explain_asks_sets(mmb, tmp_path):
    path = tmp_path / "policy.mmb"
    path.write_text("set bad {10.0.0.0/8, 2001:db8::/32}\nadd id 1 ip-saddr @bad drop\n")

    def explained(*words):
        command = [mmb, "explain", "--json", "--rules", path, *words]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert [rule["id"] for rule in explained("ip-saddr", "10.9.9.9")["rules"]] == [1]
    told = explained("--why-not", "1", "ip-saddr", "11.0.0.1")
    assert told["verdict"] == "passes"
    assert [asked["holds"] for asked in told["why_not"][0]["constraints"]] == [False]
