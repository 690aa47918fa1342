"""A snapshot without a cluster: the demo's, at the moment its day begins. For trying out, and for tests."""

from mooring.capabilities.fleet.live import settings
from mooring.core.model.cluster import Key
from mooring.core.model.times import rfc3339
from mooring.demo.acts.retire import LIMITS
from mooring.demo.sandbox_stage import SandboxStage
from mooring.rehearse.snapshot.capture import shot
from mooring.rehearse.snapshot.gather import gather
from mooring.rehearse.snapshot.schema import KINDS, PdShot, Snapshot
from mooring.sim.rig import Rig
from mooring.sim.scenarios.fleet import stored

#: Eleven of the twelve machines have a place; one is spare.
_SEATED = 11


def demo_snapshot(seed: int = 1) -> Snapshot:
    stage = SandboxStage(seed)
    taken: list[Snapshot] = []

    async def whole() -> None:
        try:
            await stage.build()
            stage.switch_on("fleet")
            await stage.set_fleet(**{settings.CONSTRAINTS: LIMITS})
            await stage.rig.until(lambda: len(stored(stage.rig).members) == _SEATED, limit_s=120)
            await stage.rig.until(lambda: not stage.rig.unsettled())
            await stage.rig.sleep(30.0)
            taken.append(await of_rig(stage.rig, "demo"))
        finally:
            await stage.close()

    stage.run(whole)
    return taken[0]


async def of_rig(rig: Rig, source: str) -> Snapshot:
    """A sandbox cluster as it stands now."""
    cluster = rig.cluster
    pds: list[PdShot] = []
    for (namespace, name), pd in sorted(cluster.pd.items()):
        pds.append(shot(Key(namespace, name), await pd.observe(), await pd.regions()))
    return gather(
        {kind: cluster.store.list(kind) for kind in KINDS},
        taken_at=rfc3339(cluster.timeline.now()),
        source=source,
        namespace=rig.config.namespace,
        pds=pds,
        machines=await cluster.sabakan.machines() if cluster.sabakan is not None else None,
    )
