"""One target's line: who waits there in order, and how far the room reaches.

Costs are positive, so the waiting operators that fit on one target ("used + everything waiting ahead + its own cost is
within the limit") are a *prefix* of its line. `front` is where that prefix ends:

    queue   [ a  x  b  c | d  e  f ]         x: promoted meanwhile, a dead record, only ever found left of `front`
                         front
    room    = limit − used − (a + b + c)     d does not fit into it

An operator counts on how many of its lanes it stands behind `front` (`blocked`) and runs when that is 0. A promotion
moves cost from "fitting, waiting" to "used": room and front stay, so promoting every operator with blocked = 0 in queue
order is a fixed point. Everything else moves `front` over those whose standing changes, and over no others.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from mooring.core.model.decision import WAITING, Fact, OperatorRecord

#: Where a limit is None. Far above any sum of costs, and still an exact integer.
UNLIMITED: Final = 1 << 60
_COMPACT_AT: Final = 32


class Lane:
    __slots__ = (
        "cap",
        "cooling",
        "dead",
        "fact_total",
        "facts",
        "front",
        "name",
        "parked",
        "peak",
        "queue",
        "room",
        "running",
        "unowned",
        "used",
    )

    def __init__(self, name: str, limit: int | None) -> None:
        self.name = name
        self.cap = UNLIMITED if limit is None else limit
        #: Charged now: facts, running operators beyond their own facts, and what cools down.
        self.used = 0
        self.room = self.cap
        self.queue: list[OperatorRecord] = []
        self.front = 0
        self.dead = 0
        #: In order of promotion.
        self.running: dict[str, OperatorRecord] = {}
        #: Those that touch this target and are parked, here or elsewhere.
        self.parked: dict[str, OperatorRecord] = {}
        self.facts: dict[str, Fact] = {}
        self.fact_total = 0
        #: Facts beyond what running operators on the same subjects answer for: what can park others.
        self.unowned = 0
        self.cooling = 0
        #: No waiting operator here needs more than this. An upper bound: it falls only when the line is empty.
        self.peak = 0

    @property
    def limit(self) -> int | None:
        return None if self.cap == UNLIMITED else self.cap

    @property
    def idle(self) -> bool:
        """Nothing is charged here and nothing waits here: dropping it loses nothing."""
        return not (self.used or self.running or len(self.queue) > self.dead or self.parked or self.facts)

    @property
    def unused(self) -> bool:
        """Nothing is charged or reserved here: those that are parked have neither."""
        return not self.used and len(self.queue) == self.dead

    def fits(self, need: int) -> bool:
        """Whether the last in line would have room now."""
        return need <= self.room and self.front == len(self.queue)

    def waiting(self) -> Iterator[OperatorRecord]:
        return (record for record in self.queue if record.state == WAITING)

    def insert(self, record: OperatorRecord, need: int, ready: list[OperatorRecord]) -> None:
        """Put a waiting operator at its place."""
        queue, key = self.queue, record.key
        if need > self.peak or not queue:
            self.peak = need
        if not queue or queue[-1].key < key:
            if self.front == len(queue) and need <= self.room:
                self.room -= need
                self.front += 1
            else:
                record.blocked += 1
            queue.append(record)
            return
        index = bisect_left(queue, key, key=_key)
        queue.insert(index, record)
        if index < self.front:
            self.front += 1
            self.take(need)
        else:
            record.blocked += 1
            self.advance(ready)

    def remove(self, record: OperatorRecord, need: int, ready: list[OperatorRecord]) -> None:
        """Take a waiting operator out; those behind it may now fit."""
        index = bisect_left(self.queue, record.key, key=_key)
        del self.queue[index]
        if index < self.front:
            self.front -= 1
            self.room += need
        else:
            record.blocked -= 1
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
            record = queue[self.front]
            if record.state == WAITING:
                self.room += record.need[self.name]
                record.blocked += 1
            else:
                del queue[self.front]
                self.dead -= 1

    def give(self, amount: int, ready: list[OperatorRecord]) -> None:
        """More room: the next in line may fit."""
        self.room += amount
        if self.front < len(self.queue):
            self.advance(ready)

    def advance(self, ready: list[OperatorRecord]) -> None:
        queue, name, front, room, end = self.queue, self.name, self.front, self.room, len(self.queue)
        while front < end:
            record = queue[front]
            need = record.need[name]
            if need > room:
                break
            room -= need
            front += 1
            record.blocked -= 1
            if not record.blocked:
                ready.append(record)
        self.front = front
        self.room = room

    def resize(self, limit: int | None, ready: list[OperatorRecord]) -> None:
        cap = UNLIMITED if limit is None else limit
        delta = cap - self.cap
        self.cap = cap
        if delta < 0:
            self.take(-delta)
        else:
            self.give(delta, ready)

    def _compact(self) -> None:
        live = [record for record in self.queue[: self.front] if record.state == WAITING]
        self.queue[: self.front] = live
        self.front = len(live)
        self.dead = 0


def _key(record: OperatorRecord) -> tuple[float, int]:
    return record.key
