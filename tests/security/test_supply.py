"""What is fetched to build and test: pinned by checksum, whichever way it is fetched."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PINNED = re.compile(r"^([a-z0-9.-]+)==(\S+).*?((?:\n    --hash=\S+.*)+)", re.MULTILINE)


def pinned(path: str) -> dict[tuple[str, str], set[str]]:
    """Name and version → checksums."""
    text = (ROOT / path).read_text()
    found = {(name, version): set(re.findall(r"--hash=(\S+)", rest)) for name, version, rest in PINNED.findall(text)}
    assert len(found) == len(re.findall(r"^\S+==", text, re.MULTILINE))
    return found


def test_the_requirements_of_those_without_uv_are_those_of_the_lock():
    """`make lock` writes both; a checksum that only one of them has would be a second way in."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    files = {
        (one["name"], one["version"]): {f["hash"] for f in (*one.get("wheels", ()), one.get("sdist")) if f}
        for one in lock
        if one["name"] not in {"mooring", "mooring-lab"}
    }
    assert pinned(".ci/requirements.txt") == files, "run: make lock"


def test_everything_that_pip_fetches_has_a_checksum():
    """In .ci/setup and in the image; the base of the image can be given by digest."""
    container = (ROOT / "deploy/Containerfile").read_text()
    for text in ((ROOT / ".ci/setup").read_text(), container):
        fetches = [line for line in text.splitlines() if re.search(r"pip install", line)]
        assert fetches and all("--require-hashes" in line or "--no-index" in line for line in fetches)
    assert [name for name, _ in pinned(".ci/uv.txt")] == ["uv"]
    assert re.search(r"^ARG BASE=", container, re.MULTILINE) and "FROM ${BASE}" in container


def test_what_builds_the_image_has_checksums_too():
    """Issue 42, low: the build backend ran in the image's build with what its index gave for "hatchling". Set-up builds
    nothing."""
    (name, version), *needs = pinned(".ci/build.txt")
    for project in ("pyproject.toml", "src/mooring_lab/pyproject.toml"):
        assert tomllib.loads((ROOT / project).read_text())["build-system"]["requires"] == [f"{name}=={version}"]
    assert needs, "and what it needs itself"
    steps = [line for line in (ROOT / "deploy/Containerfile").read_text().splitlines() if line.startswith("RUN uv")]
    builds = [line for line in steps if "--no-install-workspace" not in line and "--no-index" not in line]
    assert builds == ["RUN uv build --wheel --require-hashes --build-constraints .ci/build.txt --out-dir dist"]
    syncs = [line for line in (ROOT / ".ci/setup").read_text().splitlines() if " sync " in line]
    assert syncs and all("--no-install-workspace" in line for line in syncs)


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        ([{"name": "a", "version": "1", "vulns": []}], 0, "no known vulnerability in 1 packages"),
        (
            [{"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}],
            1,
            "a 1: CVE-1, fixed in 2",
        ),
        ([{"name": "a", "skip_reason": "not found"}], 3, "no advisories for 1 of 1"),
        (None, 3, "nothing is known: no way there"),
    ],
)
def test_an_audit_that_shows_nothing_is_no_success(tmp_path, said, code, words):
    """`make audit` where the advisories cannot be read: pip-audit itself exits 0 and says that nothing was found."""
    uv = tmp_path / "uv"
    answer = "echo no way there >&2" if said is None else f"echo '{json.dumps({'dependencies': said})}'"
    uv.write_text(f"#!/bin/sh\n{answer}\n")
    uv.chmod(0o755)
    done = subprocess.run([sys.executable, ".ci/audit", uv], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, words in done.stdout + done.stderr) == (code, True)


def test_an_audit_without_uv_says_so_in_a_sentence(tmp_path):
    """Where even uv could not be fetched; and no run of the tests waits for a network: CI never audits."""
    command = [sys.executable, ".ci/audit", str(tmp_path / "uv")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 3 and done.stderr.startswith("audit: nothing is known: uv cannot be run")
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 2
    assert "audit" not in (ROOT / ".ci/run").read_text()
