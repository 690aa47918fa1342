"""Facts: what is already broken takes room on a target unconditionally.

An object is charged once per target: the larger of its facts and its operator. So what an operator adds is its cost
minus what its own subject's facts charge there already, and one that adds nothing passes: a repair is never blocked by
the fault that it repairs. Facts that no running operator answers for are *unowned*; an operator that unowned facts
alone keep out is parked, since a fact has no time-out.
"""

from collections.abc import Iterable, Mapping

from mooring.core.model.decision import Fact
from mooring.core.queue.lane import Lane


class FactBook:
    """The facts of all targets, by subject, and which lanes are to be looked at again because of them."""

    def __init__(self, lanes: Mapping[str, Lane]) -> None:
        self._lanes = lanes
        #: subject → target → amount. Facts without a subject ("") are not in it.
        self._of: dict[str, dict[str, int]] = {}
        #: How many facts there are. Looked at several times an operator, so it is a plain attribute.
        self.count = 0
        self.dirty: dict[str, Lane] = {}

    def need(self, claims: Iterable[str], cost: Mapping[str, int]) -> Mapping[str, int]:
        """What an operator with these claims adds on each target; the cost itself when no fact is its own."""
        if not self._of:
            return cost
        own: dict[str, int] = {}
        for claim in claims:
            for target, amount in self._of.get(claim, {}).items():
                own[target] = own.get(target, 0) + amount
        if not own:
            return cost
        return {target: amount - own.get(target, 0) for target, amount in cost.items() if amount > own.get(target, 0)}

    def keeps_out(self, need: Mapping[str, int]) -> bool:
        """Whether unowned facts alone leave no room for it, even if nothing else ran or waited."""
        if not self.count:
            return False
        lanes = self._lanes
        return any(
            lane.unowned and lane.unowned + amount > lane.cap for t, amount in need.items() if (lane := lanes[t])
        )

    def write(self, lane: Lane, fact: Fact) -> int:
        """Note a fact (an amount of 0 removes it) and return by how much the target's facts rose."""
        before = lane.facts.get(fact.subject)
        if fact.amount:
            lane.facts[fact.subject] = fact
        else:
            lane.facts.pop(fact.subject, None)
        delta = fact.amount - (before.amount if before else 0)
        self.count += (1 if fact.amount else 0) - (1 if before else 0)
        if not delta:
            return 0
        lane.fact_total += delta
        lane.unowned += delta
        if fact.subject:
            mine = self._of.setdefault(fact.subject, {})
            mine[lane.name] = fact.amount
            if not fact.amount:
                del mine[lane.name]
                if not mine:
                    del self._of[fact.subject]
        self.touch(lane)
        return delta

    def recount_unowned(self, touched: Iterable[str]) -> None:
        """An operator began, advanced, ended, or its own facts changed: see again which facts are unowned there."""
        for target in touched:
            lane = self._lanes[target]
            if not lane.facts and not lane.unowned:
                continue
            answered = sum(e.cost[target] - e.need.get(target, 0) for e in lane.running.values())
            unowned = lane.fact_total - answered
            if unowned != lane.unowned:
                lane.unowned = unowned
                self.touch(lane)

    def touch(self, lane: Lane) -> None:
        """Operators that wait on this lane are to be checked again whether facts keep it out."""
        if lane.facts or lane.parked:
            self.dirty[lane.name] = lane

    def settled(self) -> Iterable[Lane]:
        """The lanes to look at, each handed out once."""
        dirty = self.dirty
        while dirty:
            yield dirty.pop(next(iter(dirty)))
