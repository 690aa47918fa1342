"""Namespaces: there are four from the start, and one that is deleted takes everything in it along, then goes itself."""

from typing import Final

from mooring.clients.ports import Json, RefusedError
from mooring.core.model.kinds import RESOURCES, Kind
from mooring.sandbox.apiserver.rules import check_preconditions
from mooring.sandbox.apiserver.store import ObjectStore

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
