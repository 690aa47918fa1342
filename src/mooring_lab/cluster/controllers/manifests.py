"""Small, complete manifests for scenarios: what a test or a demo would otherwise write out each time."""

from collections.abc import Mapping
from typing import Any, Final

from mooring.clients.ports import Json

NONE: Final[Mapping[str, str]] = {}


def pod_template(
    labels: Mapping[str, str],
    *,
    cpu: str = "100m",
    memory: str = "128Mi",
    annotations: Mapping[str, str] = NONE,
    image: str = "registry.example/app:1",
    container: str = "app",
    **spec: Any,
) -> Json:
    """Further keyword arguments are fields of the pod's spec (`affinity=…`, `tolerations=…`)."""
    metadata: Json = {"labels": dict(labels)}
    if annotations:
        metadata["annotations"] = dict(annotations)
    requests = {name: value for name, value in (("cpu", cpu), ("memory", memory)) if value}
    return {
        "metadata": metadata,
        "spec": {
            "containers": [{"name": container, "image": image, "resources": {"requests": requests}}],
            **spec,
        },
    }


def deployment(
    namespace: str,
    name: str,
    replicas: int,
    template: Json,
    *,
    labels: Mapping[str, str] = NONE,
    annotations: Mapping[str, str] = NONE,
    **spec: Any,
) -> Json:
    return _workload("Deployment", namespace, name, replicas, template, labels, annotations, spec)


def stateful_set(
    namespace: str,
    name: str,
    replicas: int,
    template: Json,
    *,
    labels: Mapping[str, str] = NONE,
    annotations: Mapping[str, str] = NONE,
    **spec: Any,
) -> Json:
    spec.setdefault("serviceName", name)
    return _workload("StatefulSet", namespace, name, replicas, template, labels, annotations, spec)


def daemon_set(namespace: str, name: str, template: Json, **spec: Any) -> Json:
    obj = _workload("DaemonSet", namespace, name, 0, template, NONE, NONE, spec)
    del obj["spec"]["replicas"]
    return obj


def _workload(
    kind: str,
    namespace: str,
    name: str,
    replicas: int,
    template: Json,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    spec: Mapping[str, Any],
) -> Json:
    metadata: Json = {"namespace": namespace, "name": name, "labels": dict(labels)}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": template["metadata"]["labels"]},
            "template": template,
            **spec,
        },
    }


def pdb(namespace: str, name: str, match_labels: Mapping[str, str], **spec: Any) -> Json:
    """`min_available=` or `max_unavailable=`, a number or a percentage."""
    renamed = {"min_available": "minAvailable", "max_unavailable": "maxUnavailable"}
    fields = {renamed.get(key, key): value for key, value in spec.items()}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"selector": {"matchLabels": dict(match_labels)}, **fields},
    }


def service(
    namespace: str,
    name: str,
    selector: Mapping[str, str],
    *,
    port: int = 80,
    node_port: int | None = None,
    local: bool = False,
    labels: Mapping[str, str] = NONE,
) -> Json:
    """With a node port (0: whichever is free): type NodePort; `local`: externalTrafficPolicy Local."""
    ports: Json = {"name": "main", "port": port, "targetPort": port, "protocol": "TCP"}
    spec: Json = {"selector": dict(selector), "ports": [ports], "type": "ClusterIP"}
    if node_port is not None:
        if node_port:
            ports["nodePort"] = node_port
        spec["type"] = "NodePort"
        spec["externalTrafficPolicy"] = "Local" if local else "Cluster"
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": namespace, "name": name, "labels": dict(labels)},
        "spec": spec,
    }


def quota(namespace: str, name: str, **hard: str | int) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"hard": {key: str(value) for key, value in hard.items()}},
    }
