"""Shared by all tests: quiet logs, no sleeping on the wall clock, Ctrl-C in what tests start, and uv."""

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

from mooring_lab.control import loopback

# Test processes are told the width of the terminal that started them; commands that tests start write into pipes.
os.environ.pop("COLUMNS", None)
os.unsetenv("COLUMNS")  # readline sets it behind Python's back
# A shell that runs us in the background ignores SIGINT for us and, by inheritance, for every process a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# How long an example takes says more about the machine than about the code.
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


@pytest.fixture(autouse=True, scope="session")
def _ports_of_its_own():
    """A port is free until somebody listens on it: test processes that run beside each other look in different ranges."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 8
    share = len(loopback.PORTS) // 8
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loopback, "PORTS", loopback.PORTS[number * share : (number + 1) * share])
        yield


@pytest.fixture(autouse=True, scope="session")
def _quiet_logs():
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


#: A look at another process or at a socket, now and then, and no longer.
LONGEST_S = 0.1
HERE = str(Path(__file__).parent)


@pytest.fixture(autouse=True)
def _no_sleep_on_the_wall_clock(request, monkeypatch):
    """A test that sleeps is slow here and fails elsewhere: wait for the event, or play it in virtual time."""
    # A browser, and the page that is served to it, live on the wall clock.
    if request.node.get_closest_marker("e2e") is not None or {"browser", "site"} & set(request.fixturenames):
        return

    def guarded(sleep, awake):
        def slept(seconds, *more):
            if seconds > LONGEST_S and not awake() and sys._getframe(1).f_code.co_filename.startswith(HERE):
                raise AssertionError(f"sleeps {seconds:g} s on the wall clock")
            return sleep(seconds, *more)

        return slept

    monkeypatch.setattr(time, "sleep", guarded(time.sleep, lambda: False))
    virtual = lambda: type(asyncio.get_running_loop()).time is not asyncio.BaseEventLoop.time
    monkeypatch.setattr(asyncio, "sleep", guarded(asyncio.sleep, virtual))


@pytest.fixture(scope="session")
def uv() -> str:
    """The one that made .venv; where pip did that, it is fetched as .ci/setup fetches it."""
    if found := shutil.which("uv"):
        return found
    root = Path(__file__).parents[1]
    subprocess.run(["sh", ".ci/setup", "uv-only"], cwd=root, check=True, timeout=240)
    return str(root / ".tools/bin/uv")
