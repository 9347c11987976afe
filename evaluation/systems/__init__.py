"""The systems that are compared, in the order of tables."""

from .base import Direct, System, Unable
from .haproxy import Haproxy
from .kernel import Forwarding, Iptables, Nftables
from .mmb import AfPacket, AfXdp
from .suricata import Suricata
from .xdp import Xdp

ALL = {kind.name: kind for kind in (Direct, Forwarding, AfXdp, AfPacket, Nftables, Iptables, Xdp, Haproxy, Suricata)}

__all__ = ["ALL", "System", "Unable"]
