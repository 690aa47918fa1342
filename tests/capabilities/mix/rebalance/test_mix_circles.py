"""No circles (one-queue.md): whatever road a move takes, it is remembered and backs off, and the words say so."""

import pytest

from mooring.capabilities.mix.labels import ENABLED, MODE, REBALANCE
from mooring.capabilities.mix.memory import NAME as MEMORY
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason, State
from mooring_lab.cluster.controllers import manifests
from mooring_lab.stage.scenarios.mix import NAMESPACE, left_behind, physical, slow_template, switched_on
from tests.capabilities.mix.rebalance.mix_stage import Stage
from tests.sim.scenarios.mix import relabel

HOURS = 3600.0


async def tikv(stage: Stage, mode: str = "", copies: int = 3) -> None:
    stage.cluster.tidb_cluster("tidb", "demo", tidb=0, tikv=3, pd=0, with_pd=True)
    await stage.rig.sleep(1.0)
    await stage.rig.until(lambda: stage.cluster.ready("tidb", "demo-tikv") == 3)
    stage.cluster.pd["tidb", "demo"].load(30, copies)
    label = {"metadata": {"labels": {ENABLED: "true", MODE: mode or "all-in-on-demand"}}}
    stage.cluster.store.patch(Kind.STATEFUL_SET, "tidb", "demo-tikv", label)


def deleted(stage: Stage, name: str) -> int:
    return sum(w.startswith(("delete Pod", "evict Pod")) and name in w for w in stage.rig.writes)


def test_tikv_is_not_restarted_in_circles_while_the_webhook_is_away():
    """M10, issue 20: 224 restarts in two hours. Successors come back on spot: nobody is asked for again within the hour,
    unless an API server has reached us meanwhile; the words name the webhook."""

    async def scenario(stage: Stage) -> None:
        for node in ("n0", "n1", "n2", "n3"):
            stage.cluster.store.patch(Kind.NODE, "", node, {"spec": {"taints": [SOFT]}})
        stage.rig.webhook_away = True
        await tikv(stage)
        await stage.rig.sleep(2 * HOURS)
        assert 1 <= deleted(stage, "demo-tikv") <= 3
        leader = stage.rig.leader()
        verdict = leader.engine.verdicts["mix", "workload/StatefulSet/tidb/demo-tikv"]
        assert (verdict.state, verdict.reason) == (State.WAITING, Reason.BACK_OFF)
        assert "without the webhook" in verdict.detail
        assert "mooring doctor" in verdict.remedy

    Stage(on_demand=4, spot=4).play(scenario)


def test_a_stateful_set_is_not_restarted_in_circles_while_the_webhook_is_away():
    """M10: the same without TiKV: eight in two hours were still too many."""

    async def scenario(stage: Stage) -> None:
        for node in ("n0", "n1", "n2", "n3"):
            stage.cluster.store.patch(Kind.NODE, "", node, {"spec": {"taints": [SOFT]}})
        stage.rig.webhook_away = True
        stage.cluster.stateful_set(NAMESPACE, "db", 3, labels=switched_on("all-in-on-demand"))
        await stage.rig.sleep(2 * HOURS)
        assert physical(stage.rig, "db") == ["spot"] * 3
        assert 1 <= deleted(stage, "db-") <= 3

    Stage().play(scenario)


def test_detached_pods_of_a_workload_that_is_deleted_go_whatever_its_budget_says():
    """A budget expects no pods where no workload is left, so it allows none to be evicted, for ever. The garbage
    collector would have deleted them with their ReplicaSet; by `stalled` and an eviction every 30 s nobody is helped."""

    async def scenario(stage: Stage) -> None:
        slow = slow_template("web", 60)
        await stage.deployed("web", 4, "all-in-spot", annotations={REBALANCE: "fast"}, template=slow)
        stage.cluster.pdb(NAMESPACE, "web", {"app": "web"}, maxUnavailable=1)
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {MODE: "all-in-on-demand"})
        await stage.rig.until(lambda: left_behind(stage.rig) != [])
        await stage.rig.sleep(5.0)
        stage.cluster.store.delete(Kind.DEPLOYMENT, NAMESPACE, "web")
        await stage.rig.until(lambda: not stage.cluster.store.list(Kind.POD, NAMESPACE), 120.0)
        await stage.until_quiet()

    Stage().play(scenario)


def test_once_the_webhook_is_reached_again_nobody_waits_for_the_hour():
    """M10: what an API server asks us is the sign that successors will come right: the back-off is the usual one then."""

    async def scenario(stage: Stage) -> None:
        for node in ("n0", "n1", "n2", "n3"):
            stage.cluster.store.patch(Kind.NODE, "", node, {"spec": {"taints": [SOFT]}})
        stage.rig.webhook_away = True
        stage.cluster.stateful_set(NAMESPACE, "db", 3, labels=switched_on("all-in-on-demand"))
        await stage.rig.until(lambda: deleted(stage, "db-") == 1, 300.0)
        await stage.rig.sleep(600.0)
        assert deleted(stage, "db-") == 1
        stage.rig.webhook_away = False
        stage.cluster.deployment(NAMESPACE, "web", 1, labels=switched_on())
        await stage.rig.until(lambda: physical(stage.rig, "db") == ["on-demand"] * 3, 300.0)

    Stage().play(scenario)


def test_a_request_for_a_hand_over_is_remembered_before_anything_is_disturbed():
    """One-queue, "a crash": the attempt is noted in the ConfigMap before the TiKV pod is deleted, and a hand-over that
    helped is forgotten."""

    async def scenario(stage: Stage) -> None:
        for node in ("s0", "s1", "s2", "s3"):
            stage.cluster.cordon(node)
        await tikv(stage, "all-in-spot")
        await stage.rig.sleep(30.0)
        assert deleted(stage, "demo-tikv") == 0
        for node in ("s0", "s1", "s2", "s3"):
            stage.cluster.cordon(node, on=False)
        await stage.rig.until(lambda: deleted(stage, "demo-tikv") == 3, 1200.0)
        writes = [w for w in stage.rig.writes if MEMORY in w or w.startswith("delete Pod")]
        assert MEMORY in writes[0]
        assert sum(MEMORY in w for w in writes) >= 3

    Stage(on_demand=4, spot=4).play(scenario)


def test_with_handoff_off_a_tikv_pod_is_not_asked_for():
    """One-queue, "features know each other": nobody would act on the request: it is blocked, with the line to type, and a
    request that stood when handoff was switched off is taken back."""

    async def scenario(stage: Stage) -> None:
        leader = stage.rig.leader()
        await tikv(stage, "all-in-spot")
        await stage.rig.sleep(120.0)
        verdict = leader.engine.verdicts["mix", "workload/StatefulSet/tidb/demo-tikv"]
        assert (verdict.state, verdict.reason) == (State.BLOCKED, Reason.FEATURE_OFF)
        assert "handoff=true" in verdict.remedy
        assert deleted(stage, "demo-tikv") == 0
        assert left_behind(stage.rig) == []

    Stage(features={"mix": True}).play(scenario)


def test_a_tikv_pod_whose_leaders_can_go_nowhere_says_so():
    """E7, "features know each other": with max-replicas 1 no leader can leave: workload and pod are blocked, with the
    line to type."""

    async def scenario(stage: Stage) -> None:
        await tikv(stage, "all-in-spot", copies=1)
        await stage.rig.sleep(120.0)
        verdict = stage.rig.leader().engine.verdicts["mix", "workload/StatefulSet/tidb/demo-tikv"]
        assert (verdict.state, verdict.reason) == (State.BLOCKED, Reason.ONE_STORE)
        assert verdict.remedy == "pd-ctl config set max-replicas 3"
        assert deleted(stage, "demo-tikv") == 0

    Stage(on_demand=4, spot=4).play(scenario)


SOFT = {"key": "x", "effect": "PreferNoSchedule"}


PAST_THE_CORDON = {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"kubernetes.io/hostname": "s0"}}


@pytest.mark.parametrize("kind", [Kind.DEPLOYMENT, Kind.STATEFUL_SET])
def test_what_comes_back_to_an_interrupted_node_past_its_cordon_is_not_moved_in_circles(kind: Kind):
    """No circles: a notice of hours, and pods that tolerate the cordon: each goes once and stays then, and the words say
    why; at the last call each has its grace."""

    async def scenario(stage: Stage) -> None:
        template = manifests.pod_template({"app": "web"}, **PAST_THE_CORDON)
        make = stage.cluster.deployment if kind is Kind.DEPLOYMENT else stage.cluster.stateful_set
        make(NAMESPACE, "web", 2, labels=switched_on("all-in-spot"), template=template)
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "web") == 2)
        await stage.rig.sleep(15.0)
        stage.cluster.cloud.notice("s0", after_s=3 * HOURS)
        await stage.rig.sleep(HOURS)
        first = deleted(stage, "web-")
        assert 2 <= first <= 10, "while pods may still come that were placed before the cordon"
        verdict = stage.rig.leader().engine.verdicts["mix", "node/s0"]
        assert (verdict.state, verdict.reason) == (State.BLOCKED, Reason.CONFLICT)
        assert "past its cordon" in verdict.detail
        assert "node.kubernetes.io/unschedulable" in verdict.remedy
        await stage.rig.sleep(2 * HOURS - 40.0)
        assert deleted(stage, "web-") == first
        await stage.rig.sleep(38.0)
        assert deleted(stage, "web-") == first + 2, "with its grace, and nobody after it"

    Stage(on_demand=2, spot=2).play(scenario)
