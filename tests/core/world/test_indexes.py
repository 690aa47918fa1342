from mooring.core.model.capacity import CapacityRules, NodeClass
from mooring.core.model.cluster import Claim, ConfigMap, Key, Owner, Pdb, PodShape, Requirement, Taint, Volume
from mooring.core.model.events import Gone, Listed
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import Machine, MachineState
from mooring.core.model.tidb import PdView, TidbCluster
from mooring.core.world.read import Usage
from mooring.core.world.world import World


def names(found):
    return sorted(row.name for row in found)


def test_pods_by_node_follow_the_pod(world, rows, see):
    """A pod is found on its node from the moment it is bound, and no longer once it is gone."""
    see(Kind.POD, rows.pod("p"))
    assert world.pods_on("n1") == ()
    see(Kind.POD, rows.pod("p", node="n1"), rows.pod("q", node="n1"))
    assert names(world.pods_on("n1")) == ["p", "q"]
    world.apply(Gone(Kind.POD, Key("a", "p"), "p-uid"))
    assert names(world.pods_on("n1")) == ["q"]
    assert world.check() == []


def test_rows_are_the_newest_everywhere(world, rows, see):
    """Each way to a pod leads to its latest version."""
    owner = Owner("StatefulSet", "db", "db-uid")
    labels = {"app.kubernetes.io/instance": "demo", "app.kubernetes.io/component": "tikv"}
    shape = PodShape(labels=labels)
    see(Kind.POD, rows.pod("p", owner=owner, node="n1", shape=shape))
    newest = rows.pod("p", owner=owner, node="n1", shape=shape, ready=True)
    see(Kind.POD, newest)
    assert world.pod(Key("a", "p")) is newest
    assert world.pods_on("n1")[0] is newest
    assert world.pods_owned_by("db-uid")[0] is newest
    assert world.tidb_pods(Key("a", "demo"), "tikv")[0] is newest


def test_a_pod_leads_to_its_deployment_and_back(world, rows, see):
    """M1: pod → ReplicaSet → Deployment, over all ReplicaSets of a rollout, in whichever order they arrive."""
    pods = [
        rows.pod("web-1-a", owner=Owner("ReplicaSet", "web-1", "web-1-uid")),
        rows.pod("web-2-a", owner=Owner("ReplicaSet", "web-2", "web-2-uid")),
    ]
    see(Kind.POD, *pods)
    assert world.workload_of(pods[0]) is None
    deployment = Owner("Deployment", "web", "web-uid")
    see(Kind.REPLICA_SET, rows.replica_set("web-1", owner=deployment), rows.replica_set("web-2", owner=deployment))
    web = rows.workload(Kind.DEPLOYMENT, "web")
    see(Kind.DEPLOYMENT, web)
    assert world.workload_of(pods[0]) is web
    assert names(world.pods_of(web)) == ["web-1-a", "web-2-a"]
    assert names(world.replica_sets_of("web-uid")) == ["web-1", "web-2"]
    assert world.replica_set("web-1-uid").name == "web-1"
    assert world.workload(Kind.DEPLOYMENT, web.key) is web
    assert world.workload(Kind.POD, web.key) is None


def test_a_namesake_does_not_inherit(world, rows, see):
    """Owners match by uid: a StatefulSet that was deleted and created again does not own the old one's pods."""
    see(Kind.STATEFUL_SET, rows.workload(Kind.STATEFUL_SET, "db", "old"))
    pod = rows.pod("db-0", owner=Owner("StatefulSet", "db", "old"))
    see(Kind.POD, pod)
    again = rows.workload(Kind.STATEFUL_SET, "db", "new")
    see(Kind.STATEFUL_SET, again)
    assert world.pods_of(again) == ()
    assert world.workload_of(pod) is None
    assert world.workload_by_uid("new") is again
    assert [w.uid for w in world.workloads()] == ["new"]


def test_other_owners_are_no_workloads(world, rows, see):
    """Bare pods, Jobs and lone ReplicaSets have no workload."""
    see(Kind.REPLICA_SET, rows.replica_set("lone"))
    pods = [
        rows.pod("bare"),
        rows.pod("job", owner=Owner("Job", "j", "j")),
        rows.pod("x", owner=Owner("ReplicaSet", "lone", "lone-uid")),
    ]
    see(Kind.POD, *pods)
    assert [world.workload_of(pod) for pod in pods] == [None] * 3


def test_nodes_by_class_and_taint(world, rows, see):
    """Nodes move between classes and taints as their labels and taints change."""
    spot, fixed = {"node.kubernetes.io/capacity": "spot"}, {"node.kubernetes.io/capacity": "on-demand"}
    interrupted = Taint("vacant.io/interrupted", "NoSchedule")
    see(Kind.NODE, rows.node("n1", labels=spot), rows.node("n2", labels=fixed), rows.node("n3"))
    assert names(world.nodes_of_class(NodeClass.SPOT)) == ["n1"]
    assert world.node_class("n3") is NodeClass.UNKNOWN
    assert world.node_class("nowhere") is NodeClass.UNKNOWN
    see(Kind.NODE, rows.node("n1", labels=fixed, taints=(interrupted, Taint("vacant.io/interrupted", "NoExecute"))))
    assert names(world.nodes_of_class(NodeClass.ON_DEMAND)) == ["n1", "n2"]
    assert world.nodes_of_class(NodeClass.SPOT) == ()
    assert names(world.nodes_with_taint("vacant.io/interrupted")) == ["n1"]
    see(Kind.NODE, rows.node("n1", labels=fixed))
    assert world.nodes_with_taint("vacant.io/interrupted") == ()
    assert names(world.nodes()) == ["n1", "n2", "n3"]


def test_usage_counts_what_holds_room(world, rows, see):
    """Leaving pods still hold their room, ended ones and those without a node do not."""
    see(Kind.POD, rows.pod("a1", node="n1", cpu=100), rows.pod("a2", node="n1", cpu=200, deletion_at=5.0))
    see(Kind.POD, rows.pod("a3", node="n1", cpu=400, phase="Succeeded"), rows.pod("a4", cpu=800))
    assert world.usage("n1") == Usage(300, 0, 2)
    see(Kind.POD, rows.pod("a1", node="n1", cpu=100, phase="Failed"))
    assert world.usage("n1") == Usage(200, 0, 1)
    see(Kind.POD, rows.pod("a2", node="n1", cpu=250))
    assert world.usage("n1") == Usage(250, 0, 1)
    assert world.usage("nowhere") == Usage()


def test_usage_follows_a_pod_that_keeps_its_shape(world, rows, see):
    """Rows that share everything but a place or a phase are told apart all the same."""
    shape = PodShape(cpu_milli=100)
    see(Kind.POD, rows.pod("p", shape=shape), rows.pod("p", shape=shape, node="n1"))
    assert (world.usage("n1").cpu_milli, names(world.pods_on("n1"))) == (100, ["p"])
    see(Kind.POD, rows.pod("p", shape=shape, node="n1", phase="Failed"))
    assert (world.usage("n1").cpu_milli, names(world.pods_on("n1"))) == (0, ["p"])


def test_budgets_select_within_their_namespace(world, rows, see):
    """A budget selects by labels, also by the pod-name label that pods of a StatefulSet carry one by one."""
    see(
        Kind.PDB,
        Pdb("a", "web", "1", "1", match_labels={"app": "web"}),
        Pdb("b", "web", "2", "1", match_labels={"app": "web"}),
    )
    one = Requirement("statefulset.kubernetes.io/pod-name", "In", ("db-1",))
    see(Kind.PDB, Pdb("a", "one", "3", "1", match_expressions=(one,)))
    assert names(world.pdbs_of(rows.pod("x", labels={"app": "web"}))) == ["web"]
    owner = Owner("StatefulSet", "db", "db-uid")
    assert names(world.pdbs_of(rows.pod("db-1", owner=owner))) == ["one"]
    assert names(world.pdbs_of(rows.pod("db-2", owner=owner))) == []


def test_volumes_of_a_pod(world, rows, see):
    """A pod leads through its claims to its bound volumes; what is not known yet is left out."""
    see(Kind.PVC, Claim("a", "data", "1", "1", volume="pv1"), Claim("a", "unbound", "2", "1"))
    see(Kind.PV, Volume("pv1", "3", "1"))
    assert names(world.volumes_of(rows.pod("p", claims=("data", "unbound", "unknown")))) == ["pv1"]


def test_tidb_pods_by_component(world, rows, see):
    """H1: a TidbCluster's pods are found per component; other software with the same labels is not mixed in."""

    def labels(component):
        return {"app.kubernetes.io/instance": "demo", "app.kubernetes.io/component": component}

    tikv = rows.pod("demo-tikv-0", labels=labels("tikv"))
    see(Kind.POD, tikv, rows.pod("demo-tidb-0", labels=labels("tidb")), rows.pod("x", labels=labels("frontend")))
    demo = TidbCluster("a", "demo", "u", "1")
    see(Kind.TIDB_CLUSTER, demo)
    assert names(world.tidb_pods(demo.key, "tikv")) == ["demo-tikv-0"]
    assert names(world.tidb_pods(demo.key, "frontend")) == []
    assert world.tidb_cluster_of(tikv) is demo
    assert world.tidb_cluster_of(rows.pod("y")) is None
    assert list(world.tidb_clusters()) == [demo]


def test_facts_from_elsewhere_carry_their_time(world, rows, see):
    """PD and the registry are remembered with the moment they were asked, and PD's view goes with its cluster."""
    demo = TidbCluster("a", "demo", "u", "1")
    see(Kind.TIDB_CLUSTER, demo)
    view = PdView(stores=(), evicting=(), region_count=0, start_timestamp=1)
    assert (world.pd(demo.key), world.pd_observed_at(demo.key), world.machines_observed_at()) == (None, None, None)
    world.note_pd(demo.key, view, 12.0)
    world.note_machines([Machine("s", "10.0.0.1", MachineState.HEALTHY)], 13.0)
    assert (world.pd(demo.key), world.pd_observed_at(demo.key)) == (view, 12.0)
    assert (world.machines()[0].serial, world.machines_observed_at()) == ("s", 13.0)
    world.apply(Gone(Kind.TIDB_CLUSTER, demo.key, "u"))
    assert world.pd(demo.key) is None


def test_synced_means_listed(world):
    """A kind is synced once a list has come, even an empty one: only then does absence mean anything."""
    assert not world.synced(Kind.POD)
    world.apply(Listed(Kind.POD, ()))
    assert world.synced(Kind.POD)
    assert not world.synced(Kind.POD, Kind.NODE)


def test_config_maps(world, see):
    """Memory that lies in ConfigMaps is found by name."""
    see(Kind.CONFIG_MAP, ConfigMap("a", "memory", "1", "1", data={"k": "v"}))
    assert world.config_map(Key("a", "memory")).data == {"k": "v"}


def test_the_checker_notices(rows):
    """The checker is no ornament: an index that has drifted is named."""
    world = World(CapacityRules())
    world.apply(Listed(Kind.POD, (rows.pod("p", node="n1", cpu=10),)))
    world._pod_indexes.used["n1"][0] += 1
    world._pod_indexes.by_node["n2"] = {"ghost": None}
    assert [line.split(":")[0] for line in world.check()] == ["pods by node", "node usage"]
