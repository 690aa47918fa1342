"""Objects of one kind in key order, and small indexes kept with every write."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

import msgspec

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Delivers the store's writes to its subscribers, in order.


Subscriber = Callable[[str, Json | None, Json | None], None]
Listener = Callable[[Kind, str, Json | None, Json | None], None]


class Delivery:
    """Synchronous, after the write, in order, also for writes that a subscriber makes (they are delivered when
    all subscribers have got the first)."""

    def __init__(self) -> None:
        self.subscribers: dict[Kind, list[Subscriber]] = {kind: [] for kind in Kind}
        #: Of all kinds, before the subscribers of the kind.
        self.listeners: list[Listener] = []
        self._undelivered: deque[tuple[Kind, str, Json | None, Json | None]] = deque()
        self._delivering = False

    def tell(self, kind: Kind, event: str, old: Json | None, new: Json | None) -> None:
        self._undelivered.append((kind, event, old, new))
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._undelivered:
                kind, event, old, new = self._undelivered.popleft()
                for listener in self.listeners:
                    listener(kind, event, old, new)
                for subscriber in self.subscribers[kind]:
                    subscriber(event, old, new)
        finally:
            self._delivering = False


# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# One copy of what repeats: the pods of a template differ in name, node and times, not in their containers.


_ENCODE: Final = msgspec.json.Encoder().encode
#: A table that grew to this many parts holds mostly things that do not repeat: start afresh.
_LIMIT: Final = 50_000
_SHARED_KINDS: Final = frozenset({Kind.POD, Kind.REPLICA_SET, Kind.NODE, Kind.STATEFUL_SET, Kind.DEPLOYMENT})
_METADATA_PARTS: Final = ("labels", "annotations", "ownerReferences")


class Shared:
    def __init__(self) -> None:
        self._parts: dict[bytes, Any] = {}
        #: Parts known to be shared, by identity: pods made from one template in memory need no encoding.
        self._known: dict[int, Any] = {}

    def share(self, kind: Kind, obj: Json) -> Json:
        """The same object; its own top-level, metadata and spec dicts are reused, what is in them may be replaced."""
        if kind not in _SHARED_KINDS:
            return obj
        metadata = obj["metadata"]
        for field in _METADATA_PARTS:
            if metadata.get(field):
                metadata[field] = self.part(metadata[field])
        spec = obj.get("spec")
        if isinstance(spec, dict):
            obj["spec"] = {k: self.part(v) if isinstance(v, dict | list) else v for k, v in spec.items()}
        return obj

    def part(self, value: Any) -> Any:
        if id(value) in self._known:
            return value
        if len(self._parts) > _LIMIT:
            self._parts.clear()
            self._known.clear()
        kept = self._parts.setdefault(_ENCODE(value), value)
        self._known[id(kept)] = kept
        return kept


ObjectKey = tuple[str, str]
K = TypeVar("K")
V = TypeVar("V")


def key_of(obj: Json) -> ObjectKey:
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


class StoredTable:
    """One kind's objects, and their keys in order."""

    __slots__ = ("keys", "objects")

    def __init__(self) -> None:
        self.objects: dict[ObjectKey, Json] = {}
        self.keys: list[ObjectKey] = []

    def put(self, key: ObjectKey, obj: Json) -> None:
        if key not in self.objects:
            insort(self.keys, key)
        self.objects[key] = obj

    def drop(self, key: ObjectKey) -> None:
        del self.objects[key]
        del self.keys[bisect_left(self.keys, key)]

    def scan(self, namespace: str | None) -> Iterator[Json]:
        if namespace is None:
            for key in self.keys:
                yield self.objects[key]
            return
        for i in range(bisect_left(self.keys, (namespace, "")), len(self.keys)):
            if self.keys[i][0] != namespace:
                return
            yield self.objects[self.keys[i]]


class Buckets(Generic[K, V]):
    """name → {key: value}; a bucket that is empty is not there."""

    def __init__(self) -> None:
        self._buckets: dict[str, dict[K, V]] = {}

    def put(self, name: str, key: K, value: V) -> None:
        self._buckets.setdefault(name, {})[key] = value

    def discard(self, name: str, key: K) -> None:
        bucket = self._buckets.get(name)
        if bucket is not None:
            bucket.pop(key, None)
            if not bucket:
                del self._buckets[name]

    def get(self, name: str) -> dict[K, V]:
        return self._buckets.get(name) or {}
