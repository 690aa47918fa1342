"""What a checkpoint keeps of the world: its rows, as they are, and the little that does not follow from them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mooring.core.model.cluster import Pod
from mooring.core.model.events import Change, Object
from mooring.core.model.kinds import Kind
from mooring.core.world.world import World


def rows_of(world: World) -> dict[Kind, Iterable[Object]]:
    """The rows of this moment, to be read once."""
    return {kind: table.freeze() for kind, table in world._rows.by_kind.items()}  # noqa: SLF001


def pod_by_uid(world: World) -> Callable[[str], Pod | None]:
    return world._rows.pods.by_uid  # noqa: SLF001


def kept_of(world: World) -> dict[str, Any]:
    tables = {kind: table.kept() for kind, table in world._rows.by_kind.items()}  # noqa: SLF001
    indexes = {of.__name__: i.kept() for of, i in world.indexes.by_class.items() if hasattr(i, "kept")}
    return {"tables": tables, "outside": vars(world._outside), "indexes": indexes}  # noqa: SLF001


def restore(world: World, rows: Mapping[Kind, Iterable[Object]], kept: Mapping[str, Any]) -> None:
    """Into a world that has seen nothing."""
    for kind, table in world._rows.by_kind.items():  # noqa: SLF001
        for row in rows.get(kind, ()):
            table.put(None, row)
            world._index(kind, None, row)  # noqa: SLF001
        if kind in kept["tables"]:  # recorded before this kind was read
            table.restore(kept["tables"][kind])
    vars(world._outside).update(kept["outside"])  # noqa: SLF001
    for of, index in world.indexes.by_class.items():
        for kind, table in world._rows.by_kind.items():  # noqa: SLF001
            for row in table if kind in index.observes else ():
                world.indexes.observe(index, Change(kind, row.key, None, row), world)
        if hasattr(index, "restore"):
            index.restore(kept["indexes"][of.__name__])
