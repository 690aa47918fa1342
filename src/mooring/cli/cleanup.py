"""`mooring cleanup`: list or remove what Mooring has left in a cluster."""

import asyncio
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from mooring.cli.connect import Context, Kubeconfig, OwnNamespace, Pd, connect, settings
from mooring.cli.output import Format, Output, note, print_data, print_text
from mooring.cli.server import Server, ask
from mooring.core.model.exits import Exit, UserError

if TYPE_CHECKING:
    from mooring.install.cleanup.run import Cleaned
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

    if dry_run == yes:
        raise UserError("say either --dry-run (list what is there) or --yes (remove it)")
    for name in feature:
        if name not in names():
            raise UserError(f"--feature {name}: must be one of {', '.join(names())}")
    config = settings({"kubeconfig": kubeconfig, "context": context, "namespace": namespace}, pd=pd).config
    found = asyncio.run(_cleanup(config, frozenset(feature), server, yes=yes))
    if output.data:
        print_data(output, {"dry_run": dry_run, "found": found.done, "failed": found.failed, "kept": found.kept})
    else:
        for line in found.done:
            print_text(line)
        for line in found.kept:
            note(f"kept: {line}")
        for line in found.failed:
            note(f"not done: {line}")
        if not found.done and not found.failed:
            whose = f"nothing that {' or '.join(feature)} began is still there"
            note(whose if feature else "leftovers: none")
    return Exit.CHECK_FAILED if found.failed else Exit.DONE


async def _cleanup(config: "Config", features: frozenset[str], server: str, *, yes: bool) -> "Cleaned":
    from mooring.install.cleanup.run import clean

    async with connect(config.kubeconfig, config.context) as api:
        return await clean(api, config, features, lambda: ask(server, "/api/v1/status"), yes=yes)
