"""Who holds which slot of one owner, and which class the next pod gets.

An owner is a ReplicaSet (so every revision of a Deployment has slots of its own) or a StatefulSet (slot = ordinal −
start). Slots are held by active pods and by reservations for pods that were admitted and not yet seen. A free slot is
refilled lowest first.

The class of a pod is that of its slot. Only when the others are off their sequence (the mode was changed, a pod was
admitted while we were away) it is the one that brings the owner back to T(R):

    on-demand  iff  on-demand among the others  <  on-demand slots among theirs and this one

which needs no replica count, so a stale one cannot mislead it. Pods without a slot (older than us) fill the count,
not a slot: while there are any, T(R) decides directly.
"""

import heapq
from collections.abc import Iterator
from typing import Final

import msgspec

from mooring.capabilities.mix.labels import AFFINITY, CONFLICT, slot_of
from mooring.capabilities.mix.targets import Target
from mooring.core.model.capacity import CapacityRules, NodeClass
from mooring.core.model.cluster import Node, Owner, Pod, Workload
from mooring.core.model.kinds import POD_OWNERS, RESOURCES, Kind
from mooring.core.world.read import WorldRead

#: No owner has more: a slot beyond it is a typing mistake, not a replica.
LAST_SLOT: Final = 99_999
#: By the label.
GIVEN: Final = {NodeClass.ON_DEMAND.value: NodeClass.ON_DEMAND, NodeClass.SPOT.value: NodeClass.SPOT}


def class_of(pod: Pod, world: WorldRead) -> NodeClass:
    """The class a pod counts as: the one it was given, else that of its node (`unknown` while it has none)."""
    given = GIVEN.get(pod.shape.labels.get(AFFINITY, ""))
    if given is not None and CONFLICT not in pod.annotations:
        return given
    return world.node_class(pod.node)


def class_changed(before: Node, after: Node, rules: CapacityRules) -> bool:
    """The label that says spot or on-demand was changed: pods that count by their node count differently."""
    return before.labels is not after.labels and rules.class_of(before.labels) is not rules.class_of(after.labels)


class Managing(msgspec.Struct, frozen=True, gc=False):
    """The workload behind a pod, and the owner whose slots count: itself, or one ReplicaSet of it."""

    owner_uid: str
    workload: Workload
    #: What the owner, not the workload, wants: during a rollout a ReplicaSet wants fewer.
    replicas: int

    @property
    def stateful(self) -> bool:
        return self.workload.kind == Kind.STATEFUL_SET


class NotOurs(msgspec.Struct, frozen=True, gc=False):
    """A bare pod, a Job, a DaemonSet, a ReplicaSet without an owner."""


class NotSeen(msgspec.Struct, frozen=True, gc=False):
    """The owner is not in the world yet: the watch will bring it."""

    what: str


NOT_OURS: Final = NotOurs()
#: The workloads that have ReplicaSets.
_ABOVE: Final = frozenset({Kind.DEPLOYMENT, Kind.ROLLOUT})
_BUILT_IN: Final = frozenset({Kind.DEPLOYMENT, Kind.STATEFUL_SET})


def managing(owner: Owner | None, world: WorldRead) -> Managing | NotOurs | NotSeen:
    """By uid, never by name: delete and recreate under the same name is common."""
    if owner is None:
        return NOT_OURS
    if owner.kind != Kind.REPLICA_SET or not owner.api_version.startswith("apps/"):
        found = _workload_above(owner, world, POD_OWNERS)
        return found if not isinstance(found, Workload) else Managing(owner.uid, found, _most(found))
    replica_set = world.replica_set(owner.uid)
    if replica_set is None:
        return NotSeen(f"ReplicaSet {owner.name}")
    found = _workload_above(replica_set.owner, world, _ABOVE)
    return found if not isinstance(found, Workload) else Managing(owner.uid, found, replica_set.replicas)


def _workload_above(owner: Owner | None, world: WorldRead, kinds: frozenset[Kind]) -> Workload | NotOurs | NotSeen:
    """Of these kinds, in their own API group: others have kinds of the same name."""
    kind = next((kind for kind in kinds if owner is not None and kind == owner.kind), None)
    if owner is None or kind is None or not owner.api_version.startswith(f"{RESOURCES[kind].group}/"):
        return NOT_OURS
    found = world.workload_by_uid(owner.uid)
    if found is not None:
        return found
    return NotSeen(f"{kind} {owner.name}") if kind in _BUILT_IN or world.synced(kind) else NOT_OURS


def _most(workload: Workload) -> int:
    """A CloneSet that is rolled out has pods of both revisions, and its surge."""
    rolls = workload.current_revision != workload.update_revision and workload.kind == Kind.CLONE_SET
    return workload.replicas + (workload.max_surge if rolls else 0)


def ordinal_of(name: str) -> int | None:
    """The ordinal in the name of a StatefulSet's pod; with `ordinals.start` it may be any 32-bit number."""
    text = name.rpartition("-")[2]
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None


def ordinal_slot(name: str, stateful_set: Workload) -> int | None:
    """None: not one of its replicas, or no longer (its `ordinals.start` was raised)."""
    ordinal = ordinal_of(name)
    slot = -1 if ordinal is None else ordinal - stateful_set.ordinals_start
    return slot if 0 <= slot <= LAST_SLOT else None


class SlotPlace(msgspec.Struct, frozen=True, gc=False):
    """`slot` None: it counts, and holds no slot."""

    slot: int | None
    on_demand: bool


class SlotLedger:
    """The slots of one owner. Holders are pod uids and reservation tokens; every change costs O(log n)."""

    __slots__ = ("_aim", "_due", "_free", "_holders", "_next", "_on_demand", "_places", "_unslotted")

    def __init__(self) -> None:
        self._places: dict[str, SlotPlace] = {}
        self._holders: dict[int, list[str]] = {}
        #: Slots below `_next` that were freed, as a heap; may also hold some that were taken since.
        self._free: list[int] = []
        #: Slots below were held when they were looked at. A pod may name any slot, so nothing is kept per free one.
        self._next = 0
        self._on_demand = 0
        self._unslotted = 0
        #: The target by which `_due` was counted: on-demand slots among the held ones.
        self._aim: Target | None = None
        self._due = 0

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, holder: str) -> bool:
        return holder in self._places

    def __iter__(self) -> Iterator[tuple[str, SlotPlace]]:
        return iter(self._places.items())

    @property
    def on_demand(self) -> int:
        return self._on_demand

    def held(self) -> dict[int, list[str]]:
        """Slot → its holders. More than one means that a slot was given twice."""
        return {slot: list(holders) for slot, holders in self._holders.items()}

    # ── Changes ───────────────────────────────────────────────────────────────────────────────────────────────

    def put_pod(self, pod: Pod, world: WorldRead) -> None:
        """As observed now; a pod that is no longer active holds nothing, though it may take a while to leave."""
        if pod.active:
            self.put(pod.uid, SlotPlace(slot_of(pod), class_of(pod, world) is NodeClass.ON_DEMAND))
        else:
            self.drop(pod.uid)

    def put(self, holder: str, place: SlotPlace) -> None:
        if self._places.get(holder) == place:
            return
        self.drop(holder)
        self._places[holder] = place
        self._on_demand += place.on_demand
        slot = place.slot
        if slot is None:
            self._unslotted += 1
            return
        holders = self._holders.get(slot)
        if holders is not None:
            holders.append(holder)
            return
        self._holders[slot] = [holder]
        self._due += self._is_due(slot)

    def drop(self, holder: str) -> None:
        place = self._places.pop(holder, None)
        if place is None:
            return
        self._on_demand -= place.on_demand
        slot = place.slot
        if slot is None:
            self._unslotted -= 1
            return
        holders = self._holders[slot]
        holders.remove(holder)
        if not holders:
            del self._holders[slot]
            self._due -= self._is_due(slot)
            if slot < self._next:
                heapq.heappush(self._free, slot)

    # ── Answers ───────────────────────────────────────────────────────────────────────────────────────────────

    def lowest_free(self) -> int:
        while self._free and self._free[0] in self._holders:
            heapq.heappop(self._free)
        if self._free:
            return self._free[0]
        while self._next in self._holders:
            self._next += 1
        return self._next

    def choose(self, slot: int, target: Target, replicas: int) -> NodeClass:
        """The class of the pod about to take `slot`. The pod that has it now (its predecessor) does not count."""
        if target != self._aim:
            self._aim = target
            self._due = sum(self._is_due(held) for held in self._holders)
        mine = self._holders.get(slot, ())
        others, on_demand = len(self._places) - len(mine), self._on_demand
        on_demand -= sum(self._places[holder].on_demand for holder in mine)
        by_sequence = target.class_of(slot)
        if not self._unslotted:
            due = self._due if mine else self._due + (by_sequence is NodeClass.ON_DEMAND)
            return NodeClass.ON_DEMAND if on_demand < due else NodeClass.SPOT
        total = max(replicas, others + 1)
        short, still_to_come = target.on_demand(total) - on_demand, total - others - 1
        if short <= 0:
            return NodeClass.SPOT
        return NodeClass.ON_DEMAND if short > still_to_come else by_sequence

    def _is_due(self, slot: int) -> bool:
        return self._aim is not None and self._aim.class_of(slot) is NodeClass.ON_DEMAND
