"""Which pods of a workload are misplaced, which goes first, and what can be fixed without moving a pod.

Adopt first, restart last: a pod that was there before us gets its class from the node it runs on, by a label. Then
exactly the difference T(R) − a is moved, and no other pod. Where the count fits but slots do not follow the sequence
(a low slot was lost, the mode was changed), slots are written again: scale-down reads them, and no pod restarts.

    a < T   T − a of the spot ones go; their successors are admitted as on-demand
    a > T   a − T of the on-demand ones go (it saves money; can be switched off)
    a = T   only pods that are not where they belong: on-demand ones on spot, spot ones that fell back to on-demand
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from mooring.capabilities.mix.admission.book import SlotBook
from mooring.capabilities.mix.admission.decide import COST_BASE
from mooring.capabilities.mix.labels import AFFINITY, CONFLICT, DELETION_COST, RELAXED, RESERVATION, SLOT, slot_of
from mooring.capabilities.mix.rebalance.health import Health
from mooring.capabilities.mix.slots import class_of, ordinal_slot
from mooring.capabilities.mix.targets import Target
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Pod, Toleration
from mooring.core.model.instructions import Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason
from mooring.core.model.spelling import counted
from mooring.core.world.read import WorldRead

_YOUNG_S: Final = 600.0
_KNOWN: Final = (NodeClass.ON_DEMAND, NodeClass.SPOT)
#: What a person can do about node rules that contradict the mode.
CHANGE_RULES: Final = "change the node rules of its pod template, or its mode"


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A pod that may go, and where its successor belongs. `wanted` unknown: anywhere."""

    pod: Pod
    wanted: NodeClass
    reason: Reason
    detail: str


class MovePlan(msgspec.Struct, frozen=True, gc=False):
    #: T(R), and how many count as on-demand now.
    wanted: int
    have: int
    #: Pods that stand wrong, for the reason of the candidates.
    off_by: int = 0
    #: Who goes first; at most `off_by` of them will.
    candidates: tuple[Candidate, ...] = ()


def plan(health: Health, target: Target, world: WorldRead, *, to_spot: bool) -> MovePlan:
    """What is wrong with the classes of a workload that is not being changed."""
    return health.once((plan, target, to_spot), lambda: _plan(health, target, world, to_spot=to_spot))


def _plan(health: Health, target: Target, world: WorldRead, *, to_spot: bool) -> MovePlan:
    pods, wanted, have = health.pods, target.on_demand(health.wanted), health.on_demand
    if len(pods) != health.wanted:
        return MovePlan(wanted, have)  # pods are on their way in or out: their classes decide first
    if have < wanted:
        return _moves(health, target, world, NodeClass.ON_DEMAND, wanted, have)
    if have > wanted and to_spot:
        return _moves(health, target, world, NodeClass.SPOT, wanted, have)
    if health.exposed:
        stray = counted(len(health.exposed), "on-demand replica")
        detail = f"{stray} of {health.workload.name} on spot nodes"
        found = tuple(Candidate(p, NodeClass.ON_DEMAND, Reason.WRONG_CLASS, detail) for p in health.exposed)
        return MovePlan(wanted, have, len(health.exposed), found)
    return MovePlan(wanted, have)


def _moves(health: Health, target: Target, world: WorldRead, to: NodeClass, wanted: int, have: int) -> MovePlan:
    wrong = NodeClass.SPOT if to is NodeClass.ON_DEMAND else NodeClass.ON_DEMAND
    movable = [p for p in health.pods if CONFLICT not in p.annotations and class_of(p, world) is wrong]
    words = f"{target} wants {wanted} of {health.wanted} on on-demand, has {have}"
    found = (Candidate(pod, to, Reason.WRONG_CLASS, words) for pod in victims(movable, to, target, health, world))
    return MovePlan(wanted, have, abs(wanted - have), tuple(found))


def immovable(health: Health, world: WorldRead) -> tuple[Reason, str, str]:
    """Why no pod of a workload that is off its target can go: the reason, in words, and what would help."""
    tied = [pod for pod in health.pods if CONFLICT in pod.annotations]
    if tied:
        words = f"{counted(len(tied), 'pod')} tied to the other class: {tied[0].annotations[CONFLICT]}"
        return Reason.CONFLICT, words, CHANGE_RULES
    adrift = sorted({pod.node for pod in health.pods if pod.node and class_of(pod, world) not in _KNOWN})
    if adrift:
        words = f"the class of {adrift[0]}{f' and {len(adrift) - 1} more' if adrift[1:] else ''} is not known"
        return Reason.UNKNOWN, words, "label the nodes as spot or on-demand (mix.capacity.labels says how)"
    return Reason.SETTLING, "its pods have no node yet", ""


def victims(movable: list[Pod], to: NodeClass, target: Target, health: Health, world: WorldRead) -> list[Pod]:
    """The order of eviction: a pod that does not serve first, then the worst placed."""
    crowd: dict[str, int] = {}
    for pod in health.pods:
        crowd[pod.node] = crowd.get(pod.node, 0) + 1

    def order(pod: Pod) -> tuple[Any, ...]:
        slot = slot_of(pod)
        node = world.node(pod.node)
        return (
            bool(pod.node),
            pod.ready,
            not (node is not None and node.unschedulable),
            # In a StatefulSet the ordinal stays: take one that the sequence wants elsewhere.
            health.workload.kind == Kind.STATEFUL_SET and (slot is None or target.class_of(slot) is not to),
            -crowd[pod.node],
            -(slot if slot is not None else COST_BASE),
            -pod.created_at,
            pod.name,
        )

    return sorted(movable, key=order)


def starved(health: Health, now: float, shortage_s: float) -> list[Pod]:
    """Pods that we gave a class and that have found no node for too long."""
    return [
        pod
        for pod in health.unplaced
        if not pod.schedulable and carries_ours(pod) and now - pod.created_at >= shortage_s
    ]


def stuck(waiting: list[Pod], tolerations: tuple[Toleration, ...]) -> list[Pod]:
    """Those of the starved that would find a node if they were recreated: tied to on-demand, or relaxed without what
    spot pods tolerate."""
    return [
        pod
        for pod in waiting
        if pod.labels[AFFINITY] == NodeClass.ON_DEMAND.value
        and (RELAXED not in pod.annotations or not set(tolerations) <= set(pod.shape.tolerations))
    ]


def is_repaired(health: Health, book: SlotBook, now: float) -> bool:
    """Some were created not long ago without our webhook (no replica led), and API servers reach us again: they have
    hardly served yet, so their workload is put right as quickly as its own maxUnavailable and its budgets allow."""
    alone = health.alone_at
    return alone is not None and now - alone < _YOUNG_S and book.asked_at > alone


def carries_ours(pod: Pod) -> bool:
    """Admitted by us: its spec has our affinity, which only a new pod can be without."""
    return AFFINITY in pod.labels and RESERVATION in pod.annotations


# ── Without moving a pod ──────────────────────────────────────────────────────────────────────────────────────────


def fix_slots(health: Health, target: Target, world: WorldRead) -> list[Patch]:
    """Adopt the unmarked, and write slots again where the count fits and they do not. Nothing restarts."""
    return health.once((fix_slots, target), lambda: _fixed_slots(health, target, world))


def _fixed_slots(health: Health, target: Target, world: WorldRead) -> list[Patch]:
    if _in_order(health.pods, target):
        return []
    patches: list[Patch] = []
    by_owner: dict[str, list[Pod]] = {}
    for pod in health.pods:
        if pod.owner is not None:
            by_owner.setdefault(pod.owner.uid, []).append(pod)
    settled = len(by_owner) == 1 and len(health.pods) == health.wanted
    for pods in by_owner.values():
        if health.workload.kind == Kind.STATEFUL_SET:
            # One that is no longer counted is on its way out: nothing is written on it.
            ordinals = {pod.uid: ordinal_slot(pod.name, health.workload) for pod in pods}
            slots = {uid: slot for uid, slot in ordinals.items() if slot is not None}
        else:
            slots = _slots(pods, target, world, settled=settled)
        for pod in pods:
            if pod.uid not in slots:
                continue
            patch = _fixed_slot(pod, slots[pod.uid], world, stateful=health.workload.kind == Kind.STATEFUL_SET)
            if patch is not None:
                patches.append(patch)
    return patches


def _in_order(pods: tuple[Pod, ...], target: Target) -> bool:
    """Every slot from 0 on held once, by a pod of its class: nothing to write. True of most workloads."""
    seen: set[str | None] = set()
    wanted = _wanted(target, len(pods))
    for pod in pods:
        slot = pod.annotations.get(SLOT)
        if wanted.get(slot) != pod.shape.labels.get(AFFINITY, ""):
            return False
        seen.add(slot)
    return len(seen) == len(pods)


@lru_cache(maxsize=2048)
def _wanted(target: Target, count: int) -> Mapping[str | None, str]:
    """The first slots, as they are written, and their classes; few pairs of mode and size make up a whole cluster."""
    return {str(slot): target.class_of(slot).value for slot in range(count)}


def _slots(pods: list[Pod], target: Target, world: WorldRead, *, settled: bool) -> dict[str, int]:
    """The slot each pod should have: its own where that is right, else the lowest free one of its class."""
    classes = {pod.uid: class_of(pod, world) for pod in pods}
    have = sum(c is NodeClass.ON_DEMAND for c in classes.values())
    exact = settled and have == target.on_demand(len(pods))
    order = sorted(pods, key=lambda p: (slot_of(p) is None, slot_of(p) or 0, p.created_at, p.name))
    given: dict[str, int] = {}
    taken: set[int] = set()
    for pod in order:
        slot = slot_of(pod)
        if slot is None or slot in taken or (settled and slot >= len(pods)):
            continue
        if exact and target.class_of(slot) is not classes[pod.uid]:
            continue
        given[pod.uid] = slot
        taken.add(slot)
    free = FreeSlots(taken, target, len(pods))
    for pod in order:
        if pod.uid not in given:
            given[pod.uid] = free.take(classes[pod.uid])
    return given


class FreeSlots:
    """The slots without a pod, lowest first, by class. Each is looked at once, however many are asked for."""

    def __init__(self, taken: set[int], target: Target, count: int) -> None:
        self._taken = set(taken)
        self._beyond = count
        classes = _wanted(target, count)
        free = [slot for slot in range(count) if slot not in taken]
        self._of_class = {c: iter([s for s in free if classes[str(s)] == c.value]) for c in _KNOWN}
        self._any = iter(free)

    def take(self, wanted: NodeClass) -> int:
        """The lowest of this class, else the lowest of all, else one beyond the count."""
        for slots in (self._of_class.get(wanted, iter(())), self._any):
            for slot in slots:
                if slot not in self._taken:
                    self._taken.add(slot)
                    return slot
        while self._beyond in self._taken:
            self._beyond += 1
        self._taken.add(self._beyond)
        return self._beyond


def _fixed_slot(pod: Pod, slot: int, world: WorldRead, *, stateful: bool) -> Patch | None:
    """The patch that writes class, slot and deletion cost where they are not as they should be."""
    node_class = world.node_class(pod.node)
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    if AFFINITY not in pod.labels:
        if node_class not in _KNOWN or CONFLICT in pod.annotations:
            return None
        labels[AFFINITY] = node_class.value
    before = slot_of(pod)
    if before != slot:
        annotations[SLOT] = str(slot)
        # A cost that a person set is kept.
        cost = pod.annotations.get(DELETION_COST)
        if not stateful and (cost is None or (before is not None and cost == str(COST_BASE - before))):
            annotations[DELETION_COST] = str(COST_BASE - slot)
    if not labels and not annotations:
        return None
    metadata: dict[str, Mapping[str, str]] = {}
    if labels:
        metadata["labels"] = labels
    if annotations:
        metadata["annotations"] = annotations
    why = f"adopted as {labels[AFFINITY]}, slot {slot}" if labels else f"slot {before} becomes {slot}"
    return Patch(kind=Kind.POD, key=pod.key, uid=pod.uid, patch={"metadata": metadata}, why=why)


def unmark(pod: Pod) -> Patch:
    """Take our labels off a pod that was adopted: it never carried our affinity."""
    gone = {key: None for key in (SLOT, CONFLICT, RELAXED) if key in pod.annotations}
    slot = slot_of(pod)
    if slot is not None and pod.annotations.get(DELETION_COST) == str(COST_BASE - slot):
        gone[DELETION_COST] = None
    metadata = {"labels": {AFFINITY: None}, "annotations": gone}
    return Patch(kind=Kind.POD, key=pod.key, uid=pod.uid, patch={"metadata": metadata}, why="no longer managed")
