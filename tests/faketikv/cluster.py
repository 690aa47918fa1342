"""The stores of a fake TiKV, their regions and who leads each; and what becomes of a command from PD."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.faketikv import messages as m
from tests.faketikv.wire import Wire

VOTER, LEARNER, INCOMING, DEMOTING = range(4)
ADD, REMOVE, ADD_LEARNER = range(3)


def table_key(number):
    """A key as TiDB encodes it: groups of eight bytes, each followed by what was left free, an empty one at the end."""
    return b"t%07d\xff" % number + bytes(8) + b"\xf7"


@dataclass
class Region:
    id: int
    start: bytes
    end: bytes
    #: Store → (peer id, role).
    peers: dict[int, tuple[int, int]]
    leader: int
    version: int
    conf_ver: int = 1
    term: int = 6

    def message(self):
        peers = [m.Peer(id=p, store_id=s, role=r) for s, (p, r) in self.peers.items()]
        epoch = m.RegionEpoch(conf_ver=self.conf_ver, version=self.version)
        return m.Region(id=self.id, start_key=self.start, end_key=self.end, region_epoch=epoch, peers=peers)


@dataclass
class Store:
    id: int
    address: str
    alive: bool = True
    labels: dict[str, str] = field(default_factory=dict)
    #: How much of its disk is free.
    free: float = 0.8
    started: int = field(default_factory=lambda: int(time.time()))
    stopped: float = 0.0


class FakeTikv:
    """Stores 1…n at PD, with regions spread over them. Commands take `transfer_s` and are then obeyed."""

    def __init__(
        self,
        endpoints,
        *,
        addresses=None,
        stores=3,
        regions=30,
        transfer_s=0.0,
        heartbeat_s=1.0,
        reconnect_s=0.3,
        credentials=None,
    ):
        addresses = addresses or [f"127.0.0.1:{20160 + i}" for i in range(1, stores + 1)]
        self.stores = {i + 1: Store(i + 1, a) for i, a in enumerate(addresses)}
        self.regions = dict(self._layout(regions) if isinstance(regions, int) else self._placed(regions))
        self.transfer_s = transfer_s
        self.heartbeat_s = heartbeat_s
        #: (kind, region id, store id) of every command obeyed, in order.
        self.obeyed = []
        #: Regions that PD hears nothing of any more.
        self.lost = set()
        #: Leaders that were on a store when it was stopped.
        self.interrupted = 0
        #: Cleared: a connection once lost is not made again until it is set.
        self.may_connect = asyncio.Event()
        self.may_connect.set()
        self._wire = Wire(endpoints, self, reconnect_s, credentials)
        self._tasks = set()
        self._counted = 0.0, Counter()

    def _layout(self, count):
        ids = sorted(self.stores)
        for i in range(count):
            region_id = 1000 + 4 * i
            where = [ids[(i + k) % len(ids)] for k in range(min(3, len(ids)))]
            peers = {s: (region_id + 1 + k, VOTER) for k, s in enumerate(where)}
            start = b"" if i == 0 else b"k%08d" % i
            end = b"" if i == count - 1 else b"k%08d" % (i + 1)
            # The bootstrap region spans everything with version 1; these overlay it.
            yield region_id, Region(region_id, start, end, peers, where[0], version=i + 2, conf_ver=4)

    def _placed(self, regions):
        """As told: (stores with a voter, the leader first; stores with a learner), region by region."""
        for i, (voters, learners) in enumerate(regions):
            region_id = 1000 + 10 * i
            roles = {**dict.fromkeys(voters, VOTER), **dict.fromkeys(learners, LEARNER)}
            peers = {s: (region_id + 1 + k, role) for k, (s, role) in enumerate(roles.items())}
            start = b"" if i == 0 else table_key(i)
            end = b"" if i == len(regions) - 1 else table_key(i + 1)
            yield region_id, Region(region_id, start, end, peers, voters[0], version=i + 2, conf_ver=9)

    def leaders(self):
        """The truth, store by store, whatever PD believes."""
        led = [r.leader for r in self.regions.values() if r.id not in self.lost]
        return {s: led.count(s) for s in self.stores}

    def held(self):
        """Store → regions there, as of a second ago: with many regions that is a long count."""
        if time.monotonic() - self._counted[0] > 1:
            self._counted = time.monotonic(), Counter(s for r in self.regions.values() for s in r.peers)
        return self._counted[1]

    @property
    def pd_id(self):
        """PD's cluster id, once connected."""
        return self._wire.cluster_id

    async def start(self):
        await self._wire.start()
        return self

    async def close(self):
        for task in list(self._tasks):
            task.cancel()
        await self._wire.close()

    def stop_store(self, store_id):
        """As a pod that is deleted: silence, and its leaders elected elsewhere at once (a lease later in real life). The
        leaders tell PD which peers they do not reach, at once too."""
        store = self.stores[store_id]
        store.alive, store.stopped = False, time.time()
        for region in self._held(store_id):
            if region.leader == store_id:
                self.interrupted += 1
                others = [s for s, (_, role) in region.peers.items() if role == VOTER and self.stores[s].alive]
                if others:
                    self._lead(region, others[0])
            else:
                self._wire.report(region)

    def _held(self, store_id):
        return [region for region in self.regions.values() if store_id in region.peers]

    def start_store(self, store_id):
        store = self.stores[store_id]
        store.alive = True
        store.started = int(time.time())
        self._wire.greet(store_id)
        for region in self._held(store_id):
            self._wire.report(region)

    def split(self, region_id, key):
        """As TiKV when a region has grown: two of them from here on, with the same stores and the same leader."""
        region = self.regions[region_id]
        new = max(self.regions) + 10
        peers = {s: (new + 1 + k, role) for k, (s, (_, role)) in enumerate(region.peers.items())}
        region.version += 1
        right = Region(new, key, region.end, peers, region.leader, region.version, region.conf_ver)
        region.end = key
        self.regions[new] = right
        for half in (region, right):
            self._wire.report(half)

    # ── Commands ──────────────────────────────────────────────────────────────────────────────────────────────────

    def command(self, response):
        task = asyncio.ensure_future(self._obey(response))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _obey(self, response):
        region = self.regions.get(response.region_id)
        if region is None:
            return
        if self.transfer_s:
            await asyncio.sleep(self.transfer_s)
        epoch = response.region_epoch
        if (epoch.conf_ver, epoch.version) != (region.conf_ver, region.version):
            return  # as TiKV: PD says it again when it has heard nothing for a while, and once is enough
        if response.HasField("transfer_leader"):
            wish = response.transfer_leader
            self._transfer(region, [p.store_id for p in (*wish.peers, wish.peer)])
        elif response.HasField("change_peer_v2"):
            self._change(region, list(response.change_peer_v2.changes))
        elif response.HasField("change_peer"):
            self._change(region, [response.change_peer])
        # Splits and merges are left undone: PD gives up on them.

    def _transfer(self, region, targets):
        for target in targets:
            if target == region.leader:
                return
            if region.peers.get(target, (0, LEARNER))[1] == VOTER and self.stores[target].alive:
                self.obeyed.append(("transfer", region.id, target))
                self._lead(region, target)
                return

    def _lead(self, region, store_id):
        region.leader = store_id
        region.term += 1
        self._wire.report(region)

    def _change(self, region, changes):
        peers = region.peers
        if not changes:  # leave the joint state
            turned = {INCOMING: VOTER, DEMOTING: LEARNER}
            left = [s for s, (_, role) in peers.items() if role in turned]
            for s in left:
                peers[s] = (peers[s][0], turned[peers[s][1]])
            region.conf_ver += len(left)
        joint = len(changes) > 1
        for change in changes:
            store, kind = change.peer.store_id, change.change_type
            if kind == REMOVE:
                peers.pop(store, None)
            elif kind == ADD:
                peers[store] = (change.peer.id, INCOMING if joint else VOTER)
            else:
                demoted = joint and store in peers
                peers[store] = (change.peer.id, DEMOTING if demoted else LEARNER)
            region.conf_ver += 1
            self.obeyed.append((("add", "remove", "learner")[kind], region.id, store))
        self._wire.report(region)
