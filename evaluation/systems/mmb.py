"""mmb in the middle, a bump in the wire with one worker."""

import lab.daemon
from evaluation.policies import FUNCTIONS, REWRITING, SERVER_NAME, TCP, WORD, Policy
from evaluation.topology import BALANCED, CLIENT, SERVERS, TRANSLATED
from lab.process import CommandFailed

from .base import System, Unable


# Policies that have a list of literals.
SEARCHING = ("chain", "patterns")


class Mmb(System):
    """`backend` is the driver of its two interfaces. It waits as it does by default (adaptive), so that its share of the core is
    meaningful."""

    backend = ""
    driver = ""
    daemon = None
    kinds = ("none", "firewall", "stateful", "nat", "options", "masks", "balance", "chain", "patterns", *REWRITING)
    functions = tuple(range(len(FUNCTIONS)))

    def open(self):
        super().open()
        ports = {"lan": f"{self.backend}:vl", "wan": f"{self.backend}:vr"}
        self.daemon = lab.daemon.Mmb(self.site.middle, self.folder, ports)
        try:
            with self.cores.on_middle():
                self.daemon.start()
        except lab.daemon.DidNotStart as error:
            raise Unable(" ".join(str(error).split())[:300]) from error
        drivers = {port["driver"] for port in self.daemon.ask("show", "ports")["ports"]}
        if drivers != {self.driver}:
            raise Unable(f"{self.backend} falls back to {', '.join(sorted(drivers))} here")

    def install(self, policy):
        path = self.folder / "policy.mmb"
        literals = self.folder / "literals.txt"
        if policy.kind in SEARCHING:
            literals.write_text("".join(f"{literal}\n" for literal in policy.literals()))
        path.write_text("".join(f"{line}\n" for line in rules(policy, literals)))
        try:
            self.daemon.client("apply", path, timeout=120)
        except CommandFailed as error:
            raise Unable(str(error)[:300]) from error
        self.site.rewriting = policy if policy.kind in REWRITING else None

    def forget(self):
        self.daemon("conn kill all")

    def close(self):
        if self.daemon is not None:
            self.daemon.close()
        super().close()


class AfXdp(Mmb):
    name = "mmb-af_xdp"
    title = "mmb, AF_XDP"
    backend = "af_xdp"
    driver = "net_af_xdp"

    def open(self):
        super().open()
        self.site.thread_napi()


class WithoutRules(AfXdp):
    """The path of `AfXdp` without rules: what rules add is the difference."""

    name = "mmb-no-rules"
    title = "mmb, AF_XDP, no rules"
    kinds = REWRITING

    def install(self, policy):
        super().install(Policy("none"))


class AfPacket(Mmb):
    name = "mmb-af_packet"
    title = "mmb, AF_PACKET"
    backend = "af_packet"
    driver = "af_packet"


def rules(policy, literals="literals.txt"):
    """The policy in mmb's language, with the file of its literals."""
    if policy.kind in ("firewall", "stateful"):
        for rule in policy.tuples():
            protocol = "tcp" if rule.protocol == TCP else "udp"
            yield (
                f"add ip-saddr {rule.source} ip-daddr {rule.destination} {protocol}-sport {rule.source_port}"
                f" {protocol}-dport {rule.destination_port} drop"
            )
    if policy.kind == "stateful":
        yield f"add-stateful ip-saddr {CLIENT} ip-proto {{tcp, udp}} accept"
    if policy.kind == "masks":
        for rule in policy.shapes():
            protocol = "tcp" if rule.protocol == TCP else "udp"
            sport = f"{protocol}-sport {rule.source_port} " if rule.source_port else ""
            yield f"add ip-saddr {rule.source} ip-daddr {rule.destination} {sport}{protocol}-dport {rule.destination_port} drop"
    if policy.kind == "options":
        for kind, value in policy.options():
            yield f"add tcp-opt {kind} |{value:08x}| drop"
    if policy.kind == "nat" or policy.kind == "chain" and policy.size >= 1:
        yield f"add-stateful in lan ip-saddr 10.0.0.0/24 ip-proto tcp tcp-syn shuffle tcp-sport mod ip-saddr {TRANSLATED}"
    if policy.kind == "balance":
        yield f"add-stateful in lan ip-daddr {BALANCED} ip-proto tcp lb ip-daddr {{{', '.join(SERVERS)}}} rr"
    if policy.kind == "chain" and policy.size >= 2:
        yield "add-stateful ip-proto tcp digest"
    if policy.kind == "patterns" or policy.kind == "chain" and policy.size >= 3:
        yield f"patterns literals {literals}"
        yield "add-stateful ip-proto tcp stream @literals close"
    if policy.kind == "rewrite-body":
        yield f'add-stateful tcp-dport 80 http-body "{WORD}" mod http-body "{policy.replacement()}"'
    if policy.kind == "rewrite-mask":
        yield f'add-stateful tcp-dport 80 stream-reply "{WORD}" mask stream-reply'
    if policy.kind == "rewrite-head":
        yield f'add-stateful tcp-dport 80 http-header "Server" mod http-header "Server" "{SERVER_NAME}"'
