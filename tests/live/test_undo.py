"""The history of the policy and the ways back: versions over restarts, the audit, batches, changes that have to be confirmed."""

import json
import os
import time
from contextlib import closing

import pytest

from lab.process import wait_until

from .programs import ping
from .topology import SERVER4

DROP = "add id 1 icmp-type echo-request drop"


@pytest.fixture
def site(fresh):
    return fresh("af_packet")


@pytest.fixture
def policy(site):
    """The daemon's policy file, which lets pings pass."""
    path = site.folder / "policy.mmb"
    path.write_text("add id 7 icmp-type echo-request mod ip-dscp ef\n")
    return path


@pytest.fixture
def kept(fresh, site, policy):
    """A daemon with a policy file and a directory for the history."""
    return fresh.daemon(site, "-c", policy, "--history", site.folder / "history")


def options(site, policy):
    return "-c", policy, "--history", site.folder / "history"


def audit(mmb):
    lines = (line.split("audit ", 1)[1] for line in mmb.output().splitlines() if "audit " in line)
    return [json.loads(line) for line in lines]


def versions(mmb):
    return [entry["version"] for entry in mmb.ask("history")["history"] if "version" in entry]


def test_versions_are_restored_while_traffic_flows_and_found_again_after_a_kill(site, policy, kept):
    kept(DROP)
    assert ping(site, SERVER4, count=2) == 0
    kept("rollback")
    assert ping(site, SERVER4, count=2) == 2
    assert kept.ask("diff 1") == {"from": 1, "to": 3, "removed": [], "added": []}
    assert kept("diff 2 3").splitlines() == ["--- version 2", "+++ version 3", f"- {DROP}"]
    kept.kill()
    kept.start(*options(site, policy))
    # The restart is a version of its own, the same as the first.
    assert versions(kept) == [1, 2, 3, 4]
    kept("rollback 2")
    assert ping(site, SERVER4, count=2) == 0
    folder = site.folder / "history"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.glob("policy-*"))


def test_the_audit_tells_who_has_done_what(site, kept):
    kept(DROP)
    kept.refused("del 99")
    kept("conn kill all")
    kept("clear counters")
    lines = wait_until(lambda: len(audit(kept)) >= 4 and audit(kept), "the lines are written")
    assert [(line["action"], line["command"]) for line in lines] == [
        ("change", DROP), ("change", "del 99"), ("kill", "conn kill all"), ("clear", "clear counters"),
    ]
    assert all(line["uid"] == os.getuid() and line["pid"] > 0 and line["time"].endswith("Z") for line in lines)
    assert (lines[0]["version"], lines[0]["added"]) == (2, 1) and "no rule 99" in lines[1]["refused"]
    start, *listed = kept.ask("history")["history"]
    assert start["action"] == "start" and [entry["command"] for entry in listed] == [line["command"] for line in lines]


def test_many_small_changes_are_all_kept(kept):
    """As fast as a client can send them, beside a policy of many rules."""
    large = "".join(f"add ip-saddr 10.{n >> 8}.{n & 255}.1 drop\n" for n in range(20_000))
    assert kept.client("batch", input=large, timeout=60).returncode == 0
    with kept.shell() as shell:
        output, _ = shell.communicate("".join(f"add udp-dport {port} accept\n" for port in range(1, 1001)), timeout=120)
    assert shell.returncode == 0, output
    assert versions(kept)[-1] == 1002
    assert len(kept.ask("diff 2")["added"]) == 1000
    kept("rollback 500")
    assert len(kept.ask("list --terse")["rules"]) == 1 + 20_000 + 498
    stored = sum(path.stat().st_size for path in (kept.socket.parent / "history").glob("policy-*"))
    assert stored < 2_000_000, "one rule more is not a policy more"


def test_a_change_that_cuts_off_its_operator_is_taken_back(site, kept):
    """The client dies right after its change, and nobody confirms it."""
    blocking = site.folder / "blocking.mmb"
    blocking.write_text(f"{DROP}\n")
    answer = kept.ask("apply", blocking, "--confirm", 2)
    assert (answer["unconfirmed"]["version"], answer["unconfirmed"]["before"]) == (2, 1)
    assert ping(site, SERVER4, count=2) == 0
    wait_until(lambda: "unconfirmed" not in kept.ask("show version"), "the wait is over")
    assert ping(site, SERVER4, count=2) == 2
    last = kept.ask("history")["history"][-1]
    assert last["command"] == "rollback 1 (version 2 was not confirmed within 2 s)" and last["pid"] == kept.process.pid
    wait_until(lambda: audit(kept)[-1]["command"] == last["command"], "the audit tells it")


def test_a_reload_during_the_wait_is_refused_and_a_rollback_ends_it(site, policy, kept):
    change = site.folder / "change.mmb"
    change.write_text("add name guests all mod ip-ttl 7\nflush\nadd id 9 all mod ip-dscp 0\n")
    kept("batch", change, "--confirm", 1000)
    message = kept.refused("add all drop")
    assert "version 2 of the policy waits for its confirmation, for another" in message and str(change) in message
    kept.process.signal(1)
    wait_until(lambda: "the policy in force stays" in kept.output(), "the reload is refused")
    assert [rule["id"] for rule in kept.ask("list")["rules"]] == [9]
    assert kept.ask("show runtime")["unconfirmed"]["command"] == f"batch {change}"
    kept("rollback")
    assert [rule["id"] for rule in kept.ask("list")["rules"]] == [7]
    kept("batch", change, "--confirm", 1000)
    assert "version 4 of the policy is confirmed" in kept("confirm")
    kept("flush")


@pytest.mark.parametrize("end", ("kill", "stop"))
def test_a_restart_does_not_make_an_unconfirmed_policy_permanent(site, policy, kept, end):
    """As with the unit: the policy file itself was edited and applied."""
    policy.write_text(f"{DROP}\n")
    kept("apply", policy, "--confirm", 1000)
    assert ping(site, SERVER4, count=2) == 0
    getattr(kept, end)()
    kept.start(*options(site, policy))
    assert ping(site, SERVER4, count=2) == 2
    assert "was not confirmed: version 1 is in force" in kept.output()
    # A file that was repaired is in force.
    policy.write_text("add id 8 icmp-type echo-request mod ip-ttl 9\n")
    kept.stop()
    kept.start(*options(site, policy))
    assert [rule["id"] for rule in kept.ask("list")["rules"]] == [8]


def test_what_is_taken_back_ends_connections_as_the_change_would(site, kept):
    """`--kill`: connections of rules that go end, of the change and of the way back."""
    change = site.folder / "change.mmb"
    change.write_text("add-stateful id 20 ip-proto icmp accept\n")
    kept("apply", change, "--confirm", 1000, "--kill")
    assert ping(site, SERVER4, count=1) == 1
    assert len(kept.connections("rule 20")) == 1
    answer = kept.ask("rollback")
    assert answer["killed"] == 1 and kept.connections() == []
