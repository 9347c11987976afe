"""Flow offload: how its programs come to interfaces and leave them, and what they need of devices and privileges."""

import contextlib
import time

import pytest

import lab.daemon
from lab.net import veth
from lab.process import wait_until

from . import bpf, topology
from .offloading import PLACES, Offloading, hits, offload, pass_until_offloaded, running
from .programs import without_programs
from .sockets import closing, udp
from .topology import CLIENT4, SERVER4

pytestmark = pytest.mark.usefixtures("namespaces")


@pytest.mark.parametrize("hook", ["tcx", "clsact", "xdp"])
def test_a_killed_mmb_forwards_nothing_and_starts_again(namespaces, tmp_path, hook):
    """Also where the program stays attached after its process has died: at clsact, which is all that kernels before 6.6 have."""
    with Offloading(tmp_path, "xdp" if hook == "xdp" else "tc") as site, contextlib.ExitStack() as filled:
        if hook == "clsact":
            for interface in ("vl", "vr"):
                filled.enter_context(bpf.filled_tcx(site.middle, interface))
        daemon = site.mmb()
        with closing(udp(site.client, CLIENT4, 7001), udp(site.server, SERVER4, 9001)) as (near, far):
            for _ in range(2):
                daemon.start()
                hooks = [port.get("how") for port in offload(daemon)["ports"]]
                if hook == "tcx" and hooks == ["clsact"] * 2:
                    pytest.skip("the kernel has no tcx hooks")
                assert hooks == [hook] * 2

                def passes():
                    for _ in range(100):
                        near.sendto(b"x", (SERVER4, 9001))
                        far.recv(10)

                pass_until_offloaded(daemon, passes, 200)
                daemon.kill()
                daemon.close()
                near.sendto(b"lost", (SERVER4, 9001))
                far.settimeout(0.3)
                with pytest.raises(TimeoutError):
                    far.recv(10)
                far.settimeout(10)


def test_an_mmb_that_ends_leaves_no_program_at_clsact(namespaces, tmp_path):
    with Offloading(tmp_path, "tc") as site, bpf.filled_tcx(site.middle, "vl"):
        daemon = site.mmb().start()
        assert "how" in offload(daemon)["ports"][0]
        filters = ["tc", "filter", "show", "dev", "vl", "ingress"]
        assert "forward_flow" in site.middle.run(*filters).stdout
        daemon.stop()
        assert "forward_flow" not in site.middle.run(*filters).stdout


@pytest.mark.parametrize("place", PLACES)
def test_an_interface_that_is_made_again_is_offloaded_again(namespaces, tmp_path, place):
    with Offloading(tmp_path, place) as site:
        daemon = site.mmb().start()

        def passes():
            with closing(udp(site.client, CLIENT4, 7001), udp(site.server, SERVER4, 9001)) as (near, far):
                for _ in range(20):
                    near.sendto(b"x", (SERVER4, 9001))
                    assert far.recv(10) == b"x"

        pass_until_offloaded(daemon, passes)
        site.middle.ip("link", "del", "vr")
        wait_until(lambda: daemon.port("wan")["link"] == "gone", "it is seen")
        veth(site.middle, "vr", site.server, "eth0")
        site.server.ip("addr", "add", f"{SERVER4}/24", "dev", "eth0")
        site.set_devices()
        wait_until(lambda: daemon.port("wan")["link"] == "up", "it is back")
        # Its MAC address is another one.
        site.client.ip("neigh", "flush", "dev", "eth0")
        pass_until_offloaded(daemon, passes, 10)


def test_without_the_programs_workers_see_every_packet(namespaces, tmp_path):
    """`set offload off` from the start: no program, and everything works."""
    with topology.Site(tmp_path, "af_packet") as site:
        policy = tmp_path / "off.mmb"
        policy.write_text("set offload off\n")
        daemon = site.mmb().start("--config", policy)
        with closing(udp(site.client, CLIENT4, 7001), udp(site.server, SERVER4, 9001)) as (near, far):
            for _ in range(20):
                near.sendto(b"x", (SERVER4, 9001))
                assert far.recv(10) == b"x"
        assert hits(daemon) == 0
        assert not any("how" in port for port in offload(daemon)["ports"])


def test_without_privileges_workers_see_every_packet(namespaces, tmp_path, monkeypatch):
    monkeypatch.setattr(lab.daemon, "BINARY", without_programs(tmp_path))
    with Offloading(tmp_path, "tc") as site:
        daemon = site.mmb().start()
        with closing(udp(site.client, CLIENT4, 7001), udp(site.server, SERVER4, 9001)) as (near, far):
            for _ in range(20):
                near.sendto(b"x", (SERVER4, 9001))
                assert far.recv(10) == b"x"
        assert hits(daemon) == 0
        for port in offload(daemon)["ports"]:
            assert "lacks CAP_BPF or CAP_NET_ADMIN" in port["reason"], port


def test_a_device_that_stops_taking_frames_gets_them_from_the_workers(namespaces, tmp_path):
    """The other end of a veth turns GRO off: its driver takes no redirected frames from then on, and mmb sends them."""
    with running(tmp_path, "xdp") as site:
        daemon = site.daemon
        with closing(udp(site.client, CLIENT4, 7001), udp(site.server, SERVER4, 9001)) as (near, far):

            def pass_some():
                before = hits(daemon)
                for _ in range(200):
                    near.sendto(b"x", (SERVER4, 9001))
                    far.recv(10)
                    time.sleep(0.0005)
                return hits(daemon) - before

            wait_until(lambda: pass_some() > 50, "flows are forwarded")
            site.server.run("ethtool", "-K", "eth0", "gro", "off")
            # mmb looks at its devices several times a second.
            time.sleep(0.5)
            assert pass_some() == 0
            with closing(udp(site.client, CLIENT4, 7002)) as (other,):
                for _ in range(20):
                    other.sendto(b"x", (SERVER4, 9001))
                    far.recv(10)
            assert offload(daemon)["kept"].get("device", 0) > 0
            site.server.run("ethtool", "-K", "eth0", "gro", "on")
            wait_until(lambda: pass_some() > 50, "flows are forwarded again")


def test_unfinished_checksums_are_finished_by_workers(namespaces, tmp_path):
    """Hosts leave checksums to a veth: no driver can finish them, so that these packets pass by mmb although there is a flow."""
    with running(tmp_path, "xdp") as site:
        daemon = site.daemon
        with closing(udp(site.client, CLIENT4, 7001), udp(site.server, SERVER4, 9001)) as (near, far):

            def passes():
                for _ in range(100):
                    near.sendto(b"x" * 99, (SERVER4, 9001))
                    assert far.recv(100) == b"x" * 99

            pass_until_offloaded(daemon, passes, 100)
            site.client.run("ethtool", "-K", "eth0", "tx", "on")
            before = hits(daemon)
            passes()
            assert offload(daemon)["flows"] > 0
            assert hits(daemon) == before
