"""The moves of mix: `replace-pod` operators for housekeeping (source `mix`) and under a notice (source `spot`), what
they cost, and what each is allowed at its next turn."""

from typing import TYPE_CHECKING, Final

from mooring.capabilities.drain.readiness import node_cost, target_of
from mooring.capabilities.drain.replace_pod import Notice, Terms, read_back, replace_pod, replacing
from mooring.capabilities.drain.request import EVICT, is_detached, workload_named
from mooring.capabilities.mix import memory as remembering
from mooring.capabilities.mix.interruption.notices import SOURCE as SPOT
from mooring.capabilities.mix.interruption.notices import InterruptedNodes, mark_of, silence_of
from mooring.capabilities.mix.labels import Managed
from mooring.capabilities.mix.policy import SOURCES, InterruptionPolicy, ShortNotice
from mooring.capabilities.mix.rebalance.detached import awaited, going_first
from mooring.capabilities.mix.rebalance.diagnosis import Diagnosis, WorkloadNotes
from mooring.capabilities.mix.rebalance.returns import TARGET as RETURNS
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Key, Pod, Workload
from mooring.core.model.decision import OperatorRecord, Verdict
from mooring.core.model.instructions import Instruction
from mooring.core.model.marks import Mark
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.queue import QueueRead
from mooring.core.world.read import WorldRead

if TYPE_CHECKING:
    from mooring.capabilities.mix.capability import Mix

#: What housekeeping may have under way in the whole cluster.
ALL_MOVES: Final = "mix"
#: So long after its deadline a pod that is no longer reported on is no longer counted.
_GONE_AFTER_S: Final = 30.0
#: A move that a budget blocks for longer gives its place back.
BLOCKED_S: Final = 60.0


def costs_of(pod: Pod, source: str, way: str, deadline: float | None, reason: str) -> dict[str, int]:
    costs = node_cost(pod.node, pod.namespace)
    if reason == Reason.RETURN_TO_SPOT:
        costs[RETURNS] = 1
    if deadline is None and (source == SPOT or way == EVICT):
        # The quicker way goes as far as its workload's own surge allows.
        costs |= {ALL_MOVES: 1, f"share/{ALL_MOVES}/{pod.namespace}": 1}
    return costs


def move(
    pod: Pod,
    workload: Workload,
    *,
    source: str,
    way: str,
    reason: Reason,
    detail: str,
    wanted: NodeClass = NodeClass.UNKNOWN,
    deadline: float | None = None,
    takes_room: bool = True,
    id_: str = "",
) -> Operator:
    """`takes_room`: it needs its workload's room, at least until its replacement has been asked for."""
    return replace_pod(
        pod,
        workload,
        source=source,
        way=way,
        reason=reason,
        detail=detail,
        room=target_of(workload) if takes_room else "",
        costs=costs_of(pod, source, way, deadline, reason),
        deadline=deadline,
        node_class=wanted,
        id_=id_,
    )


def without_workload(
    pod: Pod, *, source: str, reason: Reason, detail: str, way: str = EVICT, deadline: float | None, room: bool = False
) -> Operator:
    """Of a pod that no workload counts: of another controller (`everybody: evict`), or detached from one that is
    gone."""
    owner = pod.owner
    target = f"workload/{pod.namespace}/{owner.kind}/{owner.name}" if room and owner is not None else ""
    costs = costs_of(pod, source, way, deadline, reason)
    return replace_pod(
        pod, None, source=source, way=way, reason=reason, detail=detail, room=target, costs=costs, deadline=deadline
    )


def read_move(pod: Pod, mark: Mark, workload: Workload) -> Operator:
    """The move that wrote this mark, as it was."""
    return read_back(pod, mark, workload, costs_of(pod, mark.source, mark.value, mark.deadline, mark.reason))


def notice_on(name: str, given: float | None, since: float, policy: InterruptionPolicy, world: WorldRead) -> Notice:
    """The notice of a node, with its deadline as the node has it now: a notice may be corrected, and an interruption
    may follow a disruption. `given`, `since`: what counts where its mark does not say."""
    node = world.node(name)
    mark = None if node is None else mark_of(node)
    return Notice(
        deadline=given if mark is None or mark.deadline is None else mark.deadline,
        since=since if mark is None else mark.since,
        margin_s=policy.margin_s,
        start_s=policy.start_s,
        serve=policy.short_notice is ShortNotice.SERVE,
    )


def is_lost(name: str, policy: InterruptionPolicy, world: WorldRead, now: float) -> bool:
    """Gone, or silent as nodes are that go: not together with most of the others."""
    node = world.node(name)
    silence = None if node is None else silence_of(node, policy, world, now)
    return node is None or (silence is not None and not silence.held)


def terms_of(mix: "Mix", running: OperatorRecord, world: WorldRead, queue: QueueRead, now: float) -> Terms:
    """What a running move is allowed just now."""
    op, how, policy = running.operator, replacing(running.operator), mix.policy.interruption
    assert how is not None
    workload = workload_named(how.workload, world)
    if workload is not None and workload.uid != how.workload_uid:
        workload = None
    going = world.index(InterruptedNodes).has(how.node) or (op.source == SPOT and is_lost(how.node, policy, world, now))
    terms = Terms(
        workload=workload,
        notice=notice_on(how.node, op.deadline, running.promoted_at, policy, world) if op.source == SPOT else Notice(),
        unwanted="the notice was taken back" if op.source == SPOT and not going else "",
        ready_within_s=mix.policy.rebalance.ready_within_s,
        await_s=mix.policy.rebalance.ready_within_s,
        blocked_s=BLOCKED_S,
        sources=SOURCES,
    )
    node = world.node(how.node)
    deadline = terms.notice.deadline
    terms.forget = deadline is not None and now > deadline + _GONE_AFTER_S
    terms.forget = terms.forget and (node is None or mark_of(node) is not None)
    if workload is None:
        return terms
    seen = Diagnosis(mix, workload, world, queue, now, WorkloadNotes((op.subject,)))
    terms.ready, terms.marked = seen.health.ready, seen.health.marked
    if op.reason is Reason.UNMET_FLOOR:
        # So long it asks for a node; then its pod has as long as every other to become Ready there.
        waits = any(not p.schedulable for p in seen.health.unplaced)
        terms.ready_within_s = mix.policy.rebalance.room_for_s + (0.0 if waits else terms.ready_within_s)
    limit_of = mix.calm_limit_of if terms.notice.deadline is None else mix.limit_of
    terms.limit = limit_of(workload, world, now)
    namespace, _, name = how.pod.partition("/")
    pod = world.pod(Key(namespace, name))
    if pod is None or pod.uid != how.uid or pod.terminating:
        return terms
    if is_detached(pod):
        terms.detached = going_first(seen.detached, queue)
        if isinstance(seen.management, Managed):
            floor = seen.management.target.on_demand(workload.replicas)
            terms.awaited = awaited(seen.health, terms.detached, floor, queue, world)
    elif op.source != SPOT and seen.is_in_transit():
        terms.held = Verdict(State.WAITING, Reason.SETTLING, "other pods of its workload are on their way")
    elif op.source != SPOT:
        terms.unwanted = seen.no_longer(op, pod)
    if terms.notice.deadline is None:
        terms.guard = _guard(mix, running, seen)
    return terms


def _guard(mix: "Mix", running: OperatorRecord, seen: Diagnosis) -> tuple[Instruction, ...]:
    """Remember the attempt as if it had failed."""
    if seen.note.begun and seen.note.last_move >= running.promoted_at:
        return ()
    memory, note = seen.world.config_map(mix.memory_key), seen.note_before(running.operator.reason)
    return (remembering.write(memory, mix.memory_key, seen.workload.uid, note, seen.now, "notes the move"),)
