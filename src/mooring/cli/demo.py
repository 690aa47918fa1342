"""`mooring demo`: one day on a sandbox cluster, inside this process."""

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from mooring.cli.exits import Exit
from mooring.cli.output import Format, Output, note, print_json, print_table

if TYPE_CHECKING:
    from mooring.rehearse.day import Day

app = App(name="demo", help="Play one day on a sandbox cluster of 24 nodes, inside this process; no cluster needed.")

PORT = 8390


@app.default
def demo(
    *,
    short: Annotated[bool, Parameter(help="As fast as it goes, without the page: for scripts and CI.")] = False,
    keep: Annotated[
        bool, Parameter(help="Keep the cluster running after the day, to ask why and to break things.")
    ] = False,
    seed: Annotated[int, Parameter(help="The same seed plays the same day.")] = 1,
    speed: Annotated[float, Parameter(help="Virtual seconds per second while an act plays.")] = 30.0,
    output: Output = Format.TABLE,
) -> int:
    """Play a scripted day and check every promise it shows.

    Each act does what a person would type, says what moved and why, and checks what was promised. Exits 0 when every
    promise held, 1 when one did not.

    Example: mooring demo --keep, then in another terminal: mooring why pod/demo-tikv-1 -n tidb
    """
    from mooring.rehearse.day import Day
    from mooring.run import logs

    logs.configure("error", "auto")
    note(
        "Mooring demo: one day on a sandbox cluster of 24 nodes inside this process, 13 h in under a minute. No Docker."
    )
    began = time.perf_counter()
    day = Day(note, seed=seed, speed=None if short else speed)
    stopped = False
    try:
        day.run(around=None if short else lambda d: _Page(d, keep=keep))
    except KeyboardInterrupt:
        stopped = True
    _table(day, output)
    took = time.perf_counter() - began
    if stopped:
        note("stopped before the end of the day")
    note(f"{took:.0f} s. Left behind: nothing.  Play: mooring demo --keep   On a real control plane: mooring lab up")
    return Exit.DONE if day.held and not stopped else Exit.NOT_AS_IT_SHOULD_BE


def _table(day: "Day", output: Format) -> None:
    checks = [(act, check) for act in day.played for check in act.checks]
    held = sum(check.held for _, check in checks)
    if output is Format.JSON:
        print_json(
            {
                "held": day.held,
                "acts": [
                    {"at": a.at, "title": a.title, "held": a.held, "failed": a.failed, "checks": a.checks}
                    for a in day.played
                ],
            }
        )
        return
    rows = [(c.promise, "held" if c.held else "BROKEN", a.title, c.seen) for a, c in checks]
    rows += [("–", "BROKEN", a.title, a.failed.splitlines()[0]) for a in day.played if a.failed]
    sys.stdout.write("\n")
    print_table(("PROMISE", "", "ACT", "SEEN"), rows)
    print(f"\nPROMISES   {len(checks)} shown, {held} held · {len(day.stage.rig.writes)} writes")


class _Page:
    """The status pages beside the day, on the first free port from 8390 on."""

    def __init__(self, day: "Day", *, keep: bool) -> None:
        self._day = day
        self._keep = keep
        self._runner: Any = None

    async def start(self) -> None:
        from aiohttp import web

        from mooring.serve.status import status_app

        rig = self._day.stage.rig
        self._runner = runner = web.AppRunner(status_app(lambda: rig.leader() or rig.any()), access_log=None)
        await runner.setup()
        for port in range(PORT, PORT + 20):
            try:
                await web.TCPSite(runner, "127.0.0.1", port).start()
            except OSError:
                continue
            note(
                f"page http://127.0.0.1:{port}   ask it: mooring why pod/demo-tikv-1 -n tidb --server http://127.0.0.1:{port}"
            )
            break
        note(
            "Ctrl-C stops. Nothing is written outside this process; nothing is left behind (--keep keeps it running).\n"
        )

    async def keep(self) -> None:
        if self._keep:
            note("the day is over; the cluster keeps running. Ctrl-C ends it.")
            await asyncio.Event().wait()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
