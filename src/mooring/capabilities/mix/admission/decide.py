"""The class of a pod that is about to be created: decided from the world and from reservations, in microseconds.

    request ──► whose pod? ──► is it switched on? ──► lowest free slot ──► its class ──► a patch, and a reservation
                    │                                      │
                    │ owner not seen yet                   │ more than the owner may have
                    ▼                                      ▼
                  Wait: ask again when the watch has moved, at last with `patient=False`

Hundreds of requests for one owner arrive before the watch shows the first pod, so counting pods is not enough: what
was answered is remembered as a reservation until the pod is seen (`book.py`). An answer needs no call to
another process: what is not known is not waited for longer than the caller allows, and then the pod is admitted
unchanged. Nothing here ever refuses a pod.
"""

from typing import Final

import msgspec

from mooring.capabilities.mix import memory
from mooring.capabilities.mix.admission.affinity import AffinityConflict, Operation, entries, prefer, require, tolerate
from mooring.capabilities.mix.admission.book import Reservation, SlotBook
from mooring.capabilities.mix.admission.reviews import PodObject, PodRequest
from mooring.capabilities.mix.labels import (
    AFFINITY,
    CONFLICT,
    DELETION_COST,
    LEFT_OUT,
    RELAXED,
    RESERVATION,
    SLOT,
    Managed,
    Misconfigured,
)
from mooring.capabilities.mix.policy import MixPolicy
from mooring.capabilities.mix.schemes import Schemes
from mooring.capabilities.mix.slots import Managing, NotOurs, NotSeen, managing, ordinal_slot
from mooring.capabilities.mix.targets import Target
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Key, Workload
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason
from mooring.core.world.read import WorldRead

#: Without these, absence means nothing.
NEEDS: Final = (Kind.POD, Kind.NODE, Kind.REPLICA_SET, Kind.DEPLOYMENT, Kind.STATEFUL_SET)
#: Minus the slot: who holds a high slot goes first when a ReplicaSet shrinks, and the split stays exact.
COST_BASE: Final = 10_000
#: What we write on pods; on a pod that Mooring did not admit it is a copy.
_MARKERS: Final = (SLOT, RESERVATION, CONFLICT, RELAXED)


class Decision(msgspec.Struct, frozen=True):
    """The answer to one request. No operations: admitted as it came."""

    reason: Reason
    detail: str = ""
    operations: list[Operation] = []
    warnings: tuple[str, ...] = ()
    slot: int | None = None
    node_class: NodeClass | None = None
    workload: Workload | None = None


class Wait(msgspec.Struct, frozen=True):
    """Not yet: ask again when the world has changed."""

    what: str


class MixAdmission:
    """`book` belongs to the world whose pods it counts; `namespace` is where Mix keeps its memory."""

    def __init__(self, policy: MixPolicy, book: SlotBook, namespace: str = "mooring-system") -> None:
        self.book = book
        self._memory = memory.key(namespace)
        self._left_out = frozenset({namespace, LEFT_OUT})
        self.follow(policy)

    def follow(self, policy: MixPolicy) -> None:
        """Decide by this policy from now on."""
        self.policy = policy

    # ── One request ───────────────────────────────────────────────────────────────────────────────────────────

    def decide(
        self, request: PodRequest, world: WorldRead, now: float, token: str, *, patient: bool = True
    ) -> Decision | Wait:
        """`token`: random, for this request alone. With `patient=False` the answer is never Wait."""
        pod = request.object
        if pod is None or request.operation != "CREATE" or request.sub_resource or pod.spec.node_name:
            return Decision(Reason.NOT_MANAGED)
        owner = pod.controller
        if owner is None:
            return Decision(Reason.NOT_MANAGED)
        if not world.synced(*NEEDS):
            return Decision(Reason.NOT_SYNCED, "the world is not complete yet")
        found = managing(owner, world)
        if isinstance(found, NotOurs):
            return Decision(Reason.NOT_MANAGED)
        if isinstance(found, NotSeen):
            return Wait(found.what) if patient else Decision(Reason.UNKNOWN, f"{found.what} has not been seen yet")
        if found.workload.namespace != request.namespace:
            # An owner's UID is no secret and can be forged; an owner owns pods of its own namespace only.
            return Decision(Reason.NOT_MANAGED)
        management = self.policy.management_of(found.workload, self._left_out)
        if not isinstance(management, Managed):
            reason = Reason.MISCONFIGURED if isinstance(management, Misconfigured) else Reason.NOT_MANAGED
            return Decision(reason, str(management) if reason is Reason.MISCONFIGURED else "", workload=found.workload)
        return self._place(request, pod, found, management.target, world, now, token, patient=patient)

    def _place(
        self,
        request: PodRequest,
        pod: PodObject,
        found: Managing,
        target: Target,
        world: WorldRead,
        now: float,
        token: str,
        *,
        patient: bool,
    ) -> Decision | Wait:
        ledger = self.book.open(found.owner_uid, world, now)
        again = self.book.reservation((pod.metadata.annotations or {}).get(RESERVATION, ""))
        if again is not None and again.owner_uid == found.owner_uid:
            # Another webhook changed the pod after us: the same place again, and only what is missing of it.
            return self._answer(pod, found, again, world)
        if found.stateful:
            name = request.name or pod.metadata.name
            ordinal = ordinal_slot(name, found.workload)
            if ordinal is None:
                return Decision(Reason.UNKNOWN, f"{name} has no ordinal of its set", workload=found.workload)
            slot = ordinal
        else:
            if len(ledger) >= found.replicas:
                # No ReplicaSet has more pods than it wants: a pod went, or it was scaled, and the watch is behind; a
                # slot beyond the last one would be of the wrong class. Or it tries again what was refused.
                if patient:
                    return Wait(f"replicas of {found.workload.name}")
                self.book.reclaim(found.owner_uid, now)
            slot = ledger.lowest_free()
        node_class = ledger.choose(slot, target, found.replicas)
        relaxed = node_class is NodeClass.ON_DEMAND and self._is_relaxed(found.workload, world, now)
        reservation = Reservation(token, found.owner_uid, slot, node_class, now, relaxed=relaxed)
        decision = self._answer(pod, found, reservation, world)
        if decision.slot is not None and not request.dry_run:
            if found.stateful:
                # There is only ever one pod of this name: an earlier answer for it came to nothing.
                for earlier in [r for r in self.book.reservations_of(found.owner_uid) if r.slot == slot]:
                    self.book.forget(earlier)
            self.book.reserve(reservation)
        return decision

    def _is_relaxed(self, workload: Workload, world: WorldRead, now: float) -> bool:
        """On-demand was full not long ago: its on-demand pods prefer it instead of requiring it."""
        return memory.read(world.config_map(self._memory), workload.uid).relaxed_until > now

    def _answer(self, pod: PodObject, found: Managing, place: Reservation, world: WorldRead) -> Decision:
        rules, schemes, meta = pod.spec, world.index(Schemes), pod.metadata
        on_demand = place.node_class is NodeClass.ON_DEMAND
        if on_demand and not place.relaxed:
            bound = require(rules, schemes.written)
            if isinstance(bound, AffinityConflict):
                return _conflict(pod, found, bound)
            operations = bound
        else:
            operations = prefer(rules, schemes.written, place.node_class)
        if not on_demand or place.relaxed:
            operations += tolerate(rules, schemes.tolerations)
        annotations = {SLOT: str(place.slot), RESERVATION: place.token}
        if place.relaxed:
            annotations[RELAXED] = "true"
        if not found.stateful and DELETION_COST not in (meta.annotations or {}):
            annotations[DELETION_COST] = str(COST_BASE - place.slot)
        operations += entries("/metadata/labels", meta.labels, {AFFINITY: place.node_class.value})
        operations += entries("/metadata/annotations", meta.annotations, annotations, _MARKERS)
        return Decision(
            Reason.SLOT, "", operations, slot=place.slot, node_class=place.node_class, workload=found.workload
        )


def _conflict(pod: PodObject, found: Managing, conflict: AffinityConflict) -> Decision:
    """Left where its own rules want it; the mark says so, and it counts by the node it gets."""
    meta = pod.metadata
    workload = found.workload
    if meta.labels is not None and AFFINITY in meta.labels:
        operations = entries("/metadata/labels", meta.labels, {}, (AFFINITY,))
    else:
        operations = []
    operations += entries("/metadata/annotations", meta.annotations, {CONFLICT: conflict.why}, _MARKERS)
    words = f"{workload.kind} {Key(workload.namespace, workload.name)}: a pod is not placed, {conflict.why}"
    return Decision(Reason.CONFLICT, conflict.why, operations, warnings=(words,), workload=workload)
