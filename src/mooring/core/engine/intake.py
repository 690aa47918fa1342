"""Taking what is seen into the world without a long pause.

One event is one lookup and one store. A list of 150,000 pods is not: it is taken in part by part, a part per turn, and
events of the same kind wait behind it in order, so the world never goes back in time.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from mooring.core.engine.events import Event
from mooring.core.model.decision import no_answer
from mooring.core.model.events import (
    Change,
    KubeEvent,
    LeadersSeen,
    Listed,
    MachinesLost,
    MachinesSeen,
    PdLost,
    PdSeen,
    RegionsSeen,
    Trigger,
)
from mooring.core.model.instructions import Instruction
from mooring.core.model.kinds import Kind
from mooring.core.world.world import World

#: What each event of a turn did to the world.
Changes = Sequence[Sequence[Trigger]]
#: What is polled rather than watched.
Polled = PdSeen | PdLost | LeadersSeen | MachinesSeen | MachinesLost | RegionsSeen
#: Smaller lists are taken in at once.
LARGE: Final = 2000


class TurnRecorder(Protocol):
    """Told of every turn of the engine."""

    def turn(
        self,
        now: float,
        decisions: int,
        events: Sequence[Event],
        out: Sequence[Instruction],
        changes: Changes | None,
        /,
    ) -> None:
        """What came in and what came out, after how many decisions; what each event changed, where that is known."""
        ...


class Intake:
    def __init__(self, world: World) -> None:
        self._world = world
        self._parts: dict[Kind, Iterator[list[Change]]] = {}
        self._behind: dict[Kind, deque[KubeEvent]] = {}
        #: An index has more to take in.
        self._index_busy = False

    @property
    def busy(self) -> bool:
        """A list is being taken in: the world is consistent, but not complete."""
        return bool(self._parts) or self._index_busy

    def holds(self, kind: Kind) -> bool:
        """A list of these is being taken in, and events wait behind it."""
        return kind in self._parts

    def take(self, event: KubeEvent) -> list[Change]:
        if event.kind in self._parts:
            self._behind[event.kind].append(event)
            return []
        if isinstance(event, Listed) and len(event.objects) > LARGE:
            self._parts[event.kind] = self._world.relist(event)
            self._behind[event.kind] = deque()
            return []
        return self._world.apply(event)

    def note(self, seen: Polled) -> None:
        match seen:
            case PdSeen():
                self._world.note_pd(seen.cluster, seen.view, seen.at)
            case PdLost():
                self._world.note_pd_lost(seen.cluster, no_answer(seen))
            case MachinesSeen():
                self._world.note_machines(seen.machines, seen.at)
            case MachinesLost():
                self._world.note_machines_lost(seen.detail, seen.at)
            case RegionsSeen() | LeadersSeen():
                pass  # only indexes keep these
        self._world.show(seen)
        self._index_busy = True

    def advance(self) -> list[Change]:
        """One part of one list; then what waited behind it. And one part of what an index takes in."""
        if self._index_busy:
            self._index_busy = self._world.indexes.advance()
        kind = next(iter(self._parts), None)
        if kind is None:
            return []
        part = next(self._parts[kind], None)
        if part is not None:
            return part
        del self._parts[kind]
        changes: list[Change] = []
        for event in self._behind.pop(kind):
            changes += self.take(event)
        return changes
