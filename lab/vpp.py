"""A separate VPP: started in a directory, controlled by its command line, ended with the `with` block at the latest."""

import os
import re
import socket
from pathlib import Path
from typing import NamedTuple

from .process import Background, CommandFailed, run, wait_until

PREFIX = Path(os.environ.get("VPP_PREFIX", "/usr"))
PLUGIN = Path(os.environ.get("MMB_PLUGIN", "target/release/mmb_plugin.so")).absolute()

READY_TIMEOUT = 30

_STARTUP = """
unix {{ nodaemon nosyslog nocolor cli-listen {folder}/cli.sock runtime-dir {folder} {unix} }}
memory {{ main-heap-size {heap} main-heap-page-size 4k }}
buffers {{ page-size 4k buffers-per-numa {buffers} default data-size {data_size} }}
cpu {{ {cpu} }}
statseg {{ size 64M page-size 4k }}
api-segment {{ prefix mmb-{pid}-{folder.name} }}
plugins {{ {plugins} plugin dpdk_plugin.so {{ disable }} }}
{sections}
"""


class Node(NamedTuple):
    """A line of `show runtime`: packets that a node of the graph processed, and clocks for each of them."""

    packets: int
    clocks: float


def runtime(text):
    """`show runtime`: the nodes by name, summed over threads."""
    nodes = {}
    for name, packets, clocks in re.findall(r"^(\S+) .*?\d+\s+(\d+)\s+\d+\s+(\S+)\s+\S+\s*$", text, re.M):
        before = nodes.get(name, Node(0, 0.0))
        total = before.packets + int(packets)
        spent = before.packets * before.clocks + int(packets) * float(clocks)
        nodes[name] = Node(total, spent / total if total else 0.0)
    return nodes


class DidNotStart(AssertionError):
    """VPP ended, or its command line did not answer."""


def program():
    """VPP's program under `VPP_PREFIX`; None if there is none."""
    found = PREFIX / "bin/vpp"
    return found if all(os.access(file, os.X_OK) for file in (found, found.with_name("vppctl"))) else None


class Vpp:
    """A VPP without huge pages, with its own plugins and `plugin`, a file, if one is given.

    `cores`: the first is the core of the main thread, the others are those of the workers; without them the main thread runs on
    any core, and sleeps between two polls of its queues. `sections`: more sections of startup.conf; `unix`: more of its section
    unix. `namespace`: the network namespace, if not the current one.
    """

    def __init__(self, folder, plugin=None, cores=(), sections="", buffers=16_384, data_size=2048, heap="512M", namespace=None, unix=""):
        self.folder = Path(folder)
        self.namespace = namespace
        self.folder.mkdir(parents=True, exist_ok=True)
        self.socket = self.folder / "cli.sock"
        self.log = self.folder / "vpp.log"
        self.process = None
        self._config = self.folder / "startup.conf"
        main, *workers = map(str, cores) if cores else ("",)
        cpu = (f"main-core {main}" if main else "") + (f" corelist-workers {','.join(workers)}" if workers else "")
        self._config.write_text(
            _STARTUP.format(
                folder=self.folder,
                pid=os.getpid(),
                unix=f"{unix} {'' if cores else 'poll-sleep-usec 50'}",
                cpu=cpu,
                heap=heap,
                buffers=buffers,
                data_size=data_size,
                plugins=self._plugins(plugin),
                sections=sections,
            )
        )

    def _plugins(self, plugin):
        """VPP takes directories of plugins: a directory with this file only, so that VPP loads no other plugin from it."""
        if plugin is None:
            return ""
        own = self.folder / "plugins"
        own.mkdir(exist_ok=True)
        link = own / Path(plugin).name
        link.unlink(missing_ok=True)
        link.symlink_to(plugin)
        others = [path for path in PREFIX.glob("lib*/**/vpp_plugins") if path.is_dir()]
        return f"path {':'.join(map(str, [*others, own]))}"

    def start(self):
        """Returns when the command line answers."""
        self.socket.unlink(missing_ok=True)
        start = self.namespace.start if self.namespace else Background
        self.process = start([program(), "-c", self._config], self.log)
        try:
            wait_until(lambda: not self.process.running() or self._listens(), "VPP listens", READY_TIMEOUT)
        except AssertionError:
            self.process.close()
        if not self.running():
            raise DidNotStart(f"{program()} did not start: {self.output()}")
        self.ask("show version")
        return self

    def _listens(self):
        """Whether a process listens on the socket."""
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    def output(self):
        """The complete output."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def running(self):
        return self.process is not None and self.process.running()

    def stop(self):
        """Sends SIGTERM and returns the exit status."""
        return self.process.stop()

    def close(self):
        if self.process is not None:
            self.process.close()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()

    # Its command line

    def ask(self, command, timeout=60):
        """The output of VPP; it includes errors, which VPP does not distinguish."""
        return run([program().with_name("vppctl"), "-s", self.socket, command], timeout=timeout).stdout

    def configure(self, *commands, timeout=60):
        """Runs commands that must not print anything: output of VPP is an error."""
        if not commands:
            return
        script = self.folder / "commands.cli"
        script.write_text("".join(f"{command}\n" for command in commands))
        output = self.ask(f"exec {script}", timeout).strip()
        if output:
            raise CommandFailed(f"VPP: {output[:2000]}")

    def errors(self):
        """`show errors`: counts by node and reason."""
        lines = re.findall(r"^\s*(\d+)\s+(\S+)\s+(.*?)\s+(?:error|info|warn|warning|critical)\s*$", self.ask("show errors"), re.M)
        found = {}
        for count, node, reason in lines:
            found[node, reason] = found.get((node, reason), 0) + int(count)
        return found

    def buffers_used(self):
        """Packet buffers that are neither free nor cached by a thread."""
        pools = re.findall(r"^\S+\s+\d+\s+\d+\s+\d+\s+\d+\s+\d+\s+\d+\s+\d+\s+(\d+)\s*$", self.ask("show buffers"), re.M)
        return sum(map(int, pools))

    def counters(self, interface):
        """`show interface` of one interface, by name of the counter."""
        lines = self.ask(f"show interface {interface}").splitlines()[1:]
        return {name: int(count) for line in lines for name, count in re.findall(r"(\S+(?: \S+)?)\s+(\d+)\s*$", line)}
