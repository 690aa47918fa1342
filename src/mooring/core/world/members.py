"""Which member of which TidbCluster a pod is: by its owner, StatefulSet and TidbCluster, not by its labels (H3).

tidb-operator names the instance by the TidbCluster's own `app.kubernetes.io/instance` label where it has one (Helm and
Argo CD set it), so the label on a pod may say `my-release` while the cluster is `demo`; and people copy labels. Only
where the owner is not known (no StatefulSet in the world, or one of a kind that is not watched) do the labels decide,
and only for a TidbCluster that is there or by tidb-operator's own `managed-by`.

With tidb-operator v2 the owner is the instance (a TiKV, PD or TiDB of `core.pingcap.com`), which says the component; a
label of the operator's says the cluster, which has to be there. Where a TidbCluster has that name, too, it is not told
which of them is meant, and the pods of v2 are nobody's.
"""

from typing import Final

from mooring.core.model.cluster import Key, Owner, Pod, Workload
from mooring.core.model.kinds import Kind
from mooring.core.model.tidb import MANAGED_BY, TidbCluster, v2_component
from mooring.core.world.indexes import TIDB_COMPONENTS, member_of
from mooring.core.world.read import WorldRead

#: No system with leaders has more members.
_MOST: Final = 1000
#: (TidbCluster, component)
TidbMember = tuple[Key, str]


def tidb_member(pod: Pod, world: WorldRead) -> TidbMember | None:
    """None: no member of any TidbCluster."""
    decided, member = by_owner(pod.owner, world)
    if decided:
        # A user of another namespace can write this StatefulSet's UID into a pod of their own.
        return member if member is not None and member[0].namespace == pod.namespace else None
    labeled = member_of(pod)
    if labeled is None:
        return None
    cluster, v2 = Key(labeled[0], labeled[1]), v2_component(pod.owner) is not None
    tc = world.tidb_cluster(cluster)
    if v2 or (tc is not None and tc.v2):
        return (cluster, labeled[2]) if tc is not None and tc.v2 is v2 else None
    known = tc is not None or pod.labels.get(MANAGED_BY) == "tidb-operator"
    return (cluster, labeled[2]) if known else None


def by_owner(owner: Owner | None, world: WorldRead) -> tuple[bool, TidbMember | None]:
    """Whether its owner says what a pod is, and what it says."""
    if owner is None:
        return False, None
    if owner.kind != Kind.STATEFUL_SET:
        return v2_component(owner) is None, None
    workload = world.workload_by_uid(owner.uid)
    if workload is None or workload.owner is None:
        return False, None
    return True, tidb_member_set(workload)


def tidb_member_set(workload: Workload) -> TidbMember | None:
    """The component whose StatefulSet this is; None: no TidbCluster's."""
    owner = workload.owner
    if owner is None or owner.kind != Kind.TIDB_CLUSTER:
        return None
    name = workload.name.removeprefix(f"{owner.name}-")
    return (Key(workload.namespace, owner.name), name) if name in TIDB_COMPONENTS else None


def sharing_pd(world: WorldRead, cluster: Key) -> tuple[TidbCluster, ...]:
    """The TidbClusters whose PD is this one's by PD's own id, by name; itself alone while that id is not known."""
    view, tc = world.pd(cluster), world.tidb_cluster(cluster)
    if tc is None:
        return ()
    if view is None or not view.cluster_id:
        return (tc,)
    found = (world.tidb_cluster(key) for key in sorted(world.clusters_of_pd(view.cluster_id)))
    return tuple(one for one in found if one is not None)


def other_on(world: WorldRead, pd: str) -> Key | None:
    """A TidbCluster that uses the PD of this cluster id."""
    found = sorted(world.clusters_of_pd(int(pd))) if pd.isdecimal() else []
    return next((key for key in found if world.tidb_cluster(key) is not None), None)


def shown_target(target: str, world: WorldRead) -> str:
    """A target for people: one that is named by PD's cluster id says which TidbClusters that PD serves."""
    kind, _, pd = target.partition("/")
    if kind not in {"tikv", "evicting"} or not pd.isdecimal():
        return target
    return f"{kind}/{'+'.join(map(str, sorted(world.clusters_of_pd(int(pd))))) or pd}"


def within(namespace: str, pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
    """An owner owns pods of its own namespace only: its UID can be written into any pod elsewhere."""
    for pod in pods:
        if pod.namespace != namespace:
            return tuple([pod for pod in pods if pod.namespace == namespace])
    return pods


def ordinals(workload: Workload) -> range:
    """Of its members; a spec may ask for any number of them."""
    return range(workload.ordinals_start, workload.ordinals_start + min(workload.replicas, _MOST))


def members_of(workload: Workload, world: WorldRead) -> dict[str, Pod]:
    """Its pods that are there, by name."""
    return {p.name: p for p in sorted(world.pods_of(workload), key=lambda p: p.name)}
