"""The sandbox's scheduler filters, scores, samples, preempts and calls extenders as kube-scheduler does."""

import pytest

from mooring.clients.wire.quantity import milli, whole
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.controllers import manifests, podstate
from mooring_lab.cluster.scheduler.extenders import Extender
from mooring_lab.cluster.scheduler.selection import Profile, nodes_to_find


def pod(name, *, labels=None, cpu="100m", memory="128Mi", namespace="default", **spec):
    made = manifests.pod_template(labels or {"app": name}, cpu=cpu, memory=memory, **spec)
    return {"metadata": {"name": name, "namespace": namespace, **made["metadata"]}, "spec": made["spec"]}


def put(cluster, *pods):
    for one in pods:
        cluster.store.create(Kind.POD, one)
    cluster.run_for(1)


def where(cluster, name, namespace="default"):
    return podstate.node_of(cluster.store.get(Kind.POD, namespace, name))


def why(cluster, name, namespace="default"):
    return podstate.condition(cluster.store.get(Kind.POD, namespace, name), "PodScheduled")


def required(key, *values, operator="In"):
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def preferred(key, *values, weight=100):
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}
    return {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "preference": term}]}
    }


CAPACITY = "node.kubernetes.io/capacity"


@pytest.fixture
def cluster():
    made = Cluster(seed=5)
    made.add_node("a", cpu="2", capacity="on-demand")
    made.add_node("b", cpu="2", capacity="spot")
    made.add_node("c", cpu="4", capacity="spot", taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])
    return made


def test_room_is_counted_by_requests(cluster):
    """Requests fill nodes; what fits nowhere is Unschedulable with kube-scheduler's sentence, and comes in when room appears."""
    put(cluster, pod("one", cpu="1500m"), pod("two", cpu="1500m"), pod("three", cpu="1500m"))
    assert {where(cluster, "one"), where(cluster, "two")} == {"a", "b"}
    said = why(cluster, "three")
    assert (said["status"], said["reason"]) == ("False", "Unschedulable")
    assert said["message"] == (
        "0/3 nodes are available: 2 Insufficient cpu, 1 node(s) had untolerated taint {gpu: yes}."
    )
    cluster.store.delete(Kind.POD, "default", "one")
    cluster.run_for(15)
    assert where(cluster, "three") == "a"


def test_the_number_of_pods_is_a_resource_too():
    """A node takes no more pods than it allows."""
    cluster = Cluster()
    cluster.add_node("small", pods=2)
    put(cluster, *(pod(f"p{i}", cpu="1m") for i in range(3)))
    assert why(cluster, "p2")["message"] == "0/1 nodes are available: 1 Too many pods."


def test_taints_selectors_and_required_affinity_filter(cluster):
    """Toleration, node selector and required node affinity decide where a pod may go."""
    tolerate = [{"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}]
    put(
        cluster,
        pod("gpu", tolerations=tolerate, nodeSelector={"kubernetes.io/hostname": "c"}),
        pod("safe", affinity=required(CAPACITY, "on-demand")),
        pod("not-spot", affinity=required(CAPACITY, "spot", operator="NotIn")),
        pod("nowhere", affinity=required(CAPACITY, "moon")),
    )
    assert [where(cluster, n) for n in ("gpu", "safe", "not-spot", "nowhere")] == ["c", "a", "a", ""]


def test_a_cordon_and_its_end(cluster):
    """A cordoned node takes no pod; lifting the cordon lets the waiting one in."""
    cluster.cordon("a")
    cluster.cordon("b")
    put(cluster, pod("web"))
    assert "unschedulable" in why(cluster, "web")["message"]
    cluster.cordon("b", on=False)
    cluster.run_for(15)
    assert where(cluster, "web") == "b"


def test_preference_decides_among_equals_and_yields_to_room(cluster):
    """Weight-100 preference for spot wins among free nodes; when spot is full the pod goes elsewhere (M3)."""
    put(cluster, pod("first", cpu="1500m", affinity=preferred(CAPACITY, "spot")))
    put(cluster, pod("second", cpu="1500m", affinity=preferred(CAPACITY, "spot")))
    assert [where(cluster, "first"), where(cluster, "second")] == ["b", "a"]


def test_prefer_no_schedule_is_avoided_while_possible():
    """PreferNoSchedule shuns a node without closing it."""
    cluster = Cluster()
    cluster.add_node("a", taints=[{"key": "old", "effect": "PreferNoSchedule"}])
    cluster.add_node("b", cpu="1")
    put(cluster, pod("one", cpu="800m"), pod("two", cpu="800m"))
    assert [where(cluster, "one"), where(cluster, "two")] == ["b", "a"]


def apart(app, key="kubernetes.io/hostname"):
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_required_anti_affinity_works_both_ways(cluster):
    """A pod keeps away from those its term names, and others keep away from it by its term."""
    put(
        cluster,
        pod("kv-0", labels={"app": "kv"}, affinity=apart("kv")),
        pod("kv-1", labels={"app": "kv"}, affinity=apart("kv")),
    )
    assert {where(cluster, "kv-0"), where(cluster, "kv-1")} == {"a", "b"}
    put(cluster, pod("kv-2", labels={"app": "kv"}))  # no term of its own, but theirs names it
    assert where(cluster, "kv-2") == "" and "anti-affinity" in why(cluster, "kv-2")["message"]


def test_hard_topology_spread_keeps_the_skew():
    """DoNotSchedule: no rack gets ahead by more than maxSkew."""
    cluster = Cluster()
    for rack in range(3):
        for i in range(2):
            cluster.add_node(f"r{rack}-{i}", labels={"rack": str(rack)})
    rule = {
        "maxSkew": 1,
        "topologyKey": "rack",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    cluster.deployment(
        "default", "web", 7, template=manifests.pod_template({"app": "web"}, topologySpreadConstraints=[rule])
    )
    cluster.run_until_stable()
    racks = [node[:2] for node in cluster.nodes_of("default", "web").values()]
    assert sorted(racks.count(r) for r in set(racks)) == [2, 2, 3]


def test_a_lost_zone_keeps_its_replacements_pending():
    """O4: pods that are leaving do not count for spread, and a tainted zone still is a domain (`nodeTaintsPolicy`), so
    what a hard spread over zones loses with one of them stays Pending until its nodes are gone."""
    cluster = Cluster(seed=5)
    for zone in "xyz":
        cluster.add_node(f"n-{zone}", cpu="8", labels={"topology.kubernetes.io/zone": zone})
    rule = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }

    def make(name, **more):
        return pod(name, labels={"app": "web"}, topologySpreadConstraints=[rule | more])

    put(cluster, *[make(f"web-{n}") for n in range(6)])
    lost = [f"web-{n}" for n in range(6) if where(cluster, f"web-{n}") == "n-z"]
    assert len(lost) == 2
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
    cluster.store.mutate(Kind.NODE, "", "n-z", lambda node: node | {"spec": node["spec"] | {"taints": [taint]}})
    for name in lost:
        cluster.store.mutate(
            Kind.POD, "default", name, lambda one: one | {"metadata": one["metadata"] | {"finalizers": ["a/b"]}}
        )
        cluster.store.delete(Kind.POD, "default", name)
    put(cluster, make("again"), make("stands-aside", nodeTaintsPolicy="Honor"))
    assert where(cluster, "again") == ""
    assert where(cluster, "stands-aside") in {"n-x", "n-y"}
    cluster.store.delete(Kind.NODE, "", "n-z")
    cluster.run_for(30)
    assert where(cluster, "again") in {"n-x", "n-y"}


def test_replicas_spread_without_being_told():
    """Siblings of one owner go to different nodes although one node is emptier than the rest."""
    cluster = Cluster()
    cluster.add_node("big", cpu="64", memory="256Gi")
    for i in range(5):
        cluster.add_node(f"small-{i}", cpu="4", memory="16Gi")
    cluster.deployment("default", "web", 6)
    cluster.run_until_stable()
    assert len(set(cluster.nodes_of("default", "web").values())) == 6


def test_scheduling_gates_hold_a_pod(cluster):
    """A gated pod waits, and says so; with the gate gone it is scheduled."""
    put(cluster, pod("gated", schedulingGates=[{"name": "mooring.dev/decide"}]))
    assert why(cluster, "gated")["reason"] == "SchedulingGated"
    cluster.store.patch(Kind.POD, "default", "gated", {"spec": {"schedulingGates": None}})
    cluster.run_for(1)
    assert where(cluster, "gated")


def test_an_unknown_scheduler_name_is_nobodys(cluster):
    """A pod that names a scheduler which does not run stays Pending, without a condition."""
    put(cluster, pod("lost", schedulerName="other"))
    assert where(cluster, "lost") == "" and why(cluster, "lost") is None


def test_higher_priority_preempts_the_cheapest_victims_and_gets_the_seat(cluster):
    """Victims leave with their grace, the seat is promised meanwhile, and a lower pod cannot slip in."""
    put(cluster, pod("cheap", cpu="1800m", priority=1), pod("dear", cpu="1800m", priority=5))
    put(cluster, pod("boss", cpu="1500m", priority=100))
    boss = cluster.store.get(Kind.POD, "default", "boss")
    assert boss["status"]["nominatedNodeName"] == where(cluster, "cheap")
    seat = where(cluster, "cheap")
    put(cluster, pod("thief", cpu="1500m", priority=1))
    cluster.run_for(15)
    assert where(cluster, "boss") == seat and where(cluster, "thief") == ""
    assert where(cluster, "dear") and cluster.store.find(Kind.POD, "default", "cheap") is None


def test_nobody_is_preempted_where_a_rule_keeps_the_pod_off_anyway():
    """O4: a hard spread refuses the zone that is full of its siblings, whoever leaves it: the victim is in the other."""
    cluster = Cluster(seed=5)
    for name, zone in (("a", "one"), ("b", "two")):
        cluster.add_node(name, cpu="2", zone=zone)
    spread = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
    rules = [{**spread, "labelSelector": {"matchLabels": {"app": "boss"}}}]
    boss = {"labels": {"app": "boss"}, "cpu": "1", "priority": 100, "topologySpreadConstraints": rules}
    put(cluster, pod("cheap", cpu="900m", priority=1, nodeName="a"), pod("dear", cpu="1500m", priority=5, nodeName="b"))
    put(cluster, pod("boss-0", nodeName="a", **boss))
    put(cluster, pod("boss-1", **boss))
    cluster.run_for(15)
    assert where(cluster, "boss-1") == "b" and where(cluster, "cheap") == "a"
    assert cluster.store.find(Kind.POD, "default", "dear") is None


def test_the_pod_that_a_rule_minds_is_the_victim():
    """O4: anti-affinity, not room, keeps the pod off: the one that it minds goes, and its neighbour stays."""
    cluster = Cluster(seed=5)
    cluster.add_node("a", cpu="4")
    term = {"labelSelector": {"matchLabels": {"app": "noisy"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    put(cluster, pod("noisy", priority=1), pod("calm", priority=1))
    put(cluster, pod("boss", priority=100, affinity=apart))
    cluster.run_for(15)
    assert where(cluster, "boss") == "a" and where(cluster, "calm") == "a"
    assert cluster.store.find(Kind.POD, "default", "noisy") is None


def test_what_nothing_wakes_is_tried_again_after_five_minutes():
    """An extender that changed its mind without any cluster event is asked again at the latest after five minutes."""
    answers = [[]]
    cluster = with_extender(filter=lambda a: {"NodeNames": answers[0]}, node_cache_capable=True)
    put(cluster, pod("web"))
    answers[0] = ["node-1"]
    cluster.run_for(290)
    assert where(cluster, "web") == ""
    cluster.run_for(20)
    assert where(cluster, "web") == "node-1"


# ── sampling ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("nodes", "percentage", "found"),
    [(99, 0, 99), (150, 0, 100), (1000, 0, 420), (5000, 0, 500), (7000, 0, 350), (1000, 100, 1000), (1000, 10, 100)],
)
def test_how_many_nodes_are_enough(nodes, percentage, found):
    """50 % − nodes/125, at least 5 % and 100 nodes; 100 % looks at all."""
    assert nodes_to_find(nodes, percentage) == found


def test_a_sampling_scheduler_may_never_offer_the_wanted_node():
    """In a large cluster an extender is not offered every feasible node, unless percentageOfNodesToScore is 100 (H8)."""
    offered = {}

    def note(name):
        def verb(args):
            offered.setdefault(name, []).append(len(args["NodeNames"]))
            return {"NodeNames": args["NodeNames"]}

        return verb

    profiles = (
        Profile(extenders=(Extender(filter=note("default"), node_cache_capable=True),)),
        Profile("all", 100, (Extender(filter=note("all"), node_cache_capable=True),)),
    )
    cluster = Cluster(profiles=profiles)
    cluster.add_nodes(300)
    put(cluster, pod("one"), pod("two", schedulerName="all"))
    assert offered == {"default": [144], "all": [300]}


def test_the_start_index_rotates():
    """Successive pods see successive parts of a large cluster."""
    seen = []

    def verb(args):
        seen.append(set(args["NodeNames"]))
        return {"NodeNames": args["NodeNames"]}

    cluster = Cluster(profiles=(Profile(extenders=(Extender(filter=verb, node_cache_capable=True),)),))
    cluster.add_nodes(300)
    put(cluster, pod("one"), pod("two"))
    assert not seen[0] & seen[1]


# ── extenders ────────────────────────────────────────────────────────────────────────────────────────────────


def with_extender(**how):
    cluster = Cluster(profiles=(Profile(extenders=(Extender(name="home", **how),)),))
    cluster.add_nodes(3)
    return cluster


def test_an_extender_narrows_the_choice_and_gets_whole_nodes():
    """Full-node requests carry Node objects and null NodeNames; the answer decides."""
    asked = []

    def verb(args):
        asked.append(args)
        items = [n for n in args["Nodes"]["items"] if n["metadata"]["name"] == "node-2"]
        return {"nodes": {"items": items}, "failedNodes": {"node-0": "not home", "node-1": "not home"}}

    cluster = with_extender(filter=verb)
    put(cluster, pod("web"))
    assert where(cluster, "web") == "node-2"
    assert asked[0]["NodeNames"] is None and asked[0]["Pod"]["metadata"]["name"] == "web"


def test_an_extender_that_refuses_all_is_named_in_the_condition_and_asked_again():
    """FailedNodes reasons reach the pod; any cluster event has it tried again."""
    answers = [{"NodeNames": [], "FailedNodes": {f"node-{i}": "seat taken" for i in range(3)}}]
    cluster = with_extender(filter=lambda a: answers[0], node_cache_capable=True)
    put(cluster, pod("web"))
    assert why(cluster, "web")["message"] == "0/3 nodes are available: 3 seat taken."
    answers[0] = {"NodeNames": ["node-1"]}
    cluster.add_node("node-9")
    cluster.run_for(15)
    assert where(cluster, "web") == "node-1"


@pytest.mark.parametrize("answer", [{"Error": "boom"}, {"NodeNames": ["stranger"]}, None])
def test_a_failing_extender_fails_the_attempt_unless_it_may_be_ignored(answer):
    """An error is retried, not taken for "no node"; `ignorable` passes it over."""
    strict = with_extender(filter=lambda a: answer, node_cache_capable=True)
    put(strict, pod("web"))
    assert where(strict, "web") == "" and why(strict, "web")["reason"] == "SchedulerError"
    lenient = with_extender(filter=lambda a: answer, node_cache_capable=True, ignorable=True)
    put(lenient, pod("web"))
    assert where(lenient, "web")


def test_an_extender_that_raises_is_an_error_of_the_attempt():
    """Whatever happens inside an extender, the scheduler lives."""

    def verb(args):
        raise OSError("connection refused")

    cluster = with_extender(filter=verb)
    put(cluster, pod("web"))
    assert "connection refused" in why(cluster, "web")["message"]


def test_prioritize_adds_points():
    """An extender's preference beats the scheduler's own scores when it weighs enough."""
    cluster = with_extender(prioritize=lambda a: [{"Host": "node-2", "Score": 10}], weight=10, node_cache_capable=True)
    put(cluster, pod("web"))
    assert where(cluster, "web") == "node-2"


def test_an_extender_may_steer_preemption():
    """Only nodes left by the preempt verb are preempted on."""

    def preempt(args):
        victims = args["NodeNameToMetaVictims"]
        return {"NodeNameToMetaVictims": {"node-2": victims["node-2"]}}

    cluster = with_extender(preempt=preempt, node_cache_capable=True)
    put(cluster, *(pod(f"low-{i}", cpu="7") for i in range(3)))
    put(cluster, pod("boss", cpu="6", priority=10))
    cluster.run_for(15)
    assert where(cluster, "boss") == "node-2"


# ── books ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_incremental_books_equal_a_rebuild():
    """After a busy scenario the scheduler's running totals equal those of a scheduler that starts now."""
    from mooring_lab.cluster.scheduler.scheduler import Scheduler

    cluster = Cluster(seed=8)
    cluster.add_nodes(6)
    cluster.deployment("default", "web", 20)
    cluster.stateful_set("default", "kv", 4)
    cluster.run_for(30)
    cluster.set_image(Kind.DEPLOYMENT, "default", "web", "app:2")
    cluster.run_for(3)
    cluster.cloud.take("node-3")
    cluster.run_for(400)
    fresh = Scheduler(cluster.timeline, cluster.store).snapshot
    ours = cluster.scheduler.snapshot
    books = lambda s: {
        n.name: (n.used_cpu, n.used_memory, sorted(n.pods), n.score_cpu, n.score_memory) for n in s.order
    }
    assert books(ours) == books(fresh) and ours.by_owner == fresh.by_owner
    assert sum(len(n.pods) for n in ours.order) == 24


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [
        ("1", 1000),
        ("250m", 250),
        ("1.5", 1500),
        ("2k", 2_000_000),
        ("16.1", 16_100),
        ("1.5m", 2),
        ("1Ki", 1_024_000),
        (2, 2000),
    ],
)
def test_quantities(text, thousandths):
    """Quantities read as Kubernetes writes them: "16.1" is no thousandth more, and "1.5m" is rounded up."""
    assert milli(text) == thousandths
    assert whole("1500m") == 2
