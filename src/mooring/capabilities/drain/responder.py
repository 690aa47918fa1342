"""Mooring as a responder of Kubernetes' own Eviction API (`lifecycle.k8s.io`, KEP-4563; alpha in 1.37).

A pod names its responders when it is created; for one that is guarded the webhook adds Mooring. When somebody requests
its eviction and it is Mooring's turn, the pod is prepared as for an eviction at the gate. What the gate would answer
goes into the status of the Eviction: refused is a heartbeat with the same words, passed is completed. Then comes the
next responder, at last Kubernetes' own, whose eviction passes the gate.
"""

from typing import Any, Final

from mooring.capabilities.drain.gate import IN_PROGRESS, Answer, Guard, guard_of
from mooring.capabilities.drain.policy import DrainPolicy
from mooring.core.model.cluster import Pod, PodEviction
from mooring.core.model.instructions import Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import RESPONDER
from mooring.core.model.times import rfc3339
from mooring.core.world.read import WorldRead

#: Before those who manage pods (10000).
PRIORITY: Final = 11_000
#: A pod has at most so many responders.
MOST: Final = 10
#: How often it says that it lives, and how often at most when the words change. After 1200 s it would be passed over.
HEARTBEAT_S: Final = 60.0
SOONEST_S: Final = 20.0


def added(pod: Pod, have: list[dict[str, Any]], world: WorldRead, policy: DrainPolicy) -> list[dict[str, Any]] | None:
    """The JSON Patch that makes Mooring a responder of a pod that is being created and has these responders; None: its
    owner is not known yet."""
    if len(have) >= MOST or any(one.get("name") == RESPONDER for one in have):
        return []
    if guard_of(pod, world, policy) is Guard.NONE:
        owned = pod.owner is not None and pod.owner.kind in {Kind.REPLICA_SET, Kind.STATEFUL_SET}
        return None if owned and world.workload_of(pod) is None else []
    mine = {"name": RESPONDER, "priority": PRIORITY}
    where, value = ("/spec/evictionResponders/-", mine) if have else ("/spec/evictionResponders", [mine])
    return [{"op": "add", "path": where, "value": value}]


def is_turn(eviction: PodEviction | None) -> bool:
    return eviction is not None and eviction.state == "Active" and eviction.completed is None


def is_over(eviction: PodEviction | None) -> bool:
    """Nobody requests it any more."""
    return eviction is not None and eviction.state == "Canceled"


def reply(eviction: PodEviction, said: Answer, estimate_s: float | None, now: float) -> Patch | None:
    """What is to be written about it; None: it stands there, or was written a moment ago."""
    words = said.message.removeprefix("mooring: ").removesuffix(f" ({IN_PROGRESS})")
    status: dict[str, Any] = {"name": RESPONDER, "heartbeatTime": rfc3339(now)}
    if said.allowed:
        status |= {"completionTime": rfc3339(now), "message": words or "it may be evicted now"}
    else:
        since = now - eviction.heartbeat if eviction.heartbeat is not None else HEARTBEAT_S
        if since < (SOONEST_S if words != eviction.message else HEARTBEAT_S):
            return None
        status |= {"message": words}
        if estimate_s is not None:
            status["expectedCompletionTime"] = rfc3339(now + max(estimate_s, HEARTBEAT_S))
    why = f"the eviction of {eviction.pod} that {eviction.by} requests: {status['message']}"
    patch = {"status": {"responders": [status]}}
    return Patch(kind=Kind.EVICTION, key=eviction.key, uid=eviction.uid, patch=patch, subresource="status", why=why)
