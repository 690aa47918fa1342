"""`mooring mix`: replicas across on-demand and spot nodes."""

from enum import StrEnum
from typing import Annotated

from cyclopts import App, Parameter

from mooring.cli.exits import CommandError
from mooring.cli.output import Format, Output, print_json, print_table

app = App(name="mix", help="Replicas across on-demand and spot nodes: who goes where, and why.")


class WorkloadKind(StrEnum):
    Deployment = "Deployment"
    StatefulSet = "StatefulSet"


@app.command
def target(
    *,
    kind: Annotated[str, Parameter(help="Deployment or StatefulSet.")],
    replicas: Annotated[int, Parameter(help="How many replicas.")],
    mode: Annotated[str | None, Parameter(help="The mode; without it, the default of the kind.")] = None,
    custom: Annotated[str | None, Parameter(help="With mode custom: 3, 30% or 30pct.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Say how many replicas a mode puts on on-demand and on spot nodes, and the class of each slot.

    Slot i has the same class for every number of replicas: scaling up or down moves nobody.

    Example: mooring mix target --kind StatefulSet --replicas 5 -o json
    Example: mooring mix target --kind Deployment --replicas 10 --mode custom --custom 30%
    """
    from mooring.mix.labels import parse_share
    from mooring.mix.targets import MODES, Mode, Target, default_target

    if kind not in set(WorkloadKind):
        raise CommandError(f"--kind {kind}: it must be Deployment or StatefulSet")
    if not 0 <= replicas <= 1_000_000:
        raise CommandError(f"--replicas {replicas}: it must be between 0 and 1000000")
    if mode is not None and mode not in MODES:
        raise CommandError(f"--mode {mode}: it must be one of {', '.join(MODES)}")
    if mode == Mode.CUSTOM and custom is None:
        raise CommandError("--mode custom needs --custom: a count such as 3, or a percentage such as 30%")
    if mode != Mode.CUSTOM and custom is not None:
        raise CommandError(f"--custom {custom} goes with --mode custom only; the mode is {mode or 'the default'}")
    share = None
    if custom is not None:
        share = parse_share(custom)
        if share is None:
            raise CommandError(f"--custom {custom}: it must be a count (0, 1, 2 …) or a percentage, 0% to 100%")
    wanted = default_target(kind) if mode is None else Target(Mode(mode), share)
    on_demand, sequence = wanted.on_demand(replicas), wanted.sequence(replicas)
    if output is Format.JSON:
        print_json({"mode": wanted.mode, "on_demand": on_demand, "spot": replicas - on_demand, "sequence": sequence})
        return
    print_table(
        ("MODE", "ON-DEMAND", "SPOT", "SLOTS"), [(str(wanted), str(on_demand), str(replicas - on_demand), sequence)]
    )
