"""Node objects as machines bring them: labels, capacity, the Ready condition."""

from typing import Final

from mooring.clients.ports import Json
from mooring_lab.cluster.controllers.podstate import make_condition

CAPACITY_LABEL: Final = "node.kubernetes.io/capacity"
HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
RACK: Final = "cke.cybozu.com/rack"
_HEALTHY: Final = (
    ("MemoryPressure", "KubeletHasSufficientMemory"),
    ("DiskPressure", "KubeletHasNoDiskPressure"),
    ("PIDPressure", "KubeletHasSufficientPID"),
)


def node_object(
    name: str,
    index: int,
    now: float,
    *,
    capacity: str = "on-demand",
    rack: int | str | None = None,
    zone: str | None = None,
    cpu: str = "8",
    memory: str = "32Gi",
    pods: int = 110,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    taints: list[Json] | None = None,
) -> Json:
    marks = {HOSTNAME: name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    if capacity:
        marks[CAPACITY_LABEL] = capacity
    if rack is not None:
        marks[RACK] = str(rack)
    if zone is not None:
        marks[ZONE] = zone
    room = {"cpu": cpu, "memory": memory, "pods": str(pods)}
    metadata: Json = {"name": name, "labels": {**marks, **(labels or {})}}
    if annotations:
        metadata["annotations"] = annotations
    spec: Json = {"podCIDR": pod_cidr(index)}
    if taints:
        spec["taints"] = taints
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": spec,
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": healthy_conditions(now),
            "addresses": [
                {"type": "InternalIP", "address": node_ip(index)},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {"kubeletVersion": "v1.36.0", "operatingSystem": "linux", "architecture": "amd64"},
        },
    }


def healthy_conditions(now: float) -> list[Json]:
    pressure = [make_condition(kind, "False", now, reason) for kind, reason in _HEALTHY]
    return [*pressure, make_condition("Ready", "True", now, "KubeletReady", "kubelet is posting ready status")]


def node_ip(index: int) -> str:
    return f"10.{200 + index // 62500}.{index // 250 % 250}.{index % 250 + 1}"


def pod_cidr(index: int) -> str:
    return f"10.{index // 256 % 200}.{index % 256}.0/24"
