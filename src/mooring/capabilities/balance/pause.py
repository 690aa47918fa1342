"""PD's own schedulers step aside while ours balance, and come back by themselves when we are gone.

Paused for a minute at most and again every twenty seconds: a pause that nobody renews ends. Only the schedulers whose
work we do are paused; evict-leader, by which hand-overs take leaders off a store, and the checkers that repair never
are. `mooring balance release` writes an annotation on the TidbCluster: then they are resumed at once, and left alone.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from mooring.capabilities.balance.policy import BALANCE_LEADER, BALANCE_REGION, HOT, BalancePolicy
from mooring.core.model.cluster import Key
from mooring.core.model.decision import Evaluation, PdRefresh
from mooring.core.model.instructions import PausePdScheduler
from mooring.core.model.tidb import PdView, TidbCluster

#: On a TidbCluster: `released` leaves its regions to PD.
BALANCE_ANNOTATION: Final = "mooring.dev/balance"
RELEASED: Final = "released"
PD_SCHEDULERS: Final = {
    BALANCE_LEADER: "balance-leader-scheduler",
    BALANCE_REGION: "balance-region-scheduler",
    HOT: "balance-hot-region-scheduler",
}


def schedulers_of(sources: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(PD_SCHEDULERS[s] for s in sources if s in PD_SCHEDULERS))


def is_released(tc: TidbCluster) -> bool:
    return tc.annotations.get(BALANCE_ANNOTATION) == RELEASED


class _Asked(msgspec.Struct, frozen=True):
    """In which life of PD a pause was asked for, when first, and when last. A pause does not outlive the process."""

    life: int
    first: float
    last: float


class Pauses:
    """Which PD stands aside. Asked for by us, and then believed only of a look that shows it: what PD began by itself
    before is among the operators of that look, and nothing comes after it."""

    def __init__(self, policy: BalancePolicy) -> None:
        self._policy = policy
        self._names = schedulers_of(policy.sources)
        self._asked: dict[Key, _Asked] = {}

    def hold(self, cluster: Key, view: PdView, seen_at: float, now: float) -> bool:
        """Are PD's schedulers surely paused now?"""
        asked = self._asked.get(cluster)
        if asked is None or view.start_timestamp != asked.life or self._awake(view):
            return False
        return asked.first < seen_at and now < asked.last + self._policy.pause_s

    def forget(self) -> None:
        self._asked.clear()

    def evaluate(self, tc: TidbCluster, view: PdView | None, seen_at: float, now: float) -> Evaluation:
        cluster = tc.key
        if is_released(tc):
            return self._resume(cluster) if cluster in self._asked else Evaluation()
        if view is None:
            return Evaluation()
        asked = self._asked.get(cluster)
        if asked is None or asked.life != view.start_timestamp or (asked.last < seen_at and self._awake(view)):
            asked = _Asked(view.start_timestamp, now, 0.0)
        due = asked.last + self._policy.renew_s
        if now < due:
            return Evaluation(again_at=due)
        self._asked[cluster] = msgspec.structs.replace(asked, last=now)
        return Evaluation(
            instructions=self._pause(cluster, self._policy.pause_s, "Mooring balances"),
            again_at=now + self._policy.renew_s,
            refreshes=(PdRefresh(cluster, now),),
        )

    def _awake(self, view: PdView) -> bool:
        """Does this look show one that is not paused? One that somebody has removed need not be. A PD that has just
        started shows none at all, and will not wait for us when it has some: it is asked at once."""
        return view.evicting is None or not {n for n in self._names if n in view.schedulers}.issubset(view.paused)

    def _resume(self, cluster: Key) -> Evaluation:
        del self._asked[cluster]
        return Evaluation(instructions=self._pause(cluster, 0, "released"))

    def _pause(self, cluster: Key, seconds: int, why: str) -> tuple[PausePdScheduler, ...]:
        return tuple(PausePdScheduler(cluster=cluster, name=name, seconds=seconds, why=why) for name in self._names)
