"""`why`: for every waiting operator, the first target that keeps it out, and the sum that shows it.

    needs 8 · used 18 (op 41: 10, op 39: 8) · reserved 0 · limit 20 → 6 missing

`used` is what is charged on the target now, `reserved` what those waiting ahead will need there. One reason by fixed
precedence: a fact, then a full target, then an operator ahead, then "nothing is promoted yet".
"""

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from mooring.core.model.decision import WAITING, Fact, OperatorRecord
from mooring.core.model.reasons import Reason
from mooring.core.queue import targets
from mooring.core.queue.lane import Lane

if TYPE_CHECKING:
    from mooring.core.queue.queue import Queue

#: Naming more than this does not help; the rest is a number.
MOST_NAMED = 20


class Why(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Why an operator waits. With reason `not-synced` nothing is in its way: the queue is held as a whole."""

    id: str
    reason: Reason
    target: str = ""
    needs: int = 0
    used: int = 0
    reserved: int = 0
    limit: int | None = None
    #: Running ids on the target by promotion, then those waiting ahead on it; at most 20, and `more` beyond them.
    blocked_by: tuple[str, ...] = ()
    more: int = 0
    #: What each running operator on the target is charged there.
    holders: tuple[tuple[str, int], ...] = ()
    facts: tuple[Fact, ...] = ()
    #: It keeps its place, reserves nothing, and does not count against its source's cap.
    parked: bool = False

    @property
    def missing(self) -> int:
        return 0 if self.limit is None else max(0, self.used + self.reserved + self.needs - self.limit)

    def sum(self) -> str:
        """The sum on one line, with the contract's field names."""
        parts = [f"op {name}: {cost}" for name, cost in self.holders]
        parts += [f"{fact.detail or fact.subject or 'a fact'}: {fact.amount}" for fact in self.facts]
        made_of = f" ({', '.join(parts)})" if parts else ""
        limit = "none" if self.limit is None else str(self.limit)
        return (
            f"needs {self.needs} · used {self.used}{made_of} · reserved {self.reserved} · limit {limit}"
            f" → {self.missing} missing"
        )

    def line(self) -> str:
        """The answer first: what it waits for, and for whom."""
        if not self.target:
            return f"op {self.id} is waiting: nothing is promoted yet"
        if self.reason is Reason.FACT:
            first = self.facts[0]
            others = f" and {len(self.facts) - 1} more" if len(self.facts) > 1 else ""
            broken = first.detail or first.subject or "something is broken"
            return f"op {self.id} is waiting for {self.target}: {broken}{others}"
        ahead = ", ".join(f"op {name}" for name in self.blocked_by[:3])
        rest = len(self.blocked_by) + self.more - 3
        others = f" and {rest} more" if rest > 0 else ""
        return f"op {self.id} is waiting for {self.target}: behind {ahead}{others}" if ahead else self.sum()


def why(queue: "Queue", op_id: str) -> Why | None:
    """Why one operator waits; None when it does not. The work is the length of its own lines."""
    record = queue.records.by_id.get(op_id)
    if record is None or record.state != WAITING:
        return None
    ahead: dict[str, _Ahead] = {}
    for target in record.need:
        ahead[target] = line = _Ahead(queue.lanes[target])
        for other in line.lane.waiting():
            if other.key >= record.key:
                break
            line.add(other)
    return _explain(record, ahead)


def why_all(queue: "Queue") -> dict[str, Why]:
    """Why each waiting operator waits, in queue order: one walk over the queue."""
    ahead: dict[str, _Ahead] = {}
    answers: dict[str, Why] = {}
    for record in queue.records.waiting():
        for target in record.need:
            if target not in ahead:
                ahead[target] = _Ahead(queue.lanes[target])
        answers[record.operator.id] = _explain(record, ahead)
        if not record.parked:
            for target in record.need:
                ahead[target].add(record)
    return answers


class _Ahead:
    """The operators ahead of another one on one lane: the first few by id, the rest as a number."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.reserved = 0
        self.count = len(lane.running)
        self.named: list[str] = list(islice(lane.running, MOST_NAMED))

    def add(self, record: OperatorRecord) -> None:
        self.reserved += record.need[self.lane.name]
        self.count += 1
        if len(self.named) < MOST_NAMED:
            self.named.append(record.operator.id)


def _explain(record: OperatorRecord, ahead: Mapping[str, _Ahead]) -> Why:
    first: _Ahead | None = None
    for target in sorted(record.need, key=targets.order):
        line, needs = ahead[target], record.need[target]
        lane = line.lane
        if record.parked:
            if lane.unowned and lane.unowned + needs > lane.cap:
                return _answer(record, line, Reason.FACT)
        elif lane.used + line.reserved + needs > lane.cap:
            first = line
            break
    if first is None:
        return Why(id=record.operator.id, reason=Reason.NOT_SYNCED, parked=record.parked)
    full = first.lane.used + record.need[first.lane.name] > first.lane.cap
    return _answer(record, first, Reason.TARGET_FULL if full else Reason.BEHIND)


def _answer(record: OperatorRecord, line: _Ahead, reason: Reason) -> Why:
    lane = line.lane
    named = line.named
    return Why(
        id=record.operator.id,
        reason=reason,
        target=lane.name,
        needs=record.need[lane.name],
        used=lane.used,
        reserved=line.reserved,
        limit=lane.limit,
        blocked_by=tuple(named),
        more=line.count - len(named),
        holders=tuple((name, lane.running[name].need.get(lane.name, 0)) for name in named if name in lane.running),
        facts=tuple(fact for fact in lane.facts.values() if fact.subject not in record.claims),
        parked=record.parked,
    )
