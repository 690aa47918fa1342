"""What `kubectl get` shows: the server prints tables, so this one does."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.clock import parse_rfc3339

Cell = Callable[[Json, float], Any]


def _age(obj: Json, now: float) -> str:
    made = obj["metadata"].get("creationTimestamp")
    return duration(now - parse_rfc3339(made)) if made else "<unknown>"


def duration(seconds: float) -> str:
    """As kubectl writes it: 45s, 3m20s, 5h, 2d."""
    left = max(0, int(seconds))
    if left < 120:
        return f"{left}s"
    minutes, hours, days = left // 60, left // 3600, left // 86400
    if minutes < 10:
        return f"{minutes}m{left % 60}s" if left % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{hours}h" if hours < 48 else f"{days}d"


def _at(obj: Any, *path: str, default: Any = "") -> Any:
    for part in path:
        obj = obj.get(part) if isinstance(obj, dict) else None
    return default if obj is None else obj


def _pod_ready(obj: Json, _: float) -> str:
    states = _at(obj, "status", "containerStatuses", default=[])
    total = len(_at(obj, "spec", "containers", default=[]))
    if states:
        return f"{sum(bool(s.get('ready')) for s in states)}/{total}"
    conditions = _at(obj, "status", "conditions", default=[])
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    return f"{total if ready else 0}/{total}"


def _pod_status(obj: Json, _: float) -> str:
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return str(_at(obj, "status", "reason") or _at(obj, "status", "phase", default="Unknown"))


def _restarts(obj: Json, _: float) -> int:
    return sum(s.get("restartCount", 0) for s in _at(obj, "status", "containerStatuses", default=[]))


def _node_status(obj: Json, _: float) -> str:
    conditions = {c.get("type"): c.get("status") for c in _at(obj, "status", "conditions", default=[])}
    words = ["Ready" if conditions.get("Ready") == "True" else "NotReady"]
    if _at(obj, "spec", "unschedulable", default=False):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _roles(obj: Json, _: float) -> str:
    prefix = "node-role.kubernetes.io/"
    found = sorted(k[len(prefix) :] for k in _at(obj, "metadata", "labels", default={}) if k.startswith(prefix))
    return ",".join(found) or "<none>"


def _of(*path: str, default: Any = "") -> Cell:
    return lambda obj, _: _at(obj, *path, default=default)


def _ready_of(obj: Json, _: float) -> str:
    return f"{_at(obj, 'status', 'readyReplicas', default=0)}/{_at(obj, 'spec', 'replicas', default=0)}"


_NAME: Final = ("Name", "string", _of("metadata", "name"))
_AGE: Final = ("Age", "string", _age)
_COLUMNS: Final[dict[Kind, list[tuple[str, str, Cell]]]] = {
    Kind.POD: [
        _NAME,
        ("Ready", "string", _pod_ready),
        ("Status", "string", _pod_status),
        ("Restarts", "integer", _restarts),
        _AGE,
        ("IP", "string", _of("status", "podIP", default="<none>")),
        ("Node", "string", _of("spec", "nodeName", default="<none>")),
    ],
    Kind.NODE: [
        _NAME,
        ("Status", "string", _node_status),
        ("Roles", "string", _roles),
        _AGE,
        ("Version", "string", _of("status", "nodeInfo", "kubeletVersion")),
    ],
    Kind.DEPLOYMENT: [
        _NAME,
        ("Ready", "string", _ready_of),
        ("Up-to-date", "integer", _of("status", "updatedReplicas", default=0)),
        ("Available", "integer", _of("status", "availableReplicas", default=0)),
        _AGE,
    ],
    Kind.STATEFUL_SET: [_NAME, ("Ready", "string", _ready_of), _AGE],
    Kind.REPLICA_SET: [
        _NAME,
        ("Desired", "integer", _of("spec", "replicas", default=0)),
        ("Current", "integer", _of("status", "replicas", default=0)),
        ("Ready", "integer", _of("status", "readyReplicas", default=0)),
        _AGE,
    ],
    Kind.DAEMON_SET: [
        _NAME,
        ("Desired", "integer", _of("status", "desiredNumberScheduled", default=0)),
        ("Current", "integer", _of("status", "currentNumberScheduled", default=0)),
        ("Ready", "integer", _of("status", "numberReady", default=0)),
        _AGE,
    ],
    Kind.PDB: [
        _NAME,
        ("Min Available", "string", lambda o, _: str(_at(o, "spec", "minAvailable", default="N/A"))),
        ("Max Unavailable", "string", lambda o, _: str(_at(o, "spec", "maxUnavailable", default="N/A"))),
        ("Allowed Disruptions", "integer", _of("status", "disruptionsAllowed", default=0)),
        _AGE,
    ],
    Kind.NAMESPACE: [_NAME, ("Status", "string", _of("status", "phase", default="Active")), _AGE],
    Kind.SERVICE: [
        _NAME,
        ("Type", "string", _of("spec", "type")),
        ("Cluster-IP", "string", _of("spec", "clusterIP", default="<none>")),
        _AGE,
    ],
    Kind.EVENT: [
        ("Last Seen", "string", _age),
        ("Type", "string", _of("type")),
        ("Reason", "string", _of("reason")),
        (
            "Object",
            "string",
            lambda o, _: f"{_at(o, 'involvedObject', 'kind')}/{_at(o, 'involvedObject', 'name')}".lower(),
        ),
        ("Message", "string", _of("message")),
    ],
    Kind.LEASE: [_NAME, ("Holder", "string", _of("spec", "holderIdentity")), _AGE],
    Kind.TIDB_CLUSTER: [
        _NAME,
        ("TiKV", "string", lambda o, _: str(_at(o, "spec", "tikv", "replicas"))),
        ("TiDB", "string", lambda o, _: str(_at(o, "spec", "tidb", "replicas"))),
        _AGE,
    ],
}
#: Shown with `-o wide` only.
_WIDE: Final = frozenset({"IP", "Node"})


def table(kind: Kind, objects: Iterable[Json], revision: str, now: float, *, headers: bool = True) -> Json:
    columns = _COLUMNS.get(kind, [_NAME, _AGE])
    definitions = [
        {
            "name": name,
            "type": type_,
            "format": "name" if name == "Name" else "",
            "description": "",
            "priority": int(name in _WIDE),
        }
        for name, type_, _ in columns
    ]
    rows = [
        {
            "cells": [cell(obj, now) for _, _, cell in columns],
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": obj["metadata"],
            },
        }
        for obj in objects
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": revision},
        "columnDefinitions": definitions if headers else None,
        "rows": rows,
    }
