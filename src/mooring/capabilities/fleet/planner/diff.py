"""What differs between the current cluster and the planned one, field by field."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from mooring.capabilities.fleet.planner.current import Current


class ClusterDifference(msgspec.Struct, frozen=True):
    """One field. `before` None: new; `after` None: gone."""

    path: str
    before: Any
    after: Any

    def line(self) -> str:
        sign = "+" if self.before is None else "-" if self.after is None else "~"
        if sign == "~":
            return f"~ {self.path}: {_text(self.before)} → {_text(self.after)}"
        return f"{sign} {self.path}: {_text(self.before if self.after is None else self.after)}"


def differences(current: Current | None, planned: Mapping[str, Any]) -> list[ClusterDifference]:
    """Nodes are told apart by address, so moving one in the file is no difference."""
    before = dict(current.document) if current is not None and current.document is not None else {}
    return list(_compare(_by_address(before), _by_address(planned), ""))


def _by_address(document: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: {str(n.get("address")): n for n in value} if key == "nodes" and isinstance(value, list) else value
        for key, value in document.items()
    }


def _compare(before: Any, after: Any, path: str) -> Iterator[ClusterDifference]:
    if (before or None) == (after or None) and not isinstance(before or after, bool | int):
        return  # null, {} and [] say the same
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [*before, *(k for k in after if k not in before)]:
            yield from _compare(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
    elif before != after:
        yield ClusterDifference(path, before, after)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
