"""Where the programs are found, and what is said when they are not."""

import shutil
from pathlib import Path

import pytest

from mooring_lab.control import binaries
from mooring_lab.control.binaries import NEEDED, add, cache_dir, find, release, releases
from mooring_lab.control.errors import LabError, WrongRequestError


def put(directory: Path, *names: str) -> Path:
    """Programs by these names."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / name).write_text("#!/bin/sh\n")
        (directory / name).chmod(0o755)
    return directory


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_each_release_names_its_version_once():
    """The lab offers 1.34, 1.35 and 1.36, oldest first, with the patch version its module pins."""
    assert {minor: r.version for minor, r in releases().items()} == {
        "1.34": "v1.34.4",
        "1.35": "v1.35.4",
        "1.36": "v1.36.3",
        "1.37": "v1.37.1",
    }


def test_every_staging_repository_is_pinned_to_the_same_version():
    """No module mixes Kubernetes versions: each k8s.io/X that is replaced is replaced by the release's own."""
    for one in releases().values():
        replaced = [line for line in (one.control_plane_module / "go.mod").read_text().splitlines() if "=>" in line]
        assert len(replaced) >= 30
        assert {line.split()[-1] for line in replaced} == {one.version.replace("v1.", "v0.")}


@pytest.mark.parametrize("asked", ["1.35", "v1.35", "1.35.4", "v1.35.4"])
def test_release_is_found_by_any_spelling(asked: str):
    """A version may be written with or without v and patch."""
    assert release(asked, {}).minor == "1.35"


def test_release_comes_from_the_environment_else_the_default():
    """MOORING_K8S decides when nothing is asked for; a wish beats it; without both it is 1.36."""
    assert release(None, {"MOORING_K8S": "1.34"}).minor == "1.34"
    assert release("1.35", {"MOORING_K8S": "1.34"}).minor == "1.35"
    assert release(None, {}).minor == "1.36"


def test_unknown_release_is_a_wrong_request():
    """A version there is no module for is refused, naming those there are."""
    with pytest.raises(WrongRequestError, match=r"no Kubernetes 1\.12; it can be 1\.34, 1\.35, 1\.36"):
        release("1.12", {})


def test_cache_key_changes_with_any_module_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, env: dict[str, str]):
    """One changed pin is another cache directory; the same files are the same one; versions never share."""
    copy = tmp_path / "modules"
    shutil.copytree(binaries.MODULES, copy)
    original = cache_dir(release("1.36", {}), env)
    monkeypatch.setattr(binaries, "MODULES", copy)
    assert cache_dir(release("1.36", {}), env) == original
    assert cache_dir(release("1.35", {}), env) != original
    with (copy / "nodes" / "go.sum").open("a") as pins:
        pins.write("\n")
    assert cache_dir(release("1.36", {}), env) != original


def test_cache_is_under_xdg_cache_home(env: dict[str, str]):
    """The cache honours XDG_CACHE_HOME, so that nothing else is written to."""
    assert cache_dir(release("1.36", {}), env).is_relative_to(Path(env["XDG_CACHE_HOME"]) / "mooring" / "bin")


def test_bin_dir_comes_before_the_cache(tmp_path: Path, env: dict[str, str]):
    """What MOORING_BIN_DIR holds is taken from there, the rest from the cache, program by program."""
    one = release("1.36", {})
    cached = put(cache_dir(one, env), *NEEDED)
    own = put(tmp_path / "own", "etcd", "pd-server")
    found = find(one, env | {"MOORING_BIN_DIR": str(own)})
    assert found["etcd"] == own / "etcd"
    assert found["kubectl"] == cached / "kubectl"
    assert found.optional("pd-server") == own / "pd-server"
    assert found.optional("sabakan") is None


def test_nothing_is_built_when_everything_is_there(tmp_path: Path, env: dict[str, str]):
    """A complete MOORING_BIN_DIR needs neither a cache nor Go."""
    own = put(tmp_path / "own", *NEEDED)

    def build(*_: object) -> None:
        raise AssertionError("built for nothing")

    assert set(find(release("1.36", {}), env | {"MOORING_BIN_DIR": str(own)}, build=build).paths) == set(NEEDED)


def test_what_is_missing_is_built_once(env: dict[str, str]):
    """An empty cache is filled by the build, and found full the next time."""
    builds = []

    def build(of: binaries.Release, into: Path) -> None:
        builds.append(of.minor)
        put(into, *NEEDED)

    for _ in range(2):
        find(release("1.36", {}), env, build=build)
    assert builds == ["1.36"]


def test_missing_programs_are_named_with_the_way_out(tmp_path: Path, env: dict[str, str]):
    """Without a build the error names each program, where it was looked for, and the two remedies."""
    own = put(tmp_path / "own", *(set(NEEDED) - {"kwok"}))
    with pytest.raises(LabError) as caught:
        find(release("1.36", {}), env | {"MOORING_BIN_DIR": str(own)})
    message = str(caught.value)
    assert message.startswith("kwok not found in ")
    assert str(own) in message
    assert "mooring lab build --k8s 1.36" in message
    assert "MOORING_BIN_DIR" in message


def test_bin_dir_that_is_none_is_a_wrong_request(tmp_path: Path, env: dict[str, str]):
    """A mistyped MOORING_BIN_DIR is said, never passed over in silence for a long build."""
    with pytest.raises(WrongRequestError, match="is not a directory"):
        find(release("1.36", {}), env | {"MOORING_BIN_DIR": str(tmp_path / "nowhere")})


def test_what_was_added_is_found_without_a_bin_dir(tmp_path: Path, env: dict[str, str]):
    """`lab add` keeps a copy: it outlives its source, serves every release, and MOORING_BIN_DIR still comes first."""
    source = put(tmp_path / "built", "my-pd") / "my-pd"
    kept = add("pd-server", source, env)
    source.unlink()
    for minor in releases():
        put(cache_dir(release(minor, {}), env), *NEEDED)
        found = find(release(minor, {}), env)
        assert (found.optional("pd-server"), found.optional("sabakan")) == (kept, None)
    own = put(tmp_path / "own", "pd-server")
    assert binaries.optional("pd-server", env | {"MOORING_BIN_DIR": str(own)}) == own / "pd-server"


def test_what_is_added_twice_is_the_later_one(tmp_path: Path, env: dict[str, str]):
    """Another version takes the place of the one before, whole, also while that one runs."""
    old, new = put(tmp_path / "old", "sabakan") / "sabakan", put(tmp_path / "new", "sabakan") / "sabakan"
    new.write_text("#!/bin/sh\nexit 3\n")
    with add("sabakan", old, env).open() as running:
        kept = add("sabakan", new, env)
        assert (kept.read_text(), running.read()) == (new.read_text(), old.read_text())
    assert [one.name for one in kept.parent.iterdir()] == ["sabakan"]
