"""`SandboxPd`: the sandbox's PD behind `ports.PlacementDriver`, and the controls that tests and scenarios use.

pd = SandboxPd(timeline, seed=1)
for i in range(3):
    pd.attach(f"demo-tikv-{i}")
pd.load(regions=60)
pd.pod_gone("demo-tikv-0"); pd.pod_ready("demo-tikv-0")     what the pods do
pd.restart(); pd.lose_leader(); pd.go_dark(); pd.slow(8.0)  faults of PD
assert pd.interruptions == []                               no pod was deleted with leaders on it
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import mode

from mooring.clients.ports import ConflictError, Json, NotFoundError, UnansweredError
from mooring.core.model.tidb import (
    OUR_LONGEST_PAUSE_S,
    PD_RESTART,
    PdLock,
    PdMember,
    PdOperator,
    PdView,
    Region,
    Store,
    loses_quorum,
)
from mooring_lab.cluster.clock import Timeline, TimelineClock
from mooring_lab.cluster.pd import requests
from mooring_lab.cluster.pd.network import REFUSED, PdNetwork
from mooring_lab.cluster.pd.server import PdServer
from mooring_lab.cluster.pd.settings import PdSettings
from mooring_lab.cluster.pd.tikv import LeadersCut, TikvStore
from mooring_lab.cluster.randomness import SeededRandomness

#: As the client: how long a PD without schedulers is asked to pause one, and how often.
STARTING_S, AGAIN_S = 8.0, 0.03


class SandboxPd:
    def __init__(
        self,
        timeline: Timeline,
        *,
        seed: int | str = 0,
        cluster: str = "demo",
        namespace: str = "default",
        settings: PdSettings | None = None,
    ) -> None:
        self.settings = settings or PdSettings()
        self.cluster = cluster
        self.namespace = namespace
        self.timeline = timeline
        self._clock = TimelineClock(timeline)
        self._randomness = SeededRandomness(f"{seed}/pd/{namespace}/{cluster}")
        self.server = PdServer(timeline, self._randomness.fork("server"), self.settings)
        self.leader = self.settings.members[0]
        self._started = {name: int(timeline.now()) for name in self.settings.members}
        self.network = PdNetwork(timeline, self.settings.timeout_s)
        self._load_later: Callable[[], None] | None = None
        self.began_at = timeline.now()
        self.cluster_id = 7 * 10**18 + self._randomness.fork("id").random.randrange(10**17)
        #: Where each member is reached; set when it is served over HTTP.
        self.urls: dict[str, str] = {name: f"http://{name}:2379" for name in self.settings.members}

    # ── TiKV and its pods ─────────────────────────────────────────────────────────────────────────────────────────

    @property
    def interruptions(self) -> list[LeadersCut]:
        return self.server.tikv.interruptions

    def attach(
        self,
        pod_name: str,
        store_id: int | None = None,
        *,
        address: str = "",
        labels: dict[str, str] | None = None,
        ready: bool = True,
    ) -> int:
        """A store that lives with this pod. Its address begins with the pod's name, as tidb-operator has it."""
        if not address:
            address = f"{pod_name}.{self.cluster}-tikv-peer.{self.namespace}.svc:20160"
        store = self.server.tikv.add_store(pod_name, address, labels or {}, store_id)
        if ready:
            self.server.tikv.start(store)
        if self._load_later is not None:
            self._load_later()
        return store.id

    def load(self, regions: int, replicas: int | None = None, *, when_stores: int = 0, replenish: bool = False) -> None:
        """Regions over the stores attached so far; PD knows them at once and schedules (no start-up to sit through).

        `when_stores`: as soon as there are that many, for scenarios whose pods are yet to come. `replenish`: replicas
        that there are too few stores for are added as stores come, as PD's rule checker does.
        """
        if len(self.server.tikv.stores) < when_stores:
            self._load_later = lambda: self.load(regions, replicas, when_stores=when_stores, replenish=replenish)
            return
        self._load_later = None
        replicas = self.settings.replicas if replicas is None else replicas
        self.server.placement.expect(replicas)
        self.server.placement.checked |= replenish and replicas > len(self.server.tikv.stores)
        self.server.tikv.load(regions, replicas)
        self._schedule()

    def place(
        self, where: Sequence[tuple[Sequence[int], int]], roles: Mapping[int, Mapping[int, str]] | None = None
    ) -> None:
        """Regions at given places, as another PD has them: the stores of their peers, and their leader's (0: none).
        `roles`: by the region's number and the store, where a peer is no voter."""
        if where:
            self.server.placement.expect(mode(len(stores) for stores, _ in where))
        self.server.tikv.place(where, roles)
        self._schedule()

    def _schedule(self) -> None:
        self.server.hear(list(self.server.tikv.groups))
        self.server.coordinator_up = True

    def has_run_since(self, epoch_s: int) -> None:
        """It is not young: who asks for its start time is told this one."""
        self._started = dict.fromkeys(self._started, epoch_s)

    def store_of(self, pod_name: str) -> TikvStore | None:
        """The one here: another Kubernetes cluster may have a pod of this name, at an address with another domain."""
        found = [s for s in self.server.tikv.stores.values() if s.pod_name == pod_name]
        alive = [s for s in found if self.server.asked_state.get(s.id) != "Tombstone"]
        return max(alive, key=lambda s: (".svc." not in s.address, s.id)) if alive else None

    def pod_gone(self, pod_name: str) -> None:
        """The pod's process ended: heartbeats stop, and what it led has no leader until an election."""
        store = self.store_of(pod_name)
        if store is not None:
            self.server.tikv.stop(store)
            for when in (self.settings.disconnected_after_s, self.settings.down_after_s):
                self.timeline.after(when + self.settings.store_heartbeat_s, self.server.kick)

    def pod_stopping(self, pod_name: str) -> bool:
        """Its process was told to end: does it still wait for its leaders to be taken off?"""
        store, now = self.store_of(pod_name), self.timeline.monotonic()
        if store is None or not store.alive or not self.settings.graceful_s:
            return False
        if store.stopping_until is None:
            store.stopping_until = now + self.settings.graceful_s
            self.server.kick()
        return now < store.stopping_until and bool(self.server.tikv.led[store.id])

    def pod_ready(self, pod_name: str, cluster: tuple[str, str] | None = None) -> None:
        """The pod runs (again); a pod that was not attached before brings a new store. `cluster`: of this TidbCluster,
        where several share this PD."""
        store = self.store_of(pod_name)
        if store is None:
            namespace, name = cluster or (self.namespace, self.cluster)
            self.attach(pod_name, address=f"{pod_name}.{name}-tikv-peer.{namespace}.svc:20160")
        else:
            self.server.tikv.start(store)
        self.server.store_came()

    def silence(self, pod_name: str, *, silent: bool = True) -> None:
        """The pod runs and leads, but its heartbeats do not reach PD (a network partition)."""
        store = self.store_of(pod_name)
        if store is not None:
            self.server.silence(store, silent=silent)

    def stick(self, pod_name: str, leaders: int = 1) -> None:
        """That many of the leaders on this pod's store will not leave it; 0: none any more."""
        store, tikv = self.store_of(pod_name), self.server.tikv
        if store is not None:
            tikv.stuck = set(list(tikv.led[store.id])[:leaders])

    def lose_region(self, pod_name: str) -> None:
        """One that this pod's store leads is lost: after PD's next start it has a region more than it has leaders."""
        store, tikv = self.store_of(pod_name), self.server.tikv
        if store is not None and tikv.led[store.id]:
            tikv.lose(tikv.groups[next(iter(tikv.led[store.id]))])

    def replace_store(self, pod_name: str) -> int:
        """The pod lost its disk: its old store becomes a Tombstone, and it registers a new one under the same
        address."""
        old = self.store_of(pod_name)
        if old is None:
            return self.attach(pod_name)
        self.server.tikv.stop(old)
        self.server.asked_state[old.id] = "Tombstone"
        for group_id in list(self.server.tikv.held[old.id]):
            self.server.tikv.remove_peer(self.server.tikv.groups[group_id], old.id)
        # What it held is restored elsewhere, as PD's checkers do.
        self.server.placement.checked = True
        self.server.heard.to_check.update(dict.fromkeys(self.server.cache))
        return self.attach(pod_name, address=old.address, labels=old.labels)

    # ── Faults of PD ──────────────────────────────────────────────────────────────────────────────────────────────

    def restart(self, down_s: float = 3.0, *, regions_known: bool = True) -> None:
        """A PD of one member (or all at once) restarts: the false zero follows. It may have lost its regions, too."""
        self.server.forget()
        self.network.go_away("connection refused", down_s, lambda: self._back(regions_known=regions_known))

    def _back(self, *, regions_known: bool) -> None:
        for name in self._started:
            self._started[name] = int(self.timeline.now())
        self.server.begin(leaders_known=False, regions_known=regions_known)

    def lose_leader(self, to: str = "") -> None:
        """The PD leader's process is killed: 500s until another member (`to`, or the first) leads, which knows."""
        others = [to] if to else [m for m in self.settings.members if m != self.leader]
        if not others:
            self.restart()
            return
        self.server.forget()
        self.network.go_away("redirect failed", self.settings.failover_s, lambda: self._take_over(others[0]))

    def _take_over(self, name: str) -> None:
        self._started[self.leader] = int(self.timeline.now())
        self._lead(name)

    def hand_over(self, name: str) -> bool:
        """The leader steps aside for another member, which answers a moment later. False: there is no such member."""
        if name not in self.settings.members:
            return False
        if name != self.leader:
            self.server.forget()
            self.network.go_away("redirect failed", self.settings.handover_s, lambda: self._lead(name))
        return True

    def _lead(self, name: str) -> None:
        self.leader = name
        self.server.begin(leaders_known=True)

    def go_dark(self, seconds: float | None = None) -> None:
        """It cannot be reached; it goes on as before. None: until `lighten`."""
        self.network.go_away("connection timed out", seconds)

    def refuse_tls(self, seconds: float | None = None) -> None:
        """Its certificates were renewed and Mooring's were not. None: until `lighten`."""
        self.network.go_away(REFUSED, seconds)

    def lighten(self) -> None:
        self.network.come_back()

    def slow(self, seconds: float) -> None:
        """Each answer takes this long; beyond a caller's time-out it is no answer."""
        self.network.latency_s = seconds

    def lose_answers(self, count: int = 1) -> None:
        """The next writes are carried out, and their callers get no answer."""
        self.network.lost_answers += count

    def lose_requests(self, count: int = 1) -> None:
        """The next writes never arrive."""
        self.network.lost_requests += count

    # ── ports.PlacementDriver ─────────────────────────────────────────────────────────────────────────────────────

    async def observe(self, *leaving: int) -> PdView:
        await self.network.reach()
        unwell = [r for kind in requests.CHECKS for r in requests.checked(self.server, kind)]
        regions = {r.id: r for r in (*self.server.cache.values(), *unwell)}.values() if leaving else ()
        return PdView(
            stores=self.server.stores(),
            evicting=requests.evicting(self.server),
            region_count=len(self.server.cache),
            start_timestamp=self.start_timestamp,
            leader=self.leader,
            members=self.known_members(),
            operators=requests.operators(self.server),
            schedulers=tuple(sorted(self.server.scheduler_names())),
            pauses=requests.pauses(self.server),
            placement=self.server.placement.read(),
            cluster_id=self.cluster_id,
            lock=PdLock(*self.server.lock) if self.server.lock is not None else None,
            lockable=self.settings.lockable,
            at_risk={s: sum(loses_quorum(r, s) for r in regions) for s in leaving},
        )

    async def add_evict_leader(self, store_id: int) -> bool:
        await self.network.reach(write=True)
        evicting = requests.evicting(self.server)
        if evicting is None:
            raise UnansweredError("PD does not list its schedulers yet: nothing was added")
        absent = store_id not in evicting
        if absent:
            requests.expect(requests.add_evict_leader(self.server, store_id))
        self.network.answer()
        return absent

    async def remove_evict_leader(self, store_id: int) -> None:
        await self.network.reach(write=True)
        if requests.evicting(self.server) is None:
            raise UnansweredError("PD does not list its schedulers yet: the end of the eviction is not proven")
        requests.remove_evict_leader(self.server, store_id)
        self.network.answer()

    async def hold_lock(self, lock_id: str, description: str) -> None:
        await self.network.reach(write=True)
        said = requests.hold_lock(self.server, PD_RESTART, lock_id, description)
        self.network.answer()
        if said.status == 409 and self.server.lock is not None and self.server.lock[1] != lock_id:
            raise ConflictError(f"PD's maintenance lock is held by {PdLock(*self.server.lock)}")

    async def release_lock(self, lock_id: str) -> None:
        await self.network.reach(write=True)
        requests.release_lock(self.server, PD_RESTART, lock_id)
        self.network.answer()

    async def stores(self, *ids: int) -> Sequence[Store]:
        await self.network.reach()
        return tuple(store for store in self.server.stores() if not ids or store.id in ids)

    async def regions(self, start_key: str = "", limit: int = 0) -> Sequence[Region]:
        await self.network.reach()
        return requests.regions_from(self.server, start_key, limit)

    async def region(self, region_id: int) -> Region | None:
        await self.network.reach()
        return self.server.cache.get(region_id)

    async def operators(self) -> Sequence[PdOperator]:
        await self.network.reach()
        return requests.operators(self.server)

    async def operator(self, region_id: int) -> PdOperator | None:
        await self.network.reach()
        op = self.server.operators.find(region_id)
        return None if op is None else op.view()

    async def add_operator(self, body: Json) -> None:
        await self.network.reach(write=True)
        requests.expect(requests.add_operator(self.server, body))
        self.network.answer()

    async def cancel_operator(self, region_id: int) -> None:
        await self.network.reach(write=True)
        self.server.operators.cancel(region_id)
        self.network.answer()

    async def pause_scheduler(self, name: str, seconds: int) -> None:
        await self.network.reach(write=True)
        end = self._clock.monotonic() + STARTING_S
        while not self.server.scheduler_names() and self._clock.monotonic() < end:
            await self._clock.sleep(AGAIN_S)  # as the client: until it has any
            await self.network.reach(write=True)
        if not any(p.name == name and p.length_s > OUR_LONGEST_PAUSE_S for p in requests.pauses(self.server)):
            requests.expect(requests.pause(self.server, name, seconds))
        self.network.answer()

    async def schedulers(self, *, paused: bool = False) -> Sequence[str]:
        await self.network.reach()
        return tuple(n for n in sorted(self.server.scheduler_names()) if not paused or self.server.is_paused(n))

    async def config(self) -> Json:
        await self.network.reach()
        return requests.schedule_config(self.server)

    async def members(self) -> Sequence[PdMember]:
        await self.network.reach()
        return self.known_members(healthy=True)

    async def transfer_pd_leader(self, name: str) -> None:
        await self.network.reach(write=True)
        if not self.hand_over(name):
            raise NotFoundError(f"PD has no other member {name} to lead")
        self.network.answer()

    async def close(self) -> None:
        return None

    # ── ───────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def away(self) -> str:
        """Why there is no answer now ("" when there is)."""
        return self.network.away

    @property
    def start_timestamp(self) -> int:
        return self._started[self.leader]

    def known_members(self, *, healthy: bool | None = None) -> tuple[PdMember, ...]:
        names = sorted(self.settings.members)
        return tuple(PdMember(n, 1000 + i, (self.urls[n],), healthy) for i, n in enumerate(names))
