"""The scenarios that demos, rehearsals and deciders stand on: drains, lost nodes, spot notices, a TiDB cluster at home."""

import pytest

from mooring.clients.ports import EvictionBlockedError
from mooring.core.model.kinds import Kind
from mooring.core.model.times import moment
from mooring_lab.cluster.apiserver.eviction import evict
from mooring_lab.cluster.cloud import INTERRUPT_AT, Dialect
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.controllers import manifests, podstate
from mooring_lab.cluster.kubelet import FAIL, GRACE, READY, START
from mooring_lab.cluster.scheduler.extenders import Extender
from mooring_lab.cluster.scheduler.selection import Profile


def taints(cluster, node):
    return {
        (t["key"].rpartition("/")[2], t["effect"])
        for t in cluster.store.get(Kind.NODE, "", node)["spec"].get("taints") or ()
    }


# ── drain and budgets ────────────────────────────────────────────────────────────────────────────────────────


def drain(cluster, node):
    """What `kubectl drain --ignore-daemonsets` does once: how many were refused."""
    cluster.cordon(node)
    refused = 0
    for pod in cluster.store.pods_on(node):
        owner = pod["metadata"]["ownerReferences"][0]["kind"]
        if owner != "DaemonSet" and not podstate.terminating(pod):
            try:
                evict(cluster.store, pod["metadata"]["namespace"], pod["metadata"]["name"])
            except EvictionBlockedError:
                refused += 1
    return refused


def test_a_drain_under_a_budget_moves_pods_as_replacements_come():
    """With minAvailable 3 of 4 a drain is refused beyond one pod at a time, ends when all have moved, and availability holds."""
    cluster = Cluster(seed=1)
    cluster.add_nodes(2)
    cluster.deployment("shop", "web", 4)
    cluster.daemon_set("kube-system", "agent")
    cluster.pdb("shop", "web", {"app": "web"}, min_available=3)
    cluster.run_until_stable()
    assert drain(cluster, "node-0") == 1
    lowest, rounds = 4, 0
    while any(p["metadata"]["namespace"] == "shop" for p in cluster.store.pods_on("node-0")):
        cluster.run_for(1)
        lowest = min(lowest, cluster.ready("shop", "web"))
        drain(cluster, "node-0")
        rounds += 1
        assert rounds < 60
    assert lowest == 3
    assert cluster.run_until_stable() and set(cluster.nodes_of("shop", "web").values()) == {"node-1"}
    assert "node-0" in cluster.nodes_of("kube-system", "agent").values()


def test_a_budget_counts_what_is_missing():
    """maxUnavailable 1: with one pod away already, no disruption is allowed."""
    cluster = Cluster()
    cluster.add_nodes(3)
    cluster.deployment("shop", "web", 3)
    cluster.pdb("shop", "web", {"app": "web"}, max_unavailable=1)
    cluster.run_until_stable()
    status = lambda: cluster.store.get(Kind.PDB, "shop", "web")["status"]
    assert (status()["disruptionsAllowed"], status()["desiredHealthy"], status()["expectedPods"]) == (1, 2, 3)
    cluster.annotate(Kind.POD, "shop", next(iter(cluster.nodes_of("shop", "web"))), {FAIL: "ready"})
    cluster.run_for(1)
    assert (status()["disruptionsAllowed"], status()["currentHealthy"]) == (0, 2)


# ── kubelet ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pod_takes_the_time_its_annotations_say():
    """start-, ready- and grace-seconds decide; an end never takes longer than the grace period."""
    cluster = Cluster()
    cluster.add_node("a")
    slow = {START: "10", READY: "5", GRACE: "100"}
    cluster.deployment("x", "slow", 1, template=manifests.pod_template({"app": "slow"}, annotations=slow))
    cluster.run_for(10.5)
    (pod,) = cluster.pods("x", "slow")
    assert (podstate.phase_of(pod), podstate.ready(pod)) == ("Running", False) and pod["status"]["podIP"]
    cluster.run_for(5)
    assert cluster.ready("x", "slow") == 1
    cluster.store.delete(Kind.POD, "x", pod["metadata"]["name"])
    cluster.run_for(29)
    assert cluster.store.find(Kind.POD, "x", pod["metadata"]["name"]) is not None
    cluster.run_for(2)
    assert cluster.store.find(Kind.POD, "x", pod["metadata"]["name"]) is None


@pytest.mark.parametrize(
    ("fail", "phase"), [("start", "Pending"), ("ready", "Running"), ("crash", "Running"), ("exit", "Failed")]
)
def test_a_pod_fails_as_asked_and_heals(fail, phase):
    """Each way to fail shows as it does in the lab; taken off again the pod heals (one that ended stays ended)."""
    cluster = Cluster()
    cluster.add_node("a")
    made = manifests.pod_template({"app": "x"}, annotations={FAIL: fail})
    cluster.store.create(Kind.POD, {"metadata": {"name": "x", **made["metadata"]}, "spec": made["spec"]})
    cluster.run_for(20)
    assert podstate.phase_of(cluster.store.get(Kind.POD, "default", "x")) == phase
    assert not podstate.ready(cluster.store.get(Kind.POD, "default", "x"))
    cluster.annotate(Kind.POD, "default", "x", {FAIL: None})
    cluster.run_for(20)
    assert podstate.ready(cluster.store.get(Kind.POD, "default", "x")) == (fail != "exit")


# ── nodes ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_node_that_vanishes_loses_its_pods_after_five_minutes():
    """Silent for 50 s: Unknown, unreachable, pods not Ready; 300 s later replaced elsewhere; the old ones stay Terminating."""
    cluster = Cluster(seed=2)
    cluster.add_nodes(3)
    cluster.deployment("shop", "web", 3)
    cluster.run_until_stable()
    lost = cluster.pods("shop", "web")[0]
    node = podstate.node_of(lost)
    cluster.kubelets.silence(node)
    cluster.run_for(45)
    assert cluster.ready("shop", "web") == 3
    cluster.run_for(10)
    assert cluster.ready("shop", "web") == 2
    assert taints(cluster, node) == {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}
    assert podstate.condition(cluster.store.get(Kind.NODE, "", node), "Ready")["status"] == "Unknown"
    cluster.run_for(320)
    assert cluster.ready("shop", "web") == 3
    assert podstate.terminating(cluster.store.get(Kind.POD, "shop", lost["metadata"]["name"]))
    cluster.kubelets.resume(node)
    assert cluster.run_until_stable() and taints(cluster, node) == set()


def test_a_kubelet_that_comes_back_in_time_costs_nothing():
    """Back before the toleration ends: no pod is replaced."""
    cluster = Cluster(seed=2)
    cluster.add_nodes(3)
    cluster.deployment("shop", "web", 3)
    cluster.run_until_stable()
    before = {p["metadata"]["uid"] for p in cluster.pods("shop", "web")}
    cluster.kubelets.silence("node-1")
    cluster.run_for(200)
    cluster.kubelets.resume("node-1")
    cluster.run_for(600)
    assert {p["metadata"]["uid"] for p in cluster.pods("shop", "web")} == before and cluster.stable()


def test_a_stateful_pod_on_a_dead_node_comes_back_only_when_the_node_is_given_up():
    """At most one of an identity: the pod stays Terminating until the Node is out of service or gone."""
    cluster = Cluster(seed=2)
    cluster.add_nodes(3)
    cluster.stateful_set("db", "kv", 3)
    cluster.run_until_stable()
    node = cluster.nodes_of("db", "kv")["kv-1"]
    cluster.kubelets.silence(node)
    cluster.run_for(900)
    assert cluster.ready("db", "kv") == 2
    cluster.store.patch(
        Kind.NODE,
        "",
        node,
        {
            "spec": {
                "taints": [
                    *cluster.store.get(Kind.NODE, "", node)["spec"]["taints"],
                    {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"},
                ]
            }
        },
    )
    cluster.run_for(30)
    assert cluster.ready("db", "kv") == 3 and cluster.nodes_of("db", "kv")["kv-1"] != node


def test_many_lost_nodes_are_evicted_slowly():
    """NoExecute comes to one node in ten seconds; when most of a small cluster is down, to none."""
    cluster = Cluster()
    cluster.add_nodes(10)
    for i in range(3):
        cluster.kubelets.silence(f"node-{i}")
    cluster.run_for(55)
    held = lambda: sum(("unreachable", "NoExecute") in taints(cluster, f"node-{i}") for i in range(10))
    assert held() == 1
    cluster.run_for(20)
    assert held() == 3
    for i in range(3, 7):
        cluster.kubelets.silence(f"node-{i}")
    cluster.run_for(300)
    assert held() == 3


def test_graceful_shutdown_says_so_and_ends_pods():
    """Ready=False with the kubelet's words, pods Failed with reason Terminated, replaced elsewhere."""
    cluster = Cluster(seed=4)
    cluster.add_nodes(2)
    cluster.deployment("shop", "web", 2)
    cluster.run_until_stable()
    cluster.kubelets.shut_down("node-0", grace_s=20)
    said = podstate.condition(cluster.store.get(Kind.NODE, "", "node-0"), "Ready")
    assert (said["status"], said["message"]) == ("False", "node is shutting down")
    cluster.run_for(30)
    assert cluster.ready("shop", "web") == 2
    assert {p["status"].get("reason") for p in cluster.pods("shop", "web") if podstate.terminal(p)} == {"Terminated"}


# ── cloud ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_spot_notice_its_deadline_and_the_return():
    """The annotation carries the deadline; then the machine is silent, its Node goes, its pods are replaced, and capacity may return."""
    cluster = Cluster(seed=6)
    cluster.add_node("safe")
    cluster.add_node("spot-0", capacity="spot")
    cluster.deployment("shop", "web", 4)
    cluster.run_until_stable()
    notice = cluster.cloud.notice("spot-0", after_s=120)
    said = cluster.store.get(Kind.NODE, "", "spot-0")["metadata"]["annotations"][INTERRUPT_AT]
    assert moment(said) == pytest.approx(notice.deadline, abs=1)
    cluster.run_for(119)
    assert cluster.kubelets.silent_since("spot-0") is None
    cluster.run_for(120)
    assert cluster.store.find(Kind.NODE, "", "spot-0") is None
    assert cluster.run_until_stable() and set(cluster.nodes_of("shop", "web").values()) == {"safe"}
    cluster.cloud.give_back("spot-0")
    cluster.run_for(1)
    assert podstate.condition(cluster.store.get(Kind.NODE, "", "spot-0"), "Ready")["status"] == "True"


def test_a_notice_ends_with_its_machine():
    """Given in the moments in which the machine is gone and its Node still stands: neither Node nor machine is left."""
    cluster = Cluster()
    cluster.add_node("spot-0", capacity="spot")
    cluster.cloud.take("spot-0")
    cluster.run_for(5)
    cluster.cloud.notice_all_spot()
    cluster.run_for(30)
    assert cluster.store.find(Kind.NODE, "", "spot-0") is None
    assert cluster.cloud.notices == {}
    cluster.cloud.give_back("spot-0")
    cluster.run_for(600)
    assert podstate.condition(cluster.store.get(Kind.NODE, "", "spot-0"), "Ready")["status"] == "True"


@pytest.mark.parametrize(
    ("dialect", "taint"),
    [
        (Dialect.NODE_TERMINATION_HANDLER, ("spot-itn", "NoSchedule")),
        (Dialect.KARPENTER, ("disrupted", "NoSchedule")),
        (Dialect.TAINT, ("interrupting", "NoSchedule")),
    ],
)
def test_a_notice_taken_back_leaves_no_trace(dialect, taint):
    """Each dialect's signal comes with the notice and goes with its withdrawal; the node stays."""
    cluster = Cluster()
    cluster.add_node("spot-0", capacity="spot")
    cluster.cloud.notice("spot-0", after_s=60, dialect=dialect)
    assert taint in taints(cluster, "spot-0")
    cluster.cloud.withdraw("spot-0")
    cluster.run_for(600)
    assert taints(cluster, "spot-0") == set()
    assert podstate.condition(cluster.store.get(Kind.NODE, "", "spot-0"), "Ready")["status"] == "True"


def test_a_notice_taken_back_takes_the_one_it_replaced_with_it():
    """A second notice in other words replaces the first: once it is taken back, nothing says that the node goes."""
    cluster = Cluster()
    cluster.add_node("spot-0", capacity="spot")
    cluster.cloud.notice("spot-0", dialect=Dialect.TAINT)
    cluster.cloud.notice("spot-0", dialect=Dialect.ANNOTATION)
    cluster.cloud.withdraw("spot-0")
    cluster.run_for(600)
    assert taints(cluster, "spot-0") == set()
    assert INTERRUPT_AT not in podstate.annotations_of(cluster.store.get(Kind.NODE, "", "spot-0"))


def test_a_zone_that_is_lost_as_a_whole_is_emptied_at_the_usual_rate():
    """No node of it answers while another zone is well: that is no broken network, and workloads may move there."""
    cluster = Cluster()
    for zone in ("a", "b"):
        cluster.add_nodes(4, prefix=f"{zone}-", zone=zone)
    for i in range(3):
        cluster.kubelets.silence(f"a-{i}")
    cluster.run_for(300)
    held = lambda: sum(("unreachable", "NoExecute") in taints(cluster, f"a-{i}") for i in range(4))
    assert held() == 0
    cluster.kubelets.silence("a-3")
    cluster.run_for(55)
    cluster.run_for(40)
    assert held() == 4


def test_all_spot_nodes_at_once():
    """One call gives every spot node notice, and no other."""
    cluster = Cluster()
    cluster.add_nodes(2, prefix="od-")
    cluster.add_nodes(3, prefix="spot-", capacity="spot")
    cluster.cloud.notice_all_spot(after_s=30)
    cluster.run_for(60)
    assert [n["metadata"]["name"] for n in cluster.store.list(Kind.NODE)] == ["od-0", "od-1"]


# ── TiDB ─────────────────────────────────────────────────────────────────────────────────────────────────────


def home(cluster):
    """The design's predicate, as an extender in process: the previous node if it is offered, else all."""

    def verb(args):
        pod = args["Pod"]["metadata"]
        owner = cluster.store.find(
            Kind.TIDB_CLUSTER, pod["namespace"], pod["labels"].get("app.kubernetes.io/instance", "")
        )
        members = (((owner or {}).get("status") or {}).get("tidb") or {}).get("members") or {}
        node = (members.get(pod["name"]) or {}).get("node")
        return {"NodeNames": [node] if node in args["NodeNames"] else args["NodeNames"]}

    return verb


def tidb(with_home, nodes=6):
    cluster = Cluster(seed=9)
    cluster.add_nodes(nodes)
    if with_home:
        extender = Extender(name="home", filter=home(cluster), node_cache_capable=True)
        cluster.scheduler.set_profile(Profile("tidb-scheduler", 100, (extender,)))
    cluster.tidb_cluster("default", "demo")
    cluster.run_for(1)
    cluster.run_until_stable()
    return cluster


def test_a_rolling_update_with_home_keeps_the_nodes_that_the_load_balancer_knows():
    """The seed's story (H5): new uids, same nodes, and the same set of nodes with a ready local endpoint."""
    cluster = tidb(with_home=True)
    nodes, balancer = cluster.nodes_of("default", "demo-tidb"), cluster.ready_nodes("default", "demo-tidb")
    before = {p["metadata"]["uid"] for p in cluster.pods("default", "demo-tidb")}
    assert balancer == set(nodes.values()) and len(balancer) == 3
    service = cluster.store.get(Kind.SERVICE, "default", "demo-tidb")["spec"]
    assert (service["type"], service["externalTrafficPolicy"]) == ("NodePort", "Local")
    cluster.change(
        Kind.TIDB_CLUSTER,
        "default",
        "demo",
        lambda tc: podstate.with_spec(tc, tidb={**tc["spec"]["tidb"], "version": "v8.5.1"}),
    )
    cluster.run_for(2)
    assert cluster.run_until_stable()
    assert not before & {p["metadata"]["uid"] for p in cluster.pods("default", "demo-tidb")}
    assert cluster.nodes_of("default", "demo-tidb") == nodes
    assert cluster.ready_nodes("default", "demo-tidb") == balancer


def test_the_member_remembers_its_node_while_it_is_away_and_is_forgotten_when_scaled_in():
    """H3 as the operator keeps it: the node outlives the pod, follows a forced move, and goes with the member."""
    cluster = tidb(with_home=False)
    members = lambda: cluster.store.get(Kind.TIDB_CLUSTER, "default", "demo")["status"]["tidb"]["members"]
    was = members()["demo-tidb-2"]["node"]
    cluster.cordon(was)
    cluster.scheduler.stop()
    cluster.store.delete(Kind.POD, "default", "demo-tidb-2")
    cluster.run_for(30)
    assert members()["demo-tidb-2"] == {**members()["demo-tidb-2"], "node": was, "health": False}
    cluster.scheduler.start()
    cluster.run_until_stable()
    assert members()["demo-tidb-2"]["node"] == cluster.nodes_of("default", "demo-tidb")["demo-tidb-2"] != was
    cluster.change(
        Kind.TIDB_CLUSTER,
        "default",
        "demo",
        lambda tc: podstate.with_spec(tc, tidb={**tc["spec"]["tidb"], "replicas": 2}),
    )
    cluster.run_for(30)
    assert sorted(members()) == ["demo-tidb-0", "demo-tidb-1"]


def test_the_operator_drops_status_fields_it_does_not_know():
    """A mark of ours in its status does not survive its next write (why E3's mark is an annotation)."""
    cluster = tidb(with_home=False)

    def mark(tc):
        status = tc["status"]
        return {
            **tc,
            "status": {**status, "tikv": {**status["tikv"], "evictLeaderStatus": {"demo-tikv-0": {"value": "none"}}}},
        }

    cluster.store.mutate(Kind.TIDB_CLUSTER, "default", "demo", mark)
    cluster.run_for(1)
    assert "evictLeaderStatus" not in cluster.store.get(Kind.TIDB_CLUSTER, "default", "demo")["status"]["tikv"]


def with_pd():
    cluster = Cluster(seed=9)
    cluster.add_nodes(4)
    cluster.tidb_cluster("default", "demo", with_pd=True)
    cluster.run_for(1)
    cluster.run_until_stable()
    pd = cluster.pd["default", "demo"]
    pd.load(30)
    cluster.run_for(60)
    return cluster, pd


def test_stores_follow_their_pods():
    """A TiKV pod that is gone takes its store away, and brings it back under the same id."""
    cluster, pd = with_pd()
    store = pd.store_of("demo-tikv-1")
    cluster.store.delete(Kind.POD, "default", "demo-tikv-1")
    cluster.run_for(2)
    assert not store.alive
    cluster.run_until_stable()
    assert store.alive and pd.store_of("demo-tikv-1").id == store.id
    seen = cluster.store.get(Kind.TIDB_CLUSTER, "default", "demo")["status"]["tikv"]["stores"]
    assert {s["podName"] for s in seen.values()} == {f"demo-tikv-{i}" for i in range(3)}


def test_tidb_operator_hands_a_store_over_by_annotation():
    """The shipped `evict-leader: delete-pod`: entry, scheduler, zero leaders, new pod, scheduler and entry gone."""
    cluster, pd = with_pd()
    cluster.tidb_evictions.acts = True
    old = cluster.store.get(Kind.POD, "default", "demo-tikv-1")["metadata"]["uid"]
    cluster.annotate(Kind.POD, "default", "demo-tikv-1", {"tidb.pingcap.com/evict-leader": "delete-pod"})
    cluster.run_for(1)
    entries = lambda: cluster.store.get(Kind.TIDB_CLUSTER, "default", "demo")["status"]["tikv"].get("evictLeader", {})
    assert entries()["demo-tikv-1"]["value"] == "delete-pod" and pd.store_of("demo-tikv-1").id in pd.server.evict_list()
    assert cluster.run_until(lambda: cluster.store.find(Kind.POD, "default", "demo-tikv-1") is None, limit_s=600)
    assert not pd.server.tikv.led[pd.store_of("demo-tikv-1").id] and not pd.interruptions
    cluster.run_for(30)
    assert cluster.store.get(Kind.POD, "default", "demo-tikv-1")["metadata"]["uid"] != old
    assert not entries() and not pd.server.evict_list()


def test_an_upgrade_of_tikv_ends_evictions_that_others_began():
    """After Upgrade → Normal no evict-leader scheduler is left, whoever added it."""
    from mooring_lab.cluster.pd import requests

    cluster, pd = with_pd()
    requests.add_evict_leader(pd.server, pd.store_of("demo-tikv-0").id)
    cluster.change(
        Kind.TIDB_CLUSTER,
        "default",
        "demo",
        lambda tc: podstate.with_spec(tc, tikv={**tc["spec"]["tikv"], "version": "v8.5.1"}),
    )
    cluster.run_for(60)
    assert cluster.stable() and not pd.server.evict_list()
