"""The page beside a day on the sandbox; and after the day, a cluster that a person may break."""

import asyncio
import socket
import sys
import webbrowser
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from mooring.process.http.page import PAGE
from mooring.process.http.served import PORT, ServedPage
from mooring.process.http.status import status_app
from mooring.process.http.stream import Hub
from mooring_lab.cluster.http.facade import Facade
from mooring_lab.demo.day import Day
from mooring_lab.demo.sandbox_stage import SandboxStage
from mooring_lab.demo.without import DayWithout
from mooring_lab.judge.losses import Losses

#: Virtual seconds per second after the day, while a person uses the cluster.
KEPT_SPEED: Final = 5.0
RESTART: Final = "tidb.pingcap.com/restart"


def server_flag(port: int) -> str:
    """What a command needs to find a page that is not where it looks first."""
    return "" if port == PORT else f" --server http://127.0.0.1:{port}"


def ask_line(port: int) -> str:
    at = server_flag(port)
    return f"Ask it: mooring queue{at}   or: mooring why pod/demo-tikv-0 -n tidb{at}"


class DayPage(ServedPage):
    def __init__(
        self,
        day: Day,
        listener: socket.socket,
        without: DayWithout | None = None,
        *,
        say: Callable[[str], None],
        keep: bool,
        open_: bool,
        at_end: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`at_end`: what the day comes to is told before the cluster runs on."""
        super().__init__(self._app, listener)
        self._day = day
        self._without = without
        self._say = say
        self._keep = keep
        self._open = open_
        self._at_end = at_end
        self._hub: Hub | None = None
        self._facade: Facade | None = None

    def _app(self) -> web.Application:
        rig = self._day.stage.rig
        by = self._without.by if self._without is not None else lambda _: None
        app = status_app(lambda: rig.leader() or rig.any(), cluster="demo", beside=lambda: self._day.banner(by))
        self._hub = app[PAGE].hub
        return app

    async def start(self) -> None:
        await super().start()
        if self._open:
            webbrowser.open(self.url)

    async def keep(self) -> None:
        """A person watches, or gave --keep: the cluster runs on. Without a terminal Ctrl-C could not end it."""
        if self._keep or (self._hub is not None and self._hub.viewers and sys.stderr.isatty()):
            if self._at_end is not None:
                await self._at_end()
            await self.play_on()
            await asyncio.Event().wait()

    async def play_on(self) -> None:
        """After the day: time runs slowly enough to watch, and kubectl may change things."""
        stage = self._day.stage
        assert isinstance(stage, SandboxStage), "only the sandbox needs a facade"
        stage.settle(KEPT_SPEED)
        self._facade = facade = Facade(stage.rig.cluster.api.server)
        await facade.__aenter__()
        self._say(f"\nThe day is over; the cluster runs on at {self.url}, {KEPT_SPEED:g} times as fast as yours.")
        self._say(f'Break it: kubectl --server {facade.url} -n tidb annotate pod demo-tikv-0 {RESTART}=""')
        self._say(ask_line(self._listener.getsockname()[1]))
        self._say("Ctrl-C ends it; leftovers: none.")

    async def stop(self) -> None:
        if self._facade is not None:
            await self._facade.__aexit__(None, None, None)
        await super().stop()


# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# What a day comes to: every promise that was checked, the acts that were not played, the figures.


COLUMNS: Final = ("PROMISE", "", "ACT", "SEEN")


def not_played(day: Day) -> list[str]:
    return [act.title for act in day.acts[sum(act.ended for act in day.played) :]]


def day_json(day: Day, without: Losses | None) -> dict[str, Any]:
    acts = [
        {"at": a.at, "title": a.title, "kept": a.kept, "failed": a.failed, "why": a.why, "checks": a.checks}
        for a in day.played
    ]
    tally = day.tally
    figures = {"moves": tally.moves, "peak": tally.peak, "longest_wait_s": tally.longest_wait_s}
    lost = {"losses": day.losses.look(), "losses_without": without}
    return {"kept": day.kept, "acts": acts, "not_played": not_played(day), **figures, **lost}


def check_rows(day: Day, *, titles: bool = True) -> list[tuple[str, ...]]:
    """Without titles an act is its number: the narration has named it."""
    names = [act.title if titles else str(number) for number, act in enumerate(day.acts, 1)]
    played = list(zip(names, day.played, strict=False))
    rows: list[tuple[str, ...]] = [
        (c.promise, "kept" if c.kept else "BROKEN", name, c.seen) for name, a in played for c in a.checks
    ]
    for name, act in played:
        if act.failed:
            rows.append(("–", "BROKEN", name, act.failed))
        if not act.kept and act.why:
            rows.append(("", "why", name, act.why))
    missing = not_played(day)
    return rows + [("–", "not played", name, "stopped before") for name in names[len(names) - len(missing) :]]


#: What the figures without Mooring rest on.
TIKV_WORDS: Final = {
    "8.5": "TiKV 8.5.5 and later; before: --tikv 8.1",
    "8.1": "TiKV before 8.5.5",
}


def totals(day: Day, without: Losses | None) -> list[str]:
    """`without`: by the same moment of the other day."""
    checks = [check for act in day.played for check in act.checks]
    kept = sum(check.kept for check in checks)
    lines = []
    if without is not None and day.played:
        lines += [
            f"LOST       with Mooring: {day.losses.look()}",
            f"           the same day without{'' if day.over else ', by then'}: {without} ({TIKV_WORDS[day.tikv]})",
        ]
    return [*lines, f"PROMISES   {len(checks)} shown, {kept} kept · {day.tally.line()}"]


# ── First and last words ──────────────────────────────────────────────────────────────────────────────────────────


def opening(where: str, page: str, written: str, *, keep: bool) -> list[str]:
    """Three lines: what this is, where, how to stop and what is kept."""
    kept = "--keep: it goes on after the day" if keep else "--keep keeps it running"
    return [f"Mooring demo: {where}", page, f"Ctrl-C stops. {written}; leftovers: none ({kept}).\n"]


def page_line(port: int, *, asked: bool, when: str = "") -> str:
    taken = f" ({PORT} is taken)" if port != PORT and not asked else ""
    at = server_flag(port)
    return f"page http://127.0.0.1:{port}{taken}{when}   ask it: mooring why pod/demo-tikv-1 -n tidb{at}"


def closing(day: Day, took: float, *, stopped: bool, on_lab: bool = False) -> str:
    first = f"stopped after {took:.0f} s" if stopped and not day.over else f"{took:.0f} s"
    if on_lab:
        return f"{first}. Leftovers: none.  Play: mooring demo --on lab --keep   On your cluster: mooring doctor --pre"
    return f"{first}. Leftovers: none.  Play: mooring demo --keep   On a real control plane: mooring demo --on lab"
