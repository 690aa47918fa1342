"""Helm and promtool: the tools that the chart and the alerts are for, so that tests hand them to the real ones.

Nothing that Mooring does needs them, so they are built only when asked for, and kept apart from the control plane: new
pins of the one never rebuild the other. As there, `MOORING_BIN_DIR` comes first, program by program.
"""

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from mooring.lab.binaries import MODULES, cache_root, fingerprint, locate
from mooring.lab.build import Program, build_set

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
