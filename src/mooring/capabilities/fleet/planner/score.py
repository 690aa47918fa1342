"""The design's scores, and a queue that hands out the best machine without scoring them all again.

    to add     (100 − machines of the same role in the same rack) × 10 + life
    to remove  the same, + 1000 when healthy; the lowest goes

`life` is −3 … 3 by the days left until the machine's retire date (more than 250, 500, 1000; less than −250, −500,
−1000; whole days, cut towards zero). Inside one rack (and role) the rack's part is the same for all, so only each
rack's best candidate competes, and racks of one score are sorted together once: 10,000 machines are distributed in a
few dozen milliseconds, and ten times as many take about ten times as long. Equal scores: the lowest address is added,
the highest removed.

A candidate is one whole number, score above and address below, so that comparing and sorting are as cheap as Python has
them, and no object per candidate is made that the garbage collector would visit again and again.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from mooring.core.model.machine import Machine, MachineState

DAY_S: Final = 86_400
RACK_STEP: Final = 10
BASE: Final = 100 * RACK_STEP
HEALTHY_BONUS: Final = 1000
_HEALTHY: Final = MachineState.HEALTHY
#: Below the score: an IPv4 address, and above it one bit for "not first among equals".
_ADDRESS_BITS: Final = 32
_ADDRESS: Final = (1 << _ADDRESS_BITS) - 1
_LATER: Final = 1 << _ADDRESS_BITS
_TIE_BITS: Final = _ADDRESS_BITS + 1


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


@lru_cache(maxsize=1 << 12)
def _network(head: str) -> int:
    return int.from_bytes(bytes(map(int, head.split(".")))) << 8


def address_number(address: str) -> int:
    """Addresses compare as numbers: 10.0.0.9 comes before 10.0.0.10. Machines have IPv4: their reader sees to it."""
    head, _, last = address.rpartition(".")
    return _network(head) + int(last)


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


class _Rack:
    """Candidates that are counted together, the best one last. A key grows with the count alike for all of them."""

    __slots__ = ("count", "keys")

    def __init__(self, count: int) -> None:
        self.keys: list[int] = []
        self.count = count


class RackQueue:
    """Machines in the order of their scores, while each one taken changes the scores of its rack.

    A candidate's key is `value + step × count(rack)` above its tie, the smallest first. Taking one changes the count so
    that the rack's next key is at least a whole step further on. So candidates of one score are a level, which no
    machine joins any more once its turn has come: it is sorted once and handed out, and no heap has to be searched.
    """

    def __init__(self, racks: Iterable[_Rack], machines: dict[int, Machine], *, removing: bool) -> None:
        """`machines`: by the address in their key."""
        self._machines = machines
        self._removing = removing
        #: How many are left to take.
        self.left = len(machines)
        self._delta = -1 if removing else 1
        self._step = (RACK_STEP * self._delta) << _TIE_BITS
        #: The level whose turn it is, the best last. Keys are unique, so racks are never compared.
        self._level: list[tuple[int, _Rack]] = []
        #: The levels after it, by score: each rack with its best candidate.
        self._later: dict[int, list[tuple[int, _Rack]]] = {}
        for rack in racks:
            rack.keys.sort(reverse=True)
            self._join(rack)

    def _join(self, rack: _Rack) -> None:
        key = rack.keys[-1] + self._step * rack.count
        score = key >> _TIE_BITS
        level = self._later.get(score)
        if level is None:
            self._later[score] = [(key, rack)]
        else:
            level.append((key, rack))

    def take(self) -> Choice | None:
        if not self.left:
            return None
        self.left -= 1
        level = self._level
        if not level:
            level = self._level = self._later.pop(min(self._later))
            level.sort(reverse=True)
        key, rack = level.pop()
        keys, count = rack.keys, rack.count
        keys.pop()
        # The second best right now: the best of another rack, or the next of the same one.
        rival = level[-1] if level else min(self._later[min(self._later)]) if self._later else None
        if keys:
            following = keys[-1] + self._step * count
            if rival is None or following < rival[0]:
                rival = (following, rack)
        choice = self._choice(key, count, rival)
        rack.count = count + self._delta
        if keys:
            self._join(rack)
        return choice

    def _choice(self, key: int, count: int, rival: tuple[int, _Rack] | None) -> Choice:
        machines = self._machines
        if self._removing:
            # The highest address first: it stands in the key as its distance from the last one.
            machine, score = machines[_ADDRESS - (key & _ADDRESS)], BASE + (key >> _TIE_BITS)
            if rival is None:
                return Choice(machine, score, count, removing=True)
            its = rival[0]
            other = machines[_ADDRESS - (its & _ADDRESS)]
            return Choice(machine, score, count, other, BASE + (its >> _TIE_BITS), rival[1].count, True)
        machine, score = machines[key & _ADDRESS], BASE - (key >> _TIE_BITS)
        if rival is None:
            return Choice(machine, score, count)
        its = rival[0]
        return Choice(machine, score, count, machines[its & _ADDRESS], BASE - (its >> _TIE_BITS), rival[1].count)


def to_add(machines: Iterable[Machine], counts: Mapping[Group, int], lives: Lives) -> RackQueue:
    """All machines compete in one role: `counts` is by rack."""
    racks: dict[int, _Rack] = {}
    by_number: dict[int, Machine] = {}
    for m in machines:
        head, _, last = m.address.rpartition(".")
        number = _network(head) + int(last)
        by_number[number] = m
        where = m.rack
        rack = racks.get(where)
        if rack is None:
            rack = racks[where] = _Rack(counts.get(where, 0))
        rack.keys.append((-lives[m.retire_at] << _TIE_BITS) + number)
    return RackQueue(racks.values(), by_number, removing=False)


def to_remove(
    machines: Iterable[Machine],
    group_of: Callable[[Machine], Group],
    counts: Mapping[Group, int],
    lives: Lives,
    first: frozenset[str] = frozenset(),
) -> RackQueue:
    """`first`: addresses that go before others of the same score (removing them is the smaller change)."""
    racks: dict[Group, _Rack] = {}
    by_number: dict[int, Machine] = {}
    for m in machines:
        number = address_number(m.address)
        by_number[number] = m
        value = HEALTHY_BONUS * (m.state == _HEALTHY) + lives[m.retire_at]
        tie = _ADDRESS - number + (_LATER if m.address not in first else 0)
        group = group_of(m)
        rack = racks.get(group)
        if rack is None:
            rack = racks[group] = _Rack(counts.get(group, 0))
        rack.keys.append((value << _TIE_BITS) + tie)
    return RackQueue(racks.values(), by_number, removing=True)


# ── Why this machine, in words ──────────────────────────────────────────────────────────────────────────────────────

_TIE: Final = " scores the same (ties: the smaller change, then the address)"


def choice_in_words(choice: Choice, now: float, before: str) -> str:
    """`<before>score 1003 = (100 − 0 in rack 7) × 10 + 3 (1520 days left), runner-up 10.0.0.9: 993 = …`"""
    machine, other = choice.machine, choice.runner_up
    if other is not None and not choice.removing and choice.runner_up_score == choice.score:
        # Nearly all of a first generation: said without a call for each part.
        return (
            f"{before}score {choice.score} = (100 − {choice.same_rack} in rack {machine.rack}) × 10 "
            f"{_life(machine.retire_at, now)}, runner-up {other.address} in rack {other.rack}{_TIE}"
        )
    mine = _score(machine, choice.score, choice.same_rack, now, removing=choice.removing)
    if other is None:
        return f"{before}score {mine}, no other candidate"
    if choice.runner_up_score == choice.score:
        return f"{before}score {mine}, runner-up {other.address} in rack {other.rack}{_TIE}"
    its = _score(other, choice.runner_up_score, choice.runner_up_same_rack, now, removing=choice.removing)
    return f"{before}score {mine}, runner-up {other.address}: {its}"


def _score(machine: Machine, total: int, same_rack: int, now: float, *, removing: bool) -> str:
    said = f"{total} = (100 − {same_rack} in rack {machine.rack}) × 10 {_life(machine.retire_at, now)}"
    if not removing:
        return said
    return f"{said} + 1000 (healthy)" if machine.state == "HEALTHY" else f"{said} + 0 ({machine.state.lower()})"


@lru_cache(maxsize=1 << 14)
def _life(retire_at: float, now: float) -> str:
    """Machines are bought, and retire, by the hundred."""
    days = days_left(retire_at, now)
    points = life(days)
    sign = f"+ {points}" if points >= 0 else f"− {-points}"
    return f"{sign} ({f'{days} days left' if retire_at else 'no retire date'})"


def listed(items: list[str], most: int = 5) -> str:
    shown = ", ".join(items[:most])
    return f"{shown} and {len(items) - most} more" if len(items) > most else shown
