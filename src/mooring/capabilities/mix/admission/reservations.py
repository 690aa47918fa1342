"""Slots kept for pods that were admitted and not yet seen.

```
           reserve                 the watch shows a pod with the token
  (none) ─────────▶ reserved ─────────────────────────────────────────▶ (none): the pod holds the slot itself
                       │
                       ├── expire: 40 s old; a create request lives 34 s at most ─▶ (none)
                       └── reclaim: its owner asks for more than it may have, ─────▶ (none)
                           so it is trying again, and this one is 5 s old
```

A failed answer frees nothing: the pod may have been stored all the same. A pod that was refused later (by quota, by
policy) is never shown; without the last rule a ReplicaSet that keeps trying would take one slot per try.
"""

from collections.abc import Iterator

import msgspec

from mooring.core.model.capacity import NodeClass


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
