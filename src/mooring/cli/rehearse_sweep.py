"""`mooring rehearse sweep`: every single failure on one snapshot, and where this cluster is weakest."""

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from mooring.cli.dask import on_dask
from mooring.cli.exits import CommandError, Exit
from mooring.cli.numbers import Whole
from mooring.cli.output import note, print_json
from mooring.cli.rehearse_flags import Progress, Setup, explained

if TYPE_CHECKING:
    from mooring.rehearse.baseline import News
    from mooring.rehearse.failures import Failure
    from mooring.rehearse.forks import Failed
    from mooring.rehearse.sweep import Found, Sweep

_BAR = 24


class FailOn(StrEnum):
    ANY = "any"
    NEW = "new"


class SweepFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    MARKDOWN = "markdown"


def sweep(
    *,
    setup: Setup = Setup(),
    events: Annotated[str, Parameter(help="Of node,rack,zone,pool,machine,member; all unless given.")] = "",
    jobs: Annotated[Whole, Parameter(help="So many at a time; 0: one per core.")] = 0,
    dask: Annotated[str, Parameter(help="tcp://HOST:PORT of a Dask scheduler that plays it instead.")] = "",
    fail_on: Annotated[
        FailOn, Parameter(help="any: exit 1 for every broken promise; new: for what got worse.")
    ] = FailOn.ANY,
    baseline: Annotated[
        Path | None, Parameter(help="With --fail-on new: an earlier sweep, as -o json printed it.")
    ] = None,
    everything: Annotated[bool, Parameter(name="--all", negative="", help="Every row.")] = False,
    output: Annotated[
        SweepFormat, Parameter(name=["--output", "-o"], help="table, json, or markdown for a pull request.")
    ] = SweepFormat.TABLE,
) -> int:
    """Play every single failure on a snapshot and say where this cluster is weakest. Nothing outside is touched.

    Each node, rack, zone, spot pool, machine and TiKV member, one at a time. Nodes that are alike are played once. The
    promises that something would break come ranked: whose, which, for how long, by which events, and what would fix
    it. Each event comes out as `mooring rehearse play` of that event does. Ctrl-C prints what is known so far.

    Exits 0 when every promise is kept by all, 1 when one is broken or it cannot be told; with `--fail-on new`, 1 only
    when something got worse than in the baseline.

    Example: mooring rehearse sweep --demo --events rack,pool

    Example: mooring rehearse sweep --from prod.json --jobs 8 -o json

    Example: mooring rehearse sweep --from prod.json --fail-on new --baseline before.json -o markdown
    """
    from mooring.rehearse import sweep_report
    from mooring.rehearse.baseline import compare, markdown
    from mooring.rehearse.failures import failures, scopes
    from mooring.rehearse.forks import cores
    from mooring.rehearse.remote import run_on_dask
    from mooring.rehearse.sweep import collect, run

    before = _baseline(fail_on, baseline)
    if dask and jobs:
        raise CommandError("--jobs is for this machine and --dask for others: give one of them")
    with explained(setup.from_), on_dask():
        plan, wanted = setup.plan(), scopes(events)
        taken = setup.snapshot()
        todo = failures(taken, plan.config.mix.capacity, wanted, setup.rack_label)
        bar = _Bar(len(todo))
        if dask:
            whole = run_on_dask(taken, todo, plan, dask, bar.told)
        else:
            whole = run(taken, todo, plan, jobs or cores(), bar.told)
    bar.clear()
    found = collect(taken, todo, bar.results)
    if not whole:
        note(f"mooring: stopped; {found.played} of {found.planned} events are played")
    news = None if before is None else compare(found, before)
    match output:
        case SweepFormat.JSON:
            print_json(found)
        case SweepFormat.MARKDOWN:
            print("\n".join(markdown(found, news or compare(found, found))))
        case _:
            print("\n".join(sweep_report.render(found, todo, everything=everything)))
    if news is not None:
        note("\n".join(_news_words(news)))
        return Exit.NOT_AS_IT_SHOULD_BE if news.is_worse or not whole else Exit.DONE
    return Exit.DONE if found.kept == found.planned else Exit.NOT_AS_IT_SHOULD_BE


def _news_words(news: "News") -> list[str]:
    if not news.is_worse:
        return ["mooring: nothing got worse"]
    return [f"mooring: worse: {one.words}, by {one.events[0]}" for one in news.worse] + [
        f"mooring: cannot be told any more: {event}" for event in news.unknown
    ]


def _baseline(fail_on: FailOn, file: Path | None) -> "Sweep | None":
    from mooring.rehearse.baseline import BadBaselineError, read

    if (fail_on is FailOn.NEW) != (file is not None):
        raise CommandError("--fail-on new and --baseline FILE go together")
    try:
        return None if file is None else read(file)
    except BadBaselineError as error:
        raise CommandError(str(error)) from None


class _Bar(Progress):
    """How far it is, and how long it will take."""

    def __init__(self, total: int) -> None:
        super().__init__()
        self._total = total
        self._began = time.monotonic()
        self.results: list[tuple[Failure, Found | Failed]] = []
        self.line(f"Mooring comes up on the snapshot; then {total} events", stay=True)

    def told(self, failure: "Failure", result: "Found | Failed") -> None:
        if not self.results:
            self._began = time.monotonic()  # the first says when the others began; loading is not part of the pace
        self.results.append((failure, result))
        done = len(self.results)
        left = (time.monotonic() - self._began) / max(1, done - 1) * (self._total - done)
        full = _BAR * done // self._total
        minutes, seconds = divmod(round(left), 60)
        bar = f"[{'#' * full}{'.' * (_BAR - full)}]"
        self.line(f"{bar} {done} of {self._total}, {minutes}:{seconds:02d} left  {failure.event}", stay=True)
