"""A TiDB cluster's PD with three stores and thirty regions, on virtual time."""

import asyncio

import pytest

from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.pd import PdSettings, SandboxPd


@pytest.fixture
def timeline():
    return Timeline()


@pytest.fixture
def make_pd(timeline):
    def make(stores=3, regions=30, seed=1, **settings):
        pd = SandboxPd(timeline, seed=seed, settings=PdSettings(**settings))
        for i in range(stores):
            pd.attach(f"demo-tikv-{i}")
        pd.load(regions=regions)
        return pd

    return make


@pytest.fixture
def look():
    """Ask the port from plain code: in process nothing waits unless PD is slow."""

    def run(coro):
        return asyncio.run(coro)

    return run
