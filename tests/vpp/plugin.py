"""A VPP with mmb in it, and clients of its control socket."""

import json

from lab.daemon import BINARY, numbered
from lab.process import run
from lab.vpp import PLUGIN, Vpp


class WithMmb(Vpp):
    """`policy`: a file to start with; `section`: more of startup.conf's section mmb."""

    def __init__(self, folder, policy=None, section="", **options):
        self.control = folder / "mmb.sock"
        ours = f"mmb {{ socket {self.control} {section} {f'policy {policy}' if policy else ''} }}"
        options["sections"] = f"{ours}\n{options.get('sections', '')}"
        super().__init__(folder, plugin=PLUGIN, **options)

    def mmb(self, command, **options):
        """The output of `vppctl mmb …`."""
        return self.ask(f"mmb {command}", **options)

    def enable(self, *interfaces):
        for interface in interfaces:
            output = self.mmb(f"enable {interface}")
            assert output.startswith(f"{interface} is enabled"), output

    def client(self, command, check=True):
        """The program mmb as a client of the control socket."""
        return run([BINARY, *command.split(), "--socket", self.control], check=check)

    def json(self, command):
        return json.loads(self.client(f"{command} --json").stdout)

    def rules(self):
        """The rules in force, by number."""
        return {rule["id"]: rule for rule in self.json("list")["rules"]}

    def drops(self):
        """Drops by reason, as mmb counts them since it started."""
        return {reason: count for reason, count in self.json("show errors")["drops"].items() if count}

    def apply(self, policy):
        """Puts a policy in force as a whole, with rules numbered from 1; no connection of an earlier policy stays."""
        path = self.folder / "policy.mmb"
        path.write_text("".join(f"{command}\n" for command in numbered(policy.splitlines())))
        self.client("conn kill all")
        self.client(f"apply {path}")
