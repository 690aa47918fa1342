"""What remembers values between inputs, and how many bytes it holds: bounded whatever the senders choose."""

import functools
import gc
import sys
import types
from collections.abc import Iterable

from mooring.core.model.limits import MIB, SharedValues

#: A table of shared values says its own bound, for each of its two generations; each other one has this at most.
MOST_BYTES = 16 * MIB
_CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, property)
_CACHE = type(functools.lru_cache(lambda: None))


def bytes_of(*held: object) -> int:
    """Of everything that is reached from there, without code; what two of them share is counted once."""
    seen: set[int] = set()
    size, parts = 0, list(held)
    while parts:
        one = parts.pop()
        if id(one) in seen or isinstance(one, _CODE):
            continue
        seen.add(id(one))
        size += sys.getsizeof(one)
        parts += gc.get_referents(one)
    return size


def tables() -> dict[str, tuple[int, int]]:
    """Every table of ours: bytes that it holds now, and its bound."""
    found: dict[str, tuple[int, int]] = {}
    for module, name, value in _named():
        if isinstance(value, SharedValues):
            bound = 2 * value._most_bytes
        elif isinstance(value, _CACHE):
            bound = MOST_BYTES
        else:
            continue
        found[f"{module}.{name}"] = (bytes_of(*_contents(value)), bound)
    return found


def too_large() -> list[str]:
    return [f"{name} holds {held} of {bound} bytes" for name, (held, bound) in tables().items() if held > bound]


def _contents(table: object) -> Iterable[object]:
    """Of a cache: the dict of its entries, without the function and its globals."""
    if isinstance(table, SharedValues):
        return (table,)
    return [one for one in gc.get_referents(table) if isinstance(one, dict) and one is not vars(table)]


def _named() -> Iterable[tuple[str, str, object]]:
    for module in [m for key, m in sys.modules.items() if key.startswith("mooring.")]:
        for name, value in vars(module).items():
            if getattr(value, "__module__", module.__name__) == module.__name__ or isinstance(value, SharedValues):
                yield module.__name__, name, value
