"""A small TidbCluster as values, and an engine driven by hand: no mocks, no sleeps."""

from math import inf

from mooring.capabilities.handoff import Handoff
from mooring.core.engine.engine import Engine
from mooring.core.engine.events import Features, LeaseChanged
from mooring.core.model.cluster import Key, Pod, PodShape
from mooring.core.model.events import Listed, PdSeen, Seen
from mooring.core.model.instructions import Outcome, Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF
from mooring.core.model.tidb import PdView, Store, TidbCluster
from mooring.core.queue import Queue, live_settings
from mooring.core.world.world import World
from mooring.process.replica import KINDS

CLUSTER = Key("tidb", "demo")
LABELS = {"app.kubernetes.io/component": "tikv", "app.kubernetes.io/instance": "demo"}
RESTART = {"tidb.pingcap.com/restart": ""}


def pod(ordinal, annotations=None, *, uid="", version="1", ready=True, created_at=0.0):
    return Pod(
        namespace="tidb",
        name=f"demo-tikv-{ordinal}",
        uid=uid or f"uid-{ordinal}",
        resource_version=version,
        shape=PodShape(labels=LABELS),
        node=f"n{ordinal}",
        phase="Running",
        ready=ready,
        ready_since=created_at,
        created_at=created_at,
        annotations=annotations or {},
    )


def tidb_cluster(annotations=None, *, version="1", replicas=3):
    return TidbCluster(
        namespace="tidb",
        name="demo",
        uid="tc",
        resource_version=version,
        tikv_replicas=replicas,
        annotations=annotations or {},
    )


def view(leaders=(10, 10, 10), evicting=(), *, started=7, regions=None):
    stores = tuple(
        Store(id=i + 1, address=f"demo-tikv-{i}.peer:20160", leader_count=n, region_count=30, last_heartbeat_at=inf)
        for i, n in enumerate(leaders)
    )
    return PdView(
        stores=stores,
        evicting=evicting,
        region_count=sum(leaders) if regions is None else regions,
        start_timestamp=started,
        at_risk=dict.fromkeys(range(1, len(leaders) + 1), 0),
    )


def of(kind, asked):
    return [i for i in asked if isinstance(i, kind)]


class Hand:
    """Feeds an engine and keeps what it asks for."""

    def __init__(self, *capabilities):
        self.engine = Engine(World(), Queue(live_settings()), list(capabilities) or [Handoff()], kinds=KINDS)
        self.now = 100.0
        self.asked = []

    def feed(self, *events, at=None):
        self.now = self.now if at is None else at
        out = []
        for event in events:
            out += self.engine.handle(event, self.now)
            while (due := self.engine.next_wakeup()) is not None and due <= self.now:
                out += self.engine.work(self.now)
        self.asked += out
        return out

    def lead(self, objects=None):
        """Leading, with three healthy members and a PD that has listed its schedulers for a minute."""
        given = {Kind.TIDB_CLUSTER: (tidb_cluster(),), Kind.POD: tuple(pod(i) for i in range(3)), **(objects or {})}
        self.feed(*(Listed(kind, given.get(kind, ())) for kind in KINDS))
        self.feed(Features(frozenset({"handoff"})), LeaseChanged(True))
        return self.feed(PdSeen(CLUSTER, view(), self.now - 60), PdSeen(CLUSTER, view(), self.now))

    def annotate(self, ordinal, annotations=RESTART):
        return self.feed(Seen(Kind.POD, pod(ordinal, annotations, version="2")))

    def confirm(self, patch: Patch, *, version):
        """The API server's answer to a patch of the TidbCluster's mark."""
        mark = patch.patch["metadata"]["annotations"][HANDOFF]
        tc = tidb_cluster({HANDOFF: mark} if mark else {}, version=version)
        return self.feed(Outcome(instruction=patch.id, kind=Kind.TIDB_CLUSTER, object=tc))
