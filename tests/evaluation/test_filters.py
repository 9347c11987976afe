"""ClassBench filters as access lists of VPP and as policies of mmb."""

import itertools
import lzma
import re

import pytest
from scapy.layers.inet import IP
from scapy.utils import rdpcap

from evaluation import filters, plugin

ANY = "0 : 65535"
# A filter, and its rules in VPP's words, without the action.
LINES = (
    (f"@10.0.0.0/8\t0.0.0.0/0\t{ANY}\t25 : 25\t0x06/0xFF\t0x0000/0x0000\t",
     ["src 10.0.0.0/8 dst 0.0.0.0/0 proto 6 sport 0-65535 dport 25-25"]),
    (f"@1.2.3.4/32\t5.6.7.8/31\t{ANY}\t{ANY}\t0x06/0xFF\t0x0200/0x1200\t",
     ["src 1.2.3.4/32 dst 5.6.7.8/31 proto 6 tcpflags 2 mask 18"]),
    # The lower byte is data offset and reserved bits.
    (f"@1.2.3.4/32\t5.6.7.8/31\t1024 : 65535\t{ANY}\t0x06/0xFF\t0x0000/0x0002\t",
     ["src 1.2.3.4/32 dst 5.6.7.8/31 proto 6 sport 1024-65535 dport 0-65535"]),
    (f"@1.2.3.4/32\t5.6.7.8/31\t{ANY}\t53 : 53\t0x00/0x00\t0x0000/0x0000\t",
     [f"src 1.2.3.4/32 dst 5.6.7.8/31 proto {proto} sport 0-65535 dport 53-53" for proto in (6, 17)]),
    (f"@1.2.3.4/32\t5.6.7.8/31\t{ANY}\t{ANY}\t0x00/0x00", ["src 1.2.3.4/32 dst 5.6.7.8/31"]),
    (f"@1.2.3.4/32\t5.6.7.8/31\t{ANY}\t{ANY}\t0x01/0xFF\t0x0800/0xff00\t",
     ["src 1.2.3.4/32 dst 5.6.7.8/31 proto 1 sport 8-8 dport 0-255"]),
    # A protocol without ports.
    (f"@1.2.3.4/32\t5.6.7.8/31\t{ANY}\t53 : 53\t0x04/0xFF\t0x0000/0x0000\t", ["src 1.2.3.4/32 dst 5.6.7.8/31 proto 4"]),
)  # fmt: skip
TEXT = "".join(f"{line}\n" for line, _ in LINES)


def test_filters_become_rules_of_an_access_list_in_their_order():
    head, rules = filters.acl(f"# a set\n{TEXT}\n").split(" permit", 1)
    assert head == "set acl-plugin acl"
    expected = [f"{['permit', 'deny'][place % 2]} {rule}" for place, (_, rules) in enumerate(LINES) for rule in rules]
    assert f"permit{rules}".split(", ") == [*expected, "permit"]


def test_sets_are_found_plain_and_compressed(tmp_path, monkeypatch):
    monkeypatch.setenv("CLASSBENCH", str(tmp_path))
    (tmp_path / "LICENSE").write_text("none\n")
    (tmp_path / "a").write_text(TEXT)
    (tmp_path / "b.xz").write_bytes(lzma.compress(TEXT.encode()))
    assert [(chosen.name, chosen.text()) for chosen in filters.sets()] == [("a", TEXT), ("b", TEXT)]
    rows = [row for row in plugin.rows() if "ClassBench" in row.title]
    assert [(row.title, row.on) for row in rows if not row.rules] == [
        (f"ACL plugin: ClassBench {name}", (f"set acl-plugin interface pg0 input acl {number}",)) for name, number in (("a", 4), ("b", 5))
    ]
    assert [row.load.name for row in rows if row.rules] == ["a", "b"]


def test_policy_and_packets_are_of_the_same_set(tmp_path):
    (tmp_path / "set").write_text(TEXT)
    place = tmp_path / "files"
    place.mkdir()
    capture, policy = filters.packets_and_policy(place, filters.FilterSet(tmp_path / "set"), 50)
    rules = [line for line in policy.read_text().splitlines() if line.startswith("add")]
    actions = [re.search(r"(accept|drop)( #.*)?$", rule)[1] for rule in rules]
    # A filter may need several rules.
    assert [action for action, _ in itertools.groupby(actions)] == [["accept", "drop"][place % 2] for place in range(len(LINES))]
    assert [int(re.search(r"prio (\d+)", rule)[1]) for rule in rules] == list(range(1, len(rules) + 1))
    assert [IP in packet for packet in rdpcap(str(capture))] == [True] * 50


@pytest.mark.parametrize("chosen", filters.sets(), ids=lambda chosen: chosen.name)
def test_every_filter_of_the_sets_has_a_rule(chosen):
    count = len(chosen.text().splitlines())
    assert count <= len(filters.acl(chosen.text()).split(", ")) - 1 <= 2 * count


def test_policies_of_five_tuples_are_the_first_rules(tmp_path):
    (tmp_path / "rules").write_text("add a\nadd b\nadd c\n")
    assert plugin.first(2)(tmp_path / "rules") == "add a\nadd b\n"
