"""The true state of TiKV: stores, raft groups and their leaders, independent of what PD has been told.

A store lives with its pod. When the pod goes, its groups are without a leader until their followers elect another, a
lease later; that is the interruption a careful restart avoids, so it is written down (`interruptions`): a test that
promises "never deleted with leaders on it" asserts that the list is empty.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from mooring.core.model.tidb import Peer, Region
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.pd.settings import PdSettings
from mooring_lab.cluster.randomness import SeededRandomness


class LeadersCut(msgspec.Struct, frozen=True):
    """A store stopped with leaders on it: these regions did not answer until an election."""

    at: float
    store_id: int
    pod_name: str
    leaders: int


class TikvStore:
    __slots__ = (
        "address",
        "alive",
        "free_share",
        "id",
        "labels",
        "pod_name",
        "since",
        "started_at",
        "stopping_until",
        "until",
    )

    def __init__(self, store_id: int, pod_name: str, address: str, labels: dict[str, str]) -> None:
        self.id = store_id
        self.pod_name = pod_name
        self.address = address
        self.labels = labels
        self.alive = False
        #: How much of its disk is free; None: as much as its regions leave.
        self.free_share: float | None = None
        #: Monotonic: it reports to PD from `since`, and since `until` no longer.
        self.since = 0.0
        self.until: float | None = 0.0
        #: Wall clock.
        self.started_at = 0.0
        #: Monotonic: told to end, it says so to PD and waits until then for its leaders to go; None: it was not.
        self.stopping_until: float | None = None


class RaftGroup:
    __slots__ = ("conf_ver", "end_key", "id", "leader", "peers", "size_mib", "start_key", "version")

    def __init__(self, region_id: int, start_key: str, end_key: str, peers: list[Peer], size_mib: int) -> None:
        self.id = region_id
        self.start_key = start_key
        self.end_key = end_key
        self.peers = peers
        self.size_mib = size_mib
        #: The leader's store; 0 between a leader's end and the next election.
        self.leader = 0
        self.conf_ver = 1 + len(peers)
        self.version = 1

    def peer_on(self, store_id: int) -> Peer | None:
        return next((p for p in self.peers if p.store_id == store_id), None)

    def region(self) -> Region:
        return Region(
            id=self.id,
            start_key=self.start_key,
            end_key=self.end_key,
            conf_ver=self.conf_ver,
            version=self.version,
            peers=tuple(self.peers),
            leader_store=self.leader,
            size_mib=self.size_mib,
            keys=self.size_mib * 10_000,
        )


class Tikv:
    def __init__(self, timeline: Timeline, randomness: SeededRandomness, settings: PdSettings) -> None:
        self._timeline = timeline
        self._randomness = randomness
        self._settings = settings
        self.stores: dict[int, TikvStore] = {}
        self.groups: dict[int, RaftGroup] = {}
        #: Store → the groups it leads, and holds a peer of. Kept incrementally; dicts for their order.
        self.led: dict[int, dict[int, None]] = {}
        self.held: dict[int, dict[int, None]] = {}
        self.interruptions: list[LeadersCut] = []
        #: Groups whose leader cannot be transferred.
        self.stuck: set[int] = set()
        #: Groups without a leader for good: most of their replicas are lost.
        self.lost: set[int] = set()
        self._next_id = 0
        #: A group has a new leader or new peers: its leader tells PD.
        self.on_change: Callable[[RaftGroup], None] = lambda _: None

    def new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    # ── Stores ────────────────────────────────────────────────────────────────────────────────────────────────────

    def add_store(self, pod_name: str, address: str, labels: dict[str, str], store_id: int | None = None) -> TikvStore:
        if store_id is None:
            store_id = self.new_id()
        self._next_id = max(self._next_id, store_id)
        store = self.stores[store_id] = TikvStore(store_id, pod_name, address, labels)
        self.led[store_id] = {}
        self.held[store_id] = {}
        return store

    def start(self, store: TikvStore) -> None:
        if store.alive:
            return
        store.alive, store.stopping_until = True, None
        store.since, store.until = self._timeline.monotonic(), None
        store.started_at = self._timeline.now()
        orphans = [g for g in self.held[store.id] if self.groups[g].leader == 0]
        if orphans:
            self._elect_later(orphans)

    def stop(self, store: TikvStore) -> None:
        if not store.alive:
            return
        store.alive = False
        store.until = self._timeline.monotonic()
        orphans = list(self.led[store.id])
        if orphans:
            self.interruptions.append(LeadersCut(self._timeline.now(), store.id, store.pod_name, len(orphans)))
            for group_id in orphans:
                self._lead(self.groups[group_id], 0)
            self._elect_later(orphans)

    def lose(self, group: RaftGroup) -> None:
        """It has no leader any more, and PD is not told, which finds out with its next start."""
        self.lost.add(group.id)
        self._lead(group, 0)

    def _elect_later(self, groups: Sequence[int]) -> None:
        self._timeline.after(self._randomness.uniform(*self._settings.election_s), lambda: self._elect(groups))

    def _elect(self, groups: Sequence[int]) -> None:
        for group_id in groups:
            group = self.groups.get(group_id)
            if group is None or group.leader or group_id in self.lost:
                continue
            voters = [p for p in group.peers if p.role != "Learner"]
            alive = [p.store_id for p in voters if self.stores[p.store_id].alive]
            if len(alive) * 2 > len(voters):
                self._lead(group, self._randomness.random.choice(alive))
                self.on_change(group)

    # ── Groups ────────────────────────────────────────────────────────────────────────────────────────────────────

    def load(self, regions: int, replicas: int) -> None:
        """That many regions over the stores there are, peers and leaders spread evenly by key; PD is not told."""
        stores = sorted(self.stores)
        replicas = min(replicas, len(stores))
        if not replicas:
            raise ValueError("regions need at least one store")
        around = [[stores[(i + k) % len(stores)] for k in range(replicas)] for i in range(regions)]
        self.place([(where, where[0]) for where in around])

    def place(
        self, regions: Sequence[tuple[Sequence[int], int]], roles: Mapping[int, Mapping[int, str]] | None = None
    ) -> None:
        """One region after the other, by key: the stores of its peers, and its leader's (0: none). `roles`: by the
        region's number and the store, where a peer is no voter."""
        for i, (where, leader) in enumerate(regions):
            start = "" if i == 0 else f"k{i:08d}".encode().hex().upper()
            end = "" if i == len(regions) - 1 else f"k{i + 1:08d}".encode().hex().upper()
            region_id = self.new_id()
            special = (roles or {}).get(i, {})
            peers = [Peer(self.new_id(), s, special.get(s, "Voter")) for s in where]
            group = RaftGroup(region_id, start, end, peers, self._settings.region_size_mib)
            group.version = i + 1
            self._add_group(group, leader=leader)

    def _add_group(self, group: RaftGroup, leader: int) -> None:
        self.groups[group.id] = group
        for peer in group.peers:
            self.held[peer.store_id][group.id] = None
        self._lead(group, leader)

    def drop_group(self, group: RaftGroup) -> None:
        self._lead(group, 0)
        for peer in group.peers:
            self.held[peer.store_id].pop(group.id, None)
        del self.groups[group.id]

    def _lead(self, group: RaftGroup, store_id: int) -> None:
        if group.leader:
            self.led[group.leader].pop(group.id, None)
        group.leader = store_id
        if store_id:
            self.led[store_id][group.id] = None

    # ── What a leader does when PD asks. False: it cannot now. ────────────────────────────────────────────────────

    def transfer(self, group: RaftGroup, to: int) -> bool:
        peer = group.peer_on(to)
        if not group.leader or group.id in self.stuck or peer is None or not self.stores[to].alive:
            return False
        if peer.role not in ("Voter", "IncomingVoter"):
            return False
        if group.leader != to:
            self._lead(group, to)
            self.on_change(group)
        return True

    def add_learner(self, group: RaftGroup, store_id: int, peer_id: int) -> bool:
        store = self.stores.get(store_id)
        if not group.leader or store is None or not store.alive:
            return False
        if group.peer_on(store_id) is None:
            group.peers.append(Peer(peer_id, store_id, "Learner"))
            self.held[store_id][group.id] = None
            self._changed(group)
        return True

    def promote(self, group: RaftGroup, store_id: int) -> bool:
        peer = group.peer_on(store_id)
        if not group.leader or peer is None or not self.stores[store_id].alive:
            return False
        if peer.role != "Voter":
            group.peers[group.peers.index(peer)] = Peer(peer.id, store_id)
            self._changed(group)
        return True

    def enter_joint(self, group: RaftGroup, promoted: int, demoted: int) -> bool:
        """Both changes at once, so that no majority is lost on the way."""
        up, down = group.peer_on(promoted), group.peer_on(demoted)
        if not group.leader or up is None or down is None or not self.stores[promoted].alive:
            return False
        group.peers[group.peers.index(up)] = Peer(up.id, promoted, "IncomingVoter")
        group.peers[group.peers.index(down)] = Peer(down.id, demoted, "DemotingVoter")
        group.conf_ver += 1
        self._changed(group)
        return True

    def leave_joint(self, group: RaftGroup) -> bool:
        if not group.leader:
            return False
        ended = {"IncomingVoter": "Voter", "DemotingVoter": "Learner"}
        group.peers = [Peer(p.id, p.store_id, ended.get(p.role, p.role)) for p in group.peers]
        group.conf_ver += 1
        self._changed(group)
        return True

    def remove_peer(self, group: RaftGroup, store_id: int) -> bool:
        peer = group.peer_on(store_id)
        if not group.leader or group.leader == store_id:
            return False
        if peer is not None:
            group.peers.remove(peer)
            self.held[store_id].pop(group.id, None)
            self._changed(group)
        return True

    def split(self, group: RaftGroup, keys: Sequence[str]) -> bool:
        """At each key; the right part stays the old region, as in TiKV."""
        within = all(group.start_key < k and (not group.end_key or k < group.end_key) for k in keys)
        if not group.leader or not within:
            return False
        leader, size = group.leader, group.size_mib // (len(keys) + 1)
        for key in sorted(keys):
            peers = [Peer(self.new_id(), p.store_id, p.role) for p in group.peers]
            left = RaftGroup(self.new_id(), group.start_key, key, peers, size)
            group.start_key = key
            group.version += 1
            left.version, left.conf_ver = group.version, group.conf_ver
            self._add_group(left, leader)
            self.on_change(left)
        group.size_mib = size
        self.on_change(group)
        return True

    def merge(self, group: RaftGroup, target_id: int) -> bool:
        """The source goes into its neighbour, which takes its range."""
        target = self.groups.get(target_id)
        if target is None or not group.leader or not target.leader:
            return False
        if {p.store_id for p in group.peers} != {p.store_id for p in target.peers}:
            return False
        if group.end_key == target.start_key:
            target.start_key = group.start_key
        elif target.end_key == group.start_key:
            target.end_key = group.end_key
        else:
            return False
        target.size_mib += group.size_mib
        target.version = max(target.version, group.version) + 1
        self.drop_group(group)
        self.on_change(target)
        return True

    def _changed(self, group: RaftGroup) -> None:
        group.conf_ver += 1
        self.on_change(group)
