"""What the API server fills in: the defaults that a capability or a user can observe.

Copy-on-write: an object that has everything comes back as it is. A TidbCluster loses what its schema does not name.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# What the API server allocates for a Service: a cluster address and, where asked for, ports on the nodes.


NODE_PORTS: Final = range(30000, 32768)
_NODE_PORT_TYPES: Final = frozenset({"NodePort", "LoadBalancer"})


def allocate(obj: Json, others: Iterable[Json], current: Json | None = None) -> Json:
    """The Service with its addresses and ports; what it had (`current`) it keeps."""
    spec = obj.get("spec") or {}
    had = (current or {}).get("spec") or {}
    if spec.get("type") == "ExternalName":
        return obj
    taken = [(other.get("spec") or {}) for other in others]
    address = spec.get("clusterIP") or had.get("clusterIP") or _free_address({s.get("clusterIP") for s in taken})
    ports = [{"protocol": "TCP", "targetPort": port.get("port"), **port} for port in spec.get("ports") or ()]
    filled = {**spec, "clusterIP": address, "clusterIPs": [address], "ports": ports}
    if spec.get("type") in _NODE_PORT_TYPES:
        used = {p.get("nodePort") for s in taken for p in s.get("ports") or ()}
        kept = {(p.get("name", ""), p.get("port")): p.get("nodePort") for p in had.get("ports") or ()}
        for port in ports:
            number = port.get("nodePort") or kept.get((port.get("name", ""), port.get("port")))
            number = number or next(n for n in NODE_PORTS if n not in used)
            used.add(number)
            port["nodePort"] = number
    return {**obj, "spec": filled}


def _free_address(taken: set[str | None]) -> str:
    """10.96.0.1 is the API server's own, as everywhere."""
    return next(ip for n in range(2, 65_000) if (ip := f"10.96.{n // 256}.{n % 256}") not in taken)


_DEFAULT_TOLERATIONS: Final[list[Json]] = [
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
]
#: The classes that every cluster has. Others are not kept here: a pod that wants another priority names the number.
_SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_POD_SPEC: Final[Json] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
}
_CONTAINER: Final[Json] = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "Always",
}


def set_defaults(kind: Kind, obj: Json) -> Json:
    match kind:
        case Kind.POD:
            return _pod(obj)
        case Kind.DEPLOYMENT:
            return _with_spec(obj, _deployment_spec)
        case Kind.REPLICA_SET:
            return _with_spec(obj, _replica_set_spec)
        case Kind.STATEFUL_SET:
            return _with_spec(obj, _stateful_set_spec)
        case Kind.DAEMON_SET:
            return _with_spec(obj, _daemon_set_spec)
        case Kind.SERVICE:
            return _with_spec(obj, _service_spec)
        case Kind.NAMESPACE:
            return _namespace(obj)
        case Kind.MUTATING_WEBHOOK | Kind.VALIDATING_WEBHOOK:
            return {**obj, "webhooks": [_webhook(kind, w) for w in obj.get("webhooks") or []]}
        case Kind.TIDB_CLUSTER:
            status = obj.get("status")
            kept = _pruned(status, _tidb_status())
            return obj if kept == status else {**obj, "status": kept}
        case _:
            return obj


@cache
def _tidb_status() -> Json:
    """The status in the lab's own schema of a TidbCluster."""
    written = Path(__file__).parents[2] / "control" / "crds" / "tidbcluster.yaml"
    (version,) = yaml.safe_load(written.read_text())["spec"]["versions"]
    found: Json = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    return found


def _pruned(value: Any, schema: Mapping[str, Any]) -> Any:
    named = schema.get("properties")
    if named is None or not isinstance(value, dict):
        return value
    return {k: _pruned(v, named[k]) for k, v in value.items() if k in named}


def _missing(have: Json, wanted: Json) -> Json:
    """`have` with what it lacks of `wanted`; the same object when it lacks nothing."""
    lacking = {k: v for k, v in wanted.items() if have.get(k) is None}
    return {**have, **lacking} if lacking else have


def _with_spec(obj: Json, fill: Any) -> Json:
    spec = obj.get("spec") or {}
    filled = fill(spec)
    return obj if filled is spec and "spec" in obj else {**obj, "spec": filled}


def pod_spec_defaults(spec: Json) -> Json:
    filled = _missing(spec, _POD_SPEC)
    for field in ("containers", "initContainers"):
        containers = filled.get(field)
        if containers:
            done = [_missing(c, _CONTAINER) for c in containers]
            if any(new is not old for new, old in zip(done, containers, strict=True)):
                filled = {**filled, field: done}
    return filled


def _pod(obj: Json) -> Json:
    spec = obj.get("spec") or {}
    filled = pod_spec_defaults(spec)
    if filled.get("priority") is None or filled.get("enableServiceLinks") is None:
        priority = _SYSTEM_PRIORITIES.get(filled.get("priorityClassName", ""), 0)
        filled = _missing(
            filled, {"priority": priority, "enableServiceLinks": True, "preemptionPolicy": "PreemptLowerPriority"}
        )
        tolerations = filled.get("tolerations") or []
        missing = [t for t in _DEFAULT_TOLERATIONS if not any(_covers(have, t["key"]) for have in tolerations)]
        if missing:
            filled = {**filled, "tolerations": [*tolerations, *missing]}
    status = obj.get("status") or {}
    filled_status = status if "phase" in status else {"phase": "Pending", "qosClass": _qos(filled), **status}
    if filled is spec and filled_status is status and "spec" in obj:
        return obj
    return {**obj, "spec": filled, "status": filled_status}


def _covers(toleration: Json, key: str) -> bool:
    return toleration.get("key", "") in {"", key} and toleration.get("effect", "") in {"", "NoExecute"}


def _qos(spec: Json) -> str:
    resources = [c.get("resources") or {} for c in spec.get("containers") or []]
    if not any(r.get("requests") or r.get("limits") for r in resources):
        return "BestEffort"
    wanted = ("cpu", "memory")
    for r in resources:
        limits = r.get("limits") or {}
        requests = r.get("requests") or limits
        if any(k not in limits or requests.get(k) != limits[k] for k in wanted):
            return "Burstable"
    return "Guaranteed"


def _template(spec: Json) -> Json:
    template = spec.get("template")
    if not template:
        return spec
    pod_spec = template.get("spec") or {}
    filled = pod_spec_defaults(pod_spec)
    return spec if filled is pod_spec else {**spec, "template": {**template, "spec": filled}}


def _deployment_spec(spec: Json) -> Json:
    filled = _missing(_template(spec), {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600})
    strategy = filled.get("strategy") or {}
    if strategy.get("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.get("rollingUpdate") or {}
        if "type" not in strategy or len(rolling) < 2:
            rolling = {"maxUnavailable": "25%", "maxSurge": "25%", **rolling}
            filled = {**filled, "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}
    return filled


def _replica_set_spec(spec: Json) -> Json:
    return _missing(_template(spec), {"replicas": 1})


def _stateful_set_spec(spec: Json) -> Json:
    filled = _missing(
        _template(spec),
        {
            "replicas": 1,
            "podManagementPolicy": "OrderedReady",
            "revisionHistoryLimit": 10,
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        },
    )
    strategy = filled.get("updateStrategy") or {}
    if strategy.get("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.get("rollingUpdate") or {}
        if "type" not in strategy or "partition" not in rolling:
            rolling = {"partition": 0, **rolling}
            filled = {**filled, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}
    return filled


def _daemon_set_spec(spec: Json) -> Json:
    filled = _missing(_template(spec), {"revisionHistoryLimit": 10})
    if not filled.get("updateStrategy"):
        rolling = {"maxSurge": 0, "maxUnavailable": 1}
        filled = {**filled, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}
    return filled


def _service_spec(spec: Json) -> Json:
    filled = _missing(spec, {"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster"})
    if filled["type"] in {"NodePort", "LoadBalancer"}:
        filled = _missing(filled, {"externalTrafficPolicy": "Cluster"})
    return filled


def _namespace(obj: Json) -> Json:
    metadata, name = obj["metadata"], obj["metadata"].get("name", "")
    labels = metadata.get("labels") or {}
    if labels.get("kubernetes.io/metadata.name") != name:
        obj = {**obj, "metadata": {**metadata, "labels": {**labels, "kubernetes.io/metadata.name": name}}}
    return obj if obj.get("status") else {**obj, "status": {"phase": "Active"}}


def _webhook(kind: Kind, webhook: Json) -> Json:
    wanted: Json = {
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "timeoutSeconds": 10,
    }
    if kind is Kind.MUTATING_WEBHOOK:
        wanted["reinvocationPolicy"] = "Never"
    return _missing(webhook, wanted)
