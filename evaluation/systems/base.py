"""The interface of every system."""

import shutil
from pathlib import Path

from evaluation.policies import FUNCTIONS
from evaluation.topology import Site


class Unable(Exception):
    """The system cannot do this, by design or on this machine; the text gives the reason, for a row of the results."""


class System:
    """A system between a client and a server. It is `opened` once, gets one policy after another, and is closed."""

    name = ""
    title = ""
    # The programs that it runs; if one is missing, the system is absent for that reason.
    programs = ()
    # Whether Linux routes in the middle.
    routed = False
    # The kinds of policies that it supports, and the maximum number of rules of a kind that a run waits for.
    kinds = ("none",)
    most = {}
    # The sizes of the chain of functions that it supports.
    functions = ()

    def __init__(self, folder, cores, offloads=False):
        self.folder, self.cores, self.offloads = Path(folder) / self.name, cores, offloads
        self.site = None

    def open(self):
        missing = [program for program in self.programs if shutil.which(program) is None]
        if missing:
            raise Unable(f"{', '.join(missing)} not installed here")
        self.site = self.make_site()

    def make_site(self):
        return Site(self.folder, self.cores, routed=self.routed, offloads=self.offloads)

    def need(self, policy):
        """Raises `Unable` for a policy that the system does not support."""
        if policy.kind not in self.kinds:
            raise Unable(self.why_not(policy.kind))
        if policy.kind == "chain" and policy.size not in self.functions:
            raise Unable(f"{self.title} does no chain that ends with {FUNCTIONS[policy.size]}")
        if policy.size > self.most.get(policy.kind, policy.size):
            raise Unable(f"left out: holds each packet against every rule, {self.most[policy.kind]:,} show what that costs")

    def why_not(self, kind):
        return f"{self.title} does no {kind}"

    def install(self, policy):
        """Puts the policy in force in place of the previous one."""

    def forget(self):
        """Deletes its connections, before a run."""

    def close(self):
        if self.site is not None:
            self.site.close()
            self.site = None

    def loader(self, words, text):
        """Runs a program in the middle that reads its commands from standard input."""
        done = self.site.middle.run(*words, input=text, check=False, timeout=600)
        if done.returncode != 0:
            raise Unable(f"{words[0]}: {' '.join(done.stderr.split())[:300]}")


class Direct(System):
    """The ends on one veth pair: the limit of the generators."""

    name = "direct"
    title = "no middle"

    def make_site(self):
        return Site(self.folder, self.cores, direct=True, offloads=self.offloads)
