"""Nodes, workloads, budgets, volumes and ConfigMaps on the wire → rows of the model."""

from typing import Final

import msgspec

from mooring.clients.wire import sharing
from mooring.clients.wire.annotations import REVISION, kept
from mooring.clients.wire.fields import (
    EvictionPod,
    EvictionResponder,
    EvictionStatus,
    NodeAmounts,
    RollingUpdateSpec,
    Strategy,
    WireClaim,
    WireConfigMap,
    WireEviction,
    WireNode,
    WireNodeClaim,
    WirePdb,
    WireVolume,
    WireWorkload,
    WorkloadStatus,
)
from mooring.clients.wire.pods import controller, expressions, terms
from mooring.clients.wire.quantity import epoch, milli, share_of, whole
from mooring.core.model.cluster import (
    Claim,
    ConfigMap,
    Key,
    Node,
    NodeClaim,
    Pdb,
    PodEviction,
    ReplicaSet,
    Requirement,
    Taint,
    Volume,
    Workload,
)
from mooring.core.model.kinds import Kind
from mooring.core.model.limits import LONGEST_VALUE
from mooring.core.model.marks import OWN_REASON, RESPONDER, TERMINATES_AT

#: Our word for a kubelet in graceful shutdown: its own reason is the same as for any node that is not Ready.
SHUTDOWN: Final = "NodeShutdown"
#: A policy/v1 budget without a selector selects no pod (an empty one selects all).
_NOTHING: Final = (Requirement("", "In", ()),)


def node(wire: WireNode) -> Node:
    meta, spec, status = wire.metadata, wire.spec, wire.status
    ready, reason, since, conditions, own = "Unknown", "", None, [], []
    amounts, address = NodeAmounts(), ""
    if status is not None:
        for condition in status.conditions or ():
            if condition.type == "Ready":
                ready, reason = sharing.text(condition.status or "Unknown"), sharing.text(condition.reason or "")
                since = epoch(condition.last_transition_time)
                if ready == "False" and "shutting down" in (condition.message or ""):
                    reason = SHUTDOWN
            elif condition.status == "True":
                conditions.append(sharing.text(condition.type))
                if (condition.reason or "").startswith(OWN_REASON):
                    own.append(sharing.text(condition.type))
        amounts = status.allocatable or status.capacity or amounts
        address = next((a.address for a in status.addresses or () if a.type == "InternalIP"), "")
    taints = (spec.taints if spec else None) or ()
    return Node(
        name=sharing.text(meta.name),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        labels=sharing.labels(meta.labels),
        annotations=sharing.labels(kept(Kind.NODE, meta.annotations)),
        taints=tuple(Taint(sharing.text(t.key), sharing.text(t.effect), t.value or "") for t in taints),
        unschedulable=bool(spec and spec.unschedulable),
        ready=ready,
        ready_reason=reason,
        ready_since=since,
        conditions=tuple(sorted(conditions)),
        cpu_milli=milli(amounts.cpu),
        memory_bytes=whole(amounts.memory),
        pods_limit=110 if amounts.pods is None else whole(amounts.pods),
        internal_ip=address,
        created_at=epoch(meta.creation_timestamp) or 0.0,
        deletion_at=epoch(meta.deletion_timestamp),
        own_conditions=tuple(sorted(own)),
    )


def node_claim(wire: WireNodeClaim) -> NodeClaim:
    meta = wire.metadata
    return NodeClaim(
        name=sharing.text(meta.name),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        node=sharing.text((wire.status.node_name if wire.status else None) or ""),
        terminates_at=(meta.annotations or {}).get(TERMINATES_AT, "")[:LONGEST_VALUE],
    )


def eviction(wire: WireEviction) -> PodEviction:
    meta, status = wire.metadata, wire.status or EvictionStatus()
    target = (wire.spec.target.pod if wire.spec and wire.spec.target else None) or EvictionPod()
    mine = next((r for r in status.responders or () if r.name == RESPONDER), EvictionResponder())
    asks = (one.name for one in status.requesters or () if one.intent != "Withdrawn")
    return PodEviction(
        namespace=sharing.text(meta.namespace or ""),
        name=meta.name,
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        pod=target.name,
        pod_uid=target.uid,
        by=sharing.text(next(asks, "")),
        state=sharing.text(next((one.state for one in status.target_responders or () if one.name == RESPONDER), "")),
        started=epoch(mine.start_time),
        heartbeat=epoch(mine.heartbeat_time),
        message=(mine.message or "")[:LONGEST_VALUE],
        completed=epoch(mine.completion_time),
    )


def deployment(wire: WireWorkload) -> Workload:
    return _workload(Kind.DEPLOYMENT, wire)


def stateful_set(wire: WireWorkload) -> Workload:
    return _workload(Kind.STATEFUL_SET, wire)


def rollout(wire: WireWorkload) -> Workload:
    """Of Argo Rollouts: a Deployment with another way to roll out."""
    strategy = wire.spec.strategy or Strategy()
    rolling = strategy.canary or strategy.blue_green or RollingUpdateSpec()
    if strategy.blue_green is not None:  # a second set beside the first, and no surge of the first
        rolling = RollingUpdateSpec(max_surge=0, max_unavailable=rolling.max_unavailable or 0)
    spec = msgspec.structs.replace(wire.spec, strategy=Strategy(rolling_update=rolling))
    return _workload(Kind.ROLLOUT, msgspec.structs.replace(wire, spec=spec))


def clone_set(wire: WireWorkload) -> Workload:
    """Of OpenKruise: it owns its pods itself, and names them as a ReplicaSet does."""
    update = wire.spec.update_strategy or Strategy()
    rolling = RollingUpdateSpec(
        max_surge=0 if update.max_surge is None else update.max_surge,
        max_unavailable="20%" if update.max_unavailable is None else update.max_unavailable,
    )
    spec = msgspec.structs.replace(wire.spec, strategy=Strategy(rolling_update=rolling), paused=update.paused)
    return _workload(Kind.CLONE_SET, msgspec.structs.replace(wire, spec=spec))


def _workload(kind: Kind, wire: WireWorkload) -> Workload:
    meta, spec = wire.metadata, wire.spec
    status = wire.status or WorkloadStatus()
    replicas = 1 if spec.replicas is None else spec.replicas
    stateful = kind is Kind.STATEFUL_SET
    strategy = (spec.update_strategy if stateful else spec.strategy) or Strategy()
    surge, unavailable = (0, _stateful_unavailable(strategy, replicas)) if stateful else _limits(strategy, replicas)
    return Workload(
        kind=kind.value,
        namespace=sharing.text(meta.namespace or ""),
        name=meta.name,
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        labels=sharing.labels(meta.labels),
        annotations=sharing.labels(kept(kind, meta.annotations)),
        replicas=replicas,
        generation=meta.generation or 0,
        observed_generation=_observed(status.observed_generation, meta.generation or 0),
        ready_replicas=status.ready_replicas or 0,
        available_replicas=status.available_replicas or 0,
        updated_replicas=status.updated_replicas or 0,
        status_replicas=status.replicas or 0,
        min_ready_s=spec.min_ready_seconds or 0,
        match_labels=sharing.labels(spec.selector.match_labels if spec.selector else None),
        paused=bool(spec.paused),
        failure=_failure(status),
        strategy=sharing.text(strategy.type or "RollingUpdate"),
        max_surge=surge,
        max_unavailable=unavailable,
        ordinals_start=(spec.ordinals.start or 0) if spec.ordinals else 0,
        current_revision=status.current_revision or "",
        update_revision=status.update_revision or "",
        pod_management=sharing.text(spec.pod_management_policy or "OrderedReady"),
        created_at=epoch(meta.creation_timestamp) or 0.0,
        deletion_at=epoch(meta.deletion_timestamp),
        owner=controller(meta),
    )


def _observed(observed: int | str | None, generation: int) -> int:
    """Before its release 1.0 Argo wrote a hash, which says nothing: then it counts as seen."""
    if isinstance(observed, str):
        return int(observed) if observed.isascii() and observed.isdigit() and len(observed) < 19 else generation
    return observed or 0


def _failure(status: WorkloadStatus) -> str:
    """Why pods cannot be created. Each try names another pod, which is left out: the same reason stays the same."""
    for one in status.conditions or ():
        if one.type == "ReplicaFailure" and one.status == "True":
            message = one.message or one.reason or "for an unknown reason"
            return message.rpartition("is forbidden: ")[2][:300]
    return ""


def _limits(strategy: Strategy, replicas: int) -> tuple[int, int]:
    """(surge, unavailable) of a Deployment: surge rounds up, unavailable down, 25 % each unless said; both 0 would
    stand still, so unavailable is then 1. Recreate takes everything down and adds nothing."""
    if strategy.type == "Recreate":
        return 0, replicas
    rolling = strategy.rolling_update
    surge = share_of(rolling.max_surge if rolling else None, replicas, round_up=True)
    unavailable = share_of(rolling.max_unavailable if rolling else None, replicas, round_up=False)
    surge = share_of("25%", replicas, round_up=True) if surge is None else surge
    unavailable = share_of("25%", replicas, round_up=False) if unavailable is None else unavailable
    surge, unavailable = max(0, surge or 0), max(0, unavailable or 0)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, min(unavailable, max(replicas, 1))


def _stateful_unavailable(strategy: Strategy, replicas: int) -> int:
    """A StatefulSet never surges and replaces one at a time, or `maxUnavailable` (rounded down, at least 1)."""
    rolling = strategy.rolling_update
    return max(1, share_of(rolling.max_unavailable if rolling else None, replicas, round_up=False) or 1)


def replica_set(wire: WireWorkload) -> ReplicaSet:
    meta, spec = wire.metadata, wire.spec
    revision = (meta.annotations or {}).get(REVISION, "")
    return ReplicaSet(
        namespace=sharing.text(meta.namespace or ""),
        name=meta.name,
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        owner=controller(meta),
        replicas=1 if spec.replicas is None else spec.replicas,
        pod_template_hash=(meta.labels or {}).get("pod-template-hash", ""),
        revision=int(revision) if revision.isascii() and revision.isdigit() and len(revision) < 20 else 0,
        created_at=epoch(meta.creation_timestamp) or 0.0,
        deletion_at=epoch(meta.deletion_timestamp),
    )


def pdb(wire: WirePdb) -> Pdb:
    meta, status = wire.metadata, wire.status
    selector = wire.spec.selector if wire.spec else None
    return Pdb(
        namespace=sharing.text(meta.namespace or ""),
        name=meta.name,
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        match_labels=sharing.labels(selector.match_labels if selector else None),
        match_expressions=expressions(selector.match_expressions) if selector else _NOTHING,
        disruptions_allowed=(status.disruptions_allowed or 0) if status else 0,
        current_healthy=(status.current_healthy or 0) if status else 0,
        desired_healthy=(status.desired_healthy or 0) if status else 0,
    )


def volume(wire: WireVolume) -> Volume:
    meta, spec = wire.metadata, wire.spec
    required = spec.node_affinity.required if spec and spec.node_affinity else None
    ref = spec.claim_ref if spec else None
    return Volume(
        name=meta.name,
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        required_terms=None if required is None else terms(required),
        claim=None if ref is None else Key(sharing.text(ref.namespace), ref.name),
    )


def claim(wire: WireClaim) -> Claim:
    meta = wire.metadata
    return Claim(
        namespace=sharing.text(meta.namespace or ""),
        name=meta.name,
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        volume=(wire.spec.volume_name or "") if wire.spec else "",
    )


def config_map(wire: WireConfigMap) -> ConfigMap:
    meta = wire.metadata
    return ConfigMap(
        namespace=sharing.text(meta.namespace or ""),
        name=meta.name,
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        labels=sharing.labels(meta.labels),
        annotations=sharing.labels(kept(Kind.CONFIG_MAP, meta.annotations)),
        data=wire.data or {},
    )
