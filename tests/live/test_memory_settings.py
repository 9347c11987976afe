"""Everything that sizes memory, at its largest: under a limit of the address space and in a control group. Each change is accepted or
refused with both numbers; the daemon stays, and so does its traffic."""

import random
import re
import resource

import pytest

from lab import cgroup
from lab.daemon import DidNotStart, Mmb
from lab.process import run

from .programs import ping
from .test_memory import status
from .topology import SERVER4

# Measures rates, times or memory of the machine.
pytestmark = pytest.mark.alone

# Memory beyond the daemon's use after its start.
MORE = 300 << 20
STREAMS = "add-stateful tcp-dport 80 "
LIMITED = "add udp-dport 53 limit 10/s per ip-saddr"


def sets(count):
    elements = ", ".join(f"11.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(0, 2 * count, 2))
    return f"set large {{{elements}}}\nadd ip-saddr @large drop\n"


# Whole policies: settings at their largest with the rules that use them, and lists.
SIZED = {
    "connections": "set conn max 100000000\nadd-stateful ip-proto udp accept",
    "stream memory": f"set stream memory 1048576\n{STREAMS} stream \"x\" close",
    "some stream memory": f"set stream memory 100000\n{STREAMS} stream \"x\" close",
    "streams": "set stream max 10000000\n" + STREAMS + "stream {" + ", ".join(f"/a{n}[0-9]{{1,20}}b/" for n in range(30)) + "} close",
    "edited streams": f"set stream max 10000000\nset stream memory 1\n{STREAMS} stream \"secret\" mask stream",
    "http": f"set stream max 10000000\n{STREAMS} http-body /secret [0-9]{{1,9}}/ strip http-body",
    "windows": f"set stream window 16384\nset stream reorder 16384\n{STREAMS} stream \"x\" close",
    "limit keys": f"set limit keys 16777216\n{LIMITED}\n" + "\n".join(LIMITED.replace("53", str(n)) for n in range(1000, 1040)),
    "a set": sets(200_000),
    "rules": "".join(f"add ip-saddr 11.{n >> 16}.{n >> 8 & 255}.{n & 255} drop\n" for n in range(600_000)),
    "texts": STREAMS + "stream {" + ", ".join(f"\"{'y' * 100}{n}\"" for n in range(5000)) + "} close",
}


@pytest.fixture(params=["address space", "control group"])
def group(request):
    """The group of the daemon; none where its address space is limited."""
    if request.param == "address space":
        yield None
        return
    try:
        made = cgroup.MemoryGroup(1 << 40)
    except cgroup.Unusable as why:
        pytest.skip(str(why))
    yield made
    made.close()


@pytest.fixture
def site(group, fresh):
    """Created after the group, so that its processes end before the group is removed."""
    return fresh("af_packet")


@pytest.fixture
def tight(site, fresh, group):
    """A daemon that can hardly grow."""
    mmb = fresh.daemon(site, group=group)
    if group is None:
        limit = status(mmb, "VmSize") + MORE
        resource.prlimit(mmb.process.pid, resource.RLIMIT_AS, (limit, limit))
    else:
        group.limit(group.used() + MORE)
    yield mmb
    assert mmb.running() and (group is None or group.kills() == 0)


def outcome(mmb, site, text):
    """Applies a policy. Returns the error; empty if it is accepted."""
    file = site.folder / "sized.mmb"
    file.write_text(text + "\n", encoding="ascii")
    done = mmb.client("apply", file, check=False, timeout=300)
    return done.stderr if done.returncode else ""


def test_whatever_sizes_memory_is_accepted_or_refused_with_both_numbers(site, tight):
    names = list(SIZED) * 2
    random.Random(38).shuffle(names)
    refused = set()
    for name in names:
        error = outcome(tight, site, SIZED[name])
        assert not error or "not enough memory" in error and "are available" in error, f"{name}: {error}"
        if error:
            refused.add(name)
        assert tight.running(), name
        assert ping(site, SERVER4, count=2) == 2, name
        if not error:
            tight("flush")
    assert {"connections", "stream memory", "some stream memory", "streams", "edited streams", "http"} <= refused


def test_limits_that_go_get_no_larger_tables(site, tight):
    """The policy that removes them also returns to the default of `limit keys`."""
    limits = "".join(f"{LIMITED.replace('53', str(port))}\n" for port in range(1000, 1300))
    assert not outcome(tight, site, "set limit keys 1024\n" + limits)
    assert not outcome(tight, site, "add udp-dport 53 drop")
    assert tight.running() and ping(site, SERVER4, count=2) == 2


def test_the_value_that_an_error_names_fits(site, tight):
    for rule in ("stream \"x\" close", "http-body /secret [0-9]{1,9}/ strip http-body"):
        for setting, largest in (("stream memory", 1048576), ("stream max", 10000000)):
            settings = {"stream memory": 16, "stream max": 1000, setting: largest}
            text = "\n".join(f"set {name} {value}" for name, value in settings.items()) + f"\n{STREAMS} {rule}"
            error = outcome(tight, site, text)
            assert f"set {setting} {largest}: not enough memory" in error, error
            fits = int(error.split(" would fit")[0].split()[-1])
            assert fits > 0
            # What the daemon uses varies by some MB.
            assert not outcome(tight, site, text.replace(str(largest), str(fits * 3 // 4)))
            assert ping(site, SERVER4, count=2) == 2
            tight("flush")


def test_the_number_of_limit_keys_that_an_error_names_fits(site, tight):
    text = SIZED["limit keys"]
    error = outcome(tight, site, text)
    assert "set limit keys 16777216: not enough memory" in error, error
    fits = error.split(" would fit")[0].split()[-1]
    assert not outcome(tight, site, text.replace("16777216", fits))
    assert ping(site, SERVER4, count=2) == 2


def test_a_file_that_does_not_fit_is_refused_at_the_start(site, fresh):
    file = site.folder / "start.mmb"
    file.write_text(SIZED["stream memory"] + "\n", encoding="ascii")
    with pytest.raises(DidNotStart, match=r"set stream memory 1048576: not enough memory.* would fit"):
        fresh.daemon(site, "-c", file)


def test_check_tells_that_this_machine_has_too_little_memory(tmp_path):
    file = tmp_path / "large.mmb"
    file.write_text(SIZED["stream memory"] + "\n", encoding="ascii")
    check = [Mmb.binary, "check"]
    done = run([*check, file], check=False)
    assert done.returncode == 1 and re.search(r"not enough memory: .* are available .* would fit", done.stderr), done
    assert "good" in run([*check, "--any-machine", file]).stdout


class Limited:
    """A namespace whose programs have so many bytes of address space."""

    def __init__(self, namespace, space):
        self.namespace = namespace
        self.space = space

    def start(self, words, *args, **options):
        return self.namespace.start(["prlimit", f"--as={self.space}", *words], *args, **options)


def test_a_start_with_any_address_space_serves_or_exits_with_an_error(fresh):
    site = fresh("af_packet")
    served = set()
    for space in range(200, 1500, 100):
        mmb = site.mmb(f"limited{space}")
        mmb.namespace = Limited(mmb.namespace, space * 1_000_000)
        try:
            mmb.start()
        except DidNotStart:
            assert mmb.process.wait() == 1, mmb.output()
            # DPDK reports the shortage with messages of its own.
            assert re.search(r"cannot start: not enough memory|starting DPDK|Cannot allocate memory", mmb.output()), mmb.output()
            continue
        served.add(space)
        assert ping(site, SERVER4, count=2) == 2
        mmb("add udp-dport 53 drop")
        assert mmb.stop() == 0
    assert {1000, 1400} <= served and not served & {200, 600}
