"""What is known of the regions of every TiKV cluster, and how fresh it is: an index of the world.

Regions are read in rotation, a range of keys at a time, so that a million of them cost no more per second than a
thousand. A longer list is taken in by parts. Until a part has come the old data is used; a region that was read
alone meanwhile is not overwritten by an older range.
"""

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from mooring.capabilities.balance import pause
from mooring.capabilities.balance.placement import RuleBook
from mooring.capabilities.balance.policy import BalancePolicy
from mooring.capabilities.balance.summary import LEAVING, StoreSummary, Summary, bytes_of
from mooring.core.model.cluster import Key
from mooring.core.model.events import Change, PdSeen, RegionsSeen, Trigger
from mooring.core.model.kinds import Kind
from mooring.core.model.tidb import PdOperator, PdView
from mooring.core.world.read import WorldRead

# ── What a checkpoint keeps ─────────────────────────────────────────────────────────────────────────────────────────
#
# What a checkpoint keeps of a book of regions: plain values, taken at once. There may be many clusters and regions.

#: Attributes that are values, and those that are sets of ids in their order.
STORE: Final = (
    "id", "state", "labels", "leader_weight", "region_weight", "refuses", "apart", "full", "heard", "led_then",
    "silent", "bereft", "size_mib", "flow",
)  # fmt: skip
STORE_IDS: Final = ("held", "led", "hot")
SUMMARY_IDS: Final = ("small", "large", "broken", "leaderless")
BOOK: Final = (
    "_view", "aside_since", "aside_until", "_life_since", "whole_at", "_life", "_rotation",
    "cursor", "_read_at",
)  # fmt: skip
#: Regions of a book that is kept as one value.
FEW: Final = 200
_store, _store_ids, _book = attrgetter(*STORE), attrgetter(*STORE_IDS), attrgetter(*BOOK)
_summary_ids = attrgetter(*SUMMARY_IDS)


def kept_of(book: "Book") -> tuple[Any, ...] | list[Any]:
    """While no list of regions is being taken in. Of many, the containers themselves: they are copied in steps."""
    summary = book.summary
    placement = None if summary.rules is None else summary.rules.placement
    voters, by_voters = summary._voters, summary.by_voters  # noqa: SLF001
    order, seen, leaving = summary._order, book._seen, book._leaving  # noqa: SLF001
    if len(summary.regions) > FEW:
        stores = [[_store(row), list(_store_ids(row))] for row in summary.stores.values()]
        ids, regions = list(_summary_ids(summary)), [summary.regions, order]
        return [_book(book), [seen, leaving], placement, stores, summary.size_mib, [voters, by_voters], ids, regions]
    of_stores = tuple((_store(row), tuple(map(tuple, _store_ids(row)))) for row in summary.stores.values())
    of_voters = tuple(voters.items()), tuple((k, tuple(v)) for k, v in by_voters.items())
    of_ids, of_regions = tuple(map(tuple, _summary_ids(summary))), (tuple(summary.regions.values()), tuple(order))
    of_seen = tuple(seen.items()), tuple(leaving.items())
    return _book(book), of_seen, placement, of_stores, summary.size_mib, of_voters, of_ids, of_regions


def restore_book(book: "Book", kept: Sequence[Any]) -> "Book":
    """Into one that has seen nothing."""
    values, (seen, leaving), placement, stores, size_mib, (voters, by_voters), ids, (regions, order) = kept
    summary = book.summary
    vars(book).update(zip(BOOK, values, strict=True))
    view = values[BOOK.index("_view")]
    book._operators = {op.region_id: op for op in view.operators} if view is not None else {}  # noqa: SLF001
    book._seen, book._leaving = dict(seen), dict(leaving)  # noqa: SLF001
    summary.rules = None if placement is None else RuleBook(placement)
    summary.size_mib = size_mib
    for attributes, of_store in stores:
        row = summary.stores[attributes[0]] = StoreSummary(attributes[0])
        for name, value in zip(STORE, attributes, strict=True):
            setattr(row, name, value)
        for name, held in zip(STORE_IDS, of_store, strict=True):
            setattr(row, name, dict.fromkeys(held))
    summary._voters = dict(voters)  # noqa: SLF001
    summary.by_voters = {k: dict.fromkeys(v) for k, v in dict(by_voters).items()}
    for name, held in zip(SUMMARY_IDS, ids, strict=True):
        setattr(summary, name, dict.fromkeys(held))
    regions = regions.values() if isinstance(regions, Mapping) else regions
    summary.regions = {region.id: region for region in regions}
    summary.bytes = sum(map(bytes_of, regions))
    summary._order = list(order)  # noqa: SLF001
    return book


#: Regions per read, and the most that are taken in at once: a few milliseconds when all of them are new.
RANGE: Final = 1024
#: Between two ranges, per region: reading and taking in a region costs about a twentieth of this.
PACE_S: Final = 0.0003
#: As in PD: with fewer leaders known than this share, no decision is made.
ENOUGH_LEADERS: Final = 0.9
#: A store's count of leaders may differ from ours by so many before all regions are read again.
DRIFT: Final = 2
#: Rotations without progress after which a store that PD should empty is no longer waited for.
REPAIRS: Final = 2
#: What a region may take in memory on the average, and what a store takes, in bytes.
ROOM_BYTES: Final = 800
STORE_BYTES: Final = 1024
#: How long the regions of a cluster that gave way are not read.
GIVEN_WAY_S: Final = 3600.0
#: Regions without a leader that are read again at a time.
LEADERLESS: Final = 16


class Book:
    """One cluster."""

    def __init__(self, policy: BalancePolicy) -> None:
        self._policy = policy
        self.summary = Summary(policy)
        self._view: PdView | None = None
        self._operators: dict[int, PdOperator] = {}
        #: Since which look PD's schedulers have been paused without a gap, and until when they certainly are.
        self.aside_since: float | None = None
        self.aside_until = 0.0
        #: Since which look PD has run without a restart.
        self._life_since = 0.0
        #: When the last whole rotation began, and with which start of PD.
        self.whole_at: float | None = None
        self._life = 0
        #: The present rotation: when it began, with which start of PD, where it goes on, when a range was last read.
        self._rotation: tuple[float, int] | None = None
        self.cursor = ""
        self._read_at = 0.0
        #: Regions that were looked at alone since the last rotation began.
        self._seen: dict[int, float] = {}
        self._left: Iterator[None] | None = None
        #: Stores that PD takes replicas off: how many are left, and since which look no fewer.
        self._leaving: dict[int, tuple[int, float]] = {}

    # ── Taking in ─────────────────────────────────────────────────────────────────────────────────────────────────

    def as_value(self) -> Sequence[Any]:
        """What a checkpoint keeps."""
        return kept_of(self)

    def see(self, view: PdView, at: float) -> None:
        """The latest look at PD: stores, evictions, operators, pauses."""
        same_life = self._view is not None and self._view.start_timestamp == view.start_timestamp
        if not same_life:
            self._life_since = at
        left_s = pause.left_s(view, self._policy)
        if left_s is None:
            self.aside_since = None
        else:
            if self.aside_since is None or not same_life or at > self.aside_until:
                self.aside_since = at
            self.aside_until = at + left_s
        self._view = view
        self.summary.set_placement(view.placement)
        self.summary.set_stores(view.stores, view.evicting or ())
        self._operators = {op.region_id: op for op in view.operators}
        leaving = (row for row in self.summary.stores.values() if row.state in LEAVING and row.held)
        self._leaving = {row.id: self._progress(row, at) for row in leaving}

    def _progress(self, row: StoreSummary, at: float) -> tuple[int, float]:
        known, count = self._leaving.get(row.id), len(row.held)
        stands = known is not None and count >= known[0] and row.held.keys().isdisjoint(self._operators)
        return known if known is not None and stands else (count, at)

    def emptied(self, at: float) -> "Book":
        """The same cluster without its regions."""
        fresh = Book(self._policy)
        if self._view is not None:
            fresh.see(self._view, at)
        return fresh

    def take(self, event: RegionsSeen) -> None:
        if not event.asked:
            self.flush()
            self._left = self._range(event)
            if len(event.regions) <= RANGE:
                self.flush()
            return
        known = {region.id: region for region in event.regions}
        for region_id in event.asked:
            self._seen[region_id] = event.at
            if region_id in known:
                self.summary.put(known[region_id])
            else:
                self.summary.drop(region_id)

    def advance(self) -> bool:
        """Take in a part; True: there is more."""
        if self._left is not None and next(self._left, self) is self:
            self._left = None
        return self._left is not None

    def flush(self) -> None:
        while self.advance():
            pass

    def _range(self, event: RegionsSeen) -> Iterator[None]:
        at, seen, put, left = event.at, self._seen, self.summary.put, RANGE
        listed = set()
        for region in event.regions:
            listed.add(region.id)
            if seen.get(region.id, at) <= at:
                put(region)
            left -= 1
            if not left:
                left = RANGE
                yield
        for region_id in self.summary.between(event.start_key, event.end_key):
            if region_id not in listed and seen.get(region_id, at) <= at:
                self.summary.drop(region_id)
        self._turn_page(event)

    def _turn_page(self, event: RegionsSeen) -> None:
        if event.start_key == "":
            known = self._view is not None and event.at >= self._life_since
            life = self._view.start_timestamp if self._view is not None and known else 0
            self._rotation, self.cursor = (event.at, life), ""
        if event.start_key != self.cursor or self._rotation is None:
            return
        self.cursor, self._read_at = event.end_key, event.at
        if not event.end_key:
            self.whole_at, self._life = self._rotation
            self._seen = {region: when for region, when in self._seen.items() if when > self.whole_at}

    # ── What to read ──────────────────────────────────────────────────────────────────────────────────────────────

    def read_at(self, view: PdView, since: float) -> float:
        """When the next range is due. `since`: an older rotation does not count."""
        if self._rotation is None:
            return 0.0
        behind = self._is_behind(view, since)
        if self.cursor and behind:
            return 0.0
        policy, count = self._policy, max(1, len(self.summary.regions))
        every = policy.regions_at_most_every_s if behind or self._drifted(view) else policy.regions_every_s
        next_range = self._read_at + RANGE * max(PACE_S, every / count)
        return next_range if self.cursor else max(self._rotation[0] + every, self._read_at + count * PACE_S / 10)

    def leaderless(self, now: float) -> tuple[int, ...]:
        """Some regions without a leader that have not been looked at for a while."""
        before, found = now - self._policy.regions_at_most_every_s, list[int]()
        for region_id in self.summary.leaderless:
            if self.seen_at(region_id) <= before:
                found.append(region_id)
            if len(found) == LEADERLESS:
                break
        return tuple(found)

    def _is_behind(self, view: PdView, since: float) -> bool:
        return self.whole_at is None or self._life != view.start_timestamp or self.whole_at < since

    def _drifted(self, view: PdView) -> bool:
        """Do PD's counts differ from ours? Another client moves regions, or leaders were elected again."""
        slack = DRIFT + len(view.operators) + len(self.summary.leaderless)
        for store in view.stores:
            row = self.summary.stores.get(store.id)
            led, held = (len(row.led), len(row.held)) if row is not None else (0, 0)
            if abs(store.leader_count - led) > slack or abs(store.region_count - held) > slack:
                return True
        return False

    def doubt(self, view: PdView, since: float, now: float) -> str:
        """Why these regions are not complete or not recent enough to decide on; "" when they are."""
        if view.evicting is None:
            return "PD has just started and does not list its schedulers yet"
        if view.placement is None:
            return "PD has not said what its placement rules are"
        if self._is_behind(view, since):
            return "the regions have not been read since PD started"
        count = len(self.summary.regions)
        if now - (self.whole_at or 0.0) > 3 * max(self._policy.regions_every_s, count * PACE_S):
            return f"the regions were last read {now - (self.whole_at or 0.0):.0f} s ago"
        known = count - len(self.summary.leaderless)
        if known < ENOUGH_LEADERS * max(count, view.region_count):
            return f"PD knows the leaders of {known} of {max(count, view.region_count)} regions"
        return ""

    # ── Looking ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def room(self) -> float:
        """How many regions it counts as: long keys, many peers and many stores count for more."""
        summary = self.summary
        return max(len(summary.regions), (summary.bytes + STORE_BYTES * len(summary.stores)) / ROOM_BYTES)

    def listed(self, region_id: int) -> PdOperator | None:
        """What PD runs on this region, as of the last look."""
        return self._operators.get(region_id)

    def repairs(self, now: float) -> str:
        """What PD is busy repairing, in words; "": nothing, or replicas that have had nowhere to go for a while."""
        for store_id, (count, since) in self._leaving.items():
            if now - since <= REPAIRS * self._policy.regions_every_s:
                return f"PD takes {count} replicas off store {store_id} first"
        return ""

    def seen_at(self, region_id: int) -> float:
        """When the look began that this region is known from."""
        return max(self._seen.get(region_id, 0.0), self.whole_at or 0.0)


class RegionBooks:
    """The books of all clusters: an index of the world.

    A PD may invent regions without end. All books together have room for `most_regions`; beyond it the namespace that
    takes the most gives way with its largest cluster, so one that takes no more than its share never does. A rotation
    that lists more than that without an end gives way, too.
    """

    observes: frozenset[object] = frozenset({PdSeen, RegionsSeen, Kind.TIDB_CLUSTER})

    def __init__(self, policy: BalancePolicy) -> None:
        self._policy = policy
        self._books: dict[Key, Book] = {}
        #: How many regions the present rotation has listed, and who gave way when.
        self._listed: dict[Key, int] = {}
        self._given_way: dict[Key, float] = {}

    def kept(self) -> dict[str, object]:
        """What a checkpoint keeps."""
        return {"books": self._books, "listed": self._listed, "given-way": self._given_way}

    def restore(self, kept: Mapping[str, Any]) -> None:
        self._books = {cluster: restore_book(Book(self._policy), book) for cluster, book in kept["books"].items()}
        self._listed, self._given_way = dict(kept.get("listed", {})), dict(kept.get("given-way", {}))

    def of(self, cluster: Key) -> Book:
        """What is known of this cluster; nothing, if it was never looked at."""
        return self._books.get(cluster) or Book(self._policy)

    def has_given_way(self, cluster: Key, now: float) -> bool:
        return cluster in self._given_way and now < self._given_way[cluster] + GIVEN_WAY_S

    def observe(self, trigger: Trigger, world: WorldRead) -> None:
        match trigger:
            case PdSeen(cluster=cluster, view=view, at=at):
                self._book(cluster).see(view, at)
            case RegionsSeen(cluster=cluster, asked=asked, at=at):
                if asked or not self.has_given_way(cluster, at):
                    self._book(cluster).take(trigger)
                    self._make_room(trigger)
            case Change(key=cluster, new=None):
                for known in (self._books, self._listed, self._given_way):
                    known.pop(cluster, None)

    def _make_room(self, event: RegionsSeen) -> None:
        most = self._policy.most_regions
        if not event.asked:
            before = self._listed.get(event.cluster, 0) if event.start_key else 0
            self._listed[event.cluster] = before + len(event.regions)
            if self._listed[event.cluster] > most:
                self._give_way(event.cluster, event.at)
        rooms = {cluster: book.room for cluster, book in self._books.items()}
        while rooms and sum(rooms.values()) > most:
            cluster = _largest(rooms)
            del rooms[cluster]
            self._give_way(cluster, event.at)

    def _give_way(self, cluster: Key, at: float) -> None:
        self._books[cluster], self._given_way[cluster] = self._books[cluster].emptied(at), at

    def advance(self) -> bool:
        return any(book.advance() for book in self._books.values())

    def _book(self, cluster: Key) -> Book:
        return self._books.setdefault(cluster, Book(self._policy))


def _largest(rooms: Mapping[Key, float]) -> Key:
    """Of the namespace that takes the most."""
    taken: dict[str, float] = {}
    for cluster, room in rooms.items():
        taken[cluster.namespace] = taken.get(cluster.namespace, 0.0) + room
    return max(rooms, key=lambda cluster: (taken[cluster.namespace], rooms[cluster], cluster))
