"""Policies, and their translations for each system."""

import ipaddress
import os
import subprocess

import pytest

from evaluation import topology
from evaluation import loads
from evaluation.policies import LONGER, REWRITING, SEARCHED, STARS, WORD, Policy, Tuple, page, text
from evaluation.systems import ALL, Unable, kernel, mmb, proxies, suricata, xdp

RULE = Tuple("11.2.3.4", "99.0.0.1", 17, 53, 65535)
OURS = [ipaddress.ip_network(network) for network in ("10.0.0.0/8", "200.0.0.1/32")]


def test_tuples_are_distinct_and_follow_from_the_seed():
    drawn = Policy("firewall", 5000).tuples()
    assert len(set(drawn)) == 5000
    assert Policy("firewall", 5000).tuples() == drawn
    assert Policy("firewall", 5000, seed=2).tuples() != drawn


def test_no_rule_is_about_the_traffic_of_the_loads():
    for rule in Policy("firewall", 5000).tuples():
        assert not any(ipaddress.ip_address(rule.source) in network for network in OURS)
    for rule in Policy("masks", 256).shapes():
        assert not any(ipaddress.ip_network(rule.source).overlaps(network) for network in OURS[:1])


def test_no_two_shapes_have_the_same_mask():
    shapes = list(Policy("masks", 256).shapes())
    masks = {(rule.source.split("/")[1], rule.destination.split("/")[1]) for rule in shapes}
    assert len(shapes) == len(masks) == 256


def test_there_are_only_so_many_masks():
    with pytest.raises(ValueError, match="625"):
        list(Policy("masks", 626).shapes())


@pytest.mark.parametrize(
    ("kind", "size", "rules"),
    [
        ("none", 0, 0),
        ("firewall", 100, 100),
        ("stateful", 100, 101),
        ("nat", 0, 1),
        ("masquerade", 0, 1),
        ("options", 100, 100),
        ("masks", 64, 64),
        ("balance", 0, 1),
        ("chain", 0, 0),
        ("chain", 1, 1),
        ("chain", 2, 2),
        ("chain", 3, 4),
        ("patterns", 10_000, 2),
        *((kind, 0, 1) for kind in REWRITING),
    ],
)
def test_mmb_takes_its_rules(tmp_path, kind, size, rules):
    policy, literals = Policy(kind, size), tmp_path / "literals.txt"
    lines = list(mmb.rules(policy, literals))
    assert len(lines) == rules
    literals.write_text("".join(f"{literal}\n" for literal in policy.literals()))
    path = tmp_path / "policy.mmb"
    path.write_text("".join(f"{line}\n" for line in lines))
    done = subprocess.run([os.environ.get("MMB", "target/release/mmb"), "check", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_only_mmb_with_offload_off_changes_a_setting():
    assert list(mmb.settings(ALL["mmb-offload-off"].offload)) == ["set offload off"]
    assert {name for name, system in ALL.items() if getattr(system, "offload", None) is not None} == {"mmb-offload-off"}
    assert list(mmb.settings(ALL["mmb"].offload)) == []


def test_nftables_takes_the_address_of_its_interface_for_a_masquerade():
    assert "oifname vr masquerade" in kernel.nftables(Policy("masquerade"))


def test_five_tuples_in_the_words_of_each_system(monkeypatch):
    monkeypatch.setattr(Policy, "tuples", lambda self: [RULE])
    policy = Policy("firewall", 1)
    assert list(mmb.rules(policy)) == ["add ip-saddr 11.2.3.4 ip-daddr 99.0.0.1 udp-sport 53 udp-dport 65535 drop"]
    assert "-A FORWARD -s 11.2.3.4 -d 99.0.0.1 -p udp --sport 53 --dport 65535 -j DROP" in list(kernel.iptables(policy))
    assert kernel.element(RULE) == "11.2.3.4 . 99.0.0.1 . udp . 53 . 65535"
    assert xdp.key(RULE) == "0b 02 03 04 63 00 00 01 00 35 ff ff 11 00 00 00"


def test_no_literal_is_in_the_payload_of_the_loads():
    payload = text(max(loads.Web.sizes_kb) << 10).decode()
    # Files are this text again and again.
    payload += payload[:16]
    literals = Policy("patterns", 10_000).literals()
    assert len(set(literals)) == 10_000
    assert all(10 <= len(literal) <= 16 and literal not in payload for literal in literals)
    assert Policy("chain", 3).literals() == literals[:SEARCHED]


def test_literals_in_the_words_of_suricata():
    (first, second) = suricata.rules(Policy("patterns", 2))
    literals = Policy("patterns", 2).literals()
    assert first == f'drop tcp any any -> any any (msg:"1"; content:"{literals[0]}"; sid:1;)'
    assert f'content:"{literals[1]}"; sid:2;' in second
    assert list(suricata.rules(Policy("none"))) == []


@pytest.mark.parametrize("size_kb", loads.Web.pages_kb)
def test_each_kb_of_a_page_has_the_word_once(size_kb):
    made = page(size_kb)
    assert len(made) == size_kb << 10 and made == page(size_kb)
    assert {made[at : at + 1024].upper().count(WORD.encode()) for at in range(0, len(made), 1024)} == {1}
    assert {len(line) for line in made.split(b"\n")[:-1]} == {63}


@pytest.mark.parametrize(
    ("kind", "grown", "left"), [("rewrite-body", len(LONGER) - len(WORD), 8), ("rewrite-mask", 0, 0), ("rewrite-head", 0, 8)]
)
def test_what_must_arrive_of_a_page(kind, grown, left):
    made = loads.rewritten(page(8), Policy(kind))
    assert (len(made), made.count(WORD.encode())) == (8192 + 8 * grown, left)
    assert made.count(STARS.encode()) == (8 if kind == "rewrite-mask" else 0)


def test_rewriting_in_the_words_of_proxies(tmp_path):
    body, head = Policy("rewrite-body"), Policy("rewrite-head")
    made = {kind.name: kind(tmp_path, None).filled(body if body.kind in kind.kinds else head) for kind in proxies.KINDS}
    assert 'sub_filter "WORD" "LONGER WORD"; sub_filter_once off;' in made["nginx"]
    assert 'Substitute "s/WORD/LONGER WORD/n"' in made["apache"]
    assert "http-response set-header Server evaluated" in made["haproxy-http"]
    assert "reply_header_replace Server evaluated" in made["squid"]


def test_values_of_one_kind_of_option_share_a_set(monkeypatch):
    monkeypatch.setattr(Policy, "options", lambda self: [(70, 1), (254, 2), (70, 3)])
    table = kernel.nftables(Policy("options", 3))
    assert "tcp option @70,16,32 { 0x1, 0x3 } drop" in table
    assert "tcp option @254,16,32 { 0x2 } drop" in table


@pytest.mark.parametrize(
    ("system", "policy", "why"),
    [
        ("xdp", Policy("nat"), "five-tuples only"),
        ("forward", Policy("options", 1), "does no options"),
        ("iptables", Policy("options", 1), "not its value"),
        ("iptables", Policy("firewall", 100_000), "10,000 show what that costs"),
        ("nftables", Policy("chain", 2), "no chain that ends with reassembly"),
        ("haproxy", Policy("chain", 3), "no chain that ends with search"),
        ("suricata", Policy("chain", 1), "does no chain"),
        ("haproxy-http", Policy("rewrite-body"), "does no rewrite-body"),
        ("nginx", Policy("rewrite-head"), "does no rewrite-head"),
        ("nftables", Policy("rewrite-mask"), "does no rewrite-mask"),
    ],
)
def test_a_system_says_what_it_cannot_do(tmp_path, system, policy, why):
    with pytest.raises(Unable, match=why):
        ALL[system](tmp_path, None).need(policy)


@pytest.mark.parametrize(
    ("cores", "text"), [([], "00000000"), ([0], "00000001"), ([0, 3], "00000009"), ([1, 32, 63], "80000001,00000002")]
)
def test_masks_of_cores_as_the_kernel_writes_them(cores, text):
    assert topology.mask(cores) == text
