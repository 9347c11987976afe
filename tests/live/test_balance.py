"""Load balancing: one outside address represents three servers inside, each with real connections."""

import collections
import select

import pytest

from . import sockets
from .programs import fetch
from .routed import INSIDE4, INSIDE6, NAT4, NAT6, OUTSIDE4, OUTSIDE6
from .sockets import closing, listener, talk, tcp, udp

SERVERS = INSIDE4[:3]
CLIENTS = OUTSIDE4
SET = f"{{{', '.join(SERVERS)}}}"
NFT = {
    "rr": "numgen inc mod 3",
    "hash": "jhash ip saddr . tcp sport mod 3 seed 0x6d6d62",
}


def spread(servers, chosen=NFT["rr"]):
    """The expression of nftables for one of three servers."""
    pool = ", ".join(f"{n} : {server}" for n, server in enumerate(servers))
    return f"{chosen} map {{ {pool} }}"


def balance(nat, method):
    """TCP port 8000 of the outside address, distributed over the servers. The reference has no least-connections method."""
    chosen = NFT.get(method, "numgen random mod 3")
    nat.tested.policy(
        [f"add-stateful in wan ip-daddr {NAT4} tcp-dport 8000 lb ip-daddr {SET} {method}"],
        [f"before: iif vr ip daddr {NAT4} tcp dport 8000 dnat to {spread(SERVERS, chosen)}"],
    )


class Farm:
    """The three servers, which accept connections, and the server that got each connection."""

    def __init__(self, nat):
        self.nat = nat
        self.listening = [listener(nat.client, server, 8000) for server in SERVERS]
        self.open = []

    def connect(self, source, sport=0):
        """A connection to the outside address; the number of the server that got it."""
        near = tcp(self.nat.server, source, (NAT4, 8000), sport)
        number, far, seen = accepted(self.listening)
        assert seen == near.getsockname(), "a balancer leaves the client's own address"
        self.open.append((number, near, far))
        return number

    def close(self):
        for _, near, far in self.open:
            near.close()
            far.close()
        for listening in self.listening:
            listening.close()

    def shares(self):
        return collections.Counter(number for number, *_ in self.open)


def accepted(listening):
    """The index of the server that gets the next connection, its end of the connection, and the peer that it sees."""
    ready, _, _ = select.select(listening, [], [], sockets.TIMEOUT)
    assert len(ready) == 1, f"{len(ready)} servers got the connection"
    far, seen = ready[0].accept()
    far.settimeout(sockets.TIMEOUT)
    return listening.index(ready[0]), far, seen[:2]


@pytest.fixture
def farm(nat):
    made = Farm(nat)
    yield made
    made.close()


def test_in_turn_every_server_gets_the_same_share(nat, farm):
    balance(nat, "rr")
    got = [farm.connect(CLIENTS[n % 4]) for n in range(30)]
    assert farm.shares() == {0: 10, 1: 10, 2: 10}
    assert got == got[:3] * 10
    for _, near, far in farm.open:
        talk(near, far)


def test_a_hash_sends_a_connection_to_the_same_server_each_time(nat, farm):
    balance(nat, "hash")
    ports = range(20000, 20060)
    first = [farm.connect(CLIENTS[port % 4], port) for port in ports]
    assert min(farm.shares().values()) >= 5 and len(farm.shares()) == 3
    farm.close()
    # The same ports connect again.
    nat.end_connections()
    farm.__init__(nat)
    nat.tested.reset()
    balance(nat, "hash")
    assert [farm.connect(CLIENTS[port % 4], port) for port in ports] == first


def test_a_consistent_hash_moves_few_connections_when_a_server_goes(of_mmb, farm):
    """Maglev moves the connections of the removed server and few others; nftables' hash moves two of three."""
    balance(of_mmb, "hash")
    ports = range(20000, 20120)
    before = [farm.connect(CLIENTS[port % 4], port) for port in ports]
    farm.close()
    # The same ports connect again.
    of_mmb.end_connections()
    farm.__init__(of_mmb)
    of_mmb.tested.reset()
    of_mmb.tested.policy(
        [f"add-stateful in wan ip-daddr {NAT4} tcp-dport 8000 lb ip-daddr {{{SERVERS[0]}, {SERVERS[2]}}} hash"]
    )
    after = [farm.connect(CLIENTS[port % 4], port) for port in ports]
    moved = sum(1 for was, now in zip(before, after) if was != 1 and was != now)
    assert 1 not in after and moved <= 12


def test_the_least_loaded_server_gets_the_next_connection(of_mmb, farm):
    balance(of_mmb, "least")
    for _ in range(12):
        farm.connect(CLIENTS[0])
    assert farm.shares() == {0: 4, 1: 4, 2: 4}
    for number, near, far in farm.open:
        if number == 1:
            near.close()
            far.close()
    daemon = of_mmb.tested.daemon
    daemon("conn kill ip-daddr " + SERVERS[1])
    farm.open = [each for each in farm.open if each[0] != 1]
    assert [farm.connect(CLIENTS[0]) for _ in range(4)] == [1] * 4


def test_a_connection_stays_with_its_server(nat, farm):
    """A connection keeps its server, also when the set changes and after the server left the set: a server is drained, not cut
    off."""
    balance(nat, "rr")
    for n in range(9):
        farm.connect(CLIENTS[n % 4])
    for _ in range(2):
        for number, near, far in farm.open:
            talk(near, far, b"server %d" % number)
        nat.tested.policy(
            [f"add-stateful in wan ip-daddr {NAT4} tcp-dport 8000 lb ip-daddr {{{SERVERS[0]}, {SERVERS[1]}}} rr"],
            [f"before: iif vr ip daddr {NAT4} tcp dport 8000 dnat to {SERVERS[0]}"],
        )
    assert farm.connect(CLIENTS[0]) != 2


def test_udp_is_balanced(nat):
    nat.tested.policy(
        [f"add-stateful in wan ip-daddr {NAT4} udp-dport 5300 lb ip-daddr {SET} rr"],
        [f"before: iif vr ip daddr {NAT4} udp dport 5300 dnat to {spread(SERVERS)}"],
    )
    with closing(*(udp(nat.client, server, 5300) for server in SERVERS)) as servers:
        counts = collections.Counter()
        for n in range(12):
            with closing(udp(nat.server, CLIENTS[n % 4])) as (near,):
                for _ in range(2):
                    near.sendto(b"who answers?", (NAT4, 5300))
                    (server,), _, _ = select.select(servers, [], [], sockets.TIMEOUT)
                    server.sendto(b"me", server.recvfrom(100)[1])
                    assert near.recvfrom(100) == (b"me", (NAT4, 5300))
                    counts[servers.index(server)] += 1
    assert counts == {0: 8, 1: 8, 2: 8}


def test_ipv6_servers_are_balanced(nat):
    servers = INSIDE6[:3]
    nat.tested.policy(
        [f"add-stateful in wan ip6-daddr {NAT6} tcp-dport 8000 lb ip6-daddr {{{', '.join(servers)}}} rr"],
        [f"before: iif vr ip6 daddr {NAT6} tcp dport 8000 dnat ip6 to {spread(servers)}"],
    )
    with closing(*(listener(nat.client, server, 8000) for server in servers)) as listening:
        got = collections.Counter()
        for _ in range(6):
            with closing(tcp(nat.server, OUTSIDE6[0], (NAT6, 8000))):
                number, far, _ = accepted(listening)
                far.close()
                got[number] += 1
    assert got == {0: 2, 1: 2, 2: 2}


def test_web_pages_come_from_all_servers(nat):
    """nginx outside, on the addresses of three servers: curl inside requests one address."""
    three = OUTSIDE4[:3]
    nat.tested.policy(
        [f"add-stateful in lan ip-daddr 203.0.113.80 tcp-dport 80 lb ip-daddr {{{', '.join(three)}}} rr"],
        [f"before: iif vl ip daddr 203.0.113.80 tcp dport 80 dnat to {spread(three)}"],
    )
    for name in ("small", "big") * 3:
        assert fetch(nat, f"http://203.0.113.80/{name}", source=INSIDE4[0])[1] == nat.nginx.digest(name)


def weigh(nat, weights, method="rr"):
    servers = ", ".join(f"{server} weight {weight}" for server, weight in zip(SERVERS, weights))
    nat.tested.daemon.apply(
        nat.folder, f"add-stateful in wan ip-daddr {NAT4} tcp-dport 8000 lb ip-daddr {{{servers}}} {method}"
    )


@pytest.mark.parametrize("method", ["rr", "least"])
def test_servers_get_connections_by_weight(of_mmb, farm, method):
    weigh(of_mmb, (3, 1, 2), method)
    for n in range(24):
        farm.connect(CLIENTS[n % 4])
    assert farm.shares() == {0: 12, 1: 4, 2: 8}


@pytest.mark.parametrize("method", ["rr", "hash", "least"])
def test_a_server_without_weight_drains(of_mmb, farm, method):
    weigh(of_mmb, (1, 1, 1), method)
    while farm.shares()[1] < 2:
        farm.connect(CLIENTS[0])
    weigh(of_mmb, (1, 0, 1), method)
    for number, near, far in farm.open:
        talk(near, far, b"server %d" % number)
    assert 1 not in {farm.connect(CLIENTS[n % 4]) for n in range(8)}


def test_connections_of_a_dead_server_are_ended(of_mmb, farm):
    """docs/nat.md: the server is taken out, its connections are killed, and their clients learn it from another server's RST."""
    weigh(of_mmb, (1, 1, 1))
    while farm.shares()[1] < 2:
        farm.connect(CLIENTS[0])
    weigh(of_mmb, (1, 0, 1))
    assert "2 connections ended" in of_mmb.tested.daemon(f"conn kill ip-daddr {SERVERS[1]}")
    for number, near, far in farm.open:
        if number == 1:
            near.settimeout(sockets.TIMEOUT)
            near.sendall(b"anybody there?")
            with pytest.raises(ConnectionResetError):
                near.recv(100)
        else:
            talk(near, far)
