"""Nodes and pods without kubelets: kwok, driven by stages of our own (`stages/`).

What a kubelet would do is set per pod by annotation: how long it takes to start, to become ready, to end, and whether
it fails. The defaults are fast, so that a test waits only for what it asked for.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from mooring.lab.binaries import Binaries
from mooring.lab.controlplane import Layout, Ports
from mooring.lab.processes import Server

STAGES: Final = Path(__file__).parent / "stages"
#: As a kubelet's own.
LEASE_S: Final = 40
PODS_PER_NODE: Final = 110

START_SECONDS: Final = "lab.mooring.dev/start-seconds"
READY_SECONDS: Final = "lab.mooring.dev/ready-seconds"
RUN_SECONDS: Final = "lab.mooring.dev/run-seconds"
GRACE_SECONDS: Final = "lab.mooring.dev/grace-seconds"
FAIL: Final = "lab.mooring.dev/fail"
#: A label of a Node, since kwok chooses its nodes by labels: a machine that is off: nothing renews its lease, starts
#: its pods or ends them.
SILENT: Final = "lab.mooring.dev/silent"


def kwok(binaries: Binaries, at: Layout, ports: Ports) -> Server:
    listens = f"127.0.0.1:{ports.kwok}"
    return Server(
        name="kwok",
        argv=(
            str(binaries["kwok"]),
            f"--kubeconfig={at.kubeconfig_of('kwok')}",
            f"--manage-nodes-with-label-selector=!{SILENT}",
            "--node-ip=127.0.0.1",
            f"--node-lease-duration-seconds={LEASE_S}",
            f"--server-address={listens}",
            *(f"--config={stage}" for stage in sorted(STAGES.glob("*.yaml"))),
        ),
        ready_url=f"http://{listens}/healthz",
    )


def node(name: str, labels: Mapping[str, str], cpu: str, memory: str) -> dict[str, Any]:
    """A Node object with this capacity; the stages make it Ready."""
    room = {"cpu": cpu, "memory": memory, "ephemeral-storage": "100Gi", "pods": str(PODS_PER_NODE)}
    standard = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": standard | dict(labels)},
        "status": {"capacity": room, "allocatable": room},
    }


def usable(nodes: Iterable[dict[str, Any]]) -> set[str]:
    """The names of those that are Ready and have no taint."""

    def is_usable(node: dict[str, Any]) -> bool:
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", ()))
        return ready and not node["spec"].get("taints")

    return {node["metadata"]["name"] for node in nodes if is_usable(node)}
