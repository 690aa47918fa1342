from collections.abc import Callable
from typing import Any

import pytest

from mooring.core.model.cluster import Node, Owner, Pod, PodShape, ReplicaSet, Workload
from mooring.core.model.events import Seen
from mooring.core.model.kinds import Kind
from mooring.core.world.world import World


class Rows:
    """Short ways to rows of the model; every one has a fresh resourceVersion."""

    def __init__(self) -> None:
        self.version = 100

    def next_version(self) -> str:
        self.version += 1
        return str(self.version)

    def pod(self, name: str, uid: str = "", *, owner: Owner | None = None, cpu: int = 0, **fields: Any) -> Pod:
        shape = fields.pop("shape", None) or PodShape(labels=fields.pop("labels", {}), cpu_milli=cpu)
        return Pod("a", name, uid or f"{name}-uid", self.next_version(), shape, owner=owner, **fields)

    def node(self, name: str, uid: str = "", **fields: Any) -> Node:
        return Node(name, uid or f"{name}-uid", self.next_version(), **fields)

    def workload(self, kind: Kind, name: str, uid: str = "", **fields: Any) -> Workload:
        return Workload(kind.value, "a", name, uid or f"{name}-uid", self.next_version(), **fields)

    def replica_set(self, name: str, uid: str = "", *, owner: Owner | None = None, **fields: Any) -> ReplicaSet:
        return ReplicaSet("a", name, uid or f"{name}-uid", self.next_version(), owner=owner, **fields)


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def see(world: World) -> Callable[..., None]:
    """Let the world see rows of one kind, and check it after each."""

    def let_see(kind: Kind, *objects: Any) -> None:
        for obj in objects:
            world.apply(Seen(kind, obj))
            assert world.check() == []

    return let_see
