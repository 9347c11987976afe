"""Filters of the kernel at the egress of a port: what they drop is lost alone. The kernel does not tell it from a full queue."""

import socket

import pytest

from lab.process import wait_until

from .topology import SERVER4

COUNT = 400
FILTERED, PASSED = 6666, 7777
NFT = f"""table netdev t {{
    chain e {{
        type filter hook egress device "vr" priority 0
        udp dport {FILTERED} drop
    }}
}}"""


@pytest.fixture
def nft(site):
    if site.backend != "af_packet":
        pytest.skip("AF_XDP sends behind the hooks of the kernel")
    done = site.middle.run("nft", NFT, check=False)
    if done.returncode != 0:
        pytest.skip(f"the kernel has no egress chains: {done.stderr.strip()}")
    yield
    site.middle.run("nft", "delete table netdev t")


def send_both(site):
    """Datagrams to two ports in turn; returns those that arrive at the second one."""
    with site.server.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver, site.client.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        receiver.bind((SERVER4, PASSED))
        receiver.settimeout(5)
        for number in range(COUNT):
            for port in (FILTERED, PASSED):
                sender.sendto(number.to_bytes(2, "big"), (SERVER4, port))
        return [int.from_bytes(receiver.recv(2), "big") for _ in range(COUNT)]


def test_a_frame_that_a_filter_drops_takes_no_other_along(site, mmb, nft):
    mmb.apply(site.folder, "set offload off")
    before = mmb.drops().get("tx-full", 0)
    # The first ones wait until the client knows the address of the server, and may arrive later.
    assert sorted(send_both(site)) == list(range(COUNT))
    wait_until(lambda: mmb.drops().get("tx-full", 0) == before + COUNT, "all are counted")
    assert set(mmb.drops()) == {"tx-full"}
