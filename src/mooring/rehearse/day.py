"""The demo's day: every act in order, narrated; the table of promises at the end, also after Ctrl-C or a failure."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from mooring.rehearse.acts import ACTS
from mooring.rehearse.stage import Act, Check, Stage
from mooring.sandbox.clock import run_virtual
from mooring.sandbox.paced import PacedLoop, run_paced


class Played(msgspec.Struct):
    """One act, as it went."""

    at: str
    title: str
    checks: list[Check]
    #: Why it did not come to its end; "" when it did.
    failed: str = ""

    @property
    def held(self) -> bool:
        return not self.failed and all(check.held for check in self.checks)


class Day:
    def __init__(self, narrate: Callable[[str], None], *, seed: int = 1, speed: float | None = None) -> None:
        self._narrate = narrate
        self._speed = speed
        self.stage = Stage(seed, say=lambda line: narrate(f"           {line}"))
        self.played: list[Played] = []

    @property
    def held(self) -> bool:
        return bool(self.played) and all(act.held for act in self.played)

    def run(self, acts: Sequence[type[Act]] = ACTS, around: Callable[["Day"], "Around"] | None = None) -> None:
        """Play the acts; `around` may serve the page beside them."""

        async def whole() -> None:
            beside = around(self) if around is not None else None
            if beside is not None:
                await beside.start()
            try:
                await self.stage.build()
                for number, act in enumerate(acts, 1):
                    await self._play(number, len(acts), act())
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

    async def _play(self, number: int, of: int, act: Act) -> None:
        with _hurry():
            await self.stage.wait_for(act.at)
        self._narrate(f"{number}/{of} {act.at}  {act.title:<34} $ {act.command}")
        if act.without:
            self._narrate(f"           (without Mooring: {act.without})")
        played = Played(act.at, act.title, [])
        self.played.append(played)
        try:
            played.checks = await act.play(self.stage)
        except AssertionError as error:
            played.failed = str(error)
        word = "ok" if played.held else "FAIL"
        promises = " ".join(dict.fromkeys(check.promise for check in played.checks))
        seen = "; ".join(check.seen for check in played.checks if check.held != played.held or len(played.checks) < 3)
        first = played.checks[0].seen if played.checks else played.failed.splitlines()[0] if played.failed else ""
        self._narrate(f"     {word:>4}  {(seen or first):<72} {promises}")


@contextlib.contextmanager
def _hurry() -> Iterator[None]:
    """The hours between two acts pass in a moment."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, PacedLoop):
        yield
        return
    pace, loop.pace.speed = loop.pace.speed, 50_000.0
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
