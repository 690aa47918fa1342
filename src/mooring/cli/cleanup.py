"""`mooring cleanup`: leave nothing behind."""

import asyncio
import os
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from mooring.cli.exits import CommandError, Exit
from mooring.cli.output import Format, Output, note, print_json

if TYPE_CHECKING:
    from mooring.kube import HttpKubeApi
    from mooring.run.config import Config
    from mooring.world.world import World

app = App(name="cleanup", help="Take back everything of Mooring's in a cluster: webhooks, marks, cordons, objects.")


@app.default
def cleanup(
    *,
    dry_run: Annotated[bool, Parameter(help="Only list what is there.")] = False,
    yes: Annotated[bool, Parameter(help="Do it.")] = False,
    kubeconfig: str = "",
    context: str = "",
    namespace: str = "",
    pd: Annotated[tuple[str, ...], Parameter(help="NS/CLUSTER=URL[,URL…]: where a cluster's PD is.")] = (),
    output: Output = Format.TABLE,
) -> int:
    """List or remove what Mooring has left: webhook configurations, marks, cordons, seats, evict-leader schedulers.

    Stop Mooring first (kubectl -n mooring-system scale deploy/mooring --replicas 0): while a replica leads nothing is
    removed (exit 3). Only what a mark says we did is undone; what was there before us stays.

    Example: mooring cleanup --dry-run
    Example: mooring cleanup --yes
    """
    from mooring.run.config import BadConfig, resolve

    if dry_run == yes:
        raise CommandError("say either --dry-run (list what is there) or --yes (remove it)")
    try:
        config = resolve(
            {"kubeconfig": kubeconfig, "context": context, "namespace": namespace}, os.environ, "", pd
        ).config
    except BadConfig as error:
        raise CommandError(str(error)) from None
    done, failed, kept = asyncio.run(_cleanup(config, yes=yes))
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
            note("nothing of Mooring's is left behind")
    return Exit.NOT_AS_IT_SHOULD_BE if failed else Exit.DONE


async def _cleanup(config: "Config", *, yes: bool) -> tuple[list[str], list[str], list[str]]:
    from mooring.kube import ConfigError, HttpKubeApi, load
    from mooring.ports import PortError
    from mooring.run.assemble import make_pd
    from mooring.run.cleaning import traces
    from mooring.run.doctor.living import leader
    from mooring.run.pds import PdDirectory
    from mooring.run.wall import SystemChance, WallClock
    from mooring.world.world import World

    try:
        connection = load(config.kubeconfig or None, context=config.context)
    except ConfigError as error:
        raise CommandError(str(error), Exit.COULD_NOT_LOOK) from None
    clock = WallClock()
    done: list[str] = []
    failed: list[str] = []
    async with HttpKubeApi(connection) as api:
        world = World()
        pds = PdDirectory(world, make_pd(clock, SystemChance()), config.pd)
        try:
            leads = await leader(api, config.namespace, config.lease_name, clock.now())
            if yes and leads.level == "ok":
                raise CommandError(
                    f"{leads.what}: stop it first (kubectl -n {config.namespace} scale deploy/mooring --replicas 0), "
                    "or it would begin anew",
                    Exit.REFUSED,
                )
            await _fill(world, api)
            found = await traces(api, pds, config.namespace)
            for trace in found:
                if trace.undo is None:
                    continue
                trouble = await trace.undo() if yes else ""
                (failed if trouble else done).append(f"{trace.what}: {trouble}" if trouble else trace.what)
        except PortError as error:
            raise CommandError(f"the cluster cannot be looked at: {error}", Exit.COULD_NOT_LOOK) from None
        finally:
            await pds.close()
    return done, failed, [t.what for t in found if t.undo is None]


async def _fill(world: "World", api: "HttpKubeApi") -> None:
    """The PD directory finds a cluster's PD by its TidbCluster."""
    from mooring.model.events import Listed
    from mooring.model.kinds import Kind
    from mooring.ports import NotFound

    try:
        page = await api.list(Kind.TIDB_CLUSTER, limit=0)
    except NotFound:
        return
    world.apply(Listed(Kind.TIDB_CLUSTER, page.items))
