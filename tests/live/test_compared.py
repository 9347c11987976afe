"""docs/compared.md: mmb accepts what it says in mmb's language, and nft what it says in nftables'."""

import re
from pathlib import Path

import pytest

from lab.daemon import BINARY
from lab.process import run

PAGE = Path(__file__).parents[2] / "docs/compared.md"
# Where a rule of nftables may stand.
CHAINS = [
    ("inet", "type filter hook forward priority 0"),
    ("ip", "type nat hook prerouting priority dstnat"),
    ("ip", "type nat hook postrouting priority srcnat"),
    ("bridge", "type filter hook forward priority 0"),
]


def rows(heading):
    """The cells of the table below a heading, without its head."""
    section = PAGE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.split("\n") if line.startswith("|")][2:]
    return [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def policies():
    for heading in ("nftables", "pf", "VPP", "HAProxy"):
        for _, _, cell in rows(heading):
            rules = re.findall(r"`((?:add|set)[ -].*?)`", cell)
            if rules:
                yield pytest.param(rules, id=rules[0])


@pytest.mark.needs_no_root
@pytest.mark.parametrize("rules", policies())
def test_mmb_accepts_its_rows(rules, tmp_path):
    policy = tmp_path / "row.mmb"
    policy.write_text("".join(f"{rule}\n" for rule in rules))
    done = run([BINARY, "check", policy])
    assert "good" in done.stdout and not done.stderr


def test_nft_accepts_its_rows():
    statements = [re.findall(r"`(.*?)`", cell)[0] for _, cell, mmb in rows("nftables") if "`add" in mmb and "@bad" not in cell]
    assert len(statements) > 15
    for statement in statements:
        tried = []
        for family, chain in CHAINS:
            text = f"table {family} t {{ chain c {{ {chain}; {statement}; }}; }}\n"
            done = run(["unshare", "--net", "nft", "--check", "-f", "-"], input=text, check=False)
            tried.append(done.stderr)
            if done.returncode == 0:
                break
        else:
            raise AssertionError(f"{statement}: {tried}")
