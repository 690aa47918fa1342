"""NoExecute: a tainted node loses the pods that do not tolerate it, each when its tolerationSeconds are over."""

from typing import Final

from mooring.clients.ports import ConflictError, Json, NotFoundError
from mooring.core.model.cluster import Taint, Toleration
from mooring.core.model.kinds import Kind
from mooring.sandbox.apiserver.store import ObjectStore
from mooring.sandbox.clock import Timeline, Timer
from mooring.sandbox.controllers import podstate
from mooring.sandbox.controllers.podstate import key_of, make_condition, node_of, with_condition

PodKey = tuple[str, str]
FOREVER: Final = float("inf")


def stays_s(pod: Json, taints: tuple[Taint, ...]) -> float:
    """How long the pod may stay under these NoExecute taints: 0 at once, infinity for ever."""
    tolerations = [
        Toleration(
            t.get("key", ""),
            t.get("operator", "Equal"),
            t.get("value", ""),
            t.get("effect", ""),
            t.get("tolerationSeconds"),
        )
        for t in pod["spec"].get("tolerations") or ()
    ]
    shortest = FOREVER
    for taint in taints:
        seconds = [t.seconds for t in tolerations if t.tolerates(taint)]
        if not seconds:
            return 0.0
        limited = [max(0.0, float(s)) for s in seconds if s is not None]
        if limited:
            shortest = min(shortest, *limited)
    return shortest


class TaintEviction:
    def __init__(self, timeline: Timeline, store: ObjectStore) -> None:
        self._timeline = timeline
        self._store = store
        self._taints: dict[str, tuple[Taint, ...]] = {}
        self._timers: dict[PodKey, tuple[str, float, Timer]] = {}
        store.subscribe(Kind.NODE, self._on_node)
        store.subscribe(Kind.POD, self._on_pod)

    def _on_node(self, kind: str, old: Json | None, new: Json | None) -> None:
        node = new or old
        if node is None:
            return
        name = node["metadata"]["name"]
        taints = () if kind == "DELETED" else _no_execute(node)
        if taints == self._taints.get(name, ()):
            return
        if taints:
            self._taints[name] = taints
        else:
            self._taints.pop(name, None)
        for pod in self._store.pods_on(name):
            self._look(pod, taints)

    def _on_pod(self, kind: str, old: Json | None, new: Json | None) -> None:
        if kind == "DELETED" or new is None:
            if old is not None and self._timers:
                self._cancel(key_of(old))
        elif self._taints and (taints := self._taints.get(node_of(new))):
            self._look(new, taints)

    def _look(self, pod: Json, taints: tuple[Taint, ...]) -> None:
        key, uid = key_of(pod), pod["metadata"]["uid"]
        stays = stays_s(pod, taints) if taints else FOREVER
        waiting = self._timers.get(key)
        if stays == FOREVER or podstate.terminating(pod) or podstate.terminal(pod):
            self._cancel(key)
            return
        due = self._timeline.monotonic() + stays
        if waiting is not None:
            if waiting[0] == uid and (waiting[1] <= due):
                return  # it counts from when the taint came
            waiting[2].cancel()
        self._timers[key] = (uid, due, self._timeline.at(due, lambda: self._evict(key, uid)))

    def _cancel(self, key: PodKey) -> None:
        waiting = self._timers.pop(key, None)
        if waiting is not None:
            waiting[2].cancel()

    def _evict(self, key: PodKey, uid: str) -> None:
        self._timers.pop(key, None)
        item = make_condition(
            "DisruptionTarget",
            "True",
            self._timeline.now(),
            "DeletionByTaintManager",
            "Taint manager: deleting due to NoExecute taint",
        )

        def marked(current: Json) -> Json | None:
            if current["metadata"]["uid"] != uid:
                return None
            conditions = list((current.get("status") or {}).get("conditions") or ())
            return podstate.with_status(current, conditions=with_condition(conditions, item))

        try:
            self._store.mutate(Kind.POD, *key, marked)
            self._store.delete(Kind.POD, *key, uid=uid)
        except (NotFoundError, ConflictError):
            return


def _no_execute(node: Json) -> tuple[Taint, ...]:
    return tuple(
        Taint(t["key"], t["effect"], t.get("value", ""))
        for t in (node.get("spec") or {}).get("taints") or ()
        if t["effect"] == "NoExecute"
    )
