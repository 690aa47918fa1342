"""balance-leader and hot: who leads what. Both only hand leadership on, which costs next to nothing.

balance-leader evens out how many regions each store leads, by weight; hot evens out what the leaders serve. Neither
gives a leader to a store that is not Up or whose leaders are being taken off, nor takes one from there: that store's
leaders are somebody else's business.
"""

from collections.abc import Iterator

from mooring.balance.picture import Picture, Wish, emptiest, fullest, transfer
from mooring.balance.policy import BALANCE_LEADER, HOT
from mooring.balance.summary import StoreRow, flow_of, window
from mooring.model.reasons import Reason
from mooring.traffic import RegionMove


def balance_leader(picture: Picture) -> Iterator[Wish]:
    """From stores that lead many to those of their followers that lead few; then to stores that lead few."""
    rows = [row for row in picture.summary.stores.values() if row.takes_leaders]
    full, empty = fullest(iter(rows), picture.leader_score), emptiest(iter(rows), picture.leader_score)
    hottest = _too_hot(picture, rows)
    while (found := _next(picture, full, empty, hottest)) is not None:
        move, source, target = found
        few = f"{picture.leader_score(source):g} there, {picture.leader_score(target):g} here"
        yield Wish(BALANCE_LEADER, move, Reason.BALANCE, f"leader from store {source.id} to {target.id}: {few}")


def _next(
    picture: Picture, full: list[StoreRow], empty: list[StoreRow], hottest: float
) -> tuple[RegionMove, StoreRow, StoreRow] | None:
    least = min((picture.leader_score(row) for row in empty), default=0.0)
    for source in sorted(full, key=lambda row: (-picture.leader_score(row), row.id)):
        if picture.leader_score(source) - least <= picture.policy.leader_tolerance:
            break
        for region_id in window(source.led, picture.turn):
            region = picture.free(region_id)
            if region is not None:
                for target in picture.heirs(region)[:1]:
                    if _worth_it(picture, source, target) and picture.flow(target) + flow_of(region) <= hottest:
                        return transfer(region, target.id), source, target
    for target in sorted(empty, key=lambda row: (picture.leader_score(row), row.id)):
        for region_id in window(target.held, picture.turn) if picture.leader_score(target) <= least else ():
            region = picture.free(region_id)
            if region is None or region.leader_store == target.id:
                continue
            source, heirs = picture.summary.stores[region.leader_store], picture.heirs(region)
            cool = picture.flow(target) + flow_of(region) <= hottest
            if source.takes_leaders and target in heirs and cool and _worth_it(picture, source, target):
                return transfer(region, target.id), source, target
    return None


def _worth_it(picture: Picture, source: StoreRow, target: StoreRow) -> bool:
    """Afterwards the giver must still have no less than the taker: otherwise it would soon come back."""
    gap = picture.leader_score(source) - picture.leader_score(target)
    moved = 1 / source.leader_weight + 1 / target.leader_weight
    return gap > max(moved, picture.policy.leader_tolerance)


def _too_hot(picture: Picture, rows: list[StoreRow]) -> float:
    """What a store's leaders may serve before `hot` would take some away: up to there, or both would never end."""
    served = sum(map(picture.flow, rows))
    return picture.policy.hot_ratio * served / len(rows) if served else float("inf")


def hot(picture: Picture) -> Iterator[Wish]:
    """Off the store whose leaders serve the most, region by region, as long as it serves far more than the mean."""
    while (wish := _next_hot(picture)) is not None:
        yield wish


def _next_hot(picture: Picture) -> Wish | None:
    rows = [row for row in picture.summary.stores.values() if row.takes_leaders]
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
            return Wish(HOT, transfer(region, target.id), Reason.BALANCE, many)
    return None
