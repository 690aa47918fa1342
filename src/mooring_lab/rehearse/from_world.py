"""A snapshot out of what Mooring knew: the world of a recording at a moment, as objects that the sandbox can load.

A row has what placement reads and no more. What a snapshot needs besides is made plain: a template is that of the
workload's newest pod, without what admission added; and regions are spread over the stores as the counts of their
leaders say.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from mooring.capabilities.mix.admission.affinity import own_terms
from mooring.capabilities.mix.labels import AFFINITY
from mooring.capabilities.mix.policy import MixPolicy
from mooring.clients.ports import Json
from mooring.core.model.cluster import Owner, Pod, PodShape, Requirement, SelectorTerm, Volume, Workload
from mooring.core.model.exits import UserError
from mooring.core.model.kinds import RESOURCES, Kind
from mooring.core.model.tidb import EvictLeaderEntry, PdView, TidbCluster
from mooring.core.model.times import rfc3339
from mooring.core.world.kept import rows_of
from mooring.core.world.world import World
from mooring.process.blackbox.played import play
from mooring.process.settings.config import Config
from mooring_lab.rehearse.snapshot.schema import PdShot, PlacementShot, Snapshot, StoreShot

_HASH: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
_REPLICAS: Final = 3


def snapshot_of(world: World, at: float, config: Config, *, source: str) -> Snapshot:
    rows: Mapping[Kind, Iterable[Any]] = rows_of(world)
    pods = sorted(rows[Kind.POD], key=lambda pod: (pod.created_at, pod.namespace, pod.name))
    shapes = {pod.owner.uid: _own(pod.shape, config.policy(MixPolicy)) for pod in pods if pod.owner is not None}
    # A Deployment's template is that of its newest ReplicaSet.
    revisions: dict[str, int] = {}
    for one in sorted(rows[Kind.REPLICA_SET], key=lambda one: one.revision):
        if one.owner is not None:
            revisions[one.owner.uid] = one.revision
            shapes[one.owner.uid] = shapes.get(one.uid, PodShape())
    makes: dict[Kind, Callable[[Any], Json]] = {
        Kind.NODE: _node,
        Kind.PV: _volume,
        Kind.PVC: _claim,
        Kind.CONFIG_MAP: _config_map,
        Kind.TIDB_CLUSTER: _tidb_cluster,
        Kind.DEPLOYMENT: lambda one: _workload(one, shapes.get(one.uid), revisions.get(one.uid, 0)),
        Kind.STATEFUL_SET: lambda one: _workload(one, shapes.get(one.uid), revisions.get(one.uid, 0)),
        Kind.REPLICA_SET: lambda one: _replica_set(one, shapes.get(one.uid)),
        Kind.PDB: _pdb,
        Kind.POD: _pod,
    }
    objects = {kind.value: [_object(kind, one, make(one)) for one in rows[kind]] for kind, make in makes.items()}
    for made in objects.values():
        made.sort(key=lambda obj: (obj["metadata"].get("namespace", ""), obj["metadata"]["name"]))
    return Snapshot(
        taken_at=rfc3339(at),
        source=source,
        namespace=config.namespace,
        objects=objects,
        pds=tuple(_pd(tc, view) for tc in rows[Kind.TIDB_CLUSTER] if (view := world.pd(tc.key)) is not None),
        machines=world.machines() if world.machines_observed_at() is not None else None,
        remarks=("made from a recording: templates are those of the newest pods, regions are spread by counts",),
    )


def _object(kind: Kind, row: Any, parts: Json) -> Json:
    metadata: Json = {"name": row.name, "uid": row.uid}
    if namespace := getattr(row, "namespace", ""):
        metadata["namespace"] = namespace
    if created := getattr(row, "created_at", 0.0):
        metadata["creationTimestamp"] = rfc3339(created)
    if (leaves := getattr(row, "deletion_at", None)) is not None:
        metadata |= {"deletionTimestamp": rfc3339(leaves), "deletionGracePeriodSeconds": 30}
    for name in ("labels", "annotations"):
        if found := getattr(row, name, None):
            metadata[name] = dict(found)
    owner: Owner | None = getattr(row, "owner", None)
    if owner is not None:
        named = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
        metadata["ownerReferences"] = [{**named, "controller": True}]
    metadata |= parts.pop("metadata", {})
    return {"apiVersion": RESOURCES[kind].api_version, "kind": kind.value, "metadata": metadata, **parts}


def _terms(terms: Iterable[SelectorTerm]) -> Json:
    def said(of: Iterable[Requirement]) -> list[Json]:
        return [{"key": one.key, "operator": one.operator, "values": list(one.values)} for one in of]

    made = [{"matchExpressions": said(one.expressions), "matchFields": said(one.fields)} for one in terms]
    return {"nodeSelectorTerms": made}


def _pod_spec(shape: PodShape, claims: Iterable[str] = ()) -> Json:
    asked = {"cpu": f"{shape.cpu_milli}m", "memory": str(shape.memory_bytes)}
    spec: Json = {
        "schedulerName": shape.scheduler_name,
        "priority": shape.priority,
        "terminationGracePeriodSeconds": shape.grace_s,
        "containers": [{"name": "main", "resources": {"requests": asked}}],
        "volumes": [{"name": f"c{at}", "persistentVolumeClaim": {"claimName": one}} for at, one in enumerate(claims)],
    }
    if shape.has_empty_dir:
        spec["volumes"].append({"name": "empty", "emptyDir": {}})
    if shape.host_network:
        spec["hostNetwork"] = True
    if shape.node_selector:
        spec["nodeSelector"] = dict(shape.node_selector)
    if shape.tolerations:
        spec["tolerations"] = [
            {"key": t.key, "operator": t.operator, "value": t.value, "effect": t.effect}
            | ({"tolerationSeconds": t.seconds} if t.seconds is not None else {})
            for t in shape.tolerations
        ]
    affinity: Json = {}
    if shape.required_terms is not None:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": _terms(shape.required_terms)}
        affinity["nodeAffinity"] = required
    if shape.anti_affinity_keys:
        apart = [
            {"topologyKey": key, "labelSelector": {"matchLabels": _selecting(shape.labels)}}
            for key in shape.anti_affinity_keys
        ]
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": apart}
    if affinity:
        spec["affinity"] = affinity
    return spec


def _selecting(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key not in {_HASH, "controller-revision-hash"}}


def _own(shape: PodShape, mix: MixPolicy) -> PodShape:
    """Without what admission adds."""
    spot = mix.tolerations(mix.capacity.labels)
    return msgspec.structs.replace(
        shape,
        labels={key: value for key, value in shape.labels.items() if key != AFFINITY},
        tolerations=tuple(one for one in shape.tolerations if one not in spot),
        required_terms=own_terms(shape.required_terms, mix.capacity),
    )


def _template(shape: PodShape | None, labels: Mapping[str, str], revision: str) -> Json:
    spec = _pod_spec(shape or PodShape())
    spec["containers"][0]["image"] = f"revision:{revision or 1}"
    return {"metadata": {"labels": {**_selecting(shape.labels if shape else {}), **labels}}, "spec": spec}


def _pod(pod: Pod) -> Json:
    metadata: Json = {"labels": dict(pod.labels)}
    if pod.owner is not None and pod.owner.kind == Kind.STATEFUL_SET:
        metadata["labels"]["statefulset.kubernetes.io/pod-name"] = pod.name
    if pod.generate_name:
        metadata["generateName"] = pod.generate_name
    spec = _pod_spec(pod.shape, pod.claims)
    if pod.node:
        spec["nodeName"] = pod.node
    since = rfc3339(pod.ready_since if pod.ready_since is not None else pod.created_at)
    status = "True" if pod.ready else "False"
    conditions = [
        {"type": "PodScheduled", "status": "True" if pod.node else "False", "lastTransitionTime": since},
        {"type": "Ready", "status": status, "lastTransitionTime": since},
        {"type": "ContainersReady", "status": status, "lastTransitionTime": since},
    ]
    if not pod.schedulable:
        conditions[0]["reason"] = "Unschedulable"
    containers = [{"name": "main", "ready": pod.ready, "restartCount": 0}]
    return {
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": pod.phase, "conditions": conditions, "containerStatuses": containers},
    }


def _node(node: Any) -> Json:
    taints = [{"key": t.key, "effect": t.effect, "value": t.value} for t in node.taints]
    room = {"cpu": f"{node.cpu_milli}m", "memory": str(node.memory_bytes), "pods": str(node.pods_limit)}
    since = rfc3339(node.ready_since if node.ready_since is not None else node.created_at)
    ready = {"type": "Ready", "status": node.ready, "reason": node.ready_reason, "lastTransitionTime": since}
    others = [{"type": one, "status": "True", "lastTransitionTime": since} for one in node.conditions]
    status: Json = {"capacity": room, "allocatable": room, "conditions": [ready, *others]}
    if node.internal_ip:
        status["addresses"] = [{"type": "InternalIP", "address": node.internal_ip}]
    return {"spec": {"taints": taints, "unschedulable": node.unschedulable}, "status": status}


def _workload(one: Workload, shape: PodShape | None, revision: int) -> Json:
    spec: Json = {
        "replicas": one.replicas,
        "selector": {"matchLabels": dict(one.match_labels)},
        "minReadySeconds": one.min_ready_s,
        "template": _template(shape, one.match_labels, one.update_revision or str(revision)),
    }
    status: Json = {
        "observedGeneration": one.observed_generation,
        "replicas": one.status_replicas,
        "readyReplicas": one.ready_replicas,
        "availableReplicas": one.available_replicas,
        "updatedReplicas": one.updated_replicas,
    }
    if one.kind == Kind.DEPLOYMENT:
        rolling = {"maxSurge": one.max_surge, "maxUnavailable": one.max_unavailable}
        spec["strategy"] = {"type": one.strategy} | ({"rollingUpdate": rolling} if one.strategy != "Recreate" else {})
        spec["paused"] = one.paused
    else:
        spec |= {"serviceName": one.name, "podManagementPolicy": one.pod_management}
        spec["ordinals"] = {"start": one.ordinals_start}
        spec["updateStrategy"] = {"type": one.strategy}
        status |= {"currentRevision": one.current_revision, "updateRevision": one.update_revision}
        status["currentReplicas"] = one.status_replicas
    metadata: Json = {"generation": one.generation}
    if revision:
        metadata["annotations"] = {**one.annotations, REVISION: str(revision)}
    return {"metadata": metadata, "spec": spec, "status": status}


def _replica_set(one: Any, shape: PodShape | None) -> Json:
    labels = {_HASH: one.pod_template_hash} if one.pod_template_hash else {}
    template = _template(shape, labels, str(one.revision))
    selector = template["metadata"]["labels"]
    counts = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas", "fullyLabeledReplicas"), one.replicas)
    return {
        "metadata": {"labels": selector, "annotations": {REVISION: str(one.revision)}},
        "spec": {"replicas": one.replicas, "selector": {"matchLabels": selector}, "template": template},
        "status": counts,
    }


def _pdb(one: Any) -> Json:
    said = [{"key": e.key, "operator": e.operator, "values": list(e.values)} for e in one.match_expressions]
    selector = {"matchLabels": dict(one.match_labels), "matchExpressions": said}
    counts = {
        "disruptionsAllowed": one.disruptions_allowed,
        "currentHealthy": one.current_healthy,
        "desiredHealthy": one.desired_healthy,
    }
    return {"spec": {"minAvailable": one.desired_healthy, "selector": selector}, "status": counts}


def _volume(one: Volume) -> Json:
    spec: Json = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    if one.required_terms is not None:
        spec["nodeAffinity"] = {"required": _terms(one.required_terms)}
    if one.claim is not None:
        named = {"namespace": one.claim.namespace, "name": one.claim.name}
        spec["claimRef"] = {"kind": "PersistentVolumeClaim", **named}
    return {"spec": spec, "status": {"phase": "Bound" if one.claim is not None else "Available"}}


def _claim(one: Any) -> Json:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    if one.volume:
        return {"spec": {**spec, "volumeName": one.volume}, "status": {"phase": "Bound"}}
    return {"spec": spec, "status": {"phase": "Pending"}}


def _config_map(one: Any) -> Json:
    return {"data": dict(one.data)}


def _tidb_cluster(tc: TidbCluster) -> Json:
    spec: Json = {"tlsCluster": {"enabled": True}} if tc.tls else {}
    status: Json = {}
    for component in ("pd", "tikv", "tidb"):
        replicas = getattr(tc, f"{component}_replicas")
        if replicas is not None:
            spec[component] = {"replicas": replicas}
            status[component] = {"phase": getattr(tc, f"{component}_phase")}
    if "tidb" in status:
        nodes = tc.tidb_member_nodes
        status["tidb"]["members"] = {name: {"name": name, "node": nodes.get(name, "")} for name in tc.tidb_members}
    if "tikv" in status:
        status["tikv"]["stores"] = {
            str(store): {"id": str(store), "podName": pod} for pod, store in tc.tikv_store_ids.items()
        }
        status["tikv"]["evictLeader"] = {pod: _entry(one) for pod, one in tc.operator_evict_leader.items()}
    return {"spec": spec, "status": status}


def _entry(one: EvictLeaderEntry) -> Json:
    return {"value": one.value, "podCreateTime": one.pod_create_time, "beginTime": one.begin_time}


def _pd(tc: TidbCluster, view: PdView) -> PdShot:
    stores = [store for store in view.stores if store.state != "Tombstone"]
    placements = []
    for at, store in enumerate(stores):
        peers = tuple(stores[(at + more) % len(stores)].id for more in range(min(_REPLICAS, len(stores))))
        placements.append(PlacementShot(peers=peers, leader=store.id, regions=store.leader_count))
    return PdShot(
        namespace=tc.namespace,
        cluster=tc.name,
        leader=view.leader,
        members=tuple(member.name for member in view.members),
        started_at=view.start_timestamp,
        stores=tuple(StoreShot(id=s.id, address=s.address, state=s.state, labels=dict(s.labels)) for s in view.stores),
        evicting=view.evicting or (),
        placements=tuple(placements),
    )


# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# A snapshot of what Mooring knew at a moment of a recording.


def is_recording(path: Path) -> bool:
    """A file, or a directory of them, and perhaps a moment."""
    file = path if path.exists() else Path(str(path).rpartition("@")[0])
    if not file.is_file():
        return file.is_dir() and bool(str(path).rpartition("@")[0] or path.is_dir())
    with file.open("rb") as opened:
        return b'"mooring-blackbox"' in opened.read(1 << 16).partition(b"\n")[0]


def snapshot_at(text: str, say: Callable[[str], None]) -> Snapshot:
    """FILE, or FILE@WHEN: what Mooring knew then."""
    file, at, until = text.rpartition("@")
    file, until = (file, until) if at and not Path(text).exists() else (text, "")
    try:
        played, different = play(file, until, say)
    except UserError as error:
        raise UserError(f"--from {text}: {error}", error.code) from None
    if different is not None:
        raise UserError(f"--from {text}: this version decides otherwise; mooring replay {file} says where")
    source = f"recording of {played.recording.header.identity}"
    return snapshot_of(played.engine.world, played.now, played.config, source=source)
