"""The kube-scheduler configuration that makes a scheduler ask Home, for a given Kubernetes version.

Three settings carry the promise. `percentageOfNodesToScore: 100`: from 100 nodes on, kube-scheduler stops looking once
it has found enough feasible nodes, and a member's home may then never be offered. `nodeCacheCapable: true`: only names
travel, and scores are computed from the scheduler's own view of nodes. `ignorable: true`: when there is no answer, pods
are scheduled all the same.
"""

import re
from typing import Any, Final

from mooring.core.model.exits import UserError

PROFILE: Final = "tidb-scheduler"
URL: Final = "http://127.0.0.1:10262/scheduler"
#: The first minor version of each configuration API, newest first.
_APIS: Final = ((25, "v1"), (23, "v1beta3"), (22, "v1beta2"), (19, "v1beta1"))
OLDEST: Final = "1.19"


class TooOldError(UserError, ValueError):
    """No configuration of ours works there."""


def minor_of(version: str) -> int:
    """`v1.36.3`, `1.30`, `1.28+` → 36, 30, 28."""
    found = re.match(r"v?1\.(\d+)", version.strip())
    if found is None:
        raise TooOldError(f"Kubernetes version {version!r} is not understood; write it as 1.36")
    return int(found[1])


def config_api(version: str) -> str:
    """The newest apiVersion of the configuration that this Kubernetes reads."""
    for first, api in _APIS:
        if minor_of(version) >= first:
            return f"kubescheduler.config.k8s.io/{api}"
    raise TooOldError(
        f"Kubernetes {version} has no KubeSchedulerConfiguration with extenders in it; {OLDEST} is the first"
    )


def scheduler_config(
    version: str,
    *,
    profile: str = PROFILE,
    url: str = URL,
    prefer: bool = False,
    namespace: str = "mooring-system",
) -> dict[str, Any]:
    """`prefer` adds the prioritize verb: needed where members only prefer to go home."""
    api = config_api(version)
    # Before 1.26 the percentage is known only for all profiles together.
    per_profile = minor_of(version) >= 26
    extender: dict[str, Any] = {
        "urlPrefix": url,
        "filterVerb": "filter",
        "preemptVerb": "preempt",
        "enableHTTPS": url.startswith("https:"),
        "httpTimeout": "5s",
        "nodeCacheCapable": True,
        "ignorable": True,
    }
    if prefer:
        extender |= {"prioritizeVerb": "prioritize", "weight": 10}
    document: dict[str, Any] = {
        "apiVersion": api,
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": True, "resourceNamespace": namespace, "resourceName": profile},
        "profiles": [{"schedulerName": profile, **({"percentageOfNodesToScore": 100} if per_profile else {})}],
        "extenders": [extender],
    }
    if not per_profile:
        document["percentageOfNodesToScore"] = 100
    return document
