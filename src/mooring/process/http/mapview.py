"""The map: every node as a small row, kept per change, so that a frame costs what has changed and not the cluster.

A row is an array, since there may be 5,000 of them: rack, class, state, words, until, fullness in percent, one letter
a pod, the names of the pods where there are few enough to read, and the stores on the node.
"""

import asyncio
from collections import Counter
from typing import Final

import msgspec

from mooring.capabilities.mix.labels import AFFINITY
from mooring.core.engine.why.condition import Departures, rack_of
from mooring.core.model.cluster import Key, Node, Pod
from mooring.core.model.events import Change, Trigger
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING
from mooring.core.model.tidb import COMPONENT
from mooring.core.world.read import WorldRead
from mooring.core.world.world import World
from mooring.process.http import pagerows as rows

#: What a pod is: each has a colour and a letter of its own.
CLASSES: Final = ("other", "on-demand", "spot", "tikv", "tidb", "pd", "daemon")
#: How it stands: each has an outline of its own.
READY, STARTING, MOVING, ENDING = range(4)
#: The first letter; class and state are added to it.
FIRST: Final = 48
#: In clusters of up to this many pods each is drawn with its name.
NAMED: Final = 1500
MOST_CELLS: Final = 120
NODES_PER_SLICE: Final = 100


class MapRow(msgspec.Struct, frozen=True, array_like=True):
    rack: str
    cls: str
    #: ok, reserved, cordoned, leaving, interrupted or silent.
    state: str
    words: str
    until: float | None
    #: CPU requested, of what the node has, in percent; -1: not known.
    full: int
    #: One letter a pod: `FIRST` + 4 × class + state.
    cells: str
    #: Names in the order of the letters; empty in large clusters.
    names: tuple[str, ...] = ()
    #: (store, pod, leaders, state) of the stores here.
    stores: tuple[tuple[str, str, int, str], ...] = ()


def leaving(row: MapRow) -> int:
    """The pods there that must go before the node does: a DaemonSet's stay."""
    return sum((ord(cell) - FIRST) // 4 != CLASSES.index("daemon") for cell in row.cells)


class MapIndex:
    """Which nodes have changed since when, and which pods have no node yet."""

    observes: frozenset[object] = frozenset({Kind.NODE, Kind.POD})

    def __init__(self) -> None:
        self.version = 0
        #: Node → the version at which it last changed, the newest last.
        self._changed: dict[str, int] = {}
        self.unplaced: set[str] = set()
        self.pods = 0

    def observe(self, trigger: Trigger, world: WorldRead) -> None:
        if not isinstance(trigger, Change):
            return
        self.version += 1
        old, new = trigger.old, trigger.new
        if trigger.kind is Kind.NODE:
            self._touch(trigger.key.name)
            return
        if isinstance(old, Pod):
            self.pods -= 1
            self.unplaced.discard(old.uid)
            if old.node:
                self._touch(old.node)
        if isinstance(new, Pod):
            self.pods += 1
            if new.node:
                self._touch(new.node)
            elif new.active:
                self.unplaced.add(new.uid)

    def advance(self) -> bool:
        return False

    def _touch(self, node: str) -> None:
        self._changed.pop(node, None)
        self._changed[node] = self.version

    def since(self, version: int) -> list[str]:
        found = []
        for node in reversed(self._changed):
            if self._changed[node] <= version:
                break
            found.append(node)
        return found


def index_of(world: World) -> MapIndex:
    """The world's own; one for all who look."""
    try:
        return world.index(MapIndex)
    except KeyError:
        world.register(MapIndex())
        return world.index(MapIndex)


class MapRows:
    """The rows of one world, brought up to date at each tick."""

    def __init__(self, world: World, departures: Departures = lambda _: ()) -> None:
        self.world = world
        self._departures = departures
        self._index = index_of(world)
        self._seen = -1
        self._moving: frozenset[tuple[str, str]] = frozenset()
        self._stores: dict[str, tuple[tuple[str, str, int, str], ...]] = {}
        self._named = True
        self._order: list[str] = []
        self.rows: dict[str, MapRow] = {}

    @property
    def unplaced(self) -> int:
        return len(self._index.unplaced)

    async def refresh(self, moving: dict[str, str]) -> dict[str, MapRow]:
        """A new dict where anything changed, else the same one."""
        world, seen = self.world, self._index.version
        dirty = set(self._index.since(self._seen))
        self._seen = seen
        dirty |= self._moved(moving) | self._stores_changed()
        if (named := self._index.pods <= NAMED) is not self._named:
            self._named = named
            dirty = set(self.rows) | dirty
        if not dirty:
            return self.rows
        made = dict(self.rows)
        structure = False
        for number, name in enumerate(sorted(dirty), 1):
            node = world.node(name)
            before = made.get(name)
            if node is None:
                structure |= made.pop(name, None) is not None
                continue
            row = self._row(node, moving)
            structure |= before is None or before.rack != row.rack or before.cls != row.cls
            made[name] = row
            if number % NODES_PER_SLICE == 0:
                await asyncio.sleep(0)
        if structure:
            # On-demand before spot, n2 before n10: the order in which a rack shows them.
            made = dict(sorted(made.items(), key=lambda i: (rows.by_number(i[1].rack), i[1].cls, rows.by_number(i[0]))))
        self.rows = made
        return made

    def _moved(self, moving: dict[str, str]) -> set[str]:
        pairs = frozenset(moving.items())
        changed, self._moving = pairs ^ self._moving, pairs
        found = {pod.node for name, _ in changed if (pod := _pod_named(self.world, name)) is not None}
        return found - {""}

    def _stores_changed(self) -> set[str]:
        world, found = self.world, dict[str, list[tuple[str, str, int, str]]]()
        for tc in world.tidb_clusters():
            view = world.pd(tc.key)
            if view is None:
                continue
            nodes = {pod.name: pod.node for pod in world.tidb_pods(tc.key, "tikv")}
            for store in view.stores:
                node = nodes.get(store.pod_name, "")
                if node and store.state != "Tombstone":
                    evicting = view.evicting is not None and store.id in view.evicting
                    state = store.state if store.state != "Up" else "evicting" if evicting else "Up"
                    found.setdefault(node, []).append(
                        (f"{tc.key}/{store.id}", store.pod_name, store.leader_count, state)
                    )
        stores = {node: tuple(sorted(some)) for node, some in found.items()}
        before, self._stores = self._stores, stores
        return {node for node in stores.keys() | before.keys() if stores.get(node) != before.get(node)}

    def _row(self, node: Node, moving: dict[str, str]) -> MapRow:
        world = self.world
        state, said, _, until = rows.news_of(node, self._departures)
        pods = sorted(
            (p for p in world.pods_on(node.name) if not p.terminal), key=lambda p: (_class(p), p.namespace, p.name)
        )
        used = world.usage(node.name).cpu_milli
        return MapRow(
            rack=rack_of(node) or "–",
            cls=str(world.node_class(node.name)),
            state=state,
            words=said,
            until=until,
            full=min(100, round(100 * used / node.cpu_milli)) if node.cpu_milli else -1,
            cells="".join(chr(FIRST + 4 * _class(p) + _state(p, moving)) for p in pods[:MOST_CELLS]),
            names=tuple(f"{p.namespace}/{p.name}" for p in pods[:MOST_CELLS]) if self._named else (),
            stores=self._stores.get(node.name, ()),
        )

    def sums(self) -> dict[str, int]:
        """Nodes by state, for the line beside the name of the view."""
        return dict(Counter(row.state for row in self.rows.values()))


def _class(pod: Pod) -> int:
    component = pod.shape.labels.get(COMPONENT, "")
    if component in {"tikv", "tidb", "pd"}:
        return CLASSES.index(component)
    given = pod.shape.labels.get(AFFINITY, "")
    if given in {"on-demand", "spot"}:
        return CLASSES.index(given)
    return CLASSES.index("daemon") if pod.owner is not None and pod.owner.kind == "DaemonSet" else 0


def _state(pod: Pod, moving: dict[str, str]) -> int:
    if pod.deletion_at is not None:
        return ENDING
    if LEAVING in pod.annotations or f"{pod.namespace}/{pod.name}" in moving:
        return MOVING
    return READY if pod.ready else STARTING


def _pod_named(world: WorldRead, name: str) -> Pod | None:
    namespace, _, rest = name.partition("/")
    return world.pod(Key(namespace, rest))
