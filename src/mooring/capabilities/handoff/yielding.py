"""Who acts on an annotation that tidb-operator knows, too: it gets a few seconds to begin, then we do (E3)."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.requests import Request
from mooring.core.model.cluster import Pod
from mooring.core.model.decision import Verdict
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import TidbCluster


class HandoffNotes(msgspec.Struct, frozen=True):
    """Soft memory of one TidbCluster."""

    #: (uid of a pod, annotation on it that tidb-operator acts on, too) → since when it is seen.
    asked: Mapping[tuple[str, str], float] = MappingProxyType({})


class Yielding:
    """What is left to tidb-operator for now, in one evaluation."""

    def __init__(self, tc: TidbCluster, policy: HandoffPolicy, notes: object, now: float) -> None:
        self._on, self._wait_s, self._now = policy.yields(tc), policy.yield_s, now
        self._before = notes.asked if isinstance(notes, HandoffNotes) else {}
        self._asked: dict[tuple[str, str], float] = {}

    def verdict(self, pod: Pod, request: Request) -> Verdict | None:
        """None: ours to act on now."""
        if not self._on or not request.is_shared:
            return None
        slot = (pod.uid, request.key)
        self._asked[slot] = since = self._before.get(slot, self._now)
        if self._now >= since + self._wait_s:
            return None
        detail = f"tidb-operator may begin with {request.key} on {pod.name}; Mooring does in {self._wait_s:.0f} s"
        return Verdict(State.WAITING, Reason.SETTLING, detail)

    @property
    def notes(self) -> HandoffNotes | None:
        return HandoffNotes(self._asked) if self._asked else None

    @property
    def again_at(self) -> float | None:
        due: Iterable[float] = (since + self._wait_s for since in self._asked.values())
        return min((at for at in due if at > self._now), default=None)
