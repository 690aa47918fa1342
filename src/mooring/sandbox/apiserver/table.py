"""Objects of one kind in key order, and small indexes kept with every write."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Generic, TypeVar

from mooring.clients.ports import Json

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
