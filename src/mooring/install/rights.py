"""What Mooring may do in a cluster, feature by feature: behind manifests, chart, doctor and tests.

Least privilege: a right stands here because it is used, and a feature that is off brings none. A test on a real API
server runs each feature with these rights alone and compares its audit log with this table: nothing refused, nothing
unused. `own` rights hold in Mooring's namespace only; the others in every namespace. Where the name of the object is
fixed it is named, except for `create`, which Kubernetes cannot restrict by name.
"""

from collections.abc import Iterable
from typing import Any, Final

from mooring.capabilities.registry import descriptors
from mooring.core.model.descriptor import Right, hooks

CORE: Final = "core"


_READ: Final = ("list", "watch")


def rights_table() -> dict[str, tuple[Right, ...]]:
    """The core's rights, and each feature's as its descriptor states them."""
    return {CORE: CORE_RIGHTS, **{one.name: one.rights for one in descriptors()}}


# Watching and leading; and once mix was switched off, its webhook configurations are taken away.
CORE_RIGHTS: Final[tuple[Right, ...]] = (
    Right("", "nodes", _READ),
    Right("", "pods", _READ),
    Right("", "persistentvolumes", _READ),
    Right("", "persistentvolumeclaims", _READ),
    Right("apps", "deployments", _READ),
    Right("apps", "statefulsets", _READ),
    Right("apps", "replicasets", _READ),
    Right("policy", "poddisruptionbudgets", _READ),
    Right("pingcap.com", "tidbclusters", _READ),
    Right("core.pingcap.com", "clusters", _READ),
    Right("karpenter.sh", "nodeclaims", _READ),
    Right("lifecycle.k8s.io", "evictions", _READ),
    Right("argoproj.io", "rollouts", _READ),
    Right("apps.kruise.io", "clonesets", _READ),
    Right("", "namespaces", ("get",), own=True),
    Right("", "configmaps", _READ, own=True),
    Right("coordination.k8s.io", "leases", ("get", "create", "update"), own=True),
    *hooks("get", "delete"),
)


def rights_of(features: Iterable[str]) -> list[tuple[str, Right]]:
    """(feature, right): the core's first, then each feature's that is on."""
    table = rights_table()
    return [(name, right) for name in (CORE, *sorted(features)) for right in table[name]]


def rules(features: Iterable[str], *, own: bool) -> list[dict[str, Any]]:
    """RBAC rules of the core and these features."""
    return merged((right for _, right in rights_of(features)), own=own)


def merged(rights: Iterable[Right], *, own: bool) -> list[dict[str, Any]]:
    """Merged by group, resource and names; sorted, so that two renderings are the same text."""
    verbs: dict[tuple[str, str, tuple[str, ...]], set[str]] = {}
    for right in rights:
        if right.own == own:
            verbs.setdefault((right.group, right.resource, right.names), set()).update(right.verbs)
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": sorted(found)}
        | ({"resourceNames": list(names)} if names else {})
        for (group, resource, names), found in sorted(verbs.items())
    ]
