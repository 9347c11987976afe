"""HAProxy in TCP mode in the middle: it terminates connections and opens new ones."""

from evaluation.loads import FIRST_PORT, Iperf
from evaluation.topology import BALANCED, MIDDLE, SERVER, SERVERS

from .base import System

CONFIG = """
global
    maxconn 8192
    nbthread 1
defaults
    mode tcp
    timeout connect 5s
    timeout client 30s
    timeout server 30s
frontend balanced
    bind {balanced}:80
    default_backend servers
backend servers
    balance roundrobin
{servers}
frontend diverted
    bind {diverted}
    default_backend server
backend server
    server s {server}
"""

# Connections to the server itself reach it too. Its connection to the server has the same port.
PORTS = (80, *range(FIRST_PORT, FIRST_PORT + Iperf.pairs))
DIVERT = """table ip evaluation {{
chain before {{
type nat hook prerouting priority dstnat;
iifname "vl" ip daddr {server} tcp dport {{ {ports} }} dnat to {middle}
}}
}}
"""


class Haproxy(System):
    """One thread on the middle's core."""

    name = "haproxy"
    title = "HAProxy"
    programs = ("haproxy", "nft")
    routed = True
    kinds = ("balance", "chain")
    # It hides the client's address, and has the bytes of both directions in order.
    functions = (2,)

    def open(self):
        super().open()
        self.site.middle.ip("addr", "add", f"{BALANCED}/32", "dev", "lo")
        servers = "\n".join(f"    server s{n} {address}:80" for n, address in enumerate(SERVERS))
        config = self.folder / "haproxy.cfg"
        near = MIDDLE["vl"]
        diverted = ",".join(f"{near}:{port}" for port in PORTS)
        config.write_text(CONFIG.format(balanced=BALANCED, servers=servers, diverted=diverted, server=SERVER))
        ports = ", ".join(map(str, PORTS))
        self.loader(["nft", "-f", "-"], DIVERT.format(server=SERVER, ports=ports, middle=near))
        with self.cores.on_middle():
            process = self.site.start(self.site.middle, ["haproxy", "-db", "-f", config], "haproxy")
        process.wait_listening(80)
