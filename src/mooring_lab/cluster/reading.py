"""What one asks of a cluster's objects: the sandbox's own, or the mirror of a real one's."""

from typing import Final

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.controllers.endpoints import ready_nodes
from mooring_lab.cluster.controllers.workloads.ownership import controller_of
from mooring_lab.cluster.pd import SandboxPd

WORKLOADS: Final = (Kind.DEPLOYMENT, Kind.STATEFUL_SET, Kind.REPLICA_SET, Kind.DAEMON_SET)


class Reading:
    store: ObjectStore
    pd: dict[tuple[str, str], SandboxPd]

    def leaders_on(self, namespace: str, cluster: str, pod: str) -> int:
        """Region leaders on the store of a TiKV pod, by TiKV's truth and not by what PD was told."""
        pd = self.pd[namespace, cluster]
        store = pd.store_of(pod)
        return len(pd.server.tikv.led[store.id]) if store is not None else 0

    def workload(self, namespace: str, name: str) -> Json:
        for kind in WORKLOADS:
            obj = self.store.find(kind, namespace, name)
            if obj is not None:
                return obj
        raise LookupError(f"no workload {namespace}/{name}")

    def pods(self, namespace: str, workload: str) -> list[Json]:
        """Pods of a workload, those of a Deployment through its ReplicaSets, by name."""
        owner = self.workload(namespace, workload)
        if owner["kind"] != "Deployment":
            return self.store.pods_of(owner["metadata"]["uid"])
        found: list[Json] = []
        for one in self.store.list(Kind.REPLICA_SET, namespace):
            reference = controller_of(one)
            if reference is not None and reference["uid"] == owner["metadata"]["uid"]:
                found.extend(self.store.pods_of(one["metadata"]["uid"]))
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def nodes_of(self, namespace: str, workload: str) -> dict[str, str]:
        """Pod → node, of active pods."""
        return {
            pod["metadata"]["name"]: podstate.node_of(pod)
            for pod in self.pods(namespace, workload)
            if podstate.active(pod)
        }

    def ready(self, namespace: str, workload: str) -> int:
        return sum(podstate.ready(pod) and podstate.active(pod) for pod in self.pods(namespace, workload))

    def ready_nodes(self, namespace: str, service: str) -> set[str]:
        """Nodes with a ready endpoint: with externalTrafficPolicy Local, what a load balancer points at."""
        return ready_nodes(self.store, namespace, service)
