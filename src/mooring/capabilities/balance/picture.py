"""What every scheduler is given, and what it answers with.

A scheduler is a generator: `for move in scheduler(picture)` yields one move after another, the most useful first, and
between two of them the caller adds the move to the influence, so that the next one is chosen as if it had been made.
It knows nothing of limits: the queue lets pass what fits.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from mooring.capabilities.balance.placement import RegionReplica, replicas_of
from mooring.capabilities.balance.policy import BalancePolicy
from mooring.capabilities.balance.summary import StoreSummary, Summary, flow_of, voters, weight_of
from mooring.core.model.operator import Operator, Step, StepKind
from mooring.core.model.reasons import Reason
from mooring.core.model.tidb import Region
from mooring.core.queue import RegionMove

# ── Influence ───────────────────────────────────────────────────────────────────────────────────────────────────────
#
# What waiting and running operators will have changed once they are done, so that no imbalance is corrected twice.
#
# Each operator counts by what is still missing of it: a step whose effect the region already shows counts no more, so
# nothing is counted twice while an operator is half done, and nothing has to be remembered.

_RECEIVES = frozenset({StepKind.ADD_LEARNER, StepKind.ADD_PEER})


class Influence:
    def __init__(self, summary: Summary) -> None:
        self._summary = summary
        self.leaders: dict[int, int] = {}
        self.size_mib: dict[int, int] = {}
        self.flow: dict[int, int] = {}
        #: Regions with an operator already, ours or not.
        self.busy: set[int] = set()

    def add(self, regions: Iterable[int], steps: Iterable[Step]) -> None:
        regions = tuple(regions)
        self.busy.update(regions)
        region = self._summary.regions.get(regions[0]) if regions else None
        if region is None:
            return
        size, flow, leader = weight_of(region), flow_of(region), region.leader_store
        holders = {p.store_id for p in region.peers}
        for step in steps:
            if step.kind in _RECEIVES and step.store is not None and step.store not in holders:
                _count(self.size_mib, step.store, size)
            elif step.kind is StepKind.REMOVE_PEER and step.store in holders:
                _count(self.size_mib, step.store, -size)
            elif step.kind is StepKind.TRANSFER_LEADER and step.to_store is not None and leader != step.to_store:
                _count(self.leaders, leader, -1)
                _count(self.leaders, step.to_store, 1)
                _count(self.flow, leader, -flow)
                _count(self.flow, step.to_store, flow)
                leader = step.to_store

    def add_operators(self, operators: Iterable[Operator], prefix: str) -> None:
        """Those that claim regions under `prefix` ("region/<cluster>/")."""
        for operator in operators:
            if operator.subject.startswith(prefix):
                self.add((int(c.removeprefix(prefix)) for c in operator.claims), operator.steps)


def _count(figures: dict[int, int], store: int, by: int) -> None:
    figures[store] = figures.get(store, 0) + by


#: How many of the fullest and of the emptiest stores one look weighs against each other.
FULLEST: Final = 8
EMPTIEST: Final = 32

Score = Callable[[StoreSummary], float]


class Proposal(msgspec.Struct, frozen=True, gc=False):
    """A move that a scheduler would like, with its reason in words."""

    source: str
    move: RegionMove
    reason: Reason
    detail: str


class Picture(msgspec.Struct, frozen=True):
    """A cluster as it is, as it will be once everything under way is done, and which part of it to look at now."""

    summary: Summary
    influence: Influence
    #: Counts looks: each one begins its search somewhere else.
    turn: int = 0

    @property
    def policy(self) -> BalancePolicy:
        return self.summary.policy

    def leader_score(self, row: StoreSummary) -> float:
        return (len(row.led) + self.influence.leaders.get(row.id, 0)) / row.leader_weight

    def region_score(self, row: StoreSummary) -> float:
        return (row.size_mib + self.influence.size_mib.get(row.id, 0)) / row.region_weight

    def flow(self, row: StoreSummary) -> float:
        return row.flow + self.influence.flow.get(row.id, 0)

    def free(self, region_id: int) -> Region | None:
        """The region, if it is known, healthy, with a leader and no operator, and may be moved at all."""
        region = self.summary.regions.get(region_id)
        if region is None or region_id in self.influence.busy or not region.leader_store:
            return None
        if region.pending_peers or region.down_peers:
            return None
        return None if self.summary.rules is not None and self.summary.rules.denies(region) else region

    def fits(self, store_id: int, region: Region, instead_of: int) -> bool:
        """May a replica go there, with PD's rules still fitted and the others no closer together than now?"""
        stores, others = self.summary.stores, [p.store_id for p in region.peers if p.store_id != instead_of]
        if store_id == instead_of or store_id in others or stores[store_id].apart != stores[instead_of].apart:
            return False
        if self.summary.shared(store_id, others) > self.summary.shared(instead_of, others):
            return False
        replicas = replicas_of(region)
        moved = [RegionReplica(store_id, r.role, r.leads) if r.store == instead_of else r for r in replicas]
        return self._keeps_rules(region, replicas, moved)

    def may_lead(self, store_id: int, region: Region) -> bool:
        """Do PD's rules allow this store's replica to lead?"""
        rules = self.summary.rules
        if rules is None or all(rule.role in ("voter", "learner") for rule in rules.of(region)):
            return True
        replicas = replicas_of(region)
        moved = [RegionReplica(r.store, r.role, r.store == store_id) for r in replicas]
        return self._keeps_rules(region, replicas, moved)

    def _keeps_rules(self, region: Region, now: list[RegionReplica], then: list[RegionReplica]) -> bool:
        rules = self.summary.rules
        if rules is None:
            return True
        labels = {r.store: self.summary.stores[r.store].labels for r in (*now, *then)}
        before, after = rules.fit(region, now, labels), rules.fit(region, then, labels)
        return before is not None and after is not None and after >= before

    def heirs(self, region: Region) -> list[StoreSummary]:
        """Stores with a voter that could lead instead of the one that does, the least laden first."""
        stores = self.summary.stores
        rows = [stores[s] for s in voters(region) if s != region.leader_store and stores[s].takes_leaders]
        rows = [row for row in rows if self.may_lead(row.id, region)]
        return sorted(rows, key=lambda row: (self.leader_score(row), row.id))


def fullest(rows: Iterator[StoreSummary], score: Score, count: int = FULLEST) -> list[StoreSummary]:
    return sorted(rows, key=lambda row: (-score(row), row.id))[:count]


def emptiest(rows: Iterator[StoreSummary], score: Score, count: int = EMPTIEST) -> list[StoreSummary]:
    return sorted(rows, key=lambda row: (score(row), row.id))[:count]


# ── Moves ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def transfer(region: Region, to: int) -> RegionMove:
    return _move(region, Step(StepKind.TRANSFER_LEADER, None, region.leader_store, to))


def move_peer(region: Region, source: int, to: int) -> RegionMove:
    """A replica from one store to another, which must not lead it, unless there is no other replica.

    A leader that has to go steps aside first, by an operator of its own: in a combined one PD chooses who follows it,
    and the cost would be charged to a store that may not be the one.
    """
    add, promote = Step(StepKind.ADD_LEARNER, to), Step(StepKind.PROMOTE_LEARNER, to)
    remove = Step(StepKind.REMOVE_PEER, source)
    if any(p.role == "Learner" for p in region.peers if p.store_id == source):
        return _move(region, add, remove)
    if region.leader_store != source:
        return _move(region, add, promote, remove)
    return _move(region, add, promote, Step(StepKind.TRANSFER_LEADER, None, source, to), remove)


def add_peer(region: Region, to: int) -> RegionMove:
    return _move(region, Step(StepKind.ADD_LEARNER, to), Step(StepKind.PROMOTE_LEARNER, to))


def remove_peer(region: Region, source: int) -> RegionMove:
    return _move(region, Step(StepKind.REMOVE_PEER, source))


def merge(region: Region, into: Region) -> RegionMove:
    return msgspec.structs.replace(_move(region, Step(StepKind.MERGE_REGION)), regions=(region.id, into.id))


def split(region: Region) -> RegionMove:
    return _move(region, Step(StepKind.SPLIT_REGION))


def _move(region: Region, *steps: Step) -> RegionMove:
    return RegionMove((region.id,), steps, region.leader_store, tuple(p.store_id for p in region.peers))
