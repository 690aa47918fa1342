"""The cluster of a lab as acts read it: the mirror, and beside it what no API server has (PD, machines, a cloud)."""

from typing import Any, cast

from mooring.model.kinds import Kind
from mooring.ports import Json
from mooring.rehearse.onlab.mirror import Mirror
from mooring.sandbox.clock import Timeline
from mooring.sandbox.cloud import Cloud
from mooring.sandbox.controllers import podstate
from mooring.sandbox.controllers.endpoints import ready_nodes
from mooring.sandbox.controllers.ownership import controller_of
from mooring.sandbox.controllers.tidb_operator import TidbOperator
from mooring.sandbox.kubelet import Kubelets
from mooring.sandbox.pd import SandboxPd

WORKLOADS = (Kind.DEPLOYMENT, Kind.STATEFUL_SET)


class _Machines:
    """What the cloud switches off. kwok plays a kubelet for as long as there is a Node: the cloud deletes it anyway."""

    def silence(self, node: str) -> None:
        """Its Node goes with it, a moment later."""


class LabBoards:
    def __init__(self, timeline: Timeline, store: Mirror) -> None:
        self.timeline = timeline
        self.store = store
        self.pd: dict[tuple[str, str], SandboxPd] = {}
        self.sabakan: Any = None
        self.cloud = Cloud(timeline, store, cast("Kubelets", _Machines()), delete_after_s=1.0)
        self.tidb_operator = TidbOperator(timeline, store, self.pd)

    def workload(self, namespace: str, name: str) -> Json:
        for kind in WORKLOADS:
            obj = self.store.find(kind, namespace, name)
            if obj is not None:
                return obj
        raise LookupError(f"no workload {namespace}/{name}")

    def pods(self, namespace: str, workload: str) -> list[Json]:
        """Pods of a workload, those of a Deployment through its ReplicaSets, by name."""
        owner = self.workload(namespace, workload)["metadata"]["uid"]
        owners = {owner}
        for one in self.store.list(Kind.REPLICA_SET, namespace):
            reference = controller_of(one)
            if reference is not None and reference["uid"] == owner:
                owners.add(one["metadata"]["uid"])
        found = [pod for uid in owners for pod in self.store.pods_of(uid)]
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def nodes_of(self, namespace: str, workload: str) -> dict[str, str]:
        """Pod → node, of active pods."""
        pods = self.pods(namespace, workload)
        return {pod["metadata"]["name"]: podstate.node_of(pod) for pod in pods if podstate.active(pod)}

    def ready(self, namespace: str, workload: str) -> int:
        return sum(podstate.ready(pod) and podstate.active(pod) for pod in self.pods(namespace, workload))

    def ready_nodes(self, namespace: str, service: str) -> set[str]:
        return ready_nodes(self.store, namespace, service)
