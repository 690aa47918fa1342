"""One record per operator, from proposal to end, found by its id and by what it claims."""

from collections.abc import Mapping, Sequence
from math import inf
from operator import attrgetter
from typing import Final

from mooring.core.model.decision import WAITING, OperatorRecord
from mooring.core.model.operator import Operator

BY_KEY: Final = attrgetter("key")


class Records:
    def __init__(self) -> None:
        self.by_id: dict[str, OperatorRecord] = {}
        #: Region or object → who claims it, waiting or running.
        self.by_claim: dict[str, OperatorRecord] = {}
        #: By promotion.
        self.running: dict[str, OperatorRecord] = {}
        #: (source, quota) → how many of it count against the cap: those that wait and are not parked.
        self.waiting_count: dict[tuple[str, str], int] = {}
        self._arrivals = 0

    def add(self, operator: Operator, claims: tuple[str, ...], cost: Mapping[str, int], phase: int) -> OperatorRecord:
        """Make it known under its id and its claims. It stands in no line yet."""
        self._arrivals += 1
        record = OperatorRecord(
            operator=operator,
            key=(inf if operator.deadline is None else operator.deadline, self._arrivals),
            claims=claims,
            cost=cost,
            need=cost,
            phase=phase,
        )
        self.by_id[operator.id] = record
        for claim in claims:
            self.by_claim[claim] = record
        return record

    def drop(self, record: OperatorRecord) -> None:
        del self.by_id[record.operator.id]
        for claim in record.claims:
            del self.by_claim[claim]

    def waiting(self) -> list[OperatorRecord]:
        """In queue order, parked ones at their place."""
        return sorted((record for record in self.by_id.values() if record.state == WAITING), key=BY_KEY)

    def beside(self, operator: Operator, replaced: Sequence[OperatorRecord]) -> int:
        """How many would count against the cap beside this one, without those that it replaces."""
        mine = (operator.source, operator.quota)
        gone = (one for one in replaced if one.state == WAITING and not one.parked)
        return self.waiting_count.get(mine, 0) - sum((o.operator.source, o.operator.quota) == mine for o in gone)

    def count(self, record: OperatorRecord) -> None:
        operator, counts = record.operator, self.waiting_count
        counted = (operator.source, operator.quota)
        counts[counted] = counts.get(counted, 0) + 1

    def uncount(self, record: OperatorRecord) -> None:
        operator, counts = record.operator, self.waiting_count
        counted = (operator.source, operator.quota)
        left = counts[counted] - 1
        if left:
            counts[counted] = left
        else:
            del counts[counted]

    def arrival(self) -> int:
        self._arrivals += 1
        return self._arrivals
