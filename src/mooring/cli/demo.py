"""`mooring demo`: one day on a sandbox cluster, inside this process; or the same day on a real control plane."""

import asyncio
import re
import socket
import sys
import time
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cyclopts import App, Parameter

from mooring.cli.output import (
    Format,
    Output,
    coloured,
    folded,
    note,
    plain,
    print_json,
    print_table,
    runnable,
    width,
)
from mooring.core.model.exits import Exit, UserError

if TYPE_CHECKING:
    from mooring.demo.day import Day
    from mooring.demo.losses import Losses
    from mooring.demo.without import Beside as Without

app = App(name="demo")

PORT: Final = 8390
#: Of the day without Mooring that the lab's page shows beside its own.
SEED: Final = 1
TRIED: Final = 20
INDENT: Final = " " * 11
#: Of a line of the narration, what a terminal shows in bold: the act and its title, or how it ended.
_HIGHLIGHT: Final = re.compile(r"^\d+/\d+ \d\d:\d\d  .*?(?=  |$)|^ +(?:ok|FAIL)(?=  )")
#: Columns from which on the table of promises names the acts, not only their numbers.
TITLES_FROM: Final = 120
#: Virtual seconds per second after the day, while a person uses the cluster.
KEPT_SPEED: Final = 5.0
#: What happens later than this goes three times as fast: a day takes about a minute, also on a slow machine.
WITHIN_S: Final = 60.0
#: At the end of a short day: how long the same day without Mooring may still take.
PATIENCE_S: Final = 120.0
RESTART: Final = "tidb.pingcap.com/restart"


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
    output: Output = Format.TABLE,
) -> int:
    """Play a scripted day and check every promise it shows.

    Each act does what a person would type, says what moved and why, and checks what was promised. Exits 0 when every
    promise was kept, 1 when one was not or the day was stopped before its end. The narration is on stderr, the table of
    promises on stdout.

    With --keep, ask in another terminal: mooring why pod/demo-tikv-1 -n tidb

    Example: mooring demo --keep

    Example: mooring demo --short -o json

    Example: mooring demo --on lab
    """
    from mooring.process import logs

    if speed is not None and not 0 < speed < inf:
        raise UserError(f"--speed {speed:g}: more than 0, e.g. 60")
    if on == "lab" and short:
        raise UserError("--short is for the sandbox: the lab runs on the wall clock; leave one of the two out")
    if on == "lab" and blackbox:
        raise UserError("--blackbox is for the sandbox; on the lab use mooring run --blackbox")
    if short and (keep or open_):
        raise UserError("--short plays the day without a page: leave it out, or --keep and --open")
    listener = None if short else listen(port)
    logs.configure("error", "auto")
    if on == "lab" and listener is not None:
        return _on_lab(listener, keep=keep, open_=open_, asked=port >= 0, output=output)
    _opening(listener, keep=keep, asked=port >= 0)
    return _on_sandbox(listener, seed, speed, blackbox, keep=keep, open_=open_, output=output)


def _on_sandbox(
    listener: socket.socket | None,
    seed: int,
    speed: float | None,
    blackbox: str,
    *,
    keep: bool,
    open_: bool,
    output: Format,
) -> int:
    """Without a listener: as fast as it goes."""
    from mooring.demo.day import Day
    from mooring.demo.without import Beside as Without

    began = time.perf_counter()
    within_s = WITHIN_S if speed is None else None
    short = listener is None
    day = Day(
        _narrate, seed=seed, paced=not short, speed=None if short else speed, within_s=within_s, blackbox=blackbox
    )
    without = Without(seed)
    page = None if listener is None else _Page(day, listener, without, keep=keep, open_=open_)
    stopped = False
    try:
        day.run(around=None if page is None else lambda _: page)
        without.wait(PATIENCE_S)
    except KeyboardInterrupt:
        stopped = True
    finally:
        lost = without.by(inf)
        without.close()
    _table(day, output, lost)
    _closing(day, time.perf_counter() - began, stopped=stopped)
    return Exit.DONE if day.kept else Exit.NOT_AS_IT_SHOULD_BE


def _on_lab(listener: socket.socket, *, keep: bool, open_: bool, asked: bool, output: Format) -> int:
    from mooring.cli import demo_lab
    from mooring.demo.day import Day
    from mooring.demo.without import Beside as Without

    began, port = time.perf_counter(), listener.getsockname()[1]
    stage = demo_lab.lab_stage(listener)
    demo_lab.opening(stage, port, taken=_taken(port, asked=asked), at=_at(port), keep=keep)
    day, without = Day(_narrate, stage=stage), Without(SEED)
    stage.when_opened(lambda page: page.tell(lambda: day.banner(without.by)))
    failed, stopped = "", False
    try:
        failed = demo_lab.play(day, demo_lab.Beside(stage, _at(port), port if open_ else 0, keep=keep))
    except KeyboardInterrupt:
        stopped = True
    finally:
        lost = without.by(inf)
        without.close()
    if failed:
        note(f"mooring: the day could not go on: {failed}")
    _table(day, output, lost)
    _closing(day, time.perf_counter() - began, stopped=stopped, on_lab=True)
    return Exit.DONE if day.kept else Exit.NOT_AS_IT_SHOULD_BE


# ── What is said ──────────────────────────────────────────────────────────────────────────────────────────────────


def _opening(listener: socket.socket | None, *, keep: bool, asked: bool) -> None:
    """Three lines: what this is, where, how to stop and what is kept."""
    note("Mooring demo: one day on a sandbox cluster of 24 nodes inside this process, in about a minute. No Docker.")
    if listener is None:
        note("no page (--short)   the same day on a real control plane: mooring demo --on lab")
    else:
        port = listener.getsockname()[1]
        page = f"page http://127.0.0.1:{port}{_taken(port, asked=asked)}"
        note(f"{page}   ask it: mooring why pod/demo-tikv-1 -n tidb{_at(port)}")
    kept = "--keep: it goes on after the day" if keep else "--keep keeps it running"
    note(f"Ctrl-C stops. Nothing is written outside this process; leftovers: none ({kept}).\n")


def _taken(port: int, *, asked: bool) -> str:
    return f" ({PORT} is taken)" if port != PORT and not asked else ""


def _at(port: int) -> str:
    return "" if port == PORT else f" --server http://127.0.0.1:{port}"


def _narrate(line: str) -> None:
    """One line per event into a pipe; where there is an edge, folded under its text."""
    line, room = runnable(plain(line)), width(sys.stderr)
    if room is not None and len(line) > room:
        line = re.sub(
            r"(?<=\S) {4,}(?=[A-Z]\d)", "  ", line
        )  # ids of promises are at the right margin, if there is one
    for part in [line] if room is None else folded(line, room, INDENT):
        print(_HIGHLIGHT.sub(_highlighted, part, count=1) if coloured(sys.stderr) else part, file=sys.stderr)


def _highlighted(found: re.Match[str]) -> str:
    code = {"ok": "1;34", "FAIL": "1;31"}.get(found[0].strip(), "1")
    return f"\x1b[{code}m{found[0]}\x1b[0m"


def _table(day: "Day", output: Format, without: "Losses | None" = None) -> None:
    from mooring.demo.report import COLUMNS, check_rows, day_json, totals

    if output is Format.JSON:
        print_json(day_json(day, without))
        return
    sys.stdout.write("\n")
    room = width()
    print_table(COLUMNS, check_rows(day, titles=room is None or room >= TITLES_FROM))
    print()
    for line in totals(day, without):
        print("\n".join([line] if room is None else folded(line, room, INDENT)))


def _closing(day: "Day", took: float, *, stopped: bool, on_lab: bool = False) -> None:
    early = stopped and len([a for a in day.played if a.ended]) < len(day.acts)
    first = f"stopped after {took:.0f} s" if early else f"{took:.0f} s"
    if on_lab:
        next_ = "Play: mooring demo --on lab --keep   On your cluster: mooring doctor --pre"
    else:
        next_ = "Play: mooring demo --keep   On a real control plane: mooring demo --on lab"
    note(f"{first}. Leftovers: none.  {next_}")


# ── The page ──────────────────────────────────────────────────────────────────────────────────────────────────────


def listen(port: int) -> socket.socket:
    """The socket of the page, bound before anything is said. One asked for and taken is the user's to change."""
    if port >= 0:
        try:
            return socket.create_server(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"--port {port}: {reason}; give another, or leave it out") from None
    for candidate in range(PORT, PORT + TRIED):
        try:
            return socket.create_server(("127.0.0.1", candidate))
        except OSError:
            continue
    raise UserError(f"ports {PORT} to {PORT + TRIED - 1} are all taken; name a free one with --port")


class _Page:
    """The status pages beside the day."""

    def __init__(
        self, day: "Day", listener: socket.socket, without: "Without | None" = None, *, keep: bool, open_: bool
    ) -> None:
        self._day = day
        self._without = without
        self._listener = listener
        self._keep = keep
        self._open = open_
        self._runner: Any = None
        self._facade: Any = None

    async def start(self) -> None:
        from aiohttp import web

        from mooring.process.http.page import PAGE
        from mooring.process.http.status import status_app

        rig = self._day.stage.rig
        by = self._without.by if self._without is not None else lambda _: None
        app = status_app(lambda: rig.leader() or rig.any(), cluster="demo", beside=lambda: self._day.banner(by))
        self._hub = app[PAGE].hub
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.SockSite(self._runner, self._listener).start()
        if self._open:
            import webbrowser

            webbrowser.open(f"http://127.0.0.1:{self._listener.getsockname()[1]}")

    async def keep(self) -> None:
        """A person watches, or gave --keep: the cluster runs on. Without a terminal Ctrl-C could not end it."""
        if self._keep or (self._hub.viewers and sys.stderr.isatty()):
            await self.play_on()
            await asyncio.Event().wait()

    async def play_on(self) -> None:
        """After the day: time runs slowly enough to watch, and kubectl may change things."""
        from mooring.demo.sandbox_stage import SandboxStage
        from mooring.sandbox.http.facade import Facade

        stage = self._day.stage
        assert isinstance(stage, SandboxStage), "only the sandbox needs a facade"
        stage.settle(KEPT_SPEED)
        self._facade = facade = Facade(stage.rig.cluster.api.server)
        await facade.__aenter__()
        port = self._listener.getsockname()[1]
        note(
            f"\nThe day is over; the cluster runs on at http://127.0.0.1:{port}, {KEPT_SPEED:g} times as fast as yours."
        )
        note(f'Break it: kubectl --server {facade.url} -n tidb annotate pod demo-tikv-0 {RESTART}=""')
        note(f"Ask it: mooring queue{_at(port)}   or: mooring why pod/demo-tikv-0 -n tidb{_at(port)}")
        note("Ctrl-C ends it; leftovers: none.")

    async def stop(self) -> None:
        if self._facade is not None:
            await self._facade.__aexit__(None, None, None)
        if self._runner is not None:
            await self._runner.cleanup()
        self._listener.close()
