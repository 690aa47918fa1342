"""Shared by all tests: our own logs stay quiet unless a test asks for them, and Ctrl-C works in what tests start."""

import logging
import signal

import pytest
import structlog

# A shell that runs us in the background ignores SIGINT for us and, by inheritance, for every process a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _quiet_logs():
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
