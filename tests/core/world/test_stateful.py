"""Random lives of a cluster, event by event: lists, changes, late and lost events, names used again.

Beside the world runs the plainest model there is (a dict of what exists); after every step the rows are the same, and
every index is what a rebuild gives.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import structs

from mooring.core.model.cluster import Key, Node, Owner, Pod, PodShape, ReplicaSet, Taint, Workload
from mooring.core.model.events import Gone, Listed, Seen
from mooring.core.model.kinds import Kind
from mooring.core.world.world import World

KINDS = (Kind.POD, Kind.NODE, Kind.REPLICA_SET, Kind.DEPLOYMENT)
NAMES = ("x", "y", "z")
TIKV = {"app.kubernetes.io/instance": "demo", "app.kubernetes.io/component": "tikv"}
SHAPES = (PodShape(cpu_milli=100), PodShape(cpu_milli=250, memory_bytes=7), PodShape(labels=TIKV, cpu_milli=1))
CLASSES = ({}, {"node.kubernetes.io/capacity": "spot"}, {"node.kubernetes.io/capacity": "on-demand"})
TAINTS = (
    (),
    (Taint("t", "NoSchedule"),),
    (Taint("t", "NoExecute"), Taint("t", "NoSchedule"), Taint("u", "NoSchedule")),
)
#: Owners that exist, that existed, and that never will.
OWNERS = (None, *(Owner("ReplicaSet", name, f"ReplicaSet-{n}") for n, name in enumerate(NAMES)))
PARENTS = (None, *(Owner("Deployment", name, f"Deployment-{n}") for n, name in enumerate(NAMES)))


class Cluster(RuleBasedStateMachine):
    """However events come, the world is what a list of the same moment would build."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.version = 0
        self.born = 0
        #: What exists, by kind and uid.
        self.truth: dict[Kind, dict[str, object]] = {kind: {} for kind in KINDS}
        #: Every version that ever was, to replay late.
        self.past: list[tuple[Kind, object]] = []
        #: Seen to go since the last list: may not come back by an event.
        self.ended: dict[Kind, list[tuple[Key, str]]] = {kind: [] for kind in KINDS}

    def make(self, data, kind, name, uid):
        self.version += 1
        version = str(self.version)
        if kind is Kind.POD:
            old = self.truth[kind].get(uid)
            # Mostly a pod keeps its template and its owner, often its place too, and only its phase changes.
            keep = old is not None and data.draw(st.integers(0, 3)) > 0
            stay = keep and data.draw(st.booleans())
            return Pod(
                "ns",
                name,
                uid,
                version,
                old.shape if keep else data.draw(st.sampled_from(SHAPES)),
                owner=old.owner if keep else data.draw(st.sampled_from(OWNERS)),
                node=old.node if stay else data.draw(st.sampled_from((*NAMES, ""))),
                phase=data.draw(st.sampled_from(("Pending", "Running", "Failed"))),
                deletion_at=data.draw(st.sampled_from((None, 5.0))),
            )
        if kind is Kind.NODE:
            labels, taints = data.draw(st.sampled_from(CLASSES)), data.draw(st.sampled_from(TAINTS))
            return Node(name, uid, version, labels=labels, taints=taints)
        if kind is Kind.REPLICA_SET:
            return ReplicaSet("ns", name, uid, version, owner=data.draw(st.sampled_from(PARENTS)))
        return Workload("Deployment", "ns", name, uid, version)

    def fresh(self, data, kind, name):
        self.born += 1
        # The first few uids are those that owners point to.
        return self.make(data, kind, name, f"{kind}-{self.born % 5 if self.born < 5 else self.born}")

    def store(self, kind, obj):
        rows = self.truth[kind]
        for uid in [uid for uid, row in rows.items() if row.name == obj.name and uid != obj.uid]:
            self.ended[kind].append((rows[uid].key, uid))
            del rows[uid]
        rows[obj.uid] = obj
        self.past.append((kind, obj))

    @initialize(data=st.data())
    def start(self, data):
        for kind in KINDS:
            self.relist(data, kind)

    @rule(data=st.data(), kind=st.sampled_from(KINDS), name=st.sampled_from(NAMES))
    def create(self, data, kind, name):
        """Also over a living namesake, whose end nobody saw."""
        obj = self.fresh(data, kind, name)
        if obj.uid in self.truth[kind] or any(obj.uid == uid for _, uid in self.ended[kind]):
            return
        changes = self.world.apply(Seen(kind, obj))
        assert changes[-1].new is obj
        self.store(kind, obj)

    @precondition(lambda self: any(self.truth.values()))
    @rule(data=st.data())
    def change(self, data):
        kind = data.draw(st.sampled_from([k for k in KINDS if self.truth[k]]))
        old = self.truth[kind][data.draw(st.sampled_from(sorted(self.truth[kind])))]
        new = self.make(data, kind, old.name, old.uid)
        told = self.world.apply(Seen(kind, new))
        # A new version is told of exactly when the row shows something new.
        shows = structs.replace(new, resource_version=old.resource_version) != old
        assert [(change.old, change.new) for change in told] == ([(old, new)] if shows else [])
        self.store(kind, new)

    @precondition(lambda self: any(self.truth.values()))
    @rule(data=st.data())
    def delete(self, data):
        kind = data.draw(st.sampled_from([k for k in KINDS if self.truth[k]]))
        old = self.truth[kind].pop(data.draw(st.sampled_from(sorted(self.truth[kind]))))
        (change,) = self.world.apply(Gone(kind, old.key, old.uid))
        assert (change.old, change.new) == (old, None)
        self.ended[kind].append((old.key, old.uid))

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def late_event(self, data):
        """A version from the past changes nothing, as long as its object exists or was seen to end."""
        kind, obj = data.draw(st.sampled_from(self.past))
        if obj.uid in self.truth[kind] or any(obj.uid == uid for _, uid in self.ended[kind]):
            assert self.world.apply(Seen(kind, obj)) == []

    @precondition(lambda self: any(self.ended.values()))
    @rule(data=st.data())
    def late_end(self, data):
        kind = data.draw(st.sampled_from([k for k in KINDS if self.ended[k]]))
        key, uid = data.draw(st.sampled_from(self.ended[kind]))
        assert self.world.apply(Gone(kind, key, uid)) == []

    @rule(data=st.data(), kind=st.sampled_from(KINDS), step=st.sampled_from((1, 2, 1000)))
    def relist(self, data, kind, step=1000):
        """Some are gone, some have changed, some are new, some names are used again, and some versions run backwards."""
        listed: dict[str, object] = {}
        for name in NAMES:
            known = next((row for row in self.truth[kind].values() if row.name == name), None)
            match data.draw(st.sampled_from(("gone", "same", "changed", "new", "restored"))):
                case "same" if known is not None:
                    listed[name] = known
                case "changed" if known is not None:
                    listed[name] = self.make(data, kind, name, known.uid)
                case "restored":
                    older = [o for k, o in self.past if k is kind and o.name == name]
                    listed[name] = data.draw(st.sampled_from(older)) if older else self.fresh(data, kind, name)
                case "new":
                    listed[name] = self.fresh(data, kind, name)
        uids = [row.uid for row in listed.values()]
        if len(set(uids)) < len(uids):
            return
        for _ in self.world.relist(Listed(kind, tuple(listed.values())), step):
            assert self.world.check() == []
        self.truth[kind] = {row.uid: row for row in listed.values()}
        # What is newer than a restored list never happened: its versions will be given to others.
        at = {row.uid: int(row.resource_version) for row in listed.values()}
        self.past = [(k, o) for k, o in self.past if k is not kind or int(o.resource_version) <= at.get(o.uid, 10**9)]
        self.past.extend((kind, row) for row in listed.values())
        self.ended[kind].clear()

    @invariant()
    def world_is_true(self):
        assert self.world.check() == []
        for kind in KINDS:
            assert {row.uid: row for row in self.world._rows.by_kind[kind]} == self.truth[kind]

    @invariant()
    def ways_in_lead_to_the_same(self):
        """What the queries answer, from the truth alone."""
        pods = list(self.truth[Kind.POD].values())
        for name in NAMES:
            assert {p.uid for p in self.world.pods_on(name)} == {p.uid for p in pods if p.node == name}
        for deployment in self.truth[Kind.DEPLOYMENT].values():
            sets = {r.uid for r in self.truth[Kind.REPLICA_SET].values() if r.owner and r.owner.uid == deployment.uid}
            mine = {p.uid for p in pods if p.owner and p.owner.uid in sets}
            assert {p.uid for p in self.world.pods_of(deployment)} == mine
            assert all(self.world.workload_of(p) is deployment for p in self.world.pods_of(deployment))


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)
