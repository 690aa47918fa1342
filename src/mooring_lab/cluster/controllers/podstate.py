"""What controllers ask about a pod, in Kubernetes' own words: active, ready, available, terminal."""

from collections.abc import Callable
from functools import lru_cache

from mooring.clients.ports import Json
from mooring.core.model.times import moment, rfc3339

#: A new object, or None to leave it as it is.
Change = Callable[[Json], Json | None]

TERMINAL = frozenset({"Succeeded", "Failed"})


def key_of(obj: Json) -> tuple[str, str]:
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta["name"]


def labels_of(obj: Json) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def annotations_of(obj: Json) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def phase_of(pod: Json) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def node_of(pod: Json) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def terminating(obj: Json) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def terminal(pod: Json) -> bool:
    return phase_of(pod) in TERMINAL


def active(pod: Json) -> bool:
    """Counted by controllers: neither ended nor on its way out."""
    return not terminating(pod) and not terminal(pod)


def condition(obj: Json, kind: str) -> Json | None:
    for item in (obj.get("status") or {}).get("conditions") or ():
        if item["type"] == kind:
            found: Json = item
            return found
    return None


def ready(pod: Json) -> bool:
    item = condition(pod, "Ready")
    return item is not None and item["status"] == "True"


def ready_since(pod: Json) -> float | None:
    item = condition(pod, "Ready")
    if item is None or item["status"] != "True":
        return None
    return moment(item.get("lastTransitionTime", "")) or 0.0


def available(pod: Json, min_ready_s: int, now: float) -> bool:
    since = ready_since(pod)
    if since is None:
        return False
    return min_ready_s <= 0 or since + min_ready_s <= now


@lru_cache(maxsize=65536)
def _condition(kind: str, status: str, reason: str, message: str, at: str) -> Json:
    item: Json = {"type": kind, "status": status, "lastTransitionTime": at}
    if reason:
        item["reason"] = reason
    if message:
        item["message"] = message
    return item


def make_condition(kind: str, status: str, now: float, reason: str = "", message: str = "") -> Json:
    """One shared value for equal content: thousands of pods become ready in the same second."""
    return _condition(kind, status, reason, message, rfc3339(now))


def with_condition(conditions: list[Json], item: Json) -> list[Json]:
    """The list with this condition set; the transition time moves only when the status does."""
    for index, old in enumerate(conditions):
        if old["type"] == item["type"]:
            if old["status"] == item["status"]:
                item = {**item, "lastTransitionTime": old.get("lastTransitionTime", item["lastTransitionTime"])}
            return [*conditions[:index], item, *conditions[index + 1 :]]
    return [*conditions, item]


def with_status(obj: Json, **fields: object) -> Json:
    return {**obj, "status": {**(obj.get("status") or {}), **fields}}


def with_spec(obj: Json, **fields: object) -> Json:
    return {**obj, "spec": {**(obj.get("spec") or {}), **fields}}


def with_meta(obj: Json, **fields: object) -> Json:
    return {**obj, "metadata": {**obj["metadata"], **fields}}
