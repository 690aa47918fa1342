"""The shell around the engine: asyncio on the outside, one plain loop inside.

Everything that happens arrives in one inbox; the pump hands it to the engine event by event and starts what the engine
asks for. Each write is a task of its own whose outcome is the next event. The engine decides at most a slice per turn,
and the pump yields between turns, so that admission and the extender, on the same loop, stay quick.

The same shell runs on a real cluster and on the sandbox, on wall time and on virtual time: it knows only the ports.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from mooring.clients.ports import Clock, MachineRegistry, PortError, Recorder, remedy_of
from mooring.core.engine.engine import Engine
from mooring.core.engine.events import Event, Features, LeaseChanged, Tick
from mooring.core.model.cluster import Key
from mooring.core.model.events import LeadersSeen, MachinesLost, MachinesSeen, PdLost, PdSeen, RegionsSeen
from mooring.core.model.instructions import (
    EmitEvent,
    Instruction,
    Outcome,
    ReadLeaders,
    ReadMachines,
    ReadPd,
    ReadRegions,
)
from mooring.core.model.reasons import Reason
from mooring.process.act import Actor, DriverOf, no_leaders
from mooring.process.clock import TimedEvent
from mooring.process.pd_directory import PdOf

log = structlog.get_logger()

#: Events per turn of the pump before others on the loop get theirs.
TURN = 16
#: And how long it may decide in one turn, unless a single look takes longer.
SLICE_S = 0.001
#: What a look takes beyond that is paid back: nothing is decided for so many times as long (and at most so many
#: seconds). A workload of thousands of pods that is being created is then looked at a few times a second, not once per
#: pod, while many small looks go on slice by slice. The world is kept up to date throughout: admission answers from it.
REST = 8.0
LONGEST_REST_S = 0.3
#: While many pods are being admitted, all deciding is paid back, and more of it: a slice, then admission has the loop.
RUSH_REST = 15.0
#: The wall clock was set, if it is off by so much: our time then runs by so much faster or slower until it agrees.
SET_BY_S = 0.25
SLEW = 0.5


class TurnPace:
    """How much may be decided in one turn: nothing while resting, else a slice, and how long to rest after it."""

    def __init__(self, clock: Clock, rest_until: float, *, rush: bool = False) -> None:
        self._clock = clock
        self._rest_until = rest_until
        self._rush = rush
        self._began: float | None = None

    def enough(self) -> bool:
        at = self._clock.monotonic()
        if self._began is None:
            if at < self._rest_until:
                return True
            self._began = at
            return False
        return at - self._began >= SLICE_S

    def rest_until(self) -> float:
        """On the monotonic clock."""
        if self._began is None:
            return self._rest_until
        at = self._clock.monotonic()
        spent_s = at - self._began
        owed_s = RUSH_REST * spent_s if self._rush else REST * max(0.0, spent_s - SLICE_S)
        return at + min(owed_s, LONGEST_REST_S)


class Shell:
    def __init__(
        self,
        engine: Engine,
        act: Actor,
        pds: PdOf,
        clock: Clock,
        recorder: Recorder,
        *,
        leaders: DriverOf = no_leaders,
        registry: MachineRegistry | None = None,
        on_turn: Callable[[], None] | None = None,
    ) -> None:
        self.engine = engine
        self._act = act
        self._pds = pds
        self._leaders = leaders
        self._registry = registry
        self._clock = clock
        self._recorder = recorder
        self._on_turn = on_turn
        self._inbox: deque[Event] = deque()
        self._news = TimedEvent(clock)
        self._tasks: set[asyncio.Task[None]] = set()
        #: Wall time that never jumps: where the clock stood at the start, plus what has passed since (see `now`); and
        #: when that was last looked at.
        self._anchored = clock.now() - clock.monotonic(), clock.monotonic()
        #: On the monotonic clock: nothing is decided before this. Events are taken in all the same.
        self._rest_until = 0.0
        #: Whether others on the loop should come first just now.
        self.in_a_rush: Callable[[], bool] = lambda: False
        #: Whether the engine is to be left as it is for a moment.
        self.held: Callable[[], bool] = lambda: False
        #: Set while stopping: outcomes are still taken in, nothing new is begun.
        self._stopping = False

    # ── In ────────────────────────────────────────────────────────────────────────────────────────────────────

    def tell(self, event: Event) -> None:
        """Put an event into the inbox. Safe to call from any callback of the loop."""
        self._inbox.append(event)
        self._news.set()

    def lead(self, *, leading: bool) -> None:
        self.tell(LeaseChanged(leading))

    def switch(self, on: frozenset[str], observing: frozenset[str] = frozenset()) -> None:
        self.tell(Features(on, observing))

    def now(self) -> float:
        """Wall time as the engine knows it: it neither jumps nor goes back. A clock that was set is followed slowly."""
        anchor, before = self._anchored
        real = self._clock.monotonic()
        drift = self._clock.now() - real - anchor
        if abs(drift) > SET_BY_S:
            most = SLEW * (real - before)
            anchor += max(-most, min(drift, most))
        self._anchored = anchor, real
        return anchor + real

    @property
    def backlog(self) -> int:
        return len(self._inbox)

    # ── The pump ──────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Pump until canceled. Writes under way are given up on then; their marks say what had begun."""
        try:
            while True:
                self._turn()
                await self._pause()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def drain(self, patience_s: float) -> None:
        """Stop beginning anything, for good, and let the writes under way end; what has not by then is given up."""
        self._stopping = True
        await self.drain_for_now(patience_s)
        # A request has a shorter time-out: what is left only looks, and would be waited for once more.
        left = [task for task in self._tasks if not task.done()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def drain_for_now(self, patience_s: float) -> None:
        """Let the writes under way end: the lease is lost, and the next leader must not overlap with them."""
        waiting = [t for t in self._tasks if not t.done()]
        if waiting:
            await asyncio.wait(waiting, timeout=patience_s)

    def _turn(self) -> None:
        if self.held():
            return
        self._news.clear()
        events = [self._inbox.popleft() for _ in range(min(TURN, len(self._inbox)))]
        if events or self._is_due():
            pace = TurnPace(self._clock, self._rest_until, rush=self.in_a_rush())
            self._start(self.engine.handle_all(events or (Tick(),), self.now(), pace.enough))
            self._rest_until = pace.rest_until()
        if self._on_turn is not None:
            self._on_turn()

    def _is_due(self) -> bool:
        due = self.engine.next_wakeup()
        return due is not None and due <= self.now()

    async def _pause(self) -> None:
        if self.held():
            await asyncio.sleep(0)
            return
        due = self.engine.next_wakeup()
        if due is not None:
            due = max(due, self.now() + self._rest_until - self._clock.monotonic())
        if self._inbox or (due is not None and due <= self.now()):
            await asyncio.sleep(0)
            return
        if self.in_a_rush():
            await asyncio.sleep(SLICE_S)  # something comes at once: two sleepers a turn would cost more than the turn
            return
        await self._news.wait(None if due is None else due - self.now())

    # ── Out ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, instructions: list[Instruction]) -> None:
        if self._stopping:
            return
        for instruction in instructions:
            match instruction:
                case EmitEvent():
                    self._recorder.event(
                        instruction.kind,
                        instruction.key.namespace,
                        instruction.key.name,
                        uid=instruction.uid,
                        reason=instruction.reason,
                        message=instruction.message,
                        warning=instruction.warning,
                    )
                case ReadPd():
                    self._spawn(self._look_at_pd(instruction), f"look at PD {instruction.cluster}")
                case ReadLeaders(workload=workload):
                    self._spawn(self._look_at_leaders(workload), f"look at leaders {workload}")
                case ReadRegions():
                    self._spawn(self._look_at_regions(instruction), f"look at regions {instruction.cluster}")
                case ReadMachines():
                    self._spawn(self._look_at_machines(), "look at machines")
                case _:
                    self._spawn(self._write(instruction), f"{type(instruction).__name__} {instruction.id}")

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, write: Any) -> None:
        verb = type(write).__name__
        try:
            outcome = await self._act.carry_out(write)
        except Exception as error:
            # A bug here must not end the loop, nor leave the operator waiting for ever.
            log.exception("act.failed", instruction=write.id, verb=verb)
            outcome = Outcome(instruction=write.id, reason=Reason.FAILED, detail=f"{type(error).__name__}: {error}")
        self._recorder.count("mooring_writes_total", {"verb": verb, "outcome": outcome.reason or "done"})
        log.info(
            "act.wrote" if outcome.reason is None else "act.refused",
            verb=verb,
            instruction=write.id,
            cause=write.cause,
            why=write.why,
            reason=outcome.reason,
            detail=outcome.detail,
        )
        self.tell(outcome)

    async def _look_at_pd(self, instruction: ReadPd) -> None:
        cluster, began = instruction.cluster, self.now()
        try:
            view = await self._pds.pd(cluster).observe(*instruction.stores)
        except PortError as error:
            self.tell(PdLost(cluster, str(error), began, remedy_of(error)))
        except Exception as error:
            log.exception("pd.read-failed", cluster=str(cluster))
            self.tell(PdLost(cluster, f"{type(error).__name__}: {error}", began))
        else:
            self.tell(PdSeen(cluster, view, began))

    async def _look_at_leaders(self, workload: Key) -> None:
        began = self.now()
        try:
            view = await (await self._leaders(workload)).read()
        except PortError as error:
            self.tell(LeadersSeen(workload, None, began, str(error)))
        except Exception as error:
            log.exception("leaders.read-failed", workload=str(workload))
            self.tell(LeadersSeen(workload, None, began, f"{type(error).__name__}: {error}"))
        else:
            self.tell(LeadersSeen(workload, view, began))

    async def _look_at_regions(self, look: ReadRegions) -> None:
        began, reason, detail, end_key = self.now(), None, "", ""
        try:
            pd = self._pds.pd(look.cluster)
            if look.region_ids:
                asked = [await pd.region(region_id) for region_id in look.region_ids]
                regions = tuple(region for region in asked if region is not None)
            else:
                regions = tuple(await pd.regions(look.start_key, look.limit))
                end_key = regions[-1].end_key if look.limit and len(regions) >= look.limit else ""
        except PortError as error:
            reason, detail = Reason.PD_UNREACHABLE, str(error)
        except Exception as error:
            log.exception("pd.regions-failed", cluster=str(look.cluster))
            reason, detail = Reason.FAILED, f"{type(error).__name__}: {error}"
        else:
            self.tell(RegionsSeen(look.cluster, regions, began, look.region_ids, look.start_key, end_key))
        self.tell(Outcome(instruction=look.id, reason=reason, detail=detail, looked=True))

    async def _look_at_machines(self) -> None:
        began = self.now()
        if self._registry is None:
            self.tell(MachinesLost("no machine registry is configured", began))
            return
        try:
            machines = await self._registry.machines()
        except PortError as error:
            self.tell(MachinesLost(str(error), began))
        except Exception as error:
            # A bug here fails this read only; without an answer it would never be requested again.
            log.exception("machines.read-failed")
            self.tell(MachinesLost(f"{type(error).__name__}: {error}", began))
        else:
            self.tell(MachinesSeen(tuple(machines), began))
