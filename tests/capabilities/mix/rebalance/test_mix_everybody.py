"""`interruption.everybody: evict`: for clusters that have no other handler of interruptions. Issue 20."""

import pytest

from mooring.capabilities.mix.policy import InterruptionPolicy, MixPolicy, UnmanagedPods
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.controllers import manifests
from mooring_lab.stage.scenarios.mix import NAMESPACE, slow_template
from tests.capabilities.mix.rebalance.mix_stage import Stage
from tests.capabilities.mix.rebalance.test_mix_voluntary import SIGNS, disrupt

EVICT = MixPolicy(interruption=InterruptionPolicy(everybody=UnmanagedPods.EVICT))


async def _there(stage: Stage) -> None:
    """Two replicas, a StatefulSet, a DaemonSet and a bare pod on one spot node; none of them switched on."""
    stage.cluster.cordon("n0")
    await stage.deployed("web", 2, "off")
    stage.cluster.stateful_set(NAMESPACE, "db", 1)
    stage.cluster.daemon_set(NAMESPACE, "agent")
    bare = {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": NAMESPACE, "name": "bare"}}
    stage.cluster.store.create(Kind.POD, bare | {"spec": manifests.pod_template({"app": "bare"})["spec"]})
    await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "db") == 1)
    await stage.rig.until(lambda: len(_on(stage, "s0")) == 5)
    stage.cluster.cordon("n0", on=False)


def _on(stage: Stage, node: str) -> list[str]:
    pods = [p for p in stage.cluster.store.list(Kind.POD, NAMESPACE) if p["spec"].get("nodeName") == node]
    return sorted(p["metadata"]["name"] for p in pods)


@pytest.mark.parametrize(("policy", "left"), [(MixPolicy(), 5), (EVICT, 2)], ids=["leave", "evict"])
def test_pods_of_workloads_that_are_not_switched_on(policy: MixPolicy, left: int):
    """Off by default: they stay. With `evict` they stand elsewhere before the machine goes; what nobody recreates, and
    what belongs to the node, stays."""

    async def scenario(stage: Stage) -> None:
        await _there(stage)
        stage.cluster.cloud.notice("s0", after_s=120)
        await stage.rig.sleep(110.0)
        staying = _on(stage, "s0")
        assert len(staying) == left
        assert "bare" in staying and any(name.startswith("agent") for name in staying)
        if left == 2:
            assert stage.cluster.ready(NAMESPACE, "web") == 2 and stage.cluster.ready(NAMESPACE, "db") == 1

    Stage(policy, on_demand=1, spot=1).play(scenario)


def test_a_voluntary_disruption_is_left_to_whoever_began_it():
    """M8: Karpenter and the cluster autoscaler drain by themselves; everybody means interruptions."""

    async def scenario(stage: Stage) -> None:
        await _there(stage)
        disrupt(stage, "s0", SIGNS["karpenter"])
        await stage.rig.sleep(300.0)
        assert len(_on(stage, "s0")) == 5

    Stage(EVICT, on_demand=1, spot=1).play(scenario)


def test_pods_of_another_controller_go_one_by_one_through_the_queue():
    """O1, M8: eight pods of a ReplicaSet of its own on one interrupted node: never are two of them on their way, but for
    the last call. Before, all eight were deleted in one turn."""

    async def scenario(stage: Stage) -> None:
        stage.cluster.cordon("n0")
        template = slow_template("lone", 0, grace_s=4)
        spec = {"replicas": 8, "selector": {"matchLabels": {"app": "lone"}}, "template": template}
        lone = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"namespace": NAMESPACE, "name": "lone"}}
        stage.cluster.store.create(Kind.REPLICA_SET, lone | {"spec": spec})
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "lone") == 8)
        await stage.rig.sleep(15.0)
        stage.cluster.cordon("n0", on=False)
        stage.cluster.cloud.notice("s0", after_s=120)
        most = 0
        for _ in range(400):
            await stage.rig.sleep(0.25)
            pods = stage.cluster.store.list(Kind.POD, NAMESPACE)
            most = max(most, sum("deletionTimestamp" in p["metadata"] for p in pods))
        assert most == 1 and not _on(stage, "s0")

    Stage(EVICT, on_demand=1, spot=1).play(scenario)
