"""Soft state as values: what a checkpoint keeps of the engine besides the rows of the world, and how it comes back.

`MemorySnapshot(roots)` holds the state of this moment: containers and mutable objects are copied, values are shared.
It is copied in `steps`, each of them short, and nothing may change until the last is done; turning it into bytes
(`records`) may then take any time. `remembering.read` makes the same objects again, with the same ones shared. What an
object keeps are its attributes, or what its `kept()` says; then its `restore(kept)` takes them back. One that says
`as_value()` is kept as that. `anchors` are parts that are there already on both sides and are only referred to.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import cache
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, Final

import msgspec

from mooring.core.engine.recording.table import ENGINE_TABLE, Table

#: Values in one record, at most, and copied in one step.
PART: Final = 125
STEP: Final = 100
#: So many bytes of a struct count as one value more.
VALUE_BYTES: Final = 32
_ATOMS: Final = frozenset({type(None), bool, int, float, str, bytes})
CONTAINERS: Final[Mapping[str, type]] = {
    "dict": dict, "OrderedDict": OrderedDict, "list": list, "set": set, "deque": deque
}  # fmt: skip


class NotNowError(Exception):
    """Something is half done that cannot be kept (a list is being taken in): try again after the next turn."""


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
    if isinstance(info, msgspec.inspect.StructType) and info.cls.__subclasses__():
        return True  # a field of this type may hold one of those
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
    def __init__(
        self,
        roots: Mapping[str, object],
        anchors: Mapping[str, object],
        first: Iterable[object] = (),
        table: Table = ENGINE_TABLE,
    ) -> None:
        """`first` of all these are copied, with what they hold: others may change them while the rest is copied."""
        self._table = table
        self._anchors = {id(value): name for name, value in anchors.items()}
        self._held: list[object] = [roots, anchors]
        self._of: dict[int, _Node] = {}
        self._to_copy: deque[tuple[_Node, Any]] = deque()
        self.nodes: list[_Node] = []
        self.first_is_copied = False
        self.steps = self._copy_all(dict(roots), first)

    def _copy_all(self, roots: dict[str, object], first: Iterable[object]) -> Iterator[None]:
        self._take(roots)
        of_roots = self._to_copy.popleft()
        for value in first:
            self._take(value)
        yield from self._copy()
        self.first_is_copied = True
        self._to_copy.append(of_roots)
        yield from self._copy()

    def _copy(self) -> Iterator[None]:
        while self._to_copy:
            node, value = self._to_copy.popleft()
            if isinstance(value, list | set | deque):
                node.items, rest = [], iter(value)
                while some := list(islice(rest, STEP)):
                    node.items += some if _all_values(some) else map(self._take, some)
                    yield
                continue
            node.items, rest = {}, iter(self._parts_of(value).items())
            while pairs := dict(islice(rest, STEP)):
                known = _all_values(pairs.values())
                node.items.update(pairs if known else {key: self._take(one) for key, one in pairs.items()})
                yield

    def _parts_of(self, value: Any) -> Mapping[Any, Any]:
        if hasattr(value, "kept"):
            self._held.append(kept := value.kept())  # so that its parts keep their identity
            return kept  # type: ignore[no-any-return]
        return value if isinstance(value, dict) else _attributes(value)

    def _take(self, value: Any) -> Any:
        """The value itself where it cannot change, else its node: what is in it is copied in a later step."""
        of: type = type(value)
        if _is_value(of) or id(value) in self._anchors:
            return value
        if hasattr(of, "as_value"):
            self._held.append(value := value.as_value())
            return self._take(value)
        known = self._of.get(id(value))
        if known is None:
            known = self._of[id(value)] = _Node(len(self.nodes), _name(of, self._table), getattr(value, "maxlen", None))
            self.nodes.append(known)
            self._to_copy.append((known, value))
        return known

    def _whole(self) -> list[_Node]:
        for _ in self.steps:
            pass
        return self.nodes

    def records(self) -> Iterator[bytes]:
        """Some nodes, or a part of one: about `PART` values each, those inside of others counted."""
        plain, parts = _Writer(self._anchors, self._table), list[tuple[int, str, int | None, list[Any]]]()
        for node in self._whole():
            parts.append((node.number, node.name, node.maxlen, []))
            for value in _flat(node):
                if plain.count >= PART:
                    yield _encoder.encode(parts)
                    parts, plain.count = [(node.number, node.name, node.maxlen, [])], 0
                parts[-1][-1].append(plain.value(value))
        yield _encoder.encode(parts)

    def shapes(self) -> dict[str, frozenset[str]]:
        """The attributes of each class of objects."""
        return {
            n.name: frozenset(n.items) for n in self._whole() if n.name not in CONTAINERS and isinstance(n.items, dict)
        }


def _flat(node: _Node) -> Iterator[Any]:
    if isinstance(node.items, dict):
        return chain.from_iterable(node.items.items())
    return iter(sorted(node.items, key=repr) if node.name == "set" else node.items)


def _all_values(values: Iterable[object]) -> bool:
    return all(map(_is_value, set(map(type, values))))


def _name(of: type, table: Table) -> str:
    if CONTAINERS.get(of.__name__) is of:
        return of.__name__
    try:
        return table.name_of(of)
    except KeyError:
        raise TypeError(f"a {of.__qualname__} cannot be kept: no capability says that it remembers one") from None


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

    def __init__(self, anchors: Mapping[int, str], table: Table) -> None:
        self._anchors, self._table = anchors, table
        self._written: dict[int, int] = {}
        self._looked_at: set[type] = set()
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
            return ["enum", _name(of, self._table), value.value]
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
                if of not in self._looked_at:
                    self._looked_at.add(of)
                    self.count += PART  # looking at a class for the first time takes longer than a hundred values
                if _is_closed(of):
                    self.count += len(encoded := _encoder.encode(value)) // VALUE_BYTES
                    return ["read", _name(of, self._table), encoded]
                return [
                    "made",
                    _name(of, self._table),
                    *(self.value(getattr(value, name)) for name in of.__struct_fields__),
                ]
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
