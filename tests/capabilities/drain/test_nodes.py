"""`mooring.dev/drain` on a Node and `mooring.dev/restart` on a Pod, on the sandbox (D4, D5)."""

import json

from mooring.capabilities.drain.nodes import DRAIN, RESTART
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import CORDONED_BY
from mooring.core.model.times import rfc3339
from mooring_lab.cluster.controllers import manifests, podstate
from mooring_lab.stage.scenarios.mix import left_behind, slow_template
from tests.capabilities.drain.test_gate_scenarios import (
    SHOP,
    Least,
    deployed,
    gated,
    play,
    pods_of,
    serving,
    the_pod,
    tidb,
)


def node_of(rig, name):
    return rig.cluster.store.get(Kind.NODE, "", name)


def reported(rig):
    from mooring.capabilities.drain.descriptor import report_of

    return {one["node"]: one for one in report_of(rig.leader().engine, None)["nodes"]}


def test_a_node_is_emptied_when_its_annotation_asks():
    """D4: cordoned, TiKV handed over, the only replica under `minAvailable: 1` replaced first, a StatefulSet moved,
    the DaemonSet left; then it is reported as drained."""

    async def scenario(rig):
        await gated(rig, nodes=6)
        pd = await tidb(rig)
        node = rig.pod("tidb", "demo-tikv-1")["spec"]["nodeName"]
        others = [n for n in (f"n{i}" for i in range(6)) if n != node]
        for other in others:
            rig.cluster.cordon(other)
        await deployed(rig, annotations={})
        rig.cluster.pdb(SHOP, "web", {"app": "web"}, min_available=1)
        rig.cluster.stateful_set(SHOP, "db", 1, template=slow_template("db", 5.0))
        rig.cluster.daemon_set(SHOP, "agent", template=manifests.pod_template({"app": "agent"}))
        await rig.until(lambda: rig.cluster.ready(SHOP, "db") == 1 and bool(pods_of(rig, "agent")))
        for other in others:
            rig.cluster.cordon(other, on=False)
        least = Least(rig, lambda: serving(rig))
        rig.cluster.annotate(Kind.NODE, "", node, {DRAIN: '{"by": "ann"}'})
        doing = lambda: [one["what"] for one in reported(rig).get(node, {}).get("doing", ())]
        await least.watch(lambda: any("leaders gone" in what for what in doing()))
        await least.watch(lambda: reported(rig).get(node, {}).get("state") == "drained")
        assert least.seen == 1
        assert not pd.interruptions
        left = [p["metadata"]["name"] for p in rig.cluster.store.list(Kind.POD) if p["spec"].get("nodeName") == node]
        assert all(name.startswith("agent") for name in left)
        assert reported(rig)[node]["drained_at"] and not reported(rig)[node]["pods_left"]
        assert node_of(rig, node)["spec"]["unschedulable"]
        rig.cluster.annotate(Kind.NODE, "", node, {DRAIN: None})
        await rig.until(lambda: not node_of(rig, node)["spec"].get("unschedulable") and not left_behind(rig))

    play(scenario)


def test_what_keeps_a_pod_is_said_with_what_to_type():
    """D4: a bare pod stays, with a reason and a command; the rest leaves. A cordon of a person is not ours to lift."""

    async def scenario(rig):
        await gated(rig)
        rig.cluster.cordon("n0")
        spec = {"nodeName": "n0", "containers": [{"name": "one", "image": "one"}]}
        rig.cluster.store.create(Kind.POD, {"metadata": {"namespace": SHOP, "name": "bare"}, "spec": spec})
        await rig.sleep(5.0)
        rig.cluster.annotate(Kind.NODE, "", "n0", {DRAIN: ""})
        await rig.until(lambda: reported(rig).get("n0", {}).get("state") == "blocked")
        (blocked,) = reported(rig)["n0"]["blocked"]
        assert (blocked["pod"], blocked["reason"]) == (f"{SHOP}/bare", "bare-pod")
        assert blocked["to_type"].endswith(f"kubectl -n {SHOP} delete pod bare")
        rig.cluster.annotate(Kind.NODE, "", "n0", {DRAIN: None})
        await rig.until(lambda: CORDONED_BY not in podstate.annotations_of(node_of(rig, "n0")))
        assert node_of(rig, "n0")["spec"]["unschedulable"]

    play(scenario)


def test_uncordoning_ends_a_drain():
    """D4: a person who uncordons wants pods there."""

    async def scenario(rig):
        await gated(rig)
        rig.cluster.annotate(Kind.NODE, "", "n0", {DRAIN: ""})
        await rig.until(lambda: bool(node_of(rig, "n0")["spec"].get("unschedulable")))
        rig.cluster.cordon("n0", on=False)
        await rig.until(lambda: not {DRAIN, CORDONED_BY} & podstate.annotations_of(node_of(rig, "n0")).keys())
        assert not node_of(rig, "n0")["spec"].get("unschedulable")

    play(scenario)


def asked_at(rig, seconds=0.0):
    return json.dumps({"by": "ann", "since": rfc3339(rig.clock.now() + seconds)})


def test_a_pod_is_restarted_with_its_replacement_first():
    """D5: the only replica of a Deployment; it is served all the time."""

    async def scenario(rig):
        await gated(rig)
        await deployed(rig, annotations={})
        name, _ = the_pod(rig)
        least = Least(rig, lambda: serving(rig))
        rig.cluster.annotate(Kind.POD, SHOP, name, {RESTART: asked_at(rig)})
        await least.watch(lambda: rig.pod(SHOP, name) is None and not rig.unsettled())
        assert least.seen == 1

    play(scenario)


def test_a_restart_that_a_template_hands_down_restarts_nobody():
    """D5: it is older than the pod; followed, every pod of the template would restart for ever."""

    async def scenario(rig):
        await gated(rig)
        template = manifests.pod_template({"app": "web"}, annotations={RESTART: asked_at(rig, -60.0)})
        rig.cluster.deployment(SHOP, "web", 1, template=template)
        await rig.until(lambda: rig.cluster.ready(SHOP, "web") == 1)
        name, _ = the_pod(rig)
        await rig.sleep(60.0)
        assert the_pod(rig)[0] == name

    play(scenario)


def conditions(rig, name):
    return {one["type"]: one["status"] for one in node_of(rig, name)["status"]["conditions"]}


def test_a_drain_is_told_in_kubernetes_own_words():
    """D6: `DrainInProgress`, then `Drained`; both end with it, and conditions of others stay."""

    async def scenario(rig):
        await gated(rig)
        rig.cluster.deployment(SHOP, "web", 4, template=slow_template("web", 5.0))
        await rig.until(lambda: rig.cluster.ready(SHOP, "web") == 4)
        before = conditions(rig, "n0")
        rig.cluster.annotate(Kind.NODE, "", "n0", {DRAIN: ""})
        await rig.until(lambda: conditions(rig, "n0").get("DrainInProgress") == "True")
        await rig.until(lambda: conditions(rig, "n0").get("Drained") == "True", limit_s=300.0)
        assert conditions(rig, "n0")["DrainInProgress"] == "False"
        rig.cluster.annotate(Kind.NODE, "", "n0", {DRAIN: None})
        await rig.until(lambda: conditions(rig, "n0")["Drained"] == "False" and not left_behind(rig))
        assert {**conditions(rig, "n0"), **before} == conditions(rig, "n0")
        written = len(rig.writes)
        await rig.sleep(60.0)
        assert len(rig.writes) == written

    play(scenario)


def test_a_drain_that_another_tool_tells_in_a_condition_is_its_own():
    """D6: it is a sign that the node is being emptied, and not ours to end."""

    async def scenario(rig):
        await gated(rig)
        told = {"type": "DrainInProgress", "status": "True", "reason": "Other", "message": "", "lastTransitionTime": ""}

        def with_condition(node):
            return {**node, "status": {**node["status"], "conditions": [*node["status"]["conditions"], told]}}

        rig.cluster.store.mutate(Kind.NODE, "", "n0", with_condition)
        rig.cluster.annotate(Kind.NODE, "", "n0", {DRAIN: ""})
        await rig.until(lambda: conditions(rig, "n0").get("Drained") == "True")
        rig.cluster.annotate(Kind.NODE, "", "n0", {DRAIN: None})
        await rig.until(lambda: conditions(rig, "n0")["Drained"] == "False")
        assert conditions(rig, "n0")["DrainInProgress"] == "True"

    play(scenario)
