"""The measurements: the experiments of section 4 of the paper (arXiv 1904.11277), those of the paper on MiddleClick (HPSR 2018) with
chains of functions, and further ones, in two sizes."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from . import loads
from .policies import Policy

REWRITERS = ("forward", "mmb-no-rules", "mmb-af_xdp", "mmb-af_packet")
MMB = ("mmb-af_xdp", "mmb-af_packet")
FILTERS = (*MMB, "nftables", "iptables", "xdp")
TRACKERS = (*MMB, "nftables", "iptables")
# Systems that the quick evaluation omits unless it says otherwise.
LEFT_OUT = {"mmb-af_packet"}


@dataclass(frozen=True)
class Experiment:
    """Each size of a kind of policy, under each load, for each system. With `files` the size is that of the load."""

    name: str
    title: str
    paper: str
    kind: str
    systems: tuple
    loads: tuple
    sizes: tuple = (0,)
    axis: str = ""
    offloads: bool = False
    files: tuple = (None,)
    # The values of the quick evaluation; None: it omits the experiment.
    quick: dict | None = field(default_factory=dict)

    def points(self, seconds):
        """(x, policy, load) of each point; the points of a policy are adjacent."""
        for size in self.sizes:
            policy = Policy(self.kind, size)
            for load in self.loads:
                for file in self.files:
                    yield (size if file is None else file), policy, make_load(load, seconds, file)


TABLE = (
    Experiment(
        name="forwarding",
        title="Forwarding",
        paper="figure 7",
        kind="none",
        systems=("direct", "forward", *MMB),
        loads=("iperf", "wrk", "udp"),
        quick={"systems": ("direct", "forward", *MMB)},
    ),
    Experiment(
        name="offloads",
        title="Forwarding, the kernel's offloads left on",
        paper="beyond",
        kind="none",
        systems=("direct", "forward", *MMB),
        loads=("iperf",),
        offloads=True,
        quick=None,
    ),
    Experiment(
        name="firewall",
        title="Firewall of five-tuples, none matching",
        paper="figures 9a and 9d",
        kind="firewall",
        systems=FILTERS,
        loads=("iperf", "wrk", "udp"),
        sizes=(1, 10, 100, 1000, 10_000, 100_000, 1_000_000),
        axis="rules",
        quick={"sizes": (100, 10_000, 100_000), "loads": ("iperf",)},
    ),
    Experiment(
        name="stateful",
        title="Stateful flow matching",
        paper="figures 9b and 9e",
        kind="stateful",
        systems=TRACKERS,
        loads=("iperf", "wrk", "udp"),
        sizes=(1, 10, 100, 1000, 10_000, 100_000),
        axis="rules",
        quick={"sizes": (10_000,), "loads": ("iperf",)},
    ),
    Experiment(
        name="nat",
        title="Source NAT",
        paper="figure 9c",
        kind="nat",
        systems=TRACKERS,
        loads=("iperf", "wrk"),
    ),
    Experiment(
        name="options",
        title="TCP-option rules, none matching",
        paper="figure 9f",
        kind="options",
        systems=FILTERS,
        loads=("iperf", "wrk"),
        sizes=(1, 10, 100, 1000, 10_000),
        axis="rules",
        quick={"sizes": (100, 10_000), "loads": ("iperf",)},
    ),
    Experiment(
        name="masks",
        title="One rule per mask",
        paper="figure 10",
        kind="masks",
        systems=FILTERS,
        loads=("iperf",),
        sizes=(1, 2, 4, 8, 16, 26, 40, 64, 128, 256),
        axis="masks",
        quick={"sizes": (1, 256)},
    ),
    Experiment(
        name="rtt",
        title="Round trips at 10,000 five-tuple rules",
        paper="figure 8",
        kind="firewall",
        systems=FILTERS,
        loads=("ping", "ping-iperf"),
        sizes=(10_000,),
        axis="rules",
        quick={"systems": ("mmb-af_xdp", "nftables", "xdp")},
    ),
    Experiment(
        name="files",
        title="Files by their size",
        paper="section 4.1",
        kind="none",
        systems=("forward", *MMB),
        loads=("wrk",),
        axis="KB",
        files=loads.Web.sizes_kb,
        quick=None,
    ),
    Experiment(
        name="balance",
        title="Connections spread over three servers",
        paper="beyond",
        kind="balance",
        systems=(*TRACKERS, "haproxy"),
        loads=("wrk-balanced",),
    ),
    Experiment(
        name="balance-files",
        title="Files through a load balancer, by their size",
        paper="MiddleClick, figure 12",
        kind="balance",
        systems=(*MMB, "nftables", "haproxy"),
        loads=("wrk-balanced-files",),
        axis="KB",
        files=(1, 8, 64, 256, *loads.Web.large_kb),
        quick=None,
    ),
    Experiment(
        name="chain",
        title="A chain of functions",
        paper="MiddleClick, figure 13",
        kind="chain",
        systems=("forward", *MMB, "nftables", "haproxy"),
        loads=("iperf", "wrk-8k"),
        sizes=(0, 1, 2, 3),
        axis="functions",
        quick={"systems": ("mmb-af_xdp", "nftables", "haproxy"), "sizes": (1, 2, 3), "loads": ("iperf",)},
    ),
    Experiment(
        name="patterns",
        title="Literals in streams, none found",
        paper="MiddleClick, figure 13",
        kind="patterns",
        systems=(*MMB, "suricata"),
        loads=("iperf", "wrk-8k"),
        sizes=(1, 100, 1000, 10_000),
        axis="literals",
        quick={"sizes": (100,), "loads": ("iperf",)},
    ),
    Experiment(
        name="rewrite-http-body",
        title="A word in pages replaced by a longer text",
        paper="beyond",
        kind="rewrite-body",
        systems=(*REWRITERS, "nginx", "apache"),
        loads=("wrk-pages",),
        axis="KB",
        files=loads.Pages.pages_kb,
        quick={"systems": ("mmb-af_xdp", "nginx"), "files": (8,)},
    ),
    Experiment(
        name="rewrite-http-latency",
        title="The time that replacing a word adds",
        paper="beyond",
        kind="rewrite-body",
        systems=(*REWRITERS, "nginx", "apache"),
        loads=("wrk-one-page",),
        axis="KB",
        files=(1, 8),
        quick=None,
    ),
    Experiment(
        name="rewrite-http-mask",
        title="A word in pages replaced by as many bytes",
        paper="beyond",
        kind="rewrite-mask",
        systems=(*REWRITERS, "nginx", "apache"),
        loads=("wrk-pages",),
        axis="KB",
        files=loads.Pages.pages_kb,
        quick=None,
    ),
    Experiment(
        name="rewrite-http-head",
        title="A header field of responses changed",
        paper="beyond",
        kind="rewrite-head",
        systems=(*REWRITERS, "haproxy-http", "squid"),
        loads=("wrk-pages",),
        axis="KB",
        files=(1, 64),
        quick=None,
    ),
)

LOADS = {
    "iperf": loads.Iperf,
    "wrk": loads.Web,
    "wrk-8k": loads.Requests,
    "wrk-balanced": loads.Balanced,
    "wrk-balanced-files": loads.BalancedFiles,
    "wrk-pages": loads.Pages,
    "wrk-one-page": loads.OnePage,
    "udp": loads.Small,
    "ping": loads.Ping,
}


def make_load(name, seconds, file=None):
    if name == "ping-iperf":
        return loads.Ping(seconds, loads.Iperf(seconds))
    return LOADS[name](seconds) if file is None else LOADS[name](seconds, file)


class Plan(NamedTuple):
    """A size of the evaluation: runs of each point, seconds of a run between namespaces and in memory, the experiments."""

    name: str
    runs: int
    seconds: float
    seconds_in_memory: float
    experiments: tuple


def plan(quick, runs=None, seconds=None):
    """The quick evaluation takes less than ten minutes on two cores. `seconds` are those of a run between namespaces."""
    if quick:
        return Plan("quick", runs or 5, seconds or 0.6, 0.2, tuple(_quick(kept) for kept in TABLE if kept.quick is not None))
    return Plan("full", runs or 5, seconds or 4.0, 2.0, TABLE)


def _quick(experiment):
    systems = tuple(system for system in experiment.systems if system not in LEFT_OUT)
    return replace(experiment, **({"systems": systems} | experiment.quick))
