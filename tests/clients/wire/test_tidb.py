from mooring.clients.wire.kube import project
from mooring.core.model.kinds import Kind
from mooring.core.model.tidb import EvictLeaderEntry


def cluster(spec=None, status=None, **metadata):
    return project(Kind.TIDB_CLUSTER, {"metadata": {"name": "demo", **metadata}, "spec": spec, "status": status})


def test_a_full_cluster():
    """H1, E3: members with their nodes, stores by pod, both eviction tables and every phase are read."""
    found = cluster(
        {"tlsCluster": {"enabled": True}, "tikv": {"replicas": 3}, "tidb": {"replicas": 2}},
        {
            "tidb": {
                "phase": "Upgrade",
                "members": {"demo-tidb-1": {"name": "demo-tidb-1"}, "demo-tidb-0": {"node": "n0", "health": True}},
            },
            "tikv": {
                "phase": "Normal",
                "stores": {
                    "1": {"id": "1", "podName": "demo-tikv-0"},
                    "9": {"id": "9", "podName": "demo-tikv-0"},
                    "4": {"podName": "demo-tikv-1"},
                    "9" * 5000: {"podName": "demo-tikv-2"},
                },
                "evictLeader": {"demo-tikv-1": {"value": "none", "beginTime": "b"}},
                "evictLeaderStatus": {"demo-tikv-0": {"value": "delete-pod", "podCreateTime": "c"}},
            },
        },
        annotations={"tidb.pingcap.com/x": "1", "pingcap.com/ha-topology-key": "h", "other": "2"},
    )
    assert found.tls
    assert (found.tidb_replicas, found.tikv_replicas, found.pd_replicas) == (2, 3, None)
    assert (found.tidb_phase, found.tikv_phase, found.pd_phase) == ("Upgrade", "Normal", "")
    assert found.tidb_members == ("demo-tidb-0", "demo-tidb-1")
    assert found.tidb_member_nodes == {"demo-tidb-0": "n0"}
    assert found.tikv_store_ids == {"demo-tikv-0": 9, "demo-tikv-1": 4}
    assert found.operator_evict_leader == {"demo-tikv-1": EvictLeaderEntry("none", "", "b")}
    assert found.evict_leader_status == {"demo-tikv-0": EvictLeaderEntry("delete-pod", "c")}
    assert found.annotations == {"tidb.pingcap.com/x": "1", "pingcap.com/ha-topology-key": "h"}


def test_types_that_nobody_promised():
    """A TidbCluster whose schema was never enforced is read as far as it makes sense, and never raises."""
    found = cluster(
        {"tlsCluster": "yes", "tikv": {"replicas": "three"}, "tidb": [], "pd": {}},
        {"tidb": {"members": {"a": None, "b": 7}}, "tikv": {"stores": {"x": {"podName": "p"}, "y": 1}, "phase": 5}},
        labels={"a": 1},
    )
    assert not found.tls
    assert (found.tidb_replicas, found.tikv_replicas, found.pd_replicas) == (None, 0, 0)
    assert found.tidb_members == ("a", "b")
    assert found.tidb_member_nodes == {}
    assert found.tikv_store_ids == {}
    assert found.tikv_phase == ""
    assert cluster().tikv_replicas is None


def test_a_cluster_of_operator_v2():
    """E12: id, PD, replicas, domain and whether the operator looks after it; what does not fit counts as missing."""
    spec = {"tlsCluster": {"enabled": True}, "dns": {"mode": "FQDN"}, "paused": True}
    kinds = [{"kind": "PD", "replicas": 3}, {"kind": "TiKV", "replicas": 4}, {"kind": "TiProxy"}, 7]
    status = {"id": "745", "pd": "http://basic-pd.tidb:2379", "components": kinds[:3]}
    said = [{"type": "Synced", "status": "False"}, {"type": "Available", "status": "True"}]
    obj = {"metadata": {"name": "demo"}, "spec": spec, "status": {**status, "conditions": said}}
    found = project(Kind.TIDB_V2, obj)
    assert found.v2 and found.tls and found.updating and found.kind is Kind.TIDB_V2
    assert (found.pd_id, found.pd_url, found.cluster_domain) == (745, "http://basic-pd.tidb:2379", "cluster.local")
    assert (found.pd_replicas, found.tikv_replicas, found.tidb_replicas) == (3, 4, None)
    assert found.unattended == "spec.paused" and found.ordinals("tikv") is None
    odd = project(Kind.TIDB_V2, {"metadata": {"name": "demo"}, "spec": {"dns": 1}, "status": {"components": kinds}})
    assert odd.v2 and not odd.unattended and (odd.cluster_domain, odd.tikv_replicas) == ("", None)
    suspended = {"metadata": {"name": "demo"}, "spec": {"suspendAction": {"suspendCompute": True}}}
    assert project(Kind.TIDB_V2, suspended).unattended == "spec.suspendAction"
