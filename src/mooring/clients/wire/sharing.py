"""One instance of whatever repeats: strings, label maps, owners, pod shapes.

A table keeps two generations. New entries, and old ones that are asked for again, live in the young one; when that is
full it becomes the old one and what was not used in between is dropped. So a table never holds more than twice
its size, whatever the cluster does, and losing an entry costs a duplicate, never a wrong answer. (`sys.intern` would
serve the strings on Python 3.11, but makes them immortal on 3.12.)
"""

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from mooring.core.model.cluster import NO_LABELS, Owner, PodShape

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SharedValues(Generic[K, V]):
    """`get(key)`, and `put(key, value)` when it is not there yet."""

    __slots__ = ("_old", "_size", "_young")

    def __init__(self, size: int) -> None:
        self._size = size
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        found = self._young.get(key)
        if found is None and self._old:
            found = self._old.get(key)
            if found is not None:
                self.put(key, found)
        return found

    def put(self, key: K, value: V) -> V:
        if len(self._young) >= self._size:
            self._old, self._young = self._young, {}
        self._young[key] = value
        return value

    def __len__(self) -> int:
        return len(self._young) + len(self._old)


Pairs = tuple[tuple[str, str], ...]

_strings: SharedValues[str, str] = SharedValues(65536)
_maps: SharedValues[Pairs, Mapping[str, str]] = SharedValues(8192)
_owners: SharedValues[tuple[str, str, str, str], Owner] = SharedValues(32768)
#: Keyed by all that a shape is made of (see `pods.py`).
shapes: SharedValues[Hashable, PodShape] = SharedValues(16384)


def text(value: str) -> str:
    """For strings that many objects carry: namespaces, node names, keys and values of labels, phases."""
    return _strings.get(value) or _strings.put(value, value)


def pairs(mapping: Mapping[str, str] | None) -> Pairs:
    """A hashable, order-free form of a map of strings."""
    if not mapping:
        return ()
    return tuple(sorted(mapping.items()))


def labels(mapping: Mapping[str, str] | None) -> Mapping[str, str]:
    """One shared map per distinct content; the shared empty one when there is nothing."""
    if not mapping:
        return NO_LABELS
    key = tuple(sorted(mapping.items()))
    return _maps.get(key) or _maps.put(key, {text(k): text(v) for k, v in key})


def owner(kind: str, name: str, uid: str, api_version: str) -> Owner:
    key = (uid, kind, name, api_version)
    return _owners.get(key) or _owners.put(key, Owner(text(kind), name, uid, text(api_version)))
