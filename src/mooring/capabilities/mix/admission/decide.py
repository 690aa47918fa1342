"""The class of a pod that is about to be created: decided from the world and from reservations, in microseconds.

    request ──► whose pod? ──► is it switched on? ──► lowest free slot ──► its class ──► a patch, and a reservation
                    │                                      │
                    │ owner not seen yet                   │ more than the owner may have
                    ▼                                      ▼
                  Wait: ask again when the watch has moved, at last with `patient=False`

Hundreds of requests for one owner arrive before the watch shows the first pod, so counting pods is not enough: what
was answered is remembered as a reservation until the pod is seen (`reservations.py`). No answer calls anybody: what
is not known is not waited for longer than the caller allows, and then the pod is admitted as it came. Nothing here
ever refuses a pod.

`observe` must be told of every change of the world right after it happened; the ledgers live by it.
"""

from typing import Final

import msgspec

from mooring.capabilities.mix.admission.affinity import Conflict, prefer, require, tolerate
from mooring.capabilities.mix.admission.patching import Operation, entries
from mooring.capabilities.mix.admission.reservations import Reservation, Reservations
from mooring.capabilities.mix.admission.reviews import PodObject, PodRequest
from mooring.capabilities.mix.labels import (
    AFFINITY,
    CONFLICT,
    DELETION_COST,
    RELAXED,
    RESERVATION,
    SLOT,
    Managed,
    Misconfigured,
    wish_of,
)
from mooring.capabilities.mix.policy import MixPolicy
from mooring.capabilities.mix.slots import (
    Ledger,
    Managing,
    NotOurs,
    NotSeen,
    Place,
    class_changed,
    managing,
    ordinal_slot,
)
from mooring.capabilities.mix.targets import Target
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Key, Node, Pod, Workload
from mooring.core.model.events import Change
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason
from mooring.core.world.read import WorldRead

#: Without these, absence means nothing.
NEEDS: Final = (Kind.POD, Kind.NODE, Kind.REPLICA_SET, Kind.DEPLOYMENT, Kind.STATEFUL_SET)
#: Minus the slot: who holds a high slot goes first when a ReplicaSet shrinks, and the split stays exact.
COST_BASE: Final = 10_000
#: What we write on pods; on one that carries it without our knowledge it is somebody's copy.
_MARKERS: Final = (SLOT, RESERVATION, CONFLICT, RELAXED)
#: A ledger that nobody asked for this long is built anew when it is needed again.
_IDLE_S: Final = 300.0
_SWEEP_S: Final = 5.0


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


class _Kept(msgspec.Struct):
    ledger: Ledger
    used_at: float


class Admission:
    def __init__(self, policy: MixPolicy | None = None) -> None:
        self.policy = policy or MixPolicy()
        self._default = self.policy.deployment_target
        self._tolerations = self.policy.tolerations
        self._reservations = Reservations()
        self._ledgers: dict[str, _Kept] = {}
        #: Workload uid → until when its on-demand pods only prefer.
        self._relaxed: dict[str, float] = {}
        self._swept_at = 0.0

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
        wish = wish_of(found.workload, self._default)
        if not isinstance(wish, Managed):
            reason = Reason.MISCONFIGURED if isinstance(wish, Misconfigured) else Reason.NOT_MANAGED
            return Decision(reason, str(wish) if reason is Reason.MISCONFIGURED else "", workload=found.workload)
        return self._place(request, pod, found, wish.target, world, now, token, patient=patient)

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
        self._sweep(now)
        ledger = self._ledger(found.owner_uid, world, now)
        again = self._reservations.get((pod.metadata.annotations or {}).get(RESERVATION, ""))
        if again is not None and again.owner_uid == found.owner_uid:
            # Another webhook changed the pod after us: the same place again, and only what is missing of it.
            return self._answer(pod, found, again)
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
                for dead in self._reservations.older_than(found.owner_uid, now - self.policy.reclaim_s):
                    self._forget(dead)
            slot = ledger.lowest_free()
        node_class = ledger.choose(slot, target, found.replicas)
        relaxed = node_class is NodeClass.ON_DEMAND and self._relaxed.get(found.workload.uid, 0.0) > now
        reservation = Reservation(token, found.owner_uid, slot, node_class, now, relaxed=relaxed)
        decision = self._answer(pod, found, reservation)
        if decision.slot is not None and not request.dry_run:
            if found.stateful:
                # There is only ever one pod of this name: an earlier answer for it came to nothing.
                for earlier in [r for r in self._reservations.of(found.owner_uid) if r.slot == slot]:
                    self._forget(earlier)
            self._reservations.add(reservation)
            ledger.put(token, Place(slot, node_class is NodeClass.ON_DEMAND))
        return decision

    def _answer(self, pod: PodObject, found: Managing, place: Reservation) -> Decision:
        rules, capacity, meta = pod.spec, self.policy.capacity, pod.metadata
        on_demand = place.node_class is NodeClass.ON_DEMAND
        if on_demand and not place.relaxed:
            bound = require(rules, capacity)
            if isinstance(bound, Conflict):
                return _conflict(pod, found, bound)
            operations = bound
        else:
            operations = prefer(rules, capacity, place.node_class)
        if not on_demand:
            operations += tolerate(rules, self._tolerations)
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

    # ── What others ask ───────────────────────────────────────────────────────────────────────────────────────

    def reserved(self, owner_uid: str, now: float) -> int:
        """How many pods of this owner were admitted and are not seen yet."""
        return sum(1 for r in self._reservations.of(owner_uid) if r.at > now - self.policy.reservation_s)

    def relax(self, workload_uid: str, until: float) -> None:
        """On-demand is full: until then, this workload's on-demand pods prefer it instead of requiring it."""
        self._relaxed[workload_uid] = until

    def relaxed(self, workload_uid: str, now: float) -> bool:
        return self._relaxed.get(workload_uid, 0.0) > now

    def ledger(self, owner_uid: str) -> Ledger | None:
        """For explanations and checks; None: nobody has asked for this owner lately."""
        kept = self._ledgers.get(owner_uid)
        return None if kept is None else kept.ledger

    # ── Changes ───────────────────────────────────────────────────────────────────────────────────────────────

    def observe(self, change: Change, world: WorldRead) -> None:
        """The world has just changed so."""
        if change.kind is Kind.POD:
            old, new = change.old, change.new
            assert old is None or isinstance(old, Pod)
            assert new is None or isinstance(new, Pod)
            if len(self._reservations) and new is not None and RESERVATION in new.annotations:
                seen = self._reservations.get(new.annotations[RESERVATION])
                if seen is not None:
                    self._forget(seen)
            if not self._ledgers:
                return
            owner = new.owner.uid if new is not None and new.owner is not None else ""
            if old is not None and old.owner is not None and old.owner.uid != owner:
                # Gone, or released by its owner.
                kept = self._ledgers.get(old.owner.uid)
                if kept is not None:
                    kept.ledger.drop(old.uid)
            if new is not None and (kept := self._ledgers.get(owner)) is not None:
                kept.ledger.put_pod(new, world)
        elif change.kind is Kind.NODE:
            if self._ledgers:
                assert change.old is None or isinstance(change.old, Node)
                assert change.new is None or isinstance(change.new, Node)
                self._node_changed(change.old, change.new, world)
        elif change.new is None and change.old is not None:
            uid = change.old.uid
            if self._ledgers.pop(uid, None) is not None:
                for reservation in self._reservations.of(uid):
                    self._reservations.drop(reservation.token)
            self._relaxed.pop(uid, None)

    def _node_changed(self, old: Node | None, new: Node | None, world: WorldRead) -> None:
        """Pods without a class of their own count as that of their node."""
        node = new or old
        if node is None or (old and new and not class_changed(old, new, self.policy.capacity)):
            return
        for pod in world.pods_on(node.name):
            if pod.owner is not None and (kept := self._ledgers.get(pod.owner.uid)) is not None:
                kept.ledger.put_pod(pod, world)

    def forget_all(self) -> None:
        """The lease is lost: whoever leads next counts anew."""
        self._reservations = Reservations()
        self._ledgers.clear()
        self._relaxed.clear()

    def _ledger(self, owner_uid: str, world: WorldRead, now: float) -> Ledger:
        kept = self._ledgers.get(owner_uid)
        if kept is None:
            kept = self._ledgers[owner_uid] = _Kept(Ledger(), now)
            for pod in world.pods_owned_by(owner_uid):
                kept.ledger.put_pod(pod, world)
            for reservation in self._reservations.of(owner_uid):
                kept.ledger.put(
                    reservation.token, Place(reservation.slot, reservation.node_class is NodeClass.ON_DEMAND)
                )
        kept.used_at = now
        return kept.ledger

    def _forget(self, reservation: Reservation) -> None:
        self._reservations.drop(reservation.token)
        kept = self._ledgers.get(reservation.owner_uid)
        if kept is not None:
            kept.ledger.drop(reservation.token)

    def _sweep(self, now: float) -> None:
        for reservation in self._reservations.made_by(now - self.policy.reservation_s):
            self._forget(reservation)
        if now < self._swept_at + _SWEEP_S:
            return
        self._swept_at = now
        for uid in [uid for uid, kept in self._ledgers.items() if kept.used_at < now - _IDLE_S]:
            if not self.reserved(uid, now):
                del self._ledgers[uid]
        self._relaxed = {uid: until for uid, until in self._relaxed.items() if until > now}


def _conflict(pod: PodObject, found: Managing, conflict: Conflict) -> Decision:
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
