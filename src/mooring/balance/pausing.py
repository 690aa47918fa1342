"""PD's own schedulers step aside while ours balance, and come back by themselves when we are gone.

Paused for a minute at most and again every twenty seconds: a pause that nobody renews ends. Only the schedulers whose
work we do are paused; evict-leader, by which hand-overs take leaders off a store, and the checkers that repair never
are. `mooring traffic release` writes an annotation on the TidbCluster: then they are resumed at once, and left alone.
"""

from collections.abc import Iterable
from typing import Final

from mooring.balance.policy import BALANCE_LEADER, BALANCE_REGION, HOT, BalancePolicy
from mooring.model.cluster import Key
from mooring.model.decision import Glance, Look
from mooring.model.instructions import PausePdScheduler
from mooring.model.tidb import PdView, TidbCluster

#: On a TidbCluster: `released` leaves its regions to PD.
TRAFFIC: Final = "mooring.dev/traffic"
RELEASED: Final = "released"
PD_SCHEDULERS: Final = {
    BALANCE_LEADER: "balance-leader-scheduler",
    BALANCE_REGION: "balance-region-scheduler",
    HOT: "balance-hot-region-scheduler",
}


def schedulers_of(sources: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(PD_SCHEDULERS[s] for s in sources if s in PD_SCHEDULERS))


def is_released(tc: TidbCluster) -> bool:
    return tc.annotations.get(TRAFFIC) == RELEASED


class Pauses:
    """When each PD was last asked to pause, and in which of its lives: a pause does not outlive the process."""

    def __init__(self, policy: BalancePolicy) -> None:
        self._policy = policy
        self._asked: dict[Key, tuple[float, int]] = {}

    def hold(self, cluster: Key, view: PdView | None, now: float) -> bool:
        """Are PD's schedulers surely paused now, as far as we know?"""
        asked = self._asked.get(cluster)
        if asked is None or view is None or view.start_timestamp != asked[1]:
            return False
        return now < asked[0] + self._policy.pause_s

    def forget(self) -> None:
        self._asked.clear()

    def look(self, tc: TidbCluster, view: PdView | None, now: float) -> Look:
        cluster = tc.key
        if is_released(tc):
            return self._resume(cluster) if cluster in self._asked else Look()
        if view is None or view.evicting is None:
            # A PD that has just started has no schedulers to pause yet, and will not wait for us when it has.
            return Look(glances=() if view is None else (Glance(cluster, now),))
        asked_at, life = self._asked.get(cluster, (0.0, 0))
        due = asked_at + self._policy.renew_s
        if life == view.start_timestamp and now < due:
            return Look(again_at=due)
        self._asked[cluster] = (now, view.start_timestamp)
        return Look(
            instructions=self._pause(cluster, self._policy.pause_s, "Mooring balances"),
            again_at=now + self._policy.renew_s,
            glances=(Glance(cluster, now),),
        )

    def _resume(self, cluster: Key) -> Look:
        del self._asked[cluster]
        return Look(instructions=self._pause(cluster, 0, "released"))

    def _pause(self, cluster: Key, seconds: int, why: str) -> tuple[PausePdScheduler, ...]:
        names = schedulers_of(self._policy.sources)
        return tuple(PausePdScheduler(cluster=cluster, name=name, seconds=seconds, why=why) for name in names)
