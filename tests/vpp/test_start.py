"""The section of startup.conf."""

import pytest

from lab.process import wait_until
from lab.vpp import PLUGIN, DidNotStart, Vpp

from .plugin import WithMmb


def test_vpp_starts_with_the_policy_of_its_file(tmp_path):
    policy = tmp_path / "policy.mmb"
    policy.write_text("add id 7 udp-dport 53 drop\nadd id 9 in host-later tcp-dport 80 drop\n")
    with WithMmb(tmp_path / "vpp", policy=policy) as vpp:
        assert set(vpp.rules()) == {7, 9}
        assert "mmb_plugin.so" in vpp.ask("show plugins")
        assert vpp.control.exists()
        assert vpp.stop() == 0
        assert not vpp.control.exists()


def test_vpp_does_not_start_with_a_policy_that_is_wrong(tmp_path):
    policy = tmp_path / "policy.mmb"
    policy.write_text("add udp-dport 53 drop\nadd tcp-dprot 80 drop\n")
    with pytest.raises(DidNotStart) as error, WithMmb(tmp_path / "vpp", policy=policy):
        pass
    assert f"{policy}:2" in str(error.value) and "tcp-dport" in str(error.value)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("frobnicate", "frobnicate"),
        ("seed 1", "seed"),
        ("policy /nowhere/at/all", "/nowhere/at/all"),
        ("policy", "policy"),
    ],
)
def test_vpp_does_not_start_with_a_section_that_is_wrong(tmp_path, section, message):
    with pytest.raises(DidNotStart) as error, WithMmb(tmp_path / "vpp", section=section):
        pass
    assert "mmb" in str(error.value) and message in str(error.value)


def test_without_a_socket_the_command_line_is_all_there_is(tmp_path):
    with Vpp(tmp_path / "vpp", plugin=PLUGIN, sections="mmb { no-socket }") as vpp:
        vpp.ask("mmb add udp-dport 53 drop")
        assert "udp-dport 53" in vpp.ask("mmb list")
        assert not list(vpp.folder.glob("mmb*.sock"))


def test_errors_in_the_startup_config_are_logged(tmp_path):
    config = tmp_path / "setup.cli"
    config.write_text("mmb add udp-dport 53 drop\nmmb add tcp-dprot 80 drop\n")
    with WithMmb(tmp_path / "vpp", unix=f"startup-config {config}") as vpp:
        wait_until(lambda: "mmb add tcp-dprot 80 drop" in vpp.ask("show logging"), "it is logged")
        assert len(vpp.rules()) == 1


@pytest.mark.parametrize("line", ["add out pg0 drop", "set poll spin"])
def test_vpp_does_not_start_with_a_policy_that_means_nothing_there(tmp_path, line):
    policy = tmp_path / "policy.mmb"
    policy.write_text(f"{line}\n")
    with pytest.raises(DidNotStart) as error, WithMmb(tmp_path / "vpp", policy=policy):
        pass
    assert line.split()[1] in str(error.value)
