"""VPP's packet generator: it replays captures into one interface; VPP routes them out of another.

    capture ──► [pg0] ip4-input … ip4-lookup [pg1] ──► capture
"""

import contextlib

from .process import wait_until

IN, OUT = "pg0", "pg1"
# The destination MAC address of captures (VPP accepts no other), and the one to which VPP sends all packets.
MAC, OUT_MAC = "02:00:00:00:00:02", "02:00:00:00:00:08"
NEXT_HOP = "02:00:00:00:00:09"

# No capture has addresses of these networks: VPP routes all packets and resolves none on a link.
_INTERFACES = f"""
create packet-generator interface {IN} hw-addr {MAC}
create packet-generator interface {OUT} hw-addr {OUT_MAC}
set interface state {IN} up
set interface state {OUT} up
set interface ip address {IN} 203.0.113.1/30
set interface ip address {OUT} 203.0.113.5/30
set interface ip address {IN} fd6d:6d62:1::1/64
set interface ip address {OUT} fd6d:6d62:2::1/64
set ip neighbor {OUT} 203.0.113.6 {NEXT_HOP}
set ip neighbor {OUT} fd6d:6d62:2::2 {NEXT_HOP}
ip route add 0.0.0.0/0 via 203.0.113.6 {OUT}
ip route add ::/0 via fd6d:6d62:2::2 {OUT}
"""


class Generator:
    """The two interfaces of a running VPP."""

    def __init__(self, vpp):
        self.vpp = vpp
        vpp.configure(*_INTERFACES.strip().splitlines())

    def play(self, capture, limit=0, together=256, source=IN, timeout=60):
        """Sends the packets of a file in turn: up to `limit` packets (0: each once), `together` in a vector."""
        stream = f"packet-generator new {{ name s source {source} pcap {capture} limit {limit} maxframe {together} }}"
        self.vpp.configure(stream, "packet-generator enable-stream s")
        try:
            wait_until(self._through, "VPP sends the whole capture", timeout)
        finally:
            self.vpp.configure("packet-generator delete s")

    def _through(self):
        """Whether the stream is at its end and every buffer is free again."""
        return "Yes" not in self.vpp.ask("show packet-generator") and self.vpp.buffers_used() == 0

    @contextlib.contextmanager
    def captured(self, path, interface=OUT):
        """Captures the packets that leave by the interface in the meantime to the file. Without packets there is no file."""
        path.unlink(missing_ok=True)
        self.vpp.configure(f"packet-generator capture {interface} pcap {path}")
        try:
            yield
        finally:
            self.vpp.configure(f"packet-generator capture {interface} disable")
