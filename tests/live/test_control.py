"""The control socket of a daemon that forwards: commands, policy files, and misbehaving clients."""

import contextlib
import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from .programs import NumberedStream, ping
from .topology import SERVER4

RULES = [
    "add prio 10 udp-dport dns accept",
    "add name quiet icmp-type echo-request drop 0.001",
    "add tcp-syn strip ! tcp-opt-mss",
]


def test_rules_are_added_listed_and_deleted(site, mmb):
    mmb("add id 1 icmp-type echo-request mod ip-dscp ef")
    mmb("add id 7 prio 3 name web tcp-dport 80 accept")
    assert ping(site, SERVER4, count=4) == 4
    first, second = mmb.ask("list")["rules"]
    assert (first["id"], first["packets"], first["bytes"]) == (1, 4, 4 * 98)
    assert (second["id"], second["packets"]) == (7, 0)
    assert second["rule"] == "add prio 3 name web tcp-dport 80 accept" or "http" in second["rule"]
    assert "echo-request" in mmb("list") and "echo-request" in mmb("list --terse")
    mmb("del 1")
    assert [rule["id"] for rule in mmb.ask("list")["rules"]] == [7]
    assert "9" in mmb.refused("del 9")
    mmb("flush")
    assert mmb.ask("list")["rules"] == []


def test_a_bad_command_changes_nothing_and_says_where(mmb):
    mmb("add udp-dport 53 drop")
    before = mmb.ask("list")
    message = mmb.refused("add tcp-dprt 80 drop")
    assert "tcp-dport" in message and "^" in message
    assert "nowhere" in mmb.refused("add in nowhere drop")
    assert "add-stateful" in mmb.refused("add ip-proto tcp map ip-saddr 192.0.2.1")
    assert mmb.ask("list") == before


def test_every_show_answers_in_words_and_in_json(site, mmb):
    mmb.apply(site.folder, *RULES)
    assert ping(site, SERVER4, count=2) >= 1
    for what in ("tables", "ports", "errors", "runtime", "offload", "settings", "version"):
        assert mmb("show", what).strip()
        assert mmb.ask("show", what)
    ports = {port["name"]: port for port in mmb.ask("show ports")["ports"]}
    assert ports["lan"]["peer"] == "wan" and ports["wan"]["peer"] == "lan"
    assert all(port["link"] == "up" and port["enabled"] and port["mtu"] == 1500 for port in ports.values())
    (worker,) = mmb.ask("show runtime")["workers"]
    assert [stage["name"] for stage in worker["stages"]] == ["parse", "classify", "connections", "streams", "rewrite", "forward"]
    assert worker["stages"][0]["packets"] > 0


def test_counters_begin_at_zero_again(site, mmb):
    mmb("add id 1 icmp-type echo-request drop")
    assert ping(site, SERVER4, count=3, options=["-W", "0.2"]) == 0
    assert mmb.rule(1)["dropped_packets"] == mmb.rule(1)["packets"] == 3
    assert "zero" in mmb("clear counters")
    assert mmb.rule(1)["packets"] == 0 and "rule" not in mmb.ask("show errors")["drops"]
    assert "dropped_by_former_rules" not in mmb.ask("list")
    assert ping(site, SERVER4, count=2, options=["-W", "0.2"]) == 0
    assert mmb.ask("show errors")["drops"]["rule"] == mmb.rule(1)["dropped_packets"] == 2


def test_a_saved_policy_is_applied_again(site, mmb):
    mmb.apply(site.folder, *RULES)
    mmb("disable wan")
    rules, saved = mmb.ask("list"), site.folder / "saved.mmb"
    mmb("save", saved)
    assert mmb.client("check", saved).returncode == 0
    mmb.reset()
    mmb("apply", saved)
    assert [(r["id"], r["rule"]) for r in mmb.ask("list")["rules"]] == [(r["id"], r["rule"]) for r in rules["rules"]]
    assert not mmb.port("wan")["enabled"]
    again = site.folder / "again.mmb"
    mmb("save", again)
    assert again.read_text() == saved.read_text()


def test_applying_a_broken_file_changes_nothing(site, mmb):
    mmb.apply(site.folder, *RULES)
    before = mmb.ask("list")
    broken = site.folder / "broken.mmb"
    broken.write_text("add tcp-dport 80 drop\nadd tcp-dport 99999 drop\nflush\nadd ip-sadr 10.0.0.1 drop\n")
    message = mmb.refused("apply", broken)
    assert "99999" in message and "ip-saddr" in message, "both mistakes are reported"
    assert "broken.mmb" in message
    assert mmb.ask("list") == before
    broken.write_text("add in nowhere drop\n")
    assert "nowhere" in mmb.refused("apply", broken)
    assert mmb.ask("list") == before
    assert "missing.mmb" in mmb.refused("apply", site.folder / "missing.mmb")


def test_applying_reports_what_changed(site, mmb):
    mmb.apply(site.folder, *RULES)
    answer = mmb.apply(site.folder, *RULES[:2], "add tcp-dport 25 drop")
    assert (len(answer["added"]), len(answer["removed"])) == (1, 1)


def test_every_example_can_be_put_in_force(site, mmb):
    examples = sorted((Path(__file__).parents[2] / "examples").glob("*.mmb"))
    assert examples
    for example in examples:
        mmb("apply", example)
        assert mmb.ask("list")["rules"]


def test_a_disabled_port_lets_its_packets_pass_untouched(site, mmb):
    mmb("add id 1 icmp-type echo-request drop")
    mmb("disable lan")
    assert ping(site, SERVER4, count=3) == 3
    assert not mmb.port("lan")["enabled"] and mmb.port("wan")["enabled"]
    assert mmb.rule(1)["packets"] == 0
    mmb("enable lan")
    assert ping(site, SERVER4, count=2, options=["-W", "0.2"]) == 0
    assert "nowhere" in mmb.refused("disable nowhere")


def test_the_shell_runs_the_lines_of_a_pipe(mmb):
    shell = mmb.shell()
    output, _ = shell.communicate("add udp-dport 53 drop\n\n# a comment\nlist\nshow version\n", timeout=20)
    assert shell.returncode == 0 and "udp-dport" in output


def test_the_socket_is_for_owner_and_group(mmb):
    assert stat.S_IMODE(os.stat(mmb.socket).st_mode) == 0o660


# Misbehaving clients. Numbered packets flow in the meantime, and none may be missing.


def connect(mmb):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(10)
    client.connect(str(mmb.socket))
    return client


def finish(client):
    """Sends nothing more and reads until the end; a disconnection counts too."""
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_WR)
        while client.recv(65536):
            pass
    client.close()


def garbage(mmb):
    with contextlib.suppress(OSError):
        client = connect(mmb)
        client.sendall(os.urandom(20000) + b"\n")
        finish(client)


def half_a_request(mmb):
    client = connect(mmb)
    client.sendall(b'{"v":1,"do":"run","comm')
    client.close()


def a_huge_request(mmb):
    client = connect(mmb)
    with contextlib.suppress(OSError):
        for _ in range(400):
            client.sendall(b"x" * 262144)
    finish(client)


def deep_nesting(mmb):
    client = connect(mmb)
    with contextlib.suppress(OSError):
        client.sendall(b"[" * 1_000_000 + b"\n")
    finish(client)


def reads_nothing(mmb):
    client = connect(mmb)
    client.settimeout(0.2)
    with contextlib.suppress(OSError):
        for _ in range(2000):
            client.sendall(b'{"v":1,"do":"run","commands":["list","show ports","show tables"]}\n')
    client.close()


@pytest.mark.parametrize("misbehave", [garbage, half_a_request, a_huge_request, deep_nesting, reads_nothing])
def test_a_client_that_misbehaves_disturbs_nobody(site, mmb, misbehave):
    mmb.apply(site.folder, *RULES)
    with NumberedStream(site, mmb) as stream:
        for _ in range(3):
            misbehave(mmb)
            assert len(mmb.ask("list")["rules"]) == len(RULES)
    stream.check()


def test_silent_clients_keep_nobody_out(site, mmb):
    idle = [connect(mmb) for _ in range(50)]
    try:
        assert mmb.ask("show version")
        assert ping(site, SERVER4, count=2) == 2
    finally:
        for client in idle:
            client.close()


def test_a_hundred_clients_at_once(site, mmb):
    """Each client adds a rule, lists and deletes it, all at the same time, while packets flow."""
    failures = []
    request = '{{"v":1,"do":"run","commands":["{}"]}}\n'

    def work(number):
        try:
            client = connect(mmb)
            lines = client.makefile("r")
            for command in (f"add id {1000 + number} tcp-dport {1000 + number} drop", "list", f"del {1000 + number}"):
                client.sendall(request.format(command).encode())
                answer = []
                while not answer or '"end"' not in answer[-1]:
                    answer.append(lines.readline())
                    assert answer[-1], "the daemon hung up"
                assert '"ok":true' in answer[-1], answer
            client.close()
        except Exception as error:  # noqa: BLE001 - raised in the test below
            failures.append((number, error))

    with NumberedStream(site, mmb) as stream:
        clients = [threading.Thread(target=work, args=(number,)) for number in range(100)]
        for client in clients:
            client.start()
        for client in clients:
            client.join(30)
    assert failures == []
    assert mmb.ask("list")["rules"] == []
    stream.check()
