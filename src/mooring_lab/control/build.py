"""Build the lab's programs with Go, once per set of pins.

There is no source tree of Kubernetes here: small modules pin versions, and `go build` is given package paths. The
first build takes minutes and a few gigabytes of Go's caches, so it says what it is doing; a module proxy that asks us
to slow down is given time; and the result appears in the cache whole or not at all.
"""

import contextlib
import fcntl
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

import msgspec

from mooring_lab.control.binaries import (
    CONTROL_PLANE_PACKAGES,
    MODULES,
    NODE_PACKAGES,
    Release,
    cache_root,
    fingerprint,
    locate,
)
from mooring_lab.control.errors import LabError

#: Pauses before a retry when the module proxy fails; minutes, because its limits are per minute.
BACK_OFF_S: Final = (10, 30, 60, 120, 240)
USUAL_PLACES: Final = ("/usr/local/go/bin/go",)
_PROXY_TROUBLE: Final = re.compile(
    r"429 |Too Many Requests|50[0234] |TLS handshake timeout|connection reset|i/o timeout|unexpected EOF|timed? ?out",
    re.IGNORECASE,
)
_TELL_EVERY_S: Final = 15


class Program(msgspec.Struct, frozen=True):
    """One thing to build."""

    name: str  # what the file is called, whatever Go would call it
    package: str
    module: Path  # the directory whose go.mod pins it


def build(of: Release, into: Path) -> None:
    """Build every program of this release into the directory; what an earlier build left there is replaced."""
    programs = [Program(name, package, of.control_plane_module) for name, package in CONTROL_PLANE_PACKAGES.items()]
    programs += [Program(name, package, of.nodes_module) for name, package in NODE_PACKAGES.items()]
    what = f"Kubernetes {of.version}, etcd and kwok with Go, once: some 8 minutes on 2 cores, 450 MB"
    build_set(programs, into, what, ("-ldflags", version_flags(of.version)))


def build_set(
    programs: Sequence[Program],
    into: Path,
    what: str,
    flags: Sequence[str],
    beside: Callable[[Path, Path], None] = lambda *_: None,
) -> None:
    """Build these programs into the directory, all or none. `what` is said before the minutes it takes; `beside` puts
    there, with Go, what they need."""
    go = find_go()
    for module in dict.fromkeys(program.module for program in programs):
        check_go(go, module)
    into.parent.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(into):
        if all((into / program.name).is_file() for program in programs):
            return  # another process built it while we waited
        _say(f"building {what}")
        with tempfile.TemporaryDirectory(prefix=f"{into.name}.building-", dir=into.parent) as scratch:
            for n, program in enumerate(programs, 1):
                target = ("-o", str(Path(scratch) / program.name), program.package)
                told = f"{program.name} ({n} of {len(programs)})"
                _go_build([str(go), "build", "-trimpath", *flags, *target], program.module, told)
            beside(go, Path(scratch))
            _move_whole(Path(scratch), into)
        _say(f"the programs are in {into}")


def find_go(env: Mapping[str, str] = os.environ, usual: Sequence[str] = USUAL_PLACES) -> Path:
    """Go on the PATH, or where its installer puts it."""
    for place in (shutil.which("go", path=env.get("PATH", "")), *usual):
        if place is not None and os.access(place, os.X_OK):
            return Path(place)
    raise LabError(
        "Go was not found on the PATH, and the programs are not built yet; install Go 1.26 or later"
        " (https://go.dev/dl), or set MOORING_BIN_DIR to a directory with the programs"
    )


def check_go(go: Path, module: Path) -> None:
    """Refuse a Go that is too old before minutes are spent. One that fetches newer toolchains itself will do."""
    asked = subprocess.run(
        [go, "env", "GOVERSION"], cwd=module, env=_go_env(), capture_output=True, text=True, check=False
    )
    if asked.returncode == 0:
        return
    too_old = re.search(r"requires go >= (\S+) \(running go (\S+?)[;)]", asked.stderr)
    if too_old:
        needs, has = too_old.groups()
        raise LabError(
            f"{go} is Go {has}, but {module.name} needs Go {needs} or later; install a newer one"
            " (https://go.dev/dl), let Go fetch it with GOTOOLCHAIN=auto, or set MOORING_BIN_DIR"
        )
    raise LabError(f"`{go} env GOVERSION` failed: {asked.stderr.strip()}")


def version_flags(version: str) -> str:
    """Linker flags: small programs that know their version (without them clients see v0.0.0-master)."""
    major, minor, _ = version.removeprefix("v").split(".", 2)
    facts = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(["-s", "-w", *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in facts.items())])


def _go_build(command: Sequence[str], module: Path, what: str) -> None:
    for pause_s in (*BACK_OFF_S, None):
        failed = _run_telling(command, module, what)
        if failed is None:
            return
        if pause_s is None or not _PROXY_TROUBLE.search(failed):
            break
        _say(f"{what}: the module proxy did not deliver ({failed.splitlines()[-1]}); again in {pause_s} s")
        time.sleep(pause_s)
    raise LabError(f"building {what} in {module} failed:\n{failed}")


def _run_telling(command: Sequence[str], module: Path, what: str) -> str | None:
    """Run one build and show that it moves. Returns what it complained about, or None when all went well."""
    started = time.monotonic()
    _say(f"building {what}")
    with subprocess.Popen(command, cwd=module, env=_go_env(), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        complaints: list[str] = []
        downloads: list[str] = []
        reader = threading.Thread(target=_sort_lines, args=(process.stderr, downloads, complaints), daemon=True)
        reader.start()
        try:
            while True:
                try:
                    code = process.wait(timeout=_TELL_EVERY_S)
                    break
                except subprocess.TimeoutExpired:
                    fetched = f", {len(downloads)} modules fetched" if downloads else ""
                    _say(f"building {what}: {time.monotonic() - started:.0f} s{fetched}")
        except BaseException:
            process.terminate()
            raise
        reader.join()
    return None if code == 0 else "\n".join(complaints[-20:]) or f"exit code {code}"


def _sort_lines(stream: IO[str], downloads: list[str], complaints: list[str]) -> None:
    for line in stream:
        (downloads if line.startswith("go: downloading") else complaints).append(line.rstrip())


def _go_env() -> dict[str, str]:
    # The user's own flags and workspaces are about the user's code, not ours.
    return os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}


@contextlib.contextmanager
def _one_at_a_time(into: Path) -> Iterator[None]:
    with into.with_name(into.name + ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another build of the same programs is under way; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _move_whole(scratch: Path, into: Path) -> None:
    """One rename, so that the directory never holds half a set of programs."""
    if into.exists():
        shutil.rmtree(into)
    scratch.chmod(0o755)
    scratch.rename(into)
    scratch.mkdir()  # what the temporary directory's own clean-up expects to find


def _say(message: str) -> None:
    print(f"lab: {message}", file=sys.stderr, flush=True)  # noqa: T201 - progress of minutes belongs on stderr at once


# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Helm and promtool: the tools that the chart and the alerts are for, so that tests hand them to the real ones.


#: program → the Go package it is built from
TOOL_PACKAGES: Final = {
    "helm3": "helm.sh/helm/v3/cmd/helm",
    "helm4": "helm.sh/helm/v4/cmd/helm",
    "promtool": "github.com/prometheus/prometheus/cmd/promtool",
}
#: promtool without the service discovery of every cloud: rules and queries need none, and it is half the build.
FLAGS: Final = ("-tags", "remove_all_sd", "-ldflags", "-s -w")


def tools_dir(env: Mapping[str, str] = os.environ) -> Path:
    """Where the tools are kept on this machine, whether or not they are there yet."""
    return cache_root(env) / f"tools-{fingerprint('tools', MODULES / 'tools')}"


def find_tools(env: Mapping[str, str] = os.environ, *, build: Callable[[Path], None] | None = None) -> dict[str, Path]:
    """Every tool. Those that are nowhere are built when `build` is given, else it is an error."""
    cached = tools_dir(env)
    fill = None if build is None else functools.partial(build, cached)
    return locate(TOOL_PACKAGES, cached, env, fill=fill, remedy="mooring lab build --tools")


def build_tools(into: Path) -> None:
    """Build all of them into the directory; what an earlier build left there is replaced."""
    programs = [Program(name, package, MODULES / "tools") for name, package in TOOL_PACKAGES.items()]
    build_set(programs, into, "Helm 3, Helm 4 and promtool with Go, once: some 4 minutes on 2 cores, 175 MB", FLAGS)


# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Neighbours that take pods away by themselves: each is built alone, and only where it is asked for.


#: program → the Go package it is built from; the module is called as the program.
NEIGHBOURS: Final = {
    "karpenter": "sigs.k8s.io/karpenter/kwok",
    "descheduler": "sigs.k8s.io/descheduler/cmd/descheduler",
}
#: Where a module keeps the CRDs that its program needs.
_CRDS: Final = {"karpenter": ("sigs.k8s.io/karpenter", ("pkg/apis/crds", "kwok/apis/crds"))}


def neighbour_dir(name: str, env: Mapping[str, str] = os.environ) -> Path:
    """Where one is kept on this machine, whether or not it is there yet; `crds/` has the CRDs it needs."""
    return cache_root(env) / f"{name}-{fingerprint(name, MODULES / name)}"


def find_neighbour(
    name: str, env: Mapping[str, str] = os.environ, *, build: Callable[[str, Path], None] | None = None
) -> Path:
    """The program. It is built where it is nowhere and `build` is given, else that is an error."""
    cached = neighbour_dir(name, env)
    fill = None if build is None else functools.partial(build, name, cached)
    return locate([name], cached, env, fill=fill, remedy=f"mooring lab build --with {name}")[name]


def build_neighbour(name: str, into: Path) -> None:
    """Build one of them into the directory; what an earlier build left there is replaced."""
    program = Program(name, NEIGHBOURS[name], MODULES / name)
    what = f"{name} with Go, once: some minutes on 2 cores, 100 MB"
    build_set([program], into, what, ("-ldflags", "-s -w"), functools.partial(_copy_crds, name))


def _copy_crds(name: str, go: Path, into: Path) -> None:
    if name not in _CRDS:
        return
    module, places = _CRDS[name]
    told = subprocess.run(
        [go, "list", "-m", "-f", "{{.Dir}}", module],
        cwd=MODULES / name,
        env=_go_env(),
        capture_output=True,
        text=True,
        check=True,
    )
    (into / "crds").mkdir()
    for place in places:
        for crd in (Path(told.stdout.strip()) / place).glob("*.yaml"):
            shutil.copyfile(crd, into / "crds" / crd.name)
