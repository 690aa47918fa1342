"""What capabilities may ask of the world: they are typed against this Protocol and cannot change anything.

A query costs a lookup, or a walk over the rows it returns. Only `pods()`,
`nodes()`, `workloads()` and `tidb_clusters()` walk a whole kind, and they are for start-up, reports and checks, not
for events. Answers come in no promised order: sort by name where the order decides something.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol, TypeVar

import msgspec

from mooring.core.model.capacity import CapacityRules, NodeClass
from mooring.core.model.cluster import ConfigMap, Key, Node, Pdb, Pod, ReplicaSet, Volume, Workload
from mooring.core.model.decision import Verdict
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import Machine
from mooring.core.model.tidb import PdView, TidbCluster

IndexT = TypeVar("IndexT")


class Usage(msgspec.Struct, frozen=True, gc=False):
    """What the pods of a node request together. Ended pods hold nothing; leaving ones still hold their room."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    pods: int = 0


class PdLook(msgspec.Struct, frozen=True, gc=False):
    """The last look at a PD."""

    view: PdView
    at: float
    #: When this very PD process was first seen to lead and to list its schedulers.
    since: float
    #: Another one led before it, by our looks.
    took_over: bool = False


class WorldRead(Protocol):
    @property
    def rules(self) -> CapacityRules: ...

    def index(self, of: type[IndexT]) -> IndexT:
        """An index that a capability registered, by its class."""
        ...

    def synced(self, *kinds: Kind) -> bool:
        """Whether each of these kinds has been listed: only then does absence mean anything."""
        ...

    # ── pods ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def pods(self) -> Iterable[Pod]: ...

    def pod(self, key: Key) -> Pod | None: ...

    def pods_on(self, node: str) -> tuple[Pod, ...]: ...

    def pods_owned_by(self, uid: str) -> tuple[Pod, ...]:
        """Pods whose controlling owner has this uid."""
        ...

    def pods_of(self, workload: Workload) -> tuple[Pod, ...]:
        """Those that it owns, or that its ReplicaSets do. By uid: a namesake's pods are not its own."""
        ...

    def tidb_pods(self, cluster: Key, component: str) -> tuple[Pod, ...]:
        """Pods of one component (`tidb`, `tikv`, `pd`, …) of a TidbCluster, by their owner."""
        ...

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def nodes(self) -> Iterable[Node]: ...

    def node(self, name: str) -> Node | None: ...

    def node_class(self, name: str) -> NodeClass:
        """`unknown` also for a node that is not there."""
        ...

    def node_classes(self) -> Mapping[str, NodeClass]:
        """The class of every node there is, by name: for those who ask about many."""
        ...

    def nodes_of_class(self, node_class: NodeClass) -> tuple[Node, ...]: ...

    def nodes_with_taint(self, key: str) -> tuple[Node, ...]: ...

    def usage(self, node: str) -> Usage:
        """What its pods request together."""
        ...

    # ── workloads ─────────────────────────────────────────────────────────────────────────────────────────────────

    def workloads(self) -> Iterable[Workload]: ...

    def workload(self, kind: Kind, key: Key) -> Workload | None: ...

    def workload_by_uid(self, uid: str) -> Workload | None: ...

    def workload_of(self, pod: Pod) -> Workload | None:
        """The Deployment, StatefulSet, Rollout or CloneSet behind a pod. None for bare pods, Jobs, DaemonSets, lone
        ReplicaSets."""
        ...

    def replica_set(self, uid: str) -> ReplicaSet | None: ...

    def replica_sets_of(self, deployment_uid: str) -> tuple[ReplicaSet, ...]: ...

    # ── budgets, volumes, ConfigMaps ──────────────────────────────────────────────────────────────────────────────

    def pdbs_of(self, pod: Pod) -> tuple[Pdb, ...]:
        """The budgets that select this pod."""
        ...

    def volumes_of(self, pod: Pod) -> tuple[Volume, ...]:
        """The bound volumes of a pod, as far as they are known."""
        ...

    def config_map(self, key: Key) -> ConfigMap | None: ...

    # ── TiDB and machines ─────────────────────────────────────────────────────────────────────────────────────────

    def tidb_clusters(self) -> Iterable[TidbCluster]: ...

    def tidb_cluster(self, key: Key) -> TidbCluster | None: ...

    def tidb_cluster_of(self, pod: Pod) -> TidbCluster | None: ...

    def pd(self, cluster: Key) -> PdView | None:
        """The last look at this cluster's PD. None: never seen, or the cluster is gone."""
        ...

    def pd_observed_at(self, cluster: Key) -> float | None: ...

    def pd_look(self, cluster: Key) -> PdLook | None:
        """That look, with what the looks before it say of this PD."""
        ...

    def clusters_of_pd(self, cluster_id: int) -> Collection[Key]:
        """The TidbClusters whose PD had this cluster id when it was last looked at."""
        ...

    def pd_lost(self, cluster: Key) -> Verdict | None:
        """Why the last look at PD failed; None while it answers."""
        ...

    def machines(self) -> tuple[Machine, ...]: ...

    def machines_observed_at(self) -> float | None:
        """None: the registry has not answered yet, so `machines()` means nothing."""
        ...

    def machines_asked_at(self) -> float | None:
        """When the last query of the registry began, whatever came of it. None: none has ended yet."""
        ...

    def machines_lost(self) -> str:
        """The error of the last query of the registry; "" while it answers."""
        ...

    # ── features ──────────────────────────────────────────────────────────────────────────────────────────────────

    def is_on(self, feature: str) -> bool:
        """Whether a feature is switched on: a capability that hands work to another asks. True while unknown."""
        ...
