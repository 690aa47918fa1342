"""metadata.ownerReferences: anybody writes any UID there; an owner owns in its own namespace only."""

from mooring.core.model.cluster import Key, Owner, Pod, PodShape, ReplicaSet, Workload
from mooring.core.model.events import Seen
from mooring.core.model.kinds import Kind
from mooring.core.model.tidb import TidbCluster
from mooring.core.world.members import tidb_member
from mooring.core.world.world import World


def pod(namespace: str, name: str, owner: Owner) -> Pod:
    return Pod(namespace, name, f"{namespace}-{name}", "1", PodShape(), owner=owner, node="n1")


def test_a_pod_elsewhere_is_nobodys_replica():
    """A Ready decoy with the UID of a victim's ReplicaSet or StatefulSet counts neither as its replica nor its member."""
    world = World()
    web = Workload(Kind.DEPLOYMENT, "shop", "web", "web-uid", "1", replicas=1)
    replica_set = ReplicaSet("shop", "web-1", "rs-uid", "1", Owner("Deployment", "web", "web-uid"), replicas=1)
    tikv = Workload(
        Kind.STATEFUL_SET, "shop", "demo-tikv", "sts-uid", "1", owner=Owner("TidbCluster", "demo", "tc-uid")
    )
    world.apply(Seen(Kind.DEPLOYMENT, web))
    world.apply(Seen(Kind.REPLICA_SET, replica_set))
    world.apply(Seen(Kind.STATEFUL_SET, tikv))
    world.apply(Seen(Kind.TIDB_CLUSTER, TidbCluster("shop", "demo", "tc-uid", "1")))
    owners = {
        "web-0": Owner("ReplicaSet", "web-1", "rs-uid"),
        "demo-tikv-0": Owner("StatefulSet", "demo-tikv", "sts-uid"),
    }
    rows = {(ns, name): pod(ns, name, owner) for name, owner in owners.items() for ns in ("shop", "tenant")}
    for row in rows.values():
        world.apply(Seen(Kind.POD, row))
    assert world.pods_of(web) == (rows["shop", "web-0"],) == world.pods_owned_by("rs-uid")
    assert world.pods_of(tikv) == (rows["shop", "demo-tikv-0"],) == world.pods_owned_by("sts-uid")
    assert world.tidb_pods(Key("shop", "demo"), "tikv") == (rows["shop", "demo-tikv-0"],)
    for name, owner in (("web-0", web), ("demo-tikv-0", tikv)):
        assert world.workload_of(rows["shop", name]) is owner
        assert world.workload_of(rows["tenant", name]) is None
        assert tidb_member(rows["tenant", name], world) is None
