"""HAProxy in TCP mode in the middle: it terminates connections and opens new ones."""

from evaluation.topology import BALANCED, SERVERS

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
"""


class Haproxy(System):
    """One thread on the middle's core."""

    name = "haproxy"
    title = "HAProxy"
    programs = ("haproxy",)
    routed = True
    kinds = ("balance",)

    def open(self):
        super().open()
        self.site.middle.ip("addr", "add", f"{BALANCED}/32", "dev", "lo")
        servers = "\n".join(f"    server s{n} {address}:80" for n, address in enumerate(SERVERS))
        config = self.folder / "haproxy.cfg"
        config.write_text(CONFIG.format(balanced=BALANCED, servers=servers))
        with self.cores.on_middle():
            process = self.site.start(self.site.middle, ["haproxy", "-db", "-f", config], "haproxy")
        process.wait_listening(80)
