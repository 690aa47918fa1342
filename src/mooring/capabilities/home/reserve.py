"""Reserving the node of a member that is being recreated: the state machine of the `reserve-node` operator.

    member leaves ──► taint and mark on its node, one write ──► held ──► both removed, one write ──► ended
                                                                 │
          member back · gone somewhere else · scaled in · node cordoned, not Ready or gone · not wanted · time is up

The taint keeps every scheduler's pods out but those that tolerate it, so the node stays feasible for the member itself
(H8). In the queue it costs one of the reservations of its namespace and one of all. It stands for a bounded time, said
in the mark, so that the leader that finds the mark knows when to end it.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from mooring.capabilities.drain.room import matches, untolerated_of
from mooring.capabilities.drain.signals import DETECTORS, signals_of
from mooring.capabilities.home.members import RESERVE_NODE, MemberSet, member_set_by_key
from mooring.capabilities.home.memory import moved_off, seen_home
from mooring.capabilities.home.policy import HomePolicy
from mooring.core.model import subjects
from mooring.core.model.cluster import Key, Node, Pod, Taint
from mooring.core.model.decision import End, NextStep, OperatorRecord, Recovered, Verdict
from mooring.core.model.instructions import EditTaints, EmitEvent, Instruction
from mooring.core.model.marks import RESERVED_TAINT, Mark, read_mark, write_mark
from mooring.core.model.operator import Operator, Payload, Step, StepKind
from mooring.core.model.reasons import Reason, State
from mooring.core.queue import QueueRead
from mooring.core.world.read import WorldRead

# ── Reservation ─────────────────────────────────────────────────────────────────────────────────────────────────────
#
# A reservation as it stands on a node: a taint that keeps others out, and a mark beside it that says whose it is.
#
# The taint is `mooring.dev/reserved=<pod>:NoSchedule`; only pods that tolerate it may come, and members do, by a line
# in their pod template. The mark names pod, operator and until when. Both are written and removed in one write.

NO_SCHEDULE: Final = "NoSchedule"
#: What a member's pod template must tolerate, in words.
TOLERATION: Final = f"{{key: {RESERVED_TAINT}, operator: Exists, effect: {NO_SCHEDULE}}}"


#: Said of a reservation whose mark is missing or cannot be read.
UNKNOWN: Final = (
    f"tainted {RESERVED_TAINT} and no mark says for whom: other pods are not scheduled there, and Mooring leaves it"
)


def free_command(node: str) -> str:
    return f"kubectl taint node {node} {RESERVED_TAINT}- && kubectl annotate node {node} {RESERVED_TAINT}-"


def reservation_taint(pod: str) -> Taint:
    """The value is for people; it must be a label's value, so a name that is too long is left out."""
    return Taint(RESERVED_TAINT, NO_SCHEDULE, pod if len(pod) <= 63 else "")


def tolerates_reservation(pod: Pod) -> bool:
    taint = reservation_taint(pod.name)
    return any(t.tolerates(taint) for t in pod.shape.tolerations)


def reservation_on(node: Node) -> Mark | None:
    """For whom this node is reserved, or None: for no member, or a mark that cannot be read and is left alone."""
    text = node.annotations.get(RESERVED_TAINT)
    mark = read_mark(text) if text else None
    return mark if mark is not None and mark.pod else None


def has_reservation_taint(node: Node) -> bool:
    return any(t.key == RESERVED_TAINT and t.effect == NO_SCHEDULE for t in node.taints)


SOURCE: Final = "home"
KIND: Final = "reserve-node"
#: The target that counts them, and one below it for each namespace.
ALL: Final = "reservations"
STEPS: Final = (Step(StepKind.RESERVE_NODE), Step(StepKind.RELEASE_NODE))
HOLD, RELEASE = range(2)
#: A grace is what the pod's author wrote: beyond this no node is kept.
_LONGEST_GRACE_S: Final = 3600.0
#: Nodes and pods reach other schedulers on two streams: one must not see the free room before it sees who took it.
LINGER_S: Final = 1.0


class ReserveReason(msgspec.Struct, frozen=True, gc=False):
    """Why a reservation ends."""

    reason: Reason
    detail: str
    #: The member has taken it.
    home: bool = False


def reservation_subject(pod: Key) -> str:
    return f"reservation/{pod}"


def reservation_limits(namespace: str, world: WorldRead, policy: HomePolicy) -> dict[str, int | None]:
    """A reserved node takes no other new pods, so there is a limit per namespace and one in all; and half of the nodes
    stay free, however few there are."""
    half = max(1, sum(1 for _ in world.nodes()) // 2)
    return {f"{ALL}/{namespace}": policy.reserve_per_namespace, ALL: min(policy.reserve_in_all, half)}


def room_left(namespace: str, queue: QueueRead, policy: HomePolicy) -> int:
    """How many more of this namespace may be asked for. More would only wait for its own share, and ahead of others who
    wait for the room of all."""
    return policy.reserve_per_namespace - queue.used(f"{ALL}/{namespace}") - queue.waiting_of(SOURCE, namespace)


def propose_reservation(
    member_set: MemberSet,
    name: str,
    pod: Pod | None,
    world: WorldRead,
    policy: HomePolicy,
    now: float,
) -> Operator | Verdict | None:
    """The operator that reserves this member's node, when it is on its way out or waits to be scheduled again:
    the node where this process saw it, since the record on its owner is untrusted input."""
    if pod is None or not member_set.wants(name) or moved_off(pod):
        return None
    if pod.deletion_at is not None and pod.node and pod.phase == "Running":
        node, until = pod.node, min(pod.deletion_at, now + _LONGEST_GRACE_S) + policy.hold_s
    elif not pod.node and not pod.terminating:
        node, until = seen_home(member_set, name, world), pod.created_at + policy.hold_s
    else:
        return None
    there = world.node(node)
    if now >= until or there is None or _unfit(there, node) is not None or _foreign(there):
        return None
    if not _could_be_scheduled(pod, there):
        return None
    if not tolerates_reservation(pod):
        return Verdict(
            State.BLOCKED,
            Reason.MISCONFIGURED,
            f"no node can be reserved for {name}: its pod does not tolerate {RESERVED_TAINT}",
            f"add the toleration {TOLERATION} to the pod template, or remove the label {RESERVE_NODE}",
        )
    return _operator(member_set.key, pod.key, pod.uid, node, until)


def next_reservation_step(running: OperatorRecord, world: WorldRead, policy: HomePolicy, now: float) -> NextStep:
    notes = dict(running.notes)
    return msgspec.structs.replace(_next(running, notes, world, policy, now), notes=notes)


def _next(
    running: OperatorRecord, notes: dict[str, float], world: WorldRead, policy: HomePolicy, now: float
) -> NextStep:
    given = reservation_of(running.operator)
    pod_key, node_name, until = given.pod, given.node, given.until
    node = world.node(node_name)
    if node is None:
        return NextStep(step=RELEASE, end=End(Reason.NODE_GONE, f"{node_name} is gone, and the reservation with it"))
    mark = reservation_on(node)
    ours = mark is not None and mark.pod == pod_key
    over = ReserveReason(Reason.FEATURE_OFF, "home was switched off") if running.off else None
    over = over or _over(running.operator, node, world, policy, now)
    if not ours and notes.get("held") and _taint_left(node, pod_key):
        # Its mark was taken away by hand and the taint was not: that one is ours, and nothing else would remove it.
        return NextStep(step=RELEASE, instructions=(_release(node, "its mark was removed"),))
    if over is None:
        notes.pop("back-at", None)
        if ours:
            return NextStep(step=HOLD, again_at=until, progress=f"{node_name} is kept free for {pod_key}")
        if notes.get("held") and running.acted_at:
            return NextStep(step=HOLD, end=End(Reason.WITHDRAWN, "it was removed from outside"))
        if mark is not None or _foreign(node):
            return NextStep(step=HOLD, end=End(Reason.WITHDRAWN, f"{node_name} has another reservation"))
        notes["held"] = 1.0
        return NextStep(step=HOLD, instructions=(_hold(running, node, now),), again_at=until)
    if not ours:
        return NextStep(step=RELEASE, end=End(over.reason, over.detail))
    if over.home:
        seen_at = notes.setdefault("back-at", now)
        if now < seen_at + LINGER_S:
            return NextStep(step=HOLD, again_at=seen_at + LINGER_S, progress=over.detail)
    give_back: list[Instruction] = [_release(node, over.detail)]
    if over.reason is Reason.EXPIRED:
        give_back += _tell_expired(running.operator, over, world, policy)
    return NextStep(step=RELEASE, instructions=tuple(give_back))


def resumed_reservation(node: Node, now: float) -> Iterator[Recovered]:
    """Bounded again: a clock that has been set back since must not stretch it."""
    mark = reservation_on(node)
    if mark is not None:
        until = mark.deadline or mark.since
        until = min(until, now + max(0.0, until - mark.since))
        operator = _operator(mark.value, subjects.key_of(mark.pod), mark.pod_uid, node.name, until, mark.operator)
        yield Recovered(operator, HOLD, 0, mark.since)


class ReservePayload(Payload, frozen=True, gc=False, kw_only=True):
    """A node that is kept free for a member."""

    #: Of the pod that leaves.
    uid: str
    until: float
    #: Key of the member set.
    members: str


def reservation_of(operator: Operator) -> ReservePayload:
    assert isinstance(operator.payload, ReservePayload)
    return operator.payload


def _operator(member_set: str, pod: Key, uid: str, node: str, until: float, id_: str = "") -> Operator:
    subject = reservation_subject(pod)
    kind, _, keeper = member_set.partition("/")
    tidb = kind == "tidb"
    payload = ReservePayload(
        pod=str(pod),
        uid=uid,
        node=node,
        until=until,
        members=member_set,
        cluster=keeper if tidb else "",
        workload="" if tidb else f"StatefulSet/{keeper}",
    )
    return Operator(
        id=id_,
        source=SOURCE,
        quota=pod.namespace,
        kind=KIND,
        subject=subject,
        claims=(subject, f"reserved/{node}"),
        steps=STEPS,
        phases=({f"{ALL}/{pod.namespace}": 1, ALL: 1},),
        reason=Reason.RESERVED,
        detail=f"{pod.name} is being recreated; {node} is kept free for it",
        payload=payload,
    )


def _over(operator: Operator, node: Node, world: WorldRead, policy: HomePolicy, now: float) -> ReserveReason | None:
    given = reservation_of(operator)
    key = subjects.key_of(given.pod)
    name, member_set = key.name, member_set_by_key(given.members, world, policy)
    if member_set is None or not member_set.wants(name):
        return ReserveReason(Reason.SUBJECT_GONE, f"{name} is no longer wanted")
    if not member_set.reserves_nodes:
        return ReserveReason(Reason.WITHDRAWN, f"{RESERVE_NODE} was removed")
    pod = world.pod(key)
    if pod is not None and moved_off(pod):
        return ReserveReason(Reason.WITHDRAWN, f"{name} is being moved off {node.name}")
    if pod is not None and not pod.terminating:
        if pod.node:
            if pod.node == node.name:
                return ReserveReason(Reason.DONE, f"{name} is back on {node.name}", home=True)
            return ReserveReason(Reason.DONE, f"{name} went to {pod.node} instead")
        if not tolerates_reservation(pod):
            return ReserveReason(Reason.MISCONFIGURED, f"the new {name} does not tolerate {RESERVED_TAINT}")
    unfit = _unfit(node, node.name)
    if unfit is not None:
        return ReserveReason(Reason.WITHDRAWN, unfit)
    if now >= given.until:
        return ReserveReason(Reason.EXPIRED, f"{name} did not come back to {node.name} in time")
    return None


def _unfit(node: Node | None, name: str) -> str | None:
    """Why no pod would be scheduled there anyway."""
    if node is None or node.deletion_at is not None:
        return f"{name} is gone"
    if node.unschedulable:
        return f"{name} is cordoned"
    if node.ready != "True":
        return f"{name} is not Ready"
    # Gone before the member is back. A cordon of Mooring's own is no such sign.
    return f"{name} is about to be taken away" if signals_of(node, DETECTORS, spot=False) else None


def _could_be_scheduled(pod: Pod, node: Node) -> bool:
    """Whoever writes a pod may name any node in it (`spec.nodeName`), past every taint and rule: where kube-scheduler
    would not have put it, its node is not kept for it. Room is what the kubelet judges: only one that ran was there."""
    rules = pod.shape.node_selector.items() <= node.labels.items() and matches(pod.shape.required_terms, node)
    taints = (taint for taint in node.taints if taint.key != RESERVED_TAINT)
    return rules and untolerated_of(taints, pod.shape.tolerations) is None


def _foreign(node: Node) -> bool:
    """A reservation without a mark that we can read: not ours to touch."""
    return reservation_on(node) is None and (has_reservation_taint(node) or RESERVED_TAINT in node.annotations)


def _taint_left(node: Node, pod_key: str) -> bool:
    taint = reservation_taint(pod_key.partition("/")[2])
    return RESERVED_TAINT not in node.annotations and bool(taint.value) and taint in node.taints


def _hold(running: OperatorRecord, node: Node, now: float) -> Instruction:
    operator, given = running.operator, reservation_of(running.operator)
    mark = Mark(
        operator=operator.id,
        source="home",
        reason=Reason.RESERVED,
        step=StepKind.RESERVE_NODE,
        since=now,
        pod=given.pod,
        pod_uid=given.uid,
        node=node.name,
        value=given.members,
        deadline=given.until,
    )
    taint = reservation_taint(subjects.key_of(given.pod).name)
    return EditTaints(
        node=node.name,
        uid=node.uid,
        add=(taint,),
        annotations={RESERVED_TAINT: write_mark(mark)},
        why=f"reserves the node of {given.pod}",
    )


def _release(node: Node, why: str) -> Instruction:
    return EditTaints(
        node=node.name,
        uid=node.uid,
        remove=(reservation_taint(""),),
        annotations={RESERVED_TAINT: None},
        why=f"gives it back: {why}",
    )


def _tell_expired(operator: Operator, over: ReserveReason, world: WorldRead, policy: HomePolicy) -> list[Instruction]:
    member_set = member_set_by_key(reservation_of(operator).members, world, policy)
    if member_set is None:
        return []
    return [
        EmitEvent(
            kind=member_set.kind,
            key=member_set.keeper.key,
            uid=member_set.keeper.uid,
            reason=Reason.EXPIRED,
            message=f"{over.detail}; its reservation was given up",
            warning=True,
        )
    ]
