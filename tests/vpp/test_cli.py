"""The language in VPP's command line, and on the control socket at the same time."""

from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from lab.generator import IN, MAC, Generator
from lab.process import Background, wait_until
from lab.vpp import program

from .playing import play

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
# The command lines of the original user guide, each a policy of the golden cases.
GUIDE = [line for policy in sorted(GOLDEN.glob("guide-*/policy.mmb")) for line in policy.read_text().splitlines()]

MANY = 20_000


@pytest.mark.parametrize("line", GUIDE)
def test_command_lines_of_the_original_work_as_typed(vpp, line):
    vpp.mmb(line)
    (rule,) = vpp.rules().values()
    assert rule["rule"] == line
    assert line.removeprefix("add ") in vpp.mmb("list")


def test_rules_are_added_listed_and_deleted(vpp):
    vpp.mmb("add id 3 udp-dport 53 drop")
    vpp.mmb("add id 5 prio 7 name web tcp-dport 80 accept")
    assert set(vpp.rules()) == {3, 5}
    vpp.mmb("del 3")
    assert set(vpp.rules()) == {5}
    assert "53" not in vpp.mmb("list") and "web" in vpp.mmb("list")
    vpp.mmb("flush")
    assert vpp.rules() == {}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("add tcp-dprot 80 drop", ["mmb add: ", "tcp-dprot", "tcp-dport", "^"]),
        ("add tcp-dport 80", ["mmb add: ", "drop"]),
        ("add in nowhere drop", ["mmb add: ", "nowhere", "local0"]),
        ("add ip-proto tcp map ip-saddr 192.0.2.1", ["mmb add: ", "add-stateful"]),
        ("del 9", ["mmb del: ", "9"]),
        ("enable nowhere", ["mmb enable: ", "nowhere", "local0"]),
        ("apply /nowhere/at/all", ["mmb apply: ", "/nowhere/at/all"]),
        ("frobnicate", ["frobnicate"]),
    ],
)
def test_what_is_wrong_is_said_as_vpp_says_it(vpp, line, expected):
    vpp.mmb("add udp-dport 53 drop")
    before = vpp.rules()
    output = vpp.mmb(line)
    assert [word for word in expected if word not in output] == [], output
    assert "error: " not in output
    assert vpp.rules() == before


def test_a_file_with_errors_changes_nothing_and_all_of_them_are_shown(vpp, tmp_path):
    vpp.mmb("add udp-dport 53 drop")
    before = vpp.rules()
    file = tmp_path / "wrong.mmb"
    file.write_text("add tcp-dport 80 drop\nadd tcp-dprot 80 drop\nadd udp-dport 99999 drop\n")
    output = vpp.mmb(f"apply {file}")
    assert f"{file}:2" in output and f"{file}:3" in output
    assert vpp.rules() == before


def test_a_long_listing_comes_whole(vpp):
    rules = [f"add udp-dport {number % 60_000 + 1} ip-id {number % 7} drop" for number in range(1, MANY + 1)]
    vpp.apply("".join(f"{rule}\n" for rule in rules))
    lines = vpp.mmb("list --terse").splitlines()[1:]
    assert [line.split(maxsplit=1) for line in lines if line] == [[str(n), rule] for n, rule in enumerate(rules, start=1)]
    assert vpp.mmb("list").rstrip().endswith(f"{MANY} rules")


def test_every_show_answers(vpp):
    vpp.mmb("add-stateful udp-dport 53 accept")
    for what in ("tables", "ports", "errors", "runtime", "offload", "settings", "version", "connections", "conn summary"):
        output = vpp.mmb(f"show {what}")
        assert output.strip() and "unknown" not in output, what
        assert vpp.ask(f"show mmb {what}").split() != []
    assert "local0" in vpp.mmb("show ports")


def test_the_socket_and_the_command_line_see_the_same(vpp):
    vpp.client("add id 1 udp-dport 53 drop")
    assert "udp-dport 53" in vpp.mmb("list")
    vpp.mmb("add id 2 udp-dport 54 drop")
    assert set(vpp.rules()) == {1, 2}
    vpp.client("del 1")
    assert "udp-dport 53" not in vpp.mmb("list")


def test_what_was_saved_can_be_applied(vpp, tmp_path):
    vpp.mmb("add id 4 name web tcp-dport 80 mod tcp-dport 8080")
    file = tmp_path / "saved.mmb"
    vpp.mmb(f"save {file}")
    before = vpp.rules()
    vpp.mmb("flush")
    vpp.mmb(f"apply {file}")
    assert vpp.rules() == before


def test_the_monitor_tells_of_connections_until_its_client_goes(vpp):
    generator = Generator(vpp)
    vpp.enable(IN)
    vpp.apply("add-stateful all accept")
    with Background([program().with_name("vppctl"), "-s", vpp.socket, "mmb monitor"], vpp.folder / "monitor.log") as monitor:
        wait_until(lambda: "watching" in monitor.output(), "the monitor watches")
        play(generator, [bytes(Ether(dst=MAC) / IP(src="10.0.0.1", dst="198.51.100.1") / UDP(sport=5000, dport=9000))])
        wait_until(lambda: "198.51.100.1" in monitor.output(), "it tells of a connection")
    assert vpp.mmb("show version").startswith("mmb ")



@pytest.mark.parametrize("text", [r'"\x00"', '"$HOME"', '"GET"', '"caf\u00e9"'])
def test_quoted_text_that_vpp_may_have_changed_adds_no_rule(vpp, text):
    output = vpp.mmb(f"add payload {text} drop")
    assert output.startswith("mmb add: ") and ("|47 45 54|" in output or "|c3 a9|" in output)
    assert vpp.rules() == {}
    vpp.mmb("add payload |00 5c 78| drop")
    assert [rule["rule"] for rule in vpp.rules().values()] == ["add payload |00 5c 78| drop"]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("add out pg1 drop", "out"),
        ("add vlan-id 7 drop", "vlan-id"),
        ("add all mod vlan-id 7", "vlan-id"),
        ("add eth-type arp drop", "eth-type"),
        ("set poll spin", "poll"),
    ],
)
def test_what_can_mean_nothing_in_vpp_is_refused_with_the_reason(vpp, tmp_path, line, word):
    file = tmp_path / "policy.mmb"
    file.write_text(f"add udp-dport 53 drop\n{line}\n")
    for command in (line, f"apply {file}"):
        output = vpp.mmb(command)
        assert word in output and "VPP" in output and "^" in output, output
        assert vpp.rules() == {}


def test_errors_in_scripts_are_logged(vpp, tmp_path):
    script = tmp_path / "script.cli"
    script.write_text("mmb add tcp-dprot 80 drop\n")
    vpp.ask(f"exec {script}")
    assert "mmb add tcp-dprot 80 drop" in vpp.ask("show logging")
