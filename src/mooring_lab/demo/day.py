"""The demo's day: every act in order, narrated; the table of promises at the end, also after Ctrl-C or a failure.

The day does not know its environment: a stage does (`stage.py`). On the sandbox the narration holds virtual figures
only, so one seed gives one text, byte for byte.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.core.engine.engine import Engine
from mooring.core.engine.history import HistoryEntry
from mooring.core.engine.why import explain
from mooring.core.model.times import time_of_day
from mooring.core.queue.targets import is_store
from mooring.process.http.frames import Framer
from mooring_lab.demo.acts import ACTS
from mooring_lab.demo.sandbox_stage import TIKV, SandboxStage, moment
from mooring_lab.demo.stage import DEMO, TIDB, Check, DemoAct, DemoStage, Prepared
from mooring_lab.judge.losses import LossCounter, Losses
from mooring_lab.judge.observer import ActObserver

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The day in figures: how much moved, how full the fullest store was, and who waited longest.


#: So long, in seconds of those who watch, nothing is said at most; looked at so often, in seconds of the day.
SILENT_S, LOOK_S = 2.2, 0.5
#: A jump of the clock that is worth a line.
SKIPPED_S = 240.0


class DemoTally:
    """Listens to an engine's history."""

    def __init__(self) -> None:
        self.moves = 0
        self.peak = 0
        self.peak_limit = 20
        self.longest_wait_s = 0.0
        self.longest_wait_of = ""
        self._queued: dict[str, float] = {}
        self._engine: Engine | None = None

    def follow(self, engine: Engine) -> None:
        if engine is not self._engine:
            self._engine = engine
            engine.history.listeners.append(self._hear)

    def _hear(self, entry: HistoryEntry) -> None:
        match entry.verb:
            case "queued":
                self._queued[entry.id] = entry.at
            case "promoted":
                self._promoted(entry)
            case "finished":
                self.moves += 1
            case "canceled" | "failed" | "timeout":
                self._queued.pop(entry.id, None)

    def _promoted(self, entry: HistoryEntry) -> None:
        waited = entry.at - self._queued.pop(entry.id, entry.at)
        if waited > self.longest_wait_s:
            self.longest_wait_s, self.longest_wait_of = waited, f"op {entry.id}, {entry.source}"
        running = self._engine.running.get(entry.id) if self._engine is not None else None
        if running is None or self._engine is None:
            return
        queue = self._engine.queue
        for target in running.operator.cost:
            charged = sum(amount for _, amount in queue.holders(target)) if is_store(target) else 0
            if charged > self.peak:  # facts may take a store above its limit; what is promoted never does
                self.peak, self.peak_limit = charged, queue.limit(target) or 0

    def line(self) -> str:
        """In one line: 46 moves · peak 20 of 20 on a store, never above · longest wait 2:10 (op 31, handoff)."""
        parts = [f"{self.moves} moves"]
        if self.peak:
            above = "never above" if self.peak <= self.peak_limit else "ABOVE ITS LIMIT"
            parts.append(f"peak {self.peak} of {self.peak_limit} on a store, {above}")
        if self.longest_wait_of:
            whole = int(self.longest_wait_s)
            parts.append(f"longest wait {whole // 60}:{whole % 60:02d} ({self.longest_wait_of})")
        return " · ".join(parts)


class PlayedDay(msgspec.Struct):
    """One act, as it went."""

    at: str
    title: str
    checks: list[Check]
    #: Why it did not come to its end; "" when it did.
    failed: str = ""
    #: What `why` said of the first thing that was stuck then.
    why: str = ""
    #: It was stopped before its end, by Ctrl-C: neither kept nor broken.
    ended: bool = False

    @property
    def kept(self) -> bool:
        return self.ended and not self.failed and all(check.kept for check in self.checks)


class Day:
    def __init__(
        self,
        narrate: Callable[[str], None],
        *,
        seed: int = 1,
        paced: bool = False,
        speed: float | None = None,
        within_s: float | None = None,
        stage: DemoStage | None = None,
        blackbox: str = "",
        tikv: str = TIKV,
    ) -> None:
        """Without a stage of another kind: the sandbox, as fast as it goes, or paced for those who watch."""
        self._narrate = narrate
        self.acts: tuple[type[DemoAct], ...] = ACTS
        self.tikv = tikv
        self.stage = stage or SandboxStage(
            seed, paced=paced, speed=speed, within_s=within_s, blackbox=blackbox, tikv=tikv
        )
        self.stage.listen(self._hear)
        #: What is played just now, for the banner of the page.
        self.act: dict[str, Any] = {"title": "the cluster is being built", "command": "", "said": ""}
        #: What the day has cost so far.
        self.losses = LossCounter(lambda: self.stage.rig, TIDB, DEMO)
        self.played: list[PlayedDay] = []
        self.tally = DemoTally()
        self._began = 0.0
        self._silent_s = 0.0
        self._stopped: float | None = None

    def _hear(self, line: str) -> None:
        self.act = {**self.act, "said": line}
        self._say(f"           {line}")

    def _say(self, line: str) -> None:
        self._silent_s = 0.0
        self._narrate(line)

    async def _go_on(self) -> None:
        """Where an act takes its time, say how the cluster is, as `mooring` alone does."""
        stage, framer = self.stage, Framer(self.stage.rig.leader)
        assert isinstance(stage, SandboxStage), "the lab has a line of its own"
        while True:
            await stage.rig.sleep(LOOK_S)
            self._silent_s += LOOK_S / stage.speed()  # a late machine tells the same story
            if self._silent_s < SILENT_S or (frame := await framer.build()) is None:
                continue
            self._say(f"           {time_of_day(frame.as_of)}  {frame.head['verdict']['words']}")

    def banner(self, without: Callable[[float], Losses | None]) -> dict[str, Any]:
        """The act, and what this day and the same day without Mooring have cost by now."""
        lost = without(self.moment())
        sums = {} if lost is None else {"with": self.losses.look(), "without": lost}
        return {"act": {**self.act, **sums}}

    @property
    def over(self) -> bool:
        """Every act was played to its end."""
        return sum(act.ended for act in self.played) == len(self.acts)

    def moment(self) -> float:
        """Of the script: as long after the act's time as this act has been played, and before the next one's. A day
        that is over, or was stopped, stands still."""
        if not self.played or self.over:
            return math.inf if self.played else 0.0
        number = len(self.played)
        now = self.stage.rig.clock.now() if self._stopped is None else self._stopped
        limit = moment(self.acts[number].at) - 1.0 if number < len(self.acts) else math.inf
        return min(moment(self.acts[number - 1].at) + now - self._began, limit)

    @property
    def kept(self) -> bool:
        """Every act was played to its end and every promise was kept."""
        return self.over and all(act.kept for act in self.played)

    def run(self, acts: Sequence[type[DemoAct]] = ACTS, around: Callable[["Day"], "Around"] | None = None) -> None:
        """Play the acts; `around` may serve the page beside them."""
        self.acts = tuple(acts)

        async def whole() -> None:
            beside = around(self) if around is not None else None
            if beside is not None:
                await beside.start()
            try:
                with self.stage.hurry():
                    await self.stage.build()
                beneath = [asyncio.create_task(self.losses.run(), name="losses")]
                if isinstance(self.stage, SandboxStage):
                    beneath.append(asyncio.create_task(self._go_on(), name="narration"))
                self.judge = self._observe()
                for number, act in enumerate(self.acts, 1):
                    await self._play(number, act())
                for task in beneath:
                    if task.done():
                        task.result()  # it never ends by itself: raises what ended it
                    task.cancel()
                self.act = {**self.act, "title": "the day is over", "command": "", "number": 0}
                if beside is not None:
                    await beside.keep()
            finally:
                self._stopped = self.stage.rig.clock.now()
                try:
                    if beside is not None:
                        await beside.stop()
                finally:
                    await self.stage.close()

        self.stage.run(whole)

    async def _play(self, number: int, act: DemoAct) -> None:
        self._follow()
        with self.stage.hurry():
            if (
                isinstance(self.stage, SandboxStage)
                and (now := self.stage.rig.clock.now()) < moment(act.at) - SKIPPED_S
            ):
                self._say(f"           {time_of_day(now)[:5]} → {act.at}  idle time is skipped")
            await self.stage.wait_for(act.at)
            if isinstance(act, Prepared):
                await act.prepare(self.stage)
        self._follow()
        at = self.stage.clock_word(act.at)
        self._say(f"{number}/{len(self.acts)} {at}  {act.title:<34} $ {act.command}")
        self.act = {"number": number, "of": len(self.acts), "title": act.title, "command": act.command, "said": ""}
        self.stage.watch(act.speed)
        played = PlayedDay(at, act.title, [])
        self.played.append(played)
        self._began, found = self.stage.rig.clock.now(), len(self.judge.findings)
        try:
            played.checks = await act.play(self.stage)
        except Exception as error:  # noqa: BLE001 — an act that raises is a failed row, not the end of the table
            told = str(error).splitlines()
            played.failed = (
                told[0] if told and isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            )
        self.stage.watch(None)
        for finding in self.judge.findings[found:]:
            played.checks.append(Check(finding.promise.partition(" ")[0], kept=False, seen=finding.words))
        played.ended = True
        if not played.kept:
            played.why = self._stuck()
        self._tell(played)

    def _observe(self) -> ActObserver:
        """The judge of simulation, rehearsal and end-to-end tests, beside the checks of each act."""
        rig = self.stage.rig
        cluster, policy = rig.cluster, rig.config.policy(FleetPolicy)
        return ActObserver(
            cluster.store,
            now=rig.clock.monotonic,
            epoch=rig.clock.now,
            leaders=cluster.leaders_on,
            retire_timeout_s=policy.retire_timeout_s,
        ).begin()

    def _tell(self, played: PlayedDay) -> None:
        broken = [check for check in played.checks if not check.kept]
        shown = broken or played.checks[:2]
        seen = played.failed or "; ".join(check.seen for check in shown)
        promises = " ".join(dict.fromkeys(check.promise for check in played.checks))
        self.act = {**self.act, "said": f"{'ok' if played.kept else 'FAILED'}: {seen}"}
        self._say(f"     {'ok' if played.kept else 'FAIL':>4}  {seen:<84} {promises}".rstrip())
        if played.why:
            self._say(f"           why: {played.why}")

    def _follow(self) -> None:
        leader = self.stage.rig.leader()
        if leader is not None:
            self.tally.follow(leader.engine)

    def _stuck(self) -> str:
        """What the queue says of the first operator that is blocked, waits or runs: a failed row carries a `why`."""
        leader = self.stage.rig.leader()
        if leader is None:
            return "no replica leads"
        engine = leader.engine
        for operator in (*engine.queue.waiting, *engine.queue.running):
            answer = explain(engine, f"operator/{operator}", now=leader.shell.now())
            if answer is not None:
                return answer.answer
        return "no pending changes"


class Around(Protocol):
    """Something that lives beside the acts: the page, for one."""

    async def start(self) -> None: ...

    async def keep(self) -> None:
        """After the last act: return to end, or wait while a person plays with the cluster."""
        ...

    async def stop(self) -> None: ...
