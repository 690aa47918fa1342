"""Moves: what each operator took from where to where, told by the engine's history and kept, bounded, for the page.

A move is drawn on the map while it runs, and is one line of the timeline in words, which opens to its steps. Where it
went is read from the world: the pod that came back under its name, or the newest replica of its workload.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from mooring.capabilities.balance import foreign
from mooring.core.engine.engine import Engine
from mooring.core.engine.history import HistoryEntry
from mooring.core.model import subjects
from mooring.core.model.cluster import Key, Pod
from mooring.core.model.decision import OperatorRecord
from mooring.core.model.operator import Operator, Step, StepKind
from mooring.core.world.read import WorldRead
from mooring.process.http.movewords import MoveRow, words

#: Lines of the timeline that are kept, and steps of one of them.
MOST_MOVES: Final = 400
MOST_STEPS: Final = 16
#: Arrows drawn at a time; the rest are counted.
MOST_DRAWN: Final = 300
#: Region moves between the same two stores within this many seconds are one line.
TOGETHER_S: Final = 60.0
ENDS: Final = frozenset({"finished", "canceled", "failed", "timeout"})
REGION_STEPS: Final = frozenset({StepKind.ADD_PEER, StepKind.ADD_LEARNER, StepKind.TRANSFER_LEADER})


class Moves:
    """Follows one engine; a new engine (another replica leads) is followed without forgetting what was."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._all: OrderedDict[str, MoveRow] = OrderedDict()
        self._open: dict[str, MoveRow] = {}
        self._ended: list[MoveRow] = []
        #: Replicas that were named as a replacement already: uid → operator.
        self._taken: OrderedDict[str, str] = OrderedDict()
        #: The row of region moves that the next alike joins: (source, from, to) → id.
        self._alike: dict[tuple[str, str, str], str] = {}
        #: Lines that changed since they were last turned into rows.
        self._rows: dict[str, dict[str, Any]] = {}
        self._stale: set[str] = set()

    def follow(self, engine: Engine) -> None:
        if engine is not self._engine:
            self._engine = engine
            for entry in list(engine.history.timeline):
                self._hear(entry)
            engine.history.listeners.append(self._hear)

    def __len__(self) -> int:
        return len(self._all)

    # ── Listening ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _hear(self, entry: HistoryEntry) -> None:
        first = entry.subjects[0] if entry.subjects else ""
        engine = self._engine
        if engine is None or not first.startswith("operator/"):
            return
        number = first.removeprefix("operator/")
        move = self._open.get(number)
        if move is None:
            if entry.verb in ENDS or entry.verb == "wrote":
                return
            move = MoveRow(id=number, at=entry.at, source=entry.source, about=first, name=_name(entry))
            self._open[number] = move
            self._keep(move)
            if (waiting := engine.waiting.get(number)) is not None:
                describe(move, waiting, engine.world)
        if entry.verb == "queued":
            move.detail = entry.text
        move.steps = [*move.steps[-MOST_STEPS + 1 :], (entry.at, str(entry.verb), entry.text)]
        running = engine.running.get(number)
        if running is not None and move.promoted_at is None:
            self._begin(move, running, engine.world)
        if entry.verb == "step" and "AwaitReady" in entry.text and not _replaced_first(move):
            move.away_since = entry.at
        if entry.verb in ENDS:
            self._end(move, entry)
        elif move.promoted_at is not None:
            move.verb = "promoted"
        self._stale.add(move.id)

    def _keep(self, move: MoveRow) -> None:
        self._all[move.id] = move
        while len(self._all) > MOST_MOVES:
            # What has ended goes first; what is open stays as long as there is anything else.
            oldest = next((i for i, m in self._all.items() if not m.open), next(iter(self._all)))
            del self._all[oldest]
            self._rows.pop(oldest, None)
            self._stale.discard(oldest)

    def _begin(self, move: MoveRow, running: OperatorRecord, world: WorldRead) -> None:
        operator = running.operator
        move.promoted_at, move.detail = running.promoted_at, operator.detail or move.detail
        move.about = _about(operator)
        describe(move, operator, world)

    def _end(self, move: MoveRow, entry: HistoryEntry) -> None:
        move.verb, move.text, move.ended_at = str(entry.verb), entry.text, entry.at
        self._open.pop(move.id, None)
        if self._engine is not None and move.verb == "finished":
            self._find_target(move, self._engine)
        if move.what:
            self._ended.append(move)
        if move.what == "region":
            self._join(move)

    def _join(self, move: MoveRow) -> None:
        """One line for region moves between the same stores, not three hundred."""
        key = (move.source, *move.stores)
        row = self._all.get(self._alike.get(key, ""))
        if (
            row is None
            or row is move
            or row.ended_at is None
            or move.at - row.at > TOGETHER_S
            or move.id not in self._all
        ):
            self._alike[key] = move.id
            return
        row.count += 1
        row.ended_at = move.ended_at
        del self._all[move.id]
        self._rows.pop(move.id, None)
        self._stale.add(row.id)
        self._stale.discard(move.id)

    def _find_target(self, move: MoveRow, engine: Engine) -> None:
        if move.target or move.what != "pod":
            return
        world = engine.world
        pod = self._arrived(move, world)
        if pod is not None:
            move.target, move.target_class = pod.node, str(world.node_class(pod.node))
            move.came = f"{pod.namespace}/{pod.name}"
            self._stale.add(move.id)

    def _arrived(self, move: MoveRow, world: WorldRead) -> Pod | None:
        namespace, _, name = move.name.partition("/")
        workload = world.workload_by_uid(move.workload_uid) if move.workload_uid else None
        back = world.pod(Key(namespace, name))
        if workload is None:
            return back if back is not None and back.uid != move.uid and back.node else None
        begun = int(move.promoted_at or move.at)
        for pod in sorted(world.pods_of(workload), key=lambda p: (p.created_at, p.name)):
            if pod.created_at >= begun and pod.active and pod.node and self._taken.get(pod.uid, move.id) == move.id:
                self._taken[pod.uid] = move.id
                while len(self._taken) > MOST_MOVES:
                    self._taken.popitem(last=False)
                return pod
        return None

    # ── What the page gets ────────────────────────────────────────────────────────────────────────────────────────

    def drawn(self, engine: Engine) -> dict[str, Any]:
        """Moves under way and those that ended since the last call: op → where from, where to, what, how it stands."""
        ended, self._ended = self._ended[-MOST_DRAWN:], []
        found: dict[str, Any] = {}
        for move in [*self._open.values(), *ended][:MOST_DRAWN]:
            running = engine.running.get(move.id)
            if move.open and running is None:
                continue
            self._find_target(move, engine)
            if move.what and (move.origin or move.target):
                blocked = (
                    running is not None and running.waiting_on is not None and running.waiting_on.state == "blocked"
                )
                state = "done" if not move.open else "blocked" if blocked else "moving"
                found[move.id] = [move.what, move.name, move.origin, move.target, state, _progress(running), move.came]
        return {**dict(islice(pd_moves(engine.world, found), MOST_DRAWN - len(found))), **found}

    def rows(self) -> dict[str, Any]:
        """The timeline, newest first; rows that did not change are the very same objects."""
        for number in self._stale:
            move = self._all.get(number)
            if move is not None:
                self._rows[number] = {
                    "id": move.id,
                    "at": move.ended_at or move.promoted_at or move.at,
                    "op": move.id,
                    "source": move.source,
                    "state": move.verb,
                    "words": words(move),
                    "about": move.about,
                    "steps": move.steps,
                }
        self._stale.clear()
        newest = sorted(self._rows.values(), key=lambda r: (-r["at"], -int(r["id"]) if r["id"].isdigit() else 0))
        return {r["id"]: r for r in newest[:200]}


def _replaced_first(move: MoveRow) -> bool:
    """Its replacement was Ready before it went: no pod was away."""
    return move.what != "pod" or any("DeletePod" in text for _, _, text in move.steps)


def _name(entry: HistoryEntry) -> str:
    return entry.subjects[1].partition("/")[2] if len(entry.subjects) > 1 else entry.id


def _about(operator: Operator) -> str:
    if subjects.kind_of(operator.subject) in {"pod", "node", "machine", "store"}:
        return operator.subject
    return subjects.operator(operator.id)


def _progress(running: OperatorRecord | None) -> str:
    return running.progress if running is not None else ""


def describe(move: MoveRow, operator: Operator, world: WorldRead) -> None:
    """What moves, and from where, by the steps that the operator has."""
    kinds = {step.kind for step in operator.steps}
    move.name = operator.payload.pod or subjects.parse(operator.subject).rest
    if StepKind.EVICT_LEADERS in kinds:
        move.what, move.origin = "leaders", _node_of(move.name, world)
    elif StepKind.RESERVE_NODE in kinds:
        move.what, move.origin = "reserve", operator.payload.node
    elif StepKind.EMPTY_NODE in kinds:
        move.what, move.name, move.origin = "node", operator.payload.serial or move.name, operator.payload.node
    elif StepKind.DELETE_POD in kinds:
        move.what, move.origin = "pod", operator.payload.node or _node_of(move.name, world)
        workload_uid = operator.payload.workload_uid
        if not workload_uid and (pod := _pod(move.name, world)) is not None:
            workload = world.workload_of(pod)
            workload_uid = workload.uid if workload is not None and workload.kind == "Deployment" else ""
        move.workload_uid, move.uid = workload_uid, operator.payload.uid
    elif kinds & REGION_STEPS:
        _describe_region(move, operator, world)
    if move.origin:
        move.origin_class = str(world.node_class(move.origin))


def _describe_region(move: MoveRow, operator: Operator, world: WorldRead) -> None:
    left, came = _ends(operator.steps)
    cluster = Key(*move.name.split("/")[:2]) if move.name.count("/") == 2 else None
    nodes = _store_nodes(cluster, world) if cluster is not None else {}
    move.what, move.stores = "region", (str(left or ""), str(came or ""))
    move.origin, move.target = nodes.get(left or 0, ""), nodes.get(came or 0, "")


def _ends(steps: Iterable[Step]) -> tuple[int | None, int | None]:
    """The store that a region, or its leader, leaves, and the one it comes to."""
    left = came = None
    for step in steps:
        if step.kind in {StepKind.ADD_PEER, StepKind.ADD_LEARNER}:
            came = step.store
        elif step.kind is StepKind.REMOVE_PEER:
            left = step.store
        elif step.kind is StepKind.TRANSFER_LEADER and came is None:
            left, came = step.from_store, step.to_store
    return left, came


def pd_moves(world: WorldRead, ours: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Regions that PD moves by itself, as it listed them last; `ours` are drawn already."""
    drawn = {row[1] for row in ours.values()}
    for tc in world.tidb_clusters():
        view, nodes = world.pd(tc.key), None
        for operator in view.operators if view is not None else ():
            name = f"{tc.key}/{operator.region_id}"
            if name in drawn or operator.status != "RUNNING":
                continue
            nodes = _store_nodes(tc.key, world) if nodes is None else nodes
            left, came = _ends(foreign.steps_of(operator))
            origin, target = nodes.get(left or 0, ""), nodes.get(came or 0, "")
            if origin and target:
                yield f"pd {name}", ["region", name, origin, target, "moving", "PD's own", ""]


def _store_nodes(cluster: Key, world: WorldRead) -> Mapping[int, str]:
    view = world.pd(cluster)
    pods = {pod.name: pod.node for pod in world.tidb_pods(cluster, "tikv")}
    return {store.id: pods.get(store.pod_name, "") for store in (view.stores if view is not None else ())}


def _pod(name: str, world: WorldRead) -> Pod | None:
    namespace, _, rest = name.partition("/")
    return world.pod(Key(namespace, rest))


def _node_of(name: str, world: WorldRead) -> str:
    pod = _pod(name, world)
    return pod.node if pod is not None else ""


def pods_moving(running: Iterable[OperatorRecord]) -> dict[str, str]:
    """Names ("namespace/name") of the pods that operators are at work on → the operator."""
    return {pod: r.operator.id for r in running if (pod := r.operator.payload.pod)}
