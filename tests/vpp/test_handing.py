"""VPP with a worker beside its main thread, which receives the client's packets: the worker owns the connections, and changes of
an interface's features in the meantime do not affect the packets that wait for it."""

import os

import pytest

from lab.process import wait_until

from .site import CLIENT, LAN, SERVER, WAN, handed, with_workers

CORES = sorted(os.sched_getaffinity(0))
# Features that change while packets wait: commands that run once before, and those that switch them on and off.
FEATURES = {
    "acl": (
        ["set acl-plugin acl permit src 192.0.2.1/32, permit"],
        f"set acl-plugin interface {LAN} input acl 0",
        f"set acl-plugin interface {LAN} input acl 0 del",
    ),
    "nat44": (["nat44 plugin enable sessions 1024"], f"set interface nat44 in {LAN}", f"set interface nat44 in {LAN} del"),
    "mmb": ([], f"mmb disable {LAN}", f"mmb enable {LAN}"),
}
ROUNDS = 100

pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")


@pytest.fixture
def site(tmp_path):
    with with_workers(tmp_path / "site", CORES[:2]) as made:
        yield made


def place(vpp, lan):
    vpp.configure(f"set interface rx-placement {LAN} queue 0 {lan}", f"set interface rx-placement {WAN} queue 0 worker 0")


@pytest.mark.parametrize("thread", ["main", "worker 0"])
def test_the_worker_has_every_connection(site, thread):
    vpp = site.vpp
    place(vpp, thread)
    vpp.client("conn kill all")
    vpp.configure("clear runtime")
    for number in range(20):
        site.client.run("ping", "-c", "1", "-e", str(number + 1), SERVER)
    connections = vpp.json("show connections verbose")["connections"]
    assert [one["worker"] for one in connections if one["sent"]["src"] == CLIENT] == [0] * 20
    # Requests are handed over if the main thread receives them, replies never.
    assert handed(vpp) == (20 if thread == "main" else 0)
    assert "handover-full" not in vpp.drops()


@pytest.mark.parametrize("feature", FEATURES)
def test_packets_wait_for_the_worker_while_a_feature_comes_and_goes(site, feature):
    prepare, on, off = FEATURES[feature]
    vpp = site.vpp
    place(vpp, "main")
    for command in prepare:
        vpp.ask(command)
    with site.client.start(["ping", "-f", "-w", "300", SERVER], site.folder / "flood.log") as flood:
        wait_until(lambda: handed(vpp) > 100, "packets are handed over")
        before = handed(vpp)
        for _ in range(ROUNDS):
            vpp.ask(on)
            vpp.ask(off)
            assert vpp.running()
        assert handed(vpp) > before and flood.running()
    assert {reason for _, reason in vpp.errors()} & {"internal-error"} == set()
