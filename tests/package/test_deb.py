"""The Debian package: made from the program under test, installed in a clean Debian as the image's recipe does, run there between two
interfaces, upgraded, removed and purged.

The clean Debian is a folder, made from the sources that this system installs packages from. Programs run in it with file systems that
only they see, so that nothing remains mounted.
"""

import contextlib
import os
import re
import shutil
from pathlib import Path

import pytest

from lab.daemon import BINARY
from lab.net import Namespace, veth
from lab.process import run, wait_until

ROOT = Path(__file__).parents[2]
SOURCES = [Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list")]
LIMIT_S = 600
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a Debian in a folder, network namespaces")


@pytest.fixture(scope="module")
def package():
    made = run([ROOT / "scripts/deb", BINARY], timeout=LIMIT_S).stdout.split()[-1]
    return ROOT / made


class Debian:
    """A Debian in a folder."""

    def __init__(self, folder):
        self.folder = folder

    def command(self, *words):
        """The words of a command that runs inside, with the file systems that programs expect."""
        mounts = "mount -t proc proc proc && mount -t sysfs sysfs sys && mount --rbind /dev dev && exec chroot . \"$@\""
        inside = f"cd {self.folder} && {mounts}"
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", inside, "sh", *words]

    def run(self, *words, check=True):
        return run(self.command(*words), check=check, timeout=LIMIT_S, env=ENVIRONMENT)

    def has(self, path):
        return os.path.lexists(self.folder / path)


@pytest.fixture(scope="module")
def debian(package, tmp_path_factory):
    folder = tmp_path_factory.mktemp("debian") / "root"
    sources = [path for path in SOURCES if path.exists() and "debian" in path.read_text()][:1]
    release = re.search(r'VERSION_CODENAME="?(\w+)', Path("/etc/os-release").read_text())[1]
    run(["mmdebstrap", "--quiet", "--mode=root", "--variant=apt", release, folder, *sources], timeout=LIMIT_S)
    shutil.copy("/etc/resolv.conf", folder / "etc/resolv.conf")
    shutil.copy(package, folder / "tmp")
    recipe = (ROOT / "dist/Containerfile").read_text()
    debian = Debian(folder)
    debian.run("sh", "-c", re.search(r"^RUN (.*)$", recipe, re.MULTILINE)[1])
    yield debian
    shutil.rmtree(folder)


def test_it_is_installed_and_not_started(debian):
    version = run([BINARY, "--version"]).stdout
    assert debian.run("mmb", "--version").stdout == version
    assert "good" in debian.run("mmb", "check", "/etc/mmb/policy.mmb").stdout
    assert debian.run("getent", "group", "mmb").stdout.startswith("mmb:x:")
    assert debian.run("systemctl", "is-enabled", "mmb", check=False).stdout.strip() == "disabled"
    for path in [
        "usr/share/man/man1/mmb.1.gz",
        "usr/share/man/man5/mmb-policy.5.gz",
        "usr/share/bash-completion/completions/mmb",
        "usr/share/zsh/vendor-completions/_mmb",
        "usr/share/fish/vendor_completions.d/mmb.fish",
        "usr/share/doc/mmb/language.md",
        "usr/share/doc/mmb/copyright",
    ]:
        assert debian.has(path), path
    conffiles = debian.run("dpkg-query", "-W", "-f", "${Conffiles}", "mmb").stdout
    assert {line.split()[0] for line in conffiles.split("\n") if line} == {"/etc/mmb/mmb.env", "/etc/mmb/policy.mmb"}


def test_its_units_are_good(debian):
    """systemd's own check, also of the template's instance."""
    debian.run("touch", "/etc/mmb/edge.env", "/etc/mmb/health-edge.env")
    checked = debian.run("systemd-analyze", "--man=no", "verify", "mmb.service", "mmb@edge.service", "mmb-web.service", "mmb-health@edge.service", check=False)
    assert "mmb" not in checked.stderr and checked.returncode == 0, checked.stderr
    unit = (debian.folder / "usr/lib/systemd/system/mmb@.service").read_text()
    for line in [
        "ExecStart=/usr/bin/mmb run -c /etc/mmb/%i.mmb",
        "Environment=MMB_SOCKET=/run/mmb/%i/mmb.sock",
        "RuntimeDirectory=mmb/%i",
        "StateDirectory=mmb/%i",
    ]:
        assert line in unit
    assert not re.search(r"/var/lib/mmb/(?!%i/)", unit), "an instance keeps its files apart"


@pytest.mark.parametrize("device", ["af_xdp", "af_packet"])
def test_it_forwards(debian, device, tmp_path):
    """The drivers, which no binary names as libraries, are installed with it; clients find the socket by MMB_SOCKET."""
    with contextlib.ExitStack() as cleanup:
        box, client, server = (Namespace(role) for role in ("box", "client", "server"))
        for namespace in (box, client, server):
            cleanup.callback(namespace.delete)
        for end, port, address in ((client, "in0", "192.0.2.1/24"), (server, "out0", "192.0.2.2/24")):
            veth(box, port, end, "eth0")
            end.ip("address", "add", address, "dev", "eth0")
        socket = ["env", "MMB_SOCKET=/run/mmb.sock"]
        ports = ["--port", f"inside={device}:in0", "--port", f"outside={device}:out0"]
        words = debian.command(*socket, "mmb", "run", "-c", "/etc/mmb/policy.mmb", *ports)
        daemon = box.start(words, tmp_path / "mmb.log", env=ENVIRONMENT)
        cleanup.callback(daemon.close)
        wait_until(lambda: "ready; listening" in daemon.output() or not daemon.running(), "mmb is ready", 30)
        assert daemon.running(), daemon.output()
        assert re.search(rf"port inside: \S*in0 \(\S*{device}\)", daemon.output()), daemon.output()
        assert "inside" in debian.run(*socket, "mmb", "show", "ports").stdout
        for end, other in ((client, "192.0.2.2"), (server, "192.0.2.1")):
            assert " 3 received" in end.run("ping", "-c", "3", "-i", "0.2", "-W", "2", other, check=False).stdout
        assert daemon.stop() == 0, daemon.output()


def test_it_leaves_when_it_is_purged(debian):
    """What the user changed survives an installation and a removal, and not the purge."""
    policy = debian.folder / "etc/mmb/policy.mmb"
    policy.write_text("add all accept\n")
    state = debian.folder / "var/lib/mmb/state"
    for made in (state, debian.folder / "var/lib/mmb-web/token", debian.folder / "var/log/mmb/events.json"):
        made.parent.mkdir()
        made.write_text("x")
    debian.run("apt-get", "remove", "-y", "mmb")
    assert policy.read_text() == "add all accept\n" and state.exists()
    assert not debian.has("usr/bin/mmb") and not debian.has("usr/lib/systemd/system/mmb.service")
    debian.run("apt-get", "purge", "-y", "mmb")
    left = [path for path in debian.folder.rglob("*mmb*") if "proc" not in path.parts]
    assert [str(path.relative_to(debian.folder)) for path in left] == ["etc/mmb"]
