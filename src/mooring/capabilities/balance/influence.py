"""What waiting and running operators will have changed once they are done, so that no imbalance is corrected twice.

Each operator counts by what is still missing of it: a step whose effect the region already shows counts no more, so
nothing is counted twice while an operator is half done, and nothing has to be remembered.
"""

from collections.abc import Iterable

from mooring.capabilities.balance.summary import Summary, flow_of, weight_of
from mooring.core.model.operator import Operator, Step, StepKind

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
