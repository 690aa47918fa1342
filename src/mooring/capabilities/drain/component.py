"""Which component of which TidbCluster a pod is: by its owner, StatefulSet and TidbCluster, not by its labels.

Charts of all kinds write `app.kubernetes.io/component`, and people copy labels: what a label says about somebody
else's pod must not keep it from being evicted. Only where the owner is not known (no StatefulSet in the world, or one
of a kind that is not watched) do the labels decide, and only for a TidbCluster that is there or by tidb-operator's own
`managed-by`.
"""

from typing import Final

import msgspec

from mooring.core.model.cluster import Key, Pod
from mooring.core.model.kinds import Kind
from mooring.core.world.indexes import TIDB_COMPONENTS, member_of
from mooring.core.world.read import WorldRead

#: What handoff takes away: nobody else deletes these.
HANDED_OVER: Final = frozenset({"tikv", "pd"})
_MANAGED_BY: Final = "app.kubernetes.io/managed-by"


class Component(msgspec.Struct, frozen=True, gc=False):
    cluster: Key
    #: `tikv`, `pd`, `tidb`, …
    name: str


def component_of(pod: Pod, world: WorldRead) -> Component | None:
    """None: no member of any TidbCluster."""
    owner = pod.owner
    if owner is not None and owner.kind != Kind.STATEFUL_SET:
        return None
    workload = world.workload_by_uid(owner.uid) if owner is not None else None
    controller = workload.owner if workload is not None else None
    if workload is not None and controller is not None:
        if controller.kind != Kind.TIDB_CLUSTER:
            return None
        name = workload.name.removeprefix(f"{controller.name}-")
        return Component(Key(pod.namespace, controller.name), name) if name in TIDB_COMPONENTS else None
    labeled = member_of(pod)
    if labeled is None:
        return None
    cluster = Key(labeled[0], labeled[1])
    known = world.tidb_cluster(cluster) is not None or pod.labels.get(_MANAGED_BY) == "tidb-operator"
    return Component(cluster, labeled[2]) if known else None


def is_handed_over(pod: Pod, world: WorldRead) -> bool:
    """A member of TiKV or PD: handoff takes its leaders off and deletes it, nobody else does."""
    found = component_of(pod, world)
    return found is not None and found.name in HANDED_OVER
