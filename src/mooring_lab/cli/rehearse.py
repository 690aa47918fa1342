"""`mooring rehearse`: what would happen to this cluster if …, played in virtual time on a snapshot of it."""

import asyncio
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from mooring.cli.connect import ConfigFile, Context, Kubeconfig, OwnNamespace, Pd, settings
from mooring.cli.output import Format, Jobs, Output, Progress, Whole, note, print_data, print_lines, width
from mooring.core.model.exits import Exit, UserError
from mooring.process.http.served import ServedPage
from mooring.process.http.status import status_app
from mooring_lab.cli.rehearse_flags import Setup, explained
from mooring_lab.cli.rehearse_flags import demo as demo_snapshot
from mooring_lab.cli.rehearse_flags import taken as taken_now
from mooring_lab.cli.rehearse_sweep import sweep
from mooring_lab.stage.rig import Rig

if TYPE_CHECKING:
    from collections.abc import Callable

    from mooring_lab.rehearse.events.catalog import Act
    from mooring_lab.rehearse.outcome import RehearsalOutcome
    from mooring_lab.rehearse.play import Play

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Mooring's own page beside a rehearsal: the queue, the stores, the nodes and the timeline while they move.


class RehearsalPage(ServedPage):
    def __init__(self, rig: Rig, listener: socket.socket) -> None:
        super().__init__(lambda: status_app(lambda: rig.leader() or rig.any(), cluster="rehearsal"), listener)


app = App(
    name="rehearse",
    help="Play an event on a snapshot of a cluster: who would be interrupted, and would every promise be kept?",
)
app.command(sweep)


@app.command
def snapshot(
    file: Annotated[Path, Parameter(name="--to", help="Where to write it; appears when it is whole.")],
    *,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    config: ConfigFile = "",
    namespace: OwnNamespace = "",
    pd: Pd = (),
    without_pd: Annotated[
        bool, Parameter(negative="", help="Do not ask any PD: it is not reachable from here.")
    ] = False,
    sabakan_url: Annotated[str, Parameter(help="The machine registry, when the fleet's settings name none.")] = "",
    demo: Annotated[bool, Parameter(negative="", help="The demo's cluster instead of a real one.")] = False,
    seed: Annotated[int, Parameter(help="Of the demo's cluster.")] = 1,
) -> int:
    """Write down what placement reads of a cluster, in one file. Reads only; nothing in the cluster changes.

    Nodes, pods, workloads, budgets, volumes, quotas, TidbClusters and Mooring's own ConfigMaps, cut down to the fields
    that decide where things go: no environment, no commands, no images, no Secrets. PD's stores and where its regions
    stand, and the registry's machines, where they can be reached; what could not be asked is said, and in the file.

    Example: mooring rehearse snapshot --to prod.json --kubeconfig prod.kubeconfig --pd tidb/demo=http://127.0.0.1:2379

    Example: mooring rehearse snapshot --to demo.json --demo
    """
    from mooring_lab.rehearse.snapshot import schema

    if not file.parent.is_dir() or file.is_dir():
        raise UserError(f"--file {file}: must be a file in a directory that exists")
    if demo:
        taken = demo_snapshot(seed)
    else:
        flags = {"kubeconfig": kubeconfig, "context": context, "namespace": namespace, "sabakan-url": sabakan_url}
        taken = asyncio.run(taken_now(settings(flags, config, pd), with_pd=not without_pd))
    try:
        size = schema.write(taken, file)
    except OSError as error:
        raise UserError(f"--file {file}: {error.strerror or error}") from None
    for remark in taken.remarks:
        note(f"mooring: note: {remark}")
    note(f"{file}: {schema.found(taken)}; {size / 1024:.0f} KiB, as of {taken.taken_at}")
    note(f"next:  mooring rehearse play spot-gone --from {file}")
    return Exit.DONE


@app.command(name="import")
def import_(
    trace: Annotated[Path, Parameter(help="A trace of SimKube, as `skctl export` writes it.")],
    /,
    *,
    file: Annotated[Path, Parameter(name="--to", help="Where to write the snapshot.")],
    nodes: Annotated[Whole, Parameter(help="A trace has none: so many are made up.")] = 10,
    cpu: Annotated[str, Parameter(help="Of each node.")] = "16",
    memory: Annotated[str, Parameter(help="Of each node.")] = "64Gi",
    zones: Annotated[Whole, Parameter(help="The nodes are in so many zones.")] = 3,
    spot: Annotated[Whole, Parameter(help="Percent of the nodes that are spot.")] = 0,
    after: Annotated[str, Parameter(help="As of so long after its beginning, e.g. 90m; not given: its end.")] = "",
) -> int:
    """Make a snapshot out of a recorded trace of SimKube, to rehearse without a cluster.

    Deployments, StatefulSets, DaemonSets and budgets of the trace are placed on nodes that are made up.

    Example: mooring rehearse import trace.sktrace --to trace.json --nodes 20 --spot 30
    Example: mooring rehearse import trace.sktrace --to busy.json --after 90m
    """
    from mooring.clients.wire.quantity import readable
    from mooring_lab.rehearse.events.catalog import span
    from mooring_lab.rehearse.snapshot import schema
    from mooring_lab.rehearse.snapshot.simkube import MadeNodes, import_trace

    if nodes < 1 or zones < 1 or spot > 100:
        raise UserError("--nodes and --zones: at least 1; --spot: 0 to 100")
    for flag, value in (("--cpu", cpu), ("--memory", memory)):
        if not readable(value):
            raise UserError(f"{flag} {value}: not a quantity, e.g. 16 or 64Gi")
    made = MadeNodes(count=nodes, cpu=cpu, memory=memory, zones=zones, spot=spot)
    found = import_trace(trace, made, span(after) if after else None)
    try:
        schema.write(found, file)
    except OSError as error:
        raise UserError(f"--file {file}: {error.strerror or error}") from None
    for remark in found.remarks:
        note(f"mooring: note: {remark}")
    note(f"{file}: {schema.found(found)}")
    note(f"next:  mooring rehearse sweep --from {file}")
    return Exit.DONE


@app.command
def play(
    event: Annotated[
        tuple[str, ...],
        Parameter(
            help="node-lost NODE · rack-lost RACK · zone-lost ZONE · zone-cut-off ZONE · spot-gone [POOL] · "
            "retire SERIAL… · restart NS/CLUSTER · restart pod/NS/NAME · rolling-update KIND/NS/NAME · drain NODE · "
            "empty NODE… (mooring drain) · restart-pods NS/NAME… (mooring restart) · "
            "pd-away [NS/CLUSTER] · api-away · leader-lost [NODE]; several joined by `then`, each with @OFFSET behind "
            "its name if not at once.",
            negative="",
        ),
    ] = (),
    /,
    *,
    setup: Setup = Setup(),
    seeds: Annotated[Whole, Parameter(help="Play it with so many seeds: worst, median and best per workload.")] = 0,
    jobs: Annotated[Jobs, Parameter(help="With --seeds: so many at a time; 0: one per core.")] = 0,
    page: Annotated[bool, Parameter(negative="", help="Watch it on Mooring's page while it plays.")] = False,
    port: Annotated[int, Parameter(help="Of the page; not given: 8390, or the next that is free.")] = -1,
    speed: Annotated[float, Parameter(help="With --page: so many virtual seconds a second.")] = 20.0,
    everything: Annotated[bool, Parameter(name="--all", negative="", help="Every row of the timeline.")] = False,
    output: Output = Format.TABLE,
) -> int:
    """Play an event on a snapshot and say whether every promise would be kept. Nothing outside this process is touched.

    The snapshot is loaded into the sandbox, a whole Mooring runs on it, then the event happens, and virtual time passes
    as fast as it goes until nothing moves any more. Line 1 is the verdict; then who is short of replicas and for how
    long, what happened to TiKV's regions, who found no room and how many nodes more it would take, and the timeline in
    the queue's own words. The same snapshot, event and seed give the same answer, byte for byte.

    Exits 0 when all are kept, 1 when one is broken or it cannot be told, 2 for an event that this snapshot cannot have,
    4 when Mooring did not come up on it. What the sandbox leaves out is in docs/rehearse.md.

    Example: mooring rehearse play spot-gone --demo

    Example: mooring rehearse play rack-lost 2 then spot-gone@90s --from prod.json --notice 30s

    Example: mooring rehearse play spot-gone --from incident.blackbox@03:00
    """
    from mooring_lab.rehearse.report import render

    if speed <= 0:
        raise UserError(f"--speed {speed:g}: more than 0, e.g. 20")
    if seeds:
        return _ranged(event, setup, seeds, jobs, output)
    outcome = _played(event, setup, port if page else None, speed)
    if output.data:
        print_data(output, outcome)
    else:
        print_lines(render(outcome, everything=everything, room=width()))
    return Exit.DONE if outcome.verdict == "kept" else Exit.CHECK_FAILED


def _prepared(event: tuple[str, ...], setup: Setup, show: "Callable[[float, str], None]") -> "tuple[Play, list[Act]]":
    from mooring.process.assemble import capacity_rules
    from mooring_lab.rehearse.events.catalog import acts
    from mooring_lab.rehearse.play import Play

    plan, taken = setup.plan(), setup.snapshot()
    planned = acts(event, taken, capacity_rules(plan.config), plan.options)
    config, limit_s = plan.config, plan.options.limit_s
    return Play(taken, planned, config, seed=plan.seed, limit_s=limit_s, pace=plan.pace, progress=show), planned


def _played(event: tuple[str, ...], setup: Setup, port: int | None, speed: float) -> "RehearsalOutcome":
    """`port` None: without a page."""
    from mooring_lab.rehearse.sweep.forks import play_usual_and_slowest

    progress = Progress()
    with explained(setup.from_):
        whole, planned = _prepared(event, setup, progress.show)
        try:
            if port is None:
                return play_usual_and_slowest(whole, planned, setup.seed)
            return whole.run(_page(whole, port), speed)
        finally:
            progress.clear()


def _ranged(event: tuple[str, ...], setup: Setup, seeds: int, jobs: int, output: Format) -> int:
    from mooring_lab.rehearse.sweep.forks import cores
    from mooring_lab.rehearse.sweep.ranges import ranges, render

    progress = Progress()
    with explained(setup.from_):
        whole, planned = _prepared(event, setup, lambda *_: None)
        numbers = range(setup.seed, setup.seed + seeds)
        done = lambda count: progress.line(f"{count} of {seeds} seeds", stay=True)  # noqa: E731
        found = ranges(whole, planned, numbers, jobs or cores(), done)
    progress.clear()
    if output.data:
        print_data(output, found)
    else:
        print_lines(render(found, width()))
    return Exit.DONE if found.verdict == "kept" else Exit.CHECK_FAILED


def _page(whole: "Play", port: int) -> "RehearsalPage":
    from mooring.process.http.served import listen
    from mooring_lab.cli.rehearse import RehearsalPage

    listener = listen(port)
    note(f"page http://127.0.0.1:{listener.getsockname()[1]} until it is over; Ctrl-C stops; leftovers: none")
    return RehearsalPage(whole.rig, listener)
