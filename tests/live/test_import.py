"""Imported policies pass the packets that the kernel passes with the same rules, with the same addresses."""

import pathlib
import subprocess
import json

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6

from lab import daemon

from . import forwarding

RULESETS = pathlib.Path(__file__).resolve().parents[1] / "import" / "rulesets"
ABROAD, PUBLIC = "198.51.100.7", "203.0.113.1"


def tcp(source, destination, sport, dport, flags, seq=1000, ack=0, **more):
    return IP(src=source, dst=destination) / TCP(sport=sport, dport=dport, flags=flags, seq=seq, ack=ack, **more)


def udp(source, destination, sport, dport):
    return IP(src=source, dst=destination) / UDP(sport=sport, dport=dport) / b"some data"


def imported(form, rules, *options):
    run = subprocess.run([daemon.BINARY, "import", form, "--json", *options, "-"], input=rules, capture_output=True, text=True)
    assert run.stdout, run.stderr
    return json.loads(run.stdout)


def compare(tmp_path, gate, policy, steps):
    expected = gate.pass_on(steps)
    got = forwarding.replayed(tmp_path, policy, gate.ports, steps)
    wrong = [f"{what}: {packet.summary()}: the kernel {one}, mmb {two}"
             for (_, packet, what), one, two in zip(steps, expected, got) if one != two]
    assert not wrong, "\n".join([*wrong, policy])
    return dict(zip((what for *_, what in steps), expected))


def test_docker(tmp_path):
    """Published ports, masquerading and isolation, after the structure of Docker's rules."""
    rules = (RULESETS / "docker.save").read_text()
    policy = imported("iptables", rules, "--address", f"eth0={PUBLIC}/24", "--address", "docker0=172.17.0.1/16")
    assert not policy["left_out"]
    out = lambda packet, what: ("docker0", packet, what)
    in_ = lambda packet, what: ("eth0", packet, what)
    steps = [
        in_(tcp(ABROAD, PUBLIC, 5000, 8080, "S"), "the published port"),
        out(tcp("172.17.0.2", ABROAD, 80, 5000, "SA", 7000, 1001), "its answer"),
        in_(tcp(ABROAD, PUBLIC, 5000, 8080, "A", 1001, 7001), "and is open"),
        in_(udp(ABROAD, PUBLIC, 5001, 5353), "the published port of UDP"),
        out(udp("172.17.0.3", ABROAD, 53, 5001), "its answer by UDP"),
        in_(tcp(ABROAD, PUBLIC, 5002, 8081, "S"), "a port that is not published"),
        in_(tcp(ABROAD, "172.17.0.2", 5003, 80, "S"), "the container itself"),
        in_(tcp(ABROAD, "172.17.0.2", 5003, 81, "S"), "another port of the container itself"),
        in_(tcp("192.0.2.66", PUBLIC, 5004, 8080, "S"), "from an address that DOCKER-USER drops"),
        out(tcp("172.17.0.2", ABROAD, 6000, 443, "S"), "a container asks"),
        in_(tcp(ABROAD, PUBLIC, 443, 6000, "SA", 9000, 1001), "is answered"),
        out(tcp("172.17.0.2", ABROAD, 6000, 443, "A", 1001, 9001), "goes on"),
        in_(tcp(ABROAD, PUBLIC, 444, 6000, "SA", 9000, 1001), "from another port"),
        in_(tcp(ABROAD, PUBLIC, 443, 6001, "A", 9000, 1001), "to another port"),
        out(udp("172.17.0.2", ABROAD, 6002, 53), "a container asks by UDP"),
        in_(IP(src="198.51.100.1", dst=PUBLIC) / ICMP(type=3, code=1) / udp(PUBLIC, ABROAD, 6002, 53), "an error about it"),
        out(IP(src="172.17.0.2", dst=ABROAD) / ICMP(type=8, id=77) / b"ping", "a container pings"),
        in_(IP(src=ABROAD, dst=PUBLIC) / ICMP(type=0, id=77) / b"ping", "an answer to the ping"),
        in_(IP(src=ABROAD, dst=PUBLIC) / ICMP(type=8, id=77) / b"ping", "a ping to the host"),
        in_(IP(src=ABROAD, dst="172.17.0.2") / ICMP(type=8, id=77) / b"ping", "a ping to a container"),
        in_(tcp(ABROAD, PUBLIC, 5000, 8080, "R", 1001), "the end of a connection"),
    ]
    with forwarding.Gate(docker0=(["172.17.0.1/16"], ["172.17.0.0/16"]), eth0=([f"{PUBLIC}/24"], ["0.0.0.0/0"])) as gate:
        gate.near.run("iptables-restore", input=rules)
        passed = compare(tmp_path, gate, policy["policy"], steps)
    assert passed["the published port"][:4] == (ABROAD, "172.17.0.2", 5000, 80)


def gateway():
    """A gate between a network and the world."""
    return forwarding.Gate(lan=(["10.0.0.1/24", "fd00::1/128"], ["10.0.0.0/24", "fd00::/64"]),
                           wan=([f"{PUBLIC}/24", "2001:db8::1/128"], ["0.0.0.0/0", "::/0"]))


GATEWAY = ["--address", f"wan={PUBLIC}/24", "--address", "lan=10.0.0.1/24", "--address", "wan=2001:db8::1/64",
           "--address", "lan=fd00::1/64"]


def out(packet, what):
    return "lan", packet, what


def in_(packet, what):
    return "wan", packet, what


# What a host in the network and the world do, whatever the rules are.
CONVERSATIONS = [
    out(tcp("10.0.0.2", ABROAD, 6000, 443, "S", options=[("MSS", 1460)]), "a host asks"),
    in_(tcp(ABROAD, PUBLIC, 443, 6000, "SA", 9000, 1001), "is answered"),
    out(tcp("10.0.0.2", ABROAD, 6000, 443, "A", 1001, 9001), "goes on"),
    in_(tcp(ABROAD, PUBLIC, 444, 6000, "SA", 9000, 1001), "another port answers"),
    in_(tcp(ABROAD, PUBLIC, 443, 6001, "SA", 9000, 1001), "another port is answered"),
    out(udp("10.0.0.2", ABROAD, 6002, 5060), "a host asks by UDP"),
    in_(udp(ABROAD, PUBLIC, 5060, 6002), "is answered by UDP"),
    in_(IP(src="198.51.100.1", dst=PUBLIC) / ICMP(type=3, code=1) / udp(PUBLIC, ABROAD, 6002, 5060), "an error about it"),
    in_(IP(src="198.51.100.1", dst=PUBLIC) / ICMP(type=3, code=1) / udp(PUBLIC, ABROAD, 6009, 5060), "an error about nothing"),
    out(IP(src="10.0.0.2", dst=ABROAD) / ICMP(type=8, id=77) / b"ping", "a host pings"),
    in_(IP(src=ABROAD, dst=PUBLIC) / ICMP(type=0, id=77) / b"ping", "the ping is answered"),
    in_(IP(src=ABROAD, dst=PUBLIC) / ICMP(type=8, id=78) / b"ping", "the gate is pinged"),
    in_(IP(src=ABROAD, dst="10.0.0.2") / ICMP(type=8, id=79) / b"ping", "a host is pinged"),
    in_(tcp(ABROAD, PUBLIC, 5000, 80, "S"), "port 80 of the gate"),
    out(tcp("10.0.0.2", ABROAD, 80, 5000, "SA", 7000, 1001), "its answer"),
    in_(tcp(ABROAD, PUBLIC, 5000, 80, "A", 1001, 7001), "and is open"),
    in_(tcp(ABROAD, PUBLIC, 5001, 8080, "S"), "port 8080 of the gate"),
    out(tcp("10.0.0.2", ABROAD, 80, 5001, "SA", 7000, 1001), "the answer of 8080"),
    in_(tcp(ABROAD, PUBLIC, 5001, 8080, "A", 1001, 7001), "8080 is open"),
    in_(tcp(ABROAD, PUBLIC, 5002, 22, "S"), "the gate itself"),
    in_(tcp(ABROAD, "10.0.0.2", 5003, 80, "S"), "a host's port 80"),
    in_(tcp(ABROAD, "10.0.0.2", 5013, 8080, "S"), "a host's port 8080"),
    in_(tcp("192.0.2.66", PUBLIC, 5004, 8080, "S"), "port 8080 from a bad address"),
    in_(udp("192.0.2.9", "10.0.0.2", 5005, 60005), "a port of a range"),
    in_(udp("192.0.2.9", "10.0.0.2", 5005, 60011), "a port behind the range"),
    out(tcp("10.0.0.3", ABROAD, 6003, 25, "S"), "a host sends mail"),
    out(tcp("10.0.0.3", ABROAD, 6004, 80, "S", options=[("MSS", 1300)]), "a host with a small MSS"),
    in_(tcp(ABROAD, "10.0.0.3", 80, 6004, "R", 1), "a reset of nothing"),
]

# mmb drops answers to nothing where a rule would translate them; the kernel passes them with the inside address.
def conversations(*closed):
    """Without the answers of ports that are closed."""
    return [step for step in CONVERSATIONS if step[2] not in closed]


SIX = [
    out(IPv6(src="fd00::2", dst="2001:db8:9::7") / TCP(sport=6000, dport=443, flags="S", seq=1000), "a host asks by IPv6"),
    in_(IPv6(src="2001:db8:9::7", dst="fd00::2") / TCP(sport=443, dport=6000, flags="SA", seq=9000, ack=1001), "is answered by IPv6"),
    in_(IPv6(src="2001:db8:9::7", dst="fd00::2") / TCP(sport=443, dport=6001, flags="S", seq=9000), "asks by IPv6"),
    out(IPv6(src="fd00::2", dst="2002:a00::1") / UDP(sport=6000, dport=53) / b"data", "to an address that does not exist"),
    out(IPv6(src="fd00::2", dst="2001:db8:9::7") / UDP(sport=6000, dport=53) / b"data", "asks by UDP over IPv6"),
]


def test_ufw(tmp_path):
    """UFW's chains with forwarded services, its nat rules, and changes of packets."""
    rules = (RULESETS / "ufw.save").read_text()
    policy = imported("iptables", rules, *GATEWAY)
    assert not policy["left_out"]
    with gateway() as gate:
        gate.near.run("iptables-restore", input=rules)
        passed = compare(tmp_path, gate, policy["policy"], conversations("the answer of 8080"))
    assert passed["port 80 of the gate"] and not passed["port 8080 of the gate"] and passed["a host asks"][4] == 1400


def test_firewalld(tmp_path):
    """firewalld's zones, with masquerading and a forwarded port."""
    with gateway() as gate:
        gate.near.run("nft", "-f", str(RULESETS / "firewalld.nft"))
        policy = imported("nftables", gate.near.run("nft", "-j", "list", "ruleset").stdout, *GATEWAY)
        assert not policy["left_out"]
        passed = compare(tmp_path, gate, policy["policy"], conversations("its answer") + SIX)
    assert passed["port 8080 of the gate"] and not passed["port 80 of the gate"] and passed["asks by UDP over IPv6"]


SETS = """
create bad hash:net family inet
add bad 192.0.2.0/24
add bad 192.0.2.9 nomatch
create web hash:ip,port family inet
add web 10.0.0.2,tcp:80
add web 10.0.0.2,udp:60000-60010
create ports bitmap:port range 0-65535
add ports 443
add ports 5060
create banned hash:net family inet timeout 3000
""" + "".join(f"add banned 198.18.{n}.0/24 timeout {2000 + n}\n" for n in range(40)) + "add banned 192.0.2.77 timeout 0\n"

WITH_SETS = """*raw
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A PREROUTING -m set --match-set bad src -j DROP
-A PREROUTING -m set --match-set banned src -j DROP
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
-A FORWARD -m conntrack --ctstate ESTABLISHED -m conntrack --ctdir REPLY -j ACCEPT
-A FORWARD -i wan -m set --match-set web dst,dst -j ACCEPT
-A FORWARD -i lan -p tcp -m set ! --match-set ports dst -j REJECT --reject-with tcp-reset
-A FORWARD -i lan -m set --match-set ports dst -j ACCEPT
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
-A PREROUTING -i wan -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.0.0.2:80
-A POSTROUTING -s 10.0.0.0/24 -o wan -j SNAT --to-source 203.0.113.1
COMMIT
"""


def test_sets(tmp_path):
    """Sets of ipset, in tables before and behind the translation."""
    (tmp_path / "sets").write_text(SETS)
    with gateway() as gate:
        gate.near.run("ipset", "restore", input=SETS)
        gate.near.run("iptables-restore", input=WITH_SETS)
        saved = gate.near.run("iptables-save").stdout
        (tmp_path / "saved").write_text(gate.near.run("ipset", "save").stdout)
        policy = imported("iptables", saved, *GATEWAY, "--ipset", tmp_path / "saved")
        assert not policy["left_out"]
        assert "set banned {192.0.2.77, 198.18.0.0/24 timeout " in policy["policy"] and "@banned drop" in policy["policy"]
        banned = [in_(udp(source, "10.0.0.2", 5006, 60005), f"from {source}") for source in ("198.18.39.7", "198.18.40.7", "192.0.2.77")]
        passed = compare(tmp_path, gate, policy["policy"], conversations("its answer") + banned)
    assert passed["from 198.18.40.7"] and not passed["from 198.18.39.7"] and not passed["from 192.0.2.77"]
    assert passed["a port of a range"] and passed["port 8080 of the gate"] and not passed["port 8080 from a bad address"]


MAPS = """
table ip t {
  set hosts { type ipv4_addr . inet_service; flags interval; elements = { 10.0.0.0/30 . 80-90, 10.0.0.2 . 60000-60010 } }
  map to { type inet_service : ipv4_addr; elements = { 80 : 10.0.0.2, 81 : 10.0.0.3 } }
  chain inside {
    tcp dport 25 return
    tcp flags & (fin|syn|rst|ack) == syn tcp option maxseg size set 1400
    accept
  }
  chain outside {
    ip saddr . udp dport vmap { 192.0.2.9 . 60005 : accept, 192.0.2.66 . 1-65535 : drop }
    ip daddr . tcp dport @hosts ct state new accept
  }
  chain forward {
    type filter hook forward priority filter; policy drop;
    ct state vmap { established : accept, related : accept, invalid : drop }
    iifname vmap { "lan" : jump inside, "wan" : goto outside }
  }
  chain prerouting { type nat hook prerouting priority dstnat; policy accept; iifname "wan" dnat to tcp dport map @to; }
  chain postrouting {
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr 10.0.0.0/24 oifname "wan" snat to 203.0.113.1
  }
  chain mangle { type filter hook prerouting priority mangle; policy accept; udp dport 5060 ip dscp set ef; }
}
"""


def test_maps(tmp_path):
    """Verdict maps, maps of destinations, concatenations and changes of packets in nftables."""
    with gateway() as gate:
        gate.near.run("nft", "-f", "-", input=MAPS)
        policy = imported("nftables", gate.near.run("nft", "-j", "list", "ruleset").stdout, *GATEWAY)
        assert not policy["left_out"]
        passed = compare(tmp_path, gate, policy["policy"], CONVERSATIONS)
    assert passed["port 80 of the gate"] and passed["a port of a range"] and not passed["a host sends mail"]
    assert passed["a host asks"][4] == 1400


REJECTS = """
table inet t {
  chain forward {
    type filter hook forward priority filter; policy accept;
    tcp dport 81 reject with tcp reset
    ip daddr 198.51.100.7 tcp dport 82 reject with icmp admin-prohibited
    ip daddr 198.51.100.7 udp dport 83 reject with icmp host-unreachable
    udp dport 84 reject
    udp dport 85 reject with icmpx no-route
    udp dport 86 reject with icmpx admin-prohibited
    udp dport 87 reject with icmpx host-unreachable
    ip6 daddr 2001:db8:9::7 tcp dport 88 reject with icmpv6 addr-unreachable
    tcp dport 89 reject with icmpx port-unreachable
    tcp dport 90 log prefix "dropped: " drop
  }
}
"""


def test_rejects_are_answered_alike(tmp_path):
    """RSTs and ICMP errors of both families, with their codes."""
    four = lambda layer: IP(src="10.0.0.2", dst=ABROAD) / layer
    six = lambda layer: IPv6(src="fd00::2", dst="2001:db8:9::7") / layer
    of_tcp = lambda port: TCP(sport=7000 + port, dport=port, flags="S", seq=1000)
    of_udp = lambda port: UDP(sport=7000 + port, dport=port) / b"some data"
    layers = [*(of_tcp(port) for port in (81, 82, 88, 89, 90, 91)), *(of_udp(port) for port in range(83, 88))]
    packets = [of(layer) for layer in layers for of in (four, six)]
    packets += [four(TCP(sport=number, dport=81, flags=flags, seq=1000, ack=77)) for number, flags in enumerate(("A", "R", "FA", "SA"), 1)]
    packets.append(four(TCP(sport=9, dport=81, flags="A", seq=1000, ack=77) / b"some data"))
    steps = [out(packet, packet.summary()) for packet in packets]
    with gateway() as gate:
        gate.near.sysctl(net__ipv4__icmp_ratelimit=0, net__ipv6__icmp__ratelimit=0)
        gate.near.run("nft", "-f", "-", input=REJECTS)
        policy = imported("nftables", gate.near.run("nft", "-j", "list", "ruleset").stdout, *GATEWAY)
        assert not policy["left_out"] and 'log "dropped:"' in policy["policy"]
        compare(tmp_path, gate, policy["policy"], steps)
        expected = gate.answer(steps)
    got = forwarding.answers_of_replay(tmp_path, policy["policy"], gate.ports, steps)
    wrong = [f"{what}: the kernel {one}, mmb {two}" for (*_, what), one, two in zip(steps, expected, got) if one != two]
    assert not wrong, "\n".join([*wrong, policy["policy"]])
    assert sum(answer is not None for answer in expected) > 15


RATES_OF_IPTABLES = """*filter
:FORWARD DROP [0:0]
:flood - [0:0]
-A FORWARD -p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j flood
-A FORWARD -p udp -m hashlimit --hashlimit-above 2/hour --hashlimit-burst 2 --hashlimit-mode srcip --hashlimit-srcmask 24 --hashlimit-name u -j DROP
-A FORWARD -p icmp -m limit --limit 1/hour --limit-burst 2 -j ACCEPT
-A FORWARD -p tcp -j ACCEPT
-A FORWARD -p udp -j ACCEPT
-A flood -s 198.51.100.8 -j RETURN
-A flood -m limit --limit 3/hour --limit-burst 3 -j RETURN
-A flood -j DROP
COMMIT
"""

RATES_OF_NFTABLES = """
table inet r {
  set seen { type ipv4_addr; flags dynamic; size 100; }
  limit pings { rate over 1/hour burst 2 packets; }
  chain forward {
    type filter hook forward priority filter; policy accept;
    ip saddr 198.51.100.8 accept
    tcp flags syn limit rate over 3/hour burst 3 packets drop
    meta l4proto udp add @seen { ip saddr & 255.255.255.0 limit rate over 2/hour burst 2 packets } drop
    icmp type echo-request limit name "pings" drop
    udp dport 9999 limit rate 4 kbytes/hour accept
    udp dport 9999 drop
  }
}
"""


@pytest.mark.parametrize("form", ["iptables", "nftables"])
def test_rates(tmp_path, form):
    """What exceeds the rates of a rule set is dropped: so many packets of each kind pass, of all sources or of each network."""
    count = lambda number, *packets: [in_(packet, f"{number}.{serial} {packet.summary()}") for serial, packet in enumerate(packets)]
    syn = lambda source, serial: tcp(source, "10.0.0.2", 5000 + serial, 80, "S")
    steps = [
        *count(1, *(syn(f"198.51.100.{7 + 2 * (serial % 2)}", serial) for serial in range(6))),
        *count(2, *(syn("198.51.100.8", serial) for serial in range(6))),
        *count(3, *(udp(source, "10.0.0.2", 5000, 60000 + serial) for serial in range(4) for source in (ABROAD, "198.51.100.9", "192.0.2.1"))),
        *count(4, *(IP(src=ABROAD, dst="10.0.0.2") / ICMP(type=8, id=serial) / b"ping" for serial in range(4))),
        # Of other networks, which have not used up their own rates; 1,300 bytes each.
        *count(5, *(udp(f"192.168.{serial}.1", "10.0.0.2", 5000, 9999) / bytes(1263) for serial in range(5))),
    ]
    with gateway() as gate:
        if form == "iptables":
            gate.near.run("iptables-restore", input=RATES_OF_IPTABLES)
            policy = imported(form, gate.near.run("iptables-save").stdout, *GATEWAY)
        else:
            gate.near.run("nft", "-f", "-", input=RATES_OF_NFTABLES)
            policy = imported(form, gate.near.run("nft", "-j", "list", "ruleset").stdout, *GATEWAY)
        assert not policy["left_out"], policy
        passed = compare(tmp_path, gate, policy["policy"], steps)
    kinds = [sum(bool(way) for what, way in passed.items() if what.startswith(f"{kind}.")) for kind in range(1, 6)]
    assert kinds == [3, 6, 4, 2, 5 if form == "iptables" else 3], policy["policy"]
