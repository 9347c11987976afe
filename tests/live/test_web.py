"""`mmb web` beside a daemon that forwards: the API, the metrics and TLS with Python's clients, the page in a headless Chromium.

The server listens on a port of this machine's loopback that nobody else knows; all other traffic is in the namespaces of the site.
"""

import http.client
import json
import os
import re
import socket
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from lab.daemon import BINARY
from lab.process import Background, run, wait_until

from . import browser
from .programs import ping
from .topology import SERVER4

HOSTILE = '<img src=x onerror=document.body.remove()>'
# Where screenshots are kept for people who want to look at them.
SCREENSHOTS = os.environ.get("MMB_SCREENSHOTS")


class Web:
    """A running `mmb web`."""

    def __init__(self, mmb, folder, *options, listen="127.0.0.1:0"):
        log = folder / f"web-{len(list(folder.iterdir()))}.log"
        self.process = Background([BINARY, "web", "--socket", mmb.socket, "--listen", listen, *options], log)
        found = wait_until(lambda: re.match(r"(\S+?)(?:#token=(\S+))?\n", log.read_text()) or not self.process.running(), "mmb web listens")
        assert found is not True, log.read_text()
        self.url, self.token = found.groups()
        self.log = log

    def request(self, path, body=None, method=None, headers=(), context=None, token=True):
        """The status and the body of an answer; JSON if it is that."""
        headers = dict(headers)
        if token and self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path.lstrip("/"), data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30, context=context) as answer:
                return answer.status, _content(answer)
        except urllib.error.HTTPError as error:
            return error.code, _content(error)

    def get(self, path):
        status, content = self.request(path)
        assert status == 200, content
        return content

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.close()


def _content(answer):
    text = answer.read().decode()
    return json.loads(text) if "json" in answer.headers.get("Content-Type", "") else text


@pytest.fixture(scope="session")
def backend():
    """One kind of socket: nothing here depends on it."""
    return "af_packet"


@pytest.fixture
def web(mmb, tmp_path):
    with Web(mmb, tmp_path) as running:
        yield running


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    """A certificate authority, a server's certificate and a client's, by openssl."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*words):
        run(["openssl", *words], cwd=folder)

    def key(name, subject):
        openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={subject}")

    for name in ("ca", "other"):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")
    (folder / "server.ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")
    (folder / "client.ext").write_text("extendedKeyUsage=clientAuth\n")
    for name, issuer, kind in (("server", "ca", "server"), ("client", "ca", "client"), ("stranger", "other", "client")):
        key(name, name)
        openssl("x509", "-req", "-days", "2", "-in", f"{name}.csr", "-CA", f"{issuer}.pem", "-CAkey", f"{issuer}.key", "-CAcreateserial", "-extfile", f"{kind}.ext", "-out", f"{name}.pem")
    return folder


def trusting(authority, client=None):
    context = ssl.create_default_context(cafile=authority / "ca.pem")
    if client:
        context.load_cert_chain(authority / f"{client}.pem", authority / f"{client}.key")
    return context


def test_counters_are_those_of_the_traffic(site, mmb, web):
    mmb("add id 1 name pings icmp-type echo-request accept")
    assert ping(site, SERVER4, count=3) == 3
    wait_until(lambda: web.get("/api/v1/rules/1")["packets"] == 3, "the rule has counted")
    state = web.get("/api/v1/state")
    assert [port["name"] for port in state["ports"]] == ["lan", "wan"]
    assert {port["name"]: port["link"] for port in state["ports"]} == {"lan": "up", "wan": "up"}
    ours = {port["name"]: port["rx"]["packets"] for port in mmb.ask("show", "ports")["ports"]}
    assert state["ports"][0]["rx"]["packets"] <= ours["lan"]
    metrics = web.get("/metrics")
    assert re.search(r'^mmb_rule_packets_total\{rule="1",name="pings"\} 3$', metrics, re.M), metrics
    assert re.search(r'^mmb_packets_received_total\{port="lan"\} [1-9]\d*$', metrics, re.M)
    assert metrics.endswith("# EOF\n")


def test_a_packet_is_explained_as_the_engine_decides(mmb, web):
    mmb("add id 1 prio 10 in lan tcp-dport 22 accept")
    mmb("add id 2 prio 20 ip-proto tcp drop")
    status, found = web.request("/api/v1/explain", {"packet": "in lan tcp-dport 23", "why_not": [1]})
    assert (status, found["verdict"], found["reason"], found["decisive"]) == (200, "dropped", "rule", 2)
    assert [one["holds"] for one in found["why_not"][0]["constraints"]] == [True, False]
    status, found = web.request("/api/v1/explain", {"packet": "in lan tcp-dport 22"})
    assert (found["verdict"], found["decisive"]) == ("passes", 1)
    status, problem = web.request("/api/v1/explain", {"packet": "tcp-dprt 22"})
    assert status == 422 and "tcp-dprt" in problem["detail"]


def test_a_policy_applied_by_the_api_is_in_force(site, mmb, web):
    status, change = web.request("/api/v1/policy", {"policy": "add id 5 icmp-type echo-request drop\n"}, method="PUT")
    assert (status, change["count"]["added"]) == (200, 1)
    assert ping(site, SERVER4, count=2) == 0
    assert [rule["id"] for rule in mmb.ask("list")["rules"]] == [5]
    assert "PUT \"/api/v1/policy\": 200" in web.log.read_text(), "a line for the journal"
    assert web.token not in web.log.read_text().partition("\n")[2], "which has no token"


def test_the_server_outlives_the_daemon(fresh, tmp_path):
    daemon = fresh.daemon(fresh("af_packet"))
    with Web(daemon, tmp_path) as web:
        assert web.get("/api/v1/state")["ports"]
        daemon.stop()
        wait_until(lambda: web.request("/api/v1/state")[0] == 503, "it says so")
        assert "mmb_up 0" in web.get("/metrics")
        daemon.start()
        assert web.get("/api/v1/state")["ports"]
        assert web.process.stop() == 0


def test_a_unix_socket_serves_its_owner(mmb, tmp_path):
    path = tmp_path / "web.sock"
    with Web(mmb, tmp_path, listen=f"unix:{path}") as web:
        assert web.url == f"unix:{path}" and web.token is None
        assert path.stat().st_mode & 0o777 == 0o600

        class Connection(http.client.HTTPConnection):
            def connect(self):
                self.sock = socket.socket(socket.AF_UNIX)
                self.sock.connect(str(path))

        connection = Connection("localhost")
        connection.request("GET", "/api/v1/state")
        assert connection.getresponse().status == 200
        connection.close()
        assert web.process.stop() == 0
        assert not path.exists()


def test_networks_need_tls(mmb):
    done = run([BINARY, "web", "--socket", mmb.socket, "--listen", "0.0.0.0:0"], check=False)
    assert done.returncode == 1 and "--tls-cert" in done.stderr


def test_tls_shows_its_certificate_and_needs_a_token(mmb, authority, tmp_path):
    with Web(mmb, tmp_path, "--tls-cert", authority / "server.pem", "--tls-key", authority / "server.key", listen="0.0.0.0:0") as web:
        web.url = web.url.replace("0.0.0.0", "127.0.0.1")
        assert web.url.startswith("https://") and web.token
        context = trusting(authority)
        assert web.request("/api/v1/state", context=context)[0] == 200
        assert web.request("/api/v1/state", context=context, token=False)[0] == 401
        with pytest.raises(urllib.error.URLError, match="certificate"):
            web.request("/", context=ssl.create_default_context())
        old = trusting(authority)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(urllib.error.URLError):
            web.request("/", context=old)
        plain = web.url.replace("https", "http")
        with pytest.raises((urllib.error.URLError, OSError, http.client.HTTPException)):
            urllib.request.urlopen(plain, timeout=10)
        assert web.request("/api/v1/state", context=context)[0] == 200


def test_certificates_of_clients_stand_for_the_token(mmb, authority, tmp_path):
    files = ["--tls-cert", authority / "server.pem", "--tls-key", authority / "server.key", "--client-ca", authority / "ca.pem"]
    with Web(mmb, tmp_path, *files) as web:
        assert web.token is None
        known = trusting(authority, "client")
        assert web.request("/api/v1/state", context=known)[0] == 200
        commands = {"commands": ["add id 3 tcp-dport 3 drop"]}
        assert web.request("/api/v1/commands", commands, context=known)[0] == 403, "a certificate is sent for other sites, too"
        assert web.request("/api/v1/commands", commands, context=known, headers={"X-Mmb-Request": "1"})[0] == 200
        for client in (None, "stranger"):
            with pytest.raises((urllib.error.URLError, OSError, http.client.HTTPException)):
                web.request("/api/v1/state", context=trusting(authority, client))


def needs_browser(test):
    return pytest.mark.skipif(not browser.is_there(), reason=f"{browser.PROGRAM} is not installed")(test)


@pytest.fixture
def page(tmp_path):
    with browser.Browser(tmp_path) as opened:
        yield opened


def keep(page, name):
    if SCREENSHOTS:
        page.screenshot(Path(SCREENSHOTS) / f"{name}.png")


def opened(page, web, view):
    """The page with a view, after it has loaded."""
    page.open(f"{web.url}#token={web.token}")
    page.wait("document.querySelector('#status.good')")
    assert page.run("location.href.includes('token')") is False, "the token stays in no history"
    page.run(f"location.hash = '#/{view}'")
    page.wait("document.querySelector('main h1')")


@needs_browser
def test_the_page_shows_ports_rules_and_drops(site, mmb, web, page):
    mmb(f'add id 1 prio 10 icmp-type echo-request payload "{HOSTILE}" drop')
    mmb("add id 2 name pings prio 20 icmp-type echo-request drop")
    mmb("add-stateful id 3 tcp-dport 80 accept")
    ping(site, SERVER4, count=2)
    opened(page, web, "overview")
    page.wait("document.body.innerText.includes('lan') && document.body.innerText.includes('wan')")
    page.wait("document.querySelectorAll('svg.plot polyline').length > 1")
    keep(page, "overview")
    page.run("location.hash = '#/rules'")
    page.wait("document.querySelectorAll('td.rule').length === 3")
    assert "<img" in page.run("document.querySelector('td.rule').textContent"), "as a text"
    assert page.run("document.querySelectorAll('main img').length") == 0
    page.type("input[type=search]", "pings")
    page.wait("document.querySelectorAll('td.rule').length === 1")
    assert page.run("document.querySelector('td.rule').textContent").startswith("add prio 20 name pings")
    keep(page, "rules")
    page.run("location.hash = '#/drops'")
    page.wait("document.body.innerText.includes('a rule drops the packet')")
    keep(page, "drops")
    page.run("location.hash = '#/explain'")
    page.wait("document.querySelector('form input')")
    page.type("form input", "in lan icmp-type echo-request")
    page.click("Explain")
    page.wait("document.body.innerText.includes('It is dropped: rule')")
    keep(page, "explain")
    assert page.errors == []


@needs_browser
def test_connections_are_filtered_and_ended_by_the_page(site, mmb, web, page):
    mmb("conn kill all")
    mmb("add-stateful id 1 icmp-type echo-request accept")
    ping(site, SERVER4, count=1)
    opened(page, web, "connections")
    page.wait("document.body.innerText.includes('10.0.0.2')")
    page.type("input[type=search]", "ip-sadr 10.0.0.1")
    page.wait("document.querySelector('[role=alert].note').innerText.includes('did you mean ip-saddr')")
    page.type("input[type=search]", "ip-saddr 10.0.0.1")
    page.wait("!document.querySelector('button.danger').disabled")
    keep(page, "connections")
    page.click("End these")
    page.wait("document.querySelector('dialog[open]')")
    page.click("End them")
    page.wait("document.body.innerText.includes('No connection matches')")
    assert mmb.connections() == []
    # The browser reports the answer to the filter that was half typed.
    assert [error for error in page.errors if "422" not in error] == []


@needs_browser
def test_the_editor_marks_errors_previews_and_applies(mmb, web, page):
    mmb("add id 1 tcp-dport 80 drop")
    opened(page, web, "policy")
    page.wait("document.querySelector('textarea').value.includes('tcp-dport')")
    page.type("textarea", "# a policy\nadd id 1 tcp-dport 80 drop\nadd id 2 tcp-dprt 443 drop\nadd id 3 ip-proto udp tcp-dport 1 drop\n")
    page.wait("document.querySelectorAll('.findings li').length === 2")
    assert page.run("document.querySelector('.marks mark').textContent") == "tcp-dprt"
    found = page.run("document.querySelector('.findings li').innerText")
    assert "3:10: unknown word tcp-dprt" in found and "did you mean tcp-dport?" in found
    lines = page.run("document.querySelector('.findings pre').textContent").split("\n")
    assert lines == ["add id 2 tcp-dprt 443 drop", "         ^^^^^^^^"]
    page.run("document.querySelector('.findings button').click()")
    assert page.run("(t => t.value.slice(t.selectionStart, t.selectionEnd))(document.querySelector('textarea'))") == "tcp-dprt"
    page.wait("document.querySelector('.findings li.at')")
    keep(page, "editor")
    page.type("textarea", "add id 1 tcp-dport 80 drop\nadd id 2 tcp-dport 443 drop\n")
    page.wait("document.body.innerText.includes('good, 2 rules')")
    page.click("Apply")
    page.wait("document.querySelector('dialog[open] .plus')")
    assert "2 add tcp-dport" in page.run("document.querySelector('dialog .plus').innerText")
    assert len(mmb.ask("list")["rules"]) == 1, "nothing before somebody agrees"
    keep(page, "apply")
    page.run("document.querySelector('#agree').click()")
    page.wait("document.body.innerText.includes('applied: 1 added, 0 removed')")
    assert len(mmb.ask("list")["rules"]) == 2
    # Somebody else changes the policy: the text that is edited here does not undo that.
    mmb("add id 9 tcp-dport 9 drop")
    page.type("textarea", "add id 1 tcp-dport 80 drop\n")
    page.click("Apply")
    page.wait("document.querySelector('dialog[open]')")
    page.run("document.querySelector('#agree').click()")
    page.wait("document.querySelector('#problem').innerText.includes('somebody has changed it')")
    assert len(mmb.ask("list")["rules"]) == 3
    assert [error for error in page.errors if "412" not in error] == []


@needs_browser
def test_a_phone_in_the_dark_asks_for_the_token(mmb, web, tmp_path):
    mmb.apply(tmp_path, *(f"add name rule-{number} ip-saddr 10.1.{number}.0/24 tcp-dport {number} accept" for number in range(1, 120)))
    folder = tmp_path / "phone"
    folder.mkdir()
    with browser.Browser(folder, width=380, height=800, dark=True) as page:
        page.open(web.url)
        page.wait("document.querySelector('input[type=password]')")
        keep(page, "login")
        page.type("input[type=password]", web.token)
        page.click("Open")
        page.wait("document.querySelector('#status.good')")
        for view in ("overview", "rules", "connections", "drops", "explain", "policy"):
            page.run(f"location.hash = '#/{view}'")
            page.wait("document.querySelector('main h1')")
            page.wait("!document.querySelector('#status').textContent.includes('connecting')")
            wide = page.run("document.documentElement.scrollWidth")
            assert wide <= 380, f"{view} is {wide} pixels wide"
            unlabelled = "[...document.querySelectorAll('input, select, textarea')].filter((one) => !one.labels?.length && !one.ariaLabel).length"
            assert page.run(unlabelled) == 0
            keep(page, f"phone-{view}")
        assert [error for error in page.errors if "401" not in error] == []


@needs_browser
def test_a_hundred_thousand_rules_are_searched(mmb, web, page, tmp_path):
    path = tmp_path / "many.mmb"
    path.write_text("".join(f"add id {n} ip-saddr 10.{n >> 16}.{n >> 8 & 255}.{n & 255} tcp-dport {1 + n % 9000} accept\n" for n in range(1, 100_001)))
    mmb.client("apply", path, "--json", timeout=120)
    found = web.get("/api/v1/rules?q=10.1.134.160&limit=5")
    assert (found["total"], [rule["id"] for rule in found["rules"]]) == (100_000, [100_000])
    opened(page, web, "rules")
    page.wait("document.querySelectorAll('td.rule').length === 50 && document.body.innerText.includes('100\\u202f000 rules')")
    page.type("input[type=search]", "10.1.134. 8000")
    page.wait("document.querySelectorAll('td.rule').length < 3 && document.body.innerText.includes('of 100\\u202f000 rules')")
    page.run("location.hash = '#/policy'")
    page.wait("document.body.innerText.includes('The policy is long: ')")
    assert page.errors == []
