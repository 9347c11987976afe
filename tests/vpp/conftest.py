"""A VPP for the tests of each module. Without VPP, or without the plugin, every test is skipped with a message."""

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "replay"))

from lab import daemon  # noqa: E402
from lab.process import wait_until  # noqa: E402
from lab.vpp import PLUGIN, program  # noqa: E402

from .plugin import WithMmb  # noqa: E402

_running = []


def lacking():
    """The reason why the tests cannot run."""
    if program() is None:
        return "VPP not installed: skipped"
    if not PLUGIN.exists():
        return f"{PLUGIN} is not built: run 'make vpp-test'"
    if os.geteuid() != 0:
        return "needs root: VPP's interfaces, network namespaces"
    return None


def pytest_collection_modifyitems(items):
    why = lacking()
    for item in items:
        if why and HERE in Path(item.fspath).parents:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    report = (yield).get_result()
    if report.failed:
        for one in _running:
            report.sections.append((f"VPP's log, {one.log}", one.output()[-4000:]))


@pytest.fixture(scope="session")
def mmb():
    """The program whose `mmb replay` VPP is compared with: $MMB, or the release build."""
    path = Path(daemon.BINARY)
    if not path.exists():
        pytest.exit(f"no mmb at {path}: build it, or name it with MMB=PATH", returncode=2)
    return path


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """Starts VPPs, which end with the module: `started(kind, …)`."""
    made = []

    def start(kind, **options):
        made.append(kind(tmp_path_factory.mktemp("vpp"), **options))
        _running.append(made[-1])
        return made[-1].start()

    yield start
    for one in made:
        one.close()
        _running.remove(one)


@pytest.fixture(scope="module")
def vpp_with_mmb(started):
    """The module's VPP with mmb."""
    return started(WithMmb)


@pytest.fixture
def vpp(vpp_with_mmb):
    """The same VPP, with no rules. Afterwards VPP must still run, with all its buffers."""
    vpp_with_mmb.apply("")
    yield vpp_with_mmb
    assert vpp_with_mmb.running(), "VPP ended"
    wait_until(lambda: vpp_with_mmb.buffers_used() == 0, "every buffer is free again")
