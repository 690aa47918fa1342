"""The design's scores, and a queue that hands out the best machine without scoring them all again.

    to add     (100 − machines of the same role in the same rack) × 10 + life
    to remove  the same, + 1000 when healthy; the lowest goes

`life` is −3 … 3 by the days left until the machine's retire date (more than 250, 500, 1000; less than −250, −500,
−1000; whole days, cut towards zero). Inside one rack (and role) the rack's part is the same for all, so only each
rack's best candidate competes: a heap over racks gives each choice in O(log racks), and 10,000 machines are
distributed in a few dozen milliseconds. Equal scores: the lowest address is added, the highest removed.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from heapq import heapify, heappop, heapreplace
from ipaddress import ip_address
from typing import Final

import msgspec

from mooring.model.machine import Machine, MachineState

DAY_S: Final = 86_400
RACK_STEP: Final = 10
BASE: Final = 100 * RACK_STEP
HEALTHY_BONUS: Final = 1000
_HEALTHY: Final = MachineState.HEALTHY
#: Larger than any address.
_LAST: Final = 1 << 129


def days_left(retire_at: float, now: float) -> int:
    return int((retire_at - now) / DAY_S)


def life(days: int) -> int:
    if days > 250:
        return 1 + (days > 500) + (days > 1000)
    if days < -250:
        return -1 - (days < -500) - (days < -1000)
    return 0


class Lives(dict[float, int]):
    """Retire date → life, computed once per distinct date."""

    def __init__(self, now: float) -> None:
        super().__init__()
        self.now = now

    def __missing__(self, retire_at: float) -> int:
        found = self[retire_at] = life(int((retire_at - self.now) / DAY_S))
        return found


@lru_cache(maxsize=1 << 17)
def address_number(address: str) -> int:
    """Addresses compare as numbers: 10.0.0.9 comes before 10.0.0.10. The same ones come again every minute."""
    try:
        return int.from_bytes(bytes(map(int, address.split("."))))
    except ValueError:
        return int(ip_address(address))


class Choice(msgspec.Struct, frozen=True, gc=False):
    """A machine chosen by score, and who would have been next; with the terms as they were at that moment."""

    machine: Machine
    score: int
    same_rack: int
    runner_up: Machine | None = None
    runner_up_score: int = 0
    runner_up_same_rack: int = 0
    #: Health was a term.
    removing: bool = False


#: What is counted together: a rack (of one role), or (role, rack).
Group = int | tuple[str, int]
#: (value, tie, machine): the smaller value, then the smaller tie, comes first. Ties are unique: they hold the address.
_Item = tuple[int, int, Machine]


class RackQueue:
    """Machines in the order of their scores, while each one taken changes the scores of its rack.

    An item's key is `value + step × count(group)`, the smallest first. Taking one changes the count by `delta`; step
    and delta have the same sign, so keys only grow and the heap needs no search.
    """

    #: Empty when nobody is left.
    heap: list[tuple[int, int, Group]]

    def __init__(self, items: dict[Group, list[_Item]], counts: dict[Group, int], *, removing: bool) -> None:
        self._items = items
        self._counts = counts
        self._removing = removing
        self._step, self._delta = (-RACK_STEP, -1) if removing else (RACK_STEP, 1)
        for held in items.values():
            held.sort(reverse=True)
        self.heap = [(held[-1][0] + self._step * counts.get(g, 0), held[-1][1], g) for g, held in items.items()]
        heapify(self.heap)

    def take(self) -> Choice | None:
        heap = self.heap
        if not heap:
            return None
        key, _, group = heap[0]
        held = self._items[group]
        machine = held.pop()[2]
        count = self._counts.get(group, 0)
        # The second best right now: the next of the same rack, or the best of another (a child of the heap's root).
        rivals = heap[1:3]
        if held:
            value, tie, _ = held[-1]
            rivals.append((value + self._step * count, tie, group))
        choice = self._choice(machine, key, count, min(rivals) if rivals else None)
        count += self._delta
        self._counts[group] = count
        if held:
            heapreplace(heap, (value + self._step * count, tie, group))
        else:
            heappop(heap)
        return choice

    def _choice(self, machine: Machine, key: int, count: int, rival: tuple[int, int, Group] | None) -> Choice:
        removing = self._removing
        score = BASE + key if removing else BASE - key
        if rival is None:
            return Choice(machine, score, count, removing=removing)
        other, _, where = rival
        its_score = BASE + other if removing else BASE - other
        return Choice(machine, score, count, self._items[where][-1][2], its_score, self._counts.get(where, 0), removing)


def to_add(machines: Iterable[Machine], counts: dict[Group, int], lives: Lives) -> RackQueue:
    """All machines compete in one role: `counts` is by rack."""
    items: dict[Group, list[_Item]] = {}
    for m in machines:
        item = (-lives[m.retire_at], address_number(m.address), m)
        held = items.get(m.rack)
        if held is None:
            items[m.rack] = [item]
        else:
            held.append(item)
    return RackQueue(items, counts, removing=False)


def to_remove(
    machines: Iterable[Machine],
    group_of: Callable[[Machine], Group],
    counts: dict[Group, int],
    lives: Lives,
    first: frozenset[str] = frozenset(),
) -> RackQueue:
    """`first`: addresses that go before others of the same score (removing them is the smaller change)."""
    items: dict[Group, list[_Item]] = {}
    for m in machines:
        value = HEALTHY_BONUS * (m.state == _HEALTHY) + lives[m.retire_at]
        tie = (_LAST if m.address not in first else 0) - address_number(m.address)
        items.setdefault(group_of(m), []).append((value, tie, m))
    return RackQueue(items, counts, removing=True)
