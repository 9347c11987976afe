"""The systems that are compared, in the order of tables."""

from . import proxies
from .base import Direct, System, Unable
from .haproxy import Haproxy
from .kernel import Forwarding, Iptables, Nftables
from .mmb import AfPacket, AfXdp, Mmb, OffloadOff, WithoutRules
from .suricata import Suricata
from .xdp import Xdp

OURS = (Mmb, OffloadOff, WithoutRules, AfXdp, AfPacket)
KINDS = (Direct, Forwarding, *OURS, Nftables, Iptables, Xdp, Haproxy, Suricata, *proxies.KINDS)
ALL = {kind.name: kind for kind in KINDS}


def takes_part(system, policy):
    """Whether a system has a row for a policy. Of the chain it has those that it supports: the others would say nothing."""
    return policy.kind != "chain" or policy.size in system.functions


__all__ = ["ALL", "System", "Unable", "takes_part"]
