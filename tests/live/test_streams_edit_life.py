"""Rules that edit streams while rules change under load, over a death of mmb, and under programs that open many connections."""

import re
import threading
import time

import pytest

from lab.process import wait_until

from . import edits
from .edits import PORT, Flow, carry, edited, pairs, rule
from .programs import Nginx, fetch
from .test_change import feed
from .test_streams import pair, received
from .topology import SERVER4, Site

WORDS = b"the MATCH is here\n"


@pytest.fixture(scope="module")
def own(namespaces, tmp_path_factory):
    with Site(tmp_path_factory.mktemp("life"), "af_xdp") as made:
        made.nginx = Nginx(made, {"words": WORDS * 100})
        made.daemon = made.mmb().start()
        yield made


@pytest.fixture
def shared(own):
    own.daemon.apply(own.folder)
    own.daemon("conn kill all")
    own.reset()
    yield own
    assert own.daemon.running(), "mmb ended"
    own.daemon.wait_until_settled()


# Programs


def test_many_connections_that_are_kept_alive(shared):
    """wrk: each page is masked, and no connection stalls."""
    shared.daemon("set stream hold 10000")
    shared.daemon("add-stateful id 1", 'tcp-dport 80 stream-reply "MATCH" mask stream-reply')
    done = shared.client.run("wrk", "-t1", "-c50", "-d2", f"http://{SERVER4}/words", timeout=20)
    assert "Socket errors" not in done.stdout and "Non-2xx" not in done.stdout, done.stdout
    requests = int(re.search(r"(\d+) requests in", done.stdout)[1])
    assert requests > 100 and shared.daemon.rule(1)["hits"] >= 100 * requests
    (shared.nginx.root / "masked").write_bytes(WORDS.replace(b"MATCH", b"*****") * 100)
    shared.nginx.files["masked"] = WORDS.replace(b"MATCH", b"*****") * 100
    assert fetch(shared, f"http://{SERVER4}/words")[1] == shared.nginx.digest("masked")


def test_many_short_connections(shared):
    """A connection for each page; afterwards nothing is kept of them."""
    shared.daemon("set stream hold 10000")
    shared.daemon("add-stateful id 1", 'tcp-dport 80 stream-reply "MATCH" strip stream-reply')
    words = ["wrk", "-t1", "-c20", "-d2", "-H", "Connection: close", f"http://{SERVER4}/words"]
    done = shared.client.run(*words, timeout=20)
    requests = int(re.search(r"(\d+) requests in", done.stdout)[1])
    # Pages are shorter than nginx says: wrk counts each as an error of reading, and reads it to its end.
    assert requests > 50 or "read" in done.stdout, done.stdout
    assert shared.daemon.rule(1)["hits"] >= 100 * requests
    sides = lambda: [listed["stream"][side] for listed in shared.daemon.ask("show streams")["streams"] for side in ("forward", "reply") if side in listed["stream"]]
    wait_until(lambda: sum(side["kept"] + side["waiting"] for side in sides()) < 1 << 20, "nothing is kept")


# Changes under load

LINE = b"%07d:MATCH:a line of text\n"
TARGETS = {
    "mask stream": b"*****",
    'mask stream "#"': b"#####",
    "strip stream": b"",
    'mod stream "<\\m>"': b"<MATCH>",
    f'mod stream "{"long " * 100}"': b"long " * 100,
}


def changes(first, count):
    """Commands that replace the rule on the load (the rule `first` stands) as often, beside others."""
    names = list(TARGETS)
    for number in range(first, first + count):
        new = f'add-stateful id {number + 1} tcp-dport {PORT} stream "MATCH" {names[number % len(names)]}'
        kind = number % 4
        if kind == 0:
            yield f"del {number}"
            yield new
        elif kind == 1:
            yield new
            yield f"del {number}"
        elif kind == 2:
            yield new
            yield f"del {number} --keep"
        else:
            yield f'add-stateful id {number + 5000} tcp-dport {PORT + 1} stream {{"other{number}", "x"}} strip stream'
            yield new
            yield f"del {number}"
            yield f"del {number + 5000}"


def lines_of(got, count):
    """Each line arrived in its turn, as one of the rules makes it or as it was sent."""
    ends = b"|".join(re.escape(by) for by in (b"MATCH", *TARGETS.values()))
    pattern = re.compile(rb"(\d{7}):(?:" + ends + rb"):a line of text\n")
    at, numbers, kinds = 0, 0, set()
    while at < len(got):
        match = pattern.match(got, at)
        assert match, f"line {numbers}: {got[at:at + 700]!r}"
        assert int(match[1]) == numbers, f"line {numbers}: {match[0]!r}"
        kinds.add(match[0][7:16])
        at, numbers = match.end(), numbers + 1
    assert numbers == count
    return kinds


def test_rules_are_replaced_a_hundred_times_under_load(shared):
    """New connections all the time, and one that stays: what arrives is always an edit of what was sent by the rules at some time."""
    mmb, count, kinds, over = shared.daemon, 2000, set(), threading.Event()
    mmb("add-stateful id 1", f'tcp-dport {PORT} stream "MATCH" strip stream')
    data = b"".join(LINE % number for number in range(count))
    stands = [1]

    def change():
        """One change more in each batch, so that each kind of text stands at some batch's end."""
        while stands[0] <= 100 or not over.wait(0.05):
            feed(mmb, changes(stands[0], 11))
            stands[0] += 11

    changer = threading.Thread(target=change)
    with pairs(shared, 1, port=PORT + 2) as lasting:
        changer.start()
        try:
            enough = time.monotonic() + 60
            while (stands[0] <= 100 or len(kinds) < 3) and changer.is_alive() and time.monotonic() < enough:
                with pairs(shared, 4) as ends:
                    flows = [Flow(*way, data, b"", lambda: 1000, 0.002).start() for end in ends for way in (end, end[::-1])]
                    deadline = time.monotonic() + 20
                    for flow in flows:
                        flow.join(deadline)
                        assert flow.error is None
                        kinds |= lines_of(bytes(flow.got), count)
        finally:
            over.set()
            changer.join(60)
        carry([Flow(*lasting[0], data, data)], 10)
    assert not changer.is_alive() and stands[0] > 100 and len(kinds) >= 3, (stands, kinds)
    with pairs(shared, 1) as ends:
        carry([Flow(*ends[0], data, edited(data, (b"MATCH", TARGETS[list(TARGETS)[(stands[0] - 1) % len(TARGETS)]])))], 10)


def test_a_rule_that_drains_edits_its_connections(shared):
    """`del --keep`: the connection has the rule to its end, new ones do not."""
    mmb = shared.daemon
    mmb("add-stateful id 1", rule("strip"))
    with pair(shared) as (near, far):
        near.sendall(b"a MATCH.")
        assert received(far, 3) == b"a ."
        mmb("del 1 --keep")
        near.sendall(b"a MATCH.")
        assert received(far, 3) == b"a ."
    mmb("conn kill all")
    with pair(shared) as (near, far):
        near.sendall(b"a MATCH.")
        assert received(far, 8) == b"a MATCH."


@pytest.mark.parametrize("target", ["mask", "strip", "mod"])
def test_a_deleted_rule_edits_no_more(shared, target):
    """Its connections go on, with the difference that its edits have made, and with what they had begun."""
    mmb = shared.daemon
    mmb("set stream hold 10000")
    mmb("add-stateful id 1", rule(target))
    with pair(shared) as (near, far):
        data = b"a MATCH." * 50
        for here, there in ((near, far), (far, near)):
            here.sendall(data + b"MAT")
            expected = edited(data, (b"MATCH", _by(target)))
            assert received(there, len(expected)) == expected
        mmb("del 1")
        for here, there in ((near, far), (far, near)):
            here.sendall(b"CH, a MATCH.")
            assert received(there, 15) == b"MATCH, a MATCH."
        for _ in range(20):
            for here, there in ((near, far), (far, near)):
                here.sendall(data)
                assert received(there, len(data)) == data


def _by(target):
    return edits.TARGETS[target][1]


def test_a_port_that_is_disabled(shared):
    """Packets then pass untouched: with edits that keep the length, the connection goes on."""
    mmb = shared.daemon
    mmb("add-stateful id 1", rule("mask"))
    with pair(shared) as (near, far):
        for command, becomes in (("", b"a #-#-#."), ("disable lan", b"a MATCH."), ("enable lan", None)):
            if command:
                mmb(command)
            near.sendall(b"a MATCH.")
            got = received(far, 8)
            assert got == becomes or becomes is None and got in (b"a #-#-#.", b"a MATCH.")


# Death and restart


@pytest.mark.parametrize("unfit", ["close", "drop"])
@pytest.mark.parametrize("target", ["strip", "mod"])
def test_a_killed_daemon_delivers_no_other_bytes(fresh, target, unfit):
    """With `stream unfit close` or `drop`: a connection whose numbers were shifted ends; what arrived is the beginning of what should."""
    site = fresh()
    mmb = fresh.daemon(site)
    policy = site.folder / "policy.mmb"
    policy.write_text(f"set stream unfit {unfit}\nadd-stateful id 1 {rule(target)}\n")
    mmb("apply", policy)
    data = b"".join(LINE % number for number in range(20_000))
    with pairs(site, 2, timeout=4) as ends:
        flows = [Flow(*way, data, b"", lambda: 2000, 0.005).start() for end in ends for way in (end, end[::-1])]
        wait_until(lambda: all(len(flow.got) > 50_000 for flow in flows), "they are under way")
        mmb.kill()
        mmb.start("-c", policy)
        with pair(site, port=PORT + 1) as (near, far):
            near.sendall(b"others go on")
            assert received(far, 12) == b"others go on"
        expected = edited(data, (b"MATCH", _by(target)))
        for flow in flows:
            flow.join(time.monotonic() + 20)
            assert flow.error, "it ended"
            assert expected.startswith(bytes(flow.got)), flow.difference()


def test_a_killed_daemon_and_edits_that_keep_the_length(fresh):
    """With `stream unfit pass` the connection goes on, unedited."""
    site = fresh()
    mmb = fresh.daemon(site)
    mmb.apply(site.folder, f"add-stateful id 1 {rule('mask')}")
    with pair(site) as (near, far):
        near.sendall(b"a MATCH.")
        assert received(far, 8) == b"a #-#-#."
        mmb.kill()
        mmb.start()
        mmb.apply(site.folder, f"add-stateful id 1 {rule('mask')}")
        for _ in range(3):
            near.sendall(b"a MATCH.")
            assert received(far, 8) == b"a MATCH."
