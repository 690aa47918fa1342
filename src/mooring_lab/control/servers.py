"""The servers beside the control plane: kwok for nodes and pods, and a real PD and sabakan where they are at hand."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from mooring_lab.control.binaries import ABSENT, Binaries
from mooring_lab.control.controlplane import Layout, Ports
from mooring_lab.control.processes import Server

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Nodes and pods without kubelets: kwok, driven by stages of our own (`stages/`).


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


# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# A real placement driver beside the control plane, when its program is at hand.


NO_PD: Final = f"{ABSENT['pd-server']}: no real PD, the sandbox's answers instead"


def pd_servers(program: Path, directory: Path, ports: list[int], *, first: int = 1) -> list[Server]:
    """A PD cluster of as many members as there are pairs of ports (client, peer)."""
    members = [(f"pd{n}", ports[2 * i], ports[2 * i + 1]) for i, n in enumerate(range(first, first + len(ports) // 2))]
    together = ",".join(f"{name}=http://127.0.0.1:{peer}" for name, _, peer in members)
    return [
        Server(
            name=name,
            argv=(
                str(program),
                f"--name={name}",
                f"--data-dir={directory / 'data' / name}",
                f"--client-urls={pd_url(client)}",
                f"--peer-urls=http://127.0.0.1:{peer}",
                f"--initial-cluster={together}",
                f"--log-file={directory / 'logs' / f'{name}-server.log'}",
            ),
            ready_url=f"{pd_url(client)}/pd/api/v1/health",
        )
        for name, client, peer in members
    ]


def pd_url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


NO_SABAKAN: Final = f"{ABSENT['sabakan']}: no real sabakan, the sandbox's answers instead"
#: Where it keeps everything in etcd.
ETCD_PREFIX: Final = "/sabakan/"
#: http, https, metrics, dhcp
PORTS_NEEDED: Final = 4


def sabakan(program: Path, directory: Path, ports: list[int], *, etcd: str, tls: tuple[Path, Path]) -> Server:
    """A registry on the lab's etcd. It insists on every one of these flags."""
    http, https, metrics, dhcp = ports
    data = (directory / "data" / "sabakan").absolute()
    data.mkdir(parents=True, exist_ok=True)
    return Server(
        name="sabakan",
        argv=(
            str(program),
            *("-http", f"127.0.0.1:{http}"),
            *("-https", f"127.0.0.1:{https}"),
            *("-metrics", f"127.0.0.1:{metrics}"),
            *("-dhcp-bind", f"127.0.0.1:{dhcp}"),
            *("-data-dir", str(data)),
            *("-advertise-url", sabakan_url(http)),
            *("-advertise-url-https", f"https://127.0.0.1:{https}"),
            *("-server-cert", str(tls[0])),
            *("-server-key", str(tls[1])),
            *("-etcd-endpoints", etcd),
        ),
        ready_url=f"{sabakan_url(http)}/health",
    )


def sabakan_url(port: int) -> str:
    return f"http://127.0.0.1:{port}"
