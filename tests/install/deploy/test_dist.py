"""`make dist`: what a release publishes, the same bytes from the same commit."""

import hashlib
import io
import json
import os
import re
import runpy
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
DIST = runpy.run_path(str(ROOT / ".ci/dist"))
REPOSITORY = "https://code.example/us/mooring"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_links_of_the_readme_lead_somewhere_from_a_package_index():
    """A relative link or picture is broken there."""
    made = DIST["absolute"]((ROOT / "README.md").read_text(), REPOSITORY, "v1")
    links = re.findall(r"(!?)\[(?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*\]\(([^)\s]+)", made)
    assert len(links) > 10 and any(mark for mark, _ in links)
    for mark, link in links:
        assert link.startswith(("https://", "http://", "#")), link
        assert not mark or "/raw/v1/docs/images/" in link


def test_without_uv_it_says_so():
    """A build in a copy elsewhere finds uv by a relative path, too; where there is none, a sentence and exit 4."""
    done = subprocess.run(
        [sys.executable, ".ci/dist", ".tools/no-uv"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.splitlines()[-1].partition(":")[0]) == (4, "dist")


def test_an_archive_is_the_same_whatever_the_order_of_its_files():
    one = DIST["packed_files"]({"a": b"1", "b": b"2"}, 1_800_000_000)
    assert one == DIST["packed_files"]({"b": b"2", "a": b"1"}, 1_800_000_000)
    with tarfile.open(fileobj=io.BytesIO(one)) as packed:
        assert [(m.name, m.mtime, m.mode) for m in packed] == [(n, 1_800_000_000, 0o644) for n in "ab"]


def test_the_bill_of_materials_names_what_the_image_installs_and_nothing_else():
    """All that `dependencies` name, with what these need, by the versions of uv.lock; nothing of the lab or the tests."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    bill = DIST["sbom"](lock, PROJECT["version"], 1_800_000_000)
    named = {one["name"]: one["version"] for one in bill["components"]}
    direct = {re.match(r"[\w-]+", one)[0] for one in PROJECT["dependencies"]}
    assert direct | {"uvloop", "multidict"} <= set(named)
    assert not {"mooring-lab", "pytest", "graphql-core", "hypothesis"} & set(named)
    assert named == {one["name"]: one["version"] for one in lock["package"] if one["name"] in named}
    refs = {one["bom-ref"] for one in [*bill["components"], bill["metadata"]["component"]]}
    assert {one["ref"] for one in bill["dependencies"]} == refs
    assert {o for one in bill["dependencies"] for o in one["dependsOn"]} < refs
    assert bill == DIST["sbom"](lock, PROJECT["version"], 1_800_000_000)


def test_the_chart_and_the_classifiers_agree_with_the_project():
    """One version; and a Python is named when CI runs it."""
    chart = yaml.safe_load((ROOT / "deploy/chart/mooring/Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == PROJECT["version"]
    assert all(
        one["kind"] and one["description"] for one in yaml.safe_load(chart["annotations"]["artifacthub.io/changes"])
    )
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    run = {*jobs["pythons"]["strategy"]["matrix"]["python"], *re.findall(r"\d+\.\d+", jobs["all"]["container"])}
    named = {one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r"Python :: 3\.", one)}
    assert run == named


@pytest.mark.parametrize("name", ["ci", "nightly", "release"])
def test_a_workflow_calls_what_is_there_and_has_no_more_rights_than_it_needs(name):
    flow = yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text())
    assert flow["permissions"] == {"contents": "read"}
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for job in flow["jobs"].values():
        for line in "\n".join(step.get("run", "") for step in job["steps"]).splitlines():
            for called in re.findall(r"^make ([a-z ]+)", line):
                assert set(called.split()) <= targets, line
            assert not line.startswith(".ci/") or (ROOT / line.split()[0]).exists()


@pytest.mark.e2e
@pytest.mark.timeout(280)
def test_a_release_is_whole_and_its_checksums_are_right(uv, tmp_path):
    environment = {**os.environ, "REPOSITORY": REPOSITORY, "IMAGE_NAME": "ghcr.io/Us/mooring"}
    command = [sys.executable, ROOT / ".ci/dist", uv, "--out", tmp_path / "dist"]
    subprocess.run(command, env=environment, check=True, timeout=240)
    version, files = PROJECT["version"], {f.name: f for f in (tmp_path / "dist").iterdir()}
    stems = {
        f"mooring-{version}-py3-none-any.whl",
        f"mooring_lab-{version}-py3-none-any.whl",
        f"mooring-{version}.tar.gz",
    }
    stems |= {f"mooring-chart-{version}.tgz", f"mooring-{version}.cdx.json", f"kubectl-mooring-{version}.tar.gz"}
    assert stems | {"krew.yaml", "SHA256SUMS"} == set(files) - {f"mooring-image-{version}.tar"}
    for line in files["SHA256SUMS"].read_text().splitlines():
        digest, _, name = line.partition("  ")
        assert hashlib.sha256(files[name].read_bytes()).hexdigest() == digest
    krew = json.loads(files["krew.yaml"].read_text())["spec"]["platforms"][0]
    assert krew["sha256"] == hashlib.sha256(files[f"kubectl-mooring-{version}.tar.gz"].read_bytes()).hexdigest()
    with tarfile.open(files[f"mooring-{version}.tar.gz"]) as packed:
        information = packed.extractfile(f"mooring-{version}/PKG-INFO").read().decode()
        for needed in ("deploy/Containerfile", "deploy/chart/mooring/values.yaml", "src/mooring/py.typed", "uv.lock"):
            assert packed.getmember(f"mooring-{version}/{needed}")
    assert f"Project-URL: Homepage, {REPOSITORY}" in information
    with tarfile.open(files[f"mooring-chart-{version}.tgz"]) as packed:
        values = yaml.safe_load(packed.extractfile("mooring/values.yaml"))
    assert values["image"]["repository"] == "ghcr.io/us/mooring"
    again = subprocess.run([*command[:3], "--check"], capture_output=True, text=True, env=environment, timeout=240)
    assert (again.returncode, again.stdout) == (0, "dist: the same bytes\n")
