"""Input from outside, cut to size.

Whoever may write an object, send a review, answer as PD or as a registry, or hand over a recording chooses how large
it is. Three limits hold for all of them, and every reader takes them from here:

- a value has a longest form (`LONGEST_MARK`, `LONGEST_VALUE`); the rest of it is cut off;
- a body that holds more values than an honest one of its length is refused before it is decoded (`is_dense`):
  three bytes of JSON can become a hundred of memory;
- a table that remembers values is bounded by bytes, not only by entries (`SharedValues`), and keeps no large value.
"""

import math
import re
import sys
from collections.abc import Hashable, Mapping
from typing import Final, Generic, TypeVar

import msgspec

KIB: Final = 1 << 10
MIB: Final = 1 << 20
#: Characters of a mark of ours, and of any other value that a client writes.
LONGEST_MARK: Final = 64 * KIB
LONGEST_VALUE: Final = 1 * KIB
#: Labels of an object, tolerations, terms and claims of a pod: nothing honest has more.
MOST_LABELS: Final = 512
MOST_PARTS: Final = 128
#: Bytes of the node terms of a pod; a term beyond them matches no node.
MOST_TERMS: Final = 64 * KIB
#: Honest JSON has an object (and a list) per so many bytes at most and a value per so many, beyond the first ones.
BYTES_PER_OBJECT: Final = 40
BYTES_PER_VALUE: Final = 8
FREE: Final = 65536
#: The first bytes of short maps and lists in msgpack.
_LISTS: Final = bytes(range(0x80, 0xA0))

#: The API server takes objects that nest 10,000 deep (a free-form field of a TidbCluster); decoders stop far earlier.
DEEPEST: Final = 200
_TOKENS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def is_dense(body: bytes | bytearray, *, bytes_per_object: int = BYTES_PER_OBJECT) -> bool:
    """Whether the JSON was made to be large in memory."""
    if len(body) <= FREE:
        return False
    objects, values = max(body.count(b"{"), body.count(b"[")), body.count(b",")
    return objects > FREE + len(body) // bytes_per_object or values > FREE + len(body) // BYTES_PER_VALUE


def is_dense_msgpack(record: bytes) -> bool:
    """The same of msgpack, where one byte is a whole list. A byte of randomness looks like one in every eighth case."""
    return len(record) - len(record.translate(None, _LISTS)) > FREE + len(record) // 5


def shallow(body: bytes) -> bytes:
    """The same JSON, with null in place of what nests too deep to be decoded. No field that is read nests so deep."""
    kept, depth, begin = bytearray(), 0, 0
    for found in _TOKENS.finditer(body):
        token = found[0]
        if token in b"[{":
            depth += 1
            if depth == DEEPEST + 1:
                kept += body[begin : found.start()]
        elif token in b"]}":
            if depth == DEEPEST + 1:
                kept += b"null"
                begin = found.end()
            depth -= 1
    return bytes(kept) + body[begin:] if begin else body


def weight(value: object, most: float = math.inf, *, once: bool = False) -> int:
    """Bytes of memory that a plain value takes, about; it is not weighed beyond `most`. A part that it holds twice is
    counted twice, unless `once`."""
    size, parts, seen = 0, [value], set[int]()
    while parts and size <= most:
        one = parts.pop()
        if once:
            if id(one) in seen:
                continue
            seen.add(id(one))
        size += sys.getsizeof(one)
        of = type(one)
        if of is str or of is int:
            continue
        if isinstance(one, tuple | list | set | frozenset):
            parts += one
        elif isinstance(one, msgspec.Struct):
            parts += msgspec.structs.astuple(one)
        elif isinstance(one, Mapping):
            parts += one.keys()
            parts += one.values()
    return size


class SharedValues(Generic[K, V]):
    """One instance of each value that repeats: `get(key)`, and `put(key, value)` when it is not there yet.

    New entries, and old ones that are asked for again, live in the young generation; when that is full, by entries or
    by bytes, it becomes the old one, and the entries that were not used in between are dropped. So a table never
    holds more than twice its size, whatever the cluster does, and losing an entry costs a duplicate, never a wrong
    answer. A value of a 64th of the bytes or more is not kept at all: nothing that large repeats often.
    """

    __slots__ = ("_bytes", "_most_bytes", "_old", "_size", "_young")

    def __init__(self, size: int, most_bytes: int = 4 * MIB) -> None:
        self._size = size
        self._most_bytes = most_bytes
        self._bytes = 0
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
        most = self._most_bytes // 64
        heavy = weight(key if value is key else (key, value), most, once=True)
        if heavy > most:
            return value
        if len(self._young) >= self._size or self._bytes + heavy > self._most_bytes:
            self._old, self._young, self._bytes = self._young, {}, 0
        self._young[key] = value
        self._bytes += heavy
        return value

    def __len__(self) -> int:
        return len(self._young) + len(self._old)
