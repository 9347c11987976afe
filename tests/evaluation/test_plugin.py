"""The table of mmb in VPP."""

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import rdpcap, wrpcap

from evaluation import plugin
from evaluation.answers import write

HERE = {"cpu": "a processor", "cores": 2, "kernel": "6.1"}


def test_every_row_has_its_medians_and_ratio():
    found = {row: ([90.0, 110.0, 100.0], [50.0] if row.rules else []) for row in plugin.rows()}
    lines = "".join(plugin.table(found, HERE, "make vpp-bench")).splitlines()
    assert "make vpp-bench" in lines[0] and "a processor" in lines[0]
    rows = [line for line in lines if line.startswith("| ") and "packets through" not in line and "---" not in line]
    assert len(rows) == len(found)
    for row, line in zip(found, rows, strict=True):
        assert row.title in line and "100 (95-105)" in line
        assert ("2.00" in line) == (row.rules is not None)


def test_the_table_goes_between_its_marks_and_nowhere_else(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{plugin.BEGIN}old\n{plugin.END}behind\n")
    plugin.put_into(page, "new\n")
    assert page.read_text() == f"before\n{plugin.BEGIN}new\n{plugin.END}behind\n"
    page.write_text("no marks\n")
    with pytest.raises(SystemExit, match="no place for the table"):
        plugin.put_into(page, "new\n")
    assert page.read_text() == "no marks\n"


def test_answers_are_whole_and_come_from_the_other_end(tmp_path):
    sent, answers = tmp_path / "sent.pcap", tmp_path / "answers.pcap"
    packets = [Ether() / IP(src="10.0.0.1", dst="198.51.100.9") / UDP(sport=1000 + n, dport=53) / Raw(b"x" * n) for n in range(3)]
    wrpcap(str(sent), packets)
    write(sent, answers, "02:00:00:00:00:08")
    for number, packet in enumerate(rdpcap(str(answers))):
        assert packet.dst == "02:00:00:00:00:08"
        assert (packet[IP].src, packet[IP].dst) == ("198.51.100.9", "10.0.0.1")
        assert (packet[UDP].sport, packet[UDP].dport, len(packet[UDP].payload)) == (53, 1000 + number, number)
        given = packet[IP].chksum, packet[UDP].chksum
        del packet[IP].chksum, packet[UDP].chksum
        again = Ether(bytes(packet))
        assert (again[IP].chksum, again[UDP].chksum) == given
