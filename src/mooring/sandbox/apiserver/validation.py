"""What the API server refuses whatever the webhooks say: the rules a placement tool can run into.

Not the whole of Kubernetes' validation: names and labels, what of a pod or a workload cannot be changed any more, and
taints that contradict each other. A refusal is 422, as from the real server.
"""

import re
from typing import Any, Final

from mooring.clients.ports import Json, RefusedError
from mooring.core.model.kinds import Kind
from mooring.sandbox.apiserver.labels import selects
from mooring.sandbox.apiserver.rules import resource_name

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
