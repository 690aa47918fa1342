"""The bookkeeping rules of the API server that need no state: what counts as a spec change, who may write what."""

from collections.abc import Container
from typing import Final

from mooring.clients.ports import ConflictError, Json
from mooring.core.model.kinds import RESOURCES, Kind

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
    }
)
#: Their status update may touch labels and annotations too.
STATUS_KEEPS_METADATA: Final = frozenset({Kind.POD, Kind.NODE})
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
