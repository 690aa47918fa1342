"""What placement reads of Kubernetes: slim, frozen rows.

The full objects (7 KB a pod) never stay in memory. `clients.wire` projects them onto these structs at the edge and
shares whatever repeats: all pods of one template hold the same `PodShape`, all pods of one owner the same `Owner`.
150,000 pods fit into 200 MB that way, and the garbage collector has little to walk (`gc=False`: none of these can
form a cycle).

Times are seconds since the epoch (float). Absent times are None. Names of nodes are "" while unknown.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


class Key(msgspec.Struct, frozen=True, gc=False, order=True):
    """Namespace and name; the namespace of cluster-scoped objects is ""."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Owner(msgspec.Struct, frozen=True, gc=False):
    """The controlling owner reference (`controller: true`). Match by uid: a name may have been reused."""

    kind: str
    name: str
    uid: str
    api_version: str = "apps/v1"


#: The effect that ends running pods.
NO_EXECUTE: Final = "NoExecute"


class Taint(msgspec.Struct, frozen=True, gc=False, order=True):
    key: str
    effect: str
    value: str = ""


class Toleration(msgspec.Struct, frozen=True, gc=False):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None

    def tolerates(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return bool(self.key) and self.value == taint.value


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """One expression of a node selector term: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        have = labels.get(self.key)
        match self.operator:
            case "In":
                return have is not None and have in self.values
            case "NotIn":
                return have is None or have not in self.values
            case "Exists":
                return have is not None
            case "DoesNotExist":
                return have is None
            case "Gt" | "Lt":
                if have is None or len(self.values) != 1:
                    return False
                try:
                    left, right = int(have), int(self.values[0])
                except ValueError:
                    return False
                return left > right if self.operator == "Gt" else left < right
            case _:
                return False


class SelectorTerm(msgspec.Struct, frozen=True, gc=False):
    """Expressions and fields, ANDed. A term with neither matches no node."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        if not self.expressions and not self.fields:
            return False
        return all(e.matches(labels) for e in self.expressions) and all(
            f.matches({"metadata.name": name}) for f in self.fields
        )


class PodShape(msgspec.Struct, frozen=True, gc=False):
    """What all pods of one template have in common; one shared instance per distinct content."""

    #: Without the labels that differ from pod to pod (`statefulset.kubernetes.io/pod-name`, `…/pod-index`).
    labels: Mapping[str, str] = NO_LABELS
    cpu_milli: int = 0
    memory_bytes: int = 0
    priority: int = 0
    scheduler_name: str = "default-scheduler"
    tolerations: tuple[Toleration, ...] = ()
    node_selector: Mapping[str, str] = NO_LABELS
    #: Required node affinity: terms are ORed. None: no requirement; () or only empty terms: matches no node.
    required_terms: tuple[SelectorTerm, ...] | None = None
    #: Keys of required pod anti-affinity (topology keys); enough to say "may not share".
    anti_affinity_keys: tuple[str, ...] = ()
    grace_s: int = 30
    has_empty_dir: bool = False
    host_network: bool = False


class Namespaced(msgspec.Struct, frozen=True, gc=False):
    """What every object in a namespace has."""

    namespace: str
    name: str
    uid: str
    resource_version: str

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


class Pod(Namespaced, frozen=True, gc=False):
    shape: PodShape
    owner: Owner | None = None
    generate_name: str = ""
    node: str = ""
    phase: str = "Pending"
    ready: bool = False
    #: When the Ready condition last changed.
    ready_since: float | None = None
    created_at: float = 0.0
    #: metadata.deletionTimestamp: the moment the grace period ends; not None means Terminating.
    deletion_at: float | None = None
    #: False while kube-scheduler says Unschedulable.
    schedulable: bool = True
    #: Names of the PersistentVolumeClaims it mounts.
    claims: tuple[str, ...] = ()
    #: Only keys that placement reads (see `mooring.clients.wire`); the shared empty mapping when there are none.
    annotations: Mapping[str, str] = NO_LABELS
    is_mirror: bool = False
    nominated_node: str = ""

    @property
    def labels(self) -> Mapping[str, str]:
        return self.shape.labels

    @property
    def terminating(self) -> bool:
        return self.deletion_at is not None

    @property
    def terminal(self) -> bool:
        return self.phase in {"Succeeded", "Failed"}

    @property
    def active(self) -> bool:
        """Kubernetes' own word: counted by controllers, i.e. neither ended nor on its way out."""
        return not self.terminal and self.deletion_at is None


class Node(msgspec.Struct, frozen=True, gc=False):
    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    #: The Ready condition: "True", "False" or "Unknown".
    ready: str = "Unknown"
    ready_reason: str = ""
    ready_since: float | None = None
    #: Other conditions that are "True" (e.g. VMEventScheduled), by type, sorted.
    conditions: tuple[str, ...] = ()
    cpu_milli: int = 0
    memory_bytes: int = 0
    pods_limit: int = 110
    internal_ip: str = ""
    created_at: float = 0.0
    deletion_at: float | None = None
    #: Those of `conditions` that Mooring has set.
    own_conditions: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        return Key("", self.name)


class NodeClaim(msgspec.Struct, frozen=True, gc=False):
    """Karpenter's, as far as its node's end matters: `process.karpenter` puts it on the Node's row."""

    name: str
    uid: str
    resource_version: str
    node: str = ""
    #: When what is left of its node is deleted by force, as it says it; "": never.
    terminates_at: str = ""

    @property
    def key(self) -> Key:
        return Key("", self.name)


class PodEviction(Namespaced, frozen=True, gc=False):
    """An Eviction of `lifecycle.k8s.io`, made of EvictionRequests, as far as Mooring responds to it."""

    pod: str = ""
    pod_uid: str = ""
    #: One of those who request it.
    by: str = ""
    #: Of Mooring as a responder: Inactive, Active, Interrupted, Canceled or Completed; "": it is none.
    state: str = ""
    #: Since when it is Mooring's turn, when it last said that it lives, with which words, and when it was done.
    started: float | None = None
    heartbeat: float | None = None
    message: str = ""
    completed: float | None = None


class Workload(msgspec.Struct, frozen=True, gc=False):
    """A Deployment, StatefulSet, Rollout or CloneSet, as far as its spread and its health matter."""

    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    replicas: int = 1
    generation: int = 0
    observed_generation: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    updated_replicas: int = 0
    status_replicas: int = 0
    min_ready_s: int = 0
    #: Selector as matchLabels only (what capabilities need).
    match_labels: Mapping[str, str] = NO_LABELS
    # Deployment
    paused: bool = False
    #: Why its ReplicaSet cannot create pods (condition ReplicaFailure), without the pod's name; "": it can.
    failure: str = ""
    strategy: str = "RollingUpdate"
    #: Absolute numbers, already resolved from int-or-percent against `replicas` (surge up, unavailable down).
    max_surge: int = 1
    max_unavailable: int = 0
    # StatefulSet
    ordinals_start: int = 0
    current_revision: str = ""
    update_revision: str = ""
    pod_management: str = "OrderedReady"
    created_at: float = 0.0
    deletion_at: float | None = None
    #: What controls it, e.g. the TidbCluster of a StatefulSet.
    owner: Owner | None = None

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


class ReplicaSet(Namespaced, frozen=True, gc=False):
    owner: Owner | None = None
    replicas: int = 0
    pod_template_hash: str = ""
    #: deployment.kubernetes.io/revision
    revision: int = 0
    created_at: float = 0.0
    deletion_at: float | None = None


class Pdb(Namespaced, frozen=True, gc=False):
    match_labels: Mapping[str, str] = NO_LABELS
    match_expressions: tuple[Requirement, ...] = ()
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0

    def selects(self, labels: Mapping[str, str]) -> bool:
        """An empty selector selects every pod of the namespace (policy/v1)."""
        return all(labels.get(k) == v for k, v in self.match_labels.items()) and all(
            e.matches(labels) for e in self.match_expressions
        )


class Volume(msgspec.Struct, frozen=True, gc=False):
    """A PersistentVolume bound to nodes (local PVs): which nodes can take it."""

    name: str
    uid: str
    resource_version: str
    #: None: any node.
    required_terms: tuple[SelectorTerm, ...] | None = None
    claim: Key | None = None

    @property
    def key(self) -> Key:
        return Key("", self.name)


class Claim(Namespaced, frozen=True, gc=False):
    volume: str = ""


class ConfigMap(Namespaced, frozen=True, gc=False):
    """One of ours (memory, fleet settings): small, kept whole."""

    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    data: Mapping[str, str] = NO_LABELS
