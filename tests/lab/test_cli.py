"""`mooring lab` on a machine where it cannot work: exit codes and words, never a traceback."""

import json
import sys
from pathlib import Path

import pytest

from mooring.cli import main
from mooring_lab.control import build
from mooring_lab.control.binaries import NEEDED
from mooring_lab.control.build import TOOL_PACKAGES

# `main` is called as the console script calls it, without arguments, which cyclopts finds odd in a test.
pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")
real_find_go = build.find_go


@pytest.fixture
def mooring(monkeypatch: pytest.MonkeyPatch, capsys, tmp_path: Path):
    """Run the command with a home of its own; returns exit code, stdout, stderr."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("MOORING_BIN_DIR", raising=False)
    monkeypatch.delenv("MOORING_K8S", raising=False)

    def call(*args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mooring", "lab", *args])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return call


def test_without_go_and_programs_it_could_not_look(mooring, monkeypatch: pytest.MonkeyPatch):
    """No programs and no Go: exit 4 and what to do, before anything is started."""
    monkeypatch.setattr(build, "find_go", lambda: real_find_go({"PATH": ""}, usual=()))
    for command in ("up", "build"):
        code, out, err = mooring(command)
        assert (code, out) == (4, "")
        assert "install Go 1.26 or later" in err
        assert "MOORING_BIN_DIR" in err


def test_tools_are_found_beside_the_programs(mooring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`--tools` adds helm and promtool to what is found; without it nobody waits for them."""
    for name in (*NEEDED, *TOOL_PACKAGES):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("MOORING_BIN_DIR", str(tmp_path))
    for args, names in ((("build",), {*NEEDED}), (("build", "--tools"), {*NEEDED, *TOOL_PACKAGES})):
        code, out, _ = mooring(*args, "-o", "json")
        assert (code, set(json.loads(out)["programs"])) == (0, names)
    code, _, err = mooring("build", "--tools")
    assert code == 0
    assert f"helm3, helm4, promtool: {tmp_path}" in err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("up", "--k8s", "1.12"), "no Kubernetes 1.12"),
        (("up", "--nodes", "-1"), "--nodes -1"),
        (("up", "--nodes", "many"), "many"),
        (("build", "--k8s", "latest"), "no Kubernetes latest"),
    ],
)
def test_wrong_requests_exit_2(mooring, args: tuple[str, ...], words: str):
    """What is mistyped is named, on stderr alone."""
    code, out, err = mooring(*args)
    assert (code, out) == (2, "")
    assert words in err


def test_status_without_a_lab(mooring):
    """No lab: exit 1, with the command that starts one, and JSON that a script can read."""
    code, out, err = mooring("status")
    assert (code, out) == (1, "")
    assert "mooring lab up" in err
    code, out, _ = mooring("status", "-o", "json")
    assert code == 1
    assert json.loads(out) == {"up": False, "pids": {}}


def test_down_without_a_lab_is_done_already(mooring, tmp_path: Path):
    """Ending what does not run is no error, and the directory asked for is named."""
    code, _, err = mooring("down", "--dir", str(tmp_path / "nothing"))
    assert code == 0
    assert f"there is no lab in {tmp_path / 'nothing'}" in err


def test_an_added_program_is_kept_and_said(mooring, tmp_path: Path):
    """`lab add` says where it keeps what it was given; a wrong name, path or spelling exits 2 with what is right."""
    program = tmp_path / "pd"
    program.write_text("#!/bin/sh\n")
    (tmp_path / "readme.txt").touch()
    program.chmod(0o755)
    code, out, err = mooring("add", f"pd-server={program}")
    assert (code, out) == (0, "")
    assert f"pd-server: kept in {tmp_path / 'cache'}" in err
    for given, words in (
        (f"etcd={program}", "the lab keeps pd-server and sabakan"),
        (f"sabakan={tmp_path / 'readme.txt'}", "is no program that can be run"),
        (f"sabakan={tmp_path / 'nowhere'}", "is no program that can be run"),
        (str(program), "should be NAME=PATH"),
    ):
        code, out, err = mooring("add", given)
        assert (code, out, words in err) == (2, "", True), err
