"""Active FTP through mmb (`helper ftp`): curl and Python's ftplib, whose data connections vsftpd begins.

vsftpd refuses to connect to another address than the client's, so that the address in a command must be the translated one.
"""

import ftplib
import hashlib
import io
import os
import pwd
import socket
import time

import pytest

from .routed import INSIDE4, INSIDE6, NAT4, NAT6, OUTSIDE4, OUTSIDE6

A, B = INSIDE4[:2]
SERVER = OUTSIDE4[0]
SERVER6 = OUTSIDE6[0]
HELPER = "add-stateful in lan tcp-dport ftp helper ftp"
# Nothing comes in but replies, and what is expected.
CLOSED = "add in wan ip-proto tcp drop"
GATEWAY = [
    f"add-stateful in lan ip-saddr 10.0.0.0/24 map ip-saddr {NAT4} shuffle tcp-sport accept",
    f"add-stateful in lan ip6-saddr fd00:a::/64 map ip6-saddr {NAT6} shuffle tcp-sport accept",
    CLOSED,
]
FIREWALL = ["add-stateful in lan accept", CLOSED]
CONTENT = os.urandom(1 << 20) * 4


def digest(content):
    return hashlib.sha256(content).hexdigest()


class ActiveFtp(ftplib.FTP):
    """A client that keeps the ports that it was called at."""

    def __init__(self, *words, **named):
        super().__init__(*words, **named)
        self.ports = []

    def makeport(self):
        ear = super().makeport()
        self.ports.append(ear.getsockname()[1])
        return ear


@pytest.fixture(scope="module")
def vsftpd(routed_site, tmp_path_factory):
    """A server of FTP in the server's namespace, with a file to get and a folder to put some in."""
    root = tmp_path_factory.mktemp("ftp")
    for folder in (root, *root.parents[:2]):
        folder.chmod(0o755)
    (root / "content").write_bytes(CONTENT)
    incoming = root / "incoming"
    incoming.mkdir()
    user = pwd.getpwnam("ftp")
    os.chown(incoming, user.pw_uid, user.pw_gid)
    empty = root.parent / "empty"
    empty.mkdir(exist_ok=True)
    config = root.parent / "vsftpd.conf"
    config.write_text(
        "listen_ipv6=YES\nbackground=NO\nanonymous_enable=YES\nlocal_enable=NO\nwrite_enable=YES\n"
        "anon_upload_enable=YES\nanon_umask=022\nconnect_from_port_20=YES\nno_anon_password=YES\n"
        f"anon_root={root}\nsecure_chroot_dir={empty}\nconnect_timeout=3\nseccomp_sandbox=NO\n"
    )
    process = routed_site.start(routed_site.server, ["vsftpd", config], "vsftpd")
    process.wait_listening(21)
    process.root = root
    yield process
    process.close()


@pytest.fixture
def site(of_mmb, vsftpd):
    of_mmb.vsftpd = vsftpd
    return of_mmb


def curl(site, address, *options, source=A):
    """The exit status of curl, and the digest of what it got by active FTP."""
    target = site.folder / "got"
    target.unlink(missing_ok=True)
    url = f"ftp://{f'[{address}]' if ':' in address else address}/content"
    words = ["curl", "-gsS", "--max-time", "20", "--interface", source, "--ftp-port", source, *options, "-o", target, url]
    done = site.client.run(*words, timeout=25, check=False)
    return done.returncode, digest(target.read_bytes()) if target.exists() else done.stderr


def expected(site):
    return site.tested.daemon.ask("show streams summary")["expected"]


def not_applied(site):
    return site.tested.daemon.ask("show errors")["not_applied"]


WAYS = [
    pytest.param(SERVER, A, ["--disable-eprt"], id="PORT"),
    pytest.param(SERVER, A, [], id="EPRT-1"),
    pytest.param(SERVER6, INSIDE6[0], [], id="EPRT-2"),
]


@pytest.mark.parametrize("policy", [GATEWAY, FIREWALL], ids=["translated", "plain"])
@pytest.mark.parametrize(("address", "source", "options"), WAYS)
def test_curl_gets_a_file(site, policy, address, source, options):
    before = expected(site)
    site.tested.policy([HELPER, *policy])
    assert curl(site, address, *options, source=source) == (0, digest(CONTENT))
    after = expected(site)
    assert (after["made"] - before["made"], after["used"] - before["used"], after["now"]) == (1, 1, 0)


@pytest.mark.parametrize("policy", [GATEWAY, FIREWALL], ids=["translated", "plain"])
def test_without_the_helper_it_does_not(site, policy):
    site.tested.policy(policy)
    status, _ = curl(site, SERVER)
    assert status != 0
    # Passive FTP needs none.
    target = site.folder / "passive"
    words = ["curl", "-gsS", "--max-time", "20", "--interface", A, "-o", target, f"ftp://{SERVER}/content"]
    site.client.run(*words, timeout=25)
    assert digest(target.read_bytes()) == digest(CONTENT)


@pytest.mark.parametrize("policy", [GATEWAY, FIREWALL], ids=["translated", "plain"])
def test_a_session_of_many_transfers(site, policy):
    site.tested.policy([HELPER, *policy])
    with site.client.entered():
        ftp = ActiveFtp(source_address=(A, 0), timeout=20)
        ftp.connect(SERVER)
        ftp.login()
        ftp.set_pasv(False)
        for number in range(5):
            got = io.BytesIO()
            ftp.retrbinary("RETR content", got.write)
            assert digest(got.getvalue()) == digest(CONTENT)
            name = f"{policy is GATEWAY}-{number}"
            ftp.storbinary(f"STOR incoming/{name}", io.BytesIO(CONTENT))
            assert digest((site.vsftpd.root / "incoming" / name).read_bytes()) == digest(CONTENT)
            assert "content" in ftp.nlst()
        listed = site.tested.daemon.connections("tcp-sport ftp-data")
        # The kernel may choose a port twice: then the later connection takes the place of the one in time-wait.
        assert len(ftp.ports) == 15 and len(listed) == len(set(ftp.ports))
        assert all(1 in connection["rules"] for connection in listed)
        ftp.quit()


def test_commands_that_are_cut_everywhere(site):
    site.tested.policy([HELPER, *GATEWAY])
    with site.client.entered():
        ftp = ftplib.FTP(source_address=(A, 0), timeout=20)
        ftp.connect(SERVER)
        ftp.login()
        with socket.create_server((A, 0)) as ear:
            address, port = ear.getsockname()[:2]
            high, low = divmod(port, 256)
            for byte in f"PORT {address.replace('.', ',')},{high},{low}\r\n".encode():
                ftp.sock.send(bytes([byte]))
                time.sleep(0.01)
            assert ftp.getresp().startswith("200")
            ftp.putcmd("RETR content")
            ftp.sock.settimeout(20)
            ear.settimeout(20)
            data, (peer, sport) = ear.accept()
            assert (peer, sport) == (SERVER, 20)
            got = b""
            while piece := data.recv(1 << 16):
                got += piece
            data.close()
            assert digest(got) == digest(CONTENT)
            assert ftp.getresp().startswith("150") and ftp.getresp().startswith("226")
        ftp.close()


def test_a_client_announces_nobody_else(site):
    site.tested.policy([HELPER, *GATEWAY])
    before = not_applied(site).get("helper-refused", 0)
    with site.client.entered():
        ftp = ftplib.FTP(source_address=(A, 0), timeout=20)
        ftp.connect(SERVER)
        ftp.login()
        for command in (f"PORT {B.replace('.', ',')},100,0", f"PORT {A.replace('.', ',')},3,255"):
            with pytest.raises(ftplib.error_perm):
                ftp.sendcmd(command)
        # The server sees the client at this address, and tries it: nothing is expected there.
        assert ftp.sendcmd(f"EPRT |1|{NAT4}|25600|").startswith("200")
        with pytest.raises(ftplib.error_temp, match="425"):
            ftp.sendcmd("LIST")
        ftp.close()
    assert not_applied(site)["helper-refused"] - before == 3


def test_what_was_announced_is_used_once_and_by_the_server_only(site):
    site.tested.policy([HELPER, *FIREWALL])
    with site.client.entered():
        ftp = ftplib.FTP(source_address=(A, 0), timeout=20)
        ftp.connect(SERVER)
        ftp.login()
        ear = ftp.makeport()
        port = ear.getsockname()[1]
    with ear:
        probe = "import socket,sys;s=socket.create_connection((sys.argv[1],int(sys.argv[2])),1,(sys.argv[3],0))"
        words = ["python3", "-c", probe, A, str(port)]
        assert site.server.run(*words, OUTSIDE4[1], check=False).returncode != 0, "another host"
        assert site.server.run(*words, SERVER, check=False).returncode == 0
        assert site.server.run(*words, SERVER, check=False).returncode != 0, "once more"
    ftp.close()
