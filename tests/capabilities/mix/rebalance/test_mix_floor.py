"""A floor that is not met asks an autoscaler: by a Pending replacement, which is all that an autoscaler sees."""

import pytest

from mooring.capabilities.mix.labels import CUSTOM, MODE, RELAXED
from mooring.capabilities.mix.policy import MixPolicy, RebalancePolicy
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason, State
from mooring_lab.cluster.controllers import podstate
from mooring_lab.stage.scenarios.mix import NAMESPACE, left_behind, physical, serving, switched_on, uids
from tests.capabilities.mix.rebalance.mix_stage import Stage
from tests.capabilities.mix.rebalance.test_mix_shortage import full
from tests.sim.scenarios.mix import relabel

ROOM_FOR_S = 120.0
POLICY = MixPolicy(rebalance=RebalancePolicy(room_for_s=ROOM_FOR_S))


def pending(stage: Stage, name: str = "web") -> list[str]:
    """What an autoscaler sees."""
    pods = [p for p in stage.cluster.pods(NAMESPACE, name) if podstate.active(p)]
    return [p["metadata"]["name"] for p in pods if not p["spec"].get("nodeName")]


def autoscaler(stage: Stage, ready: int = 1) -> None:
    stage.cluster.deployment("kube-system", "karpenter", ready, labels={"app.kubernetes.io/name": "karpenter"})


@pytest.mark.parametrize("replicas", [1, 6])
def test_an_autoscaler_hears_of_an_unmet_floor(replicas):
    """M10, issue 37: beside Karpenter a workload told to have 6 on on-demand stayed at 3 for good. A node per Pending pod
    comes; nobody stops serving meanwhile."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", replicas, "custom", replicas // 2)
        full(stage)
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {CUSTOM: str(replicas)})
        fewest, nodes = replicas, 0
        for _ in range(2400):
            await stage.rig.sleep(0.5)
            fewest = min(fewest, serving(stage.rig, "web"))
            if pending(stage) and nodes < replicas:
                nodes += 1
                await stage.rig.sleep(70.0)  # longer than a pod may find no node before it is relaxed
                stage.cluster.add_nodes(1, f"fresh{nodes}-", capacity="on-demand", cpu="1")
            if physical(stage.rig, "web") == ["on-demand"] * replicas:
                break
        assert physical(stage.rig, "web") == ["on-demand"] * replicas
        assert fewest >= max(1, replicas - 1)  # with room there, the others go as always: one at a time
        await stage.until_quiet()
        assert left_behind(stage.rig) == []

    Stage(POLICY).play(scenario)


def test_where_no_node_comes_the_request_is_taken_back_and_repeated_ever_more_rarely():
    """M10: the Pending pod goes after `room-for-s`, every replica is the one that was there, and the words say what to
    type."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 4, "custom", 1)
        before = uids(stage.rig, "web")
        full(stage)
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {CUSTOM: "4"})
        await stage.rig.until(lambda: len(pending(stage)) == 1, 60.0)
        await stage.rig.sleep(30.0)
        verdict = stage.verdict("web")
        assert (verdict.state, verdict.reason) == (State.WAITING, Reason.NO_ROOM)
        assert "kubectl -n" in verdict.remedy
        asks, was, fewest = 0, False, 4
        for _ in range(7200):
            await stage.rig.sleep(1.0)
            fewest = min(fewest, serving(stage.rig, "web"))
            now = bool(pending(stage))
            asks, was = asks + (now and not was), now
        assert fewest == 4
        assert 3 <= asks <= 8  # after 1, 2, 4 … minutes
        await stage.rig.until(lambda: not pending(stage), ROOM_FOR_S + 60.0)
        await stage.rig.sleep(20.0)
        verdict = stage.verdict("web")
        assert (verdict.state, verdict.reason) == (State.WAITING, Reason.BACK_OFF)
        assert "no on-demand node has room (4 nodes: 4 cordoned)" in verdict.detail
        assert "kubectl -n" in verdict.remedy
        assert uids(stage.rig, "web") == before
        assert not any(RELAXED in podstate.annotations_of(p) for p in stage.cluster.pods(NAMESPACE, "web"))

    Stage(POLICY).play(scenario)


@pytest.mark.parametrize("known", [False, True])
def test_a_replica_of_a_stateful_set_asks_only_where_somebody_makes_nodes(known):
    """M10: it cannot run beside its successor, so it goes only when it has somewhere to go, or an autoscaler is there."""

    async def scenario(stage: Stage) -> None:
        stage.cluster.stateful_set(NAMESPACE, "db", 3, labels=switched_on("all-in-spot"))
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "db") == 3)
        if known:
            autoscaler(stage)
        await stage.rig.sleep(15.0)
        before = uids(stage.rig, "db")
        full(stage)
        relabel(stage.rig, Kind.STATEFUL_SET, "db", {MODE: "all-in-on-demand"})
        fewest = 3
        for _ in range(100):
            await stage.rig.sleep(0.5)
            fewest = min(fewest, serving(stage.rig, "db"))
        if known:
            assert fewest == 2  # one at a time
            assert len(pending(stage, "db")) == 1
        else:
            assert uids(stage.rig, "db") == before
            verdict = stage.verdict("db", "StatefulSet")
            assert (verdict.state, verdict.reason) == (State.WAITING, Reason.NO_ROOM)
            assert "autoscaler" in verdict.detail

    Stage(POLICY).play(scenario)
