"""One target's line: who waits there in order, and how far the room reaches.

Costs are positive, so the waiting operators that fit on one target ("used + everything waiting ahead + its own cost is
within the limit") are a *prefix* of its line. `front` is where that prefix ends:

    queue   [ a  x  b  c | d  e  f ]         x: promoted meanwhile, a dead entry, only ever found left of `front`
                         front
    room    = limit − used − (a + b + c)     d does not fit into it

An operator counts on how many of its lanes it stands behind `front` (`blocked`) and runs when that is 0. A promotion
moves cost from "fitting, waiting" to "used": room and front stay, so promoting everybody with blocked = 0 in queue
order is a fixed point. Everything else moves `front` over those whose standing changes, and over nobody else.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from mooring.core.model.operator import Operator

#: Where a limit is None. Far above any sum of costs, and still an exact integer.
UNLIMITED: Final = 1 << 60
_COMPACT_AT: Final = 32

WAITING: Final = 0
RUNNING: Final = 1
ENDED: Final = 2

#: Queue order: those with a deadline first, the earliest first; then by arrival.
Key = tuple[float, int]


class Fact(msgspec.Struct, frozen=True, gc=False):
    """Something already broken that takes room on a target. An empty subject is nobody's: no operator cures it."""

    target: str
    subject: str
    amount: int
    text: str = ""


class Entry(msgspec.Struct, eq=False, gc=False, kw_only=True):
    """An operator in the queue. Refers to no lane, so that nothing here ever forms a cycle."""

    op: Operator
    key: Key
    claims: tuple[str, ...]
    #: The cost of the phase it is in; no zeros.
    cost: Mapping[str, int]
    #: What it adds (waiting) or added (running): its cost minus what its own subject's facts charge already; no zeros.
    need: Mapping[str, int]
    state: int = WAITING
    phase: int = 0
    blocked: int = 0
    parked: bool = False
    submitted_at: float = 0.0
    promoted_at: float = 0.0


class Lane:
    __slots__ = (
        "cap",
        "cooling",
        "dead",
        "fact_total",
        "facts",
        "front",
        "loose",
        "name",
        "parked",
        "peak",
        "queue",
        "room",
        "running",
        "used",
    )

    def __init__(self, name: str, limit: int | None) -> None:
        self.name = name
        self.cap = UNLIMITED if limit is None else limit
        #: Charged now: facts, running operators beyond their own facts, and what cools down.
        self.used = 0
        self.room = self.cap
        self.queue: list[Entry] = []
        self.front = 0
        self.dead = 0
        #: In order of promotion.
        self.running: dict[str, Entry] = {}
        #: Those that touch this target and are parked, here or elsewhere.
        self.parked: dict[str, Entry] = {}
        self.facts: dict[str, Fact] = {}
        self.fact_total = 0
        #: Facts beyond what running operators on the same subjects answer for: what can park others.
        self.loose = 0
        self.cooling = 0
        #: No waiting operator here needs more than this. An upper bound: it falls only when the line is empty.
        self.peak = 0

    @property
    def limit(self) -> int | None:
        return None if self.cap == UNLIMITED else self.cap

    @property
    def idle(self) -> bool:
        """Nothing is charged here and nobody stands here: forgetting it forgets nothing."""
        return not (self.used or self.running or len(self.queue) > self.dead or self.parked or self.facts)

    def waiting(self) -> Iterator[Entry]:
        return (entry for entry in self.queue if entry.state == WAITING)

    def insert(self, entry: Entry, need: int, ready: list[Entry]) -> None:
        """Put a waiting operator at its place."""
        queue, key = self.queue, entry.key
        if need > self.peak or not queue:
            self.peak = need
        if not queue or queue[-1].key < key:
            if self.front == len(queue) and need <= self.room:
                self.room -= need
                self.front += 1
            else:
                entry.blocked += 1
            queue.append(entry)
            return
        index = bisect_left(queue, key, key=_key)
        queue.insert(index, entry)
        if index < self.front:
            self.front += 1
            self.take(need)
        else:
            entry.blocked += 1
            self.advance(ready)

    def remove(self, entry: Entry, need: int, ready: list[Entry]) -> None:
        """Take a waiting operator out; whoever stood behind it may now fit."""
        index = bisect_left(self.queue, entry.key, key=_key)
        del self.queue[index]
        if index < self.front:
            self.front -= 1
            self.room += need
        else:
            entry.blocked -= 1
        self.advance(ready)

    def promote(self, need: int) -> None:
        """A fitting one begins: room and front stay as they are."""
        self.used += need
        self.dead += 1
        if self.dead > _COMPACT_AT and self.dead * 2 > self.front:
            self._compact()

    def take(self, amount: int) -> None:
        """Less room: those at the end of the prefix that no longer fit fall behind."""
        self.room -= amount
        queue = self.queue
        while self.room < 0 and self.front:
            self.front -= 1
            entry = queue[self.front]
            if entry.state == WAITING:
                self.room += entry.need[self.name]
                entry.blocked += 1
            else:
                del queue[self.front]
                self.dead -= 1

    def give(self, amount: int, ready: list[Entry]) -> None:
        """More room: the next in line may fit."""
        self.room += amount
        if self.front < len(self.queue):
            self.advance(ready)

    def advance(self, ready: list[Entry]) -> None:
        queue, name, front, room, end = self.queue, self.name, self.front, self.room, len(self.queue)
        while front < end:
            entry = queue[front]
            need = entry.need[name]
            if need > room:
                break
            room -= need
            front += 1
            entry.blocked -= 1
            if not entry.blocked:
                ready.append(entry)
        self.front = front
        self.room = room

    def resize(self, limit: int | None, ready: list[Entry]) -> None:
        cap = UNLIMITED if limit is None else limit
        delta = cap - self.cap
        self.cap = cap
        if delta < 0:
            self.take(-delta)
        else:
            self.give(delta, ready)

    def _compact(self) -> None:
        live = [entry for entry in self.queue[: self.front] if entry.state == WAITING]
        self.queue[: self.front] = live
        self.front = len(live)
        self.dead = 0


def _key(entry: Entry) -> Key:
    return entry.key
