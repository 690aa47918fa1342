"""Helm and promtool: built apart from the control plane, found where that is found. A script stands in for Go."""

import os
import re
import shutil
from pathlib import Path

import pytest

from mooring_lab.control import binaries, build
from mooring_lab.control.binaries import MODULES, cache_dir, release
from mooring_lab.control.build import (
    NEIGHBOURS,
    TOOL_PACKAGES,
    build_tools,
    find_neighbour,
    find_tools,
    neighbour_dir,
    tools_dir,
)
from mooring_lab.control.errors import LabError


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def put(directory: Path, *names: str) -> Path:
    """Programs by these names."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / name).write_text("#!/bin/sh\n")
        (directory / name).chmod(0o755)
    return directory


def test_each_tool_is_pinned_and_imported():
    """No version is left to the day: go.mod requires the module of every package we build, and build.go names it."""
    pinned = re.findall(r"^\t(\S+) v\d\S+$", (MODULES / "tools" / "go.mod").read_text(), re.MULTILINE)
    imported = re.findall(r'^\t_ "(\S+)"$', (MODULES / "tools" / "tools.go").read_text(), re.MULTILINE)
    assert sorted(imported) == sorted(TOOL_PACKAGES.values())
    assert sorted(pinned) == sorted(package.split("/cmd/")[0] for package in TOOL_PACKAGES.values())


def test_pins_of_the_one_never_rebuild_the_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, env: dict[str, str]):
    """A new pin of a tool is a new directory for the tools alone; one of the control plane leaves the tools where they are."""
    copy = tmp_path / "modules"
    shutil.copytree(MODULES, copy)
    for where in (binaries, build):
        monkeypatch.setattr(where, "MODULES", copy)
    programs, beside = cache_dir(release("1.36", {}), env), tools_dir(env)
    with (copy / "nodes" / "go.sum").open("a") as pins:
        pins.write("\n")
    assert tools_dir(env) == beside
    changed = cache_dir(release("1.36", {}), env)
    assert changed != programs
    with (copy / "tools" / "go.sum").open("a") as pins:
        pins.write("\n")
    assert tools_dir(env) != beside
    assert cache_dir(release("1.36", {}), env) == changed


def test_bin_dir_comes_before_the_cache(tmp_path: Path, env: dict[str, str]):
    """What MOORING_BIN_DIR holds is taken from there, the rest from the cache, program by program."""
    cached = put(tools_dir(env), *TOOL_PACKAGES)
    own = put(tmp_path / "own", "helm4")
    assert find_tools(env | {"MOORING_BIN_DIR": str(own)}) == {
        "helm3": cached / "helm3",
        "helm4": own / "helm4",
        "promtool": cached / "promtool",
    }


def test_what_is_missing_is_built_once_else_named(env: dict[str, str]):
    """Without a build the error says which and how; with one the cache is filled, and found full the next time."""
    with pytest.raises(LabError, match=r"helm3, helm4, promtool not found in .*`mooring lab build --tools` builds"):
        find_tools(env)
    builds = []

    def build(into: Path) -> None:
        builds.append(into)
        put(into, *TOOL_PACKAGES)

    for _ in range(2):
        find_tools(env, build=build)
    assert builds == [tools_dir(env)]


def test_neighbours_are_pinned_each_in_a_module_of_its_own_and_built_when_asked_for(env: dict[str, str]):
    """Karpenter and the descheduler: a build that nobody asked for takes minutes; the error names the command."""
    for name, package in NEIGHBOURS.items():
        module = MODULES / name
        assert re.findall(r'^\t_ "(\S+)"$', (module / "tools.go").read_text(), re.MULTILINE) == [package]
        (pinned,) = re.findall(r"^require (\S+) v\d\S+$", (module / "go.mod").read_text(), re.MULTILINE)
        assert package.startswith(pinned)
        with pytest.raises(LabError, match=f"{name} not found in .*`mooring lab build --with {name}` builds"):
            find_neighbour(name, env)
        put(neighbour_dir(name, env), name)
        assert find_neighbour(name, env) == neighbour_dir(name, env) / name


def test_progress_is_told(tmp_path: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys):
    """Go is asked for each package in the module that pins it, and what takes minutes is said before it begins."""
    script = (
        '#!/bin/sh\n[ "$1" = env ] && exit 0\necho "$PWD $*" >>"$NOTES"\n'
        'while [ "$1" != -o ]; do shift; done; echo program >"$2"; chmod +x "$2"\n'
    )
    put(tmp_path / "path", "go")
    (tmp_path / "path" / "go").write_text(script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    found = find_tools(env, build=build_tools)
    assert {path.parent for path in found.values()} == {tools_dir(env)}
    calls = (tmp_path / "notes").read_text().splitlines()
    assert [call.split()[-1] for call in calls] == list(TOOL_PACKAGES.values())
    assert all(call.startswith(f"{MODULES / 'tools'} build ") for call in calls)
    said = capsys.readouterr().err
    assert "building Helm 3, Helm 4 and promtool with Go, once: some 4 minutes" in said
    assert "building helm4 (2 of 3)" in said
