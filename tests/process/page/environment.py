"""A small cluster to look at: 24 nodes in three racks, a TidbCluster with its PD, one replica with hand-over on."""

import asyncio
from typing import Any

from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.process.settings.config import BlackBoxSettings, Config
from mooring_lab.cluster.clock import Timeline, run_virtual
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.stage.rig import Rig


class Environment:
    def __init__(self, seed: int = 1, blackbox: str = "") -> None:
        self.cluster = Cluster(seed=seed, timeline=Timeline(1_767_225_600.0 + 8.5 * 3600))
        config = Config(
            features={"handoff": True},
            policies=(HandoffPolicy(recheck_s=5.0),),
            blackbox=BlackBoxSettings(dir=blackbox),
        )
        self.rig = Rig(seed=seed, config=config, cluster=self.cluster)

    async def build(self) -> None:
        cluster = self.cluster
        for number in range(12):
            cluster.add_node(f"n{number + 1}", capacity="on-demand", rack=number // 4 + 1)
        for number in range(12):
            cluster.add_node(f"s{number + 1}", capacity="spot", rack=number // 4 + 1)
        cluster.tidb_cluster("tidb", "demo", tidb=3, tikv=3, pd=3, with_pd=True)
        cluster.deployment("shop", "web", 5)
        await self.rig.sleep(2.0)
        await self.rig.until(lambda: cluster.ready("tidb", "demo-tikv") == 3)
        cluster.pd["tidb", "demo"].load(300)
        self.rig.start()
        await self.rig.until(self.rig.leads)


def on_stage(look: Any, **how: Any) -> Any:
    """Run `look(stage)` on a small cluster, in virtual time."""
    stage = Environment(seed=2, **how)

    async def whole_scenario():
        await stage.build()
        try:
            return await look(stage)
        finally:
            for name in list(stage.rig.replicas):
                stage.rig.kill(name)
            await asyncio.sleep(0)

    return run_virtual(whole_scenario, stage.cluster.timeline)
