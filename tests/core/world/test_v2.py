"""Members of a cluster of tidb-operator v2: by their instance, and by the operator's label for the cluster."""

import msgspec

from mooring.core.model.cluster import Key, Owner, Pod, PodShape
from mooring.core.model.events import Gone, Listed, Seen
from mooring.core.model.kinds import Kind
from mooring.core.model.tidb import PdView, Store, TidbCluster, pd_member_name
from mooring.core.world.members import tidb_member

DEMO = Key("tidb", "demo")
V2 = TidbCluster("tidb", "demo", "v2-uid", "1", v2=True)
API = "core.pingcap.com/v1alpha1"


def pod(name="basic-tikv-a1b2", kind="TiKV", *, api=API, cluster="demo", namespace="tidb", **labels):
    component = kind.lower()
    said = {
        "pingcap.com/cluster": cluster,
        "pingcap.com/instance": name.replace(f"-{component}", ""),
        "app.kubernetes.io/instance": cluster,
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/managed-by": "tidb-operator",
        **labels,
    }
    owner = Owner(kind, name.replace(f"-{component}", ""), f"{name}-owner", api) if kind else None
    return Pod(namespace, name, f"{namespace}-{name}", "1", PodShape(labels=said), owner=owner)


def see(world, *rows):
    for row in rows:
        world.apply(Seen(Kind.POD if isinstance(row, Pod) else row.kind, row))


def test_a_pod_of_an_instance_is_a_member(world):
    """E12: owner chain and labels; another owner, another group or no such Cluster is no member."""
    tikv, pd = pod(), pod("basic-pd-c3", "PD")
    strangers = (
        pod("copied-tikv-1", "ReplicaSet", api="apps/v1"),
        pod("other-tikv-1", "TiKV", api="example.com/v1"),
        pod("else-tikv-1", cluster="nobody"),
        pod("bare-tikv-1", ""),
    )
    see(world, V2, tikv, pd, *strangers)
    assert tidb_member(tikv, world) == (DEMO, "tikv") and world.tidb_cluster_of(tikv) is V2
    assert world.tidb_pods(DEMO, "tikv") == (tikv,) and world.tidb_pods(DEMO, "pd") == (pd,)
    assert [tidb_member(one, world) for one in strangers] == [None] * 4
    assert (pd_member_name(pd), pd_member_name(tikv)) == ("basic-c3", "basic-tikv-a1b2")


def test_of_two_clusters_of_one_name_v1_is_meant(world):
    """E12: during a migration nobody can tell whose a pod is by the name alone: v2's are then nobody's."""
    v1 = TidbCluster("tidb", "demo", "v1-uid", "1")
    tikv = pod()
    see(world, V2, tikv, v1)
    assert tidb_member(tikv, world) is None and world.tidb_pods(DEMO, "tikv") == ()
    assert list(world.tidb_clusters()) == [v1]
    world.apply(Gone(Kind.TIDB_CLUSTER, DEMO, "v1-uid"))
    assert tidb_member(tikv, world) == (DEMO, "tikv") and list(world.tidb_clusters()) == [V2]


def test_a_list_of_one_kind_leaves_the_other(world):
    """E12: both operators side by side: each list replaces its own clusters only, and a PD goes with its cluster."""
    v1 = TidbCluster("tidb", "old", "v1-uid", "1")
    see(world, V2, v1)
    world.note_pd(DEMO, PdView((), (), 0, 1), 1.0)
    world.apply(Listed(Kind.TIDB_CLUSTER, ()))
    assert list(world.tidb_clusters()) == [V2] and world.pd(DEMO) is not None
    world.apply(Listed(Kind.TIDB_V2, ()))
    assert list(world.tidb_clusters()) == [] and world.pd(DEMO) is None
    assert world.check() == []


def test_a_store_is_found_by_its_short_address():
    """E12, E6: `<pod>.<group>-tikv-peer.<namespace>`, and with a domain in the FQDN mode; elsewhere is elsewhere."""
    short = Store(1, "basic-tikv-a1b2.basic-tikv-peer.tidb:20160")
    assert short.pod_and_namespace == ("basic-tikv-a1b2", "tidb")
    assert Store(1, "kv1.example.com:20160").namespace == ""
    view = PdView((short, Store(2, "basic-tikv-a1b2.basic-tikv-peer.b:20160")), (), 0, 1)
    assert view.store_of(V2, "basic-tikv-a1b2") is short
    fqdn = Store(3, "basic-tikv-a1b2.basic-tikv-peer.tidb.svc.cluster.local:20160")
    both = PdView((short, fqdn), (), 0, 1)
    assert both.store_of(msgspec.structs.replace(V2, cluster_domain="cluster.local"), "basic-tikv-a1b2") is fqdn
