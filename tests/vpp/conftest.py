"""A VPP for each module's tests. Without VPP, or without the plugin built, every test says so and is skipped."""

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "replay"))

from lab import daemon, vpp  # noqa: E402

_running = []


def lacking():
    """Why the tests cannot run here."""
    if vpp.program() is None:
        return "VPP not installed: skipped"
    if not vpp.PLUGIN.exists():
        return f"{vpp.PLUGIN} is not built: run 'make vpp-test'"
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
        pytest.exit(f"no mmb at {path}: build it, or say where it is with MMB=PATH", returncode=2)
    return path


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """Starts VPPs, which end with the module: `started(plugin=…, sections=…)`."""
    made = []

    def start(**options):
        made.append(vpp.Vpp(tmp_path_factory.mktemp("vpp"), **options))
        _running.append(made[-1])
        return made[-1].start()

    yield start
    for one in made:
        one.close()
        _running.remove(one)
