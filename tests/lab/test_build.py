"""Building with Go: what is asked of it, and what is said when it cannot. A script stands in for Go."""

import os
from pathlib import Path

import pytest

from mooring_lab.control import build
from mooring_lab.control.binaries import NEEDED, Release, release
from mooring_lab.control.errors import LabError


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Put a shell script on the PATH as `go`; it sees its arguments and can keep notes in $NOTES."""
    monkeypatch.setattr(build, "BACK_OFF_S", (0, 0))
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))

    def write(script: str) -> Path:
        program = tmp_path / "path" / "go"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\n[ "$1" = env ] && {{ echo go1.26.0; exit 0; }}\n{script}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
        return program

    return write


#: Writes the file that -o names, as `go build -trimpath -ldflags F -o FILE PACKAGE` does.
BUILDS = 'echo "$PWD $*" >>"$NOTES"; echo program >"$6"; chmod +x "$6"'


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "bin" / "v1.36.3-abc"


def test_every_program_is_built_under_its_own_name(go, target: Path, tmp_path: Path, capsys):
    """All programs appear together, called what they are (etcd's package alone would be `server`), and progress is told."""
    go(BUILDS)
    build.build(release("1.36", {}), target)
    assert {path.name for path in target.iterdir()} == set(NEEDED)
    assert [p.name for p in target.parent.iterdir() if p.is_dir()] == [target.name]
    said = capsys.readouterr().err
    assert "building kube-apiserver (1 of 7)" in said
    assert str(target) in said


def test_version_is_linked_in(go, target: Path, tmp_path: Path):
    """Kubernetes' programs are told their version; without that clients see v0.0.0-master."""
    go(BUILDS)
    build.build(release("1.36", {}), target)
    called = (tmp_path / "notes").read_text()
    assert "-X k8s.io/component-base/version.gitVersion=v1.36.3" in called
    assert "-X k8s.io/component-base/version.gitMinor=36" in called


def test_busy_proxy_is_given_time(go, target: Path, tmp_path: Path, capsys):
    """A 429 of the module proxy is said and tried again, until it delivers."""
    once = (
        'if [ ! -e "$NOTES.asked" ]; then touch "$NOTES.asked"; echo "go: x: 429 Too Many Requests" >&2; exit 1; fi; '
    )
    go(once + BUILDS)
    build.build(release("1.36", {}), target)
    assert {path.name for path in target.iterdir()} == set(NEEDED)
    assert "the module proxy did not deliver (go: x: 429 Too Many Requests); again in" in capsys.readouterr().err


def test_broken_build_is_not_tried_again_and_leaves_nothing(go, target: Path, tmp_path: Path):
    """A compiler's complaint ends the build at once with its words, and no half-filled cache is left."""
    go('echo tried >>"$NOTES"; echo "main.go:1: syntax error" >&2; exit 1')
    with pytest.raises(LabError, match="syntax error"):
        build.build(release("1.36", {}), target)
    assert (tmp_path / "notes").read_text() == "tried\n"
    assert not target.exists()
    assert not [path for path in target.parent.iterdir() if path.is_dir()]


def test_half_a_cache_is_replaced_whole(go, target: Path):
    """What an earlier, other build left in the directory does not survive beside the new programs."""
    target.mkdir(parents=True)
    (target / "left-over").touch()
    go(BUILDS)
    build.build(release("1.36", {}), target)
    assert {path.name for path in target.iterdir()} == set(NEEDED)


def test_missing_go_is_said_with_the_way_out():
    """Without Go the error says what to install and what else would do."""
    with pytest.raises(LabError, match=r"Go was not found.*https://go\.dev/dl.*MOORING_BIN_DIR"):
        build.find_go({"PATH": ""}, usual=())


def test_go_is_found_where_its_installer_puts_it(go):
    """A Go that is not on the PATH is found all the same."""
    program = go(BUILDS)
    assert build.find_go({"PATH": ""}, usual=("/nowhere/go", str(program))) == program


def test_old_go_is_refused_before_minutes_are_spent(tmp_path: Path):
    """A Go that is too old is named with the version needed."""
    program = tmp_path / "go"
    program.write_text(
        '#!/bin/sh\necho "go: go.mod requires go >= 1.26.0 (running go 1.21.5; GOTOOLCHAIN=local)" >&2\nexit 1\n'
    )
    program.chmod(0o755)
    with pytest.raises(LabError, match=r"is Go 1\.21\.5, but controlplane-1\.36 needs Go 1\.26\.0 or later"):
        build.check_go(program, Release(minor="1.36", version="v1.36.3").control_plane_module)
