"""The tutorials: what each says to type works, and prints what it says."""

import os
from pathlib import Path

import pytest

from lab.daemon import BINARY
from lab.transcript import Shell, matches, repeat, steps

TUTORIALS = sorted(Path(__file__).parents[2].joinpath("docs/tutorials").glob("[a-z]*.md"))


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_works(tutorial, tmp_path):
    assert len(steps(tutorial.read_text())) > 10
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "mmb").symlink_to(BINARY)
    work = tmp_path / "work"
    work.mkdir()
    shell = Shell(work, programs)
    try:
        repeat(tutorial, shell)
    finally:
        shell.close()
    assert not os.path.exists("/run/netns/mmb"), "names of namespaces stay inside"


@pytest.mark.needs_no_root
def test_a_document_that_says_something_else_is_found():
    assert matches(["a", "…", "b … d"], ["a", "x", "y", "b c d"])
    assert matches(["…"], []) and matches(["…"], ["x"]) and matches([], [])
    assert not matches([], ["x"]) and not matches(["a"], []) and not matches(["a.c"], ["abc"])
    assert not matches(["a", "b"], ["a", "x", "b"])
    (step,) = steps("x\n```\n$ no\n```\n```console\n$ cat <<E\n> a\n> E\na\n```\n")
    assert (step.line, step.command, step.output) == (6, "cat <<E\na\nE", ["a"])
