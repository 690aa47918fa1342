"""Volumes: a claim becomes bound where its first consumer goes.

A claim of a class whose name begins with "local" gets a volume on that node and is bound to it, as a local PV
is: the pod that mounts it can go nowhere else any more. Other classes give volumes that any node can mount. A volume
goes with its claim.
"""

from typing import Final

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.sandbox.apiserver.store import ObjectStore
from mooring.sandbox.clock import Timeline
from mooring.sandbox.controllers.podstate import annotations_of, key_of, with_spec, with_status
from mooring.sandbox.controllers.queue import Key, WorkQueue
from mooring.sandbox.nodes import HOSTNAME

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"


class Volumes:
    def __init__(self, timeline: Timeline, store: ObjectStore, *, latency_s: float = 0.01) -> None:
        self._store = store
        self.queue = WorkQueue(timeline, self._sync, latency_s=latency_s)
        store.subscribe(Kind.PVC, self._on_claim)

    def _on_claim(self, kind: str, old: Json | None, new: Json | None) -> None:
        if kind == "DELETED":
            name = ((old or {}).get("spec") or {}).get("volumeName")
            if name:
                self._store.remove(Kind.PV, "", name)
        elif new is not None:
            self.queue.add(key_of(new))

    def _sync(self, key: Key) -> float | None:
        claim = self._store.find(Kind.PVC, *key)
        if claim is None or claim["spec"].get("volumeName"):
            return None
        node = annotations_of(claim).get(SELECTED_NODE)
        if not node:
            return None
        name = f"pvc-{claim['metadata']['uid']}"
        size = ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage", "1Gi")
        spec: Json = {
            "capacity": {"storage": size},
            "accessModes": claim["spec"].get("accessModes") or ["ReadWriteOnce"],
            "storageClassName": claim["spec"].get("storageClassName", ""),
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": key[0], "name": key[1]},
        }
        if str(spec["storageClassName"]).startswith("local"):
            expression = {"key": HOSTNAME, "operator": "In", "values": [node]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
            spec["local"] = {"path": f"/mnt/disks/{name}"}
        self._store.create(Kind.PV, {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Bound"}})
        self._store.mutate(Kind.PVC, *key, lambda one: with_status(with_spec(one, volumeName=name), phase="Bound"))
        return None
