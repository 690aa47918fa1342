"""Finds the programs that the lab starts, so that no control plane has to be installed by hand.

Each program is looked for in `MOORING_BIN_DIR`, then in a cache; what is missing is built once with Go (`build.py`).
pd-server and sabakan are in no package registry and are never built: `mooring lab add` keeps a copy in the cache.
The cache directory's name carries a hash of the module files that pin every version, so that changed pins never use
old programs, and old ones are found again after a `git checkout`.
"""

import functools
import hashlib
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

import msgspec

from mooring_lab.control.errors import LabError, WrongRequestError

MODULES: Final = Path(__file__).parent / "modules"
DEFAULT_K8S: Final = "1.36"

#: program → the Go package it is built from
CONTROL_PLANE_PACKAGES: Final = {
    name: f"k8s.io/kubernetes/cmd/{name}"
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
}
NODE_PACKAGES: Final = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "etcdctl": "go.etcd.io/etcd/etcdctl/v3",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
}
NEEDED: Final = (*CONTROL_PLANE_PACKAGES, *NODE_PACKAGES)
#: In no package registry: from `MOORING_BIN_DIR`, or kept by `mooring lab add`, or not at all.
OPTIONAL: Final = ("pd-server", "sabakan")
#: What a test, a bench or a command says in one plain line where one of them is not here.
ABSENT: Final = {name: f"{name} is not here (`mooring lab add {name}=PATH` keeps one)" for name in OPTIONAL}

#: Builds missing programs: given the release and the directory to fill.
Build = Callable[["Release", Path], None]


class Release(msgspec.Struct, frozen=True):
    """One Kubernetes version the lab can be."""

    minor: str  # "1.36"
    version: str  # "v1.36.3"

    @property
    def control_plane_module(self) -> Path:
        return MODULES / f"controlplane-{self.minor}"

    @property
    def nodes_module(self) -> Path:
        return MODULES / "nodes"


class Binaries(msgspec.Struct, frozen=True):
    """Where each program is. `paths` holds all of `NEEDED` and those of `OPTIONAL` that were found."""

    release: Release
    paths: dict[str, Path]

    def __getitem__(self, name: str) -> Path:
        return self.paths[name]

    def optional(self, name: str) -> Path | None:
        return self.paths.get(name)


def releases() -> dict[str, Release]:
    """The versions there are modules for, oldest first; each go.mod is the one place that names its version."""
    found = {}
    for module in MODULES.glob("controlplane-*"):
        minor = module.name.removeprefix("controlplane-")
        pinned = re.search(r"^require k8s\.io/kubernetes (v\S+)$", (module / "go.mod").read_text(), re.MULTILINE)
        if pinned is None:
            raise LabError(f"{module / 'go.mod'} does not name a version of k8s.io/kubernetes")
        found[minor] = Release(minor=minor, version=pinned.group(1))
    return dict(sorted(found.items(), key=lambda item: [int(part) for part in item[0].split(".")]))


def release(wanted: str | None = None, env: Mapping[str, str] = os.environ) -> Release:
    """The release asked for as `1.36`, `v1.36` or `v1.36.3`; not asked: `MOORING_K8S`, else the newest we test."""
    asked = wanted or env.get("MOORING_K8S") or DEFAULT_K8S
    known = releases()
    for candidate in known.values():
        if asked.removeprefix("v") in (candidate.minor, candidate.version.removeprefix("v")):
            return candidate
    raise WrongRequestError(f"the lab has no Kubernetes {asked}; it can be {', '.join(known)}")


def cache_dir(of: Release, env: Mapping[str, str] = os.environ) -> Path:
    """Where the programs of this release are kept on this machine, whether or not they are there yet."""
    return cache_root(env) / f"{of.version}-{fingerprint(of.version, of.control_plane_module, of.nodes_module)}"


def cache_root(env: Mapping[str, str] = os.environ) -> Path:
    """Where every set of programs has a directory of its own."""
    return Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mooring" / "bin"


def fingerprint(name: str, *modules: Path) -> str:
    """A hash that differs for every change of a pin, and for every kind of machine."""
    digest = hashlib.sha256(f"{name} {platform.system()} {platform.machine()}".encode())
    for module in modules:
        for file in sorted(module.iterdir()):
            digest.update(b"\0" + file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def find(of: Release, env: Mapping[str, str] = os.environ, *, build: Build | None = None) -> Binaries:
    """Every program of this release. Those that are nowhere are built when `build` is given, else it is an error."""
    cached = cache_dir(of, env)
    fill = None if build is None else functools.partial(build, of, cached)
    paths = locate(NEEDED, cached, env, fill=fill, remedy=f"mooring lab build --k8s {of.minor}")
    return Binaries(release=of, paths=paths | {name: path for name in OPTIONAL if (path := optional(name, env))})


def optional(name: str, env: Mapping[str, str] = os.environ) -> Path | None:
    """One of `OPTIONAL` in `MOORING_BIN_DIR`, else the copy that `add` keeps, else None."""
    kept = _added(env) / name
    return _from_bin_dir([name], env).get(name) or (kept if _runs(kept) else None)


def add(name: str, program: Path, env: Mapping[str, str] = os.environ) -> Path:
    """Keep a copy of the program in the cache, for every release and every checkout; replaces an earlier one whole."""
    if name not in OPTIONAL:
        raise WrongRequestError(f"{name}: the lab keeps {' and '.join(OPTIONAL)}; the others it builds by itself")
    if not _runs(program):
        raise WrongRequestError(f"{program} is no program that can be run; it should be the path of a {name}")
    directory = _added(env)
    directory.mkdir(parents=True, exist_ok=True)
    # Beside its place first: a lab that starts meanwhile finds the old one or the new one.
    with tempfile.TemporaryDirectory(dir=directory) as beside:
        shutil.copy2(program, Path(beside) / name)
        return (Path(beside) / name).rename(directory / name)


def _added(env: Mapping[str, str]) -> Path:
    return cache_root(env) / "added"


def locate(
    names: Collection[str], cached: Path, env: Mapping[str, str], *, fill: Callable[[], None] | None, remedy: str
) -> dict[str, Path]:
    """Each program in `MOORING_BIN_DIR`, else in the cache, filled first when it has to be; `remedy` is the command."""
    paths = _from_bin_dir(names, env)
    missing = [name for name in names if name not in paths]
    if fill is not None and any(not _runs(cached / name) for name in missing):
        fill()
    nowhere = [name for name in missing if not _runs(cached / name)]
    if nowhere:
        raise LabError(
            f"{', '.join(nowhere)} not found in {_places(cached, env)}; `{remedy}` builds them once with Go, or set"
            " MOORING_BIN_DIR to a directory that holds them"
        )
    return paths | {name: cached / name for name in missing}


def _from_bin_dir(names: Collection[str], env: Mapping[str, str]) -> dict[str, Path]:
    given = env.get("MOORING_BIN_DIR")
    if not given:
        return {}
    directory = Path(given).expanduser().absolute()
    if not directory.is_dir():
        raise WrongRequestError(f"MOORING_BIN_DIR={given} is not a directory; it should hold {', '.join(names)}")
    return {name: directory / name for name in names if _runs(directory / name)}


def _places(cached: Path, env: Mapping[str, str]) -> str:
    given = env.get("MOORING_BIN_DIR")
    return f"MOORING_BIN_DIR={given} nor in {cached}" if given else str(cached)


def _runs(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
