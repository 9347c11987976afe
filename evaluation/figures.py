"""The figures of the papers: what each shows, the experiments that correspond to it, and what is not measured."""

from typing import NamedTuple

MMB, MIDDLECLICK, FILTER = "mmb", "MiddleClick", "DDoS filter"

# The papers by their short names.
PAPERS = {
    MMB: "*mmb: Flexible High-Speed Userspace Middleboxes* (arXiv 1904.11277)",
    MIDDLECLICK: "*Building a chain of high-speed VNFs in no time* (HPSR 2018)",
    FILTER: "*Learning VPP: Filtering Packets at 100GbE Line Rate* (FastNetMon, 2026)",
}

# In place of a label: the experiment corresponds to no figure.
NO_PAPER = "in no paper"

NO_FASTCLICK = "FastClick: no package in Debian"
NO_CARD = "this evaluation has no network cards"


class Figure(NamedTuple):
    """`experiments`: (name, load) of each experiment that measures the figure; a load of None stands for every load. `lacking`: what is
    not measured, and why."""

    paper: str
    name: str
    shows: str
    experiments: tuple
    lacking: str = ""

    @property
    def label(self):
        return f"{self.paper}, {self.name}"


FIGURES = (
    Figure(
        MMB,
        "section 4.1",
        "bandwidth of wrk by the size of the file, 1 KB to 256 KB",
        (("files", None),),
    ),
    Figure(
        MMB,
        "figure 7",
        "forwarding without rules under iperf: no middle, VPP, FastClick, the kernel, virtual machines",
        (("forwarding", "iperf"),),
        f"{NO_FASTCLICK}; PCI passthrough and bridged virtual machines: {NO_CARD} and no hypervisor",
    ),
    Figure(
        MMB,
        "figure 8",
        "distribution of round-trip times with 10,000 firewall rules",
        (("rtt", None),),
        NO_FASTCLICK,
    ),
    Figure(
        MMB,
        "figure 9a",
        "firewall of five-tuples under iperf, by the number of rules",
        (("firewall", "iperf"),),
        NO_FASTCLICK,
    ),
    Figure(
        MMB,
        "figure 9b",
        "stateful flow matching under iperf, by the number of rules",
        (("stateful", "iperf"),),
        f"{NO_FASTCLICK}; a flow tracker in XDP: the XDP program here is the firewall of figure 9a",
    ),
    Figure(
        MMB,
        "figure 9c",
        "source NAT under iperf and wrk",
        (("nat", None),),
        NO_FASTCLICK,
    ),
    Figure(
        MMB,
        "figure 9d",
        "firewall of five-tuples under wrk and nginx, by the number of rules",
        (("firewall", "wrk"),),
        NO_FASTCLICK,
    ),
    Figure(
        MMB,
        "figure 9e",
        "stateful flow matching under wrk and nginx, by the number of rules",
        (("stateful", "wrk"),),
        f"{NO_FASTCLICK}; a flow tracker in XDP, as for figure 9b",
    ),
    Figure(
        MMB,
        "figure 9f",
        "TCP-option rules under iperf and wrk, by the number of rules",
        (("options", None),),
    ),
    Figure(
        MMB,
        "figure 10",
        "bandwidth with one rule per mask, by the number of masks",
        (("masks", "iperf"), ("cycles", "masks")),
        NO_FASTCLICK,
    ),
    Figure(
        MMB,
        "figure 11",
        "cycles per packet of a firewall of 100,000 rules, flow tracking, source NAT and 100 TCP-option rules",
        (("cycles", "five-tuple"), ("cycles", "stateful"), ("cycles", "snat"), ("cycles", "options")),
        "100,000 rules with one match for flow tracking: here each connection has a rule of its own, which is the harder case",
    ),
    Figure(
        MIDDLECLICK,
        "figure 12",
        "throughput through a load balancer with 128 connections, by the size of the file; latency of 8 KB files by request rate",
        (("balance-files", None),),
        "latency at a given request rate: wrk sends as fast as it is answered; files above 1 MB: a run is too short for them;"
        " MiddleClick itself: needs DPDK network cards",
    ),
    Figure(
        MIDDLECLICK,
        "figure 13",
        "throughput of a chain of functions with 8 KB requests, on 1 to 4 cores",
        (("chain", "wrk-8k"), ("streams", None), ("patterns", "wrk-8k")),
        f"3 and 4 cores: one core is in the middle, and `mmb bench` has at most two here; {NO_FASTCLICK}; mOS and MiddleClick"
        " itself: need DPDK network cards",
    ),
    Figure(
        FILTER,
        "table of mask shapes",
        "cycles per packet and packets per second with 1,000,000 rules over 1 to 64 mask shapes, where packets match",
        (("cycles", "filter"),),
        f"packets per second at 100 Gbit/s: {NO_CARD}; one shape that all packets match: here packets match rules of all shapes",
    ),
    Figure(
        FILTER,
        "table of engines",
        "cycles per packet of the filter and of VPP's ACL plugin with 5 rules of one shape",
        (("vpp", "five-tuple"),),
        "5 rules: here the ACL plugin has 100,000 five-tuples; it runs only where a VPP is installed",
    ),
)


def corresponding(experiment, load=None):
    """The figures that an experiment corresponds to, under any load or under this one."""
    return [
        figure
        for figure in FIGURES
        if any(name == experiment and (load is None or of_load in (None, load)) for name, of_load in figure.experiments)
    ]


def labels(experiment, load=None):
    """The same in words: `mmb, figures 9a and 9d; MiddleClick, figure 13`; empty if there are none."""
    by_paper = {}
    for figure in corresponding(experiment, load):
        by_paper.setdefault(figure.paper, []).append(figure.name)
    return "; ".join(f"{paper}, {_joined(names)}" for paper, names in by_paper.items())


def _joined(names):
    if len(names) > 1 and all(name.startswith("figure ") for name in names):
        numbers = [name.removeprefix("figure ") for name in names]
        return f"figures {', '.join(numbers[:-1])} and {numbers[-1]}"
    return " and ".join(names)
