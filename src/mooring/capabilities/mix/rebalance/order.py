"""Which pod of a workload goes before another, and when one can wait no longer."""

import math

from mooring.capabilities.drain.detach import EVICT, mark_on
from mooring.capabilities.drain.readiness import is_ready
from mooring.capabilities.mix.pace import InterruptionPolicy
from mooring.capabilities.mix.policy import SOURCES
from mooring.capabilities.mix.rebalance.health import Health
from mooring.core.model.cluster import Pod
from mooring.core.model.marks import Mark


def last_call(deadline: float | None, pod: Pod, policy: InterruptionPolicy) -> float | None:
    """After this, waiting any longer would cost the pod some of its grace."""
    return None if deadline is None else deadline - pod.shape.grace_s - policy.margin_s


def may_go(pod: Pod, health: Health, detached: tuple[Pod, ...], now: float) -> bool:
    """As many detached pods may go as there are Ready ones beyond what is wanted, the first by deadline and name."""
    if not is_ready(pod, health.workload, now):
        return True
    serving = [p for p in detached if p.uid == pod.uid or is_ready(p, health.workload, now)]
    rank = next((place for place, one in enumerate(serving) if one.uid == pod.uid), 0)
    return health.ready + len(serving) - health.wanted > rank


def going_before(pod: Pod, mark: Mark, health: Health, policy: InterruptionPolicy, now: float) -> int:
    """How many other pods of the workload still serve and are about to go, before this one: their deletion may be on
    its way. In an order that all agree on, so that they do not wait for each other."""
    ours, found = (mark.deadline or math.inf, pod.name), 0
    for other, theirs in health.once(going_before, lambda: _to_be_evicted(health)):
        call = last_call(theirs.deadline, other, policy)
        first = (theirs.deadline or math.inf, other.name) < ours or (call is not None and now >= call)
        # One that is not Ready is missing already.
        found += first and other.uid != pod.uid and is_ready(other, health.workload, now)
    return found


def _to_be_evicted(health: Health) -> tuple[tuple[Pod, Mark], ...]:
    marks = ((pod, mark_on(pod)) for pod in health.marked)
    return tuple((pod, mark) for pod, mark in marks if mark and mark.source in SOURCES and mark.value == EVICT)
