"""A Deployment's status: the counts that health gates read, and the conditions Available and Progressing."""

from mooring.clients.ports import Json
from mooring.core.model.times import moment, rfc3339
from mooring.sandbox.controllers.podstate import make_condition, with_condition


def deployment_status(
    obj: Json, sets: list[Json], new: Json | None, unavailable: int, now: float
) -> tuple[Json, float | None]:
    """The status as it should be, and when to look again (the progress deadline)."""
    old = obj.get("status") or {}
    wanted = int(obj["spec"].get("replicas", 1))

    def total(name: str, of: list[Json]) -> int:
        return sum(int((one.get("status") or {}).get(name, 0)) for one in of)

    replicas, available = total("replicas", sets), total("availableReplicas", sets)
    updated = total("replicas", [new] if new is not None else [])
    status: Json = {
        "observedGeneration": obj["metadata"].get("generation", 1),
        "replicas": replicas,
        "updatedReplicas": updated,
        "readyReplicas": total("readyReplicas", sets),
        "availableReplicas": available,
        "unavailableReplicas": max(0, sum(int(one["spec"].get("replicas", 1)) for one in sets) - available),
    }
    if old.get("collisionCount"):
        status["collisionCount"] = old["collisionCount"]
    enough = available >= wanted - unavailable
    conditions = with_condition(
        list(old.get("conditions") or ()),
        make_condition(
            "Available",
            "True" if enough else "False",
            now,
            "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
        ),
    )
    progressing, again_s = _progress(obj, old, status, new, now)
    if progressing is not None:
        conditions = with_condition(conditions, progressing)
    failure = next(
        (c for one in sets for c in (one.get("status") or {}).get("conditions") or () if c["type"] == "ReplicaFailure"),
        None,
    )
    conditions = [c for c in conditions if c["type"] != "ReplicaFailure"]
    if failure is not None:
        conditions.append(failure)
    status["conditions"] = conditions
    return status, again_s


def _progress(obj: Json, old: Json, status: Json, new: Json | None, now: float) -> tuple[Json | None, float | None]:
    wanted = int(obj["spec"].get("replicas", 1))
    if new is None:
        return None, None
    done = status["updatedReplicas"] == status["replicas"] == status["availableReplicas"] == wanted
    if done:
        return make_condition("Progressing", "True", now, "NewReplicaSetAvailable"), None
    current = next((c for c in old.get("conditions") or () if c["type"] == "Progressing"), None)
    moved = any(
        old.get(name, 0) != status[name]
        for name in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    )
    deadline_s = float(obj["spec"].get("progressDeadlineSeconds", 600))
    if current is None or moved or current.get("reason") == "NewReplicaSetAvailable":
        item = make_condition("Progressing", "True", now, "ReplicaSetUpdated")
        return {**item, "lastUpdateTime": rfc3339(now)}, deadline_s
    since = moment(current.get("lastUpdateTime", current["lastTransitionTime"])) or 0.0
    if now - since >= deadline_s and not obj["spec"].get("paused"):
        return make_condition("Progressing", "False", now, "ProgressDeadlineExceeded"), None
    return current, since + deadline_s - now
