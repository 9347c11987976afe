"""The measurements between namespaces: the experiments of section 4 of the paper (arXiv 1904.11277), those of the paper on
MiddleClick (HPSR 2018) with chains of functions, and further ones, in two sizes. `figures` lists the figure that each corresponds to."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from . import loads
from .method import Repetitions
from .policies import Policy

# A point has enough runs when the 95 % confidence interval of its mean is this narrow, to either side.
TARGET = 0.05

# As users have it, and with every packet through mmb; where that is the case anyway, over the other type of device.
MMB = ("mmb", "mmb-offload-off")
SEARCHING_MMB = ("mmb", "mmb-af_xdp")
DEVICES = (*MMB, "mmb-af_xdp", "mmb-af_packet")
# The kernel's forwarding does none of the work of the others: it is the path without.
TRACKERS = ("forward", *MMB, "nftables", "iptables")
FILTERS = (*TRACKERS, "xdp")
REWRITERS = ("forward", "mmb-no-rules", *SEARCHING_MMB)
# The systems of the targets of kernel interfaces.
TARGETED = ("forward", *MMB, "nftables")
# Systems that the quick evaluation omits unless it says otherwise.
LEFT_OUT = {"mmb-af_packet", "mmb-af_xdp"}


@dataclass(frozen=True)
class Experiment:
    """Each size of a kind of policy, under each load, for each system. With `files` the size is that of the load."""

    name: str
    title: str
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
        name="default-forwarding",
        title="Forwarding, offloads as the kernel sets them",
        kind="none",
        systems=("direct", "forward", *DEVICES, "nftables"),
        loads=("iperf",),
        offloads=True,
        quick={"systems": ("direct", *TARGETED)},
    ),
    Experiment(
        name="default-firewall",
        title="Firewall of five-tuples, offloads as the kernel sets them",
        kind="firewall",
        systems=TARGETED,
        loads=("iperf",),
        sizes=(100, 1000, 10_000, 100_000),
        axis="rules",
        offloads=True,
        quick={"sizes": (100, 100_000)},
    ),
    Experiment(
        name="default-nat",
        title="Source NAT, offloads as the kernel sets them",
        kind="nat",
        systems=TARGETED,
        loads=("iperf",),
        offloads=True,
    ),
    Experiment(
        name="default-stateful",
        title="Stateful flow matching, offloads as the kernel sets them",
        kind="stateful",
        systems=TARGETED,
        loads=("iperf",),
        sizes=(10_000,),
        axis="rules",
        offloads=True,
    ),
    Experiment(
        name="forwarding",
        title="Forwarding",
        kind="none",
        systems=("direct", "forward", *DEVICES, "nftables"),
        loads=("iperf", "wrk", "udp"),
        quick={"systems": ("forward", *MMB, "mmb-af_xdp", "nftables"), "loads": ("iperf",)},
    ),
    Experiment(
        name="established",
        title="Small frames of established flows",
        kind="stateful",
        systems=("forward", *DEVICES, "nftables"),
        loads=("udp-established",),
        sizes=(100,),
        axis="rules",
        quick={"systems": ("forward", *MMB, "mmb-af_xdp", "nftables")},
    ),
    Experiment(
        name="connections",
        title="New connections through a source NAT",
        kind="masquerade",
        systems=TARGETED,
        loads=("wrk-close",),
        quick={"systems": (*MMB, "nftables")},
    ),
    Experiment(
        name="firewall",
        title="Firewall of five-tuples, none matching",
        kind="firewall",
        systems=FILTERS,
        loads=("iperf", "wrk", "udp"),
        sizes=(1, 100, 1000, 10_000, 100_000, 1_000_000),
        axis="rules",
        quick={"systems": TARGETED, "sizes": (100, 100_000), "loads": ("iperf",)},
    ),
    Experiment(
        name="stateful",
        title="Stateful flow matching",
        kind="stateful",
        systems=TRACKERS,
        loads=("iperf", "wrk", "udp"),
        sizes=(1, 100, 10_000, 100_000),
        axis="rules",
        quick={"systems": TARGETED, "sizes": (10_000,), "loads": ("iperf",)},
    ),
    Experiment(
        name="nat",
        title="Source NAT",
        kind="nat",
        systems=TRACKERS,
        loads=("iperf", "wrk"),
        quick={"systems": TARGETED, "loads": ("iperf",)},
    ),
    Experiment(
        name="options",
        title="TCP-option rules, none matching",
        kind="options",
        systems=(*MMB, "nftables"),
        loads=("iperf", "wrk"),
        sizes=(1, 10, 100, 1000, 10_000),
        axis="rules",
        quick=None,
    ),
    Experiment(
        name="masks",
        title="One rule per mask",
        kind="masks",
        systems=(*MMB, "nftables", "iptables"),
        loads=("iperf",),
        sizes=(1, 2, 4, 8, 16, 26, 40, 64, 128, 256),
        axis="masks",
        quick={"systems": ("mmb", "nftables"), "sizes": (256,)},
    ),
    Experiment(
        name="rtt",
        title="Round trips at 10,000 five-tuple rules",
        kind="firewall",
        systems=("forward", *DEVICES, "nftables", "iptables", "xdp"),
        loads=("ping", "ping-iperf"),
        sizes=(10_000,),
        axis="rules",
        quick={"systems": (*MMB, "nftables")},
    ),
    Experiment(
        name="files",
        title="Files by their size",
        kind="none",
        systems=("forward", *SEARCHING_MMB),
        loads=("wrk",),
        axis="KB",
        files=loads.Web.sizes_kb,
        quick=None,
    ),
    Experiment(
        name="balance",
        title="Connections spread over three servers",
        kind="balance",
        systems=(*MMB, "nftables", "iptables", "haproxy"),
        loads=("wrk-balanced",),
        quick={"systems": (*MMB, "nftables", "haproxy")},
    ),
    Experiment(
        name="balance-files",
        title="Files through a load balancer, by their size",
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
        kind="chain",
        systems=("forward", *SEARCHING_MMB, "nftables", "haproxy"),
        loads=("iperf", "wrk-8k"),
        sizes=(0, 1, 2, 3),
        axis="functions",
        quick={"systems": ("mmb", "haproxy"), "sizes": (2,), "loads": ("iperf",)},
    ),
    Experiment(
        name="patterns",
        title="Literals in streams, none found",
        kind="patterns",
        systems=(*SEARCHING_MMB, "suricata"),
        loads=("iperf", "wrk-8k"),
        sizes=(1, 100, 1000, 10_000),
        axis="literals",
        quick={"sizes": (100,), "loads": ("iperf",)},
    ),
    Experiment(
        name="rewrite-http-body",
        title="A word in pages replaced by a longer text",
        kind="rewrite-body",
        systems=(*REWRITERS, "nginx", "apache"),
        loads=("wrk-pages",),
        axis="KB",
        files=loads.Pages.pages_kb,
        quick={"systems": ("mmb", "nginx"), "files": (8,)},
    ),
    Experiment(
        name="rewrite-http-latency",
        title="The time that replacing a word adds",
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
    "wrk-close": loads.NewConnections,
    "wrk-pages": loads.Pages,
    "wrk-one-page": loads.OnePage,
    "udp": loads.Small,
    "udp-established": loads.Established,
    "ping": loads.Ping,
}


def make_load(name, seconds, file=None):
    if name == "ping-iperf":
        return loads.Ping(seconds, loads.Iperf(seconds))
    return LOADS[name](seconds) if file is None else LOADS[name](seconds, file)


class Plan(NamedTuple):
    """A size of the evaluation: runs of each point, seconds of a run between namespaces and in memory, minutes of the whole (None:
    without a limit), the experiments between namespaces."""

    name: str
    repeat: Repetitions
    seconds: float
    seconds_in_memory: float
    minutes: float | None
    experiments: tuple


def plan(quick, runs=None, seconds=None, minutes=None):
    """The evaluation that fits in 90 minutes on two cores, or the quick one of twelve. `seconds` are those of a run between
    namespaces. With `runs`, each point has so many runs, however long that takes."""
    made = (
        Plan("quick", Repetitions(3, 5, TARGET), 0.6, 0.2, 12, tuple(_quick(kept) for kept in TABLE if kept.quick is not None))
        if quick
        else Plan("full", Repetitions(3, 8, TARGET), 1.0, 0.5, 90, TABLE)
    )
    if runs:
        made = made._replace(repeat=Repetitions(runs, runs, TARGET), minutes=None)
    return made._replace(seconds=seconds or made.seconds, minutes=minutes or made.minutes)


def _quick(experiment):
    systems = tuple(system for system in experiment.systems if system not in LEFT_OUT)
    return replace(experiment, **({"systems": systems} | experiment.quick))
