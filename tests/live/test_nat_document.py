"""docs/nat.md names tests; each must exist."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs_no_root

HERE = Path(__file__).parent


def test_every_test_that_the_document_names_is_there():
    named = set(re.findall(r"`(test_\w+)`", (HERE.parents[1] / "docs" / "nat.md").read_text()))
    there = {name for path in HERE.glob("test_*.py") for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)}
    assert len(named) > 40 and sorted(named - there) == []
