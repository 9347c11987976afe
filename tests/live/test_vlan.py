"""Programs on a VLAN: frames contain no tags on the veth, because the kernel delivers them outside of the frame."""

import pytest
from scapy.layers.l2 import Dot1Q, Ether

from . import vlan
from .conftest import BACKENDS
from .programs import Iperf, Nginx, fetch, ping
from .topology import CLIENT4, CLIENT6, SERVER4, SERVER6


@pytest.mark.parametrize("tagging", [vlan.interfaces, vlan.push_and_pop])
@pytest.mark.parametrize("backend_name", BACKENDS)
def test_two_vlans_are_joined(fresh, backend_name, tagging):
    """The client is on VLAN 10 and the server on VLAN 20; without the rules that join them, there is no reply."""
    site = fresh(backend_name)
    tagging(site, site.client, [f"{CLIENT4}/24", f"{CLIENT6}/64"], 10)
    tagging(site, site.server, [f"{SERVER4}/24", f"{SERVER6}/64"], 20)
    mmb = fresh.daemon(site)
    nginx, iperf = Nginx(site), Iperf(site)
    mmb.apply(
        site.folder,
        "add in lan eth-type 0-0xffff vlan-id 10 mod vlan-id 20",
        "add in wan eth-type 0-0xffff vlan-id 20 mod vlan-id 10",
        "add ! vlan-id drop",
    )
    with site.server_wire() as wire:
        assert ping(site, SERVER4, count=3) == 3
        tags = {Ether(frame)[Dot1Q].vlan for frame in wire.drain() if Ether(frame).haslayer(Dot1Q)}
    assert tags == {20}
    assert ping(site, SERVER6, count=3) == 3
    assert mmb.rule(1)["packets"] >= 6 and mmb.rule(3)["packets"] == 0
    assert fetch(site, f"http://{SERVER4}/big")[1] == nginx.digest("big")
    assert fetch(site, f"http://[{SERVER6}]/big")[1] == nginx.digest("big")
    assert iperf.measure(SERVER4, 1)["sum_received"]["bytes"] > 1e6
    mmb.wait_until_settled()
