"""The objects of the sandbox cluster, with the bookkeeping of a Kubernetes API server.

Promises, kept the way the real server keeps them (a contract suite compares):
- every write has a new resourceVersion, counted over all kinds; a write that changes nothing is none;
- `uid`, `creationTimestamp`, `generation` are the store's; `generation` grows with the spec alone;
- a write that names a resourceVersion or uid which is no longer current raises `Conflict`, nothing changed;
- a pod that is deleted stays, with deletionTimestamp, until the kubelet removes it; finalizers hold any object;
- what an object owned goes after it (background garbage collection).

Objects are copy-on-write: none is changed in place, readers may keep what they got, a write shares all parts that
it did not touch. Parts that repeat over the pods of a template are stored once (`share`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from mooring.clients.ports import (
    AlreadyExistsError,
    Json,
    JsonPatch,
    NotFoundError,
    PatchType,
    RefusedError,
    UnansweredError,
)
from mooring.core.model.kinds import RESOURCES, Kind
from mooring.core.model.times import rfc3339
from mooring_lab.cluster.apiserver.defaults import allocate, set_defaults
from mooring_lab.cluster.apiserver.patch import apply_patch
from mooring_lab.cluster.apiserver.table import (
    Buckets,
    Delivery,
    Listener,
    ObjectKey,
    Shared,
    StoredTable,
    Subscriber,
    key_of,
)
from mooring_lab.cluster.apiserver.validation import (
    GENERATION_KINDS,
    OWN_METADATA,
    STATUS_KEEPS_METADATA,
    STATUS_KINDS,
    check_preconditions,
    grace,
    orphaned,
    resource_name,
    spec_changed,
    without_owner,
)
from mooring_lab.cluster.clock import Timeline, parse_rfc3339
from mooring_lab.cluster.randomness import SeededRandomness

Objects = list[Json]
Keys = list[ObjectKey]


class ObjectStore:
    def __init__(self, timeline: Timeline, seed: int = 0) -> None:
        self.timeline = timeline
        self._randomness = SeededRandomness(seed).fork("store")
        self._revision = 0
        self._tables: dict[Kind, StoredTable] = {kind: StoredTable() for kind in Kind}
        self._delivery = Delivery()
        self._by_node: Buckets[ObjectKey, None] = Buckets()
        self._by_owner: Buckets[tuple[Kind, ObjectKey], None] = Buckets()
        self._uids: dict[str, Kind] = {}
        self._shared = Shared()

    # ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def revision(self) -> int:
        """The resourceVersion of the latest write."""
        return self._revision

    def find(self, kind: Kind, namespace: str, name: str) -> Json | None:
        return self._tables[kind].objects.get((namespace, name))

    def get(self, kind: Kind, namespace: str, name: str) -> Json:
        obj = self._tables[kind].objects.get((namespace, name))
        if obj is None:
            raise NotFoundError(f'{resource_name(kind)} "{name}" not found')
        return obj

    def list(self, kind: Kind, namespace: str | None = None) -> Objects:
        """In key order; `None`: of all namespaces."""
        return [*self._tables[kind].scan(namespace)]

    def count(self, kind: Kind) -> int:
        return len(self._tables[kind].objects)

    def keys(self, kind: Kind) -> Keys:
        """All keys in order. The store's own list: do not change it, do not keep it."""
        return self._tables[kind].keys

    def pods_on(self, node: str) -> Objects:
        pods = self._tables[Kind.POD].objects
        return [pods[key] for key in sorted(self._by_node.get(node))]

    def pods_of(self, owner_uid: str) -> Objects:
        """Pods that name this uid as an owner, in key order."""
        bucket = self._by_owner.get(owner_uid)
        pods = self._tables[Kind.POD].objects
        return [pods[key] for key in sorted(key for kind, key in bucket if kind is Kind.POD)]

    # ── Writing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def create(self, kind: Kind, obj: Json, *, prepared: bool = False) -> Json:
        """`prepared`: it comes from `prepare` and is the store's now."""
        new = obj if prepared else self.prepare(kind, obj)
        key = key_of(new)
        if key in self._tables[kind].objects:
            raise AlreadyExistsError(f'{resource_name(kind)} "{key[1]}" already exists')
        new = self._shared.share(kind, self._stamped(new))
        self._commit(kind, key, "ADDED", None, new)
        self._collect_orphan(kind, new)
        return new

    def prepare(self, kind: Kind, obj: Json) -> Json:
        """What a create would store, but for its resourceVersion: defaults, name, uid, times. Changes nothing."""
        metadata = dict(obj.get("metadata") or {})
        if metadata.get("resourceVersion"):
            raise UnansweredError("resourceVersion should not be set on objects to be created")  # a 500 indeed
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "generation"):
            metadata.pop(field, None)
        if RESOURCES[kind].namespaced:
            metadata["namespace"] = metadata.get("namespace") or "default"
        else:
            metadata.pop("namespace", None)
        if not metadata.get("name"):
            metadata["name"] = self._generate_name(kind, metadata)
        metadata["uid"] = metadata.get("uid") or self._randomness.uuid()
        metadata["creationTimestamp"] = self.timeline.stamp()
        if kind in GENERATION_KINDS:
            metadata["generation"] = 1
        body = {k: v for k, v in obj.items() if k not in {"apiVersion", "kind", "metadata"}}
        new = {"kind": kind.value, "apiVersion": RESOURCES[kind].api_version, "metadata": metadata, **body}
        new = set_defaults(kind, new)
        return allocate(new, self.list(kind)) if kind is Kind.SERVICE else new

    def update(self, kind: Kind, obj: Json, *, status: bool = False) -> Json:
        metadata = obj["metadata"]
        current = self.get(kind, metadata.get("namespace", ""), metadata["name"])
        check_preconditions(kind, current, metadata.get("uid") or "", metadata.get("resourceVersion") or "")
        return self._replace(kind, current, self._admissible(kind, current, obj, status=status), status=status)

    def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Json | JsonPatch,
        patch_type: PatchType = PatchType.MERGE,
        *,
        status: bool = False,
    ) -> Json:
        return self.update(kind, self.patched(kind, namespace, name, patch, patch_type), status=status)

    def patched(self, kind: Kind, namespace: str, name: str, patch: Json | JsonPatch, patch_type: PatchType) -> Json:
        """What the object would look like; a resourceVersion or uid in the patch is a precondition for the update."""
        if patch_type is PatchType.STRATEGIC and kind in {Kind.TIDB_CLUSTER, Kind.TIDB_V2}:
            raise RefusedError("strategic merge patch is not served for custom resources", 415)
        return apply_patch(self.get(kind, namespace, name), patch, patch_type)

    def mutate(self, kind: Kind, namespace: str, name: str, fn: Callable[[Json], Json | None]) -> Json | None:
        """A controller's own read-modify-write, spec and status alike. `fn` gets a copy whose metadata, spec and
        status are its own (deeper parts are shared). None: there is no such object."""
        current = self.find(kind, namespace, name)
        if current is None:
            return None
        copy = dict(current)
        for part in ("metadata", "spec", "status"):
            if isinstance(copy.get(part), dict):
                copy[part] = dict(copy[part])
        new = fn(copy)
        return current if new is None else self._replace(kind, current, new)

    def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_s: int | None = None,
        orphan: bool = False,
    ) -> None:
        current = self.get(kind, namespace, name)
        check_preconditions(kind, current, uid, resource_version)
        metadata = current["metadata"]
        grace_left = grace(current, grace_s) if kind is Kind.POD else 0
        if grace_left or metadata.get("finalizers") or kind is Kind.POD:
            # A pod is marked before it goes even when it goes at once.
            self._mark(kind, current, grace_left)
        # A subscriber that saw the mark may have removed it already.
        left = self.find(kind, namespace, name)
        if left is None or left["metadata"]["uid"] != metadata["uid"]:
            return
        if grace_left == 0 and not left["metadata"].get("finalizers"):
            self._remove(kind, left, orphan=orphan)

    def _mark(self, kind: Kind, current: Json, grace_left: int) -> None:
        """Sets or shortens the grace; never prolongs it."""
        metadata = current["metadata"]
        began = self.timeline.now()
        if metadata.get("deletionTimestamp"):
            before = metadata.get("deletionGracePeriodSeconds", 0)
            if grace_left >= before:
                return
            began = parse_rfc3339(metadata["deletionTimestamp"]) - before
        marked = {**metadata, "deletionTimestamp": rfc3339(began + grace_left)}
        marked["deletionGracePeriodSeconds"] = grace_left
        if "generation" in metadata:
            marked["generation"] = metadata["generation"] + 1
        new = self._stamped({**current, "metadata": marked})
        self._commit(kind, key_of(current), "MODIFIED", current, new)

    def remove(self, kind: Kind, namespace: str, name: str) -> None:
        """The final removal by the kubelet or a controller; finalizers still keep the object."""
        if self.find(kind, namespace, name) is not None:
            self.delete(kind, namespace, name, grace_s=0)

    def subscribe(self, kind: Kind, fn: Subscriber) -> None:
        """("ADDED" | "MODIFIED" | "DELETED", old, new): synchronous, after the write, in order, also for writes that a
        subscriber makes (they are delivered when all subscribers have got the first)."""
        self._delivery.subscribers[kind].append(fn)

    def listen(self, fn: Listener) -> None:
        """As `subscribe`, to all kinds, before the subscribers of the kind."""
        self._delivery.listeners.append(fn)

    # ── Inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _generate_name(self, kind: Kind, metadata: Json) -> str:
        prefix = metadata.get("generateName")
        if not prefix:
            raise RefusedError(f"{resource_name(kind)}: name or generateName is required", 422)
        while True:
            name = f"{prefix}{self._randomness.token(5)}"
            if (metadata.get("namespace", ""), name) not in self._tables[kind].objects:
                return name

    def _stamped(self, obj: Json) -> Json:
        """The same object under the next resourceVersion (its metadata must be the caller's own dict)."""
        self._revision += 1
        obj["metadata"]["resourceVersion"] = str(self._revision)
        return obj

    def _admissible(self, kind: Kind, current: Json, wanted: Json, *, status: bool) -> Json:
        """What an update from outside may change: the spec side or the status side, never the store's own fields."""
        own = current["metadata"]
        if status and kind not in STATUS_KEEPS_METADATA:
            metadata = dict(own)
        else:
            metadata = {k: v for k, v in wanted["metadata"].items() if k not in OWN_METADATA}
            metadata.update({k: own[k] for k in OWN_METADATA if k in own})
        new: Json
        if status:
            new = {**current, "metadata": metadata}
            new["status"] = wanted.get("status", {})
        else:
            new = {**wanted, "kind": current["kind"], "apiVersion": current["apiVersion"], "metadata": metadata}
            if kind in STATUS_KINDS:
                new.pop("status", None)
                if "status" in current:
                    new["status"] = current["status"]
            new = set_defaults(kind, new)
            if kind is Kind.SERVICE:
                new = allocate(new, (o for o in self.list(kind) if o is not current), current)
        return new

    def _replace(self, kind: Kind, current: Json, new: Json, *, status: bool = False) -> Json:
        metadata = {**new["metadata"], "resourceVersion": current["metadata"]["resourceVersion"]}
        new = {**new, "metadata": metadata}
        if new == current:
            return current
        if kind in GENERATION_KINDS and not status and spec_changed(kind, current, new):
            metadata["generation"] = current["metadata"].get("generation", 0) + 1
        self._stamped(new)
        key = key_of(current)
        if current["metadata"].get("finalizers") and not metadata.get("finalizers") and _deletion_due(metadata):
            self._remove(kind, current, last=new)
            return new
        self._commit(kind, key, "MODIFIED", current, new)
        return new

    def _remove(self, kind: Kind, current: Json, *, last: Json | None = None, orphan: bool = False) -> None:
        """`last`: how it looked in the end, if other than it is stored."""
        last = last or current
        gone = self._stamped({**last, "metadata": dict(last["metadata"])})
        uid = gone["metadata"]["uid"]
        dependents = [*self._by_owner.get(uid)]
        self._commit(kind, key_of(gone), "DELETED", current, gone)
        for dependent in dependents:
            if orphan:
                self.mutate(dependent[0], *dependent[1], fn=partial(without_owner, uid=uid))
            else:
                self.timeline.soon(partial(self._collect, *dependent))

    def _commit(self, kind: Kind, key: ObjectKey, event: str, old: Json | None, new: Json) -> None:
        table = self._tables[kind]
        reindex = old is None or event == "DELETED" or _index_terms(kind, old) != _index_terms(kind, new)
        if reindex and old is not None:
            self._unindex(kind, key, old)
        if event == "DELETED":
            table.drop(key)
            self._uids.pop(new["metadata"]["uid"], None)
            told: tuple[Json | None, Json | None] = (new, None)
        else:
            table.put(key, new)
            if reindex:
                self._uids[new["metadata"]["uid"]] = kind
                self._index(kind, key, new)
            told = (old, new)
        self._delivery.tell(kind, event, *told)

    def _index(self, kind: Kind, key: ObjectKey, obj: Json) -> None:
        owners, node = _index_terms(kind, obj)
        for owner in owners or ():
            self._by_owner.put(owner["uid"], (kind, key), None)
        if node:
            self._by_node.put(node, key, None)

    def _unindex(self, kind: Kind, key: ObjectKey, obj: Json) -> None:
        owners, node = _index_terms(kind, obj)
        for owner in owners or ():
            self._by_owner.discard(owner["uid"], (kind, key))
        if node:
            self._by_node.discard(node, key)

    def vouch(self, uid: str, kind: Kind) -> None:
        """An owner that is not kept here lives elsewhere: what it owns stays."""
        self._uids.setdefault(uid, kind)

    # ── Garbage collection ────────────────────────────────────────────────────────────────────────────────────────

    def _collect_orphan(self, kind: Kind, obj: Json) -> None:
        """An object that was created after its owner was deleted goes too."""
        if orphaned(obj, self._uids):
            self.timeline.after(1.0, partial(self._collect, kind, key_of(obj)))

    def _collect(self, kind: Kind, key: ObjectKey) -> None:
        obj = self.find(kind, *key)
        if obj is not None and not obj["metadata"].get("deletionTimestamp") and orphaned(obj, self._uids):
            self.delete(kind, *key)


def _index_terms(kind: Kind, obj: Json) -> tuple[Any, Any]:
    """What an object is found by besides its key: its owners, and a pod's node."""
    node = obj["spec"].get("nodeName") if kind is Kind.POD else None
    return obj["metadata"].get("ownerReferences"), node


def _deletion_due(metadata: Json) -> bool:
    return bool(metadata.get("deletionTimestamp")) and metadata.get("deletionGracePeriodSeconds", 0) == 0
