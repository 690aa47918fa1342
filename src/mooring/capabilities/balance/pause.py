"""Pauses PD's own schedulers while ours balance; the pauses expire when Mooring stops.

Paused for a minute at most and again every twenty seconds: a pause that is not renewed ends. Only the schedulers whose
work we do are paused; evict-leader, by which hand-overs take leaders off a store, and the checkers that repair never
are. A longer pause than ours was set by another client (BR, TiDB Lightning, a person): it is left as it is, and Mooring
waits for its end, too. `mooring balance release` writes an annotation on the TidbCluster: then they are resumed at
once, and left alone.

Paused is what a look shows. PD is asked for its pauses before it is asked for its operators: what its schedulers began
before is among the operators of that look, and nothing comes after it until the pause ends.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

from mooring.capabilities.balance.policy import BALANCE_LEADER, BALANCE_REGION, BalancePolicy
from mooring.core.model.cluster import Key
from mooring.core.model.decision import Evaluation, PdRefresh
from mooring.core.model.instructions import PausePdScheduler
from mooring.core.model.tidb import OUR_LONGEST_PAUSE_S, PdPause, PdView, TidbCluster

#: On a TidbCluster: `true` names it, so that Mooring balances it; `released` leaves its regions to PD in any case.
BALANCE_ANNOTATION: Final = "mooring.dev/balance"
RELEASED: Final = "released"
TAKEN: Final = "true"
#: Why an unnamed cluster is left to PD.
NOT_NAMED: Final = "balance names it nowhere, so PD balances by itself"
#: Whose work we do. PD's hot scheduler moves peers as well as leaders, so it is never paused.
PD_SCHEDULERS: Final = {BALANCE_LEADER: "balance-leader-scheduler", BALANCE_REGION: "balance-region-scheduler"}


def schedulers_of(sources: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(PD_SCHEDULERS[s] for s in sources if s in PD_SCHEDULERS))


def left_to_pd(tc: TidbCluster, policy: BalancePolicy, sharing: Iterable[TidbCluster]) -> str:
    """Why its regions are PD's alone: a person said so, or nobody has named it, or any that shares its PD (T12). "":
    they are Mooring's to balance. Those of tidb-operator v2 are not yet."""
    on_it = (tc, *sharing)
    if tc.v2:
        return NOT_NAMED
    if any(one.annotations.get(BALANCE_ANNOTATION) == RELEASED for one in on_it):
        return "released to PD"
    return "" if any(_named(one, policy) for one in on_it) else NOT_NAMED


def _named(tc: TidbCluster, policy: BalancePolicy) -> bool:
    annotated = tc.annotations.get(BALANCE_ANNOTATION)
    return annotated == TAKEN or any(fnmatchcase(str(tc.key), pattern) for pattern in policy.clusters)


def left_s(view: PdView, policy: BalancePolicy) -> float | None:
    """How much longer all of them are paused, as of this look; None: one is not, or the pause is another client's.

    A scheduler that was removed from PD need not be paused. A PD that has just started shows none at all.
    """
    if view.evicting is None or others_pause(view, policy) is not None:
        return None
    left = {pause.name: pause.left_s for pause in view.pauses}
    names = [name for name in schedulers_of(policy.sources) if name in view.schedulers]
    return None if not left.keys() >= set(names) else min((left[name] for name in names), default=policy.pause_s)


def others_pause(view: PdView, policy: BalancePolicy) -> PdPause | None:
    """A pause of a scheduler of ours that is not ours."""
    names = schedulers_of(policy.sources)
    return next((p for p in view.pauses if p.name in names and p.length_s > OUR_LONGEST_PAUSE_S), None)


def evaluate(
    policy: BalancePolicy,
    tc: TidbCluster,
    view: PdView | None,
    seen_at: float,
    asked_at: float | None,
    now: float,
    released: str = "",
) -> Evaluation:
    """`asked_at`: when a pause was last asked for; it comes back as the notes. `released`: why, if so."""
    names = schedulers_of(policy.sources)
    if released:
        return Evaluation(instructions=_pause(tc.key, names, 0, released) if asked_at is not None else ())
    if view is None or others_pause(view, policy) is not None:
        return Evaluation(notes=asked_at)
    left = left_s(view, policy)
    due = now if left is None else seen_at + left - policy.pause_s + policy.renew_s
    if asked_at is not None and seen_at <= asked_at:
        due = asked_at + policy.renew_s  # that look is older than the request
    if now < due:
        return Evaluation(again_at=due, notes=asked_at)
    return Evaluation(
        instructions=_pause(tc.key, names, policy.pause_s, "Mooring balances"),
        again_at=now + policy.renew_s,
        refreshes=(PdRefresh(tc.key, now),),
        notes=now,
    )


def _pause(cluster: Key, names: Iterable[str], seconds: int, why: str) -> tuple[PausePdScheduler, ...]:
    return tuple(PausePdScheduler(cluster=cluster, name=name, seconds=seconds, why=why) for name in names)
