"""JSON Patch (RFC 6902) by hand. An `add` on a parent that exists would replace it: parents are made only if absent."""

from collections.abc import Mapping
from typing import Any

#: One operation: op, path, value.
Operation = dict[str, Any]


def pointer(*keys: str | int) -> str:
    """`/metadata/labels/vacant.io~1slot`: `~` and `/` inside a key are escaped."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


def add(path: str, value: Any) -> Operation:
    return {"op": "add", "path": path, "value": value}


def remove(path: str) -> Operation:
    return {"op": "remove", "path": path}


def entries(
    parent: str, have: Mapping[str, str] | None, want: Mapping[str, str], unwanted: tuple[str, ...] = ()
) -> list[Operation]:
    """Make the map at `parent` say `want` and none of `unwanted`, and leave everything else in it as it is."""
    if have is None:
        return [add(parent, dict(want))] if want else []
    operations = [add(parent + pointer(key), value) for key, value in want.items() if have.get(key) != value]
    operations += [remove(parent + pointer(key)) for key in unwanted if key in have and key not in want]
    return operations


def append(parent: str, have: list[Any] | None, values: list[Any]) -> list[Operation]:
    """Append to the list at `parent`, which is made if there is none."""
    if not values:
        return []
    if have is None:
        return [add(parent, values)]
    return [add(f"{parent}/-", value) for value in values]
