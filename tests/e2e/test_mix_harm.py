"""No harm by our own hand, on the real control plane: nodes that fall silent together, short notices, housekeeping of the
only replica; and what large clusters need: an autoscaler that hears of an unmet floor, a return to spot in minutes,
several label schemes, Rollouts (issue 37)."""

import json
import time

import pytest

from mooring.core.model.kinds import Kind
from mooring_lab.cluster.clock import parse_rfc3339
from mooring_lab.control.servers import SILENT
from tests.e2e.definitions import define
from tests.e2e.looking import get
from tests.e2e.observer import Observer
from tests.e2e.test_mix_rebalance import CAPACITY, CUSTOM, ENABLED, MODE, SETTINGS, Environment
from tests.e2e.waiting import until

pytestmark = pytest.mark.e2e

KARPENTER, EKS = "karpenter.sh/capacity-type", "eks.amazonaws.com/capacityType"
HASH = "rollouts-pod-template-hash"
SPOT = {ENABLED: "true", MODE: "all-in-spot"}


@pytest.fixture
def environment(lab, tmp_path):
    """Not running yet: each test has its own pace."""
    made = Environment(lab, tmp_path)
    try:
        with Observer(lab):
            yield made
    finally:
        made.close()


def start(environment, interruption=None, **rebalance):
    pace = {**SETTINGS["mix"]["rebalance"], **rebalance}
    settings = {**SETTINGS, "mix": {"rebalance": pace, "interruption": interruption or {}}}
    environment.config.write_text(json.dumps(settings))
    environment.start()


def uids(environment, name):
    return {p["metadata"]["uid"] for p in environment.pods(name)}


def not_ready(environment, nodes):
    found = get(environment.lab, "nodes", "-l", f"for={environment.namespace}")["items"]
    ready = {
        n["metadata"]["name"]: c["status"] for n in found for c in n["status"]["conditions"] if c["type"] == "Ready"
    }
    return all(ready[name] == "Unknown" for name in nodes)


def verdict(environment, key):
    return environment.mooring.get(f"/api/v1/why/{key}")


def test_a_zone_whose_nodes_fall_silent_together_loses_no_pod(environment):
    """M8: every kubelet of a zone loses the API server for longer than a spot node may be silent, and comes back: no pod
    is replaced."""
    lab, nodes = environment.lab, [*environment.safe, *environment.spot]
    lab.kubectl("label", "node", *nodes, f"topology.kubernetes.io/zone={environment.namespace}")
    start(environment, {"lost-after-s": 2})
    environment.deploy("web", 6, SPOT)
    before = uids(environment, "web")
    lab.kubectl("label", "node", *nodes, f"{SILENT}=true")
    try:
        until(lambda: not_ready(environment, nodes), "all are silent", tell=environment.scenario)

        def held():
            said = environment.mooring.command("why", f"node/{environment.spot[0]}")
            return "nothing is deleted for silence alone" in said and said

        until(held, "it says why nothing is deleted", tell=environment.scenario)
        assert uids(environment, "web") == before
    finally:
        lab.kubectl("label", "node", *nodes, f"{SILENT}-")
    until(lambda: len(environment.ready("web")) == 6, "all are back", tell=environment.scenario)
    assert uids(environment, "web") == before == environment.seen["web"]


def test_a_notice_as_short_as_the_grace_period_leaves_the_workload_serving(environment):
    """M8: 90 s of notice and 90 s of grace on every spot node: a replacement is Ready before a pod goes."""
    start(environment)
    environment.deploy("web", 6, SPOT, start_s=8, grace_s=90)
    before = uids(environment, "web")
    environment.notice(environment.spot, 90)
    fewest = 6

    def replaced():
        nonlocal fewest
        serving = [p for p in environment.ready("web") if p["metadata"]["labels"]["app"] == "web"]
        fewest = min(fewest, len(serving))
        return len(serving) == 6 and not uids(environment, "web") & before

    until(replaced, "all are replaced", tell=environment.scenario)
    assert fewest == 6


def test_housekeeping_never_takes_the_only_replica(environment):
    """M10: a single replica under a budget of 1 changes its class, serves throughout, and the budget is not in the way."""
    start(environment)
    environment.deploy("one", 1, SPOT, start_s=5)
    environment.lab.kubectl(
        "create", "pdb", "one", "--selector=app=one", "--min-available=1", "-n", environment.namespace
    )
    (before,) = uids(environment, "one")
    environment.label("one", **{MODE: "all-in-on-demand"})
    fewest = 1

    def moved():
        nonlocal fewest
        fewest = min(fewest, len(environment.ready("one")))
        return environment.on_demand("one") == 1 and uids(environment, "one") != {before}

    until(moved, "it is on on-demand", tell=environment.scenario)
    assert fewest == 1


def test_a_node_is_made_for_a_floor_that_is_not_met(environment):
    """M10: no on-demand node has room, so a replacement is Pending beside the pods that serve; a node comes for it, as an
    autoscaler would make one."""
    start(environment)
    environment.deploy("web", 3, SPOT)
    environment.lab.kubectl("cordon", *environment.safe)
    environment.label("web", **{MODE: "custom", CUSTOM: "1"})
    pending = until(
        lambda: [p for p in environment.pods("web") if not p["spec"].get("nodeName")],
        "a replacement is Pending",
        tell=environment.scenario,
    )
    assert CAPACITY in json.dumps(pending[0]["spec"]["affinity"])
    assert len(environment.ready("web")) == 3
    environment.lab.kubectl("uncordon", *environment.safe)
    until(
        lambda: environment.on_demand("web") == 1 and len(environment.pods("web")) == 3,
        "met",
        tell=environment.scenario,
    )


def test_replicas_return_to_spot_together(environment):
    """M10: spot was full and has room again: one returns, and once it stayed the others, several at a time."""
    start(environment, **{"room-for-s": 10})
    environment.lab.kubectl("cordon", *environment.spot)
    environment.deploy("web", 8, SPOT)
    assert environment.on_demand("web") == 8
    environment.lab.kubectl("uncordon", *environment.spot)
    fewest = 8

    def returned():
        nonlocal fewest
        fewest = min(fewest, len(environment.ready("web")))
        return environment.on_demand("web") == 0 and len(environment.ready("web")) == 8

    until(returned, "all are on spot", tell=environment.scenario)
    assert fewest == 8


def test_a_node_group_of_eks_beside_karpenter(environment):
    """M11: the floor goes to on-demand nodes of either label, the rest to spot nodes of either."""
    lab, ours = environment.lab, {"for": environment.namespace}
    lab.kubectl("cordon", *environment.safe, *environment.spot)
    of = {"group": {EKS: "ON_DEMAND"}, "karp": {KARPENTER: "on-demand"}, "sg": {EKS: "SPOT"}, "sk": {KARPENTER: "spot"}}
    made = {
        key: lab.add_nodes(1, prefix=f"{environment.namespace}-{key}", labels=ours | labels, cpu="1")[0]
        for key, labels in of.items()
    }
    environment.safe += [made["group"], made["karp"]]
    environment.spot += [made["sg"], made["sk"]]
    start(environment)
    manifest = json.loads(environment.manifest("web", 8, {ENABLED: "true", MODE: "custom", CUSTOM: "4"}))
    manifest["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "400m"
    lab.kubectl("apply", "-f", "-", input=json.dumps(manifest))
    until(lambda: len(environment.ready("web")) == 8, "all are Ready", tell=environment.scenario)
    on = sorted(p["spec"]["nodeName"] for p in environment.ready("web"))
    assert on == sorted([*made.values()] * 2)


def ready_for(environment, name, seconds):
    """Those that have been Ready for so long."""
    since = {
        p["metadata"]["uid"]: next(c for c in p["status"]["conditions"] if c["type"] == "Ready")
        for p in environment.ready(name)
    }
    return [uid for uid, ready in since.items() if time.time() - parse_rfc3339(ready["lastTransitionTime"]) >= seconds]


def test_a_rollout_of_argo_gets_its_split_by_its_replica_set(environment):
    """M3, M5, M8: its ReplicaSet carries Argo's own hash; a notice replaces its pods before they go."""
    lab, namespace = environment.lab, environment.namespace
    define(lab, Kind.ROLLOUT)
    try:
        start(environment)
        spec = json.loads(environment.manifest("web", 4, {}, start_s=3))["spec"]
        meta = {"namespace": namespace, "name": "web", "labels": {ENABLED: "true", MODE: "custom", CUSTOM: "2"}}
        rollout = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": meta, "spec": spec}
        made = json.loads(lab.kubectl("create", "-o", "json", "-f", "-", input=json.dumps(rollout)))["metadata"]
        owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web", "uid": made["uid"]}
        spec["selector"]["matchLabels"][HASH] = "5d4c"
        spec["template"]["metadata"]["labels"][HASH] = "5d4c"
        meta = {"namespace": namespace, "name": "web-5d4c", "ownerReferences": [owner | {"controller": True}]}
        replica_set = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": spec}
        lab.kubectl("create", "-f", "-", input=json.dumps(replica_set))
        # A pod that Mooring has not heard to be Ready serves nobody, and would just be evicted.
        until(lambda: len(ready_for(environment, "web", 5.0)) == 4, "all are Ready", tell=environment.scenario)
        assert environment.on_demand("web") == 2
        before = {p["metadata"]["uid"] for p in environment.ready("web") if p["spec"]["nodeName"] in environment.spot}
        environment.notice(environment.spot, 120)
        fewest = 4

        def replaced():
            nonlocal fewest
            fewest = min(fewest, len(environment.ready("web")))
            return environment.on_demand("web") == 4 and not uids(environment, "web") & before

        until(replaced, "replaced on on-demand", tell=environment.scenario)
        assert fewest == 4
    finally:
        lab.kubectl("delete", "crd", "rollouts.argoproj.io", "--ignore-not-found")
