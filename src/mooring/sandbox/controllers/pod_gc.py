"""Pod garbage collection: pods of a node that is gone, and those stuck on one declared out of service."""

from typing import Final

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.sandbox.apiserver.store import ObjectStore
from mooring.sandbox.clock import Timeline
from mooring.sandbox.controllers import podstate
from mooring.sandbox.controllers.podstate import key_of, make_condition, node_of, with_condition
from mooring.sandbox.controllers.queue import Key, WorkQueue

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"


class PodGc:
    """A node must be missing for a while (40 s) before its pods are taken for lost."""

    def __init__(self, timeline: Timeline, store: ObjectStore, *, quarantine_s: float = 40.0) -> None:
        self._timeline = timeline
        self._store = store
        self._quarantine_s = quarantine_s
        self.queue = WorkQueue(timeline, self._sync)
        store.subscribe(Kind.NODE, self._on_node)
        store.subscribe(Kind.POD, self._on_pod)

    def _on_node(self, kind: str, old: Json | None, new: Json | None) -> None:
        if kind == "DELETED" and old is not None:
            self.queue.add_after(key_of(old), self._quarantine_s)
        elif new is not None and _out_of_service(new):
            self.queue.add(key_of(new))

    def _on_pod(self, kind: str, old: Json | None, new: Json | None) -> None:
        if new is None or kind == "DELETED" or (old is not None and node_of(old) == node_of(new)):
            if new is not None and podstate.terminating(new) and node_of(new):
                node = self._store.find(Kind.NODE, "", node_of(new))
                if node is not None and _out_of_service(node):
                    self.queue.add(key_of(node))
            return
        name = node_of(new)
        if name and self._store.find(Kind.NODE, "", name) is None:
            self.queue.add_after(("", name), self._quarantine_s)

    def _sync(self, key: Key) -> float | None:
        node = self._store.find(Kind.NODE, *key)
        for pod in self._store.pods_on(key[1]):
            if node is None:
                self._bury(pod, "PodGC: node no longer exists")
            elif _out_of_service(node) and podstate.terminating(pod):
                self._bury(pod, "PodGC: node is out of service")
        return None

    def _bury(self, pod: Json, words: str) -> None:
        if not podstate.terminal(pod):
            item = make_condition("DisruptionTarget", "True", self._timeline.now(), "DeletionByPodGC", words)
            conditions = with_condition(list((pod.get("status") or {}).get("conditions") or ()), item)
            self._store.mutate(
                Kind.POD, *key_of(pod), lambda one: podstate.with_status(one, phase="Failed", conditions=conditions)
            )
        self._store.delete(Kind.POD, *key_of(pod), uid=pod["metadata"]["uid"], grace_s=0)


def _out_of_service(node: Json) -> bool:
    return any(t["key"] == OUT_OF_SERVICE for t in (node.get("spec") or {}).get("taints") or ())
