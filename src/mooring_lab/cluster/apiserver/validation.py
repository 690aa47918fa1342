"""What the API server refuses whatever the webhooks say: the rules a placement tool can run into.

Not the whole of Kubernetes' validation: names and labels, what of a pod or a workload cannot be changed any more, and
taints that contradict each other. A refusal is 422, as from the real server.
"""

import re
from collections.abc import Container
from typing import Any, Final

from mooring.clients.ports import ConflictError, Json, RefusedError
from mooring.core.model.kinds import RESOURCES, Kind
from mooring_lab.cluster.apiserver.labels import selects

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The bookkeeping rules of the API server that need no state: what counts as a spec change, who may write what.


#: Kinds whose metadata carries a generation.
GENERATION_KINDS: Final = frozenset(
    {
        Kind.POD,
        Kind.DEPLOYMENT,
        Kind.REPLICA_SET,
        Kind.STATEFUL_SET,
        Kind.DAEMON_SET,
        Kind.PDB,
        Kind.ENDPOINT_SLICE,
        Kind.TIDB_CLUSTER,
        Kind.TIDB_V2,
        Kind.CRD,
        Kind.MUTATING_WEBHOOK,
        Kind.VALIDATING_WEBHOOK,
    }
)
#: Kinds whose `status` is written through the status subresource only.
STATUS_KINDS: Final = frozenset(
    {
        Kind.POD,
        Kind.NODE,
        Kind.REPLICA_SET,
        Kind.DEPLOYMENT,
        Kind.STATEFUL_SET,
        Kind.DAEMON_SET,
        Kind.PDB,
        Kind.PV,
        Kind.PVC,
        Kind.SERVICE,
        Kind.NAMESPACE,
        Kind.RESOURCE_QUOTA,
        Kind.CRD,
        Kind.TIDB_V2,
        Kind.EVICTION,
    }
)
#: Their status update may touch labels and annotations too.
STATUS_KEEPS_METADATA: Final = frozenset({Kind.POD, Kind.NODE, Kind.DEPLOYMENT})
#: metadata that a client cannot write after creation.
OWN_METADATA: Final = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
KIND_BY_NAME: Final[dict[str, Kind]] = {kind.value: kind for kind in Kind}


def without_owner(obj: Json, uid: str) -> Json:
    left = [o for o in obj["metadata"].get("ownerReferences") or [] if o["uid"] != uid]
    obj["metadata"]["ownerReferences"] = left
    if not left:
        del obj["metadata"]["ownerReferences"]
    return obj


def spec_changed(kind: Kind, old: Json, new: Json) -> bool:
    if kind is Kind.DEPLOYMENT and old["metadata"].get("annotations") != new["metadata"].get("annotations"):
        return True  # so that its controller is notified of a change to a rollout's annotations
    if kind is not Kind.TIDB_CLUSTER and ("spec" in old or "spec" in new):
        before, after = old.get("spec"), new.get("spec")
        if kind is Kind.POD and before and after and "nodeName" in after and "nodeName" not in before:
            before = {**before, "nodeName": after["nodeName"]}  # a binding is no change of what is wanted
        return bool(before != after)
    # No status subresource, or no spec at all: everything but metadata counts.
    return {k: v for k, v in old.items() if k != "metadata"} != {k: v for k, v in new.items() if k != "metadata"}


def grace(pod: Json, wanted: int | None) -> int:
    if not pod.get("spec", {}).get("nodeName") or pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
        return 0
    grace = pod["spec"].get("terminationGracePeriodSeconds", 30) if wanted is None else wanted
    return max(0, int(grace))


def resource_name(kind: Kind) -> str:
    resource = RESOURCES[kind]
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def check_preconditions(kind: Kind, current: Json, uid: str, resource_version: str) -> None:
    """Raises Conflict unless these (when given) are the object's."""
    metadata = current["metadata"]
    cannot = f'Operation cannot be fulfilled on {resource_name(kind)} "{metadata["name"]}"'
    if uid and uid != metadata["uid"]:
        raise ConflictError(
            f"{cannot}: Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata['uid']}"
        )
    if resource_version and resource_version != metadata["resourceVersion"]:
        raise ConflictError(
            f"{cannot}: the object has been modified; please apply your changes to the latest version and try again"
        )


def orphaned(obj: Json, alive: Container[str]) -> bool:
    """It names owners, and none of them is there. Owners of kinds we do not keep are taken to live."""
    owners = obj["metadata"].get("ownerReferences")
    return bool(owners) and not any(o["uid"] in alive or o.get("kind") not in KIND_BY_NAME for o in owners)


_NAME: Final = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_LABEL_VALUE: Final = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
_LABEL_NAME: Final = re.compile(r"^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$")
#: What may still change in a pod's spec: an image, a grace period, more tolerations.
_POD_FREE: Final = frozenset({"activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations"})
_STATEFUL_SET_FREE: Final = frozenset(
    {
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    }
)


def _invalid(kind: Kind, obj: Json, where: str, why: str) -> RefusedError:
    name = obj["metadata"].get("name", "")
    return RefusedError(f'{kind.value}.{resource_name(kind)} "{name}" is invalid: {where}: {why}', 422)


def validate_new(kind: Kind, obj: Json) -> None:
    name = obj["metadata"].get("name", "")
    if len(name) > 253 or not _NAME.match(name):
        raise _invalid(kind, obj, "metadata.name", f"Invalid value: {name!r}: not a DNS-1123 subdomain")
    _validate_labels(kind, obj)
    spec = obj.get("spec") or {}
    if kind is Kind.POD and not spec.get("containers"):
        raise _invalid(kind, obj, "spec.containers", "Required value")
    if kind in {Kind.DEPLOYMENT, Kind.STATEFUL_SET, Kind.REPLICA_SET, Kind.DAEMON_SET}:
        labels = spec.get("template", {}).get("metadata", {}).get("labels") or {}
        if not selects(spec.get("selector"), labels) or not spec.get("selector"):
            raise _invalid(kind, obj, "spec.template.metadata.labels", "`selector` does not match template `labels`")


def validate_change(kind: Kind, old: Json, new: Json) -> None:
    _validate_labels(kind, new)
    if old["metadata"].get("deletionTimestamp"):
        more = {*(new["metadata"].get("finalizers") or ())} - {*(old["metadata"].get("finalizers") or ())}
        if more:
            why = "Forbidden: no new finalizers can be added if the object is being deleted"
            raise _invalid(kind, new, "metadata.finalizers", f"{why}, found new finalizers {sorted(more)}")
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if before is after:
        return
    match kind:
        case Kind.POD:
            _validate_pod_change(new, before, after)
        case Kind.STATEFUL_SET:
            changed = {k for k in {*before, *after} - _STATEFUL_SET_FREE if before.get(k) != after.get(k)}
            if changed:
                raise _invalid(kind, new, "spec", f"Forbidden: {', '.join(sorted(changed))} cannot be changed")
        case Kind.DEPLOYMENT | Kind.REPLICA_SET | Kind.DAEMON_SET:
            if before.get("selector") != after.get("selector"):
                raise _invalid(kind, new, "spec.selector", "field is immutable")
        case Kind.NODE:
            taints = [(t.get("key"), t.get("effect")) for t in after.get("taints") or ()]
            if len(set(taints)) != len(taints):
                raise _invalid(kind, new, "spec.taints", "Duplicate value")
        case _:
            pass


def _validate_pod_change(pod: Json, before: Json, after: Json) -> None:
    for field in sorted({*before, *after} - _POD_FREE):
        if _without_images(field, before.get(field)) != _without_images(field, after.get(field)):
            why = f"pod updates may not change fields other than images, grace and more tolerations: {field}"
            raise _invalid(Kind.POD, pod, "spec", f"Forbidden: {why}")
    kept = after.get("tolerations") or []
    if any(t not in kept for t in before.get("tolerations") or ()):
        raise _invalid(Kind.POD, pod, "spec.tolerations", "Forbidden: existing toleration can not be modified")


def _without_images(field: str, value: Any) -> Any:
    if field in {"containers", "initContainers"} and isinstance(value, list):
        return [{k: v for k, v in c.items() if k != "image"} for c in value]
    return value


def _validate_labels(kind: Kind, obj: Json) -> None:
    metadata = obj["metadata"]
    for key, value in (metadata.get("labels") or {}).items():
        _validate_key(kind, obj, "metadata.labels", key)
        if not isinstance(value, str) or len(value) > 63 or not _LABEL_VALUE.match(value):
            why = f"Invalid value: {value!r}: a label's value is at most 63 of A-Z a-z 0-9 - _ ."
            raise _invalid(kind, obj, "metadata.labels", why)
    for key, value in (metadata.get("annotations") or {}).items():
        _validate_key(kind, obj, "metadata.annotations", key)
        if not isinstance(value, str):
            raise _invalid(kind, obj, "metadata.annotations", f"{key}: the value must be a string")


def _validate_key(kind: Kind, obj: Json, where: str, key: str) -> None:
    prefix, slash, name = key.rpartition("/")
    if len(name) > 63 or not _LABEL_NAME.match(name) or (slash and not _NAME.match(prefix)):
        raise _invalid(kind, obj, where, f"Invalid value: {key!r}: not a qualified name")
