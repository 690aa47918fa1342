"""Who owns a pod: by uid, never by name, and adoption and release by label.

A controller owns what carries its uid as the controlling reference. A pod that it owns but whose labels no longer
match is released (the reference is taken away, the pod lives on); an active pod with matching labels and no
controller is adopted. That is what makes "detach a pod by changing a label" work.
"""

from collections.abc import Callable

from mooring.model.kinds import Kind
from mooring.ports import Conflict, Json, NotFound
from mooring.sandbox.controllers.podstate import active, labels_of, terminating, with_meta
from mooring.sandbox.controllers.template import owner_reference
from mooring.sandbox.labels import selects
from mooring.sandbox.store import ObjectStore


def controller_of(obj: Json) -> Json | None:
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            found: Json = reference
            return found
    return None


class Orphans:
    """Pods without a controller, by namespace: the only ones that adoption has to look at."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._names: dict[str, set[str]] = {}
        self._listeners: list[Callable[[Json], None]] = []
        for pod in store.list(Kind.POD):
            self._seen("ADDED", None, pod)
        store.subscribe(Kind.POD, self._seen)

    def on_orphan(self, listener: Callable[[Json], None]) -> None:
        self._listeners.append(listener)

    def of(self, namespace: str) -> list[Json]:
        pods = (self._store.find(Kind.POD, namespace, name) for name in sorted(self._names.get(namespace, ())))
        return [pod for pod in pods if pod is not None]

    def _seen(self, _type: str, old: Json | None, new: Json | None) -> None:
        pod = new or old
        if pod is None:
            return
        meta = pod["metadata"]
        if new is None or _type == "DELETED" or controller_of(pod) is not None:
            names = self._names.get(meta["namespace"])
            if names:
                names.discard(meta["name"])
            return
        self._names.setdefault(meta["namespace"], set()).add(meta["name"])
        for listener in self._listeners:
            listener(pod)


def claim_pods(store: ObjectStore, orphans: Orphans, owner: Json, api_version: str, kind: str) -> list[Json]:
    """The owner's pods after release and adoption, by name."""
    selector = owner["spec"].get("selector")
    namespace = owner["metadata"]["namespace"]
    mine: list[Json] = []
    for pod in store.pods_of(owner["metadata"]["uid"]):
        if selects(selector, labels_of(pod)):
            mine.append(pod)
        elif not terminating(pod):
            _release(store, pod, owner["metadata"]["uid"])
    if not terminating(owner):
        for pod in orphans.of(namespace):
            if active(pod) and selects(selector, labels_of(pod)):
                adopted = _adopt(store, pod, owner_reference(owner, api_version, kind))
                if adopted is not None:
                    mine.append(adopted)
    mine.sort(key=lambda pod: str(pod["metadata"]["name"]))
    return mine


def _release(store: ObjectStore, pod: Json, owner_uid: str) -> None:
    def drop(current: Json) -> Json | None:
        if current["metadata"]["uid"] != pod["metadata"]["uid"]:
            return None
        kept = [r for r in current["metadata"].get("ownerReferences") or () if r["uid"] != owner_uid]
        return with_meta(current, ownerReferences=kept)

    _mutate(store, pod, drop)


def _adopt(store: ObjectStore, pod: Json, reference: Json) -> Json | None:
    def add(current: Json) -> Json | None:
        if current["metadata"]["uid"] != pod["metadata"]["uid"] or controller_of(current) is not None:
            return None
        return with_meta(current, ownerReferences=[*(current["metadata"].get("ownerReferences") or ()), reference])

    return _mutate(store, pod, add)


def _mutate(store: ObjectStore, pod: Json, change: Callable[[Json], Json | None]) -> Json | None:
    meta = pod["metadata"]
    try:
        return store.mutate(Kind.POD, meta["namespace"], meta["name"], change)
    except (NotFound, Conflict):
        return None
