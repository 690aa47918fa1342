"""A gate around a replica's calls: counts its writes, can end it right before or right after one, or hold it up.

A gate that is held stands for a process that was stopped (SIGSTOP, a long pause, a stalled disk): nothing leaves it,
nothing reaches it, its timers do not fire, and when it goes on it does not know that time has passed. A write that had
passed the fence when the pause began leaves when it ends: the worst case for the replica that leads by then.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from mooring.clients.kube.fence import READS, written
from mooring.clients.ports import Clock, KubeApi, LeaderDriver, PlacementDriver
from mooring.core.model.kinds import Kind

T = TypeVar("T")


class Gate:
    def __init__(self, count: Callable[[str, str], bool], die: Callable[[], None]) -> None:
        self._count = count
        self._die = die
        #: The process is dead: none of its later writes leave it.
        self.shut = False
        self._go_on: asyncio.Event | None = None
        #: Timers that were due while it was held.
        self._due: list[GatedAlarm] = []

    @property
    def held(self) -> bool:
        return self._go_on is not None

    def hold(self) -> None:
        self._go_on = self._go_on or asyncio.Event()

    def let_go(self) -> None:
        if self._go_on is not None:
            self._go_on.set()
            self._go_on = None
            due, self._due = self._due, []
            for alarm in due:
                self.ring(alarm)

    async def pass_by(self) -> None:
        """Waits while the gate is held."""
        while self._go_on is not None:
            await self._go_on.wait()
        self._check()

    def ring(self, alarm: "GatedAlarm") -> None:
        """Now, or when the gate is let go."""
        if self._go_on is not None:
            self._due.append(alarm)
        elif alarm.call is not None and not self.shut:
            alarm.call()

    async def through(self, what: str, call: Callable[[], Awaitable[T]], *, counted: bool = True) -> T:
        self._check()
        if counted and self._count(what, "before"):
            self._end()
        if self._go_on is not None:
            await self.pass_by()
        result = await call()
        if counted and self._count(what, "after"):
            self._end()
        await self.pass_by()
        return result

    def _end(self) -> None:
        self._die()
        raise asyncio.CancelledError

    def _check(self) -> None:
        if self.shut:
            raise asyncio.CancelledError


class GatedAlarm:
    __slots__ = ("_timer", "call")

    def __init__(self, clock: Clock, gate: Gate, seconds: float, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call
        self._timer = clock.later(seconds, lambda: gate.ring(self))

    def cancel(self) -> None:
        self.call = None
        self._timer.cancel()


class GatedClock:
    """`ports.Clock` of a process behind a gate: the clocks of the machine go on, its timers do not fire while held."""

    def __init__(self, clock: Clock, gate: Gate) -> None:
        self._clock = clock
        self._gate = gate
        self.now = clock.now
        self.monotonic = clock.monotonic

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        await self._gate.pass_by()

    def later(self, seconds: float, call: Callable[[], None]) -> GatedAlarm:
        return GatedAlarm(self._clock, self._gate, seconds, call)


class _GatedApi:
    """`ports.KubeApi` through a gate. Leases and Events pass uncounted: they disturb nothing."""

    def __init__(self, api: KubeApi, gate: Gate) -> None:
        self._api = api
        self._gate = gate

    async def watch(self, kind: Kind, **how: Any) -> Any:
        gate = self._gate
        async for event in self._api.watch(kind, **how):
            if gate.held or gate.shut:
                await gate.pass_by()
            yield event

    def __getattr__(self, verb: str) -> Any:
        call, reads = getattr(self._api, verb), verb in READS

        async def gated(*args: Any, **how: Any) -> Any:
            what = "" if reads else written(verb, args)
            counted = not reads and args[0] not in {Kind.LEASE, Kind.EVENT}
            return await self._gate.through(what, lambda: call(*args, **how), counted=counted)

        return gated


def gated_api(api: KubeApi, gate: Gate) -> KubeApi:
    return cast("KubeApi", _GatedApi(api, gate))


#: What changes something in PD; the rest only looks.
_PD_WRITES = frozenset(
    {
        "add_evict_leader",
        "remove_evict_leader",
        "hold_lock",
        "release_lock",
        "add_operator",
        "cancel_operator",
        "pause_scheduler",
        "transfer_pd_leader",
    }
)


class GatedPd:
    """`ports.PlacementDriver` through a gate."""

    def __init__(self, driver: PlacementDriver, gate: Gate) -> None:
        self._driver = driver
        self._gate = gate

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._driver, name)

        async def gated(*args: Any, **how: Any) -> Any:
            what = f"pd {name} {' '.join(str(a) for a in args)}".rstrip()
            return await self._gate.through(what, lambda: call(*args, **how), counted=name in _PD_WRITES)

        return gated


class _GatedLeaders:
    """`ports.LeaderDriver` through a gate."""

    def __init__(self, driver: LeaderDriver, gate: Gate) -> None:
        self._driver, self._gate = driver, gate

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._driver, name)

        async def gated(*args: Any) -> Any:
            what = f"leaders {name} {' '.join(args)}".rstrip()
            return await self._gate.through(what, lambda: call(*args), counted=name != "read")

        return gated


def gated_leaders(driver: LeaderDriver, gate: Gate) -> LeaderDriver:
    return cast("LeaderDriver", _GatedLeaders(driver, gate))
