"""Handoff on the real control plane and a real PD, in a cluster that others work on, too."""

import asyncio

import pytest

from mooring_lab.control.servers import NO_PD
from tests.e2e.operator_environment import EVICT, ReleasedEnvironment
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e
RESTART = "tidb.pingcap.com/restart="


@pytest.fixture(autouse=True)
def with_real_pd(lab):
    if lab.pd_server is None:
        pytest.skip(NO_PD)


async def test_a_released_cluster_with_a_persons_scheduler(lab, tmp_path):
    """H3, E3, E7: pods say `my-release`; a person keeps store 2 evicted and empty, then evicts the store we have left:
    the restart is made, and neither scheduler is touched."""
    async with ReleasedEnvironment(lab, tmp_path) as environment:
        await environment.start()
        await eventually(environment.leads, tell=environment.logs)
        await environment.pd.add_evict_leader(2)

        async def empty():
            return await environment.leaders(2) == 0

        await eventually(empty)
        uid = await environment.uid("demo-tikv-0")
        await asyncio.to_thread(environment.annotate, "demo-tikv-0", RESTART)

        async def over():
            new = await environment.uid("demo-tikv-0")
            left = [one for one in await environment.left_overs() if not one.startswith("evict-leader")]
            return new not in {"", uid} and await environment._all_ready() and not left

        await eventually(over, tell=environment.logs)
        assert await environment.placement.evicting() == (2,)
        await environment.pd.add_evict_leader(1)
        await asyncio.sleep(8)
        assert set(await environment.placement.evicting()) == {1, 2}
        assert environment.placement.interrupted() == 0


async def test_a_persons_scheduler_on_that_very_store_survives_a_restart_of_pd(lab, tmp_path):
    """E3: PD lists its schedulers one by one when it comes back, just when we begin on the store that a person evicts:
    the restart is made, and the scheduler is there afterwards."""
    async with ReleasedEnvironment(lab, tmp_path) as environment:
        await environment.start()
        await eventually(environment.leads, tell=environment.logs)
        await environment.pd.add_evict_leader(1)
        uid = await environment.uid("demo-tikv-0")
        restarting = asyncio.ensure_future(environment.placement.restart())
        await asyncio.sleep(6.0)
        await asyncio.to_thread(environment.annotate, "demo-tikv-0", RESTART)
        await restarting

        async def over():
            new = await environment.uid("demo-tikv-0")
            left = [one for one in await environment.left_overs() if not one.startswith("evict-leader")]
            return new not in {"", uid} and await environment._all_ready() and not left

        await eventually(over, tell=environment.logs)
        assert await environment.placement.evicting() == (1,)
        assert environment.placement.interrupted() == 0


async def test_a_restart_while_tidb_operator_upgrades(lab, tmp_path):
    """E3, E7: it waits for the upgrade and ends with it; never two away, nothing left."""
    async with ReleasedEnvironment(lab, tmp_path) as environment, environment.operator:
        await environment.start()
        await eventually(environment.leads, tell=environment.logs)
        uids = {name: await environment.uid(name) for name in environment.names}
        await environment.operator.upgrade()

        async def begun():
            return bool(await environment.placement.evicting())

        await eventually(begun)
        await asyncio.to_thread(environment.annotate, "demo-tikv-0", RESTART)

        async def over():
            new = [await environment.uid(name) not in {"", uid} for name, uid in uids.items()]
            return all(new) and await environment.operator.is_upgraded() and not await environment.left_overs()

        await eventually(over, tell=environment.logs)
        assert environment.most_away <= 1
        assert environment.placement.interrupted() == 0


async def test_two_restarts_and_evict_leader_beside_tidb_operator(lab, tmp_path):
    """E3, E7: `evict-leader` is tidb-operator's from beginning to end, two restarts go one after the other."""
    async with ReleasedEnvironment(lab, tmp_path) as environment, environment.operator:
        await environment.start()
        await eventually(environment.leads, tell=environment.logs)
        await asyncio.to_thread(environment.annotate, "demo-tikv-2", f"{EVICT}=none")

        async def theirs():
            return await environment.placement.evicting() == (3,) and await environment.leaders(3) == 0

        await eventually(theirs)
        await asyncio.to_thread(environment.annotate, "demo-tikv-2", f"{EVICT}-")

        async def ended():
            return await environment.placement.evicting() == ()

        await eventually(ended)
        assert not [w for w in environment.toll.writes if "schedulers" in w], "never touched by us"
        uids = {name: await environment.uid(name) for name in ("demo-tikv-0", "demo-tikv-1")}
        await asyncio.to_thread(
            lab.kubectl, "annotate", "pods", *uids, RESTART, "-n", environment.namespace, "--overwrite"
        )
        for name, uid in uids.items():
            await eventually(lambda name=name, uid=uid: environment.handed_over(name, uid), tell=environment.logs)
        assert environment.most_away <= 1
        assert environment.placement.interrupted() == 0
