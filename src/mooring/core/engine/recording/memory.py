"""Soft state as values: what a checkpoint keeps of the engine besides the rows of the world, and how it comes back.

`MemorySnapshot(roots)` holds the state of this moment: containers and mutable objects are copied, frozen values are
shared. It is quick; turning it into bytes (`records`) may then take any time. `read(records)` makes the same
objects again, with the same ones shared. What an object keeps are its attributes, or what its `kept()` says; then its
`restore(kept)` takes them back. `anchors` are parts that are there already on both sides and are only referred to.

A recording is untrusted input: only classes of `mooring.core` and `mooring.capabilities` are instantiated, and only
structs and enums by calling them.
"""

import sys
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import cache
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

import msgspec

#: Values in one record, at most.
PART: Final = 500
_ATOMS: Final = frozenset({type(None), bool, int, float, str, bytes})
_OURS: Final = ("mooring.core.", "mooring.capabilities.")
_CONTAINERS: Final[Mapping[str, type]] = {
    "dict": dict, "OrderedDict": OrderedDict, "list": list, "set": set, "deque": deque
}  # fmt: skip


class NotNowError(Exception):
    """Something is half done that cannot be kept (a list is being taken in): try again after the next turn."""


class BadMemoryError(ValueError):
    """Not what this version keeps; in words."""


def name_of(of: type) -> str:
    return f"{of.__module__}:{of.__qualname__}"


@cache
def _is_value(of: type) -> bool:
    """Never changed once it is made."""
    if of in _ATOMS or issubclass(of, Enum | tuple | frozenset | MappingProxyType):
        return True
    return issubclass(of, msgspec.Struct) and of.__struct_config__.frozen


@cache
def _is_closed(of: type[msgspec.Struct]) -> bool:
    """Whether the fields of a struct say all about what they hold; else it goes field by field."""
    try:
        return not any(_is_open(info) for info in _types(msgspec.inspect.type_info(of), set()))
    except TypeError:  # several structs where a field may hold any of them
        return False


@cache
def _decoder(of: type[msgspec.Struct]) -> "msgspec.msgpack.Decoder[Any]":
    return msgspec.msgpack.Decoder(of)


def _types(info: Any, seen: set[type]) -> Iterator[Any]:
    """A type and everything inside it."""
    if isinstance(info, msgspec.inspect.StructType):
        if info.cls in seen:
            return
        seen.add(info.cls)
    yield info
    for inner in ("fields", "types", "item_types"):
        for one in getattr(info, inner, ()):
            yield from _types(one.type if isinstance(one, msgspec.inspect.Field) else one, seen)
    for inner in ("item_type", "key_type", "value_type"):
        if (one := getattr(info, inner, None)) is not None:
            yield from _types(one, seen)


def _is_open(info: Any) -> bool:
    return isinstance(info, msgspec.inspect.AnyType | msgspec.inspect.CustomType | msgspec.inspect.DataclassType)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be kept")


_encoder: Final = msgspec.msgpack.Encoder(enc_hook=_plain)


class _Node:
    """A container or an object as it was, and its number."""

    __slots__ = ("items", "maxlen", "name", "number")

    def __init__(self, number: int, name: str, maxlen: int | None = None) -> None:
        self.number, self.name, self.maxlen = number, name, maxlen
        #: Pairs of a dict, attributes of an object, members of a list.
        self.items: Any = ()


class MemorySnapshot:
    def __init__(self, roots: Mapping[str, object], anchors: Mapping[str, object]) -> None:
        self._anchors = {id(value): name for name, value in anchors.items()}
        self._held: list[object] = [roots, anchors]
        self._of: dict[int, _Node] = {}
        self.nodes: list[_Node] = []
        self._take(dict(roots))

    def _take(self, value: Any) -> Any:
        """The value itself where it cannot change, else its node."""
        of: type = type(value)
        if _is_value(of) or id(value) in self._anchors:
            return value
        known = self._of.get(id(value))
        if known is not None:
            return known
        node = self._of[id(value)] = _Node(len(self.nodes), _name(of), getattr(value, "maxlen", None))
        self.nodes.append(node)
        if hasattr(of, "kept"):
            kept = value.kept()
            self._held.append(kept)  # so that its parts keep their identity
            node.items = self._pairs(kept)
        elif isinstance(value, dict):
            node.items = self._pairs(value)
        elif isinstance(value, list | set | deque):
            node.items = list(value) if _all_values(value) else [self._take(one) for one in value]
        else:
            node.items = self._pairs(_attributes(value))
        return node

    def _pairs(self, of: Mapping[Any, Any]) -> dict[Any, Any]:
        return dict(of) if _all_values(of.values()) else {key: self._take(value) for key, value in of.items()}

    def records(self) -> Iterator[bytes]:
        """Some nodes, or a part of one: about `PART` values each, those inside of others counted."""
        plain, parts = _Writer(self._anchors), list[tuple[int, str, int | None, list[Any]]]()
        for node in self.nodes:
            parts.append((node.number, node.name, node.maxlen, []))
            for value in _flat(node):
                if plain.count >= PART:
                    yield _encoder.encode(parts)
                    parts, plain.count = [(node.number, node.name, node.maxlen, [])], 0
                parts[-1][-1].append(plain.value(value))
        yield _encoder.encode(parts)

    def shapes(self) -> dict[str, frozenset[str]]:
        """The attributes of each class of objects."""
        return {n.name: frozenset(n.items) for n in self.nodes if ":" in n.name and isinstance(n.items, dict)}


def _flat(node: _Node) -> Iterator[Any]:
    if isinstance(node.items, dict):
        return chain.from_iterable(node.items.items())
    return iter(sorted(node.items, key=repr) if node.name == "set" else node.items)


def _all_values(values: Iterable[object]) -> bool:
    return all(map(_is_value, set(map(type, values))))


def _name(of: type) -> str:
    if _CONTAINERS.get(of.__name__) is of:
        return of.__name__
    if not of.__module__.startswith(_OURS):
        raise NotNowError(f"a {of.__qualname__} cannot be kept")
    return name_of(of)


def _attributes(value: Any) -> dict[str, Any]:
    slots = {name: getattr(value, name) for name in _slots(value.__class__)}
    return {**slots, **vars(value)} if hasattr(value, "__dict__") else slots


@cache
def _slots(of: type) -> tuple[str, ...]:
    if issubclass(of, msgspec.Struct):
        return of.__struct_fields__
    return tuple(name for base in of.__mro__ for name in base.__dict__.get("__slots__", ()))


class _Writer:
    """Values as msgpack can say them: an array is always one of ours, and its first item says what it stands for. What
    was written before is named by its number, so that what was one object is one again."""

    def __init__(self, anchors: Mapping[int, str]) -> None:
        self._anchors = anchors
        self._written: dict[int, int] = {}
        #: Values written so far; set back by the code that counts.
        self.count = 0

    def value(self, value: Any) -> Any:
        self.count += 1
        of = type(value)
        if of in _ATOMS:
            return value
        if isinstance(value, _Node):
            return ["node", value.number]
        if isinstance(value, Enum):
            return ["enum", name_of(of), value.value]
        number = self._written.get(id(value))
        if number is not None:
            return ["again", number]
        anchor = self._anchors.get(id(value))
        if anchor is not None:
            return ["anchor", anchor]
        plain = self._new(of, value)
        self._written[id(value)] = len(self._written)
        return plain

    def _new(self, of: Any, value: Any) -> list[Any]:
        match value:
            case msgspec.Struct():
                if _is_closed(of):
                    return ["read", name_of(of), _encoder.encode(value)]
                return ["made", name_of(of), *(self.value(getattr(value, name)) for name in of.__struct_fields__)]
            case tuple() if of is tuple:
                return ["tuple", *map(self.value, value)]
            case list():
                return ["list", *map(self.value, value)]
            case set() | frozenset():
                return ["set" if of is set else "frozenset", *map(self.value, sorted(value, key=repr))]
            case Mapping():
                return ["dict", *(self.value(one) for pair in value.items() for one in pair)]
            case _:
                raise TypeError(f"a {of.__qualname__} cannot be kept")


# ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def _class(name: str) -> type:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module) if module.startswith(_OURS) else None
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
    if name in _CONTAINERS:
        return _CONTAINERS[name]()
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
