"""The mix capability: one key per workload (the rebalancer) and one per node that is about to go (the two minutes).

Both propose the same operator, `move-replica`: `mix` for housekeeping, `spot` with a deadline. What limits them is the
queue: a workload's missing replicas are facts on `workload/…`, so only a healthy one is touched, one at a time.

It keeps small indexes by changes (doomed nodes, detached pods, moves, since when spot has room); they are rebuilt from
the world whenever this replica begins to decide, so nothing but time depends on them.
"""

from collections.abc import Iterable, Iterator

import msgspec

from mooring.capabilities.drain.detach import is_detached, mark_on
from mooring.capabilities.drain.readiness import subject_of
from mooring.capabilities.mix import memory as remembering
from mooring.capabilities.mix.admission.decide import Admission
from mooring.capabilities.mix.explain import lines
from mooring.capabilities.mix.interruption.interrupted import Watchlist
from mooring.capabilities.mix.interruption.node import Interruption, quorum_room
from mooring.capabilities.mix.interruption.notices import SOURCE as SPOT
from mooring.capabilities.mix.labels import AFFINITY, ENABLED, LEFT_OUT, RESERVATION
from mooring.capabilities.mix.memory import Note
from mooring.capabilities.mix.policy import SOURCES, MixPolicy
from mooring.capabilities.mix.rebalance.health import find_workload, health_of, is_fast, workload_key
from mooring.capabilities.mix.rebalance.move import KIND, Scene, read_back
from mooring.capabilities.mix.rebalance.move import next_step as next_move_step
from mooring.capabilities.mix.rebalance.moves import Moves
from mooring.capabilities.mix.rebalance.room import Room
from mooring.capabilities.mix.rebalance.workload import Rebalance
from mooring.capabilities.mix.slots import class_changed
from mooring.core.model.cluster import ConfigMap, Key, Node, Pod, Workload
from mooring.core.model.decision import Deferred, Evaluation, Line, NextStep, Recovered, Running
from mooring.core.model.events import Change, OperatorEnded, Trigger
from mooring.core.model.instructions import DeletePod, EmitEvent, Instruction
from mooring.core.model.kinds import Kind
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason
from mooring.core.queue import Queue
from mooring.core.world.index import Index
from mooring.core.world.read import WorldRead

MEMORY = "mooring-mix-memory"


class Mix:
    name = "mix"
    sources = SOURCES

    def __init__(
        self,
        policy: MixPolicy | None = None,
        *,
        namespace: str = "mooring-system",
        admission: Admission | None = None,
    ) -> None:
        self.policy = policy or MixPolicy()
        self.admission = admission or Admission(self.policy)
        self.memory_key = Key(namespace, MEMORY)
        #: The webhook does not see their pods, so moving them would never help.
        self.left_out = frozenset({namespace, LEFT_OUT})
        self.watchlist = Watchlist(self.policy.notice)
        self.room = Room(self.policy.capacity, self.policy.tolerations)
        #: "Deployment/shop/web" → its detached pods.
        self._detached: dict[str, dict[Key, str]] = {}
        #: Workload uid → since when spot has had room for its fallen-back pods.
        self.spot_room_since: dict[str, float] = {}
        self.moves = Moves()

    # ── Which keys ────────────────────────────────────────────────────────────────────────────────────────────

    def affected_keys(self, trigger: Trigger, world: WorldRead) -> Iterable[str | Deferred]:
        match trigger:
            case Change(kind=Kind.POD, old=old, new=new):
                assert old is None or isinstance(old, Pod)
                assert new is None or isinstance(new, Pod)
                return self._pod_touched(old, new, world)
            case Change(kind=Kind.NODE, key=key, old=old, new=new):
                assert old is None or isinstance(old, Node)
                assert new is None or isinstance(new, Node)
                return self._node_touched(key.name, old, new, world)
            case Change(kind=Kind.DEPLOYMENT | Kind.STATEFUL_SET, old=old, new=new):
                assert old is None or isinstance(old, Workload)
                assert new is None or isinstance(new, Workload)
                return _workload_touched(old, new)
            case OperatorEnded(operator=operator):
                return self._ended(operator)
            case _:
                return ()

    def _pod_touched(self, old: Pod | None, new: Pod | None, world: WorldRead) -> Iterator[str | Deferred]:
        pod = new or old
        assert pod is not None
        self._index(old, new)
        workload = world.workload_of(pod) or (world.workload_of(old) if old is not None else None)
        if workload is not None and (ENABLED in workload.labels or AFFINITY in pod.labels):
            key = workload_key(workload)
            may_wait = _is_on_its_way(old, new) and pod.node not in self.watchlist.doomed
            yield Deferred(key) if may_wait else key
        mark = mark_on(pod)
        if mark is not None and "workload" in mark.before:
            yield f"workload/{mark.before['workload']}"
        if pod.node in self.watchlist.doomed:
            yield f"node/{pod.node}"

    def _node_touched(self, name: str, old: Node | None, node: Node | None, world: WorldRead) -> Iterator[str]:
        open_before, was_doomed = bool(self.watchlist.open), name in self.watchlist.doomed
        concerned = self.watchlist.see(name, node, world)
        if concerned or (node is not None and node.ready == "Unknown"):
            yield f"node/{name}"
        if open_before and not self.watchlist.open:
            # The last cordon is in place: now the moves may begin everywhere.
            yield from (f"node/{one}" for one in sorted(self.watchlist.doomed))
        stays = was_doomed and name not in self.watchlist.doomed
        if stays or (old is not None and node is not None and class_changed(old, node, world.rules)):
            # Its pods count differently now, and nothing about them need have changed.
            found = [world.workload_of(pod) for pod in world.pods_on(name)]
            yield from sorted({workload_key(w) for w in found if w is not None and ENABLED in w.labels})

    def _ended(self, operator: Operator) -> Iterator[str]:
        yield f"workload/{operator.args['workload']}"
        if operator.source == SPOT and operator.args["node"]:
            yield f"node/{operator.args['node']}"

    def _index(self, old: Pod | None, new: Pod | None) -> None:
        for row, there in ((old, False), (new, True)):
            if row is None or row.owner is not None or not is_detached(row):
                continue
            mark = mark_on(row)
            if mark is None:
                continue
            mine = self._detached.setdefault(mark.before.get("workload", ""), {})
            if there:
                mine[row.key] = row.uid
            else:
                mine.pop(row.key, None)

    def keys(self, world: WorldRead) -> Iterable[str]:
        self._rebuild(world)
        found = {workload_key(w) for w in world.workloads() if ENABLED in w.labels}
        owners: set[str] = set()
        for pod in world.pods():
            if pod.owner is None or pod.owner.uid in owners or AFFINITY not in pod.labels:
                continue
            owners.add(pod.owner.uid)
            if (workload := world.workload_of(pod)) is not None:
                found.add(workload_key(workload))
        nodes = {f"node/{n}" for n in self.watchlist.doomed | self.watchlist.marked}
        nodes |= {f"node/{n.name}" for n in world.nodes() if n.ready == "Unknown"}
        strays = {f"stray/{key}" for keys in self._detached.values() for key in keys}
        return [*sorted(nodes), *sorted(strays), *sorted(found)]

    def _rebuild(self, world: WorldRead) -> None:
        self.watchlist.rebuild(world)
        self._detached.clear()
        for pod in world.pods():
            self._index(None, pod)

    # ── Is there something to do? ─────────────────────────────────────────────────────────────────────────────

    def indexes(self) -> tuple[Index, ...]:
        return ()

    def evaluate(self, key: str, world: WorldRead, queue: Queue, notes: object, now: float) -> Evaluation:
        look = self._look(key, world, queue, now)
        self.moves.note(look.proposals)
        return look

    def _look(self, key: str, world: WorldRead, queue: Queue, now: float) -> Evaluation:
        kind, _, name = key.partition("/")
        if kind == "node":
            node = Interruption(self.policy, world, queue, now, left_out=self.left_out)
            return node.evaluate(name, frozenset(self.watchlist.open))
        if kind == "stray":
            return self._stray(name, world, queue)
        workload = find_workload(name, world)
        if workload is None:
            return Evaluation()
        return Rebalance(self, workload, world, queue, now).evaluate()

    def _stray(self, name: str, world: WorldRead, queue: Queue) -> Evaluation:
        """A detached pod whose workload went while nobody led: no garbage collector knows it."""
        namespace, _, rest = name.partition("/")
        pod = world.pod(Key(namespace, rest))
        mark = None if pod is None else mark_on(pod)
        if pod is None or mark is None or mark.source not in self.sources or pod.terminating or not is_detached(pod):
            return Evaluation()
        workload = find_workload(mark.before.get("workload", ""), world)
        if workload is not None and workload.uid == mark.before.get("workloadUID"):
            return Evaluation()
        why = f"detached from {mark.before.get('workload', 'a workload')}, which is gone"
        delete = DeletePod(key=pod.key, uid=pod.uid, evict=False, why=why)
        tell = EmitEvent(kind=Kind.POD, key=pod.key, uid=pod.uid, reason=Reason.SWEPT, message=why)
        return Evaluation() if queue.holder(subject_of(pod)) is not None else Evaluation(instructions=(delete, tell))

    def note_of(self, workload_uid: str, world: WorldRead) -> Note:
        return remembering.read(self.memory(world), workload_uid)

    def memory(self, world: WorldRead) -> ConfigMap | None:
        return world.config_map(self.memory_key)

    def limit_of(self, workload: Workload, world: WorldRead) -> int:
        """How many of a workload may be away at once."""
        if workload.kind == Kind.STATEFUL_SET:
            doomed = self.watchlist.doomed
            if doomed and any(p.node in doomed for p in world.pods_of(workload)):
                return quorum_room(workload)
            return 1
        if is_fast(workload):
            return max(1, workload.max_surge + workload.max_unavailable)
        return 1

    # ── What is next? ─────────────────────────────────────────────────────────────────────────────────────────

    def next_step(self, running: Running, world: WorldRead, queue: Queue, now: float) -> NextStep:
        op = running.operator
        workload = find_workload(op.args["workload"], world)
        if workload is not None and workload.uid != op.args["workload_uid"]:
            workload = None
        node = op.args["node"]
        doomed = node in self.watchlist.doomed or (op.source == SPOT and _is_lost(world.node(node)))
        detached = self.detached_of(op.args["workload"], world)
        scene = Scene(
            op=op,
            world=world,
            rebalance=self.policy.rebalance,
            notice=self.policy.notice,
            now=now,
            health=None if workload is None else health_of(workload, world, now),
            detached=detached,
            doomed=doomed,
            limit=1 if workload is None else self.limit_of(workload, world),
        )
        pod = scene.pod
        if workload is not None and pod is not None and not pod.terminating:
            if op.source == SPOT:
                scene.unwanted = "" if doomed else "the notice was taken back"
            else:
                rebalance = Rebalance(self, workload, world, queue, now)
                scene.unwanted = rebalance.no_longer(op, pod)
                scene.guard = self._guard(running, rebalance, world, now)
        return next_move_step(running, scene)

    def _guard(self, running: Running, rebalance: Rebalance, world: WorldRead, now: float) -> tuple[Instruction, ...]:
        """Remember the attempt as if it had failed, and tell admission when on-demand is full."""
        op, uid = running.operator, rebalance.workload.uid
        if op.reason is Reason.NO_ROOM:
            self.admission.relax(uid, now + self.policy.rebalance.relaxed_s)
        if rebalance.note.begun and rebalance.note.last_move >= running.promoted_at:
            return ()
        note = rebalance.note_for(op)
        return (remembering.write(self.memory(world), self.memory_key, uid, note, now, "notes the move"),)

    def detached_of(self, workload: str, world: WorldRead) -> tuple[Pod, ...]:
        keys = self._detached.get(workload)
        if not keys:
            return ()
        rows = [world.pod(key) for key in keys]
        serving = [p for p in rows if p is not None and p.active and p.owner is None and is_detached(p)]
        return tuple(sorted(serving, key=_farewell))

    def explain(self, subject: str, world: WorldRead, queue: Queue, now: float) -> Iterable[Line]:
        return lines(self, subject, world, queue, now)

    # ── After a crash ─────────────────────────────────────────────────────────────────────────────────────────

    def recovery_needs(self, world: WorldRead) -> Iterable[str]:
        return ()

    def recover(self, world: WorldRead, now: float) -> Iterable[Recovered]:
        self._rebuild(world)
        self.spot_room_since.clear()
        self.moves.clear()
        marked = [pod for pod in world.pods() if (m := mark_on(pod)) is not None and m.source in self.sources]
        for pod in sorted(marked, key=lambda p: (p.namespace, p.name)):
            mark = mark_on(pod)
            if mark is None or not mark.operator or mark.pod_uid != pod.uid:
                continue
            workload = find_workload(mark.before.get("workload", ""), world)
            if workload is None or workload.uid != mark.before.get("workloadUID"):
                continue  # a stray: `keys` names it
            operator = read_back(pod, mark, workload)
            phase = len(operator.phases) - 1 if is_detached(pod) else 0
            self.moves.note((operator,))
            yield Recovered(operator, 0, phase, mark.since)


def _workload_touched(old: Workload | None, new: Workload | None) -> list[str]:
    """Its counts change with every pod of it, and its pods have told us by then."""
    rows = [row for row in (old, new) if row is not None]
    if old is not None and new is not None and _without_counts(old) == _without_counts(new):
        return []
    return [workload_key(row) for row in rows[-1:] if any(ENABLED in r.labels for r in rows)]


def _without_counts(workload: Workload) -> Workload:
    return msgspec.structs.replace(
        workload,
        resource_version="",
        ready_replicas=0,
        available_replicas=0,
        updated_replicas=0,
        status_replicas=0,
    )


def _is_on_its_way(old: Pod | None, new: Pod | None) -> bool:
    """Admitted by us, and still to become Ready: created, bound, started. Until then it is missing all the same."""
    if new is None or RESERVATION not in new.annotations or not _is_coming(new):
        return False
    return old is None or (_is_coming(old) and old.annotations == new.annotations and old.labels == new.labels)


def _is_coming(pod: Pod) -> bool:
    return not pod.ready and pod.schedulable and pod.active


def _is_lost(node: Node | None) -> bool:
    return node is None or node.ready == "Unknown"


def _farewell(pod: Pod) -> tuple[float, str, str]:
    mark = mark_on(pod)
    deadline = mark.deadline if mark is not None and mark.deadline is not None else float("inf")
    return deadline, pod.namespace, pod.name


__all__ = ["KIND", "MEMORY", "Mix"]
