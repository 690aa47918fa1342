"""balance-leader and hot: who leads what. Both only hand leadership on, which costs next to nothing.

balance-leader evens out how many regions each store leads, by weight; hot evens out what the leaders serve. Neither
gives a leader to a store that is not Up or whose leaders are being taken off, nor takes one from there: that store's
leaders are handoff's task. A store that has just lost leaders gets none before its next heartbeat.
"""

from collections.abc import Iterator

from mooring.capabilities.balance.picture import Picture, Proposal, emptiest, fullest, transfer
from mooring.capabilities.balance.policy import BALANCE_LEADER, HOT
from mooring.capabilities.balance.summary import StoreSummary, flow_of, voters, window
from mooring.core.model.reasons import Reason
from mooring.core.model.tidb import Region


def balance_leader(picture: Picture) -> Iterator[Proposal]:
    """From stores that lead many to those of their followers that lead few; then to stores that lead few."""
    rows = [row for row in picture.summary.stores.values() if row.gives_leaders]
    takers = [row for row in rows if row.takes_leaders]
    search = _Search(
        picture,
        {row.id: picture.leader_score(row) for row in rows},
        frozenset(row.id for row in takers),
        _too_hot(picture, rows),
    )
    full, empty = fullest(iter(rows), picture.leader_score), emptiest(iter(takers), picture.leader_score)
    while (found := search.down(full, empty) or search.up(empty)) is not None:
        region, target = found
        source, scores = region.leader_store, search.scores
        few = f"{scores[source]:g} there, {scores[target]:g} here"
        yield Proposal(BALANCE_LEADER, transfer(region, target), Reason.BALANCE, f"leader {source} to {target}: {few}")
        for store in (source, target):
            scores[store] = picture.leader_score(picture.summary.stores[store])


class _Search:
    """Looks for the next leader to hand on. Most searches find none, so it works on plain scores, by store."""

    def __init__(self, picture: Picture, scores: dict[int, float], takers: frozenset[int], hottest: float) -> None:
        self._picture = picture
        self._stores = picture.summary.stores
        #: Of the stores whose leaders may be handed on, as it will be; and which of them take some.
        self.scores = scores
        self._takers = takers
        self._hottest = hottest

    def down(self, full: list[StoreSummary], empty: list[StoreSummary]) -> tuple[Region, int] | None:
        """Off the stores that lead most, to the least laden of the region's other voters."""
        picture, scores, takers = self._picture, self.scores, self._takers
        least = min((scores[row.id] for row in empty), default=0.0)
        for source in sorted(full, key=lambda row: (-scores[row.id], row.id)):
            if scores[source.id] - least <= picture.policy.leader_tolerance:
                break
            for region_id in window(source.led, picture.turn):
                region = picture.free(region_id)
                if region is not None:
                    target = min((s for s in voters(region) if s in takers), key=self._order, default=source.id)
                    if self._worth_it(region, source.id, target) and picture.may_lead(target, region):
                        return region, target
        return None

    def up(self, empty: list[StoreSummary]) -> tuple[Region, int] | None:
        """To the store that leads least, from the leaders of the regions it holds."""
        target = min(empty, key=lambda row: (self.scores[row.id], row.id), default=None)
        if target is None:
            return None
        least, tolerance = self.scores[target.id], self._picture.policy.leader_tolerance
        givers = {store for store, score in self.scores.items() if score - least > tolerance}
        for region_id in window(target.held, self._picture.turn) if givers else ():
            region = self._picture.free(region_id)
            if region is None or region.leader_store not in givers:
                continue
            fits = target.id in voters(region) and self._worth_it(region, region.leader_store, target.id)
            if fits and self._picture.may_lead(target.id, region):
                return region, target.id
        return None

    def _order(self, store: int) -> tuple[float, int]:
        return self.scores[store], store

    def _worth_it(self, region: Region, source: int, target: int) -> bool:
        """Afterwards the giver must still have no less than the taker: otherwise it would soon come back."""
        gap = self.scores[source] - self.scores[target]
        if gap <= self._picture.policy.leader_tolerance:
            return False
        giver, taker = self._stores[source], self._stores[target]
        cool = self._picture.flow(taker) + flow_of(region) <= self._hottest
        return cool and gap > 1 / giver.leader_weight + 1 / taker.leader_weight


def _too_hot(picture: Picture, rows: list[StoreSummary]) -> float:
    """What a store's leaders may serve before `hot` would take some away: up to there, or both would never end."""
    served = sum(map(picture.flow, rows))
    return picture.policy.hot_ratio * served / len(rows) if served else float("inf")


def hot(picture: Picture) -> Iterator[Proposal]:
    """Off the store whose leaders serve the most, region by region, as long as it serves far more than the mean."""
    while (proposal := _next_hot(picture)) is not None:
        yield proposal


def _next_hot(picture: Picture) -> Proposal | None:
    rows = [row for row in picture.summary.stores.values() if row.gives_leaders]
    if len(rows) < 2:
        return None
    source = max(rows, key=lambda row: (picture.flow(row), -row.id))
    if picture.flow(source) <= _too_hot(picture, rows):
        return None
    for region_id in window(source.hot, picture.turn):
        region = picture.free(region_id)
        if region is None:
            continue
        flow = flow_of(region)
        target = min(picture.heirs(region), key=lambda row: (picture.flow(row), row.id), default=None)
        # A region hotter than the whole difference would only make another store hot.
        if target is not None and picture.flow(target) + flow < picture.flow(source) - flow / 2:
            many = f"store {source.id} serves {picture.flow(source):.3g}, store {target.id} {picture.flow(target):.3g}"
            return Proposal(HOT, transfer(region, target.id), Reason.BALANCE, many)
    return None
