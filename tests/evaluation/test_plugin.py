"""The table of mmb in VPP."""

import pytest

from evaluation import plugin

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
