"""Reading what `memory` wrote: the same objects again, with the same ones shared.

A recording is untrusted input: only classes of `mooring.core` and `mooring.capabilities` are instantiated, and only
structs and enums by calling them.
"""

import sys
from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from typing import Any

import msgspec

from mooring.core.engine.recording.memory import CONTAINERS, OURS


class BadMemoryError(ValueError):
    """Not what this version keeps; in words."""


@cache
def _decoder(of: type[msgspec.Struct]) -> "msgspec.msgpack.Decoder[Any]":
    return msgspec.msgpack.Decoder(of)


@cache
def _class(name: str) -> type:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module) if module.startswith(OURS) else None
    for part in path.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type):
        raise BadMemoryError(f"there is no {name} in this version")
    return found


def read(
    records: Iterable[bytes], anchors: Mapping[str, object], shapes: Mapping[str, frozenset[str]]
) -> dict[str, Any]:
    """The roots again. `shapes`: what this version keeps of its classes; another version's is refused in words."""
    parts = [part for record in records for part in msgspec.msgpack.decode(record)]
    reader = _Reader(anchors)
    contents: dict[int, tuple[Any, list[Any]]] = {}
    for number, name, maxlen, values in parts:
        if number not in contents:
            reader.nodes[number] = _empty(name, maxlen)
            contents[number] = (name, [])
        contents[number][1].extend(values)
    # In the order in which they were written: values refer back by number.
    filled = {number: [reader.value(one) for one in values] for number, (_, values) in contents.items()}
    for number, values in reversed(filled.items()):
        _fill(reader.nodes[number], contents[number][0], values, shapes)
    roots: dict[str, Any] = reader.nodes[0]
    return roots


def _empty(name: str, maxlen: int | None) -> Any:
    if name == "deque":
        return deque(maxlen=maxlen)
    if name in CONTAINERS:
        return CONTAINERS[name]()
    of = _class(name)
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
                setattr(node, attribute, value)


class _Reader:
    def __init__(self, anchors: Mapping[str, object]) -> None:
        self.nodes: dict[int, Any] = {}
        self._anchors = anchors
        self._read: list[Any] = []

    def value(self, plain: Any) -> Any:
        if not isinstance(plain, list):
            return plain
        what, *rest = plain
        match what:
            case "node":
                return self.nodes[rest[0]]
            case "enum":
                return _kind_of(rest[0], Enum)(rest[1])
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
                return _decoder(_kind_of(rest[0], msgspec.Struct)).decode(rest[1])
            case "made":
                struct = _kind_of(rest[0], msgspec.Struct)
                return struct(**dict(zip(struct.__struct_fields__, map(self.value, rest[1:]), strict=True)))
            case "dict":
                values = [self.value(one) for one in rest]
                return dict(zip(values[::2], values[1::2], strict=True))
            case "tuple" | "list" | "set" | "frozenset":
                of = {"tuple": tuple, "list": list, "set": set, "frozenset": frozenset}[what]
                return of(map(self.value, rest))
            case _:
                raise BadMemoryError(f"{what!r} is not a kind of value")


def _kind_of(name: str, base: type) -> Any:
    of = _class(name)
    if not issubclass(of, base):
        raise BadMemoryError(f"{name} is no {base.__name__}")
    return of
