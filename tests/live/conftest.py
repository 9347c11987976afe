"""Fixtures of the live tests.

All tests of one backend share `site`: namespaces, veth pairs, a web server and an iperf3 server, and a daemon that `mmb` provides
to each test without rules. Tests that stop, kill or break the daemon create a site of their own with `fresh`.

A failure shows the output of the daemon; its files stay in pytest's temporary folder. `make test-live` runs several files at once, each
process of pytest with sites of its own. `make test-measured` runs those that are marked `alone`, one at a time.
"""

import os
import shutil
import socket
from pathlib import Path

import pytest

from lab import daemon, net, process

from . import programs, routed, topology

BACKENDS = ("af_xdp", "af_packet")
AF_XDP = 44

# The files that take longest, which begin first: otherwise the other processes have nothing to do at the end.
LONGEST = ("test_streams_life", "test_life", "test_state_file", "test_streams_edit_life", "test_tunnels", "test_offloads", "test_http_odd",
           "test_offload", "test_fragments", "test_streams_evasion", "test_compile", "test_change")

_daemons = []


def pytest_collection_modifyitems(items):
    """Without root the tests cannot run: report this once per test, instead of a failure somewhere inside."""
    here = Path(__file__).parent
    lacking = _lacking()
    items[:] = [item for item in items if not _is_of_mmb_alone(item)]
    for item in items:
        if here in Path(item.fspath).parents and "needs_no_root" not in item.keywords and lacking:
            item.add_marker(pytest.mark.skip(reason=lacking))
    items.sort(key=lambda item: LONGEST.index(name) if (name := Path(item.fspath).stem) in LONGEST else len(LONGEST))


def _is_of_mmb_alone(item):
    """Whether a test would run the reference on behaviour in which it differs."""
    parameters = getattr(item, "callspec", None)
    return parameters and "of_mmb" in item.fixturenames and parameters.params.get("routed_site") == "nftables"


def _lacking():
    if os.geteuid() != 0:
        return "needs root: network namespaces and raw sockets"
    if process.run(["unshare", "--net", "true"], check=False).returncode != 0:
        return "the kernel gives no network namespaces here"
    return None


def pytest_configure(config):
    config.addinivalue_line("markers", "needs_no_root: runs without root and namespaces")
    config.addinivalue_line("markers", "alone: measures rates, times or memory, and runs when no other test does")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    report = (yield).get_result()
    if report.failed:
        for mmb in _daemons:
            report.sections.append((f"mmb's log, {mmb.log}", mmb.output()[-4000:]))


@pytest.fixture(scope="session", autouse=True)
def binary():
    """The program under test, built."""
    if not os.access(daemon.BINARY, os.X_OK):
        pytest.exit(f"{daemon.BINARY} is missing: run 'make build-tested', or set MMB to the program's path", returncode=2)
    return daemon.BINARY


@pytest.fixture(scope="session")
def namespaces():
    net.remove_leftovers()


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request):
    """The driver of mmb's kernel interfaces."""
    need_backend(request.param)
    return request.param


def need_backend(name):
    if name == "af_xdp":
        try:
            socket.socket(AF_XDP, socket.SOCK_RAW, 0).close()
        except OSError as error:
            pytest.skip(f"the kernel has no AF_XDP sockets: {error}")


@pytest.fixture(scope="session")
def site(backend, namespaces, tmp_path_factory):
    """The shared client and server, a web server and an iperf3 server."""
    with topology.Site(tmp_path_factory.mktemp(backend), backend) as shared:
        shared.nginx = programs.Nginx(shared)
        shared.iperf = programs.Iperf(shared)
        shared.daemon = shared.mmb()
        yield shared


@pytest.fixture
def mmb(site):
    """The shared daemon, without rules. Afterwards every packet must be accounted for."""
    if not site.daemon.running():
        site.daemon.start()
    _daemons[:] = [site.daemon]
    site.reset()
    yield site.daemon
    assert site.daemon.running(), "mmb ended"
    site.daemon.wait_until_settled()


@pytest.fixture(scope="session", params=("mmb", "nftables"))
def routed_site(request, namespaces, tmp_path_factory):
    """The shared networks with routers; mmb is in the middle, or nftables as reference."""
    if request.param == "nftables":
        need_nftables()
    with routed.Routed(tmp_path_factory.mktemp(f"routed-{request.param}"), "af_packet", request.param) as shared:
        shared.nginx = programs.Nginx(shared)
        shared.iperf = programs.Iperf(shared)
        shared.tested = (routed.TestedMmb if request.param == "mmb" else routed.Nftables)(shared)
        yield shared


@pytest.fixture
def nat(routed_site):
    """The shared networks with nothing in force in the middle, and no connections. Afterwards every packet must be accounted for."""
    if isinstance(routed_site.tested, routed.TestedMmb):
        _daemons[:] = [routed_site.tested.daemon]
    routed_site.end_connections()
    routed_site.tested.reset()
    yield routed_site
    routed_site.tested.wait_until_settled()


@pytest.fixture
def of_mmb(nat):
    """The same for tests of behaviour in which nftables differs, by design or because it lacks a feature: docs/nat.md lists it."""
    assert nat.tested.kind == "mmb"
    return nat


def need_nftables():
    for words in (["nft", "--version"], ["conntrack", "--version"]):
        if shutil.which(words[0]) is None:
            pytest.skip(f"{words[0]} is not installed: no reference to compare with")
    namespace = net.Namespace("probe")
    try:
        rules = "add table inet t; add chain inet t c { type nat hook postrouting priority 0; }"
        tried = namespace.run("nft", rules, check=False)
        if tried.returncode != 0:
            pytest.skip(f"the kernel has no nftables NAT: {tried.stderr.strip()}")
    finally:
        namespace.delete()


@pytest.fixture
def fresh(namespaces, tmp_path):
    """Creates sites for one test: `fresh(backend, …)`; and `fresh.daemon(site, *options)`, a started daemon."""
    maker = _Fresh(tmp_path)
    yield maker
    for made in reversed(maker.sites):
        made.close()


class _Fresh:
    def __init__(self, folder):
        self.folder = folder
        self.sites = []
        _daemons.clear()

    def __call__(self, backend="af_xdp", **shape):
        return self._keep(topology.Site, backend, **shape)

    def _keep(self, kind, backend, **shape):
        need_backend(backend)
        folder = self.folder / str(len(self.sites))
        folder.mkdir()
        self.sites.append(kind(folder, backend, **shape))
        return self.sites[-1]

    def routed(self, backend="af_xdp", **shape):
        """Networks with routers, for mmb between them."""
        return self._keep(routed.Routed, backend, **shape)

    def daemon(self, site, *options, name="mmb", group=None):
        mmb = site.mmb(name)
        mmb.group = group
        _daemons.append(mmb)
        return mmb.start(*options)
