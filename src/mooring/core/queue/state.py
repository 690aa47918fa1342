"""What the queue holds, and the ways to look at it. Looking changes nothing.

`State` is the data; `queue.Queue` is the one that changes it.
"""

from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop
from operator import attrgetter
from typing import Final

from mooring.core.model.operator import Operator
from mooring.core.queue.config import Settings
from mooring.core.queue.facts import FactBook
from mooring.core.queue.lane import RUNNING, WAITING, Entry, Fact, Lane

BY_KEY: Final = attrgetter("key")
_SWEEP_AT: Final = 4096


class Lanes(dict[str, Lane]):
    """Lanes by target, made when first asked for."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        #: Limits that follow the target itself rather than the settings.
        self.limits: dict[str, int | None] = {}
        self._sweep_at = _SWEEP_AT

    def __missing__(self, target: str) -> Lane:
        if len(self) >= self._sweep_at:
            self._sweep()
        lane = self[target] = Lane(target, self.limit(target))
        return lane

    def limit(self, target: str) -> int | None:
        return self.limits[target] if target in self.limits else self.settings.limit(target)

    def _sweep(self) -> None:
        """Workloads and nodes come and go: forget the lanes nobody uses, now and then."""
        for name in [name for name, lane in self.items() if lane.idle]:
            del self[name]
        self._sweep_at = max(_SWEEP_AT, 2 * len(self))


class State:
    def __init__(self, settings: Settings | None = None, now: float = 0.0) -> None:
        self.settings = settings or Settings()
        #: As `tick` last said. Time-outs count from it, so the first tick comes before the first operator.
        self.now = now
        #: While held, operators are taken in and end, but none is promoted.
        self.held = False
        self.lanes = Lanes(self.settings)
        self.entries: dict[str, Entry] = {}
        self.waiting_count: dict[str, int] = {}
        self._book = FactBook(self.lanes)
        self._claims: dict[str, Entry] = {}
        self._running: dict[str, Entry] = {}
        self._arrivals = 0
        self._ready: list[Entry] = []
        #: By due time, then id; the arrival tells apart two of one id, since entries have no order.
        self._timers: list[tuple[float, str, int, Entry]] = []
        self._cooling: list[tuple[float, int, Mapping[str, int]]] = []

    def __contains__(self, op_id: object) -> bool:
        return op_id in self.entries

    def get(self, op_id: str) -> Operator | None:
        entry = self.entries.get(op_id)
        return entry.op if entry else None

    def is_running(self, op_id: str) -> bool:
        return op_id in self._running

    def is_parked(self, op_id: str) -> bool:
        entry = self.entries.get(op_id)
        return entry is not None and entry.parked

    def phase(self, op_id: str) -> int | None:
        entry = self.entries.get(op_id)
        return entry.phase if entry else None

    def holder(self, claim: str) -> Operator | None:
        """The operator, waiting or running, that claims a region or an object."""
        entry = self._claims.get(claim)
        return entry.op if entry else None

    @property
    def running(self) -> tuple[str, ...]:
        """Ids, by promotion."""
        return tuple(self._running)

    @property
    def waiting(self) -> tuple[str, ...]:
        """Ids in queue order, parked ones at their place."""
        return tuple(entry.op.id for entry in self.waiting_entries())

    def waiting_entries(self) -> list[Entry]:
        return sorted((entry for entry in self.entries.values() if entry.state == WAITING), key=BY_KEY)

    def waiting_of(self, source: str) -> int:
        """How many of a source count against its cap."""
        return self.waiting_count.get(source, 0)

    def used(self, target: str) -> int:
        lane = self.lanes.get(target)
        return lane.used if lane else 0

    def limit(self, target: str) -> int | None:
        return self.lanes.limit(target)

    def facts(self, target: str) -> tuple[Fact, ...]:
        lane = self.lanes.get(target)
        return tuple(lane.facts.values()) if lane else ()

    def holders(self, target: str) -> Sequence[tuple[str, int]]:
        """Running operators on a target and what each is charged there, by promotion."""
        lane = self.lanes.get(target)
        return [(name, entry.need.get(target, 0)) for name, entry in lane.running.items()] if lane else []

    def influence(self) -> Mapping[str, int]:
        """What running and waiting operators will have cost each target: for proposers, against over-balancing."""
        total: dict[str, int] = {}
        for entry in self.entries.values():
            for target, cost in entry.cost.items():
                total[target] = total.get(target, 0) + cost
        return total

    def operators(self) -> Iterator[Operator]:
        return (entry.op for entry in self.entries.values())

    def next_due(self) -> float | None:
        """When `tick` next has something to do by itself."""
        timers = self._timers
        while timers and timers[0][3].state != RUNNING:
            heappop(timers)
        dues = [heap[0][0] for heap in (timers, self._cooling) if heap]
        return min(dues) if dues else None
