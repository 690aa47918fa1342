"""Shared by all tests: our own logs stay quiet unless a test asks for them, Ctrl-C works in what tests start, and uv."""

import logging
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import structlog

# Test processes are told the width of the terminal that started them; commands that tests start write into pipes.
os.environ.pop("COLUMNS", None)
# A shell that runs us in the background ignores SIGINT for us and, by inheritance, for every process a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _quiet_logs():
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


@pytest.fixture(scope="session")
def uv() -> str:
    """The one that made .venv; where pip did that, it is fetched as .ci/setup fetches it."""
    if found := shutil.which("uv"):
        return found
    root = Path(__file__).parents[1]
    subprocess.run(["sh", ".ci/setup", "uv-only"], cwd=root, check=True, timeout=240)
    return str(root / ".tools/bin/uv")
