"""The design's scores, and a queue that hands out the best machine without scoring them all again.

    to add     (100 − machines of the same role in the same rack) × 10 + life
    to remove  the same, + 1000 when healthy; the lowest goes

`life` is −3 … 3 by the days left until the machine's retire date (more than 250, 500, 1000; less than −250, −500,
−1000; whole days, cut towards zero). Inside one rack (and role) the rack's part is the same for all, so only each
rack's best candidate competes: a heap over racks gives each choice in O(log racks), and 10,000 machines are
distributed in a few dozen milliseconds. Equal scores: the lowest address is added, the highest removed.
"""

from collections.abc import Callable, Iterable
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


def days_left(machine: Machine, now: float) -> int:
    return int((machine.retire_at - now) / DAY_S)


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


def address_number(address: str) -> int:
    """Addresses compare as numbers: 10.0.0.9 comes before 10.0.0.10."""
    try:
        a, b, c, d = address.split(".")
        return (int(a) << 24) + (int(b) << 16) + (int(c) << 8) + int(d)
    except ValueError:
        return int(ip_address(address))


class Score(msgspec.Struct, frozen=True, gc=False):
    """The terms of one machine's score at the moment of a choice."""

    total: int
    same_rack: int
    life: int
    #: None where health is no term (only healthy machines are ever added).
    healthy: bool | None = None


class Choice(msgspec.Struct, frozen=True, gc=False):
    """A machine chosen by score, and who would have been next."""

    machine: Machine
    score: Score
    runner_up: Machine | None = None
    runner_up_score: Score | None = None


#: What is counted together: (role or "", rack).
Group = tuple[str, int]
#: (value, tie, machine): smaller value, then smaller tie, first. The tie ends in the address, which is unique.
_Item = tuple[int, tuple[int, ...], Machine]


class RackQueue:
    """Machines in the order of their scores, while each one taken changes the scores of its rack.

    An item's key is `value + step × count(group)`, the smallest first. Taking one changes the count by `delta`; step
    and delta have the same sign, so keys only grow and the heap needs no search.
    """

    def __init__(self, counts: dict[Group, int], *, removing: bool) -> None:
        self._counts = counts
        self._step, self._delta = (-RACK_STEP, -1) if removing else (RACK_STEP, 1)
        self._removing = removing
        self._items: dict[Group, list[_Item]] = {}
        self._heap: list[tuple[int, tuple[int, ...], Group]] = []

    def fill(self, items: Iterable[tuple[Group, _Item]]) -> None:
        for group, item in items:
            held = self._items.get(group)
            if held is None:
                self._items[group] = [item]
            else:
                held.append(item)
        for held in self._items.values():
            held.sort(reverse=True)
        self._heap = [self._entry(group, held[-1]) for group, held in self._items.items()]
        heapify(self._heap)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def take(self) -> Choice | None:
        if not self._heap:
            return None
        key, _, group = self._heap[0]
        held = self._items[group]
        machine = held.pop()[2]
        best = self._score(key, group, machine)
        runner_up, its_score = self._next(group, held)
        self._counts[group] = self._counts.get(group, 0) + self._delta
        if held:
            heapreplace(self._heap, self._entry(group, held[-1]))
        else:
            heappop(self._heap)
        return Choice(machine, best, runner_up, its_score)

    def _next(self, group: Group, held: list[_Item]) -> tuple[Machine | None, Score | None]:
        """The second best right now: the next of the same rack, or the best of another."""
        entries = self._heap[1:3]
        if held:
            entries.append(self._entry(group, held[-1]))
        if not entries:
            return None, None
        key, _, where = min(entries)
        machine = self._items[where][-1][2]
        return machine, self._score(key, where, machine)

    def _entry(self, group: Group, item: _Item) -> tuple[int, tuple[int, ...], Group]:
        return (item[0] + self._step * self._counts.get(group, 0), item[1], group)

    def _score(self, key: int, group: Group, machine: Machine) -> Score:
        count = self._counts.get(group, 0)
        if self._removing:
            healthy = machine.state == _HEALTHY
            return Score(BASE + key, count, key + RACK_STEP * count - HEALTHY_BONUS * healthy, healthy)
        return Score(BASE - key, count, RACK_STEP * count - key)


def to_add(
    machines: Iterable[Machine], group_of: Callable[[Machine], Group], counts: dict[Group, int], lives: Lives
) -> RackQueue:
    queue = RackQueue(counts, removing=False)
    queue.fill((group_of(m), (-lives[m.retire_at], (address_number(m.address),), m)) for m in machines)
    return queue


def to_remove(
    machines: Iterable[Machine],
    group_of: Callable[[Machine], Group],
    counts: dict[Group, int],
    lives: Lives,
    first: frozenset[str] = frozenset(),
) -> RackQueue:
    """`first`: addresses that go before others of the same score (removing them is the smaller change)."""
    queue = RackQueue(counts, removing=True)
    queue.fill(
        (
            group_of(m),
            (
                HEALTHY_BONUS * (m.state == _HEALTHY) + lives[m.retire_at],
                (m.address not in first, -address_number(m.address)),
                m,
            ),
        )
        for m in machines
    )
    return queue
