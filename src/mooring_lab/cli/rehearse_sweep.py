"""`mooring rehearse sweep`: every single failure on one snapshot, and where this cluster is weakest."""

import contextlib
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from mooring.cli.output import Jobs, Progress, note, print_json, print_lines, print_text
from mooring.core.model.exits import Exit, UserError
from mooring_lab.cli.rehearse_flags import Setup, explained

if TYPE_CHECKING:
    from mooring_lab.rehearse.events.failures import Failure
    from mooring_lab.rehearse.sweep.page import SweepPage
    from mooring_lab.rehearse.sweep.report import News
    from mooring_lab.rehearse.sweep.running import Running
    from mooring_lab.rehearse.sweep.sweep import Sweep


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
    it, which is tried. Each event comes out as `mooring rehearse play` of that event does. Ctrl-C prints what is known
    so far.

    Exits 0 when every promise is kept by all, 1 when one is broken or it cannot be told; with `--fail-on new`, 1 only
    when something got worse than in the baseline.

    Example: mooring rehearse sweep --demo --events rack,pool

    Example: mooring rehearse sweep --from prod.json --jobs 8 -o json

    Example: mooring rehearse sweep --from prod.json --fail-on new --baseline before.json -o markdown
    """
    from mooring_lab.rehearse.sweep.report import compare

    before = _baseline(fail_on, baseline)
    if dask and jobs:
        raise UserError("--jobs is for this machine and --dask for others: give one of them")
    progress = Progress()
    with explained(setup.from_):
        running, served = _prepared(setup, events, port if page else None, progress)
        try:
            whole = running.run(jobs, dask)
            found = running.advised(jobs, setup.rack_label) if whole else running.show("")
            progress.clear()
            if not whole:
                note(f"mooring: stopped; {found.played} of {found.planned} events are played")
            news = None if before is None else compare(found, before)
            _print(found, running.todo, news, output, everything=everything)
            if served is not None:
                with contextlib.suppress(KeyboardInterrupt):  # it may come before we wait for it
                    note(f"page {served.url} stays until Ctrl-C")
                    served.wait()
        finally:
            running.close()
    if news is not None:
        return Exit.CHECK_FAILED if news.is_worse or not whole else Exit.DONE
    return Exit.DONE if found.kept == found.planned else Exit.CHECK_FAILED


def _prepared(setup: Setup, events: str, port: int | None, progress: Progress) -> "tuple[Running, SweepPage | None]":
    """`port` None: without a page."""
    from mooring.process.assemble import capacity_rules
    from mooring.process.http.served import listen
    from mooring_lab.rehearse.events.failures import failures, scopes
    from mooring_lab.rehearse.sweep.page import SweepPage
    from mooring_lab.rehearse.sweep.running import Running

    plan, wanted, taken = setup.plan(), scopes(events), setup.snapshot()
    todo = failures(taken, capacity_rules(plan.config), wanted, setup.rack_label)
    page = None if port is None else SweepPage(listen(port))
    if page is not None:
        note(f"page {page.url} until Ctrl-C")
    return Running(taken, todo, plan, lambda words: progress.line(words, stay=True), page, setup.flags()), page


def _print(
    found: "Sweep", todo: "list[Failure]", news: "News | None", output: SweepFormat, *, everything: bool
) -> None:
    from mooring_lab.rehearse.sweep import report as sweep_report
    from mooring_lab.rehearse.sweep.report import compare, markdown, news_words

    match output:
        case SweepFormat.JSON:
            print_json(found)
        case SweepFormat.MARKDOWN:
            print_text("\n".join(markdown(found, news or compare(found, found))))
        case _:
            print_lines(sweep_report.render(found, todo, everything=everything))
    if news is not None:
        note("\n".join(news_words(news)))


def _baseline(fail_on: FailOn, file: Path | None) -> "Sweep | None":
    from mooring_lab.rehearse.sweep.report import read

    if (fail_on is FailOn.NEW) != (file is not None):
        raise UserError("--fail-on new and --baseline FILE go together")
    return None if file is None else read(file)
