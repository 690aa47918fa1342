"""Who owns a pod: by uid, never by name, and adoption and release by label.

A controller owns what carries its uid as the controlling reference. A pod that it owns but whose labels no longer
match is released (the reference is taken away, the pod lives on); an active pod with matching labels and no
controller is adopted. That is what makes "detach a pod by changing a label" work.
"""

from collections.abc import Callable

from mooring.clients.ports import ConflictError, Json, NotFoundError, PortError
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.apiserver.labels import selects
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.controllers.podstate import active, labels_of, ready, terminating, with_meta
from mooring_lab.cluster.controllers.workloads.rollout import owner_reference


def controller_of(obj: Json) -> Json | None:
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            found: Json = reference
            return found
    return None


#: (event, old, new, the reference to the controller that is told)
Told = Callable[[str, Json | None, Json | None, Json], None]


class OwnedPods:
    """One look at a pod's owner per change, then only the controller of that kind is notified."""

    def __init__(self, store: ObjectStore) -> None:
        self._routes: dict[str, list[Told]] = {}
        store.subscribe(Kind.POD, self._seen)

    def route(self, owner_kind: str, told: Told) -> None:
        self._routes.setdefault(owner_kind, []).append(told)

    def _seen(self, event: str, old: Json | None, new: Json | None) -> None:
        after = None if new is None else controller_of(new)
        if after is not None:
            for told in self._routes.get(after["kind"], ()):
                told(event, old, new, after)
        if old is None or event == "ADDED":
            return
        if new is not None and old["metadata"].get("ownerReferences") is new["metadata"].get("ownerReferences"):
            return
        before = controller_of(old)
        if before is not None and (after is None or before["uid"] != after["uid"]):
            for told in self._routes.get(before["kind"], ()):
                told(event, old, new, before)


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


class OwnedCounts:
    """How many pods of each ReplicaSet are active, and how many of those ready: kept up change by change, so that a
    set of thousands costs as little to look at as a set of one. `unsure` names the owners whose pods have to be gone
    through after all, because a label or an owner changed."""

    def __init__(self) -> None:
        self._active: dict[str, int] = {}
        self._ready: dict[str, int] = {}
        self.unsure: set[str] = set()

    def of(self, uid: str) -> tuple[int, int]:
        return self._active.get(uid, 0), self._ready.get(uid, 0)

    def note(self, event: str, old: Json | None, new: Json | None, uid: str) -> bool:
        """Counts one change of a pod for this owner; False: nothing that is counted changed."""
        before = (0, 0) if event == "ADDED" or old is None else _counts(old, uid)
        after = (0, 0) if new is None else _counts(new, uid)
        if old is not None and new is not None and event != "ADDED":
            was, has = old["metadata"], new["metadata"]
            if was.get("labels") is not has.get("labels") and labels_of(old) != labels_of(new):
                self.unsure.add(uid)
            if was.get("ownerReferences") is not has.get("ownerReferences"):
                self.unsure.add(uid)
        if before[0] != after[0]:
            _bump(self._active, uid, after[0] - before[0])
        if before[1] != after[1]:
            _bump(self._ready, uid, after[1] - before[1])
        return before != after or uid in self.unsure


def _counts(pod: Json, uid: str) -> tuple[int, int]:
    if not active(pod) or not _owned_by(pod, uid):
        return 0, 0
    return 1, int(ready(pod))


def _owned_by(pod: Json, uid: str) -> bool:
    reference = controller_of(pod)
    return reference is not None and bool(reference["uid"] == uid)


def _bump(counts: dict[str, int], uid: str, by: int) -> None:
    left = counts.get(uid, 0) + by
    if left:
        counts[uid] = left
    else:
        counts.pop(uid, None)


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
    except (NotFoundError, ConflictError):
        return None


# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# How controllers create pods: in waves that double while all goes well.


#: Sends one pod to the API server, through admission and quota; the answer may come later (a webhook is asked).
Send = Callable[[Json, Callable[[PortError | None], None]], None]


class Waves:
    """One slow-start batch run for one owner."""

    def __init__(
        self,
        timeline: Timeline,
        send: Send,
        pods: list[Json],
        done: Callable[[PortError | None], None],
        *,
        call_s: float,
    ) -> None:
        self._timeline = timeline
        self._send = send
        self._pods = pods
        self._done = done
        self._call_s = call_s
        self._size = 1
        self._next = 0
        self._open = 0
        self._error: PortError | None = None

    def start(self) -> None:
        wave = self._pods[self._next : self._next + self._size]
        if not wave:
            self._done(None)
            return
        self._next += len(wave)
        self._size *= 2
        self._open = len(wave)
        for pod in wave:
            self._send(pod, self._answer)

    def _answer(self, error: PortError | None) -> None:
        self._error = self._error or error
        self._open -= 1
        if self._open:
            return
        if self._error is not None:
            self._done(self._error)
        elif self._next >= len(self._pods):
            self._done(None)
        else:
            self._timeline.after(self._call_s, self.start)
