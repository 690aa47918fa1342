"""Where an event happens, to what, and with which numbers.

    apply(on, target, draw) -> words        "" when there was nothing to do it to

An event finds what it hits when it happens, from what is there: by name where a target is given (a rehearsal, the
demo), else by the first number of the draw (the simulation). So an event that is left out of a plan changes nothing
about the others. Those it concerns may be told: who judges what Mooring does must know what Mooring cannot.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.process.replica import Replica
from mooring_lab.cluster.controllers.podstate import annotations_of
from mooring_lab.stage.rig import Rig

T = TypeVar("T")
#: The namespaces of the clusters that are built here.
SHOP: Final = "shop"
TIDB: Final = "tidb"
#: Names: "n1", "M004", "tidb/demo", "tidb/demo-tikv-0", "Deployment/shop/web"; none: drawn.
Target = tuple[str, ...]


class Draw(NamedTuple):
    """Two numbers in [0, 1); and how long it lasts or how long before it was told, where a plan says so."""

    a: float = 0.0
    b: float = 0.0
    seconds: float | None = None


class ManualEdits(msgspec.Struct):
    """What people did that only people undo."""

    cordoned: set[str] = msgspec.field(default_factory=set)
    #: (cluster, store) whose evict-leader scheduler is a person's.
    evicts: set[tuple[str, int]] = msgspec.field(default_factory=set)
    #: Clusters whose marks or schedulers a person has tampered with: what is left in PD is theirs to remove.
    tampered: set[str] = msgspec.field(default_factory=set)
    #: Pods whose mark a person took away: one that was detached is theirs to delete.
    unmarked: set[str] = msgspec.field(default_factory=set)
    tainted: set[str] = msgspec.field(default_factory=set)
    #: When something that Mooring relies on was last deleted or changed.
    at: float = -1e9


class Excuses(msgspec.Struct):
    """What Mooring cannot know, or cannot help, because of an event: the judge asks before it finds fault."""

    #: How old what Mooring sees may be.
    lag_s: float = 0.0
    #: Until then the API server is dead or slow.
    blind_until: float = -math.inf
    #: Replica → when it was woken up.
    resumed: dict[str, float] = msgspec.field(default_factory=dict)
    #: When another replica may last have taken over.
    leader_changed: float = -math.inf
    #: Node → when its notice was taken back.
    withdrawn: dict[str, float] = msgspec.field(default_factory=dict)


class EventContext:
    """A stage, and what becomes of it by events. The simulation is one; a rehearsal and the demo make one."""

    #: Replicas of Mooring that its Deployment wants, and the features that may be switched on.
    replica_count = 1
    features: tuple[str, ...] = ()

    def __init__(self, stage: Rig) -> None:
        self.stage = stage
        self.edits = ManualEdits()
        self.excuses = Excuses()
        #: What to do once the replica that is to be killed at a write is dead.
        self.on_death: Callable[[], object] | None = None
        self.began = 0.0
        self.over = False
        #: Calls to the API server that are under way.
        self.tasks: set[asyncio.Future[None]] = set()

    @property
    def now(self) -> float:
        """Seconds since it began."""
        return self.stage.clock.monotonic() - self.began

    def after(self, seconds: float, fn: Callable[[], object]) -> None:
        """Unless it is over by then."""

        def due() -> None:
            if not self.over:
                fn()

        self.stage.cluster.timeline.after(seconds, due)

    def hit(self, name: str, times: int = 1) -> None:
        """Something worth counting has happened."""

    def evicted(self, pod: Json, by: str) -> None:
        """An eviction by another client has just passed gate and budget."""

    def held(self, pod: Json, words: str) -> None:
        """An eviction by another client has just been refused, with these words."""

    def add_app(self, name: str, replicas: int, mode: str) -> None:
        """A Deployment of the shop, in this mode of mix."""

    def start_replica(self) -> Replica:
        return self.stage.start()

    def replicas(self) -> list[Replica]:
        return [one.replica for one in self.stage.replicas.values()]

    def engine(self) -> Any:
        leader = self.stage.leader()
        return leader.engine if leader is not None else None

    def switch(self, feature: str, *, on: bool) -> None:
        """In the configuration that every replica, now and later, follows."""
        features = {**self.stage.config.features, feature: on}
        self.stage.config = msgspec.structs.replace(self.stage.config, features=features)
        for replica in self.replicas():
            replica.apply(self.stage.config)

    def objects(self, kind: Kind, having: str = "", namespace: str | None = None) -> list[Json]:
        """By name; `having`: with this annotation."""
        found = self.stage.cluster.store.list(kind, namespace)
        return [obj for obj in found if not having or having in annotations_of(obj)]

    def pick(self, found: Sequence[T], target: Target, draw: Draw) -> T | None:
        """The first that is named, or the one that is drawn."""
        if target:
            return next((one for one in found if _names(one) & set(target)), None)
        return found[int(draw.a * len(found))] if found else None


Apply = Callable[[EventContext, Target, Draw], str]


def _names(one: Any) -> set[str]:
    """What it may be called by in a target."""
    if isinstance(one, dict):
        name, namespace = one["metadata"]["name"], one["metadata"].get("namespace", "")
        return {name, f"{namespace}/{name}", f"{one['kind']}/{namespace}/{name}"}
    if isinstance(one, tuple) and isinstance(one[0], tuple):
        return {"/".join(one[0])}
    return {"/".join(map(str, one)) if isinstance(one, tuple) else str(one)}
