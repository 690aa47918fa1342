"""`mooring cleanup`: list or remove what Mooring has left in a cluster."""

import asyncio
import os
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from mooring.cli.connect import Context, Kubeconfig, OwnNamespace, Pd, connect
from mooring.cli.output import Format, Output, note, print_json
from mooring.cli.server import Server, ask
from mooring.core.model.exits import Exit, UserError

if TYPE_CHECKING:
    from mooring.clients.kube import HttpKubeApi
    from mooring.core.world.world import World
    from mooring.process.settings.config import Config

app = App(name="cleanup")


@app.default
def cleanup(
    *,
    dry_run: Annotated[bool, Parameter(help="Only list what is there.")] = False,
    yes: Annotated[bool, Parameter(help="Remove it.")] = False,
    feature: Annotated[
        tuple[str, ...], Parameter(help="Only what this feature began, now that it is off; may repeat.")
    ] = (),
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    namespace: OwnNamespace = "",
    pd: Pd = (),
    server: Server = "",
    output: Output = Format.TABLE,
) -> int:
    """List or remove what Mooring has left: webhooks, marks, cordons, reservations, evict-leader schedulers.

    Stop Mooring first (kubectl -n mooring-system scale deploy/mooring --replicas 0): while a replica leads nothing is
    removed (exit 3). Only what a mark says we did is undone; what was there before us stays. It may be interrupted and
    run again.

    With --feature Mooring may go on running, as long as that feature is off: the one that leads is asked (--server).
    What the feature remembers stays, for when it is switched on again.

    Example: mooring cleanup --dry-run

    Example: mooring cleanup --yes

    Example: mooring cleanup --feature home --yes
    """
    from mooring.capabilities.registry import names
    from mooring.process.settings.config import ConfigError, resolve

    if dry_run == yes:
        raise UserError("say either --dry-run (list what is there) or --yes (remove it)")
    for name in feature:
        if name not in names():
            raise UserError(f"--feature {name}: must be one of {', '.join(names())}")
    try:
        config = resolve(
            {"kubeconfig": kubeconfig, "context": context, "namespace": namespace}, os.environ, "", pd
        ).config
    except ConfigError as error:
        raise UserError(str(error)) from None
    done, failed, kept = asyncio.run(_cleanup(config, frozenset(feature), server, yes=yes))
    if output is Format.JSON:
        print_json({"dry_run": dry_run, "found": done, "failed": failed, "kept": kept})
    else:
        for line in done:
            print(line)
        for line in kept:
            note(f"kept: {line}")
        for line in failed:
            note(f"not done: {line}")
        if not done and not failed:
            whose = f"nothing that {' or '.join(feature)} began is still there"
            note(whose if feature else "leftovers: none")
    return Exit.NOT_AS_IT_SHOULD_BE if failed else Exit.DONE


async def _cleanup(
    config: "Config", features: frozenset[str], server: str, *, yes: bool
) -> tuple[list[str], list[str], list[str]]:
    from mooring.core.world.world import World
    from mooring.install.cleanup.remove import traces
    from mooring.install.doctor.running import leader
    from mooring.process.assemble import make_pd
    from mooring.process.clock import SystemChance, WallClock
    from mooring.process.pd_directory import PdDirectory

    clock = WallClock()
    done: list[str] = []
    failed: list[str] = []
    async with connect(config.kubeconfig, config.context) as api:
        world = World()
        make = make_pd(clock, SystemChance(), given=config.pd, hosts=config.pd_hosts)
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
                _refuse_what_runs(server, features, config.namespace)
            await _fill(world, api)
            found = await traces(api, pds, config.namespace)
            if features:
                found = [trace for trace in found if trace.feature in features]
            for trace in found:
                if trace.undo is None:
                    continue
                trouble = await trace.undo() if yes else ""
                (failed if trouble else done).append(f"{trace.what}: {trouble}" if trouble else trace.what)
        finally:
            await pds.close()
    return done, failed, [t.what for t in found if t.undo is None]


def _refuse_what_runs(server: str, features: frozenset[str], namespace: str) -> None:
    """Only the one that leads knows what it may still be doing; it is asked."""
    status = ask(server, "/api/v1/status")
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


async def _fill(world: "World", api: "HttpKubeApi") -> None:
    """The PD directory finds a cluster's PD by its TidbCluster."""
    from mooring.clients.ports import NotFoundError
    from mooring.core.model.events import Listed
    from mooring.core.model.kinds import Kind

    try:
        page = await api.list(Kind.TIDB_CLUSTER, limit=0)
    except NotFoundError:
        return
    world.apply(Listed(Kind.TIDB_CLUSTER, page.items))
