"""The script of `make demo`: it runs to its end and removes everything that it created, also when interrupted."""

import signal
from pathlib import Path

import pytest

from lab.daemon import BINARY
from lab.process import Background, run, wait_until

SCRIPT = Path(__file__).parents[2] / "scripts/demo"


def leftovers(pid):
    return [name for name in run(["ip", "netns", "list"]).stdout.split() if name.startswith(f"mmb-demo-{pid}-")]


def test_the_demo_ends_by_itself_and_cleans_up(tmp_path):
    with Background([SCRIPT, BINARY], tmp_path / "demo.log") as demo:
        assert demo.wait(60) == 0, demo.output()
        assert leftovers(demo.pid) == []
    output = demo.output()
    assert "\x1b" not in output, "no colours where no terminal is"
    assert "hello from port 8080" in output and "the file arrived whole" in output
    assert "behind mmb   0 packets marked" in output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_cleans_up(tmp_path, number):
    with Background([SCRIPT, BINARY], tmp_path / "demo.log") as demo:
        wait_until(lambda: "show" in demo.output() or "check" in demo.output(), "the demo is under way", timeout=30)
        demo.signal(number)
        assert demo.wait(20) == 130
        assert leftovers(demo.pid) == []


def test_the_demo_says_what_it_needs():
    done = run([SCRIPT, "/nowhere/mmb"], check=False)
    assert done.returncode == 1 and "make demo" in done.stderr
