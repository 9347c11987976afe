"""Rules with `reject`, as programs see them: errors at once in the place of silence."""

import socket

import pytest

from .programs import fetch, scan
from .routed import INSIDE4, OUTSIDE4, SOURCE
from .sockets import closing, opened, listener, refused, talk
from .topology import CLIENT4, CLIENT6, SERVER4, SERVER6

ADDRESSES = pytest.mark.parametrize("address", [SERVER4, SERVER6], ids=["v4", "v6"])
CURL_REFUSED, CURL_TIMEOUT = 7, 28


def unreached(site, address, *options):
    """What ping says of an address that does not answer."""
    done = site.client.run("ping", "-n", "-c", "2", "-i", "0.2", "-W", "2", *options, address, check=False)
    assert done.returncode == 1, done.stdout
    return done.stdout


def datagram_error(site, address, port=7777):
    """The error that a connected UDP socket gets for a datagram; None without one."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with closing(site.client.socket(family, socket.SOCK_DGRAM)) as (sender,):
        sender.settimeout(5)
        sender.connect((address, port))
        sender.send(b"anybody there?")
        try:
            sender.recv(1)
        except OSError as error:
            return type(error).__name__
    return None


def answers(mmb):
    """The answers that mmb has made so far."""
    return mmb.ask("show errors").get("made", {}).get("reject", 0)


@ADDRESSES
def test_curl_is_refused_at_once(site, mmb, address):
    url = f"http://[{address}]/small" if ":" in address else f"http://{address}/small"
    assert fetch(site, url)[0] == 0
    mmb.apply(site.folder, "add in lan tcp-dport 80 reject")
    before = answers(mmb)
    status, _ = fetch(site, url, check=False)
    assert status == CURL_REFUSED
    assert mmb.drops() == {"rule-reject": mmb.rule(1)["dropped_packets"]}
    assert answers(mmb) - before == mmb.rule(1)["dropped_packets"]
    mmb.apply(site.folder, "add in lan tcp-dport 80 drop")
    assert fetch(site, url, timeout=1, check=False)[0] == CURL_TIMEOUT


@ADDRESSES
def test_a_socket_of_udp_gets_the_error(site, mmb, address):
    mmb.apply(site.folder, "add in lan udp-dport 7777 reject")
    assert datagram_error(site, address) == "ConnectionRefusedError"


def test_ping_tells_the_code(site, mmb):
    for answer, said, said6 in (
        ("", "Destination Port Unreachable", "Port unreachable"),
        ("icmp host-unreachable", "Destination Host Unreachable", "No route"),
        ("icmp admin-prohibited", "Packet filtered", "Administratively prohibited"),
        ("icmp6 addr-unreachable", "Destination Host Unreachable", "Address unreachable"),
    ):
        echo = "add in lan {} echo-request reject " + answer
        mmb.apply(site.folder, echo.format("icmp-type"), echo.format("icmp6-type"))
        shown = unreached(site, SERVER4)
        # The error comes from the address that was pinged.
        assert f"From {SERVER4}" in shown and said in shown
        shown = unreached(site, SERVER6)
        assert f"From {SERVER6}" in shown and said6 in shown


def test_a_scan_sees_closed_ports(site, mmb):
    mmb.apply(site.folder, "add in lan tcp-dport 80 reject tcp-rst", "add in lan tcp-dport 81 drop")
    assert scan(site, SERVER4, "80-81,8080") == {80: "closed", 81: "filtered", 8080: "open"}


def test_traceroute_shows_that_it_is_prohibited(site, mmb):
    mmb.apply(site.folder, "add in lan ip-proto udp reject icmp admin-prohibited")
    shown = site.client.run("traceroute", "-n", "-q", "1", "-w", "2", "-m", "4", SERVER4, check=False).stdout
    assert "!X" in shown, shown


@ADDRESSES
def test_a_connection_that_is_open_is_reset(site, mmb, address):
    """Also one whose packets the kernel forwarded by itself up to now: rules and connections keep what is rejected with mmb."""
    client = CLIENT6 if ":" in address else CLIENT4
    for rule in ("add in lan tcp-dport 9090 reject", "add in lan tcp-dport 9090 reject icmp admin-prohibited"):
        mmb.apply(site.folder, "add-stateful tcp-dport 9090 accept")
        before = answers(mmb)
        with closing(listener(site.server, address, 9090)) as (listening,):
            near, far, _ = opened(site.client, client, (address, 9090), listening)
            with closing(near, far):
                for _ in range(200):
                    talk(near, far)
                mmb.apply(site.folder, "add-stateful tcp-dport 9090 accept", "add prio 1 " + rule.removeprefix("add "))
                near.settimeout(2)
                # A RST ends it; an ICMP error is a soft one while it is open (RFC 5461), and mmb answers each segment that is sent again.
                with pytest.raises(ConnectionResetError if rule.endswith("reject") else TimeoutError):
                    near.sendall(b"one more")
                    near.recv(1)
        made = answers(mmb) - before
        rejected = next(rule for rule in mmb.ask("list")["rules"] if "reject" in rule["rule"])["dropped_packets"]
        # RSTs of the hosts themselves are not answered.
        assert 0 < made <= rejected


def test_what_a_client_behind_nat_sent_is_quoted(of_mmb):
    """Its kernel finds the socket of a datagram by the quoted packet: the one before translation."""
    of_mmb.tested.policy([
        *SOURCE,
        "add prio 1 in lan udp-dport 7777 reject",
        "add prio 1 in lan tcp-dport 7777 reject",
    ])
    host, target = of_mmb.client, (OUTSIDE4[0], 7777)
    with closing(host.socket(socket.AF_INET, socket.SOCK_DGRAM)) as (sender,):
        sender.settimeout(5)
        sender.connect(target)
        sender.send(b"anybody there?")
        with pytest.raises(ConnectionRefusedError):
            sender.recv(1)
    assert refused(host, INSIDE4[0], target, timeout=5) == "ConnectionRefusedError"
