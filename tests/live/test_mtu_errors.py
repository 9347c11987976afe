"""A link behind mmb with a smaller MTU: the sender is told, and the transfer goes on."""

import errno
import socket

import pytest

from .conftest import BACKENDS
from .programs import Iperf
from .sockets import closing
from .topology import SERVER4, SERVER6

LARGE, SMALL = 3000, 1500
# Linux: the MTU of a connected socket's path, and never to fragment.
DISCOVER = {
    socket.AF_INET: (socket.IPPROTO_IP, 10, 14),
    socket.AF_INET6: (socket.IPPROTO_IPV6, 23, 24),
}
DO = 2


@pytest.fixture(params=BACKENDS)
def narrow(request, fresh):
    """Both hosts have a large MTU, the port of mmb to the server a small one: TCP's MSS does not tell."""
    site = fresh(request.param)
    for namespace, name in ((site.client, "eth0"), (site.middle, "vl"), (site.server, "eth0")):
        namespace.ip("link", "set", name, "mtu", str(LARGE))
    return site, fresh.daemon(site)


@pytest.mark.parametrize("address", [SERVER4, SERVER6], ids=["v4", "v6"])
def test_tcp_and_udp_find_the_mtu(fresh, narrow, address):
    site, mmb = narrow
    assert Iperf(site).measure(address, 1)["sum_received"]["bytes"] > 1e6
    assert mmb.drops()["mtu-exceeded"] >= mmb.ask("show errors")["made"]["mtu-error"] > 0
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    level, discover, mtu = DISCOVER[family]
    site.client.ip("route", "flush", "cache")
    site.client.ip("-6", "route", "flush", "cache")
    with closing(site.client.socket(family, socket.SOCK_DGRAM)) as (sender,):
        sender.settimeout(5)
        sender.setsockopt(level, discover, DO)
        sender.connect((address, 7))
        header = 48 if family == socket.AF_INET6 else 28
        with pytest.raises(OSError) as told:
            sender.send(bytes(LARGE - header))
            sender.recv(1)
        assert told.value.errno == errno.EMSGSIZE
        assert sender.getsockopt(level, mtu) == SMALL
    mmb.wait_until_settled()


def test_without_errors_it_is_a_black_hole(fresh, narrow):
    site, mmb = narrow
    mmb("set mtu-errors off")
    with closing(site.client.socket(socket.AF_INET, socket.SOCK_DGRAM)) as (sender,):
        level, discover, mtu = DISCOVER[socket.AF_INET]
        sender.setsockopt(level, discover, DO)
        sender.connect((SERVER4, 7))
        sender.settimeout(0.3)
        sender.send(bytes(LARGE - 28))
        with pytest.raises(TimeoutError):
            sender.recv(1)
        assert sender.getsockopt(level, mtu) == LARGE
    assert mmb.drops() == {"mtu-exceeded": 1} and not mmb.ask("show errors").get("made")
    mmb.wait_until_settled()
