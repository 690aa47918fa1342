"""`mooring rehearse sweep`: every single failure on one snapshot, and where this cluster is weakest."""

import contextlib
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from mooring.cli.numbers import Jobs
from mooring.cli.output import note, print_json
from mooring.cli.rehearse_flags import Progress, Setup, explained
from mooring.core.model.exits import Exit, UserError

if TYPE_CHECKING:
    from mooring.cli.rehearse_sweep_page import SweepPage
    from mooring.rehearse.events.failures import Failure
    from mooring.rehearse.snapshot.schema import Snapshot
    from mooring.rehearse.sweep.baseline import News
    from mooring.rehearse.sweep.forks import Failed
    from mooring.rehearse.sweep.sweep import Found, Plan, Sweep

_BAR = 24
_PAGE_EVERY_S = 1.0


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
    jobs: Annotated[Jobs, Parameter(help="So many at a time; 0: one per core.")] = 0,
    dask: Annotated[str, Parameter(help="tcp://HOST:PORT of a Dask scheduler that plays it instead.")] = "",
    fail_on: Annotated[
        FailOn, Parameter(help="any: exit 1 for every broken promise; new: for what got worse.")
    ] = FailOn.ANY,
    baseline: Annotated[
        Path | None, Parameter(help="With --fail-on new: an earlier sweep, as -o json printed it.")
    ] = None,
    page: Annotated[bool, Parameter(negative="", help="Watch it on a page, until Ctrl-C.")] = False,
    port: Annotated[int, Parameter(help="Of the page; not given: 8390, or the next that is free.")] = -1,
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
    from mooring.rehearse.sweep.baseline import compare

    before = _baseline(fail_on, baseline)
    if dask and jobs:
        raise UserError("--jobs is for this machine and --dask for others: give one of them")
    with explained(setup.from_):
        bar = _prepared(setup, events, port if page else None)
        try:
            whole = bar.run(jobs, dask)
            found = bar.over()
            if not whole:
                note(f"mooring: stopped; {found.played} of {found.planned} events are played")
            news = None if before is None else compare(found, before)
            _print(found, bar.todo, news, output, everything=everything)
            bar.stay()
        finally:
            bar.close()
    if news is not None:
        return Exit.NOT_AS_IT_SHOULD_BE if news.is_worse or not whole else Exit.DONE
    return Exit.DONE if found.kept == found.planned else Exit.NOT_AS_IT_SHOULD_BE


def _prepared(setup: Setup, events: str, port: int | None) -> "_Bar":
    """`port` None: without a page."""
    from mooring.rehearse.events.failures import failures, scopes

    plan, wanted = setup.plan(), scopes(events)
    taken = setup.snapshot()
    todo = failures(taken, plan.config.mix.capacity, wanted, setup.rack_label)
    return _Bar(taken, todo, plan, None if port is None else _page(port), setup.flags())


def _print(
    found: "Sweep", todo: "list[Failure]", news: "News | None", output: SweepFormat, *, everything: bool
) -> None:
    from mooring.rehearse.sweep import report as sweep_report
    from mooring.rehearse.sweep.baseline import compare, markdown

    match output:
        case SweepFormat.JSON:
            print_json(found)
        case SweepFormat.MARKDOWN:
            print("\n".join(markdown(found, news or compare(found, found))))
        case _:
            print("\n".join(sweep_report.render(found, todo, everything=everything)))
    if news is not None:
        note("\n".join(_news_words(news)))


def _page(port: int) -> "SweepPage":
    from mooring.cli.demo import listen
    from mooring.cli.rehearse_sweep_page import SweepPage

    made = SweepPage(listen(port))
    note(f"page {made.url} until Ctrl-C")
    return made


def _news_words(news: "News") -> list[str]:
    if not news.is_worse:
        return ["mooring: nothing got worse"]
    return [f"mooring: worse: {one.words}, by {one.events[0]}" for one in news.worse] + [
        f"mooring: can no longer be judged: {event}" for event in news.unknown
    ]


def _baseline(fail_on: FailOn, file: Path | None) -> "Sweep | None":
    from mooring.rehearse.sweep.baseline import BadBaselineError, read

    if (fail_on is FailOn.NEW) != (file is not None):
        raise UserError("--fail-on new and --baseline FILE go together")
    try:
        return None if file is None else read(file)
    except BadBaselineError as error:
        raise UserError(str(error)) from None


class _Bar(Progress):
    """How far it is, how long it will take, and what is known so far; on a page too when there is one."""

    def __init__(
        self, taken: "Snapshot", todo: "list[Failure]", plan: "Plan", page: "SweepPage | None", flags: str
    ) -> None:
        super().__init__()
        self._taken = taken
        self.todo = todo
        self._plan = plan
        self._page = page
        self._flags = flags
        self._began = time.monotonic()
        self._results: list[tuple[Failure, Found | Failed]] = []
        self._shown_at = 0.0
        self.line(f"Mooring comes up on the snapshot; then {len(todo)} events", stay=True)
        self._show("Mooring comes up on the snapshot")

    def run(self, jobs: int, dask: str) -> bool:
        """False: stopped by Ctrl-C."""
        from mooring.rehearse.sweep.forks import cores
        from mooring.rehearse.sweep.remote import run_on_dask
        from mooring.rehearse.sweep.sweep import run

        if dask:
            return run_on_dask(self._taken, self.todo, self._plan, dask, self.told)
        return run(self._taken, self.todo, self._plan, jobs or cores(), self.told)

    def told(self, failure: "Failure", result: "Found | Failed") -> None:
        if not self._results:
            self._began = time.monotonic()  # the first says when the others began; loading is not part of the pace
        self._results.append((failure, result))
        done, total = len(self._results), len(self.todo)
        left = (time.monotonic() - self._began) / max(1, done - 1) * (total - done)
        full = _BAR * done // total
        minutes, seconds = divmod(round(left), 60)
        words = f"{minutes}:{seconds:02d} left"
        self.line(f"[{'#' * full}{'.' * (_BAR - full)}] {done} of {total}, {words}  {failure.event}", stay=True)
        if time.monotonic() - self._shown_at > _PAGE_EVERY_S:
            self._show(words)

    def over(self) -> "Sweep":
        self.clear()
        return self._show("")

    def stay(self) -> None:
        if self._page is not None:
            with contextlib.suppress(KeyboardInterrupt):  # it may come before we wait for it
                note(f"page {self._page.url} stays until Ctrl-C")
                self._page.wait()

    def close(self) -> None:
        if self._page is not None:
            self._page.close()

    def _show(self, words: str) -> "Sweep":
        from mooring.rehearse.sweep.sweep import collect

        found = collect(self._taken, self.todo, self._results)
        if self._page is not None:
            from mooring.cli.rehearse_sweep_page import Shown

            self._shown_at = time.monotonic()
            self._page.show(Shown(found, words, self._flags))
        return found
