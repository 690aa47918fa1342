"""Webhooks see what controllers create, in the bursts in which they create it."""

import asyncio

import pytest

from mooring.clients.ports import EvictionBlockedError
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.clock import run_virtual
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.controllers import podstate

URL = "https://mooring.test/admit/pods"
CAPACITY = "node.kubernetes.io/capacity"


def configure(cluster, webhook, *, policy="Ignore"):
    cluster.api.admission.serve(URL, webhook)
    hook = {
        "name": "pods.mooring.dev",
        "clientConfig": {"url": URL},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
        "failurePolicy": policy,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    cluster.store.create(Kind.MUTATING_WEBHOOK, {"metadata": {"name": "mooring"}, "webhooks": [hook]})


def answer(review, patch=None, *, allowed=True, message=""):
    response = {"uid": review["request"]["uid"], "allowed": allowed}
    if patch:
        response |= {"patchType": "JSONPatch", "patch": patch}
    if message:
        response["status"] = {"message": message, "code": 403}
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}


def on_demand():
    term = {"matchExpressions": [{"key": CAPACITY, "operator": "In", "values": ["on-demand"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    return [{"op": "add", "path": "/spec/affinity", "value": affinity}]


def mixed():
    cluster = Cluster(seed=3)
    cluster.add_nodes(3, prefix="od-")
    cluster.add_nodes(3, prefix="spot-", capacity="spot")
    return cluster


def test_a_webhook_places_the_pods_of_a_burst():
    """What a mutating webhook adds to every second pod of a burst decides where it runs; it sees no name and no uid (M3, M4)."""
    cluster = mixed()
    seen = []

    def webhook(review):
        pod = review["request"]["object"]
        seen.append(pod["metadata"])
        return answer(review, on_demand() if len(seen) % 2 else None)

    configure(cluster, webhook)
    cluster.deployment("shop", "web", 8)
    assert cluster.run_until_stable()
    bound = [p for p in cluster.pods("shop", "web") if p["spec"].get("affinity")]
    assert len(bound) == 4 and all(podstate.node_of(p).startswith("od-") for p in bound)
    assert all("uid" not in meta and "name" not in meta and meta["generateName"] for meta in seen)


def test_a_refusing_webhook_holds_the_workload_back_with_back_off():
    """A denial shows as ReplicaFailure with the webhook's words, is tried again ever more slowly, and ends when it allows."""
    cluster = mixed()
    asked, allow = [], [False]

    def webhook(review):
        asked.append(cluster.timeline.monotonic())
        return answer(review, allowed=allow[0], message="" if allow[0] else "not today")

    configure(cluster, webhook, policy="Fail")
    cluster.deployment("shop", "web", 2)
    cluster.run_for(60)
    (owner,) = cluster.store.list(Kind.REPLICA_SET)
    assert "not today" in podstate.condition(owner, "ReplicaFailure")["message"]
    assert 8 <= len(asked) <= 20
    allow[0] = True
    assert cluster.run_until(lambda: cluster.ready("shop", "web") == 2, limit_s=200)


def test_a_webhook_that_takes_its_time_on_a_virtual_loop():
    """An asynchronous webhook delays creations without stopping the cluster; waves of one owner still come one after another."""
    cluster = mixed()
    together, most = [0], [0]

    async def webhook(review):
        together[0] += 1
        most[0] = max(most[0], together[0])
        await asyncio.sleep(0.2)
        together[0] -= 1
        return answer(review)

    configure(cluster, webhook)

    async def scenario():
        cluster.deployment("shop", "web", 7)
        await asyncio.sleep(10)

    run_virtual(scenario, cluster.timeline)
    assert cluster.ready("shop", "web") == 7 and most[0] == 4


def test_the_port_and_the_controllers_share_one_world():
    """An eviction through the port is refused by the budget, then granted when the replacement is ready."""
    cluster = Cluster(seed=1)
    cluster.add_nodes(3)
    cluster.deployment("shop", "web", 2)
    cluster.pdb("shop", "web", {"app": "web"}, min_available=1)
    cluster.run_until_stable()
    first, second = cluster.nodes_of("shop", "web")

    async def scenario():
        await cluster.api.evict("shop", first)
        with pytest.raises(EvictionBlockedError):
            await cluster.api.evict("shop", second)
        await asyncio.sleep(10)
        await cluster.api.evict("shop", second)
        await asyncio.sleep(10)

    run_virtual(scenario, cluster.timeline)
    assert cluster.ready("shop", "web") == 2 and not {first, second} & set(cluster.nodes_of("shop", "web"))


def test_deleting_a_deployment_takes_everything_along():
    """ReplicaSets and pods go after their owner."""
    cluster = mixed()
    cluster.deployment("shop", "web", 4)
    cluster.run_until_stable()
    cluster.store.delete(Kind.DEPLOYMENT, "shop", "web")
    cluster.run_for(30)
    assert not cluster.store.list(Kind.REPLICA_SET) and not cluster.store.list(Kind.POD)


def test_scaling_in_the_middle_of_a_rollout_keeps_the_proportions():
    """A Deployment scaled while it rolls spreads the change over both revisions and ends whole."""
    cluster = Cluster(seed=2)
    cluster.add_nodes(4)
    cluster.deployment(
        "shop", "web", 10, strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 2}}
    )
    cluster.run_until_stable()
    cluster.set_image(Kind.DEPLOYMENT, "shop", "web", "app:2")
    cluster.run_for(4)
    cluster.scale(Kind.DEPLOYMENT, "shop", "web", 20)
    cluster.run_for(0.5)
    sizes = sorted(s["spec"]["replicas"] for s in cluster.store.list(Kind.REPLICA_SET))
    assert sum(sizes) == 22 and sizes[0] > 0
    assert cluster.run_until_stable() and cluster.ready("shop", "web") == 20
