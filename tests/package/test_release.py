"""scripts/release in a temporary repository, with a fake binary and a fake package that only have the version."""

import hashlib
import json
import os
import re
import shutil
import tomllib
from pathlib import Path

import pytest

from lab.process import run

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
IDENTITY = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
# cargo-deb names the package by version and revision.
DEB = """#!/bin/sh
made=target/debian/mmb_{version}-1_amd64.deb
mkdir -p target/debian
echo "$SOURCE_DATE_EPOCH" >$made
echo $made
"""
CHANGELOG = f"""# Changelog

## Unreleased

## {VERSION} — 2026-11-29

- A line.

## 0.0.1 — 2026-01-01

- Another.
"""


class Repository:
    """A repository with the manifests, the lock file and the scripts, and one commit."""

    def __init__(self, folder):
        self.folder = folder
        self.mmb = folder / "target/mmb"

    def git(self, *words):
        return run(["git", *words], cwd=self.folder, env=os.environ | IDENTITY).stdout

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "a change", "--date", "2026-11-29T12:00:00Z")

    def build(self, version):
        self.mmb.parent.mkdir(exist_ok=True)
        self.mmb.write_text(f"#!/bin/sh\necho mmb {version}\n")
        self.mmb.chmod(0o755)

    def release(self, *words):
        return run([self.folder / "scripts/release", *words], check=False, cwd=self.folder, timeout=120)

    def refusal(self, *words):
        done = self.release(*words)
        assert done.returncode == 1 and not done.stdout, done
        return done.stderr

    def artifacts(self):
        return {path.name: path.read_text() for path in (self.folder / "target/release-artifacts").iterdir()}


@pytest.fixture
def repository(tmp_path):
    listed = run(["git", "ls-files", "-z", "Cargo.*", "crates", "fuzz/Cargo.toml", "fuzz/fuzz_targets", "xtask", "scripts", ".gitignore"], cwd=ROOT).stdout
    for name in listed.split("\0")[:-1]:
        if (ROOT / name).exists():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    for script in ("release", "sbom"):
        shutil.copy(ROOT / "scripts" / script, tmp_path / "scripts")
    (tmp_path / "scripts/deb").write_text(DEB.format(version=VERSION))
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    made = Repository(tmp_path)
    made.git("init", "--quiet")
    made.commit()
    made.build(VERSION)
    return made


def test_the_artifacts_of_a_tag(repository):
    repository.git("tag", f"v{VERSION}")
    done = repository.release("make", "target/mmb")
    assert done.returncode == 0, done.stderr
    package, bill = f"mmb_{VERSION}-1_amd64.deb", f"mmb-{VERSION}.cdx.json"
    first = repository.artifacts()
    assert set(first) == {package, bill, "SHA256SUMS"}
    sums = dict(reversed(line.split()) for line in first["SHA256SUMS"].splitlines())
    assert sums == {name: hashlib.sha256(first[name].encode()).hexdigest() for name in (package, bill)}
    run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=repository.folder / "target/release-artifacts")
    assert first[package].strip() == repository.git("log", "-1", "--format=%ct").strip(), "packages have the time of the commit"
    assert repository.release("make", "target/mmb").returncode == 0
    assert repository.artifacts() == first, "the same commit gives the same artifacts"


def test_the_bill_of_materials(repository):
    bill = json.loads(run([repository.folder / "scripts/sbom"], cwd=repository.folder, timeout=120).stdout)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", bill["serialNumber"])
    assert bill["metadata"]["component"]["name"] == "mmb" and bill["metadata"]["component"]["version"] == VERSION
    components = {component["name"]: component for component in bill["components"]}
    assert components["mmb-engine"]["version"] == VERSION and "purl" not in components["mmb-engine"]
    assert components["clap"]["purl"] == f"pkg:cargo/clap@{components['clap']['version']}"
    assert re.fullmatch(r"[0-9a-f]{64}", components["clap"]["hashes"][0]["content"])
    assert all(component["licenses"] for component in components.values())
    for absent in ("mmb-testkit", "proptest", "criterion", "bindgen"):
        assert absent not in components, "tests and build scripts are no part of the binary"
    references = {component["bom-ref"] for component in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    assert {entry["ref"] for entry in bill["dependencies"]} == references
    assert all(references.issuperset(entry["dependsOn"]) for entry in bill["dependencies"])
    assert str(repository.folder) not in json.dumps(bill)


def test_the_notes_of_a_version(repository):
    assert repository.release("notes", f"v{VERSION}").stdout == "- A line.\n"
    assert "the tag v9.9.9 is not" in repository.refusal("notes", "v9.9.9")


def test_a_version_without_its_section_is_refused(repository):
    changelog = repository.folder / "CHANGELOG.md"
    for missing in (CHANGELOG.replace(VERSION, "9.9.9"), CHANGELOG.replace(" — 2026-11-29", ""), ""):
        changelog.write_text(missing)
        assert f"no section `## {VERSION} — YYYY-MM-DD`" in repository.refusal("check")
    changelog.write_text(CHANGELOG.replace("- A line.\n", ""))
    assert "is empty" in repository.refusal("check")


def test_a_tree_with_changes_is_refused(repository):
    assert repository.release("check").stdout == f"release: {VERSION} is complete\n"
    stray = repository.folder / "stray"
    stray.write_text("x")
    assert "?? stray" in repository.refusal("make", "target/mmb")
    stray.unlink()
    (repository.folder / "Cargo.toml").write_text((repository.folder / "Cargo.toml").read_text() + "\n")
    assert "M Cargo.toml" in repository.refusal("check")


def test_a_tag_of_another_version_is_refused(repository):
    repository.git("tag", "a-note")
    assert repository.release("check").returncode == 0, "only tags of versions count"
    repository.git("tag", "v9.9.9")
    assert f"the tag v9.9.9 is not v{VERSION}" in repository.refusal("check")


def test_a_binary_of_another_version_is_refused(repository):
    repository.build("9.9.9")
    assert f"is `mmb 9.9.9`, not `mmb {VERSION}`" in repository.refusal("make", "target/mmb")


def test_the_version_stands_in_one_place():
    """All crates have the version of the workspace, and so have the man pages that they print."""
    for manifest in sorted((ROOT / "crates").glob("*/Cargo.toml")):
        assert tomllib.loads(manifest.read_text())["package"]["version"] == {"workspace": True}, manifest
    for page in sorted((ROOT / "docs/man").iterdir()):
        assert f'"mmb {VERSION}"' in page.read_text().splitlines()[0], f"{page.name} is not current: run `make doc`"
