"""Who holds which slot of each owner: pods that were seen, and pods that were admitted and are not seen yet.

An index of the world. The world shows it every change; admission alone writes to it (`reserve`), and code that decides
about workloads may read it. It is used only by the replica that answers the API server: `forget_all` when
the lease is lost.

```
           reserve                 the watch shows a pod with the token
  (none) ─────────▶ reserved ─────────────────────────────────────────────▶ held by the pod
                       │
                       ├── expire: 40 s old; a create request lives 34 s at most ─▶ (none)
                       └── reclaim: its owner asks for more than it may have, ─────▶ (none)
                           so it is trying again, and this one is 5 s old
```

A failed answer frees nothing: the pod may have been stored all the same. A pod that was refused later (by quota, by
policy) is never shown; without the last rule a ReplicaSet that keeps trying would take one slot per try.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from mooring.capabilities.mix.labels import RESERVATION
from mooring.capabilities.mix.policy import MixPolicy
from mooring.capabilities.mix.slots import SlotLedger, SlotPlace, class_changed
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Node, Pod
from mooring.core.model.events import Change, Trigger
from mooring.core.model.kinds import WORKLOADS, Kind
from mooring.core.world.read import WorldRead


class Reservation(msgspec.Struct, frozen=True, gc=False):
    token: str
    owner_uid: str
    slot: int
    node_class: NodeClass
    at: float
    #: It prefers on-demand instead of requiring it.
    relaxed: bool = False


class Reservations:
    __slots__ = ("_by_owner", "_by_token")

    def __init__(self) -> None:
        #: In order of time: all live equally long, so the oldest is always the first.
        self._by_token: dict[str, Reservation] = {}
        self._by_owner: dict[str, dict[str, Reservation]] = {}

    def __len__(self) -> int:
        return len(self._by_token)

    def get(self, token: str) -> Reservation | None:
        return self._by_token.get(token)

    def of(self, owner_uid: str) -> Iterator[Reservation]:
        """Oldest first."""
        return iter(tuple(self._by_owner.get(owner_uid, {}).values()))

    def add(self, reservation: Reservation) -> None:
        self._by_token[reservation.token] = reservation
        self._by_owner.setdefault(reservation.owner_uid, {})[reservation.token] = reservation

    def drop(self, token: str) -> Reservation | None:
        found = self._by_token.pop(token, None)
        if found is not None:
            mine = self._by_owner[found.owner_uid]
            del mine[token]
            if not mine:
                del self._by_owner[found.owner_uid]
        return found

    def older_than(self, owner_uid: str, at: float) -> list[Reservation]:
        """Of this owner, made at `at` or before."""
        found = []
        for reservation in self.of(owner_uid):
            if reservation.at > at:
                break
            found.append(reservation)
        return found

    def made_by(self, at: float) -> list[Reservation]:
        """Of all owners, made at `at` or before."""
        found = []
        for reservation in self._by_token.values():
            if reservation.at > at:
                break
            found.append(reservation)
        return found


#: A ledger that was not used for this long is built again when it is needed again.
_IDLE_S: Final = 300.0
_SWEEP_S: Final = 5.0


class BookWrite(msgspec.Struct, frozen=True, gc=False):
    """A write of admission to the book, for the recorder of what enters the engine."""

    verb: str
    owner_uid: str = ""
    at: float = 0.0
    reservation: Reservation | None = None


class KeptLedger(msgspec.Struct):
    ledger: SlotLedger
    used_at: float


def _not_recorded(_: BookWrite) -> None:
    """What is written is not recorded."""


class SlotBook:
    write_class = BookWrite
    observes: frozenset[object] = frozenset({Kind.POD, Kind.NODE, Kind.REPLICA_SET, *WORKLOADS})

    def __init__(self, policy: MixPolicy | None = None) -> None:
        self.policy = policy or MixPolicy()
        self._reservations = Reservations()
        self._ledgers: dict[str, KeptLedger] = {}
        self._swept_at = 0.0
        #: When an API server last asked about a pod of a workload that is switched on.
        self.asked_at = 0.0
        #: Told of every write of admission.
        self.written: Callable[[BookWrite], None] = _not_recorded

    def adopt(self, other: "SlotBook") -> None:
        """Reservations are nowhere else, so they stay; the classes of nodes may be others now."""
        self.policy = other.policy
        self._ledgers.clear()

    def kept(self) -> dict[str, object]:
        """What a checkpoint keeps."""
        return {name: getattr(self, name) for name in ("_reservations", "_ledgers", "_swept_at", "asked_at")}

    def restore(self, kept: Mapping[str, Any]) -> None:
        vars(self).update(kept)

    # ── Questions ─────────────────────────────────────────────────────────────────────────────────────────────

    def reserved(self, owner_uid: str, now: float) -> int:
        """How many pods of this owner were admitted and are not seen yet."""
        return sum(1 for r in self._reservations.of(owner_uid) if r.at > now - self.policy.reservation_s)

    def reservation(self, token: str) -> Reservation | None:
        return self._reservations.get(token)

    def reservations_of(self, owner_uid: str) -> Iterator[Reservation]:
        return self._reservations.of(owner_uid)

    def ledger(self, owner_uid: str) -> SlotLedger | None:
        """For explanations and checks; None: not used for this owner lately."""
        kept = self._ledgers.get(owner_uid)
        return None if kept is None else kept.ledger

    # ── Admission ─────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, owner_uid: str, world: WorldRead, now: float) -> SlotLedger:
        """The ledger of an owner, built from the world where it is not kept yet."""
        self.written(BookWrite("open", owner_uid, now))
        self.asked_at = now
        self._sweep(now)
        kept = self._ledgers.get(owner_uid)
        if kept is None:
            kept = self._ledgers[owner_uid] = KeptLedger(SlotLedger(), now)
            for pod in world.pods_owned_by(owner_uid):
                kept.ledger.put_pod(pod, world)
            for reservation in self._reservations.of(owner_uid):
                kept.ledger.put(reservation.token, _place(reservation))
        kept.used_at = now
        return kept.ledger

    def reserve(self, reservation: Reservation) -> None:
        self.written(BookWrite("reserve", reservation=reservation))
        self._reservations.add(reservation)
        self._ledgers[reservation.owner_uid].ledger.put(reservation.token, _place(reservation))

    def reclaim(self, owner_uid: str, now: float) -> None:
        """This owner tries again what was refused: its older reservations are dead."""
        self.written(BookWrite("reclaim", owner_uid, now))
        for dead in self._reservations.older_than(owner_uid, now - self.policy.reclaim_s):
            self._forget(dead)

    def forget(self, reservation: Reservation) -> None:
        self.written(BookWrite("forget", reservation=reservation))
        self._forget(reservation)

    def _forget(self, reservation: Reservation) -> None:
        self._reservations.drop(reservation.token)
        kept = self._ledgers.get(reservation.owner_uid)
        if kept is not None:
            kept.ledger.drop(reservation.token)

    def forget_all(self) -> None:
        """The lease is lost: the next leader counts again."""
        self.written(BookWrite("forget_all"))
        self._reservations = Reservations()
        self._ledgers.clear()

    def redo(self, write: BookWrite, world: WorldRead) -> None:
        """A recorded write, once more."""
        match write:
            case BookWrite(verb="open"):
                self.open(write.owner_uid, world, write.at)
            case BookWrite(verb="reclaim"):
                self.reclaim(write.owner_uid, write.at)
            case BookWrite(verb="reserve", reservation=Reservation() as made):
                self.reserve(made)
            case BookWrite(verb="forget", reservation=Reservation() as made):
                self.forget(made)
            case _:
                self.forget_all()

    def _sweep(self, now: float) -> None:
        for reservation in self._reservations.made_by(now - self.policy.reservation_s):
            self._forget(reservation)
        if now < self._swept_at + _SWEEP_S:
            return
        self._swept_at = now
        for uid in [uid for uid, kept in self._ledgers.items() if kept.used_at < now - _IDLE_S]:
            if not self.reserved(uid, now):
                del self._ledgers[uid]

    # ── Changes ───────────────────────────────────────────────────────────────────────────────────────────────

    def observe(self, trigger: Trigger, world: WorldRead) -> None:
        assert isinstance(trigger, Change)
        old, new = trigger.old, trigger.new
        if trigger.kind is Kind.POD:
            assert old is None or isinstance(old, Pod)
            assert new is None or isinstance(new, Pod)
            self._pod_changed(old, new, world)
        elif trigger.kind is Kind.NODE:
            if self._ledgers:
                assert old is None or isinstance(old, Node)
                assert new is None or isinstance(new, Node)
                self._node_changed(old, new, world)
        elif new is None and old is not None and self._ledgers.pop(old.uid, None) is not None:
            for reservation in self._reservations.of(old.uid):
                self._reservations.drop(reservation.token)

    def advance(self) -> bool:
        return False

    def _pod_changed(self, old: Pod | None, new: Pod | None, world: WorldRead) -> None:
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

    def _node_changed(self, old: Node | None, new: Node | None, world: WorldRead) -> None:
        """Pods without a class of their own count as that of their node."""
        node = new or old
        if node is None or (old and new and not class_changed(old, new, self.policy.capacity)):
            return
        for pod in world.pods_on(node.name):
            if pod.owner is not None and (kept := self._ledgers.get(pod.owner.uid)) is not None:
                kept.ledger.put_pod(pod, world)


def _place(reservation: Reservation) -> SlotPlace:
    return SlotPlace(reservation.slot, reservation.node_class is NodeClass.ON_DEMAND)
