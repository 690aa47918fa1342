"""The parts of the Kubernetes API that placement reads, as slim wire structs.

msgspec scans past every field that is not named here without building an object for it; `managedFields` and
`status.images`, often the largest parts, cost next to nothing. All fields may be missing or null: Go writes both.
Structs that make up a pod's shape are frozen and built of tuples, so that they can serve as keys for sharing it.
"""

import msgspec

from mooring.clients.wire.quantity import Amount


class Wire(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Fields are camelCase on the wire."""


class OwnerRef(Wire, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool | None = None


class Meta(Wire, frozen=True):
    name: str = ""
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generate_name: str | None = None
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerRef, ...] | None = None


# ── selectors ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Expression(Wire, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class Term(Wire, frozen=True):
    match_expressions: tuple[Expression, ...] | None = None
    match_fields: tuple[Expression, ...] | None = None


class NodeSelector(Wire, frozen=True):
    node_selector_terms: tuple[Term, ...] | None = None


class LabelSelector(Wire, frozen=True):
    match_labels: dict[str, str] | None = None
    match_expressions: tuple[Expression, ...] | None = None


# ── pods ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Amounts(Wire, frozen=True):
    cpu: Amount = None
    memory: Amount = None


class Resources(Wire, frozen=True):
    requests: Amounts | None = None
    limits: Amounts | None = None


class Container(Wire, frozen=True):
    resources: Resources | None = None
    restart_policy: str | None = None


class TolerationRef(Wire, frozen=True):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class AntiAffinityTerm(Wire, frozen=True):
    topology_key: str = ""


class NodeAffinity(Wire, frozen=True):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class PodAntiAffinity(Wire, frozen=True):
    required: tuple[AntiAffinityTerm, ...] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Wire, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_anti_affinity: PodAntiAffinity | None = None


class ClaimSource(Wire, frozen=True):
    claim_name: str = ""


class Empty(Wire, frozen=True):
    """Present or not is all we ask."""


class PodVolume(Wire, frozen=True):
    name: str = ""
    empty_dir: Empty | None = None
    ephemeral: Empty | None = None
    persistent_volume_claim: ClaimSource | None = None


class PodSpec(Wire, frozen=True):
    node_name: str | None = None
    scheduler_name: str | None = None
    priority: int | None = None
    termination_grace_period_seconds: int | None = None
    host_network: bool | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[TolerationRef, ...] | None = None
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    resources: Resources | None = None
    overhead: Amounts | None = None
    volumes: tuple[PodVolume, ...] | None = None


class WireCondition(Wire, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    last_transition_time: str | None = None


class PodStatus(Wire, frozen=True):
    phase: str | None = None
    nominated_node_name: str | None = None
    conditions: tuple[WireCondition, ...] | None = None


class WirePod(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus | None = None


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class TaintRef(Wire, frozen=True):
    key: str = ""
    effect: str = ""
    value: str | None = None


class NodeSpec(Wire, frozen=True):
    taints: tuple[TaintRef, ...] | None = None
    unschedulable: bool | None = None


class NodeAmounts(Wire, frozen=True):
    cpu: Amount = None
    memory: Amount = None
    pods: Amount = None


class NodeAddress(Wire, frozen=True):
    type: str = ""
    address: str = ""


class NodeCondition(WireCondition, frozen=True):
    #: The kubelet says here, and nowhere else, that the node is shutting down.
    message: str | None = None


class NodeStatus(Wire, frozen=True):
    allocatable: NodeAmounts | None = None
    capacity: NodeAmounts | None = None
    conditions: tuple[NodeCondition, ...] | None = None
    addresses: tuple[NodeAddress, ...] | None = None


class NodeClaimStatus(Wire, frozen=True):
    node_name: str | None = None


class WireNodeClaim(Wire, frozen=True):
    metadata: Meta = Meta()
    status: NodeClaimStatus | None = None


class EvictionPod(Wire, frozen=True):
    name: str = ""
    uid: str = ""


class EvictionTarget(Wire, frozen=True):
    pod: EvictionPod | None = None


class EvictionSpec(Wire, frozen=True):
    target: EvictionTarget | None = None


class EvictionRequester(Wire, frozen=True):
    name: str = ""
    intent: str = ""


class EvictionTurn(Wire, frozen=True):
    name: str = ""
    state: str = ""


class EvictionResponder(Wire, frozen=True):
    name: str = ""
    start_time: str | None = None
    heartbeat_time: str | None = None
    completion_time: str | None = None
    message: str | None = None


class EvictionStatus(Wire, frozen=True):
    requesters: tuple[EvictionRequester, ...] | None = None
    target_responders: tuple[EvictionTurn, ...] | None = None
    responders: tuple[EvictionResponder, ...] | None = None


class WireEviction(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: EvictionSpec | None = None
    status: EvictionStatus | None = None


class WireNode(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


# ── workloads ─────────────────────────────────────────────────────────────────────────────────────────────────────


class RollingUpdateSpec(Wire, frozen=True):
    max_surge: Amount = None
    max_unavailable: Amount = None


class Strategy(RollingUpdateSpec, frozen=True):
    """The figures of a CloneSet are its own, those of a Rollout its canary's or its blue-green's."""

    type: str | None = None
    rolling_update: RollingUpdateSpec | None = None
    canary: RollingUpdateSpec | None = None
    blue_green: RollingUpdateSpec | None = None
    paused: bool | None = None


class Ordinals(Wire, frozen=True):
    start: int | None = None


class WorkloadSpec(Wire, frozen=True):
    replicas: int | None = None
    selector: LabelSelector | None = None
    min_ready_seconds: int | None = None
    paused: bool | None = None
    strategy: Strategy | None = None
    update_strategy: Strategy | None = None
    ordinals: Ordinals | None = None
    pod_management_policy: str | None = None


class WorkloadCondition(WireCondition, frozen=True):
    message: str | None = None


class WorkloadStatus(Wire, frozen=True):
    #: A Rollout writes it as text.
    observed_generation: int | str | None = None
    replicas: int | None = None
    ready_replicas: int | None = None
    available_replicas: int | None = None
    updated_replicas: int | None = None
    current_revision: str | None = None
    update_revision: str | None = None
    conditions: tuple[WorkloadCondition, ...] | None = None


class WireWorkload(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus | None = None


# ── the rest ──────────────────────────────────────────────────────────────────────────────────────────────────────


class PdbSpec(Wire, frozen=True):
    selector: LabelSelector | None = None


class PdbStatus(Wire, frozen=True):
    disruptions_allowed: int | None = None
    current_healthy: int | None = None
    desired_healthy: int | None = None


class WirePdb(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: PdbSpec | None = None
    status: PdbStatus | None = None


class VolumeAffinity(Wire, frozen=True):
    required: NodeSelector | None = None


class ClaimRef(Wire, frozen=True):
    namespace: str = ""
    name: str = ""


class VolumeSpec(Wire, frozen=True):
    node_affinity: VolumeAffinity | None = None
    claim_ref: ClaimRef | None = None


class WireVolume(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: VolumeSpec | None = None


class ClaimSpec(Wire, frozen=True):
    volume_name: str | None = None


class WireClaim(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: ClaimSpec | None = None


# ── TidbClusters: their CRD has changed its schema over the years ─────────────────────────────────────────────────


class TlsCluster(Wire, frozen=True):
    enabled: bool | None = None


class OtherCluster(Wire, frozen=True):
    name: str | None = None
    namespace: str | None = None


class Component(Wire, frozen=True):
    replicas: int | None = None


class TidbSpec(Wire, frozen=True):
    tls_cluster: TlsCluster | None = None
    cluster_domain: str | None = None
    cluster: OtherCluster | None = None
    pd_addresses: tuple[str, ...] | None = None
    tidb: Component | None = None
    tikv: Component | None = None
    pd: Component | None = None


class TidbMember(Wire, frozen=True):
    node: str | None = None


class TikvStore(Wire, frozen=True):
    pod_name: str | None = None
    id: str | None = None


class EvictLeader(Wire, frozen=True):
    value: str | None = None
    pod_create_time: str | None = None
    begin_time: str | None = None


class TidbStatus(Wire, frozen=True):
    phase: str | None = None
    members: dict[str, TidbMember] | None = None


class TikvStatus(Wire, frozen=True):
    phase: str | None = None
    stores: dict[str, TikvStore] | None = None
    evict_leader_status: dict[str, EvictLeader] | None = None
    evict_leader: dict[str, EvictLeader] | None = None


class PdComponentStatus(Wire, frozen=True):
    phase: str | None = None


class TidbClusterStatus(Wire, frozen=True):
    cluster_id: str | None = msgspec.field(default=None, name="clusterID")
    tidb: TidbStatus | None = None
    tikv: TikvStatus | None = None
    pd: PdComponentStatus | None = None


class WireTidbCluster(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: TidbSpec | None = None
    status: TidbClusterStatus | None = None


class SuspendAction(Wire, frozen=True):
    suspend_compute: bool | None = None


class Dns(Wire, frozen=True):
    mode: str | None = None
    cluster_domain: str | None = None


class V2Spec(Wire, frozen=True):
    tls_cluster: TlsCluster | None = None
    paused: bool | None = None
    suspend_action: SuspendAction | None = None
    dns: Dns | None = None


class V2Component(Wire, frozen=True):
    kind: str | None = None
    replicas: int | None = None


class V2Status(Wire, frozen=True):
    id: str | None = None
    pd: str | None = None
    components: tuple[V2Component, ...] | None = None
    conditions: tuple[WireCondition, ...] | None = None


class WireV2Cluster(Wire, frozen=True):
    """`Cluster` of tidb-operator v2."""

    metadata: Meta = Meta()
    spec: V2Spec | None = None
    status: V2Status | None = None


class WireConfigMap(Wire, frozen=True):
    metadata: Meta = Meta()
    data: dict[str, str] | None = None
