"""Reading what `memory` wrote: the same objects again, with the same ones shared.

A recording is untrusted input: only classes of the table are made, by their short names, and only structs and enums by
calling them.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from typing import Any

import msgspec

from mooring.core.engine.recording.memory import CONTAINERS
from mooring.core.engine.recording.table import ENGINE_TABLE, Table


class BadMemoryError(ValueError):
    """Not what this version keeps; in words."""


@cache
def _decoder(of: type[msgspec.Struct]) -> "msgspec.msgpack.Decoder[Any]":
    return msgspec.msgpack.Decoder(of)


def read(
    records: Iterable[bytes],
    anchors: Mapping[str, object],
    shapes: Mapping[str, frozenset[str]],
    table: Table = ENGINE_TABLE,
) -> dict[str, Any]:
    """The roots again. `shapes`: what this version keeps of its classes; another version's is refused in words."""
    parts = [part for record in records for part in msgspec.msgpack.decode(record)]
    reader = _Reader(anchors, table)
    contents: dict[int, tuple[Any, list[Any]]] = {}
    for number, name, maxlen, values in parts:
        if number not in contents:
            reader.nodes[number] = _empty(name, maxlen, table)
            contents[number] = (name, [])
        contents[number][1].extend(values)
    # In the order in which they were written: values refer back by number.
    filled = {number: [reader.value(one) for one in values] for number, (_, values) in contents.items()}
    for number, values in reversed(filled.items()):
        _fill(reader.nodes[number], contents[number][0].rpartition(":")[2], values, shapes)
    roots: dict[str, Any] = reader.nodes[0]
    return roots


def _empty(name: str, maxlen: int | None, table: Table) -> Any:
    if name == "deque":
        return deque(maxlen=maxlen)
    if name in CONTAINERS:
        return CONTAINERS[name]()
    of = _class(name, table)
    return of(**dict.fromkeys(of.__struct_fields__)) if issubclass(of, msgspec.Struct) else of.__new__(of)


def _fill(node: Any, name: str, values: list[Any], shapes: Mapping[str, frozenset[str]]) -> None:
    if name in {"list", "deque"}:
        node.extend(values)
    elif name == "set":
        node.update(values)
    else:
        pairs = dict(zip(values[::2], values[1::2], strict=True))
        if name in shapes and shapes[name] != pairs.keys():
            differ = ", ".join(sorted(shapes[name] ^ pairs.keys()))
            raise BadMemoryError(f"{name} is kept otherwise in this version ({differ})")
        if hasattr(node, "restore"):
            node.restore(pairs)
        elif isinstance(node, dict):
            node.update(pairs)
        else:
            for attribute, value in pairs.items():
                if not isinstance(attribute, str) or attribute.startswith("__"):
                    raise BadMemoryError(f"{name} keeps no {attribute!r}")
                setattr(node, attribute, value)


class _Reader:
    def __init__(self, anchors: Mapping[str, object], table: Table) -> None:
        self.nodes: dict[int, Any] = {}
        self._anchors, self._table = anchors, table
        self._read: list[Any] = []

    def value(self, plain: Any) -> Any:
        if not isinstance(plain, list):
            return plain
        what, *rest = plain
        match what:
            case "node":
                return self.nodes[rest[0]]
            case "enum":
                return _kind_of(rest[0], Enum, self._table)(rest[1])
            case "again":
                return self._read[rest[0]]
            case "anchor":
                return self._anchors[rest[0]]
        made = self._new(what, rest)
        self._read.append(made)
        return made

    def _new(self, what: str, rest: list[Any]) -> Any:
        match what:
            case "read":
                return _decoder(_kind_of(rest[0], msgspec.Struct, self._table)).decode(rest[1])
            case "made":
                struct = _kind_of(rest[0], msgspec.Struct, self._table)
                return struct(**dict(zip(struct.__struct_fields__, map(self.value, rest[1:]), strict=True)))
            case "dict":
                values = [self.value(one) for one in rest]
                return dict(zip(values[::2], values[1::2], strict=True))
            case "tuple" | "list" | "set" | "frozenset":
                of = {"tuple": tuple, "list": list, "set": set, "frozenset": frozenset}[what]
                return of(map(self.value, rest))
            case _:
                raise BadMemoryError(f"{what!r} is not a kind of value")


def _class(name: str, table: Table) -> Any:
    found = table.class_of(name)
    if found is None:
        raise BadMemoryError(f"there is no {name} in this version")
    return found


def _kind_of(name: str, base: type, table: Table) -> Any:
    of = _class(name, table)
    if not issubclass(of, base):
        raise BadMemoryError(f"{name} is no {base.__name__}")
    return of
