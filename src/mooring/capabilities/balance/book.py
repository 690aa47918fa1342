"""What is known of one cluster's regions, how fresh it is, and what of the last list is still to be taken in.

A list of a hundred thousand regions is taken in by slices, so that nobody on the same loop waits for it; until the last
slice the old picture serves. A region that was looked at alone meanwhile is not overwritten by an older list.
"""

from collections.abc import Iterator
from typing import Final

from mooring.capabilities.balance.influence import Influence
from mooring.capabilities.balance.picture import Picture
from mooring.capabilities.balance.policy import BalancePolicy
from mooring.capabilities.balance.summary import Summary
from mooring.core.model.events import RegionsSeen
from mooring.core.model.tidb import PdOperator, PdView

#: Regions per slice: well under a millisecond when most of them have not changed, and a few when all are new.
SLICE: Final = 500
#: As PD itself: with fewer leaders known than this share, nothing is known.
ENOUGH_LEADERS: Final = 0.9
#: A store's count of leaders may differ from ours by so many before all regions are read again.
DRIFT: Final = 2


class Book:
    def __init__(self, policy: BalancePolicy) -> None:
        self._policy = policy
        self.summary = Summary(policy)
        #: When the last look at all regions that has been taken in began, and in which life of PD.
        self.whole_at: float | None = None
        self._life = 0
        self._asked_life = 0
        self._seen: dict[int, float] = {}
        self._left: Iterator[None] | None = None
        self._view: PdView | None = None
        self._operators: dict[int, PdOperator] = {}
        self._turn = 0

    # ── Taking in ─────────────────────────────────────────────────────────────────────────────────────────────────

    def see(self, view: PdView) -> None:
        """The latest look at PD: stores, evictions, operators."""
        if view is not self._view:
            self._view = view
            self.summary.set_stores(view.stores, view.evicting or ())
            self._operators = {op.region_id: op for op in view.operators}

    def take(self, event: RegionsSeen) -> None:
        if not event.asked:
            self._left = self._whole(event)
            return
        known = {region.id: region for region in event.regions}
        for region_id in event.asked:
            self._seen[region_id] = event.at
            if region_id in known:
                self.summary.put(known[region_id])
            else:
                self.summary.drop(region_id)

    def advance(self) -> bool:
        """Take in a slice; True: there is more."""
        if self._left is not None and next(self._left, self) is self:
            self._left = None
        return self._left is not None

    def _whole(self, event: RegionsSeen) -> Iterator[None]:
        at, seen, put, left = event.at, self._seen, self.summary.put, SLICE
        listed = set()
        for region in event.regions:
            listed.add(region.id)
            if seen.get(region.id, at) <= at:
                put(region)
            left -= 1
            if not left:
                left = SLICE
                yield
        for region_id in list(self.summary.regions):
            if region_id not in listed and seen.get(region_id, at) <= at:
                self.summary.drop(region_id)
            left -= 1
            if not left:
                left = SLICE
                yield
        self._seen = {region: when for region, when in seen.items() if when > at}
        self.whole_at, self._life = at, self._asked_life

    # ── Asking ────────────────────────────────────────────────────────────────────────────────────────────────────

    def due(self, view: PdView, now: float) -> bool:
        """Is it time to read all regions? Marks it as asked for."""
        since = None if self.whole_at is None else now - self.whole_at
        drifted = since is None or self._life != view.start_timestamp or self._drifted(view)
        every = self._policy.regions_at_most_every_s if drifted else self._policy.regions_every_s
        if self._left is not None or (since is not None and since < every):
            return False
        self._asked_life = view.start_timestamp
        return True

    def _drifted(self, view: PdView) -> bool:
        """Does PD count otherwise than we do? Somebody else moves regions, or leaders were elected anew."""
        for store in view.stores:
            row = self.summary.stores.get(store.id)
            led, held = (len(row.led), len(row.held)) if row is not None else (0, 0)
            running = len(view.operators)
            if abs(store.leader_count - led) > DRIFT + running or abs(store.region_count - held) > DRIFT + running:
                return True
        return self.summary.leaderless > 0

    def doubt(self, view: PdView) -> str:
        """Why nothing can be decided on this picture; "" when it can."""
        if view.evicting is None:
            return "PD has just started and does not list its schedulers yet"
        if self.whole_at is None or self._life != view.start_timestamp:
            return "the regions have not been read since PD started"
        known = len(self.summary.regions) - self.summary.leaderless
        if known < ENOUGH_LEADERS * max(len(self.summary.regions), view.region_count):
            return f"PD knows the leaders of {known} of {max(len(self.summary.regions), view.region_count)} regions"
        return ""

    # ── Looking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def picture(self) -> Picture:
        self._turn += 1
        return Picture(self.summary, Influence(self.summary), self._turn)

    def listed(self, region_id: int) -> PdOperator | None:
        """What PD runs on this region, as of the last look."""
        return self._operators.get(region_id)

    def seen_at(self, region_id: int) -> float:
        """When the look began that this region is known from."""
        return max(self._seen.get(region_id, 0.0), self.whole_at or 0.0)
