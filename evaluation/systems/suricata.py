"""Suricata in the middle, inline between two interfaces: it reassembles streams, searches them, and drops what matches."""

from evaluation.topology import MIDDLE
from lab.process import wait_until

from .base import System, Unable

STARTED = "Engine started"
START_TIMEOUT_S = 60

# Streams without an end of what is searched, and no parsers of application protocols: it searches bytes, as mmb does.
CONFIG = """%YAML 1.1
---
default-log-dir: {folder}
vars:
  address-groups: {{ HOME_NET: "any", EXTERNAL_NET: "any" }}
outputs:
  - fast: {{ enabled: yes, filename: fast.log }}
logging:
  default-log-level: notice
  outputs:
    - console: {{ enabled: yes }}
af-packet:
  - {{ interface: vl, copy-iface: vr, copy-mode: ips, threads: 1, cluster-id: 98, cluster-type: cluster_flow, ring-size: 8192 }}
  - {{ interface: vr, copy-iface: vl, copy-mode: ips, threads: 1, cluster-id: 99, cluster-type: cluster_flow, ring-size: 8192 }}
app-layer: {{ protocols: {{ tls: {{ enabled: no }}, http: {{ enabled: no }} }} }}
stream: {{ memcap: 1gb, inline: yes, checksum-validation: yes, reassembly: {{ memcap: 1gb, depth: 0 }} }}
flow: {{ memcap: 256mb }}
mpm-algo: hs
spm-algo: hs
default-rule-path: {folder}
rule-files: [literals.rules]
"""


class Suricata(System):
    """One thread for each direction, both on the middle's core. It is started again for each policy."""

    name = "suricata"
    title = "Suricata"
    programs = ("suricata",)
    kinds = ("none", "patterns")
    process = None

    def install(self, policy):
        self._stop()
        (self.folder / "suricata.yaml").write_text(CONFIG.format(folder=self.folder))
        (self.folder / "literals.rules").write_text("".join(f"{line}\n" for line in rules(policy)))
        log = self.folder / "suricata.log"
        log.unlink(missing_ok=True)
        words = ["suricata", "--af-packet", "-c", self.folder / "suricata.yaml", "-l", self.folder]
        with self.cores.on_middle():
            self.process = self.site.middle.start(words, log)
        wait_until(lambda: STARTED in self.process.output() or not self.process.running(), "Suricata starts", START_TIMEOUT_S)
        if not self.process.running():
            raise Unable(f"suricata: {' '.join(self.process.output().split())[-300:]}")
        for device in MIDDLE:
            self.site.middle.ip("link", "set", device, "promisc", "on")

    def _stop(self):
        if self.process is not None:
            self.process.close()
            self.process = None

    def close(self):
        self._stop()
        super().close()


def rules(policy):
    """The literals as its rules, in either direction of a connection."""
    if policy.kind == "patterns":
        for number, literal in enumerate(policy.literals(), 1):
            yield f'drop tcp any any -> any any (msg:"{number}"; content:"{literal}"; sid:{number};)'
