"""Everything that Mooring has left in a cluster, listed or removed."""

from collections.abc import Callable
from typing import Any

import msgspec

from mooring.clients.kube.api import HttpKubeApi
from mooring.clients.kube.listing import tidb_clusters
from mooring.core.model.events import Seen
from mooring.core.model.exits import Exit, UserError
from mooring.core.world.world import World
from mooring.install.cleanup.remove import traces
from mooring.install.doctor.running import leader
from mooring.process.assemble import make_pd
from mooring.process.clock import SystemRandomness, WallClock
from mooring.process.pd_directory import PdDirectory
from mooring.process.settings.config import Config


class Cleaned(msgspec.Struct):
    done: list[str] = []
    failed: list[str] = []
    kept: list[str] = []


async def clean(
    api: HttpKubeApi, config: Config, features: frozenset[str], status: Callable[[], Any], *, yes: bool
) -> Cleaned:
    """`features`: only what these began; `status` asks the Mooring that runs. Not `yes`: only look."""
    clock, world, cleaned = WallClock(), World(), Cleaned()
    make = make_pd(clock, SystemRandomness(), config, api)
    pds = PdDirectory(world, make, config.pd, config.pd_hosts)
    try:
        leads = await leader(api, config.namespace, config.lease_name, clock.now())
        if yes and leads.level == "ok":
            if not features:
                raise UserError(
                    f"{leads.what}: stop it first (kubectl -n {config.namespace} scale deploy/mooring "
                    "--replicas 0), or it would begin again",
                    Exit.REFUSED,
                )
            refuse_what_runs(status(), features, config.namespace)
        await _fill(world, api)
        every = await traces(api, pds, config.namespace, features)
        found = [t for t in every if not features or t.feature in features]
        for trace in found:
            if trace.undo is None:
                cleaned.kept.append(trace.what)
                continue
            trouble = await trace.undo() if yes else ""
            (cleaned.failed if trouble else cleaned.done).append(f"{trace.what}: {trouble}" if trouble else trace.what)
    finally:
        await pds.close()
    return cleaned


def refuse_what_runs(status: Any, features: frozenset[str], namespace: str) -> None:
    """Only the one that leads knows what it may still be doing."""
    if not status["leading"]:
        pod = status["leader"].partition("_")[0].rpartition("-")[0] or "…"
        raise UserError(
            f"{status['identity']} answers, and {status['leader'] or 'no replica it knows of'} leads; ask that one: "
            f"kubectl -n {namespace} port-forward pod/{pod} 8390",
            Exit.REFUSED,
        )
    if running := sorted(features & set(status["features"])):
        raise UserError(
            f"{', '.join(running)} is on, and ends by itself what it began; switch it off first "
            f"(--features {running[0]}=false, the chart: features.{running[0]})",
            Exit.REFUSED,
        )


async def _fill(world: World, api: HttpKubeApi) -> None:
    """The PD directory finds a cluster's PD by its TidbCluster."""
    for tc in await tidb_clusters(api):
        world.apply(Seen(tc.kind, tc))
