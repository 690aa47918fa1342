"""L3, L4: the drivers on real systems: etcd of three members, and PostgreSQL under Patroni where it is installed."""

import pytest
from bench._led import MEMBERS, SYSTEMS

from tests.clients.leaders.leader_contract import CASES


@pytest.fixture(params=SYSTEMS)
async def system(request):
    made = SYSTEMS[request.param]
    if missing := made.missing():
        pytest.skip(f"not tried on a real {request.param}: {missing}")
    running = made()
    try:
        for name in MEMBERS:
            await running.start(name)
        yield running
    finally:
        await running.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_the_real_system_keeps_the_contract(system, case):
    """L4: what the stand-in promises is what the real one does."""
    await case(system)
