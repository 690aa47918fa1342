"""A small cluster with something to hand over, for what is left behind and how it is taken back."""

import asyncio

import pytest

from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.requests import RESTART
from mooring.core.model.kinds import Kind
from mooring.process.settings.config import Config
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.stage.rig import Rig


@pytest.fixture
def played():
    return play


@pytest.fixture
def killed_hand_over():
    """A replica is killed while leaders leave; answers with the PD that still keeps them away."""

    async def begun(rig):
        rig.start()
        await rig.until(rig.leads)
        rig.cluster.annotate(Kind.POD, "tidb", "demo-tikv-0", {RESTART: ""})
        pd = rig.cluster.pd["tidb", "demo"]
        await rig.until(lambda: bool(pd.server.evict_list()))
        rig.kill()
        return pd

    return begun


def play(scenario):
    """Run a scenario on a small cluster with a TidbCluster; every replica is gone at its end."""
    rig = Rig(
        seed=5,
        config=Config(features={"handoff": True}, policies=(HandoffPolicy(recheck_s=5.0),)),
        cluster=Cluster(seed=5),
    )
    for number in range(4):
        rig.cluster.add_node(f"n{number}", capacity="on-demand", rack=1)
    rig.cluster.tidb_cluster("tidb", "demo", tikv=3, with_pd=True)

    async def whole(rig):
        await rig.sleep(2.0)
        await rig.until(lambda: rig.cluster.ready("tidb", "demo-tikv") == 3)
        rig.cluster.pd["tidb", "demo"].load(60)
        try:
            await scenario(rig)
        finally:
            rig.kill()
            await asyncio.sleep(0)

    rig.play(whole)
