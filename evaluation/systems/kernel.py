"""Linux in the middle: plain forwarding, iptables, nftables."""

from evaluation.policies import REWRITING, TCP
from evaluation.topology import BALANCED, CLIENT, SERVERS, TRANSLATED

from .base import System

LOADED_AT_ONCE = 50_000


class Forwarding(System):
    """The kernel routes without filters. Where others filter, translate or rewrite, it is the path without that."""

    name = "forward"
    title = "kernel forwarding"
    routed = True
    kinds = ("none", "firewall", "stateful", "nat", "masquerade", "chain", *REWRITING)
    functions = (0,)


class Tracking(System):
    """Filters that share the kernel's connection tracking."""

    routed = True
    programs = ("conntrack",)

    def forget(self):
        self.site.middle.run("conntrack", "-F", check=False)


def _protocol(number):
    return "tcp" if number == TCP else "udp"


class Iptables(Tracking):
    """Rules in the chain FORWARD, one after the other."""

    name = "iptables"
    title = "iptables"
    programs = ("iptables-legacy-restore", "conntrack")
    kinds = ("none", "firewall", "stateful", "nat", "masks", "balance")
    most = {"firewall": 10_000, "stateful": 100_000}

    def why_not(self, kind):
        return "iptables matches the presence of an option, not its value" if kind == "options" else super().why_not(kind)

    def install(self, policy):
        super().install(policy)
        self.loader(["iptables-legacy-restore"], "".join(f"{line}\n" for line in iptables(policy)))


def iptables(policy):
    """The input of iptables-restore."""
    yield "*filter"
    if policy.kind == "stateful":
        yield "-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT"
    if policy.kind in ("firewall", "stateful"):
        for rule in policy.tuples():
            yield (
                f"-A FORWARD -s {rule.source} -d {rule.destination} -p {_protocol(rule.protocol)}"
                f" --sport {rule.source_port} --dport {rule.destination_port} -j DROP"
            )
    if policy.kind == "masks":
        for rule in policy.shapes():
            sport = f" --sport {rule.source_port}" if rule.source_port else ""
            yield (
                f"-A FORWARD -s {rule.source} -d {rule.destination} -p {_protocol(rule.protocol)}{sport}"
                f" --dport {rule.destination_port} -j DROP"
            )
    yield "COMMIT"
    yield "*nat"
    if policy.kind == "nat":
        yield f"-A POSTROUTING -s {CLIENT}/24 -p tcp -j SNAT --to-source {TRANSLATED} --random"
    if policy.kind == "balance":
        for left in range(len(SERVERS), 0, -1):
            turn = f" -m statistic --mode nth --every {left} --packet 0" if left > 1 else ""
            yield f"-A PREROUTING -d {BALANCED} -p tcp{turn} -j DNAT --to-destination {SERVERS[left - 1]}"
    yield "COMMIT"


class Nftables(Tracking):
    """Sets for five-tuples and for the values of options; consecutive rules for everything that does not fit in a set."""

    name = "nftables"
    title = "nftables"
    programs = ("nft", "conntrack")
    kinds = ("none", "firewall", "stateful", "nat", "masquerade", "options", "masks", "balance", "chain")
    functions = (1,)

    def install(self, policy):
        super().install(policy)
        # Bytes for each connection, which mmb always counts.
        self.site.middle.sysctl(net__netfilter__nf_conntrack_acct=int(policy.kind == "chain"))
        self.loader(["nft", "-f", "-"], "flush ruleset\n" + nftables(policy))
        if policy.kind in ("firewall", "stateful"):
            elements = [element(rule) for rule in policy.tuples()]
            for start in range(0, len(elements), LOADED_AT_ONCE):
                chosen = ",".join(elements[start : start + LOADED_AT_ONCE])
                self.loader(["nft", "-f", "-"], f"add element ip evaluation blocked {{ {chosen} }}\n")


def element(rule):
    """A five-tuple as an element of the set."""
    protocol = _protocol(rule.protocol)
    return f"{rule.source} . {rule.destination} . {protocol} . {rule.source_port} . {rule.destination_port}"


def nftables(policy):
    """The table for a policy, without the elements of its large set."""
    sets, forward, before, behind = [], [], [], []
    if policy.kind in ("firewall", "stateful"):
        sets.append("set blocked { type ipv4_addr . ipv4_addr . inet_proto . inet_service . inet_service; }")
        if policy.kind == "stateful":
            forward.append("ct state established,related accept")
        forward.append("ip saddr . ip daddr . ip protocol . th sport . th dport @blocked drop")
    if policy.kind == "masks":
        for rule in policy.shapes():
            protocol = _protocol(rule.protocol)
            sport = f"{protocol} sport {rule.source_port} " if rule.source_port else ""
            ends = f"ip saddr {rule.source} ip daddr {rule.destination}"
            forward.append(f"{ends} {sport}{protocol} dport {rule.destination_port} drop")
    if policy.kind == "options":
        values = {}
        for kind, value in policy.options():
            values.setdefault(kind, []).append(f"{value:#x}")
        forward += [f"tcp option @{kind},16,32 {{ {', '.join(chosen)} }} drop" for kind, chosen in values.items()]
    if policy.kind in ("nat", "chain"):
        behind.append(f"ip saddr {CLIENT}/24 ip protocol tcp snat to {TRANSLATED} random")
    if policy.kind == "masquerade":
        behind.append(f"ip saddr {CLIENT}/24 ip protocol tcp oifname vr masquerade")
    if policy.kind == "balance":
        pool = ", ".join(f"{n} : {server}" for n, server in enumerate(SERVERS))
        before.append(f"ip daddr {BALANCED} ip protocol tcp dnat to numgen inc mod {len(SERVERS)} map {{ {pool} }}")
    chains = [_chain("forward", "type filter hook forward priority filter;", forward)]
    if before:
        chains.append(_chain("before", "type nat hook prerouting priority dstnat;", before))
    if behind:
        chains.append(_chain("behind", "type nat hook postrouting priority srcnat;", behind))
    return "\n".join(["table ip evaluation {", *sets, *chains, "}"]) + "\n"


def _chain(name, head, rules):
    return "\n".join([f"chain {name} {{", head, *rules, "}"])
