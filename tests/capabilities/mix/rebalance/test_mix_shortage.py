"""On-demand is full: pods that prefer it instead find their way onto tainted spot pools, and the words say what is missing."""

from mooring.capabilities.mix.labels import AFFINITY, CUSTOM, MODE, RELAXED
from mooring.capabilities.mix.policy import MixPolicy, RebalancePolicy
from mooring.core.model.capacity import CapacityLabel, CapacityRules
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason, State
from mooring_lab.cluster.controllers import podstate
from mooring_lab.stage.scenarios.mix import NAMESPACE, physical, switched_on
from tests.capabilities.mix.rebalance.mix_stage import Stage

CAPACITY = "node.kubernetes.io/capacity"
TAINT = {"key": CAPACITY, "value": "spot", "effect": "NoSchedule"}


def full(stage: Stage, prefix: str = "n") -> None:
    for node in stage.cluster.store.list(Kind.NODE):
        if node["metadata"]["name"].startswith(prefix):
            stage.cluster.cordon(node["metadata"]["name"])


def taint_spot(stage: Stage) -> None:
    for name in ("s0", "s1"):
        stage.cluster.store.patch(Kind.NODE, "", name, {"spec": {"taints": [TAINT]}})


def test_a_relaxed_pod_tolerates_the_taint_of_spot_pools():
    """M10, issue 20: AKS taints every spot node. On-demand is full: the pod is let go, and its successor runs on spot."""

    async def scenario(stage: Stage) -> None:
        taint_spot(stage)
        full(stage)
        stage.cluster.deployment(NAMESPACE, "web", 2, labels=switched_on("all-in-on-demand"))
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "web") == 2, 300.0)
        assert physical(stage.rig, "web") == ["spot"] * 2
        assert all(RELAXED in podstate.annotations_of(p) for p in stage.cluster.pods(NAMESPACE, "web"))

    Stage(on_demand=2, spot=2).play(scenario)


def test_a_relaxed_pod_that_lacks_the_toleration_is_made_anew():
    """M10: one that was admitted without it would be Pending for ever; it is tried again, once."""

    async def scenario(stage: Stage) -> None:
        full(stage, "")
        stage.cluster.deployment(NAMESPACE, "web", 1, labels=switched_on("all-in-on-demand"))
        await stage.rig.until(lambda: any(_is_relaxed(p) for p in stage.cluster.pods(NAMESPACE, "web")), 300.0)
        (pod,) = [p for p in stage.cluster.pods(NAMESPACE, "web") if podstate.active(p)]
        stage.cluster.store.patch(Kind.POD, NAMESPACE, pod["metadata"]["name"], {"spec": {"tolerations": None}})
        taint_spot(stage)
        for name in ("s0", "s1"):
            stage.cluster.cordon(name, on=False)
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "web") == 1, 600.0)
        assert physical(stage.rig, "web") == ["spot"]

    Stage(MixPolicy(rebalance=RebalancePolicy(relaxed_s=3600.0)), on_demand=2, spot=2).play(scenario)


def _is_relaxed(pod: dict) -> bool:
    return podstate.active(pod) and RELAXED in podstate.annotations_of(pod)


def test_what_finds_no_node_of_either_class_is_told():
    """M10: Pending, and every class counted: nothing we could do, and no riddle. Nobody is let go in circles."""

    async def scenario(stage: Stage) -> None:
        full(stage, "")
        stage.cluster.deployment(NAMESPACE, "web", 1, labels=switched_on("all-in-on-demand"))
        stage.cluster.deployment(NAMESPACE, "api", 1, labels=switched_on("all-in-spot"))
        await stage.rig.sleep(1800.0)
        assert len(stage.moves()) <= 4
        for name in ("web", "api"):
            verdict = stage.verdict(name)
            assert (verdict.state, verdict.reason) == (State.WAITING, Reason.NO_ROOM)
            assert "no on-demand node has room (2 nodes: 2 cordoned)" in verdict.detail
            assert "no spot node has room (2 nodes: 2 cordoned)" in verdict.detail
            assert verdict.remedy == "add nodes, or make room on them"
        (api,) = [p for p in stage.cluster.pods(NAMESPACE, "api") if podstate.active(p)]
        assert api["metadata"]["labels"][AFFINITY] == "spot"

    Stage(MixPolicy(rebalance=RebalancePolicy(relaxed_s=3600.0)), on_demand=2, spot=2).play(scenario)


def test_spot_pools_of_azure_are_tolerated_by_their_own_taint():
    """M3: the toleration says the same as the first capacity label, whatever that is."""
    azure = CapacityLabel("kubernetes.azure.com/scalesetpriority", ("spot",), ())
    (toleration,) = MixPolicy(capacity=CapacityRules((azure,))).tolerations()
    assert (toleration.key, toleration.value, toleration.effect) == (azure.key, "spot", "NoSchedule")


def test_a_volume_that_keeps_its_pod_is_blocked_with_what_to_type():
    """M10: the mode changes to spot, and local volumes keep the pods on on-demand nodes: no node that comes helps, so
    it does not wait for one."""

    async def scenario(stage: Stage) -> None:
        claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local-ssd", "resources": {}}
        claims = [{"metadata": {"name": "data"}, "spec": claim}]
        labels = switched_on("all-in-on-demand")
        stage.cluster.stateful_set(NAMESPACE, "db", 2, labels=labels, volumeClaimTemplates=claims)
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "db") == 2)
        stage.cluster.store.patch(
            Kind.STATEFUL_SET, NAMESPACE, "db", {"metadata": {"labels": switched_on("all-in-spot")}}
        )
        await stage.rig.until(lambda: (one := stage.verdict("db", "StatefulSet")) and one.state is State.BLOCKED, 600.0)
        verdict = stage.verdict("db", "StatefulSet")
        assert verdict.reason is Reason.LOCAL_VOLUME and "the volume of db-1 is bound to n" in verdict.detail
        assert verdict.remedy == f"kubectl -n shop label statefulset/db {MODE}=custom {CUSTOM}=2 --overwrite"
        labels = switched_on("custom", 2)
        stage.cluster.store.patch(Kind.STATEFUL_SET, NAMESPACE, "db", {"metadata": {"labels": labels}})
        await stage.rig.until(lambda: stage.verdict("db", "StatefulSet") is None, 600.0)

    Stage(on_demand=2, spot=2).play(scenario)
