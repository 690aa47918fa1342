"""A voluntary disruption is no interruption: nobody takes the machine away at a known moment, so PDBs, quorum and the
workload's own room hold for as long as it takes. M8, issue 20."""

import pytest

from mooring.capabilities.mix.policy import MixPolicy, RebalancePolicy
from mooring.core.engine.why.answer import explain
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason, State
from mooring_lab.cluster.kubelet import KubeletPace
from mooring_lab.stage.scenarios.mix import NAMESPACE, left_behind, physical, serving, slow_template, switched_on
from tests.capabilities.mix.rebalance.mix_stage import Stage

SIGNS = {
    "karpenter": "karpenter.sh/disrupted",
    "karpenter before 1.0": "karpenter.sh/disruption",
    "cluster-autoscaler": "ToBeDeletedByClusterAutoscaler",
    "maintenance": "aws-node-termination-handler/scheduled-maintenance",
    "asg": "aws-node-termination-handler/asg-lifecycle-termination",
    "a Node being deleted": "",
}


def disrupt(stage: Stage, node: str, taint: str) -> None:
    store = stage.cluster.store
    if taint:
        store.patch(Kind.NODE, "", node, {"spec": {"taints": [{"key": taint, "effect": "NoSchedule"}]}})
    else:
        store.patch(Kind.NODE, "", node, {"metadata": {"finalizers": ["karpenter.sh/termination"]}})
        store.delete(Kind.NODE, "", node)


async def database(stage: Stage, budget: int = 2, start_s: float = 75.0) -> set[str]:
    """Three replicas on on-demand nodes, and where they stand."""
    labels = switched_on("all-in-on-demand")
    stage.cluster.stateful_set(NAMESPACE, "db", 3, labels=labels, template=slow_template("db", start_s))
    stage.cluster.pdb(NAMESPACE, "db", {"app": "db"}, minAvailable=budget)
    await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "db") == 3)
    await stage.rig.sleep(30.0)
    return set(stage.cluster.nodes_of(NAMESPACE, "db").values())


@pytest.mark.parametrize("taint", SIGNS.values(), ids=SIGNS)
def test_a_budget_holds_while_three_nodes_are_disrupted(taint: str):
    """Three on-demand nodes at once, pods that need 75 s to start, a PDB of 2: never fewer than 2 Ready, and in the end
    all three stand elsewhere."""

    async def scenario(stage: Stage) -> None:
        nodes = await database(stage)
        fewest = 3

        def moved() -> bool:
            nonlocal fewest
            fewest = min(fewest, stage.cluster.ready(NAMESPACE, "db"))
            return not nodes & set(stage.cluster.nodes_of(NAMESPACE, "db").values()) and _all_ready(stage)

        for node in nodes:
            disrupt(stage, node, taint)
        await stage.rig.until(moved, 1200.0)
        assert fewest == 2

    Stage(on_demand=7, spot=1, cpu="1").play(scenario)


def _all_ready(stage: Stage) -> bool:
    return bool(stage.cluster.ready(NAMESPACE, "db") == 3)


def test_a_budget_that_allows_none_blocks_and_nobody_is_deleted():
    """M8: however long it lasts, nobody goes past the PDB; the words name it."""

    async def scenario(stage: Stage) -> None:
        nodes = await database(stage, budget=3, start_s=5.0)
        for node in nodes:
            disrupt(stage, node, SIGNS["karpenter"])
        await stage.rig.sleep(3600.0)
        assert stage.moves() == []
        leader = stage.rig.leader()
        waiting = [r.waiting_on for r in leader.engine.running.values()]
        assert [(w.state, w.reason) for w in waiting] == [(State.BLOCKED, Reason.PDB)]

    Stage(on_demand=7, spot=1, cpu="1").play(scenario)


def test_nobody_is_evicted_where_there_is_no_room_elsewhere():
    """M8, M10: evicted, it would be Pending; whoever disrupts the node may make room first. The words say so."""

    async def scenario(stage: Stage) -> None:
        nodes = await database(stage, start_s=5.0)
        for node in ("n0", "n1", "n2"):
            disrupt(stage, node, SIGNS["cluster-autoscaler"])
        await stage.rig.sleep(600.0)
        assert stage.moves() == []
        node = min(nodes)
        verdict = stage.rig.leader().engine.verdicts["mix", f"node/{node}"]
        assert (verdict.state, verdict.reason) == (State.WAITING, Reason.NO_ROOM)
        assert "no on-demand node has room (3 nodes: 3 interrupted)" in verdict.detail
        answer = explain(stage.rig.leader().engine, f"node/{node}")
        assert answer is not None and answer.answer.startswith(f"{node} is waiting: db-"), "the pod, then why it stays"
        stage.cluster.add_nodes(3, "n1", capacity="on-demand")
        await stage.rig.until(lambda: not nodes & set(stage.cluster.nodes_of(NAMESPACE, "db").values()), 600.0)

    Stage(on_demand=3, spot=1, cpu="1").play(scenario)


def test_a_deployment_has_its_replacement_first():
    """M8: a single replica never has zero Ready endpoints, however long its successor needs."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 1, "all-in-spot", template=slow_template("web", 150.0))
        (node,) = set(stage.cluster.nodes_of(NAMESPACE, "web").values())
        disrupt(stage, node, SIGNS["karpenter"])
        fewest = 1

        def moved() -> bool:
            nonlocal fewest
            fewest = min(fewest, serving(stage.rig, "web"))
            return set(stage.cluster.nodes_of(NAMESPACE, "web").values()) != {node} and serving(stage.rig, "web") == 1

        await stage.rig.until(moved, 600.0)
        assert fewest == 1

    Stage().play(scenario)


def test_a_replacement_that_never_comes_up_is_not_tried_in_circles():
    """No circles: the pod goes back to its ReplicaSet, and the next attempt is later each time."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 1, "all-in-spot")
        ((pod, node),) = stage.cluster.nodes_of(NAMESPACE, "web").items()
        stage.cluster.kubelets.pace = KubeletPace(start_s=9e9)
        disrupt(stage, node, SIGNS["karpenter"])
        await stage.rig.sleep(2 * 3600.0)
        assert serving(stage.rig, "web") == 1
        detached = sum(w == f"patch Pod {NAMESPACE}/{pod}" for w in stage.rig.writes)
        assert 4 <= detached <= 16, "each attempt is two patches"

    Stage(MixPolicy(rebalance=RebalancePolicy(ready_within_s=60.0)), on_demand=2, spot=2).play(scenario)


def test_an_interruption_that_follows_is_the_one_that_counts():
    """M8: Karpenter's taint says nothing about the moment; when the two minutes are told as well, they hold: the pod that
    its budget kept goes with its grace."""

    async def scenario(stage: Stage) -> None:
        nodes = await database(stage, budget=3, start_s=5.0)
        node = min(nodes)
        disrupt(stage, node, SIGNS["karpenter"])
        await stage.rig.sleep(60.0)
        assert stage.moves() == []
        stage.cluster.cloud.notice(node, after_s=120)
        await stage.rig.sleep(115.0)
        assert len(stage.moves()) == 1

    Stage(on_demand=7, spot=1, cpu="1").play(scenario)


def test_a_disruption_that_ends_leaves_nothing_behind():
    """M8: the taint goes (Karpenter has changed its mind): our cordon is lifted, no mark stays, nobody was moved."""

    async def scenario(stage: Stage) -> None:
        nodes = await database(stage, budget=3, start_s=5.0)
        node = min(nodes)
        disrupt(stage, node, SIGNS["karpenter"])
        await stage.rig.sleep(60.0)
        stage.cluster.store.patch(Kind.NODE, "", node, {"spec": {"taints": None}})
        await stage.until_quiet()
        await stage.rig.sleep(10.0)
        assert left_behind(stage.rig) == []
        assert not stage.cluster.store.get(Kind.NODE, "", node)["spec"].get("unschedulable")
        assert stage.moves() == [] and physical(stage.rig, "db") == ["on-demand"] * 3

    Stage(on_demand=7, spot=1, cpu="1").play(scenario)
