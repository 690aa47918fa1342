"""`mooring demo`: one day on a sandbox cluster, inside this process; or the same day on a real control plane."""

import asyncio
import os
import re
import sys
import time
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import App, Parameter

from mooring.cli.output import (
    Format,
    Output,
    coloured,
    note,
    print_data,
    print_table,
    runnable,
    width,
)
from mooring.core.model.exits import Exit, UserError
from mooring.process.terminal.wrap import continued, folded, plain

if TYPE_CHECKING:
    import socket

    from mooring_lab.demo.day import Day
    from mooring_lab.demo.without import DayWithout

app = App(name="demo")

#: Of the day without Mooring that the lab's page shows beside its own.
SEED: Final = 1
INDENT: Final = " " * 11
#: Of a line of the narration, what a terminal shows in bold: the act and its title, or how it ended.
#: At the end of a check.
_IDS: Final = re.compile(r"(?: +[A-Z]\d{1,2})+$")
_HIGHLIGHT: Final = re.compile(r"^\d+/\d+ \d\d:\d\d  .*?(?=  |$)|^ +(?:ok|FAIL)(?=  )")
#: Columns from which on the table of promises names the acts, not only their numbers.
TITLES_FROM: Final = 120
#: What happens later than this goes three times as fast: a day takes about a minute, also on a slow machine.
WITHIN_S: Final = 60.0
#: At the end of a short day: how long the same day without Mooring may still take.
PATIENCE_S: Final = 120.0


@app.default
def demo(
    *,
    on: Annotated[
        Literal["sandbox", "lab"],
        Parameter(help="sandbox: in this process, in a minute. lab: on a real control plane, in some six minutes."),
    ] = "sandbox",
    short: Annotated[bool, Parameter(help="As fast as it goes, without the page: for scripts and CI.")] = False,
    keep: Annotated[
        bool, Parameter(help="Keep the cluster running after the day, to ask why and to break things.")
    ] = False,
    port: Annotated[int, Parameter(help="Where the page answers; not given: 8390, or the next free one. 0: any.")] = -1,
    open_: Annotated[bool, Parameter(name="--open", help="Open the page in a browser.")] = False,
    seed: Annotated[int, Parameter(help="The same seed plays the same day, on the sandbox.")] = 1,
    speed: Annotated[
        float | None,
        Parameter(help="Virtual seconds per second while something moves; not given: as each act is best watched."),
    ] = None,
    blackbox: Annotated[str, Parameter(help="A directory: record the day, for `mooring replay`. Sandbox only.")] = "",
    tikv: Annotated[
        Literal["8.5", "8.1"],
        Parameter(help="8.5: from 8.5.5 TiKV hands leaders on by itself when it ends. 8.1: it does not. Sandbox only."),
    ] = "8.5",
    verbose: Annotated[bool, Parameter(help="Also the promises: their ids, and the table of all checks.")] = False,
    output: Output = Format.TABLE,
) -> int:
    """Play a scripted day and check every promise it shows.

    Each act does what a person would type, says what moved and why, and checks what was promised. Exits 0 when every
    promise was kept, 1 when one was not or the day was stopped before its end. The narration is on stderr; what the day
    has cost and its promises are on stdout, with --verbose or where one was not kept as a table.

    With --keep, ask in another terminal: mooring why pod/demo-tikv-1 -n tidb

    Example: mooring demo --keep

    Example: mooring demo --short -o json

    Example: mooring demo --on lab
    """
    from mooring.process import logs
    from mooring.process.http.served import listen
    from mooring_lab.demo.page import closing

    if speed is not None and not 0 < speed < inf:
        raise UserError(f"--speed {speed:g}: more than 0, e.g. 60")
    if on == "lab" and short:
        raise UserError("--short is for the sandbox: the lab runs on the wall clock; leave one of the two out")
    if on == "lab" and blackbox:
        raise UserError("--blackbox is for the sandbox; on the lab use mooring run --blackbox")
    if short and (keep or open_):
        raise UserError("--short plays the day without a page: leave it out, or --keep and --open")
    if on == "lab" and tikv != "8.5":
        raise UserError("--tikv is for the sandbox; leave it out with --on lab")
    if blackbox:
        _writable(blackbox)
    listener = None if short else listen(port)
    logs.configure("error", "auto")
    began = time.perf_counter()
    if on == "lab" and listener is not None:
        result, stopped = _on_lab(listener, output, verbose=verbose, keep=keep, open_=open_, asked=port >= 0)
    else:
        result, stopped = _on_sandbox(
            listener, seed, speed, blackbox, tikv, output, verbose=verbose, keep=keep, open_=open_, asked=port >= 0
        )
    note(closing(result.day, time.perf_counter() - began, stopped=stopped, on_lab=on == "lab"))
    return Exit.DONE if result.day.kept else Exit.CHECK_FAILED


def _writable(directory: str) -> None:
    """Said before the day begins: a recording that cannot be written ends without affecting it."""
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--blackbox {directory}: {error.strerror}; give a directory") from None
    if not os.access(directory, os.W_OK):
        raise UserError(f"--blackbox {directory}: it cannot be written into; give another directory")


def _on_sandbox(
    listener: "socket.socket | None",
    seed: int,
    speed: float | None,
    blackbox: str,
    tikv: str,
    output: Format,
    *,
    verbose: bool,
    keep: bool,
    open_: bool,
    asked: bool,
) -> "tuple[_Result, bool]":
    """Without a listener: as fast as it goes."""
    from mooring_lab.demo.day import Day
    from mooring_lab.demo.page import DayPage, opening, page_line
    from mooring_lab.demo.without import DayWithout

    short = listener is None
    where = "one day on a sandbox cluster of 24 nodes inside this process, in about a minute. No Docker."
    page = (
        "no page (--short)   the same day on a real control plane: mooring demo --on lab"
        if listener is None
        else page_line(listener.getsockname()[1], asked=asked)
    )
    for line in opening(where, page, "Nothing is written outside this process", keep=keep):
        note(line)
    within_s = WITHIN_S if speed is None else None
    day = Day(
        _narrate if verbose else _narrate_plainly,
        seed=seed,
        paced=not short,
        speed=None if short else speed,
        within_s=within_s,
        blackbox=blackbox,
        tikv=tikv,
    )
    without = DayWithout(seed, tikv)
    result = _Result(day, without, output, verbose=verbose)
    beside = (
        None
        if listener is None
        else DayPage(day, listener, without, say=note, keep=keep, open_=open_, at_end=result.at_end)
    )
    stopped = False
    try:
        day.run(around=None if beside is None else lambda _: beside)
        without.wait(PATIENCE_S)
    except KeyboardInterrupt:
        stopped = True
    finally:
        result.tell()
        without.close()
    return result, stopped


def _on_lab(
    listener: "socket.socket", output: Format, *, verbose: bool, keep: bool, open_: bool, asked: bool
) -> "tuple[_Result, bool]":
    from mooring_lab.demo.acts import LAB_ACTS
    from mooring_lab.demo.day import Day
    from mooring_lab.demo.onlab.play import PlayOn, lab_stage, play
    from mooring_lab.demo.page import opening, page_line
    from mooring_lab.demo.without import DayWithout

    port = listener.getsockname()[1]
    stage = lab_stage(listener, note)
    where = (
        f"the same day on a real control plane, Kubernetes {stage.version}, on this machine's loopback: "
        "some six minutes."
    )
    page = page_line(port, asked=asked, when=" once Mooring runs")
    for line in opening(where, page, "It lives in a temporary directory", keep=keep):
        note(line)
    day, without = Day(_narrate if verbose else _narrate_plainly, stage=stage), DayWithout(SEED, acts=LAB_ACTS)
    result = _Result(day, without, output, verbose=verbose)
    stage.when_opened(lambda page: page.tell(lambda: day.banner(without.by)))
    failed, stopped = "", False
    try:
        failed = play(day, PlayOn(stage, port, note, keep=keep, open_=open_, at_end=result.at_end))
    except KeyboardInterrupt:
        stopped = True
    finally:
        result.tell()
        without.close()
    if failed:
        note(f"mooring: the day could not go on: {failed}")
    return result, stopped


def _narrate_plainly(line: str) -> None:
    """Without the ids of promises at the end of a check."""
    _narrate(_IDS.sub("", line) if line.lstrip().startswith(("ok ", "FAIL ")) else line)


def _narrate(line: str) -> None:
    """One line per event into a pipe; where there is an edge, folded under its text."""
    line, room = runnable(plain(line)), width(sys.stderr)
    if room is not None and len(line) > room:
        line = re.sub(
            r"(?<=\S) {4,}(?=[A-Z]\d)", "  ", line
        )  # ids of promises are at the right margin, if there is one
    for part in [line] if room is None else folded(line, room, INDENT):
        typed = room is not None and len(part) > room and part.lstrip().startswith("$ ")
        for shown in continued(part, room) if typed and room is not None else [part]:
            print(_HIGHLIGHT.sub(_highlighted, shown, count=1) if coloured(sys.stderr) else shown, file=sys.stderr)


def _highlighted(found: re.Match[str]) -> str:
    code = {"ok": "1;34", "FAIL": "1;31"}.get(found[0].strip(), "1")
    return f"\x1b[{code}m{found[0]}\x1b[0m"


class _Result:
    """What the day came to: told once, at its end or where it was stopped, also when the cluster runs on."""

    def __init__(self, day: "Day", without: "DayWithout", output: Format, *, verbose: bool) -> None:
        self._verbose = verbose
        self.day = day
        self._without = without
        self._output = output
        self._told = False

    async def at_end(self) -> None:
        await asyncio.to_thread(self._without.wait, PATIENCE_S)
        self.tell()

    def tell(self) -> None:
        from mooring_lab.demo.page import COLUMNS, check_rows, day_json, totals

        if self._told:
            return
        self._told = True
        day, lost = self.day, self._without.by(self.day.moment())
        if self._output.data:
            print_data(self._output, day_json(day, lost))
        else:
            sys.stdout.write("\n")
            room = width()
            rows = check_rows(day, titles=room is None or room >= TITLES_FROM)
            shown = rows if self._verbose else [row for row in rows if row[1] != "kept"]
            if shown:
                print_table(COLUMNS, shown)
                print()
            for line in totals(day, lost):
                print("\n".join([line] if room is None else folded(line, room, INDENT)))
        sys.stdout.flush()
