"""Tools that others wrote and we only check with: used when they are at hand, and missed aloud when they are not."""

import os
import shutil
from pathlib import Path

import pytest


def tool(name: str) -> str | None:
    """In MOORING_BIN_DIR, else on the PATH."""
    given = Path(os.environ.get("MOORING_BIN_DIR") or "/nonexistent") / name
    return str(given) if given.exists() else shutil.which(name)


#: Helm 3 and Helm 4, under whichever of these names they are found.
HELMS = [name for name in ("helm", "helm3", "helm4") if tool(name)]
ASKED = pytest.StashKey[bool]()


@pytest.fixture(params=HELMS or [None])
def helm(request: pytest.FixtureRequest) -> str:
    request.config.stash[ASKED] = True
    if request.param is None:
        pytest.skip("no helm in MOORING_BIN_DIR or on the PATH: `go install helm.sh/helm/v4/cmd/helm@latest` brings it")
    return tool(request.param)


@pytest.fixture
def promtool(request: pytest.FixtureRequest) -> str:
    request.config.stash[ASKED] = True
    found = tool("promtool")
    if found is None:
        pytest.skip("no promtool in MOORING_BIN_DIR or on the PATH: Prometheus' releases have it")
    return found


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say in one plain line what was not there."""
    absent = [*([] if HELMS else ["helm"]), *([] if tool("promtool") else ["promtool"])]
    if absent and config.stash.get(ASKED, False):
        line = (
            f"{' and '.join(absent)}: neither in MOORING_BIN_DIR nor on the PATH; chart and alerts were read, not run"
        )
        terminalreporter.write_line(line)
