"""balance-region and replica: where the data lies.

balance-region evens out how much each store holds, by weight, in MiB, since regions differ in size. replica repairs:
peers leave stores that are Offline or Down, regions with too few get one, regions with too many lose one.
"""

from collections.abc import Iterable, Iterator

from mooring.capabilities.balance import picture as moves
from mooring.capabilities.balance.picture import (
    Picture,
    Proposal,
    add_peer,
    emptiest,
    fullest,
    move_peer,
    remove_peer,
    transfer,
)
from mooring.capabilities.balance.policy import BALANCE_REGION, MERGE, REPLICA, SPLIT
from mooring.capabilities.balance.summary import LEAVING, StoreSummary, voters, weight_of, window
from mooring.core.model.reasons import Reason
from mooring.core.model.tidb import Region
from mooring.core.queue import RegionMove

#: Placements that one look weighs.
TRIES = 1500


def balance_region(picture: Picture) -> Iterator[Proposal]:
    """From the fullest stores to the emptiest that may hold the region, followers only; TiFlash among itself."""
    for apart in (False, True):
        rows = [row for row in picture.summary.stores.values() if row.up and row.apart == apart]
        takers = (row for row in rows if row.takes_peers)
        full, empty = fullest(iter(rows), picture.region_score), emptiest(takers, picture.region_score)
        tries = _Tries()
        while (found := _next(picture, full, empty, tries)) is not None:
            move, source, target = found
            much = f"{picture.region_score(source):.0f} MiB there, {picture.region_score(target):.0f} here"
            yield Proposal(BALANCE_REGION, move, Reason.BALANCE, f"peer from store {source.id} to {target.id}: {much}")


class _Tries:
    """So many placements are weighed in one look; the next one begins its search elsewhere."""

    def __init__(self, left: int = TRIES) -> None:
        self._left = left

    def another(self) -> bool:
        self._left -= 1
        return self._left >= 0


def _next(
    picture: Picture, full: list[StoreSummary], empty: list[StoreSummary], tries: _Tries
) -> tuple[RegionMove, StoreSummary, StoreSummary] | None:
    targets = sorted(empty, key=lambda row: (picture.region_score(row), row.id))
    least = picture.region_score(targets[0]) if targets else 0.0
    slack = picture.policy.region_tolerance * picture.summary.mean_mib
    for source in sorted(full, key=lambda row: (-picture.region_score(row), row.id)):
        if picture.region_score(source) - least <= slack:
            return None
        for region_id in window(source.held, picture.turn):
            region = picture.free(region_id)
            if region is None or not _movable(region, source):
                continue
            for target in targets:
                if not _worth_it(picture, source, target, weight_of(region), slack):
                    break
                if not tries.another():
                    return None
                if picture.fits(target.id, region, source.id):
                    return move_peer(region, source.id, target.id), source, target
    return None


def _worth_it(picture: Picture, source: StoreSummary, target: StoreSummary, size: int, slack: float) -> bool:
    """Afterwards the giver must still have no less than the taker: otherwise it would soon come back."""
    gap = picture.region_score(source) - picture.region_score(target)
    return gap > max(size / source.region_weight + size / target.region_weight, slack)


def _movable(region: Region, store: StoreSummary) -> bool:
    """A voter that does not lead (a leader only where it is alone and cannot step aside first); TiFlash's learners.
    Witnesses, and what is between two roles, stay where they are."""
    role = next((p.role for p in region.peers if p.store_id == store.id), "")
    if role != ("Learner" if store.apart else "Voter"):
        return False
    return region.leader_store != store.id or len(region.peers) == 1


# ── Repair ────────────────────────────────────────────────────────────────────────────────────────────────────────


def replica(picture: Picture) -> Iterator[Proposal]:
    rows = [row for row in picture.summary.stores.values() if row.takes_peers and not row.apart]
    targets = emptiest(iter(rows), picture.region_score)
    leaving = (row for row in picture.summary.stores.values() if row.state in LEAVING and row.held and not row.apart)
    for store_id in sorted(row.id for row in leaving):
        for region_id in window(picture.summary.stores[store_id].held, picture.turn):
            if (region := _led(picture, region_id)) is not None:
                yield from _off(picture, region, store_id, targets)
    for region_id in window(picture.summary.broken, picture.turn):
        if (region := _led(picture, region_id)) is not None:
            dead = [p.store_id for p in region.peers if p.id in region.down_peers]
            yield from _off(picture, region, dead[0], targets) if dead else ()
    yield from _uncounted(picture, targets)


def _led(picture: Picture, region_id: int) -> Region | None:
    """A region that can be changed: it has a leader and no operator. Unlike others it may have peers that are down."""
    region = picture.summary.regions.get(region_id)
    if region is None or region_id in picture.influence.busy or not region.leader_store:
        return None
    return region if picture.summary.wanted(region) else None


def _off(picture: Picture, region: Region, store_id: int, targets: list[StoreSummary]) -> Iterator[Proposal]:
    """What takes this region's peer off a store that is going or gone."""
    why = f"store {store_id} is {picture.summary.stores[store_id].state}"
    if region.leader_store == store_id and len(region.peers) > 1:
        for heir in picture.heirs(region)[:1]:
            yield Proposal(REPLICA, transfer(region, heir.id), Reason.REPAIR, f"{why}: its leader moves away")
        return
    wanted = picture.summary.wanted(region)
    if len(voters(region)) > wanted:
        yield Proposal(REPLICA, remove_peer(region, store_id), Reason.REPAIR, f"{why}: one peer more than wanted")
        return
    stray = list(_stray(picture, region)) if len(region.peers) > wanted else []
    target = _place(picture, region, store_id, targets)
    if stray:
        # First: with the dead voter gone instead, it would replace one, and the loss would go unnoticed.
        yield stray[0]
    elif target is not None:
        yield Proposal(REPLICA, move_peer(region, store_id, target), Reason.REPAIR, f"{why}: peer to store {target}")


def _uncounted(picture: Picture, targets: list[StoreSummary]) -> Iterator[Proposal]:
    summary = picture.summary
    for count in sorted(summary.by_voters):
        for region_id in window(summary.by_voters[count], picture.turn):
            region = picture.free(region_id)
            if region is None or any(p.role in ("IncomingVoter", "DemotingVoter") for p in region.peers):
                continue
            wanted = summary.wanted(region)
            if 0 < count < wanted:
                target = _place(picture, region, 0, targets)
                if target is not None:
                    why = f"{count} of {wanted} voters: one more on store {target}"
                    yield Proposal(REPLICA, add_peer(region, target), Reason.REPAIR, why)
            elif count > wanted > 0:
                extra = [summary.stores[s] for s in voters(region) if s != region.leader_store]
                source = max(extra, key=lambda row: (picture.region_score(row), row.id))
                why = f"{count} of {wanted} voters: one less on store {source.id}"
                yield Proposal(REPLICA, remove_peer(region, source.id), Reason.REPAIR, why)
            elif wanted:
                yield from _stray(picture, region)


def _stray(picture: Picture, region: Region) -> Iterator[Proposal]:
    """A learner that an operator left behind when PD forgot it. Those of TiFlash and of a rule are wanted."""
    if picture.summary.rules is not None and any(r.role == "learner" for r in picture.summary.rules.of(region)):
        return
    for peer in region.peers:
        if peer.role == "Learner" and not picture.summary.stores[peer.store_id].apart:
            why = f"a learner was left behind on store {peer.store_id}"
            yield Proposal(REPLICA, remove_peer(region, peer.store_id), Reason.REPAIR, why)


def _place(picture: Picture, region: Region, instead_of: int, targets: Iterable[StoreSummary]) -> int | None:
    """The emptiest store of the least shared location."""
    others = [p.store_id for p in region.peers if p.store_id != instead_of]
    rules = picture.summary.rules.of(region) if picture.summary.rules is not None else ()
    able = [rule for rule in rules if rule.role != "learner"]
    free = [row for row in targets if row.id not in others and row.id != instead_of]
    free = [row for row in free if not rules or any(rule.takes(row.labels) for rule in able)]
    best = min(
        free, key=lambda row: (picture.summary.shared(row.id, others), picture.region_score(row), row.id), default=None
    )
    return None if best is None else best.id


# ── Merge and split ─────────────────────────────────────────────────────────────────────────────────────────────────
#
# merge and split: how large a region is. Small neighbours on the same stores become one, large regions two.
#
# Only neighbours whose peers already lie on the same stores are merged: others would have to be moved first, at a cost
# that was not requested and that a merge's price does not contain.


def merge(picture: Picture) -> Iterator[Proposal]:
    """A small region into the smaller of its neighbours, if what comes out is not soon split again."""
    for region_id in window(picture.summary.small, picture.turn):
        region = picture.free(region_id)
        if region is None:
            continue
        into = min(_partners(picture, region), key=lambda other: (other.size_mib, other.id), default=None)
        if into is not None:
            both = f"{region.size_mib} and {into.size_mib} MiB become one region"
            yield Proposal(MERGE, moves.merge(region, into), Reason.BALANCE, both)


def _partners(picture: Picture, region: Region) -> Iterator[Region]:
    where, rules = {p.store_id for p in region.peers}, picture.summary.rules
    for other in picture.summary.neighbours(region):
        fits = region.size_mib + other.size_mib <= picture.policy.split_above_mib // 2
        fits = fits and (rules is None or rules.of(region) == rules.of(other))
        if fits and picture.free(other.id) is not None and {p.store_id for p in other.peers} == where:
            yield other


def split(picture: Picture) -> Iterator[Proposal]:
    for region_id in window(picture.summary.large, picture.turn):
        region = picture.free(region_id)
        if region is not None:
            size = f"{region.size_mib} MiB, more than {picture.policy.split_above_mib}"
            yield Proposal(SPLIT, moves.split(region), Reason.BALANCE, size)
