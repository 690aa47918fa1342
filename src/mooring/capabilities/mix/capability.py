"""The mix capability: one key per workload (the rebalancer) and one per node that is about to go (the interruption).

Both propose the same operator, `move-replica`: `mix` for housekeeping, `spot` with a deadline. What limits them is the
queue: a workload's missing replicas are facts on `workload/…`, so only a healthy one is touched, one at a time.

`Mix` is its policy. What it looks up often are indexes of the world: interrupted nodes, detached pods, how workloads
are, room by class, the slots that admission has given.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

import msgspec

from mooring.capabilities.drain.detach import is_detached, mark_on
from mooring.capabilities.drain.readiness import subject_of
from mooring.capabilities.mix import memory as remembering
from mooring.capabilities.mix.admission.book import SlotBook
from mooring.capabilities.mix.explain import lines
from mooring.capabilities.mix.interruption.interrupted import InterruptedNodes, has_notice, is_remarkable
from mooring.capabilities.mix.interruption.node import Interruption
from mooring.capabilities.mix.interruption.notices import SOURCE as SPOT
from mooring.capabilities.mix.interruption.pods import quorum_room
from mooring.capabilities.mix.labels import AFFINITY, ENABLED, LEFT_OUT, RESERVATION
from mooring.capabilities.mix.policy import SOURCES, MixPolicy
from mooring.capabilities.mix.rebalance.case import NO_NOTES, WorkloadNotes
from mooring.capabilities.mix.rebalance.detached import DetachedPods, going_first
from mooring.capabilities.mix.rebalance.diagnosis import Diagnosis
from mooring.capabilities.mix.rebalance.health import Healths, find_workload, is_fast, workload_key
from mooring.capabilities.mix.rebalance.misplaced import is_repaired
from mooring.capabilities.mix.rebalance.move import KIND, MoveSituation, read_back
from mooring.capabilities.mix.rebalance.move import next_step as next_move_step
from mooring.capabilities.mix.rebalance.room import NodeRoom
from mooring.capabilities.mix.rebalance.workload import Rebalance
from mooring.capabilities.mix.slots import class_changed
from mooring.core.model.cluster import Key, Node, Pod, ReplicaSet, Workload
from mooring.core.model.decision import Deferred, Evaluation, Line, NextStep, OperatorRecord, ReadBack, Recovered
from mooring.core.model.events import Change, OperatorEnded, Trigger
from mooring.core.model.instructions import DeletePod, EmitEvent, Instruction
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason
from mooring.core.queue import Queue
from mooring.core.world.index import Index
from mooring.core.world.read import WorldRead


@dataclass(frozen=True)
class Mix:
    name = "mix"
    sources = SOURCES

    policy: MixPolicy = field(default_factory=MixPolicy)
    namespace: str = "mooring-system"

    @property
    def memory_key(self) -> Key:
        return remembering.key(self.namespace)

    @property
    def left_out(self) -> frozenset[str]:
        """The webhook does not see their pods, so moving them would never help."""
        return frozenset({self.namespace, LEFT_OUT})

    def indexes(self) -> tuple[Index, ...]:
        looks = DetachedPods(), Healths()
        return InterruptedNodes(self.policy.interruption), *looks, NodeRoom(self.policy), SlotBook(self.policy)

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
            case Change(kind=Kind.REPLICA_SET, old=old, new=new):
                assert old is None or isinstance(old, ReplicaSet)
                assert new is None or isinstance(new, ReplicaSet)
                return _replica_set_touched(old, new, world)
            case OperatorEnded(operator=operator):
                return self._ended(operator)
            case _:
                return ()

    def _pod_touched(self, old: Pod | None, new: Pod | None, world: WorldRead) -> Iterator[str | Deferred]:
        pod = new or old
        assert pod is not None
        interrupted = world.index(InterruptedNodes).names
        workload = world.workload_of(pod) or (world.workload_of(old) if old is not None else None)
        if workload is not None and (ENABLED in workload.labels or AFFINITY in pod.labels):
            key = workload_key(workload)
            may_wait = _is_on_its_way(old, new) and pod.node not in interrupted
            yield Deferred(key) if may_wait else key
        mark = mark_on(pod)
        if mark is not None and "workload" in mark.before:
            yield f"workload/{mark.before['workload']}"
        if pod.node in interrupted or (mark is not None and mark.source == SPOT):
            yield f"node/{pod.node}"

    def _node_touched(self, name: str, old: Node | None, node: Node | None, world: WorldRead) -> Iterator[str]:
        index, notice = world.index(InterruptedNodes), self.policy.interruption
        was_interrupted = old is not None and has_notice(old, notice, world)
        silent = node is not None and node.ready == "Unknown"
        if silent or any(row is not None and is_remarkable(row, notice, world) for row in (old, node)):
            yield f"node/{name}"
        elif old is None and any(_is_asked_away(pod) for pod in world.pods_on(name)):
            yield f"node/{name}"  # one of this name had notice: another machine has taken its place
        if was_interrupted and old is not None and not old.unschedulable and not index.open:
            # The last cordon is in place: now the moves may begin everywhere.
            yield from (f"node/{one}" for one in sorted(index.names))
        stays = was_interrupted and name not in index.names
        if stays or (old is not None and node is not None and class_changed(old, node, world.rules)):
            # Its pods count differently now, and nothing about them need have changed.
            found = [world.workload_of(pod) for pod in world.pods_on(name)]
            yield from sorted({workload_key(w) for w in found if w is not None and ENABLED in w.labels})

    def _ended(self, operator: Operator) -> Iterator[str]:
        yield f"workload/{operator.args['workload']}"
        if operator.source == SPOT and operator.args["node"]:
            yield f"node/{operator.args['node']}"

    def keys(self, world: WorldRead) -> Iterable[str]:
        found = {workload_key(w) for w in world.workloads() if ENABLED in w.labels}
        owners: set[str] = set()
        asked: set[str] = set()
        for pod in world.pods():
            if pod.annotations and _is_asked_away(pod):
                asked.add(f"node/{pod.node}")
            if pod.owner is None or pod.owner.uid in owners or AFFINITY not in pod.labels:
                continue
            owners.add(pod.owner.uid)
            if (workload := world.workload_of(pod)) is not None:
                found.add(workload_key(workload))
        index = world.index(InterruptedNodes)
        nodes = {f"node/{n}" for n in index.names | index.marked}
        nodes |= asked | {f"node/{n.name}" for n in world.nodes() if n.ready == "Unknown"}
        strays = [f"stray/{key}" for key in world.index(DetachedPods).keys()]  # noqa: SIM118
        return [*sorted(nodes), *strays, *sorted(found)]

    # ── Is there something to do? ─────────────────────────────────────────────────────────────────────────────

    def evaluate(self, key: str, world: WorldRead, queue: Queue, notes: object, now: float) -> Evaluation:
        kind, _, name = key.partition("/")
        if kind == "node":
            return Interruption(self, world, queue, now).evaluate(name)
        if kind == "stray":
            return self._stray(name, world, queue)
        workload = find_workload(name, world)
        if workload is None:
            return Evaluation()
        remembered = notes if isinstance(notes, WorkloadNotes) else NO_NOTES
        return Rebalance(Diagnosis(self, workload, world, queue, now, remembered)).evaluate()

    def _stray(self, name: str, world: WorldRead, queue: Queue) -> Evaluation:
        """A detached pod whose workload was deleted while no replica led: no garbage collector knows it."""
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

    def limit_of(self, workload: Workload, world: WorldRead, now: float) -> int:
        """How many of a workload may be away at once."""
        urgent = world.index(InterruptedNodes).urgent
        if urgent and workload.kind == Kind.STATEFUL_SET and any(p.node in urgent for p in world.pods_of(workload)):
            return quorum_room(workload)
        return self.calm_limit_of(workload, world, now)

    def calm_limit_of(self, workload: Workload, world: WorldRead, now: float) -> int:
        """How many of them housekeeping may have taken: what a notice lets go at once is for those that it takes."""
        if workload.kind == Kind.STATEFUL_SET:
            return 1
        if is_fast(workload):
            return max(1, workload.max_surge + workload.max_unavailable)
        health = world.index(Healths).of(workload, world, now) if workload.max_unavailable > 1 else None
        if health is not None and is_repaired(health, world.index(SlotBook), now):
            return workload.max_unavailable
        return 1

    # ── What is next? ─────────────────────────────────────────────────────────────────────────────────────────

    def next_step(self, running: OperatorRecord, world: WorldRead, queue: Queue, now: float) -> NextStep:
        op = running.operator
        workload = find_workload(op.args["workload"], world)
        if workload is not None and workload.uid != op.args["workload_uid"]:
            workload = None
        node = op.args["node"]
        interrupted = node in world.index(InterruptedNodes).names or (op.source == SPOT and _is_lost(world.node(node)))
        notes = WorkloadNotes((op.subject,))
        seen = None if workload is None else Diagnosis(self, workload, world, queue, now, notes)
        situation = MoveSituation(
            op=op,
            world=world,
            rebalance=self.policy.rebalance,
            notice=self.policy.interruption,
            now=now,
            health=None if seen is None else seen.health,
            interrupted=interrupted,
        )
        if workload is None or seen is None:
            return next_move_step(running, situation)
        limit_of = self.calm_limit_of if situation.deadline is None else self.limit_of
        situation.limit = limit_of(workload, world, now)
        pod = situation.pod
        if pod is not None and not pod.terminating:
            situation.detached = going_first(seen.detached, queue) if pod.owner is None else ()
            if op.source == SPOT:
                situation.unwanted = "" if interrupted else "the notice was taken back"
            else:
                situation.in_transit = seen.is_in_transit()
                situation.unwanted = "" if situation.in_transit else seen.no_longer(op, pod)
            if situation.deadline is None:
                situation.guard = self._guard(running, seen)
        return next_move_step(running, situation)

    def _guard(self, running: OperatorRecord, seen: Diagnosis) -> tuple[Instruction, ...]:
        """Remember the attempt as if it had failed."""
        if seen.note.begun and seen.note.last_move >= running.promoted_at:
            return ()
        memory, uid, note = seen.world.config_map(self.memory_key), seen.workload.uid, seen.note_before
        reason = running.operator.reason
        return (remembering.write(memory, self.memory_key, uid, note(reason), seen.now, "notes the move"),)

    def explain(self, subject: str, world: WorldRead, queue: Queue, now: float) -> Iterable[Line]:
        return lines(self, subject, world, queue, now)

    # ── After a crash ─────────────────────────────────────────────────────────────────────────────────────────

    def recovery_needs(self, world: WorldRead) -> Iterable[str]:
        return ()

    def recover(self, world: WorldRead, queue: Queue, now: float) -> Iterable[ReadBack]:
        marked = (pod for pod in world.pods() if LEAVING in pod.annotations)
        for pod in sorted(marked, key=lambda p: (p.namespace, p.name)):
            yield partial(self._resumed, pod, world)

    def _resumed(self, pod: Pod, world: WorldRead) -> Iterator[Recovered]:
        mark = mark_on(pod)
        if mark is None or mark.source not in self.sources or not mark.operator or mark.pod_uid != pod.uid:
            return
        workload = find_workload(mark.before.get("workload", ""), world)
        if workload is None or workload.uid != mark.before.get("workloadUID"):
            return  # a stray: `keys` names it
        operator = read_back(pod, mark, workload)
        yield Recovered(operator, 0, len(operator.phases) - 1 if is_detached(pod) else 0, mark.since)


def _workload_touched(old: Workload | None, new: Workload | None) -> list[str]:
    """Its counts change with every pod of it, and its pods have told us by then."""
    rows = [row for row in (old, new) if row is not None]
    if old is not None and new is not None and _without_counts(old) == _without_counts(new):
        return []
    return [workload_key(row) for row in rows[-1:] if any(ENABLED in r.labels for r in rows)]


def _replica_set_touched(old: ReplicaSet | None, new: ReplicaSet | None, world: WorldRead) -> Iterator[Deferred]:
    """Each kind has its own watch: who owns these pods, and that a rollout is over, may arrive after all events of the
    pods."""
    row = new or old
    assert row is not None
    if old is not None and new is not None and (old.owner, old.replicas > 0) == (new.owner, new.replicas > 0):
        return
    owner = row.owner
    workload = find_workload(f"{owner.kind}/{row.namespace}/{owner.name}", world) if owner is not None else None
    if workload is not None and (
        ENABLED in workload.labels or any(AFFINITY in pod.labels for pod in world.pods_of(workload))
    ):
        yield Deferred(workload_key(workload))


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


def _is_asked_away(pod: Pod) -> bool:
    """By a notice on its node."""
    mark = mark_on(pod)
    return mark is not None and mark.source == SPOT


def _is_lost(node: Node | None) -> bool:
    return node is None or node.ready == "Unknown"


__all__ = ["KIND", "Mix"]
