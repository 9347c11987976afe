"""Makes the modules of the replay tests importable, and checks that there is a program to test."""

import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "replay")]


@pytest.fixture(scope="session")
def mmb():
    """The program: $MMB, or the release build."""
    path = pathlib.Path(os.environ.get("MMB", HERE.parents[1] / "target/release/mmb")).resolve()
    if not path.exists():
        pytest.exit(f"no mmb at {path}: build it, or name it with MMB=PATH", returncode=2)
    return path
