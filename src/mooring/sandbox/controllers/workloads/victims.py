"""Which pods of a ReplicaSet go first, ranked as Kubernetes ranks them.

1. not assigned to a node  2. Pending, then Unknown, then Running  3. not ready  4. lower pod-deletion-cost
5. more siblings (pods of all ReplicaSets of the same owner) on its node  6. ready for a shorter time
7. more container restarts  8. younger. Times are compared in buckets of powers of two, and within one bucket the
uid decides, so that the order among pods of about the same age is arbitrary but stable.
"""

import math
import re
from collections.abc import Iterable, Mapping
from functools import cmp_to_key
from typing import Final

from mooring.clients.ports import Json
from mooring.core.model.times import moment
from mooring.sandbox.controllers.podstate import annotations_of, node_of, phase_of, ready, ready_since

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}
#: int32 as the API server accepts it: no plus sign, no leading zero.
_COST: Final = re.compile(r"^(0|-?[1-9][0-9]*)$")


def deletion_cost(pod: Json) -> int:
    text = annotations_of(pod).get(DELETION_COST, "0")
    if not _COST.match(text):
        return 0
    value = int(text)
    return value if -(2**31) <= value < 2**31 else 0


def _restarts(pod: Json) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((int(status.get("restartCount", 0)) for status in statuses), default=0)


def _bucket(since: float, now: float) -> int:
    age_ns = (now - since) * 1e9
    return int(math.log2(age_ns)) if age_ns > 0 else -1


def _by_age(left: Json, right: Json, one: float, two: float, now: float) -> int:
    difference = _bucket(one, now) - _bucket(two, now)
    if difference:
        return difference
    return -1 if left["metadata"]["uid"] < right["metadata"]["uid"] else 1


def rank(pods: Iterable[Json], siblings_on: Mapping[str, int], now: float) -> list[Json]:
    """The pods in the order in which they go; `siblings_on` counts active related pods per node."""

    def compare(left: Json, right: Json) -> int:
        for one, two in (
            (bool(node_of(left)), bool(node_of(right))),
            (_PHASES.get(phase_of(left), 2), _PHASES.get(phase_of(right), 2)),
            (ready(left), ready(right)),
            (deletion_cost(left), deletion_cost(right)),
            (-siblings_on.get(node_of(left), 0), -siblings_on.get(node_of(right), 0)),
        ):
            if one != two:
                return -1 if one < two else 1
        since, until = ready_since(left), ready_since(right)
        if since is not None and until is not None and since != until:
            return _by_age(left, right, since, until, now)
        if _restarts(left) != _restarts(right):
            return _restarts(right) - _restarts(left)
        born, other = (moment(pod["metadata"].get("creationTimestamp", "")) or 0.0 for pod in (left, right))
        return _by_age(left, right, born, other, now) if born != other else 0

    return sorted(sorted(pods, key=lambda pod: str(pod["metadata"]["name"])), key=cmp_to_key(compare))
