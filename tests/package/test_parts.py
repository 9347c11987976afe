"""scripts/test: the order of the parts of a check, and its end, with parts that do nothing."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/test"
PARTS = "lint build-tested build-tests test-doc test-rust test-live test-replay test-evaluation test-package test-measured test-vpp"


@pytest.fixture
def check(tmp_path):
    """Runs a tier in a folder whose Makefile has these parts with one recipe."""

    def start(tier, recipe):
        (tmp_path / "scripts").mkdir()
        shutil.copy(SCRIPT, tmp_path / "scripts/test")
        (tmp_path / "Makefile").write_text(f"{PARTS}:\n\t@{recipe}\n")
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([tmp_path / "scripts/test", tier], **pipes)

    return start


@pytest.mark.parametrize(("tier", "parts"), [("check", 4), ("test", 11)])
def test_all_parts_run_once(check, tier, parts):
    running = check(tier, "echo running $@")
    output, _ = running.communicate(timeout=60)
    assert running.returncode == 0
    assert output.count("part: ") == parts and output.count("FAILED") == 0
    assert output.splitlines()[-1].startswith("all ")


@pytest.mark.parametrize(("failing", "name"), [("test-live", "live tests"), ("test-doc", "documentation of the code")])
def test_a_part_that_fails_ends_the_check_and_shows_its_output(check, failing, name):
    running = check("test", f'echo "output of $@"; test "$@" != {failing}')
    output, errors = running.communicate(timeout=60)
    assert running.returncode == 1 and "test: failed" in errors
    assert f"output of {failing}" in output and "output of test-measured" not in output
    [line] = [line for line in output.split("What took how long:")[1].splitlines() if "FAILED" in line]
    assert line.startswith(name)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_parts(check, tmp_path, number):
    running = check("test", "echo $$$$ >$@.pid; test $@ = build-tested || exec sleep 60")
    deadline = time.monotonic() + 30
    pids = [tmp_path / f"{part}.pid" for part in ("test-live", "build-tests")]
    while not all(pid.exists() and pid.read_text().endswith("\n") for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    running.send_signal(number)
    output, _ = running.communicate(timeout=30)
    assert running.returncode == 128 + number and output.splitlines()[-1].startswith("all ")
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)
