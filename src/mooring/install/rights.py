"""What Mooring may do in a cluster, feature by feature: the one table behind manifests, chart, doctor and tests.

Least privilege: a right stands here because it is used, and a feature that is off brings none. A test on a real API
server runs each feature with these rights alone and compares its audit log with this table: nothing refused, nothing
unused. `own` rights hold in Mooring's namespace only; the others in every namespace. Where the name of the object is
fixed it is named, except for `create`, which Kubernetes cannot restrict by name.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from mooring.process.features import FEATURES

CORE: Final = "core"


class Right(msgspec.Struct, frozen=True, order=True):
    group: str
    resource: str
    verbs: tuple[str, ...]
    #: Only in our own namespace.
    own: bool = False
    #: Only objects of these names.
    names: tuple[str, ...] = ()

    def each(self) -> Iterable[tuple[str, str, str]]:
        """(group, resource, verb), one by one."""
        for verb in self.verbs:
            yield self.group, self.resource, verb


_READ: Final = ("list", "watch")
_POD_WRITES: Final = (
    Right("", "pods", ("get", "patch", "delete")),
    Right("", "pods/eviction", ("create",)),
)
_TELL: Final = Right("", "events", ("create",))
_MEMORY: Final = Right("", "configmaps", ("get", "create", "patch"), own=True)
_HOOKS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


def _hooks(*verbs: str, named: bool = True) -> tuple[Right, ...]:
    """On both webhook configurations of ours."""
    names = ("mooring-mix",) if named else ()
    return tuple(Right("admissionregistration.k8s.io", hook, verbs, names=names) for hook in _HOOKS)


RIGHTS: Final[dict[str, tuple[Right, ...]]] = {
    # Watching and leading; and once mix was switched off, its webhook configurations are taken away.
    CORE: (
        Right("", "nodes", _READ),
        Right("", "pods", _READ),
        Right("", "persistentvolumes", _READ),
        Right("", "persistentvolumeclaims", _READ),
        Right("apps", "deployments", _READ),
        Right("apps", "statefulsets", _READ),
        Right("apps", "replicasets", _READ),
        Right("policy", "poddisruptionbudgets", _READ),
        Right("pingcap.com", "tidbclusters", _READ),
        Right("", "namespaces", ("get",), own=True),
        Right("", "configmaps", _READ, own=True),
        Right("coordination.k8s.io", "leases", ("get", "create", "update"), own=True),
        *_hooks("get", "delete"),
    ),
    # Marks and requests on pods and TidbClusters; a pod whose store is proven empty is deleted, others are evicted.
    "handoff": (_TELL, *_POD_WRITES, Right("pingcap.com", "tidbclusters", ("get", "patch"))),
    # Where members were, written on their owner; nodes reserved by a taint.
    "home": (
        _TELL,
        Right("", "nodes", ("get", "patch")),
        Right("pingcap.com", "tidbclusters", ("get", "patch")),
        Right("apps", "statefulsets", ("get", "patch")),
    ),
    # Pods moved, nodes cordoned on notice; certificates and webhook configurations kept.
    "mix": (
        _TELL,
        *_POD_WRITES,
        Right("", "nodes", ("get", "patch")),
        _MEMORY,
        Right("", "secrets", ("get", "update"), own=True, names=("mooring-webhook-tls",)),
        Right("", "secrets", ("create",), own=True),
        *_hooks("get", "update", "delete"),
        *_hooks("create", named=False),
    ),
    # Nodes labelled, tainted and cordoned as the registry says; pods leave by the eviction API only.
    "fleet": (
        _TELL,
        Right("", "nodes", ("get", "patch")),
        Right("", "pods", ("get", "patch")),
        Right("", "pods/eviction", ("create",)),
        _MEMORY,
    ),
    # Talks to PD only.
    "balance": (),
}
assert set(RIGHTS) == {CORE, *FEATURES}


def rights_of(features: Iterable[str]) -> list[tuple[str, Right]]:
    """(feature, right): the core's first, then each feature's that is on."""
    return [(name, right) for name in (CORE, *sorted(features)) for right in RIGHTS[name]]


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
