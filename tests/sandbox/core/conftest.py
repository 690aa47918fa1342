"""A sandbox API server on virtual time, and the way to run code on it."""

from collections.abc import Callable
from typing import Any

import pytest

from mooring_lab.cluster.apiserver.api import SandboxKubeApi
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline, run_virtual


@pytest.fixture
def api() -> SandboxKubeApi:
    return SandboxKubeApi(ObjectStore(Timeline(), seed=7), seed=7)


@pytest.fixture
def play(api: SandboxKubeApi) -> Callable[[Callable[[], Any]], Any]:
    """Runs a coroutine function on the virtual time of `api`."""
    return lambda fn: run_virtual(fn, api.store.timeline)
