"""The demo's day: every act in order, narrated; the table of promises at the end, also after Ctrl-C or a failure.

The narration holds virtual figures only, so one seed tells one story, byte for byte.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from mooring.engine.why import explain
from mooring.rehearse.acts import ACTS
from mooring.rehearse.stage import Act, Check, Stage
from mooring.rehearse.tally import Tally
from mooring.sandbox.clock import run_virtual
from mooring.sandbox.paced import PacedLoop, run_paced

#: Virtual seconds a second between two acts: in effect, as fast as it goes.
HURRY = 1_000_000.0


class Played(msgspec.Struct):
    """One act, as it went."""

    at: str
    title: str
    checks: list[Check]
    #: Why it did not come to its end; "" when it did.
    failed: str = ""
    #: What `why` said of the first thing that was stuck then.
    why: str = ""
    #: It was stopped before its end, by Ctrl-C: neither held nor broken.
    ended: bool = False

    @property
    def held(self) -> bool:
        return self.ended and not self.failed and all(check.held for check in self.checks)


class Day:
    def __init__(
        self,
        narrate: Callable[[str], None],
        *,
        seed: int = 1,
        speed: float | None = None,
    ) -> None:
        self._narrate = narrate
        self._speed = speed
        self.acts: tuple[type[Act], ...] = ACTS
        self.stage = Stage(seed, say=lambda line: narrate(f"           {line}"))
        self.played: list[Played] = []
        self.tally = Tally()

    @property
    def held(self) -> bool:
        """Every act was played to its end and every promise held."""
        return len(self.played) == len(self.acts) and all(act.held for act in self.played)

    def run(self, acts: Sequence[type[Act]] = ACTS, around: Callable[["Day"], "Around"] | None = None) -> None:
        """Play the acts; `around` may serve the page beside them."""
        self.acts = tuple(acts)

        async def whole() -> None:
            beside = around(self) if around is not None else None
            if beside is not None:
                await beside.start()
            try:
                with _hurry():
                    await self.stage.build()
                for number, act in enumerate(self.acts, 1):
                    await self._play(number, act())
                if beside is not None:
                    await beside.keep()
            finally:
                for name in list(self.stage.rig.replicas):
                    self.stage.rig.kill(name)
                if beside is not None:
                    await beside.stop()
                await asyncio.sleep(0)

        if self._speed is None:
            run_virtual(whole, self.stage.cluster.timeline)
        else:
            run_paced(whole, self.stage.cluster.timeline, self._speed)

    async def _play(self, number: int, act: Act) -> None:
        self._follow()
        with _hurry():
            await self.stage.wait_for(act.at)
        self._follow()
        self._narrate(f"{number}/{len(self.acts)} {act.at}  {act.title:<34} $ {act.command}")
        if act.without:
            self._narrate(f"           (without Mooring: {act.without})")
        played = Played(act.at, act.title, [])
        self.played.append(played)
        try:
            played.checks = await act.play(self.stage)
        except Exception as error:  # noqa: BLE001 — an act that falls over is a failed row, not the end of the table
            told = str(error).splitlines()
            played.failed = (
                told[0] if told and isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            )
        played.ended = True
        if not played.held:
            played.why = self._stuck()
        self._tell(played)

    def _tell(self, played: Played) -> None:
        broken = [check for check in played.checks if not check.held]
        shown = broken or played.checks[:2]
        seen = played.failed or "; ".join(check.seen for check in shown)
        promises = " ".join(dict.fromkeys(check.promise for check in played.checks))
        self._narrate(f"     {'ok' if played.held else 'FAIL':>4}  {seen:<84} {promises}".rstrip())
        if played.why:
            self._narrate(f"           why: {played.why}")

    def _follow(self) -> None:
        leader = self.stage.rig.leader()
        if leader is not None:
            self.tally.follow(leader.engine)

    def _stuck(self) -> str:
        """What the queue says of the first that is held, waits or runs: a failed row carries a why."""
        leader = self.stage.rig.leader()
        if leader is None:
            return "no replica leads"
        engine = leader.engine
        for operator in (*engine.queue.waiting, *engine.queue.running):
            answer = explain(engine, f"operator/{operator}", now=leader.shell.now())
            if answer is not None:
                return answer.answer
        return "nothing waits and nothing runs"


@contextlib.contextmanager
def _hurry() -> Iterator[None]:
    """The hours between two acts pass in a moment."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, PacedLoop):
        yield
        return
    pace, loop.pace.speed = loop.pace.speed, HURRY
    try:
        yield
    finally:
        loop.pace.speed = pace


class Around(Protocol):
    """Something that lives beside the acts: the page, for one."""

    async def start(self) -> None: ...

    async def keep(self) -> None:
        """After the last act: return to end, or wait while somebody plays."""
        ...

    async def stop(self) -> None: ...
