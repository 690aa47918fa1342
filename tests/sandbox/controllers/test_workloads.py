"""Deployments, ReplicaSets and StatefulSets live as they do under kube-controller-manager."""

import os
import subprocess
import sys

import pytest

from mooring.core.model.kinds import Kind
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.controllers import manifests, podstate
from mooring_lab.cluster.controllers.workloads.replicaset import DELETION_COST, rank
from mooring_lab.cluster.kubelet import FAIL, KubeletPace


@pytest.fixture
def cluster():
    made = Cluster(seed=3)
    made.add_nodes(4)
    return made


def names(pods):
    return [pod["metadata"]["name"] for pod in pods]


def uids(pods):
    return {pod["metadata"]["uid"] for pod in pods}


# ── Deployment ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_deployment_comes_up_and_says_so(cluster):
    """A Deployment of five becomes five ready pods, one ReplicaSet and a status that counts them."""
    cluster.deployment("shop", "web", 5)
    assert cluster.run_until_stable()
    status = cluster.workload("shop", "web")["status"]
    assert {status[k] for k in ("replicas", "readyReplicas", "availableReplicas", "updatedReplicas")} == {5}
    assert status["observedGeneration"] == cluster.workload("shop", "web")["metadata"]["generation"]
    (only,) = cluster.store.list(Kind.REPLICA_SET)
    assert only["metadata"]["labels"]["pod-template-hash"] in only["metadata"]["name"]


def test_a_change_of_its_annotations_is_observed(cluster):
    """A Deployment's generation counts annotations too, and its controller says that it has seen them."""
    cluster.deployment("shop", "web", 1)
    cluster.run_until_stable()
    cluster.annotate(Kind.DEPLOYMENT, "shop", "web", {"example.com/note": "new"})
    cluster.run_for(5)
    web = cluster.workload("shop", "web")
    assert web["status"]["observedGeneration"] == web["metadata"]["generation"]


def test_a_rolling_update_keeps_what_the_strategy_promises(cluster):
    """During a rolling update never fewer than replicas − maxUnavailable are ready nor more than replicas + maxSurge there."""
    cluster.deployment(
        "shop", "web", 8, strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 1}}
    )
    cluster.run_until_stable()
    before = uids(cluster.pods("shop", "web"))
    cluster.set_image(Kind.DEPLOYMENT, "shop", "web", "app:2")
    seen = []

    def done():
        pods = [p for p in cluster.pods("shop", "web") if podstate.active(p)]
        seen.append((len(pods), sum(map(podstate.ready, pods))))
        return False

    cluster.run_until(done, limit_s=60)
    assert max(total for total, _ in seen) <= 10
    assert min(ready for _, ready in seen) >= 7
    assert cluster.stable() and not before & uids(cluster.pods("shop", "web"))
    assert cluster.workload("shop", "web")["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"


def test_recreate_waits_until_the_last_old_pod_is_gone(cluster):
    """Recreate never has pods of two revisions at once."""
    cluster.deployment("shop", "web", 3, strategy={"type": "Recreate"})
    cluster.run_until_stable()
    cluster.set_image(Kind.DEPLOYMENT, "shop", "web", "app:2")
    images = []

    def look():
        images.append({p["spec"]["containers"][0]["image"] for p in cluster.pods("shop", "web")})
        return False

    cluster.run_until(look, limit_s=30)
    assert all(len(there) <= 1 for there in images) and images[-1] == {"app:2"}
    assert cluster.stable()


def test_a_paused_deployment_still_replaces_and_scales_but_does_not_roll(cluster):
    """`paused` stops rollouts, not replacement."""
    cluster.deployment("shop", "web", 3, paused=False)
    cluster.run_until_stable()
    cluster.change(Kind.DEPLOYMENT, "shop", "web", lambda d: podstate.with_spec(d, paused=True))
    cluster.set_image(Kind.DEPLOYMENT, "shop", "web", "app:2")
    victim = cluster.pods("shop", "web")[0]["metadata"]
    cluster.store.delete(Kind.POD, "shop", victim["name"])
    cluster.scale(Kind.DEPLOYMENT, "shop", "web", 4)
    cluster.run_for(30)
    assert cluster.ready("shop", "web") == 4
    assert {p["spec"]["containers"][0]["image"] for p in cluster.pods("shop", "web")} == {"registry.example/app:1"}


def test_rolling_back_uses_the_old_replica_set_again(cluster):
    """The template of before finds its ReplicaSet of before, under the next revision number."""
    cluster.deployment("shop", "web", 2)
    cluster.run_until_stable()
    first = cluster.store.list(Kind.REPLICA_SET)[0]["metadata"]["name"]
    cluster.set_image(Kind.DEPLOYMENT, "shop", "web", "app:2")
    cluster.run_until_stable()
    cluster.set_image(Kind.DEPLOYMENT, "shop", "web", "registry.example/app:1")
    assert cluster.run_until_stable()
    sets = {s["metadata"]["name"]: s for s in cluster.store.list(Kind.REPLICA_SET)}
    assert len(sets) == 2 and sets[first]["spec"]["replicas"] == 2
    assert sets[first]["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"


def test_a_rollout_that_cannot_become_ready_stops_and_times_out(cluster):
    """A broken new template leaves the old pods serving and ends in ProgressDeadlineExceeded."""
    cluster.deployment("shop", "web", 4, progressDeadlineSeconds=60)
    cluster.run_until_stable()

    def broken(obj):
        template = obj["spec"]["template"]
        meta = {**template["metadata"], "annotations": {FAIL: "ready"}}
        return podstate.with_spec(obj, template={**template, "metadata": meta})

    cluster.change(Kind.DEPLOYMENT, "shop", "web", broken)
    cluster.run_for(120)
    assert cluster.ready("shop", "web") == 3  # 4 − 25 % rounded down
    progressing = podstate.condition(cluster.workload("shop", "web"), "Progressing")
    assert (progressing["status"], progressing["reason"]) == ("False", "ProgressDeadlineExceeded")


# ── ReplicaSet ───────────────────────────────────────────────────────────────────────────────────────────────


def test_creations_come_in_doubling_waves(cluster):
    """A burst of 31 arrives as 1, 2, 4, 8, 16 creations, each wave after the one before."""
    created = []
    cluster.store.subscribe(
        Kind.POD, lambda e, o, n: created.append(cluster.timeline.monotonic()) if e == "ADDED" else None
    )
    cluster.deployment("shop", "web", 31)
    cluster.run_until_stable()
    assert [created.count(at) for at in sorted(set(created))] == [1, 2, 4, 8, 16]


def test_a_quota_stops_the_wave_and_the_refusal_is_visible(cluster):
    """Beyond its quota a ReplicaSet keeps trying with back-off, says ReplicaFailure, and goes on when there is room."""
    cluster.quota("shop", "few", pods=3)
    cluster.deployment("shop", "web", 6)
    cluster.run_for(60)
    assert len(cluster.pods("shop", "web")) == 3
    (owner,) = cluster.store.list(Kind.REPLICA_SET)
    failure = podstate.condition(owner, "ReplicaFailure")
    assert failure is not None and failure["reason"] == "FailedCreate" and "quota" in failure["message"]
    cluster.store.delete(Kind.RESOURCE_QUOTA, "shop", "few")
    assert cluster.run_until(lambda: cluster.ready("shop", "web") == 6, limit_s=1200)
    assert podstate.condition(cluster.store.list(Kind.REPLICA_SET)[0], "ReplicaFailure") is None


def test_deletion_cost_decides_who_goes(cluster):
    """Of equally ready pods those with the lower pod-deletion-cost go first (M3's lever)."""
    cluster.deployment("shop", "web", 6)
    cluster.run_until_stable()
    keep = names(cluster.pods("shop", "web"))[1::2]
    for name in keep:
        cluster.annotate(Kind.POD, "shop", name, {DELETION_COST: "100"})
    cluster.scale(Kind.DEPLOYMENT, "shop", "web", 3)
    cluster.run_until_stable()
    assert names(cluster.pods("shop", "web")) == keep


def victim(name, *, node="n1", phase="Running", ready=True, since=0, cost=None, restarts=0, born=0):
    stamp = lambda s: f"2026-01-01T00:{s // 60:02d}:{s % 60:02d}Z"
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "creationTimestamp": stamp(born),
            "annotations": {} if cost is None else {DELETION_COST: cost},
        },
        "spec": {"nodeName": node} if node else {},
        "status": {
            "phase": phase,
            "conditions": [
                {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": stamp(since)}
            ],
            "containerStatuses": [{"restartCount": restarts}],
        },
    }


@pytest.mark.parametrize(
    ("first", "second", "siblings"),
    [
        (victim("b", node=""), victim("a", phase="Pending", ready=False), {}),
        (victim("b", phase="Pending", ready=False), victim("a", ready=False), {}),
        (victim("b", ready=False), victim("a", cost="-5"), {}),
        (victim("b", cost="-1"), victim("a"), {}),
        (victim("b", cost="9"), victim("a", cost="10"), {}),
        (victim("b", cost="+7"), victim("a", cost="1"), {}),  # not a valid cost: counts as 0
        (victim("b", node="n2"), victim("a", node="n1"), {"n1": 1, "n2": 3}),
        (victim("b", since=1000), victim("a", since=0), {}),
        (victim("b", restarts=4), victim("a"), {}),
        (victim("b", born=1000), victim("a", born=0), {}),
    ],
)
def test_victims_are_ranked_as_kubernetes_ranks_them(first, second, siblings):
    """Each rule of the victim order decides when all rules above it tie, whatever the names."""
    now = 1767225600.0 + 1100
    assert names(rank([second, first], siblings, now)) == ["b", "a"]
    assert names(rank([first, second], siblings, now)) == ["b", "a"]


def test_a_pod_whose_label_no_longer_matches_is_released_and_replaced(cluster):
    """Changing `pod-template-hash` isolates a pod: it runs on without an owner and a replacement comes; put back, it is adopted."""
    cluster.deployment("shop", "web", 3)
    cluster.run_until_stable()
    pod = cluster.pods("shop", "web")[0]
    name, label = pod["metadata"]["name"], pod["metadata"]["labels"]["pod-template-hash"]
    cluster.store.patch(Kind.POD, "shop", name, {"metadata": {"labels": {"pod-template-hash": "detached"}}})
    cluster.run_until_stable()
    free = cluster.store.get(Kind.POD, "shop", name)
    assert not free["metadata"].get("ownerReferences") and podstate.ready(free)
    assert cluster.ready("shop", "web") == 3 and name not in names(cluster.pods("shop", "web"))
    cluster.store.patch(Kind.POD, "shop", name, {"metadata": {"labels": {"pod-template-hash": label}}})
    assert cluster.run_until_stable()
    assert len(cluster.store.list(Kind.POD, "shop")) == 3


def test_minimum_ready_seconds_delay_availability(cluster):
    """A pod counts as available only after minReadySeconds."""
    cluster.deployment("shop", "web", 2, minReadySeconds=30)
    assert cluster.run_until(lambda: cluster.ready("shop", "web") == 2)
    cluster.run_for(1)
    assert cluster.workload("shop", "web")["status"]["availableReplicas"] == 0
    cluster.run_for(32)
    assert cluster.workload("shop", "web")["status"]["availableReplicas"] == 2


# ── StatefulSet ──────────────────────────────────────────────────────────────────────────────────────────────


def births(cluster):
    born = []
    cluster.store.subscribe(Kind.POD, lambda e, o, n: born.append(n["metadata"]["name"]) if e == "ADDED" else None)
    return born


def test_an_ordered_set_starts_one_after_another(cluster):
    """OrderedReady: a pod is created when the one before it is Ready."""
    born = births(cluster)
    cluster.stateful_set("db", "kv", 3)
    cluster.run_for(2.5)
    assert born == ["kv-0"]
    cluster.run_until_stable()
    assert born == ["kv-0", "kv-1", "kv-2"]


def test_a_parallel_set_starts_at_once_and_goes_at_once(cluster):
    """Parallel: all at once, up and down; ordinals may start elsewhere."""
    born = births(cluster)
    cluster.stateful_set("db", "kv", 3, podManagementPolicy="Parallel", ordinals={"start": 5})
    cluster.run_for(0.1)
    assert born == ["kv-5", "kv-6", "kv-7"]
    cluster.run_until_stable()
    cluster.scale(Kind.STATEFUL_SET, "db", "kv", 1)
    cluster.run_for(0.1)
    assert [podstate.terminating(p) for p in cluster.pods("db", "kv")] == [False, True, True]


def test_a_rolling_update_goes_from_the_highest_to_the_lowest(cluster):
    """One at a time, highest first, each after the one before is Ready; new uids under old names."""
    cluster.stateful_set("db", "kv", 3)
    cluster.run_until_stable()
    before, born = uids(cluster.pods("db", "kv")), births(cluster)
    away = []
    cluster.set_image(Kind.STATEFUL_SET, "db", "kv", "app:2")

    def look():
        away.append(3 - cluster.ready("db", "kv"))
        return False

    cluster.run_until(look, limit_s=60)
    assert born == ["kv-2", "kv-1", "kv-0"] and max(away) == 1
    assert not before & uids(cluster.pods("db", "kv"))
    status = cluster.workload("db", "kv")["status"]
    assert status["currentRevision"] == status["updateRevision"] and status["updatedReplicas"] == 3


def test_a_partition_holds_the_lower_ordinals_back(cluster):
    """Below the partition pods keep their revision, also when they are replaced."""
    cluster.stateful_set("db", "kv", 3, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 2}})
    cluster.run_until_stable()
    cluster.set_image(Kind.STATEFUL_SET, "db", "kv", "app:2")
    cluster.run_for(30)
    cluster.store.delete(Kind.POD, "db", "kv-0")
    cluster.run_for(30)
    images = [p["spec"]["containers"][0]["image"] for p in cluster.pods("db", "kv")]
    assert images == ["registry.example/app:1", "registry.example/app:1", "app:2"]


def test_one_pod_that_cannot_start_freezes_an_ordered_set_even_for_its_cure(cluster):
    """A pod that never becomes Ready keeps the update from going on, and from being undone."""
    cluster.stateful_set("db", "kv", 3)
    cluster.run_until_stable()

    def template(annotations):
        def change(obj):
            made = obj["spec"]["template"]
            return podstate.with_spec(
                obj, template={**made, "metadata": {**made["metadata"], "annotations": annotations}}
            )

        return change

    cluster.change(Kind.STATEFUL_SET, "db", "kv", template({FAIL: "ready"}))
    cluster.run_for(60)
    cluster.change(Kind.STATEFUL_SET, "db", "kv", template({}))
    cluster.run_for(60)
    assert [podstate.ready(p) for p in cluster.pods("db", "kv")] == [True, True, False]
    cluster.store.delete(Kind.POD, "db", "kv-2")  # what a person has to do
    assert cluster.run_until_stable()


def test_scaling_in_takes_the_highest_and_keeps_its_claims(cluster):
    """Scale-in removes the highest ordinal first; claims stay, and a local volume ties the pod that comes back to its node."""
    claim = {"metadata": {"name": "data"}, "spec": {"storageClassName": "local-storage"}}
    cluster.stateful_set("db", "kv", 3, volumeClaimTemplates=[claim])
    cluster.run_until_stable()
    home = cluster.nodes_of("db", "kv")
    cluster.scale(Kind.STATEFUL_SET, "db", "kv", 1)
    cluster.run_until_stable()
    assert list(cluster.nodes_of("db", "kv")) == ["kv-0"]
    assert len(cluster.store.list(Kind.PVC, "db")) == 3
    for node in cluster.store.list(Kind.NODE):
        if node["metadata"]["name"] == home["kv-2"]:
            cluster.cordon(node["metadata"]["name"])
    cluster.scale(Kind.STATEFUL_SET, "db", "kv", 3)
    cluster.run_for(30)
    (stuck,) = [p for p in cluster.pods("db", "kv") if not podstate.ready(p)]
    assert stuck["metadata"]["name"] == "kv-2" and not podstate.node_of(stuck)
    assert podstate.condition(stuck, "PodScheduled")["reason"] == "Unschedulable"
    cluster.cordon(home["kv-2"], on=False)
    assert cluster.run_until_stable() and cluster.nodes_of("db", "kv") == home


# ── DaemonSet ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_daemon_runs_on_every_node_cordoned_or_not_and_on_new_ones(cluster):
    """One pod per node; a cordon does not matter, a NoExecute taint does, a new node gets one."""
    cluster.cordon("node-1")
    cluster.daemon_set("kube-system", "agent")
    cluster.run_until_stable()
    assert sorted(cluster.nodes_of("kube-system", "agent").values()) == ["node-0", "node-1", "node-2", "node-3"]
    cluster.add_node("node-9")
    cluster.store.patch(Kind.NODE, "", "node-0", {"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}})
    cluster.run_for(10)
    assert sorted(cluster.nodes_of("kube-system", "agent").values()) == ["node-1", "node-2", "node-3", "node-9"]


# ── All of it ────────────────────────────────────────────────────────────────────────────────────────────────


def scenario(seed):
    cluster = Cluster(seed=seed, pace=KubeletPace(start_s=1.5, ready_s=0.5))
    cluster.add_nodes(5, capacity="spot")
    cluster.deployment("shop", "web", 9)
    cluster.stateful_set("db", "kv", 3)
    cluster.tidb_cluster("default", "demo", with_pd=True)
    cluster.run_for(30)
    cluster.set_image(Kind.DEPLOYMENT, "shop", "web", "app:2")
    cluster.cloud.notice("node-2", after_s=20)
    cluster.run_for(300)
    return cluster.log.text()


def test_one_seed_one_story():
    """Two runs with one seed write the same event log, byte for byte; another seed another (O5)."""
    assert scenario(11) == scenario(11)
    assert scenario(11) != scenario(12)


SCRIPT = """
import hashlib
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.cluster import Cluster
c = Cluster(seed=4)
c.add_nodes(6)
c.deployment("shop", "web", 12)
c.tidb_cluster("default", "demo", with_pd=True)
c.run_for(20)
c.set_image(Kind.DEPLOYMENT, "shop", "web", "app:2")
c.cloud.take("node-1")
c.run_for(500)
print(len(c.log), hashlib.sha256(c.log.text().encode()).hexdigest())
"""


def test_one_story_under_two_hash_seeds():
    """The order of sets and hashes decides nothing: the log is the same under any PYTHONHASHSEED."""
    told = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "77")
    }
    assert len(told) == 1 and told.pop().split()[0] > b"100"


def test_manifests_share_their_template_with_all_pods(cluster):
    """Replicas share the template's parts in memory: a thousand pods are not a thousand templates."""
    cluster.deployment("shop", "web", 3, template=manifests.pod_template({"app": "web"}))
    cluster.run_until_stable()
    containers = {id(p["spec"]["containers"]) for p in cluster.pods("shop", "web")}
    assert len(containers) == 1
