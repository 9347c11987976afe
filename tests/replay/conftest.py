"""Makes the modules beside the tests importable, and checks that there is a program to test."""

import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))


@pytest.fixture(scope="session")
def mmb():
    """The program: $MMB, or the release build."""
    default = pathlib.Path(__file__).resolve().parents[2] / "target/release/mmb"
    path = pathlib.Path(os.environ.get("MMB", default)).resolve()
    if not path.exists():
        pytest.exit(f"no mmb at {path}: build it, or name it with MMB=PATH", returncode=2)
    return path
