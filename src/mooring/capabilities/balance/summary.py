"""One TiKV cluster in figures, kept region by region: what schedulers look at instead of scanning.

A change of one region costs what that region has peers; a look costs what there are stores. Nothing here walks the
regions: stores know the few regions each scheduler could want of them, and odd regions (too few peers, too small, too
large) stand in sets of their own.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final

from mooring.capabilities.balance.placement import RuleBook
from mooring.capabilities.balance.policy import HOT, MERGE, REPLICA, SPLIT, BalancePolicy
from mooring.core.model.cluster import NO_LABELS
from mooring.core.model.placement import Placement
from mooring.core.model.tidb import Region, Store

#: States in which a store's regions have to go elsewhere.
LEAVING: Final = frozenset({"Offline", "Down"})
#: Two readings of one heartbeat may differ by the rounding of a clock.
SAME_BEAT_S: Final = 0.01
#: A store with fewer regions than this is low on space only with less than that free.
FEW_REGIONS: Final = 30
SOME_SPACE: Final = 8 << 30
#: What a region takes in memory besides its keys, and each of its peers, in bytes.
REGION_BYTES: Final = 400
PEER_BYTES: Final = 80
#: How many regions of one store are looked at before the next store is tried.
WINDOW: Final = 96


class StoreSummary:
    """A store and what is on it."""

    __slots__ = (
        "apart", "bereft", "flow", "full", "heard", "held", "hot", "id", "labels", "leader_weight", "led", "led_then",
        "refuses", "region_weight", "silent", "size_mib", "state",
    )  # fmt: skip

    def __init__(self, store_id: int) -> None:
        self.id = store_id
        self.state = "Up"
        self.labels: Mapping[str, str] = NO_LABELS
        self.leader_weight = self.region_weight = 1.0
        #: Its leaders are being taken off: it gets none.
        self.refuses = False
        #: TiFlash: learners only.
        self.apart = False
        #: Low on space.
        self.full = False
        #: Its last heartbeat to PD, and the most leaders since then, as PD counts.
        self.heard: float | None = None
        self.led_then = 0
        #: Late with its heartbeat; or no heartbeat since it lost leaders, the first sign of a crash.
        self.silent = self.bereft = False
        self.held: dict[int, None] = {}
        self.led: dict[int, None] = {}
        self.hot: dict[int, None] = {}
        self.size_mib = 0
        #: Bytes read and written through the leaders here.
        self.flow = 0

    @property
    def up(self) -> bool:
        return self.state == "Up"

    @property
    def takes_peers(self) -> bool:
        return self.up and not self.silent and not self.full

    @property
    def gives_leaders(self) -> bool:
        return self.up and not self.refuses and not self.apart

    @property
    def takes_leaders(self) -> bool:
        return self.gives_leaders and not self.silent and not self.bereft


class Summary:
    def __init__(self, policy: BalancePolicy) -> None:
        self.policy = policy
        #: PD's placement rules; None: only `location_labels` of the policy keep replicas apart.
        self.rules: RuleBook | None = None
        self.stores: dict[int, StoreSummary] = {}
        self.regions: dict[int, Region] = {}
        #: How many regions have so many voters: without rules most have what a region should have.
        self._voters: dict[int, int] = {}
        #: These, and those below, only for schedulers that are on: a million regions are many.
        self.by_voters: dict[int, dict[int, None]] = {}
        self.small: dict[int, None] = {}
        self.large: dict[int, None] = {}
        #: With a peer that its leader does not reach.
        self.broken: dict[int, None] = {}
        self.leaderless: dict[int, None] = {}
        self.size_mib = 0
        #: What all of them take in memory, nearly.
        self.bytes = 0
        #: Regions in the order of their first keys.
        self._order: list[int] = []
        #: Are regions kept apart by their size or by what they serve?
        self._odd_kept = not {HOT, MERGE, SPLIT}.isdisjoint(policy.sources)

    # ── Taking in ─────────────────────────────────────────────────────────────────────────────────────────────────

    def set_stores(self, stores: Iterable[Store], evicting: Iterable[int] = ()) -> None:
        """What PD says of its stores now. One that is no longer listed keeps its regions until they are seen gone."""
        listed, refusing = {s.id: s for s in stores}, set(evicting)
        # PD's clock need not be ours: how late one is, its neighbours tell.
        newest = max((s.last_heartbeat_at or 0.0 for s in listed.values()), default=0.0)
        for store in listed.values():
            row = self._row(store.id)
            row.state, row.labels = store.state, store.labels
            row.leader_weight, row.region_weight = max(store.leader_weight, 0.01), max(store.region_weight, 0.01)
            row.refuses = store.id in refusing
            row.apart = not store.leads
            row.full = self._is_full(store)
            self._listen(row, store, newest)
        for store_id in [s for s in self.stores if s not in listed]:
            self.stores[store_id].state = "Tombstone"
            if not self.stores[store_id].held:
                del self.stores[store_id]

    def set_placement(self, placement: Placement | None) -> None:
        if placement is None:
            self.rules = None
        elif self.rules is None or self.rules.placement is not placement:
            self.rules = RuleBook(placement)

    def _is_full(self, store: Store) -> bool:
        """As PD: low on space. A store that is still nearly empty is not, while some gigabytes are free."""
        if self.rules is None or not store.capacity_bytes:
            return False
        if store.region_count < FEW_REGIONS and store.available_bytes > SOME_SPACE:
            return False
        return store.available_bytes < (1 - self.rules.placement.low_space_ratio) * store.capacity_bytes

    def _listen(self, row: StoreSummary, store: Store, newest: float) -> None:
        """Whether the store is known to be alive. PD says Disconnected only after two missing heartbeats; its leaders
        are elected elsewhere long before, and a store without leaders would be the first to be given some."""
        heard = store.last_heartbeat_at
        if heard is None:
            return
        if row.heard is None or heard > row.heard + SAME_BEAT_S:
            row.heard, row.led_then = heard, store.leader_count
        row.led_then = max(row.led_then, store.leader_count)
        row.silent = newest - heard > self.policy.silent_after_s
        row.bereft = row.led_then - store.leader_count > self.policy.leader_tolerance

    def put(self, region: Region) -> None:
        known = self.regions.get(region.id)
        if known == region:
            return
        if known is not None and not self._odd_kept and _lies_as(known, region):
            self._refresh(known, region)
            return
        in_order = known is not None and known.start_key == region.start_key
        if known is not None:
            self._take_out(known, in_order=in_order)
        self._put_in(region, in_order=in_order)

    def _refresh(self, known: Region, region: Region) -> None:
        """Where it lies has not changed, only its size or what it serves: by far the most."""
        self.regions[region.id] = region
        if region.end_key != known.end_key or region.pending_peers != known.pending_peers:
            self.bytes += bytes_of(region) - bytes_of(known)
        if region.leader_store:
            self.stores[region.leader_store].flow += flow_of(region) - flow_of(known)
        grown = weight_of(region) - weight_of(known)
        if grown:
            self.size_mib += grown
            for peer in region.peers:
                self.stores[peer.store_id].size_mib += grown

    def drop(self, region_id: int) -> None:
        known = self.regions.get(region_id)
        if known is not None:
            self._take_out(known, in_order=False)

    def _start(self, region_id: int) -> str:
        return self.regions[region_id].start_key

    def _place_of(self, region: Region) -> int:
        """Where it stands among all. Another one may have the same first key for a while: it took this range over."""
        place = bisect_left(self._order, region.start_key, key=self._start)
        while self._order[place] != region.id:
            place += 1
        return place

    def _row(self, store_id: int) -> StoreSummary:
        row = self.stores.get(store_id)
        if row is None:
            row = self.stores[store_id] = StoreSummary(store_id)
        return row

    def _put_in(self, region: Region, *, in_order: bool) -> None:
        key, size = region.id, weight_of(region)
        self.regions[key] = region
        if not in_order:
            self._order.insert(bisect_right(self._order, region.start_key, key=self._start), key)
        self.size_mib += size
        self.bytes += bytes_of(region)
        count = len(voters(region))
        self._voters[count] = self._voters.get(count, 0) + 1
        if REPLICA in self.policy.sources:
            self.by_voters.setdefault(count, {})[key] = None
        for peer in region.peers:
            row = self._row(peer.store_id)
            row.held[key] = None
            row.size_mib += size
        if region.leader_store:
            row, flow = self._row(region.leader_store), flow_of(region)
            row.led[key] = None
            row.flow += flow
            if flow >= self.policy.hot_region_bytes and HOT in self.policy.sources:
                row.hot[key] = None
        else:
            self.leaderless[key] = None
        if region.size_mib < self.policy.merge_below_mib and MERGE in self.policy.sources:
            self.small[key] = None
        if region.size_mib > self.policy.split_above_mib and SPLIT in self.policy.sources:
            self.large[key] = None
        if region.down_peers:
            self.broken[key] = None

    def _take_out(self, region: Region, *, in_order: bool) -> None:
        """`in_order`: it comes back at once, at the same place."""
        key, size = region.id, weight_of(region)
        if not in_order:
            del self._order[self._place_of(region)]
        del self.regions[key]
        self.size_mib -= size
        self.bytes -= bytes_of(region)
        count = len(voters(region))
        self._voters[count] -= 1
        self.by_voters.get(count, {}).pop(key, None)
        for peer in region.peers:
            row = self.stores[peer.store_id]
            row.held.pop(key, None)
            row.size_mib -= size
        if region.leader_store:
            row = self.stores[region.leader_store]
            row.led.pop(key, None)
            row.hot.pop(key, None)
            row.flow -= flow_of(region)
        for odd in (self.small, self.large, self.broken, self.leaderless):
            odd.pop(key, None)

    # ── Looking ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def replicas(self) -> int:
        """How many voters most regions have."""
        return max(self._voters, key=lambda count: (self._voters[count], count), default=0)

    def wanted(self, region: Region) -> int:
        """How many voters a region should have; 0: its rules are not known."""
        if self.rules is not None:
            return self.rules.voters(region)
        return self.policy.replicas or self.replicas

    @property
    def mean_mib(self) -> float:
        return self.size_mib / len(self.regions) if self.regions else 0.0

    def between(self, start_key: str, end_key: str) -> list[int]:
        """The regions that begin in this range of keys ("": the end), in order."""
        order = self._order
        end = bisect_left(order, end_key, key=self._start) if end_key else len(order)
        return order[bisect_left(order, start_key, key=self._start) : end]

    def neighbours(self, region: Region) -> tuple[Region, ...]:
        """The regions right before and after it."""
        place, found = self._place_of(region), []
        if place and region.start_key:
            found.append(self.regions[self._order[place - 1]])
        if place + 1 < len(self._order) and region.end_key:
            found.append(self.regions[self._order[place + 1]])
        return tuple(n for n in found if region.start_key == n.end_key or region.end_key == n.start_key)

    def shared(self, store_id: int, others: Iterable[int]) -> int:
        """The most location labels that this store has in common with one of the others, the widest first."""
        labels = self.stores[store_id].labels
        if not labels:
            return 0
        most = 0
        for other in others:
            theirs, same = self.stores[other].labels, 0
            for name in self.policy.location_labels:
                if name in labels and labels[name] == theirs.get(name):
                    same += 1
                elif name in labels or name in theirs:
                    break
            most = max(most, same)
        return most

    def check(self) -> list[str]:
        """Every figure compared with one built again from the regions; what differs, in words. Walks everything."""
        fresh = Summary(self.policy)
        for region in self.regions.values():
            fresh.put(region)
        names = ("size_mib", "bytes", "leaderless", "small", "large", "broken")
        wrong = [name for name in names if getattr(self, name) != getattr(fresh, name)]
        mine = {count: held for count, held in self.by_voters.items() if held}
        wrong += ["order"] if [self._start(r) for r in self._order] != sorted(map(self._start, self.regions)) else []
        wrong += ["by_voters"] if mine != fresh.by_voters else []
        for store_id, row in self.stores.items():
            other = fresh.stores.get(store_id, StoreSummary(store_id))
            figures = ("held", "led", "hot", "size_mib", "flow")
            wrong += [f"store {store_id} {name}" for name in figures if getattr(row, name) != getattr(other, name)]
        return wrong


def _lies_as(one: Region, other: Region) -> bool:
    return (
        one.peers == other.peers
        and one.leader_store == other.leader_store
        and one.start_key == other.start_key
        and one.down_peers == other.down_peers
    )


def weight_of(region: Region) -> int:
    """An empty region still has a raft group to move."""
    return max(1, region.size_mib)


def bytes_of(region: Region) -> int:
    odd = len(region.down_peers) + len(region.pending_peers)
    return REGION_BYTES + len(region.start_key) + len(region.end_key) + PEER_BYTES * (len(region.peers) + odd)


def flow_of(region: Region) -> int:
    return region.written_bytes + region.read_bytes


def window(keys: Mapping[int, None], turn: int, limit: int = WINDOW) -> Iterator[int]:
    """A part of these, another one at each turn, so that every part gets its turn."""
    count = len(keys)
    if count <= limit:
        yield from keys
        return
    start = turn * limit % count
    yield from islice(chain(islice(keys, start, None), islice(keys, start)), limit)


def voters(region: Region) -> Sequence[int]:
    return [p.store_id for p in region.peers if p.role == "Voter"]
