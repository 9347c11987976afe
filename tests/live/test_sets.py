"""Named sets of a daemon that forwards: changes hold at once, elements expire, files of very many prefixes, what save writes."""

import json
import time

from .programs import ping
from .topology import CLIENT4, SERVER4


def elements(mmb, name):
    return {line["element"]: line.get("expires_s") for line in mmb.ask("show set", name)["elements"]}


def waits(condition, seconds=20):
    """Whether a condition holds in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return False


def passes(site):
    return ping(site, SERVER4, count=2) == 2


def test_a_change_of_a_set_holds_at_once_and_an_element_expires(site, mmb):
    mmb("set bad {}")
    mmb("add id 1 ip-saddr @bad drop")
    mmb("add id 2 ip-daddr @bad drop")
    assert passes(site)
    assert "1 element" in mmb("set", "bad", "+=", f"{{{CLIENT4}}}")
    assert not passes(site)
    mmb("set", "bad", "-=", f"{{{CLIENT4}}}")
    assert passes(site)
    changed = mmb.ask(f"set bad += {{{CLIENT4} timeout 3s, 10.99.0.0/16}}")["sets"]
    assert changed == [{"name": "bad", "before": 0, "elements": 2}]
    assert not passes(site)
    assert set(elements(mmb, "bad")) <= {CLIENT4, "10.99.0.0/16"}
    assert waits(lambda: CLIENT4 not in elements(mmb, "bad")), "the element does not expire"
    assert passes(site)
    assert elements(mmb, "bad") == {"10.99.0.0/16": None}
    (line,) = mmb.ask("show sets")["sets"]
    assert (line["name"], line["elements"], line["ip4"], line["rules"]) == ("bad", 1, 1, 2) and line["bytes"] > 0
    assert "bad" in mmb("show sets") and mmb("show set bad") == "10.99.0.0/16\n"
    message = mmb.refused("del set bad")
    assert "rules 1 and 2" in message and "^" in message
    assert "numbers" in mmb.refused("set bad {80}") and "did you mean" in mmb.refused("show set bat")
    assert "@bad" in mmb.refused("add ip-saddr @bat drop")
    mmb("flush")
    assert "gone" in mmb("del set bad")
    assert mmb.ask("show sets")["sets"] == []


def test_a_file_of_a_million_prefixes_is_a_set(site, mmb):
    # Apart from each other, all over the address space but for the test's own networks.
    firsts = (first for first in range(0x0B000000, 0xDF000000, 3500) if first >> 24 not in (127, 192))
    prefixes = [first & ~0xFF for first, _ in zip(firsts, range(1_000_000), strict=False)]
    path = site.folder / "many.txt"
    path.write_text("".join(f"{a >> 24}.{a >> 16 & 255}.{a >> 8 & 255}.0/26\n" for a in prefixes))
    mmb("set", "bad", "file", path)
    mmb("add id 1 ip-saddr @bad drop")
    assert mmb.ask("show sets")["sets"][0]["elements"] == len(prefixes) == 1_000_000
    assert passes(site)
    mmb("set", "bad", "+=", f"{{{CLIENT4}}}")
    assert not passes(site)
    mmb("set", "bad", "-=", f"{{{CLIENT4}}}")
    assert passes(site)
    mmb("flush")
    mmb("del set bad")


def test_a_policy_file_holds_its_sets(site, mmb):
    rules = [
        "set bad {10.99.0.0/16, 192.0.2.7 timeout 1h, 2001:db8::1-2001:db8::9}",
        "set web {80, 8000-8080}",
        "add id 1 ip-saddr @bad drop",
        "add id 2 tcp-dport @web accept",
    ]
    mmb.apply(site.folder, *rules)
    saved = site.folder / "saved.mmb"
    mmb("save", saved)
    text = saved.read_text()
    assert "set web {80, 8000-8080}\n" in text and "add id 1 ip-saddr @bad drop\n" in text
    timeouts = [word for line in text.splitlines() if line.startswith("set bad") for word in line.split() if word.endswith("s,") or "m" in word]
    assert "timeout" in text and (timeouts or "1h" in text)
    mmb("set bad += {10.98.0.0/16}")
    tried = json.loads(mmb("apply", saved, "--dry-run", "--json"))
    assert tried["sets"] == [{"name": "bad", "before": 4, "elements": 3}] and tried["added"] == []
    assert "10.98.0.0/16" in elements(mmb, "bad")
    mmb("apply", saved)
    assert set(elements(mmb, "bad")) == {"10.99.0.0/16", "192.0.2.7", "2001:db8::1-2001:db8::9"}
    assert 0 < elements(mmb, "bad")["192.0.2.7"] <= 3600
    mmb.apply(site.folder, "add all accept")
    assert mmb.ask("show sets")["sets"] == []
