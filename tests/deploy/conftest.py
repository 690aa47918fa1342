"""The tools that chart, alerts and packages are for: pinned and built once with Go, or had from the package index."""

import shutil
import subprocess
from pathlib import Path

import pytest

from mooring.lab.tools import find_tools

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["helm3", "helm4"])
def helm(request: pytest.FixtureRequest) -> str:
    return str(find_tools()[request.param])


@pytest.fixture
def promtool() -> str:
    return str(find_tools()["promtool"])


@pytest.fixture(scope="session")
def uv() -> str:
    """The one that made .venv; where pip did that, it is fetched as .ci/setup fetches it."""
    if found := shutil.which("uv"):
        return found
    subprocess.run(["sh", ".ci/setup", "uv-only"], cwd=ROOT, check=True, timeout=240)
    return str(ROOT / ".tools/bin/uv")
