"""Imported policies pass the packets that the kernel passes with the same rules, with the same addresses."""

import pathlib
import subprocess
import json

import pytest
from scapy.all import ICMP, IP, TCP, UDP, IPv6

from lab import daemon

from . import forwarding

RULESETS = pathlib.Path(__file__).resolve().parents[1] / "import" / "rulesets"
ABROAD, PUBLIC = "198.51.100.7", "203.0.113.1"


def tcp(source, destination, sport, dport, flags, seq=1000, ack=0, **more):
    return IP(src=source, dst=destination) / TCP(sport=sport, dport=dport, flags=flags, seq=seq, ack=ack, **more)


def udp(source, destination, sport, dport):
    return IP(src=source, dst=destination) / UDP(sport=sport, dport=dport) / b"some data"


def imported(form, path, *options):
    run = subprocess.run([daemon.BINARY, "import", form, "--json", *options, path], capture_output=True, text=True)
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
    policy = imported("iptables", RULESETS / "docker.save", "--address", f"eth0={PUBLIC}/24", "--address",
                      "docker0=172.17.0.1/16")
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
        gate.near.run("iptables-restore", input=(RULESETS / "docker.save").read_text())
        passed = compare(tmp_path, gate, policy["policy"], steps)
    assert passed["the published port"][:4] == (ABROAD, "172.17.0.2", 5000, 80)
