"""`mooring rehearse`: what would happen to this cluster if …, played in virtual time on a snapshot of it."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from mooring.cli.connect import ConfigFile, Context, Kubeconfig, OwnNamespace, Pd, connection_of, reaching
from mooring.cli.exits import CommandError, Exit
from mooring.cli.output import Format, Output, note, print_json

if TYPE_CHECKING:
    from mooring.cli.rehearse_page import Page
    from mooring.process.config import Resolved
    from mooring.rehearse.play import Play
    from mooring.rehearse.schema import Snapshot

app = App(
    name="rehearse",
    help="Play an event on a snapshot of a cluster, in virtual time: who would be interrupted, and would it hold?",
)


@app.command
def snapshot(
    *,
    file: Annotated[Path, Parameter(name=["--file", "-f"], help="Where to write it; appears when it is whole.")],
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

    Example: mooring rehearse snapshot -f prod.json --kubeconfig prod.kubeconfig --pd tidb/demo=http://127.0.0.1:2379

    Example: mooring rehearse snapshot -f demo.json --demo
    """
    from mooring.rehearse import schema

    if not file.parent.is_dir() or file.is_dir():
        raise CommandError(f"--file {file}: a file in a directory that exists is wanted")
    if demo:
        taken = _demo(seed)
    else:
        flags = {"kubeconfig": kubeconfig, "context": context, "namespace": namespace, "sabakan-url": sabakan_url}
        taken = asyncio.run(_take(_settings(flags, config, pd), with_pd=not without_pd))
    try:
        size = schema.write(taken, file)
    except OSError as error:
        raise CommandError(f"--file {file}: {error.strerror or error}") from None
    for remark in taken.remarks:
        note(f"mooring: note: {remark}")
    found = ", ".join(f"{count} {kind}s" for kind, count in taken.counts().items())
    machines = "" if taken.machines is None else f", {len(taken.machines)} machines"
    note(f"{file}: {found}, {len(taken.pds)} PDs{machines}; {size / 1024:.0f} KiB, as of {taken.taken_at}")
    note(f"next:  mooring rehearse play spot-gone --from {file}")
    return Exit.DONE


@app.command
def play(
    event: Annotated[
        tuple[str, ...],
        Parameter(
            help="rack-lost RACK · node-lost NODE · spot-gone · retire SERIAL… · restart NS/CLUSTER; several joined by "
            "`then`, each with @OFFSET behind its name if not at once.",
            negative="",
        ),
    ] = (),
    /,
    *,
    from_: Annotated[Path | None, Parameter(name="--from", help="A snapshot.")] = None,
    demo: Annotated[bool, Parameter(negative="", help="The demo's cluster instead of a snapshot.")] = False,
    notice: Annotated[str, Parameter(help="spot-gone: how long before they go the nodes are told.")] = "120s",
    unannounced: Annotated[bool, Parameter(negative="", help="spot-gone: they just go.")] = False,
    count: Annotated[int, Parameter(help="retire: so many machines, the first by serial that have a node.")] = 0,
    rack_label: Annotated[str, Parameter(help="rack-lost: the node label that names the rack.")] = "",
    for_: Annotated[str, Parameter(name="--for", help="At most so much virtual time.")] = "30m",
    ending: Annotated[str, Parameter(help="How long a pod takes to end, at most its grace.")] = "1s",
    config: ConfigFile = "",
    features: Annotated[
        str, Parameter(help="NAME=true|false,…; every feature is on unless this or --config says.")
    ] = "",
    seed: Annotated[int, Parameter(help="Another seed, another draw of what is left to chance.")] = 1,
    page: Annotated[bool, Parameter(negative="", help="Watch it on Mooring's page while it plays.")] = False,
    port: Annotated[int, Parameter(help="Of the page; -1: the first that is free from 8390 on.")] = -1,
    speed: Annotated[float, Parameter(help="With --page: so many virtual seconds a second.")] = 20.0,
    everything: Annotated[bool, Parameter(name="--all", negative="", help="Every row of the timeline.")] = False,
    output: Output = Format.TABLE,
) -> int:
    """Play an event on a snapshot and say whether every promise would be kept. Nothing outside this process is touched.

    The snapshot is loaded into the sandbox, a whole Mooring runs on it, then the event strikes, and virtual time passes
    as fast as it goes until nothing moves any more. Line 1 is the verdict; then who is short of replicas and for how
    long, what happened to TiKV's regions, who found no room and how many nodes more it would take, and the timeline in
    the queue's own words. The same snapshot, event and seed give the same answer, byte for byte.

    Exits 0 when all are kept, 1 when one is broken or it cannot be told, 2 for an event that this snapshot cannot have,
    4 when Mooring did not come up on it. What the sandbox leaves out is in docs/rehearse.md.

    Example: mooring rehearse play spot-gone --demo

    Example: mooring rehearse play rack-lost 2 then spot-gone@90s --from prod.json --notice 30s

    Example: mooring rehearse play retire --count 3 --from prod.json -o json
    """
    from mooring.process import logs
    from mooring.rehearse import schema
    from mooring.rehearse.events import BadEvent, Options, acts, span
    from mooring.rehearse.play import Play, everything_on
    from mooring.rehearse.report import render
    from mooring.sandbox.kubelet import Pace

    if (from_ is None) != demo:
        raise CommandError("a snapshot is wanted: --from FILE (mooring rehearse snapshot -f FILE), or --demo")
    resolved = _settings({"features": features}, config, ())
    settings = resolved.config if resolved.sources["features"] != "default" else everything_on(resolved.config)
    logs.configure("critical", "auto")
    try:
        taken = _demo(seed) if from_ is None else schema.read(from_)
        options = Options(notice_s=span(notice), unannounced=unannounced, count=count, rack_label=rack_label)
        planned = acts(event, taken, settings.mix.capacity, options)
        limit_s, pace = span(for_), Pace(end_s=span(ending))
    except (schema.BadSnapshot, BadEvent) as error:
        raise CommandError(str(error)) from None
    if speed <= 0:
        raise CommandError(f"--speed {speed:g}: more than 0, e.g. 20")
    progress = _Progress()
    try:
        whole = Play(taken, planned, settings, seed=seed, limit_s=limit_s, pace=pace, progress=progress.show)
        outcome = whole.run(_page(whole, port) if page else None, speed)
    except schema.BadSnapshot as error:
        raise CommandError(f"{from_}: {error}") from None
    except AssertionError as error:
        words = (str(error).splitlines() or ["?"])[0]
        raise CommandError(f"Mooring did not come up on this snapshot: {words}", Exit.COULD_NOT_LOOK) from None
    finally:
        progress.clear()
    if output is Format.JSON:
        print_json(outcome)
    else:
        print("\n".join(render(outcome, everything=everything)))
    return Exit.DONE if outcome.verdict == "kept" else Exit.NOT_AS_IT_SHOULD_BE


def _page(whole: "Play", port: int) -> "Page":
    from mooring.cli.demo import listen
    from mooring.cli.rehearse_page import Page

    listener = listen(port)
    note(f"page http://127.0.0.1:{listener.getsockname()[1]} until it is over; Ctrl-C stops, and leaves nothing")
    return Page(whole.rig, listener)


def _settings(flags: Mapping[str, str | None], config: str, pd: tuple[str, ...]) -> "Resolved":
    from mooring.process.config import BadConfig, resolve

    try:
        resolved = resolve(flags, os.environ, config, pd)
    except BadConfig as error:
        raise CommandError(str(error)) from None
    for warning in resolved.warnings:
        note(f"mooring: warning: {warning}")
    return resolved


def _demo(seed: int) -> "Snapshot":
    from mooring.process import logs
    from mooring.rehearse.demo_snapshot import demo_snapshot

    logs.configure("critical", "auto")
    return demo_snapshot(seed)


async def _take(resolved: "Resolved", *, with_pd: bool) -> "Snapshot":
    from mooring.process.assemble import make_pd, make_registry
    from mooring.process.clock import SystemChance, WallClock
    from mooring.rehearse.capture import take

    settings, clock = resolved.config, WallClock()
    connection = connection_of(settings.kubeconfig, settings.context)
    with reaching():
        return await take(
            connection,
            settings,
            now=clock.now(),
            make_pd=make_pd(clock, SystemChance(), given=settings.pd, hosts=settings.pd_hosts) if with_pd else None,
            make_registry=make_registry,
            progress=_Progress().line,
        )


class _Progress:
    """One line on a terminal, written over; nothing into a pipe."""

    def __init__(self) -> None:
        self._on = sys.stderr.isatty()

    def show(self, at_s: float, words: str) -> None:
        if self._on:
            minutes, seconds = divmod(int(at_s), 60)
            print(f"\r\x1b[K{minutes}:{seconds:02d}  {words}", end="", file=sys.stderr, flush=True)

    def line(self, words: str) -> None:
        if self._on:
            print(f"\r\x1b[K{words}", end="", file=sys.stderr, flush=True)
            self.clear()

    def clear(self) -> None:
        if self._on:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
