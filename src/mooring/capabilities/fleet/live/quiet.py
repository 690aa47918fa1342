"""Nothing new, nothing to do: the answer of the last quiet pass, for as long as all it was made from is the same.

A pass over ten thousand machines takes tens of milliseconds, and most minutes nobody has moved. So a pass that found
everybody in their seats is remembered with what it looked at: the very settings, ledger and list of machines (which is
the same object when the registry has no news). Whatever else could change it, a Node above all, forgets it. And after
some passes it is made anew in any case: losing an event costs time, never truth.
"""

from typing import Any, Final

from mooring.capabilities.fleet.live.fleet_pass import Pass
from mooring.core.model.decision import Evaluation

#: Queries after which the pass is made all the same.
_PASSES: Final = 10


class Quiet:
    def __init__(self) -> None:
        self._of: tuple[Any, ...] = ()
        self._look: Evaluation | None = None
        self._until = 0.0

    def forget(self) -> None:
        self._look = None

    def remember(self, look: Evaluation, made: Pass, of: tuple[Any, ...], until: float, *, tainted: bool) -> None:
        """`tainted`: somebody waits for a time to pass (a retired machine leaves after a while): never quiet."""
        waiting_on = look.instructions or look.proposals or look.withdrawals or look.again_at is not None
        self._look = None if waiting_on or tainted or not made.quiet or made.wanted.unmet or made.wanted.notes else look
        self._of, self._until = of, until

    def recall(self, of: tuple[Any, ...], now: float) -> Evaluation | None:
        """`of`: what the pass would be made from, compared by identity."""
        if self._look is None or now >= self._until or len(of) != len(self._of):
            return None
        return self._look if all(a is b for a, b in zip(of, self._of, strict=True)) else None


def quiet_until(now: float, query_s: float) -> float:
    return now + _PASSES * query_s
