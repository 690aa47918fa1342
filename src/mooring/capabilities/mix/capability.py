"""The mix capability: one key per workload (the rebalancer) and one per node that is about to go (the interruption).

Both propose the same operator, `replace-pod`: `mix` for housekeeping, `spot` with a deadline. What limits them is the
queue: a workload's missing replicas are facts on `workload/…`, so only a healthy one is touched, one at a time.

`Mix` is its policy. What it looks up often are indexes of the world: interrupted nodes, detached pods, how workloads
are, room by class, the slots that admission has given.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

import msgspec

from mooring.capabilities.drain.readiness import subject_of
from mooring.capabilities.drain.replace_pod import next_step, replacing, resumed
from mooring.capabilities.drain.request import is_detached, request_of, workload_named
from mooring.capabilities.drain.room import NodeRoom
from mooring.capabilities.mix import memory as remembering
from mooring.capabilities.mix.admission.book import KeptLedger, Reservation, Reservations, SlotBook
from mooring.capabilities.mix.explain import lines
from mooring.capabilities.mix.interruption.node import Interruption
from mooring.capabilities.mix.interruption.notices import SOURCE as SPOT
from mooring.capabilities.mix.interruption.notices import InterruptedNodes, NodeReports, has_notice, is_remarkable
from mooring.capabilities.mix.interruption.pods import quorum_room
from mooring.capabilities.mix.labels import AFFINITY, LEFT_OUT, RESERVATION
from mooring.capabilities.mix.moves import read_move, terms_of, without_workload
from mooring.capabilities.mix.policy import SOURCES, MixPolicy
from mooring.capabilities.mix.rebalance import returns
from mooring.capabilities.mix.rebalance.detached import DetachedPods
from mooring.capabilities.mix.rebalance.diagnosis import NO_NOTES, Diagnosis, WorkloadNotes
from mooring.capabilities.mix.rebalance.health import Healths, is_fast, workload_key
from mooring.capabilities.mix.rebalance.misplaced import is_repaired
from mooring.capabilities.mix.rebalance.workload import Rebalance
from mooring.capabilities.mix.schemes import Schemes
from mooring.capabilities.mix.slots import SlotLedger, SlotPlace, class_changed
from mooring.capabilities.mix.targets import Target
from mooring.capabilities.mix.worth import Worth
from mooring.core.model.cluster import Key, Node, Pod, ReplicaSet, Workload
from mooring.core.model.decision import Deferred, Evaluation, Line, NextStep, OperatorRecord, ReadBack, Recovered
from mooring.core.model.events import Change, OperatorChanged, Trigger
from mooring.core.model.kinds import WORKLOADS, Kind
from mooring.core.model.marks import LEAVING
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason
from mooring.core.queue import QueueRead
from mooring.core.world.index import Index
from mooring.core.world.read import WorldRead


@dataclass(frozen=True)
class Mix:
    name = "mix"
    sources = SOURCES
    remembered = (
        WorkloadNotes,
        returns.ReturnNotes,
        Worth,
        Reservations,
        Reservation,
        KeptLedger,
        SlotLedger,
        SlotPlace,
        Target,
    )

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
        looks = DetachedPods(), Healths(), NodeReports()
        by_policy = Schemes(self.policy), SlotBook(self.policy)
        return InterruptedNodes(self.policy.interruption), *looks, NodeRoom(), *by_policy

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
            case Change(kind=kind, old=old, new=new) if kind in WORKLOADS:
                assert old is None or isinstance(old, Workload)
                assert new is None or isinstance(new, Workload)
                return _workload_touched(old, new, self.policy)
            case Change(kind=Kind.REPLICA_SET, old=old, new=new):
                assert old is None or isinstance(old, ReplicaSet)
                assert new is None or isinstance(new, ReplicaSet)
                return _replica_set_touched(old, new, world, self.policy)
            case OperatorChanged(operator=operator):
                return self._ended(operator)
            case _:
                return ()

    def _pod_touched(self, old: Pod | None, new: Pod | None, world: WorldRead) -> Iterator[str | Deferred]:
        pod = new or old
        assert pod is not None
        interrupted = world.index(InterruptedNodes).has(pod.node)
        workload = world.workload_of(pod) or (world.workload_of(old) if old is not None else None)
        if workload is not None and (AFFINITY in pod.labels or self.policy.concerns(workload)):
            key = workload_key(workload)
            may_wait = _is_on_its_way(old, new) and not interrupted
            yield Deferred(key) if may_wait else key
        mark = request_of(pod)
        if mark is not None and "workload" in mark.before:
            yield f"workload/{mark.before['workload']}"
        if mark is not None and mark.reason == Reason.RETURN_TO_SPOT:
            yield returns.KEY
        if interrupted or (mark is not None and mark.source == SPOT):
            yield f"node/{pod.node}"

    def _node_touched(self, name: str, old: Node | None, node: Node | None, world: WorldRead) -> Iterator[str]:
        index, notice = world.index(InterruptedNodes), self.policy.interruption
        was_interrupted = old is not None and has_notice(old, notice, world)
        if old is None or node is None or was_interrupted != (name in index.names):
            yield returns.KEY
        silent = node is not None and node.ready == "Unknown"
        if silent or any(row is not None and is_remarkable(row, notice, world) for row in (old, node)):
            yield f"node/{name}"
        elif old is None and any(_is_asked_away(pod) for pod in world.pods_on(name)):
            yield f"node/{name}"  # one of this name had notice: another machine has taken its place
        if was_interrupted and old is not None and not old.unschedulable and not index.open:
            # The last cordon is in place: now the moves may begin everywhere.
            yield from (f"node/{one}" for one in sorted(index.names))
        stays = was_interrupted and not index.has(name)
        if stays or (old is not None and node is not None and class_changed(old, node, world.rules)):
            # Its pods count differently now, and nothing about them need have changed.
            found = [world.workload_of(pod) for pod in world.pods_on(name)]
            yield from sorted({workload_key(w) for w in found if w is not None and self.policy.concerns(w)})

    def _ended(self, operator: Operator) -> Iterator[str]:
        how = replacing(operator)
        if how is None:
            return
        if how.workload:
            yield f"workload/{how.workload}"
        if operator.reason is Reason.RETURN_TO_SPOT:
            yield returns.KEY
        if operator.source == SPOT and how.node:
            yield f"node/{how.node}"

    def keys(self, world: WorldRead) -> Iterable[str]:
        found = {workload_key(w) for w in world.workloads() if self.policy.concerns(w)}
        owners: set[str] = set()
        asked: set[str] = set()
        for pod in world.pods():
            if LEAVING in pod.annotations and _is_asked_away(pod):
                asked.add(f"node/{pod.node}")
            if pod.owner is None or pod.owner.uid in owners or AFFINITY not in pod.labels:
                continue
            owners.add(pod.owner.uid)
            if (workload := world.workload_of(pod)) is not None:
                found.add(workload_key(workload))
        index = world.index(InterruptedNodes)
        nodes = {f"node/{n}" for n in index.names | index.likely | index.marked}
        nodes |= asked | {f"node/{n.name}" for n in world.nodes() if n.ready == "Unknown"}
        strays = [f"stray/{key}" for key in world.index(DetachedPods).keys()]  # noqa: SIM118
        # Nodes under a notice first. How many return in a minute comes last: until it is known, few may (`limits`).
        return [*sorted(nodes), *strays, *sorted(found), returns.KEY]

    # ── Is there something to do? ─────────────────────────────────────────────────────────────────────────────

    def evaluate(self, key: str, world: WorldRead, queue: QueueRead, notes: object, now: float) -> Evaluation:
        kind, _, name = key.partition("/")
        if kind == "node":
            return Interruption(self, world, queue, now).evaluate(name)
        if kind == "stray":
            return self._stray(name, world, queue)
        if key == returns.KEY:
            known = notes if isinstance(notes, returns.ReturnNotes) else None
            return returns.evaluate(self.policy, known, world, queue, now)
        workload = workload_named(name, world)
        if workload is None:
            return Evaluation()
        remembered = notes if isinstance(notes, WorkloadNotes) else NO_NOTES
        return Rebalance(Diagnosis(self, workload, world, queue, now, remembered)).evaluate()

    def _stray(self, name: str, world: WorldRead, queue: QueueRead) -> Evaluation:
        """A detached pod whose workload was deleted while no replica led: no garbage collector knows it."""
        namespace, _, rest = name.partition("/")
        pod = world.pod(Key(namespace, rest))
        mark = None if pod is None else request_of(pod)
        if pod is None or mark is None or mark.source not in self.sources or pod.terminating or not is_detached(pod):
            return Evaluation()
        workload = workload_named(mark.before.get("workload", ""), world)
        if workload is not None and workload.uid == mark.before.get("workloadUID"):
            return Evaluation()
        why = f"detached from {mark.before.get('workload', 'a workload')}, which is gone"
        if queue.holder(subject_of(pod)) is not None:
            return Evaluation()
        swept = without_workload(
            pod, source=mark.source, reason=Reason.SWEPT, detail=why, way=mark.value, deadline=mark.deadline
        )
        return Evaluation(proposals=(swept,))

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

    def next_step(self, running: OperatorRecord, world: WorldRead, queue: QueueRead, now: float) -> NextStep:
        return next_step(running, terms_of(self, running, world, queue, now), world, now)

    def explain(self, subject: str, world: WorldRead, queue: QueueRead, now: float) -> Iterable[Line]:
        return lines(self, subject, world, queue, now)

    # ── After a crash ─────────────────────────────────────────────────────────────────────────────────────────

    def recovery_needs(self, world: WorldRead) -> Iterable[str]:
        return ()

    def recover(self, world: WorldRead, queue: QueueRead, now: float) -> Iterable[ReadBack]:
        marked = (pod for pod in world.pods() if LEAVING in pod.annotations)
        for pod in sorted(marked, key=lambda p: (p.namespace, p.name)):
            yield partial(self._resumed, pod, world)

    def _resumed(self, pod: Pod, world: WorldRead) -> Iterator[Recovered]:
        mark = request_of(pod)
        if mark is None or mark.source not in self.sources or not mark.operator or mark.pod_uid != pod.uid:
            return
        workload = workload_named(mark.before.get("workload", ""), world)
        if workload is None or workload.uid != mark.before.get("workloadUID"):
            return  # a stray: `keys` names it
        yield resumed(read_move(pod, mark, workload), pod, mark)


def _workload_touched(old: Workload | None, new: Workload | None, policy: MixPolicy) -> list[str]:
    """Its counts change with every pod of it, and its pods have told us by then."""
    rows = [row for row in (old, new) if row is not None]
    if old is not None and new is not None and _without_counts(old) == _without_counts(new):
        return []
    return [workload_key(row) for row in rows[-1:] if any(policy.concerns(r) for r in rows)]


def _replica_set_touched(
    old: ReplicaSet | None, new: ReplicaSet | None, world: WorldRead, policy: MixPolicy
) -> Iterator[Deferred]:
    """Each kind has its own watch: who owns these pods, and that a rollout is over, may arrive after all events of the
    pods."""
    row = new or old
    assert row is not None
    if old is not None and new is not None and (old.owner, old.replicas > 0) == (new.owner, new.replicas > 0):
        return
    owner = row.owner
    workload = workload_named(f"{owner.kind}/{row.namespace}/{owner.name}", world) if owner is not None else None
    if workload is not None and (
        policy.concerns(workload) or any(AFFINITY in pod.labels for pod in world.pods_of(workload))
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
    mark = request_of(pod)
    return mark is not None and mark.source == SPOT
