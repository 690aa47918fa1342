"""Everything known about the cluster, now: fed by events, read by capabilities.

The promise: after any sequence of events the world is what a list of the same moment would build, at a cost that grows
with the change and not with the cluster. `mooring.core.world.check` compares the two.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from mooring.core.model.capacity import CapacityRules, NodeClass
from mooring.core.model.cluster import ConfigMap, Key, Node, Pdb, Pod, ReplicaSet, Volume, Workload
from mooring.core.model.decision import Verdict
from mooring.core.model.events import Change, Gone, KubeEvent, Listed, Object, Seen, Trigger
from mooring.core.model.kinds import POD_OWNERS, Kind
from mooring.core.model.machine import Machine
from mooring.core.model.tidb import PdView, TidbCluster, v2_component
from mooring.core.world.check import differences
from mooring.core.world.index import Index, IndexSet
from mooring.core.world.indexes import NodeIndexes, PodIndexes, ReplicaSetIndexes
from mooring.core.world.members import by_owner, tidb_member, tidb_member_set, within
from mooring.core.world.outside import Outside
from mooring.core.world.read import PdLook, Usage
from mooring.core.world.rows import Rows

_POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
_POD_INDEX: Final = "apps.kubernetes.io/pod-index"
IndexT = TypeVar("IndexT")


class World:
    """The one cache. Implements `mooring.core.world.read.WorldRead`."""

    def __init__(self, rules: CapacityRules | None = None) -> None:
        self.rules: CapacityRules = rules or CapacityRules()
        self._rows = Rows()
        self._outside = Outside()
        self._pod_indexes = PodIndexes()
        self._node_indexes = NodeIndexes(self.rules)
        self._replica_set_indexes = ReplicaSetIndexes()
        self.indexes = IndexSet()

    # ── indexes of capabilities ───────────────────────────────────────────────────────────────────────────────────

    def register(self, index: Index) -> None:
        """Keep an index from now on; it is shown what is known already."""
        kinds = index.observes if self.indexes.add(index) else ()
        for kind, table in self._rows.by_kind.items():
            for row in table if kind in kinds else ():
                self.indexes.observe(index, Change(kind, row.key, None, row), self)

    def reclassify(self, rules: CapacityRules) -> None:
        """Tell spot from on-demand by other rules. Indexes of capabilities that did so are to be registered again."""
        self.rules, self._node_indexes = rules, NodeIndexes(rules, self._rows.nodes)

    def index(self, of: type[IndexT]) -> IndexT:
        return self.indexes.by_class[of]  # type: ignore[return-value]

    def show(self, trigger: Trigger) -> None:
        """Tell the registered indexes of something that is no object of Kubernetes: a view of PD, regions, machines."""
        for index in self.indexes.observers.get(type(trigger), ()):
            self.indexes.observe(index, trigger, self)

    # ── events ────────────────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, event: KubeEvent) -> list[Change]:
        """Take an event in; say what it changed. What is late, already known, or new in its version alone changes
        nothing."""
        changes: list[Change] = []
        match event:
            case Seen():
                self._see(event.kind, event.object, changes, truth=False)
            case Gone():
                self._go(event, changes)
            case Listed():
                for part in self.relist(event):
                    changes += part
        return changes

    def relist(self, event: Listed, step: int = 1000) -> Iterator[list[Change]]:
        """`apply` of a list in parts of about `step` objects, for a loop that has other things to do in between.

        What is gone goes first; the world is consistent at every pause. Some parts change nothing and come back empty.
        Events of the same kind wait until the end.
        """
        table = self._rows.by_kind[event.kind]
        table.listed()
        uids: set[str] = set()
        for start in range(0, len(event.objects), step * 20):
            uids.update([obj.uid for obj in event.objects[start : start + step * 20]])
            yield []
        gone = table.missing_from(uids)
        del uids
        for start in range(0, len(gone), step):
            changes: list[Change] = []
            for old in gone[start : start + step]:
                self._remove(event.kind, old, changes, for_good=False)
            yield changes
        for start in range(0, len(event.objects), step):
            changes = []
            for obj in event.objects[start : start + step]:
                self._see(event.kind, obj, changes, truth=True)
            yield changes
        table.synced = True

    def known(self, kind: Kind, obj: Object) -> Object:
        """The stored row, if it is this very version of the object; else the object.

        For code that gathers a list: what the world has already need not be held twice until the list is complete.
        """
        stored: Object | None = self._rows.by_kind[kind].by_uid(obj.uid)
        return stored if stored is not None and stored.resource_version == obj.resource_version != "" else obj

    def _see(self, kind: Kind, new: Object, changes: list[Change], *, truth: bool) -> None:
        table = self._rows.by_kind[kind]
        old = table.by_uid(new.uid)
        if truth:
            if old is not None and old.resource_version == new.resource_version != "":
                return
        elif not table.is_news(old, new):
            return
        if old is None:
            assert new.uid, f"{kind} {new.key} has no uid: it did not come from an API server"
            namesake = table.get(new.key)
            if namesake is not None:
                self._remove(kind, namesake, changes, for_good=True)
        elif table.shows_the_same(old, new):
            table.put(old, new)
            return
        table.put(old, new)
        self._index(kind, old, new)
        change = Change(kind, new.key, old, new)
        changes.append(change)
        for index in self.indexes.observers.get(kind, ()):
            self.indexes.observe(index, change, self)

    def _go(self, event: Gone, changes: list[Change]) -> None:
        table = self._rows.by_kind[event.kind]
        old = table.by_uid(event.uid)
        if old is None:
            table.bury(event.uid)
        else:
            self._remove(event.kind, old, changes, for_good=True)

    def _remove(self, kind: Kind, old: Any, changes: list[Change], *, for_good: bool) -> None:
        self._rows.by_kind[kind].drop(old, for_good=for_good)
        self._index(kind, old, None)
        change = Change(kind, old.key, old, None)
        changes.append(change)
        for index in self.indexes.observers.get(kind, ()):
            self.indexes.observe(index, change, self)

    def _index(self, kind: Kind, old: Any, new: Any) -> None:
        match kind:
            case Kind.POD:
                self._pod_indexes.change(old, new)
            case Kind.NODE:
                self._node_indexes.change(old, new)
            case Kind.REPLICA_SET:
                self._replica_set_indexes.change(old, new)
            case Kind.TIDB_CLUSTER | Kind.TIDB_V2 if new is None:
                self._outside.forget(old.key)
            case _:
                pass

    # ── facts that are not Kubernetes' ────────────────────────────────────────────────────────────────────────────

    def note_pd(self, cluster: Key, view: PdView | None, observed_at: float) -> None:
        """A look at a cluster's PD; None forgets it. When PD stops answering, the last look stays, with its time."""
        if view is None:
            self._outside.forget(cluster)
        else:
            self._outside.look(cluster, view, observed_at)

    def note_pd_lost(self, cluster: Key, why: Verdict) -> None:
        """PD did not answer. The last view stays, with its time."""
        self._outside.pd_lost[cluster] = why

    def note_features(self, on: frozenset[str]) -> None:
        self._outside.features = on

    def note_machines(self, machines: Sequence[Machine], observed_at: float) -> None:
        self._outside.machines, self._outside.machines_at = tuple(machines), observed_at
        self._outside.machines_asked_at, self._outside.machines_lost = observed_at, ""

    def note_machines_lost(self, detail: str, at: float) -> None:
        """The registry did not answer. The last list of machines stays, with its time."""
        self._outside.machines_lost, self._outside.machines_asked_at = detail or "no answer", at

    # ── pods ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def count(self, kind: Kind) -> int:
        """How many there are, without walking them."""
        return len(self._rows.by_kind[kind])

    def synced(self, *kinds: Kind) -> bool:
        return all(self._rows.by_kind[kind].synced for kind in kinds)

    def pods(self) -> Iterable[Pod]:
        return self._rows.pods.values()

    def pod(self, key: Key) -> Pod | None:
        return self._rows.pods.get(key)

    def pods_on(self, node: str) -> tuple[Pod, ...]:
        return self._rows.pods.rows(self._pod_indexes.by_node.of(node))

    def pods_owned_by(self, uid: str) -> tuple[Pod, ...]:
        pods = self._rows.pods.rows(self._pod_indexes.by_owner.of(uid))
        owner = self._rows.replica_sets.by_uid(uid) or self.workload_by_uid(uid)
        return pods if owner is None else within(owner.namespace, pods)

    def pods_of(self, workload: Workload) -> tuple[Pod, ...]:
        by_owner = self._pod_indexes.by_owner
        if workload.kind in POD_OWNERS:
            return within(workload.namespace, self._rows.pods.rows(by_owner.of(workload.uid)))
        sets = self._replica_set_indexes.by_deployment.of(workload.uid)
        pods = self._rows.pods.rows(pod for replica_set in sets for pod in by_owner.of(replica_set))
        return within(workload.namespace, pods)

    def tidb_pods(self, cluster: Key, component: str) -> tuple[Pod, ...]:
        part = self._rows.stateful_sets.get(Key(cluster.namespace, f"{cluster.name}-{component}"))
        mine = part if part is not None and tidb_member_set(part) == (cluster, component) else None
        owned = self.pods_owned_by(mine.uid) if mine is not None else ()
        labeled = self._rows.pods.rows(self._pod_indexes.by_member.of((cluster.namespace, cluster.name, component)))
        tc = self.tidb_cluster(cluster)
        v2 = tc is not None and tc.v2
        labeled = tuple([p for p in labeled if (v2_component(p.owner) is not None) is v2])
        if v2:
            return labeled
        # Labels count where no owner says otherwise: a StatefulSet that is being recreated, or of another kind.
        return (*owned, *[p for p in labeled if not by_owner(p.owner, self)[0]])

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def nodes(self) -> Iterable[Node]:
        return self._rows.nodes.values()

    def node(self, name: str) -> Node | None:
        return self._rows.nodes.named(name)

    def node_class(self, name: str) -> NodeClass:
        return self._node_indexes.class_of.get(name, NodeClass.UNKNOWN)

    def node_classes(self) -> Mapping[str, NodeClass]:
        return self._node_indexes.class_of

    def nodes_of_class(self, node_class: NodeClass) -> tuple[Node, ...]:
        return self._rows.nodes.rows(self._node_indexes.by_class.of(node_class))

    def nodes_with_taint(self, key: str) -> tuple[Node, ...]:
        return self._rows.nodes.rows(self._node_indexes.by_taint.of(key))

    def usage(self, node: str) -> Usage:
        cpu, memory, count = self._pod_indexes.used.get(node, (0, 0, 0))
        return Usage(cpu, memory, count)

    # ── workloads ─────────────────────────────────────────────────────────────────────────────────────────────────

    def workloads(self) -> Iterable[Workload]:
        for rows in self._rows.workloads.values():
            yield from rows

    def workload(self, kind: Kind, key: Key) -> Workload | None:
        rows = self._rows.workloads.get(kind)
        return None if rows is None else rows.get(key)

    def workload_by_uid(self, uid: str) -> Workload | None:
        return next((found for rows in self._rows.workloads.values() if (found := rows.by_uid(uid)) is not None), None)

    def workload_of(self, pod: Pod) -> Workload | None:
        owner = pod.owner
        if owner is None:
            return None
        if owner.kind == Kind.REPLICA_SET:
            replica_set = self._rows.replica_sets.by_uid(owner.uid)
            if replica_set is None or replica_set.owner is None or replica_set.namespace != pod.namespace:
                return None
            above = replica_set.owner
            rows = self._rows.workloads.get(above.kind) if above.kind not in POD_OWNERS else None
            found = None if rows is None else rows.by_uid(above.uid)
        elif owner.kind in POD_OWNERS:
            found = self._rows.workloads[owner.kind].by_uid(owner.uid)
        else:
            return None
        return found if found is not None and found.namespace == pod.namespace else None

    def replica_set(self, uid: str) -> ReplicaSet | None:
        return self._rows.replica_sets.by_uid(uid)

    def replica_sets_of(self, deployment_uid: str) -> tuple[ReplicaSet, ...]:
        return self._rows.replica_sets.rows(self._replica_set_indexes.by_deployment.of(deployment_uid))

    # ── budgets, volumes, ConfigMaps ──────────────────────────────────────────────────────────────────────────────

    def pdbs_of(self, pod: Pod) -> tuple[Pdb, ...]:
        labels = pod.labels
        if pod.owner is not None and pod.owner.kind == Kind.STATEFUL_SET:
            # Left out of the shared shape (they differ from pod to pod), and some budgets select by them.
            labels = {**labels, _POD_NAME: pod.name, _POD_INDEX: pod.name.rpartition("-")[2]}
        return tuple(pdb for pdb in self._rows.pdbs.within(pod.namespace) if pdb.selects(labels))

    def volumes_of(self, pod: Pod) -> tuple[Volume, ...]:
        claims = (self._rows.claims.get(Key(pod.namespace, name)) for name in pod.claims)
        volumes = (self._rows.volumes.named(claim.volume) for claim in claims if claim is not None and claim.volume)
        return tuple(volume for volume in volumes if volume is not None)

    def config_map(self, key: Key) -> ConfigMap | None:
        return self._rows.config_maps.get(key)

    # ── TiDB and machines ─────────────────────────────────────────────────────────────────────────────────────────

    def tidb_clusters(self) -> Iterable[TidbCluster]:
        yield from self._rows.tidb_clusters.values()
        yield from (tc for tc in self._rows.v2_clusters.values() if self._rows.tidb_clusters.get(tc.key) is None)

    def tidb_cluster(self, key: Key) -> TidbCluster | None:
        """Of two of one name, that of v1."""
        return self._rows.tidb_clusters.get(key) or self._rows.v2_clusters.get(key)

    def tidb_cluster_of(self, pod: Pod) -> TidbCluster | None:
        member = tidb_member(pod, self)
        return None if member is None else self.tidb_cluster(member[0])

    def pd(self, cluster: Key) -> PdView | None:
        found = self._outside.pd.get(cluster)
        return None if found is None else found.view

    def pd_observed_at(self, cluster: Key) -> float | None:
        found = self._outside.pd.get(cluster)
        return None if found is None else found.at

    def pd_look(self, cluster: Key) -> PdLook | None:
        return self._outside.pd.get(cluster)

    def clusters_of_pd(self, cluster_id: int) -> Collection[Key]:
        return self._outside.by_pd.get(cluster_id, ())

    def pd_lost(self, cluster: Key) -> Verdict | None:
        return self._outside.pd_lost.get(cluster)

    def is_on(self, feature: str) -> bool:
        return self._outside.features is None or feature in self._outside.features

    def machines(self) -> tuple[Machine, ...]:
        return self._outside.machines

    def machines_observed_at(self) -> float | None:
        return self._outside.machines_at

    def machines_asked_at(self) -> float | None:
        return self._outside.machines_asked_at

    def machines_lost(self) -> str:
        return self._outside.machines_lost

    # ── the checker ───────────────────────────────────────────────────────────────────────────────────────────────

    def check(self) -> list[str]:
        """Every index compared with one built again from the rows; what differs, in words. Walks everything."""
        return differences(self)
