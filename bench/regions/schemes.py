"""Two ways to let moves pass: the queue by cost, and the four limits by kind that it replaces.

Both ask the same schedulers about the same picture; they differ only in what they let begin. In the old way a scheduler
looks whether its kind has room and adds its operator, all of them at the same moment, so limits are soft: what two of
them share is counted before either has added.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, Protocol

import msgspec

from mooring.capabilities.balance import Influence, Picture, Summary, operator_of, propose, propose_all
from mooring.capabilities.balance.policy import BALANCE_LEADER, BALANCE_REGION, HOT, MERGE, ORDER, REPLICA, SPLIT
from mooring.core.model.operator import Operator, StepKind
from mooring.core.queue import Promoted, Queue, Settings


class Scheme(Protocol):
    name: str

    def propose(self, summary: Summary, sources: Iterable[str], turn: int, now: float) -> list[Operator]:
        """Ask the schedulers; what begins now."""
        ...

    def finish(self, operator: Operator) -> list[Operator]:
        """One has ended; what begins in its place."""
        ...

    def wanting(self, summary: Summary, sources: Iterable[str], turn: int) -> set[str]:
        """The schedulers that have something to do which has not begun."""
        ...

    @property
    def waiting(self) -> int: ...


class QueueScheme:
    name = "queue"

    def __init__(self, settings: Settings | None = None, *, repairs_first: bool = False) -> None:
        self.settings = settings or Settings()
        self._repairs_first = repairs_first
        self._queue = Queue(self.settings)
        self._operators: dict[str, Operator] = {}
        self._next = 0

    def propose(self, summary: Summary, sources: Iterable[str], turn: int, now: float) -> list[Operator]:
        begun = self._promoted(self._queue.tick(now))
        rooms = {s: self._room(s) for s in sources}
        if not any(rooms.values()):
            return begun
        picture = Picture(summary, Influence(summary), turn)
        picture.influence.add_operators(self._queue.operators(), "region/")
        for proposal in propose_all(picture, rooms):
            self._next += 1
            repair_at = now if self._repairs_first else None
            operator = operator_of(proposal, self.settings, id_=str(self._next), repair_at=repair_at)
            operator = msgspec.structs.replace(operator, timeout_s=None)
            self._operators[operator.id] = operator
            begun += self._promoted(self._queue.submit(operator))
            if operator.id not in self._queue:
                del self._operators[operator.id]  # it never fits
        return begun

    def _room(self, source: str) -> int:
        cap = self.settings.cap(source)
        return max(0, (16 if cap is None else cap) - self._queue.waiting_of(source))

    def finish(self, operator: Operator) -> list[Operator]:
        del self._operators[operator.id]
        return self._promoted(self._queue.finish(operator.id))

    def _promoted(self, events: Iterable[object]) -> list[Operator]:
        return [self._operators[e.id] for e in events if isinstance(e, Promoted)]

    def wanting(self, summary: Summary, sources: Iterable[str], turn: int) -> set[str]:
        return {s for s in sources if self._queue.waiting_of(s)}

    @property
    def waiting(self) -> int:
        return len(self._operators) - len(self._queue.running)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The four, with their defaults of that time."""

    leader: int = 4
    region: int = 4
    replica: int = 8
    merge: int = 8


#: What each scheduler's operators count as, and which limits it looks at. An operator counts under all its kinds.
_COUNTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        BALANCE_LEADER: ("leader",),
        BALANCE_REGION: ("region",),
        REPLICA: ("replica", "region"),
        MERGE: ("merge", "region"),
        HOT: ("leader",),
        SPLIT: (),
    }
)
_LOOKS_AT: Final[Mapping[str, str]] = MappingProxyType(
    {BALANCE_LEADER: "leader", BALANCE_REGION: "region", REPLICA: "replica", MERGE: "merge", HOT: "leader"}
)


class LimitScheme:
    name = "limits"

    def __init__(self, limits: Limits | None = None, settings: Settings | None = None) -> None:
        self.limits = limits or Limits()
        #: Only to price what runs: nothing here looks at costs.
        self.settings = settings or Settings()
        self._running: dict[str, Operator] = {}
        self._counts = dict.fromkeys(("leader", "region", "replica", "merge"), 0)
        #: How often a kind had more running than its limit, after a look.
        self.overshoots = 0
        self._next = 0

    def propose(self, summary: Summary, sources: Iterable[str], turn: int, now: float) -> list[Operator]:
        allowed = [s for s in ORDER if s in set(sources) and self._may(s)]
        if not allowed:
            return []
        picture = Picture(summary, Influence(summary), turn)
        picture.influence.add_operators(self._running.values(), "region/")
        begun = []
        for source in allowed:  # each has looked at its limit before any of them adds
            for proposal in propose(picture, source, 1):
                self._next += 1
                operator = operator_of(proposal, self.settings, id_=str(self._next))
                self._running[operator.id] = operator
                self._count(operator, 1)
                begun.append(operator)
        limits = msgspec.structs.asdict(self.limits)
        self.overshoots += sum(1 for kind, count in self._counts.items() if count > limits[kind])
        return begun

    def _may(self, source: str) -> bool:
        kind = _LOOKS_AT.get(source)
        return kind is None or self._counts[kind] < getattr(self.limits, kind)

    def _count(self, operator: Operator, by: int) -> None:
        kinds = _COUNTS[operator.source]
        if len(operator.steps) > 1 and any(s.kind is StepKind.TRANSFER_LEADER for s in operator.steps):
            kinds = (*kinds, "leader")
        for kind in kinds:
            self._counts[kind] += by

    def finish(self, operator: Operator) -> list[Operator]:
        del self._running[operator.id]
        self._count(operator, -1)
        return []

    def wanting(self, summary: Summary, sources: Iterable[str], turn: int) -> set[str]:
        return {s for s in sources if not self._may(s) and any(self._probe(summary, s, turn))}

    def _probe(self, summary: Summary, source: str, turn: int) -> Iterator[object]:
        picture = Picture(summary, Influence(summary), turn)
        picture.influence.add_operators(self._running.values(), "region/")
        return propose(picture, source, 1)

    @property
    def waiting(self) -> int:
        return 0
