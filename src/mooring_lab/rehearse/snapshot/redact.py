"""What of each object goes into a snapshot: the fields that placement reads, by name. Everything else is left out.

A list of what is kept, not of what is dropped: environment, commands, images, mounts, secrets, most annotations and
`managedFields` cannot slip in with the next version of Kubernetes. What two revisions of a template differ in is often
just such a field, so an image that names the revision stands for all of it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mooring.clients.ports import Json
from mooring.clients.wire.annotations import MIRROR, REVISION, kept
from mooring.core.model.kinds import RESOURCES, Kind

_META: Final = (
    "name",
    "namespace",
    "uid",
    "generation",
    "generateName",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
)
_OWNER: Final = ("apiVersion", "kind", "name", "uid", "controller")
#: Read besides those that placement reads: by controllers of the sandbox, or as times that things take.
_ANNOTATIONS: Final = (
    "lab.mooring.dev/",
    "deployment.kubernetes.io/",
    "volume.kubernetes.io/selected-node",
    "controller.kubernetes.io/pod-deletion-cost",
    MIRROR,
)
_POD_SPEC: Final = (
    "nodeName",
    "schedulerName",
    "priority",
    "preemptionPolicy",
    "terminationGracePeriodSeconds",
    "hostNetwork",
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "overhead",
    "hostname",
    "subdomain",
    "restartPolicy",
    "schedulingGates",
)
_ASKED: Final = ("requests", "limits")
_PORT: Final = ("hostPort", "hostIP", "protocol", "containerPort")
_CONDITION: Final = ("type", "status", "reason", "lastTransitionTime", "lastUpdateTime")
_SPEC: Final[dict[Kind, tuple[str, ...]]] = {
    Kind.NAMESPACE: (),
    Kind.NODE: ("taints", "unschedulable", "podCIDR"),
    Kind.PV: ("capacity", "accessModes", "storageClassName", "nodeAffinity", "volumeMode"),
    Kind.PVC: ("accessModes", "storageClassName", "resources", "volumeName", "volumeMode"),
    Kind.DEPLOYMENT: (
        *("replicas", "selector", "strategy", "minReadySeconds", "paused"),
        *("revisionHistoryLimit", "progressDeadlineSeconds"),
    ),
    Kind.REPLICA_SET: ("replicas", "selector", "minReadySeconds"),
    Kind.STATEFUL_SET: (
        *("replicas", "selector", "updateStrategy", "minReadySeconds", "podManagementPolicy"),
        *("ordinals", "serviceName"),
    ),
    Kind.ROLLOUT: ("replicas", "selector", "minReadySeconds", "paused"),
    Kind.CLONE_SET: ("replicas", "selector", "minReadySeconds"),
    Kind.DAEMON_SET: ("selector", "updateStrategy", "minReadySeconds"),
    Kind.PDB: ("minAvailable", "maxUnavailable", "selector", "unhealthyPodEvictionPolicy"),
    Kind.RESOURCE_QUOTA: ("hard",),
}
#: Of others' controllers.
_OTHER_ROLLOUTS: Final = frozenset({Kind.ROLLOUT, Kind.CLONE_SET})
_FIGURES: Final = ("maxSurge", "maxUnavailable")
_COUNTS: Final = (
    *("observedGeneration", "replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "currentReplicas"),
    *("fullyLabeledReplicas", "unavailableReplicas", "currentRevision", "updateRevision", "collisionCount"),
    *("desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled", "numberReady", "numberAvailable"),
    *("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"),
    *("phase", "capacity", "allocatable", "addresses", "startTime", "nominatedNodeName"),
)
_COMPONENTS: Final = ("pd", "tikv", "tidb")
#: Who logs in where, in a URL of our settings.
_USER_INFO: Final = re.compile(r"(?<=://)[^/@\s]+@")
_MEMBER: Final = ("name", "id", "node", "health", "podName", "state", "lastTransitionTime")


def redact(kind: Kind, obj: Json) -> Json:
    """The part of an object that a snapshot keeps."""
    made: Json = {
        "apiVersion": RESOURCES[kind].api_version,
        "kind": kind.value,
        "metadata": _metadata(kind, obj.get("metadata") or {}),
    }
    if kind is Kind.CONFIG_MAP:
        data = obj.get("data") or {}
        made["data"] = {k: _USER_INFO.sub("", v) for k, v in data.items() if isinstance(v, str)}
        return made
    if kind is Kind.TIDB_CLUSTER:
        return {**made, **_tidb_cluster(obj)}
    made["spec"] = _spec(kind, obj)
    status = obj.get("status") or {}
    if status:
        made["status"] = _status(status)
    return made


def _spec(kind: Kind, obj: Json) -> Json:
    spec: Json = obj.get("spec") or {}
    if kind is Kind.POD:
        return pod_spec(spec)
    made = _part(spec, _SPEC[kind])
    if kind in _OTHER_ROLLOUTS:
        return made | _may_be_away(spec)
    if "template" in spec:
        made["template"] = _template(kind, obj)
    if kind is Kind.PV and spec.get("claimRef"):
        made["claimRef"] = _part(spec["claimRef"], ("kind", "namespace", "name", "uid"))
    if spec.get("volumeClaimTemplates"):
        made["volumeClaimTemplates"] = [
            {"metadata": {"name": one["metadata"]["name"]}, "spec": _part(one.get("spec") or {}, _SPEC[Kind.PVC])}
            for one in spec["volumeClaimTemplates"]
        ]
    return made


def _may_be_away(spec: Json) -> Json:
    """How many, as mix reads it. How else they roll out is not played, and their pods have the template."""
    figures: Json = {}
    for field in ("strategy", "updateStrategy"):
        given = spec.get(field) or {}
        ways = {way: _part(given[way] or {}, _FIGURES) for way in ("canary", "blueGreen") if way in given}
        if kept := {**_part(given, (*_FIGURES, "paused")), **ways}:
            figures[field] = kept
    return figures


def _metadata(kind: Kind, metadata: Json) -> Json:
    made = _part(metadata, _META)
    annotations = metadata.get("annotations") or {}
    stay = {**kept(kind, annotations), **{k: v for k, v in annotations.items() if k.startswith(_ANNOTATIONS)}}
    if stay:
        made["annotations"] = dict(sorted(stay.items()))
    owners = [_part(one, _OWNER) for one in metadata.get("ownerReferences") or ()]
    if owners:
        made["ownerReferences"] = owners
    return made


def pod_spec(spec: Json, image: str = "") -> Json:
    made = _part(spec, _POD_SPEC)
    for field in ("containers", "initContainers"):
        if spec.get(field):
            made[field] = [_container(one, image, on_host=bool(spec.get("hostNetwork"))) for one in spec[field]]
    if asked := _part(spec.get("resources") or {}, _ASKED):
        made["resources"] = asked
    volumes = [v for v in map(_volume, spec.get("volumes") or ()) if v]
    if volumes:
        made["volumes"] = volumes
    return made


def _container(container: Json, image: str, *, on_host: bool) -> Json:
    """With the ports that it takes on its node: on the host's network, all of them."""
    made = _part(container, ("name", "restartPolicy"))
    asked = _part(container.get("resources") or {}, _ASKED)
    if asked:
        made["resources"] = asked
    ports = [_part(one, _PORT) for one in container.get("ports") or () if on_host or one.get("hostPort")]
    if ports:
        made["ports"] = ports
    if image:
        made["image"] = image
    return made


def _volume(volume: Json) -> Json:
    """Whether there is data of its own to lose, and which claim; no other source is read."""
    claim = volume.get("persistentVolumeClaim")
    if claim:
        return {"name": volume.get("name", ""), "persistentVolumeClaim": {"claimName": claim.get("claimName", "")}}
    for field in ("emptyDir", "ephemeral"):
        if volume.get(field) is not None:
            return {"name": volume.get("name", ""), field: {}}
    return {}


def _template(kind: Kind, obj: Json) -> Json:
    """Without a time of its own; what is left out of it is named by the revision that it belongs to."""
    template: Json = obj["spec"]["template"] or {}
    made = _metadata(Kind.POD, template.get("metadata") or {})
    made.pop("creationTimestamp", None)
    return {"metadata": made, "spec": pod_spec(template.get("spec") or {}, image=f"revision:{_revision(kind, obj)}")}


def _revision(kind: Kind, obj: Json) -> str:
    if kind is Kind.STATEFUL_SET:
        return str((obj.get("status") or {}).get("updateRevision") or 1)
    if kind is Kind.DAEMON_SET:
        return "1"
    return str((obj["metadata"].get("annotations") or {}).get(REVISION) or 1)


def _status(status: Json) -> Json:
    made = _part(status, _COUNTS)
    conditions = [_part(one, _CONDITION) for one in status.get("conditions") or ()]
    if conditions:
        made["conditions"] = conditions
    containers = [_part(one, ("name", "ready", "restartCount")) for one in status.get("containerStatuses") or ()]
    if containers:
        made["containerStatuses"] = containers
    return made


def _tidb_cluster(obj: Json) -> Json:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    made: Json = {"spec": {c: _part(spec[c], ("replicas",)) for c in _COMPONENTS if isinstance(spec.get(c), dict)}}
    if (spec.get("tlsCluster") or {}).get("enabled") is True:
        made["spec"]["tlsCluster"] = {"enabled": True}
    parts: Json = {}
    for component in _COMPONENTS:
        part = status.get(component)
        if not isinstance(part, dict):
            continue
        parts[component] = _part(part, ("phase", "synced"))
        for field in ("members", "stores", "evictLeader", "evictLeaderStatus"):
            if isinstance(part.get(field), dict):
                fields = (*_MEMBER, "value", "podCreateTime", "beginTime")
                parts[component][field] = {k: _part(v, fields) for k, v in part[field].items() if isinstance(v, dict)}
    return {**made, "status": parts} if parts else made


def _part(of: Mapping[str, Any], fields: Iterable[str]) -> Json:
    return {field: of[field] for field in fields if of.get(field) is not None}
