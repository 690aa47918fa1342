"""Namespaces: there are four from the start, and one that is deleted takes everything in it along, then goes itself."""

from collections.abc import Callable
from typing import Final

from mooring.clients.ports import Json, RefusedError
from mooring.clients.wire.quantity import milli
from mooring.core.model.kinds import RESOURCES, Kind
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.apiserver.validation import check_preconditions, resource_name

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# ResourceQuota: what a namespace may hold, counted when something is created there.


def check_quota(store: ObjectStore, kind: Kind, obj: Json) -> None:
    """Raises Refused (403) when a quota of the namespace has no room for this object."""
    if not store.count(Kind.RESOURCE_QUOTA):
        return
    namespace = obj["metadata"].get("namespace", "")
    for quota in store.list(Kind.RESOURCE_QUOTA, namespace):
        over: list[tuple[str, int, int, str]] = []
        for resource, hard in sorted((quota.get("spec", {}).get("hard") or {}).items()):
            measure = _measure(kind, resource)
            if measure is None:
                continue
            wants = measure(obj)
            used = sum((measure(other) for other in store.list(kind, namespace) if _counts(kind, other)), 0)
            if wants > 0 and used + wants > milli(hard):
                over.append((resource, wants, used, str(hard)))
        if over:
            name = obj["metadata"].get("name") or obj["metadata"].get("generateName", "")
            raise RefusedError(
                f'{resource_name(kind)} "{name}" is forbidden: exceeded quota: {quota["metadata"]["name"]}, '
                f"requested: {','.join(f'{r}={_plain(w)}' for r, w, _, _ in over)}, "
                f"used: {','.join(f'{r}={_plain(u)}' for r, _, u, _ in over)}, "
                f"limited: {','.join(f'{r}={h}' for r, _, _, h in over)}",
                403,
            )


class QuotaStatus:
    """Keeps `status.used` of every quota in step with what is there."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        store.listen(self._changed)

    def _changed(self, kind: Kind, event: str, old: Json | None, new: Json | None) -> None:
        if not self._store.count(Kind.RESOURCE_QUOTA):
            return
        obj = new or old
        namespace = obj["metadata"].get("namespace", "") if obj else ""
        if not namespace or (event == "MODIFIED" and kind not in {Kind.POD, Kind.RESOURCE_QUOTA}):
            return
        for quota in self._store.list(Kind.RESOURCE_QUOTA, namespace):
            self._store.mutate(Kind.RESOURCE_QUOTA, namespace, quota["metadata"]["name"], self._counted)

    def _counted(self, quota: Json) -> Json:
        hard = quota.get("spec", {}).get("hard") or {}
        used = {r: total for r in hard if (total := self._used(quota["metadata"]["namespace"], r)) is not None}
        return {**quota, "status": {"hard": hard, "used": {r: _plain(u) for r, u in used.items()}}}

    def _used(self, namespace: str, resource: str) -> int | None:
        for kind in Kind:
            if measure := _measure(kind, resource):
                objects = self._store.list(kind, namespace)
                return sum((measure(obj) for obj in objects if _counts(kind, obj)), 0)
        return None


def _plain(thousandths: int) -> str:
    return f"{thousandths / 1000:.3f}".rstrip("0") if thousandths % 1000 else str(thousandths // 1000)


def _counts(kind: Kind, obj: Json) -> bool:
    return kind is not Kind.POD or obj.get("status", {}).get("phase") not in {"Succeeded", "Failed"}


def _measure(kind: Kind, resource: str) -> Callable[[Json], int] | None:
    """How much of a quota's resource one object takes, in thousandths; None: nothing to do with it."""
    group = RESOURCES[kind].group
    counted = f"count/{RESOURCES[kind].plural}" + (f".{group}" if group else "")
    if resource == counted or (not group and resource == RESOURCES[kind].plural):
        return lambda _: 1000
    if kind is not Kind.POD:
        return None
    side, _, name = resource.rpartition(".")
    field = {"": "requests", "requests": "requests", "limits": "limits"}.get(side)
    if field is None or name not in {"cpu", "memory"}:
        return None
    return lambda pod: sum(
        (
            milli((c.get("resources") or {}).get(field, {}).get(name, 0))
            for c in pod.get("spec", {}).get("containers") or ()
        ),
        0,
    )


SYSTEM_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_LOOK_AGAIN_S: Final = 1.0


def keep_namespaces(store: ObjectStore) -> None:
    """The four of every cluster. What a scenario puts straight into the store brings its namespace along;
    clients of the API must create theirs, as everywhere."""

    def need(name: str) -> None:
        if store.find(Kind.NAMESPACE, "", name) is None:
            store.create(Kind.NAMESPACE, {"metadata": {"name": name}})

    def changed(_kind: Kind, event: str, _old: Json | None, new: Json | None) -> None:
        if event == "ADDED" and new is not None and "namespace" in new["metadata"]:
            need(new["metadata"]["namespace"])

    for name in SYSTEM_NAMESPACES:
        need(name)
    for kind in Kind:
        if RESOURCES[kind].namespaced:
            for obj in store.list(kind):
                need(obj["metadata"]["namespace"])
    store.listen(changed)


def delete_namespace(store: ObjectStore, name: str, *, uid: str = "", resource_version: str = "") -> None:
    current = store.get(Kind.NAMESPACE, "", name)
    check_preconditions(Kind.NAMESPACE, current, uid, resource_version)
    if name in SYSTEM_NAMESPACES:
        raise RefusedError(f'namespaces "{name}" is forbidden: this namespace may not be deleted', 403)
    if current["metadata"].get("deletionTimestamp"):
        return

    def terminating(obj: Json) -> Json:
        obj["metadata"].update(deletionTimestamp=store.timeline.stamp(), deletionGracePeriodSeconds=0)
        return {**obj, "status": {"phase": "Terminating"}}

    store.mutate(Kind.NAMESPACE, "", name, terminating)
    store.timeline.soon(lambda: _empty(store, name))


def _empty(store: ObjectStore, name: str) -> None:
    """Pods need their grace, finalizers their owners: look again until nothing is left."""
    left = False
    for kind in Kind:
        if not RESOURCES[kind].namespaced:
            continue
        for obj in store.list(kind, name):
            if not obj["metadata"].get("deletionTimestamp"):
                store.delete(kind, name, obj["metadata"]["name"])
            left = True
    if left:
        store.timeline.after(_LOOK_AGAIN_S, lambda: _empty(store, name))
    else:
        store.remove(Kind.NAMESPACE, "", name)
