"""What we have asked for and not yet seen: the gap between a write and its echo on the watch.

```
             assume                     the watch shows it (confirm)
   (none) ───────────▶ assumed ─────────────────────────────────────▶ (none)
                        │   ▲ │
                        │   └─┘ assume again: the newer one counts
                        │
                        ├───── forget: the request was refused ──────▶ (none)
                        └───── expire: `now` has reached expires_at ─▶ (none), reported, so that somebody looks again
```

An assumption only ever makes us more careful (a pod counts as leaving, a place as taken), and never outlives its
expiry: losing the echo costs time, not truth. Times are the caller's; this module knows no clock.

Confirmed means: for a deletion, the pod is terminating, ended or gone; for a placement, the pod has a node (whichever
it is: what is observed beats what was assumed) or is gone.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec

from mooring.core.model.cluster import Pod


class Assumed(StrEnum):
    LEAVING = "leaving"
    PLACED = "placed"


class Assumption(msgspec.Struct, frozen=True, gc=False):
    what: Assumed
    pod_uid: str
    expires_at: float
    #: Where a placed pod is going.
    node: str = ""

    def shown_by(self, pod: Pod | None) -> bool:
        """Whether the pod as observed (None: gone) confirms this."""
        if pod is None:
            return True
        if self.what is Assumed.LEAVING:
            return not pod.active
        return bool(pod.node) or pod.terminal


class Assumptions:
    __slots__ = ("_by_node", "_by_uid")

    def __init__(self) -> None:
        self._by_uid: dict[str, dict[Assumed, Assumption]] = {}
        #: Uids of pods assumed to be placed on a node.
        self._by_node: dict[str, set[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_uid)

    def assume(self, assumption: Assumption) -> None:
        self._drop(assumption.pod_uid, assumption.what)
        self._by_uid.setdefault(assumption.pod_uid, {})[assumption.what] = assumption
        if assumption.what is Assumed.PLACED:
            self._by_node.setdefault(assumption.node, set()).add(assumption.pod_uid)

    def confirm(self, uid: str, pod: Pod | None) -> list[Assumption]:
        """The watch has shown this pod (None: gone). Returns what it confirmed."""
        shown = [a for a in self._by_uid.get(uid, {}).values() if a.shown_by(pod)]
        for assumption in shown:
            self._drop(uid, assumption.what)
        return shown

    def forget(self, uid: str, what: Assumed | None = None) -> list[Assumption]:
        """The request was refused: it will not happen."""
        dropped = [a for a in self._by_uid.get(uid, {}).values() if what in {None, a.what}]
        for assumption in dropped:
            self._drop(uid, assumption.what)
        return dropped

    def expire(self, now: float) -> list[Assumption]:
        """Drop and return what the watch never showed. Walks what is in flight, which is little."""
        late = [a for a in self if a.expires_at <= now]
        for assumption in late:
            self._drop(assumption.pod_uid, assumption.what)
        return late

    def next_expiry(self) -> float | None:
        return min((a.expires_at for a in self), default=None)

    def get(self, uid: str, what: Assumed) -> Assumption | None:
        found = self._by_uid.get(uid)
        return None if found is None else found.get(what)

    def placed_on(self, node: str) -> Iterable[str]:
        return self._by_node.get(node, ())

    def __iter__(self) -> Iterator[Assumption]:
        for found in self._by_uid.values():
            yield from found.values()

    def _drop(self, uid: str, what: Assumed) -> None:
        found = self._by_uid.get(uid, {})
        old = found.pop(what, None)
        if old is None:
            return
        if not found:
            del self._by_uid[uid]
        if what is Assumed.PLACED:
            uids = self._by_node[old.node]
            uids.discard(uid)
            if not uids:
                del self._by_node[old.node]
