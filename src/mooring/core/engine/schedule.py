"""When the engine does what: keys to evaluate and operators to advance, writes under way, looks at PD and the registry,
and who has to wait before trying again.
"""

import heapq
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from mooring.core.engine.intake import Polled
from mooring.core.model.cluster import Key
from mooring.core.model.decision import Deferred, PdRefresh, Refresh
from mooring.core.model.events import LeadersSeen, MachinesLost, MachinesSeen, PdLost, PdSeen, RegionsSeen
from mooring.core.model.instructions import Instruction, Outcome, ReadLeaders, ReadMachines, ReadPd
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason

#: (capability, key)
Slot = tuple[str, str]
#: The capability name under which operators stand here.
OPERATOR = "op"
#: How long an evaluation may be delayed when only its explanation can change.
LATER_S: Final = 2.0


class WorkList:
    """What the engine has yet to do: keys to evaluate, operators to advance, and when to wake.

    Insertion-ordered throughout, so that equal inputs give equal outputs. A wake-up is kept once per key, the earliest.
    """

    def __init__(self) -> None:
        #: Slot → what affected it.
        self.evaluations: dict[Slot, str] = {}
        self.steps: dict[str, None] = {}
        #: Slot → when its evaluation is due, and what affected it. All wait equally long: the first here is due first.
        self._later: dict[Slot, tuple[float, str]] = {}
        self._heap: list[tuple[float, int, Slot]] = []
        self._wakes: dict[Slot, float] = {}
        self._count = 0

    def evaluate(self, slot: Slot, cause: str) -> None:
        self.evaluations.setdefault(slot, cause)

    def affect(self, capability: str, key: str | Deferred, cause: str, now: float, at: float | None = None) -> None:
        """Evaluate now, or `at` a later time, or a little later if no evaluation comes by before."""
        if isinstance(key, Deferred):
            self._later.setdefault((capability, key.key), (now + LATER_S, cause))
        elif at is None:
            self.evaluate((capability, key), cause)
        else:
            self.wake_at(at, (capability, key))

    def step(self, operator_id: str) -> None:
        self.steps.setdefault(operator_id)

    def drop(self, operator_id: str) -> None:
        self.steps.pop(operator_id, None)

    def next_step(self) -> str | None:
        operator_id = next(iter(self.steps), None)
        if operator_id is not None:
            del self.steps[operator_id]
        return operator_id

    def next_evaluation(self) -> tuple[Slot, str] | None:
        slot = next(iter(self.evaluations), None)
        if slot is None:
            return None
        self._later.pop(slot, None)
        return slot, self.evaluations.pop(slot)

    @property
    def pending(self) -> bool:
        return bool(self.evaluations or self.steps)

    def wake_at(self, at: float, slot: Slot) -> None:
        known = self._wakes.get(slot)
        if known is None or at < known:
            self._wakes[slot] = at
            self._count += 1
            heapq.heappush(self._heap, (at, self._count, slot))

    def ripen(self, now: float) -> None:
        """No evaluation has come by: now it is due."""
        while self._later:
            slot, (due, cause) = next(iter(self._later.items()))
            if due > now:
                return
            del self._later[slot]
            self.evaluate(slot, cause)

    def due(self, now: float) -> Iterator[Slot]:
        while self._heap and self._heap[0][0] <= now:
            at, _, slot = heapq.heappop(self._heap)
            if self._wakes.get(slot) == at:  # else an earlier one has been set since
                del self._wakes[slot]
                yield slot

    def next_wake(self) -> float | None:
        while self._heap and self._wakes.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        later = next(iter(self._later.values())) if self._later else None
        return soonest(self._heap[0][0] if self._heap else None, None if later is None else later[0])


def soonest(*times: float | None) -> float | None:
    """None: never. Asked at every turn, so without a list."""
    first = None
    for at in times:
        if at is not None and (first is None or at < first):
            first = at
    return first


LONGEST_RETRY_S: Final = 30.0
#: An event is acted on after this long, however often the write was refused: an interruption notice leaves two minutes.
LONGEST_REST_S: Final = 5.0
_UNWELL: Final = frozenset({Reason.BACK_OFF, Reason.FAILED, Reason.UNKNOWN})


class InFlightWrites:
    """Writes under way. A capability that waits for one is not asked again before it has ended, so nothing is asked for
    twice.

    A refused write is retried after 1 s, 2 s, … 30 s, or after what the server asked for. An event may end that wait
    early: a conflict brings the current object, and the retry carries its version. If the server itself is failing or
    sent Retry-After, no event shortens the wait; without Retry-After it is five seconds at most.
    """

    def __init__(self, worklist: WorkList) -> None:
        self._worklist = worklist
        self._waiter_of: dict[str, Slot] = {}
        self._under_way: dict[Slot, int] = {}
        self._back_off: dict[Slot, float] = {}
        #: Not to be asked before.
        self._rests: dict[Slot, float] = {}

    def begin(self, instruction: str, waiter: Slot) -> None:
        self._waiter_of[instruction] = waiter
        self._under_way[waiter] = self._under_way.get(waiter, 0) + 1

    def busy(self, waiter: Slot, now: float) -> bool:
        """Not to be asked now. One that rests is asked once it has rested; an outstanding write asks by itself."""
        if waiter in self._under_way:
            return True
        until = self._rests.get(waiter)
        if until is None:
            return False
        if until > now:
            self._worklist.wake_at(until, waiter)
            return True
        del self._rests[waiter]
        return False

    def end(self, outcome: Outcome, now: float) -> tuple[Slot, float] | None:
        """The slot that waited for it, and the delay before a retry (0: none). None: it was issued before this replica
        led."""
        waiter = self._waiter_of.pop(outcome.instruction, None)
        if waiter is None:
            return None
        left = self._under_way[waiter] - 1
        if left:
            self._under_way[waiter] = left
        else:
            del self._under_way[waiter]
        if outcome.reason is None:
            self._back_off.pop(waiter, None)
            return waiter, 0.0
        wait = max(outcome.retry_after_s, min(LONGEST_RETRY_S, 2 * self._back_off.get(waiter, 0.5)))
        self._back_off[waiter] = wait
        if outcome.reason in _UNWELL:
            self._rests[waiter] = now + max(outcome.retry_after_s, min(wait, LONGEST_REST_S))
        return waiter, wait

    def forget(self, waiter: Slot) -> None:
        self._back_off.pop(waiter, None)
        self._rests.pop(waiter, None)


#: Between an answer and the next read of the same PD.
MOMENT_S: Final = 0.5


class LeadersOf(NamedTuple):
    """A system with leaders, as something to be read."""

    workload: Key


_Read = Key | LeadersOf


class RefreshSchedule:
    """Requests to read PD or the machine registry, turned into one read at a time, never two at once.

    However many ask for one, a PD is read again only a moment after it has answered: what was written meanwhile is then
    in the answer, and a capability that always wants a fresher view cannot loop.
    """

    def __init__(self) -> None:
        #: By what is read: a PD (its cluster) or a system with leaders.
        self._not_before: dict[_Read, float] = {}
        self._due: dict[_Read, float] = {}
        self._asked: set[_Read] = set()
        #: Stores whose regions are to be counted with the next look, whoever asks for it.
        self._stores: dict[Key, set[int]] = {}
        self._machines_due: float | None = None
        self._machines_asked = False

    def request(self, refreshes: Iterable[Refresh]) -> None:
        for refresh in refreshes:
            what = refresh.cluster if isinstance(refresh, PdRefresh) else LeadersOf(refresh.workload)
            at = max(refresh.at, self._not_before.get(what, refresh.at))
            due = self._due.get(what)
            if due is None or at < due:
                self._due[what] = at
            if isinstance(refresh, PdRefresh) and refresh.stores:
                self._stores.setdefault(refresh.cluster, set()).update(refresh.stores)

    def request_machines(self, at: float) -> None:
        if self._machines_due is None or at < self._machines_due:
            self._machines_due = at

    def answered(self, event: Polled, now: float) -> None:
        match event:
            case LeadersSeen(workload=workload):
                self._answered(LeadersOf(workload), now)
            case PdSeen(cluster=cluster) | PdLost(cluster=cluster):
                self._answered(cluster, now)
            case MachinesSeen() | MachinesLost():
                self._machines_asked = False
            case RegionsSeen():
                pass  # asked for by instruction, not by schedule

    def _answered(self, what: _Read, now: float) -> None:
        self._asked.discard(what)
        not_before = self._not_before[what] = now + MOMENT_S
        if what in self._due:
            self._due[what] = max(self._due[what], not_before)

    def ask(self, now: float) -> Iterable[Instruction]:
        for what in [one for one, at in self._due.items() if at <= now and one not in self._asked]:
            del self._due[what]
            self._asked.add(what)
            if isinstance(what, LeadersOf):
                cause = f"leaders/{what.workload}"
                yield ReadLeaders(workload=what.workload, cause=cause, why="looks at who leads")
                continue
            stores = tuple(sorted(self._stores.pop(what, ())))
            yield ReadPd(cluster=what, stores=stores, cause=f"pd/{what}", why="looks at PD")
        if self._machines_due is not None and self._machines_due <= now and not self._machines_asked:
            self._machines_due = None
            self._machines_asked = True
            yield ReadMachines(cause="machines", why="asks the machine registry")

    def next_due(self) -> float | None:
        times = [at for what, at in self._due.items() if what not in self._asked]
        if self._machines_due is not None and not self._machines_asked:
            times.append(self._machines_due)
        return min(times, default=None)


#: Slots remembered per source; beyond that the order begins again.
_MOST_DEFERRED: Final = 4096


class CapBacklog:
    """Slots deferred because their source's cap of waiting operators was reached, and the order in which they retry.

    One key may propose dozens of operators and another a single one (a node with fifty pods, a control plane to be
    replaced). Retried in a fixed order, the first key would take every free place for hours. So the slot that was last
    admitted longest ago goes first.
    """

    def __init__(self) -> None:
        #: Source → deferred slots, in order.
        self._away: dict[str, dict[Slot, None]] = {}
        #: Source → slots that were ever deferred → the number of the last operator that each got admitted.
        self._served: dict[str, dict[Slot, int]] = {}

    def defer(self, source: str, slot: Slot) -> None:
        self._away.setdefault(source, {})[slot] = None
        served = self._served.setdefault(source, {})
        if len(served) >= _MOST_DEFERRED:
            served.clear()
        served.setdefault(slot, 0)

    def admitted(self, source: str, slot: Slot, number: int) -> None:
        served = self._served.get(source)
        if served is not None and slot in served:
            served[slot] = number

    def ready(self, source: str) -> list[Slot]:
        """There is room again: all deferred slots of the source, in the order in which they retry."""
        away = self._away.pop(source, None)
        if away is None:
            return []
        served = self._served[source]
        return sorted(away, key=lambda slot: served.get(slot, 0))


FREE: Final = 3
#: Failures in a row, whatever their subjects, before their source backs off.
FREE_TOGETHER: Final = 10
WINDOW_S: Final = 60.0
FIRST_BACK_OFF_S: Final = 60.0
LONGEST_BACK_OFF_S: Final = 3600.0
_MOST_REPEATED: Final = 4096

#: What is repeated: source, kind, subject.
Repeated = tuple[str, str, str]


class Repeats(msgspec.Struct, frozen=True, gc=False):
    times: int
    since: float
    wait_s: float = 0.0
    until: float = 0.0


class Repetitions:
    """Back-off for repeated proposals: an operator that is proposed again and again for one subject, without any write
    in between, is slowed down and reported.

    The first repetitions are free: a capability may change its mind while the world settles. From the fourth within a
    minute on, the subject backs off: a minute, doubling to an hour. A write on its behalf, or an hour without
    repetitions, resets it.

    So does a whole source in one cluster or namespace whose operators fail, one after the other and each about another
    object, before anything was written: a PD that refuses every move is not asked for the next one at once.
    """

    def __init__(self) -> None:
        self._idle: dict[Repeated, Repeats] = {}
        #: How often a subject had to back off, since this replica leads.
        self.backed_off = 0

    def ended(self, operator: Operator, now: float, *, acted: bool, failed: bool = False) -> None:
        """An operator is over. `acted`: something was written in its name. `failed`: what it asked for was refused."""
        what, together = _names(operator)
        if acted:
            self._idle.pop(what, None)
            self._idle.pop(together, None)
            return
        self._count(what, now, FREE)
        if failed:
            self._count(together, now, FREE_TOGETHER)

    def _count(self, what: Repeated, now: float, free: int) -> None:
        count = self._idle.pop(what, None)
        if count is None or now - max(count.since, count.until) > (LONGEST_BACK_OFF_S if count.wait_s else WINDOW_S):
            count = Repeats(0, now)
        count = msgspec.structs.replace(count, times=count.times + 1)
        if count.times > free:
            wait_s = min(LONGEST_BACK_OFF_S, 2 * count.wait_s) if count.wait_s else FIRST_BACK_OFF_S
            count = msgspec.structs.replace(count, wait_s=wait_s, until=now + wait_s)
            self.backed_off += 1
        self._idle[what] = count
        if len(self._idle) > _MOST_REPEATED:
            del self._idle[next(iter(self._idle))]

    def back_off_until(self, operator: Operator, now: float) -> float | None:
        """When this may be proposed again; None: now."""
        counts = (self._idle.get(name) for name in _names(operator))
        return max((count.until for count in counts if count is not None and count.until > now), default=None)

    def times(self, operator: Operator) -> int:
        return max(count.times if (count := self._idle.get(name)) is not None else 0 for name in _names(operator))


def _names(operator: Operator) -> tuple[Repeated, Repeated]:
    """The operator itself, and its source in its cluster or namespace."""
    return (operator.source, operator.kind, operator.subject), (operator.source, operator.kind, f"/{operator.quota}")
