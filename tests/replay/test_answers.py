"""Answers to packets that a rule rejects or that are too large: each is compared with one that scapy builds by the RFCs."""

import pytest
from captures import replay_both
from scapy.compat import raw
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoRequest,
    ICMPv6NDOptSrcLLAddr,
    ICMPv6PacketTooBig,
    ICMPv6ND_Redirect,
    ICMPv6ParamProblem,
    ICMPv6TimeExceeded,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
)
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Raw

CLIENT, SERVER = "10.0.0.1", "192.0.2.80"
CLIENT6, SERVER6 = "2001:db8::1", "2001:db8:80::80"
MACS = {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}
LIFE = 64
CS6 = 0xC0


def ether(*tags, **fields):
    header = Ether(**{**MACS, **fields})
    for tag in tags:
        header = header / Dot1Q(vlan=tag)
    return header


def back(*tags):
    return ether(*tags, src=MACS["dst"], dst=MACS["src"])


def ip4(**fields):
    return IP(src=CLIENT, dst=SERVER, **fields)


def ip6(**fields):
    return IPv6(src=CLIENT6, dst=SERVER6, **fields)


def back4(**fields):
    return IP(src=SERVER, dst=CLIENT, id=0, flags="DF", ttl=LIFE, **fields)


def back6(**fields):
    return IPv6(src=SERVER6, dst=CLIENT6, hlim=LIFE, **fields)


def error4(sent, code, quoted=548, kind=3):
    """The ICMP error that answers a packet without link header (RFC 792, RFC 1812 section 4.3.2.3)."""
    return back4(tos=CS6) / ICMP(type=kind, code=code) / Raw(raw(sent)[:quoted])


def error6(sent, code, quoted=1232):
    """RFC 4443 section 3.1 and 2.4 (c)."""
    return back6(tc=CS6) / ICMPv6DestUnreach(code=code) / Raw(raw(sent)[:quoted])


def answers(mmb, folder, rules, *frames):
    """The frames that leave by the port that these frames come in by, and the summary."""
    numbered = [(number, raw(frame)) for number, frame in enumerate(frames)]
    left, summary = replay_both(mmb, folder, rules, numbered, [])
    return [frame for _, frame in left["lan"]], summary


def check(mmb, folder, rule, frame, expected):
    found, summary = answers(mmb, folder, [rule], frame)
    assert [raw(Ether(frame)) for frame in found] == [raw(expected)], Ether(found[0]).show(dump=True) if found else "none"
    assert summary["drops"] == {"rule-reject": 1} and summary["made"] == {"reject": 1}


@pytest.mark.parametrize("rule", ["add all reject", "add tcp-dport 80 reject tcp-rst", "add-stateful tcp-dport 80 reject"])
@pytest.mark.parametrize(
    "flags, ack, data, expected",
    [
        ("S", 0, b"", {"flags": "RA", "seq": 0, "ack": 1001}),
        ("S", 0, b"fast open", {"flags": "RA", "seq": 0, "ack": 1010}),
        ("F", 0, b"bytes", {"flags": "RA", "seq": 0, "ack": 1006}),
        ("A", 77, b"bytes", {"flags": "R", "seq": 77, "ack": 0}),
        ("SA", 77, b"", {"flags": "R", "seq": 77, "ack": 0}),
    ],
)
def test_a_segment_is_answered_with_a_reset(mmb, tmp_path, rule, flags, ack, data, expected):
    """RFC 9293 section 3.10.7.1."""
    if rule.startswith("add-stateful") and flags in ("SA", "F"):
        pytest.skip("neither begins a connection")
    sent = TCP(sport=5000, dport=80, flags=flags, seq=1000, ack=ack, options=[("MSS", 1460)]) / Raw(data)
    answer = TCP(sport=80, dport=5000, window=0, **expected)
    check(mmb, tmp_path, rule, ether() / ip4(tos=0x2E) / sent, back() / back4() / answer)
    check(mmb, tmp_path, rule, ether(7, 9) / ip6() / sent, back(7, 9) / back6() / answer)


@pytest.mark.parametrize("size", [0, 100, 519, 520, 521, 1400])
def test_a_datagram_is_answered_with_port_unreachable(mmb, tmp_path, size):
    """All of it is quoted, or as much as fits."""
    datagram = UDP(sport=5000, dport=53) / Raw(bytes(index % 251 for index in range(size)))
    sent = ip4(tos=4, id=7) / datagram
    # The padding of short frames is no part of the packet.
    check(mmb, tmp_path, "add all reject", raw(ether() / sent).ljust(60, b"\xaa"), back() / error4(sent, 3))
    sent = ip6(tc=4, fl=99) / datagram
    check(mmb, tmp_path, "add all reject", ether(5) / sent, back(5) / error6(sent, 4))


CODES = [
    ("icmp", 3, 4), ("icmp6", 3, 4), ("icmp net-unreachable", 0, 0), ("icmp host-unreachable", 1, 0),
    ("icmp port-unreachable", 3, 4), ("icmp net-prohibited", 9, 1), ("icmp host-prohibited", 10, 1),
    ("icmp admin-prohibited", 13, 1), ("icmp 5", 5, 0), ("icmp 15", 15, 1),
    ("icmp6 no-route", 1, 0), ("icmp6 admin-prohibited", 10, 1), ("icmp6 beyond-scope", 1, 2),
    ("icmp6 addr-unreachable", 1, 3), ("icmp6 port-unreachable", 3, 4), ("icmp6 policy-fail", 13, 5),
    ("icmp6 reject-route", 13, 6), ("icmp6 8", 13, 8),
]  # fmt: skip


@pytest.mark.parametrize("answer, code4, code6", CODES)
def test_codes_are_those_that_were_asked_for_or_their_translation(mmb, tmp_path, answer, code4, code6):
    """RFC 7915 sections 4.2 and 5.2."""
    segment = TCP(sport=5000, dport=80, flags="S")
    sent = ip4() / segment
    check(mmb, tmp_path, f"add tcp-dport 80 reject {answer}", ether() / sent, back() / error4(sent, code4))
    sent = ip6() / segment
    check(mmb, tmp_path, f"add tcp-dport 80 reject {answer}", ether() / sent, back() / error6(sent, code6))


def test_an_unknown_protocol_of_ipv6_is_a_parameter_problem(mmb, tmp_path):
    """RFC 4443 section 3.4: the pointer is that of the byte which names the protocol."""
    sent = ip4(proto=47) / Raw(b"12345678")
    check(mmb, tmp_path, "add all reject icmp proto-unreachable", ether() / sent, back() / error4(sent, 2))
    for sent, pointer in ((ip6(nh=99) / Raw(b"1234"), 6), (ip6() / IPv6ExtHdrDestOpt(nh=99) / Raw(b"1234"), 40)):
        answer = back6(tc=CS6) / ICMPv6ParamProblem(code=1, ptr=pointer) / Raw(raw(sent))
        check(mmb, tmp_path, "add all reject icmp proto-unreachable", ether() / sent, back() / answer)


SEGMENT = TCP(sport=5000, dport=80, flags="S")
DATAGRAM = UDP(sport=5000, dport=53) / b"data"
WRONG = TCP(sport=5000, dport=80, flags="S", chksum=0xDEAD)
SILENT = {
    "a RST": ether() / ip4() / TCP(sport=5000, dport=80, flags="R"),
    "a RST over IPv6": ether() / ip6() / TCP(sport=5000, dport=80, flags="RA"),
    "an ICMP error": ether() / IP(src=CLIENT, dst=SERVER) / ICMP(type=3, code=1) / IP() / UDP(),
    "a redirect": ether() / ip4() / ICMP(type=5, code=1) / IP() / UDP(),
    "an unknown type of ICMP": ether() / ip4() / ICMP(type=200),
    "an ICMPv6 error": ether() / ip6() / ICMPv6TimeExceeded() / IPv6() / UDP(),
    "an ICMPv6 redirect": ether() / ip6() / ICMPv6ND_Redirect() / ICMPv6NDOptSrcLLAddr(),
    "a later fragment": ether() / ip4(frag=10, proto=17) / Raw(bytes(64)),
    "a later fragment of IPv6": ether() / ip6() / IPv6ExtHdrFragment(offset=10, nh=17) / Raw(bytes(64)),
    "a SYN in fragments": ether() / ip4(flags="MF") / SEGMENT / Raw(bytes(12)),
    "a multicast": ether() / IP(src=CLIENT, dst="224.0.0.251") / DATAGRAM,
    "a broadcast": ether() / IP(src=CLIENT, dst="255.255.255.255") / DATAGRAM,
    "a reserved address": ether() / IP(src=CLIENT, dst="240.0.0.1") / DATAGRAM,
    "a multicast over IPv6": ether() / IPv6(src=CLIENT6, dst="ff02::fb") / DATAGRAM,
    "a broadcast frame": ether(dst="ff:ff:ff:ff:ff:ff") / ip4() / DATAGRAM,
    "a multicast frame": ether(dst="01:00:5e:00:00:01") / ip4() / DATAGRAM,
    "a group as the sending station": ether(src="03:00:00:00:00:01") / ip4() / DATAGRAM,
    "no source": ether() / IP(src="0.0.0.0", dst=SERVER) / DATAGRAM,
    "no source of IPv6": ether() / IPv6(src="::", dst=SERVER6) / DATAGRAM,
    "a loopback source": ether() / IP(src="127.0.0.1", dst=SERVER) / DATAGRAM,
    "a loopback source of IPv6": ether() / IPv6(src="::1", dst=SERVER6) / DATAGRAM,
    "a multicast source": ether() / IP(src="239.1.1.1", dst=SERVER) / DATAGRAM,
    "a loopback destination": ether() / IP(src=CLIENT, dst="127.0.0.2") / DATAGRAM,
    "the sender itself": ether() / IP(src=CLIENT, dst=CLIENT) / DATAGRAM,
    "a wrong checksum": ether() / ip4() / WRONG,
    "a wrong checksum over IPv6": ether() / ip6() / UDP(sport=5000, dport=53, chksum=0xDEAD) / b"data",
    "a wrong checksum of ICMP": ether() / ip4() / ICMP(type=8, chksum=0xDEAD),
}


@pytest.mark.parametrize("what", SILENT)
@pytest.mark.parametrize("answer", ["", " icmp admin-prohibited"])
def test_what_nobody_answers_is_only_dropped(mmb, tmp_path, what, answer):
    found, summary = answers(mmb, tmp_path, [f"add all reject{answer}"], SILENT[what])
    if what == "a SYN in fragments" and answer:
        pytest.skip("no number of TCP is needed")
    assert found == [] and "made" not in summary
    assert summary["drops"] == {"rule-reject": 1}
    assert summary["not_applied"] == {"unanswerable": 1}


def test_queries_and_first_fragments_are_answered(mmb, tmp_path):
    sent = ip4() / ICMP(type=8, id=7) / b"ping"
    check(mmb, tmp_path, "add all reject", ether() / sent, back() / error4(sent, 3))
    sent = ip6() / ICMPv6EchoRequest(id=7, data=b"ping")
    check(mmb, tmp_path, "add all reject", ether() / sent, back() / error6(sent, 4))
    sent = ip4(flags="MF", id=9) / UDP(sport=5000, dport=53, len=3000, chksum=7) / Raw(bytes(1000))
    check(mmb, tmp_path, "add all reject", ether() / sent, back() / error4(sent, 3))


def test_other_packets_than_tcp_are_only_dropped_by_a_rst(mmb, tmp_path):
    found, summary = answers(mmb, tmp_path, ["add all reject tcp-rst"], ether() / ip4() / DATAGRAM)
    assert (found, summary["drops"]) == ([], {"rule-reject": 1})
    arp = ether(dst="ff:ff:ff:ff:ff:ff") / ARP(psrc=CLIENT, pdst=SERVER)
    found, summary = answers(mmb, tmp_path, ["add eth-type arp reject"], arp)
    assert (found, summary["drops"]) == ([], {"rule-reject": 1})


def test_reject_competes_with_accept_and_drop(mmb, tmp_path):
    frame = ether() / ip4() / SEGMENT
    for rules, drops in (
        (["add prio 5 all reject", "add prio 6 all drop", "add prio 6 all accept"], {"rule-reject": 1}),
        (["add prio 5 all drop", "add prio 6 all reject"], {"rule": 1}),
        (["add prio 5 all accept", "add prio 5 all reject"], {}),
        (["add id 1 all drop", "add id 2 all reject"], {"rule": 1}),
        (["add id 2 all drop", "add id 1 all reject"], {"rule-reject": 1}),
        (["add prio 5 all drop 0", "add prio 6 all reject"], {"rule-reject": 1}),
    ):
        found, summary = answers(mmb, tmp_path, rules, frame)
        assert summary["drops"] == drops, rules
        assert len(found) == drops.get("rule-reject", 0)
        deciding = {"rule-reject": "reject", "rule": "drop"}
        for reason in drops:
            (by,) = [rule["rule"] for rule in summary["rules"] if rule["dropped_packets"]]
            assert by.endswith(deciding[reason])


def test_answers_are_limited_and_what_is_beyond_is_dropped_all_the_same(mmb, tmp_path):
    """All packets come within a third of a millisecond: a twentieth of the rate, at least 10, may come at once."""
    frames = [ether() / ip4(id=number) / DATAGRAM for number in range(300)]
    for setting, expected in (("", 50), ("set answer rate 100", 10), ("set answer rate 4000", 200)):
        found, summary = answers(mmb, tmp_path, [setting, "add all reject"], *frames)
        assert expected <= len(found) <= expected + 1
        assert summary["drops"] == {"rule-reject": 300}
        assert summary["not_applied"] == {"answer-rate": 300 - len(found)}
    found, summary = answers(mmb, tmp_path, ["set answer rate off", "add all reject"], *frames)
    assert len(found) == 300


def test_a_client_behind_a_translation_is_answered_by_its_own_addresses(mmb, tmp_path):
    """The rejected packet is quoted as it was sent, and so is a packet that comes back to the translated address."""
    nat = "add-stateful in lan ip-saddr 10.0.0.0/24 udp-dport 53 map ip-saddr 200.0.0.1"
    rejects = "add prio 5 in lan payload \"bad\" reject"
    good, bad = (ip4() / UDP(sport=5000, dport=53) / data for data in (b"good", b"bad"))
    left, summary = replay_both(mmb, tmp_path, [nat, rejects], [(0, raw(ether() / good)), (5, raw(ether() / bad))], [])
    assert [IP(frame[14:]).src for _, frame in left["wan"]] == ["200.0.0.1"]
    assert [frame for _, frame in left["lan"]] == [raw(back() / error4(bad, 3))]
    outside = IP(src=SERVER, dst="200.0.0.1") / UDP(sport=53, dport=5000) / b"bad"
    rejects = "add prio 5 in wan payload \"bad\" reject"
    left, summary = replay_both(mmb, tmp_path, [nat, rejects], [(0, raw(ether() / good))], [(5, raw(back() / outside))])
    answer = IP(src="200.0.0.1", dst=SERVER, id=0, flags="DF", ttl=LIFE, tos=CS6) / ICMP(type=3, code=3) / Raw(raw(outside))
    assert [frame for _, frame in left["wan"]][1:] == [raw(ether() / answer)]
    assert left["lan"] == []
    assert summary["made"] == {"reject": 1}


def test_packets_of_a_connection_are_rejected_one_by_one(mmb, tmp_path):
    """A verdict that is cached for a connection still answers each packet."""
    rules = ["add-stateful prio 50 udp-dport 53 accept", "add prio 5 in wan udp-sport 53 reject"]
    request = (ether() / ip4() / UDP(sport=5000, dport=53) / b"q") * 1
    reply = IP(src=SERVER, dst=CLIENT) / UDP(sport=53, dport=5000) / b"r"
    replies = [(10 + number, raw(back() / reply)) for number in range(5)]
    left, summary = replay_both(mmb, tmp_path, rules, [(0, raw(request[0]))], replies)
    assert summary["drops"] == {"rule-reject": 5} and summary["made"] == {"reject": 5}
    assert len(left["wan"]) == 6 and left["lan"] == []


MTU = 1400


def exceeding(mmb, folder, rules, *frames, mtu=MTU):
    """The frames that leave by each port, where both have this MTU."""
    numbered = [(number, raw(frame)) for number, frame in enumerate(frames)]
    return replay_both(mmb, folder, rules, numbered, [], "--mtu", str(mtu))


def of_size(size, header, **fields):
    data = Raw(bytes(index % 251 for index in range(size - len(raw(header)) - 8)))
    return header / UDP(sport=5000, dport=53, **fields) / data


def test_the_sender_of_a_packet_that_is_too_large_is_told_the_mtu(mmb, tmp_path):
    """RFC 1191 section 4, RFC 4443 section 3.2."""
    fits, exceeds = (of_size(size, ip4(flags="DF", id=7)) for size in (MTU, MTU + 1))
    left, summary = exceeding(mmb, tmp_path, [], ether(5) / fits, ether(5) / exceeds)
    answer = back4(tos=CS6) / ICMP(type=3, code=4, nexthopmtu=MTU) / Raw(raw(exceeds)[:548])
    assert [frame for _, frame in left["wan"]] == [raw(ether(5) / fits)]
    assert [frame for _, frame in left["lan"]] == [raw(back(5) / answer)]
    assert (summary["drops"], summary["made"]) == ({"mtu-exceeded": 1}, {"mtu-error": 1})
    fits, exceeds = (of_size(size, ip6(fl=7)) for size in (MTU, MTU + 1))
    left, summary = exceeding(mmb, tmp_path, [], ether() / fits, ether() / exceeds)
    answer = back6(tc=CS6) / ICMPv6PacketTooBig(mtu=MTU) / Raw(raw(exceeds)[:1232])
    assert [frame for _, frame in left["wan"]] == [raw(ether() / fits)]
    assert [frame for _, frame in left["lan"]] == [raw(back() / answer)]
    assert (summary["drops"], summary["made"]) == ({"mtu-exceeded": 1}, {"mtu-error": 1})


def test_what_may_be_fragmented_and_what_nobody_answers_is_only_dropped(mmb, tmp_path):
    frames = [
        ether() / of_size(MTU + 1, ip4()),
        ether() / of_size(MTU + 1, ip4(flags="DF"), chksum=0xDEAD),
        ether() / of_size(MTU + 1, IP(src=CLIENT, dst="224.0.0.251", flags="DF")),
        ether() / IP(src=CLIENT, dst=SERVER, flags="DF") / ICMP(type=3, code=1) / Raw(bytes(MTU)),
    ]
    left, summary = exceeding(mmb, tmp_path, [], *frames)
    assert left == {"lan": [], "wan": []}
    assert (summary["drops"], summary["not_applied"]) == ({"mtu-exceeded": 4}, {"unanswerable": 3})
    left, summary = exceeding(mmb, tmp_path, ["set mtu-errors off"], ether() / of_size(MTU + 1, ip4(flags="DF")))
    assert (left["lan"], summary["drops"], "made" in summary) == ([], {"mtu-exceeded": 1}, False)


def test_the_quoted_packet_is_the_one_that_was_sent(mmb, tmp_path):
    """Neither a translation nor an edit shows."""
    exceeds = of_size(MTU + 1, ip4(flags="DF", id=7))
    answer = back4(tos=CS6) / ICMP(type=3, code=4, nexthopmtu=MTU) / Raw(raw(exceeds)[:548])
    for rules in (
        ["add-stateful in lan ip-saddr 10.0.0.0/24 map ip-saddr 200.0.0.1"],
        ["add all mod ip-ttl 9 mod ip-saddr 200.0.0.1"],
        ["add-stateful in lan ip-saddr 10.0.0.0/24 map ip-saddr 200.0.0.1", "add all mod ip-dscp 3"],
    ):
        left, summary = exceeding(mmb, tmp_path, rules, ether() / of_size(100, ip4(flags="DF")), ether() / exceeds)
        assert len(left["wan"]) == 1 and summary["drops"] == {"mtu-exceeded": 1}
        assert [frame for _, frame in left["lan"]] == [raw(back() / answer)], rules


def test_a_packet_that_a_rule_makes_fit_passes_and_its_error_is_discarded(mmb, tmp_path):
    options = [("Timestamp", (1, 2)), ("NOP", None), ("NOP", None)]
    segment = ip4(flags="DF") / TCP(sport=5000, dport=80, flags="A", options=options)
    data = Raw(bytes(MTU + 12 - len(raw(segment))))
    left, summary = exceeding(mmb, tmp_path, ["add tcp-dport 80 strip all"], ether() / segment / data)
    assert left["lan"] == [] and len(left["wan"][0][1]) == 14 + MTU
    assert "made" not in summary and summary["drops"] == {}


def test_a_packet_that_nobody_answers_and_that_a_rule_makes_fit_is_not_counted(mmb, tmp_path):
    segment = ip4(flags="DF") / TCP(sport=5000, dport=80, flags="A", chksum=0xDEAD, options=[("Timestamp", (1, 2))])
    data = Raw(bytes(MTU + 10 - len(raw(segment))))
    left, summary = exceeding(mmb, tmp_path, ["add tcp-dport 80 strip all"], ether() / segment / data)
    assert len(left["wan"]) == 1 and summary.get("not_applied", {}) == {}
