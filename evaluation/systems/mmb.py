"""mmb in the middle, a bump in the wire with one worker."""

import lab.daemon
from evaluation.policies import FUNCTIONS, REWRITING, SERVER_NAME, TCP, WORD, Policy
from evaluation.topology import BALANCED, CLIENT, SERVERS, TRANSLATED

from .base import System, Unable


# Policies that have a list of literals.
SEARCHING = ("chain", "patterns")


class Mmb(System):
    """Its two interfaces by their names alone, and every setting at its default: the driver is mmb's choice. It waits as it does by default
    (adaptive), so that its share of the core is meaningful."""

    name = "mmb"
    title = "mmb"
    # What stands before the name of an interface, and the driver that must come of it (None: any).
    form = ""
    driver = None
    # Whether the kernel forwards settled flows: None leaves it at the default.
    offload = None
    daemon = None
    kinds = ("none", "firewall", "stateful", "nat", "masquerade", "options", "masks", "balance", "chain", "patterns", *REWRITING)
    functions = tuple(range(len(FUNCTIONS)))

    def open(self):
        super().open()
        ports = {"lan": f"{self.form}vl", "wan": f"{self.form}vr"}
        self.daemon = lab.daemon.Mmb(self.site.middle, self.folder, ports)
        try:
            with self.cores.on_middle(), self.site.receiving_on_middle():
                self.daemon.start()
        except lab.daemon.DidNotStart as error:
            raise Unable(" ".join(str(error).split())[:300]) from error
        drivers = {port["driver"] for port in self.daemon.ask("show", "ports")["ports"]}
        if self.driver not in (None, *drivers) or len(drivers) > 1:
            raise Unable(f"{self.form or 'a plain name '}falls back to {', '.join(sorted(drivers))} here")

    def install(self, policy):
        path = self.folder / "policy.mmb"
        literals = self.folder / "literals.txt"
        if policy.kind in SEARCHING:
            literals.write_text("".join(f"{literal}\n" for literal in policy.literals()))
        path.write_text("".join(f"{line}\n" for line in (*settings(self.offload), *rules(policy, literals))))
        with self.site.receiving_on_middle():
            done = self.daemon.client("apply", path, check=False, timeout=120)
        if done.returncode != 0:
            raise Unable(f"mmb refuses the policy: {done.stderr.strip().splitlines()[0]}")
        self.site.rewriting = policy if policy.kind in REWRITING else None

    def forget(self):
        self.daemon("conn kill all")

    def close(self):
        if self.daemon is not None:
            self.daemon.close()
        super().close()


class OffloadOff(Mmb):
    """Every packet goes through mmb."""

    name = "mmb-offload-off"
    title = "mmb, offload off"
    offload = "off"


class WithoutRules(Mmb):
    """The path of `Mmb` without rules: what rules add is the difference."""

    name = "mmb-no-rules"
    title = "mmb, no rules"
    kinds = REWRITING

    def install(self, policy):
        super().install(Policy("none"))


class AfXdp(Mmb):
    """A socket of AF_XDP for each interface, through which every packet goes."""

    name = "mmb-af_xdp"
    title = "mmb, AF_XDP"
    form = "af_xdp:"
    driver = "net_af_xdp"


class AfPacket(Mmb):
    name = "mmb-af_packet"
    title = "mmb, AF_PACKET"
    form = "af_packet:"
    driver = "af_packet"


def settings(offload):
    """The settings of a policy: whether the kernel forwards settled flows (`auto` or `off`; None leaves it at the default)."""
    return [] if offload is None else [f"set offload {offload}"]


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
    if policy.kind in ("nat", "masquerade") or policy.kind == "chain" and policy.size >= 1:
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
