"""EndpointSlices: which pods a Service reaches, and on which nodes.

With `externalTrafficPolicy: Local` a node answers on its node port only while a ready endpoint is on it; the set of
those nodes is what a load balancer outside points at.
"""

from typing import Final

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.controllers.podstate import key_of, labels_of, node_of
from mooring_lab.cluster.controllers.queue import Key, WorkQueue

SERVICE_NAME: Final = "kubernetes.io/service-name"
PER_SLICE: Final = 100


class Endpoints:
    def __init__(self, timeline: Timeline, store: ObjectStore, *, latency_s: float = 0.02) -> None:
        self._timeline = timeline
        self._store = store
        self.queue = WorkQueue(timeline, self._sync, latency_s=latency_s)
        store.subscribe(Kind.SERVICE, self._on_service)
        store.subscribe(Kind.POD, self._on_pod)

    def _on_service(self, _kind: str, old: Json | None, new: Json | None) -> None:
        obj = new or old
        if obj is not None:
            self.queue.add(key_of(obj))

    def _on_pod(self, _kind: str, old: Json | None, new: Json | None) -> None:
        pod = new or old
        if pod is None or not self._store.count(Kind.SERVICE):
            return
        for service in self._store.list(Kind.SERVICE, pod["metadata"]["namespace"]):
            if any(one is not None and _selects(service, one) for one in (old, new)):
                self.queue.add(key_of(service))

    def _sync(self, key: Key) -> float | None:
        service = self._store.find(Kind.SERVICE, *key)
        mine = [
            one for one in self._store.list(Kind.ENDPOINT_SLICE, key[0]) if labels_of(one).get(SERVICE_NAME) == key[1]
        ]
        if service is None or not service["spec"].get("selector"):
            for one in mine:
                self._store.remove(Kind.ENDPOINT_SLICE, *key_of(one))
            return None
        endpoints = [
            _endpoint(pod, publish=bool(service["spec"].get("publishNotReadyAddresses")))
            for pod in self._store.list(Kind.POD, key[0])
            if _selects(service, pod) and (pod.get("status") or {}).get("podIP") and not podstate.terminal(pod)
        ]
        chunks = [endpoints[at : at + PER_SLICE] for at in range(0, len(endpoints), PER_SLICE)] or [[]]
        for at, chunk in enumerate(chunks):
            self._put(service, at, chunk)
        for one in mine[len(chunks) :]:
            self._store.remove(Kind.ENDPOINT_SLICE, *key_of(one))
        return None

    def _put(self, service: Json, at: int, endpoints: list[Json]) -> None:
        namespace, name = key_of(service)
        slice_name = f"{name}-{at:05d}"
        ports = [
            {"name": p.get("name", ""), "port": p.get("targetPort", p["port"]), "protocol": p.get("protocol", "TCP")}
            for p in service["spec"].get("ports") or ()
        ]
        current = self._store.find(Kind.ENDPOINT_SLICE, namespace, slice_name)
        if current is not None:
            if current["endpoints"] != endpoints or current["ports"] != ports:
                self._store.mutate(
                    Kind.ENDPOINT_SLICE,
                    namespace,
                    slice_name,
                    lambda one: {**one, "endpoints": endpoints, "ports": ports},
                )
            return
        owner = {
            "apiVersion": "v1",
            "kind": "Service",
            "name": name,
            "uid": service["metadata"]["uid"],
            "controller": True,
        }
        metadata = {
            "namespace": namespace,
            "name": slice_name,
            "labels": {SERVICE_NAME: name},
            "ownerReferences": [owner],
        }
        self._store.create(
            Kind.ENDPOINT_SLICE, {"metadata": metadata, "addressType": "IPv4", "endpoints": endpoints, "ports": ports}
        )


def _selects(service: Json, pod: Json) -> bool:
    selector = service["spec"].get("selector")
    if not selector:
        return False
    labels = labels_of(pod)
    return all(labels.get(key) == value for key, value in selector.items())


def _endpoint(pod: Json, *, publish: bool) -> Json:
    serving, leaving = podstate.ready(pod) or publish, podstate.terminating(pod)
    meta = pod["metadata"]
    return {
        "addresses": [pod["status"]["podIP"]],
        "conditions": {"ready": (serving and not leaving) or publish, "serving": serving, "terminating": leaving},
        "nodeName": node_of(pod),
        "targetRef": {"kind": "Pod", "namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]},
    }


def ready_nodes(store: ObjectStore, namespace: str, service: str) -> set[str]:
    """Nodes with a ready endpoint of the service."""
    return {
        endpoint["nodeName"]
        for one in store.list(Kind.ENDPOINT_SLICE, namespace)
        if labels_of(one).get(SERVICE_NAME) == service
        for endpoint in one["endpoints"]
        if endpoint["conditions"]["ready"]
    }
