"""A machine that the cloud says is likely to go: prepared for, and nothing taken down. M13."""

import json

from mooring.capabilities.mix.interruption.notices import SOFT_TAINT
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import AGENT
from mooring.core.model.times import rfc3339
from mooring_lab.stage.scenarios.mix import NAMESPACE, serving, switched_on
from tests.capabilities.mix.rebalance.mix_stage import Stage


def says(stage: Stage, node: str, kind: str = "prepare", ahead_s: float = 0.0) -> None:
    at = rfc3339(stage.rig.clock.now() + ahead_s + 1.0)
    notices = {"it": {"kind": kind, "what": "AWS says so", "at": at}} if kind else {}
    annotation = json.dumps({"cloud": "aws", "checked": at, "notices": notices})
    stage.cluster.store.patch(Kind.NODE, "", node, {"metadata": {"annotations": {AGENT: annotation}}})


def spec_of(stage: Stage, node: str) -> dict:
    return stage.cluster.store.get(Kind.NODE, "", node)["spec"]


def tainted(stage: Stage, node: str) -> bool:
    return any(t["key"] == SOFT_TAINT.key for t in spec_of(stage, node).get("taints", ()))


def on(stage: Stage, name: str, node: str) -> int:
    return list(stage.cluster.nodes_of(NAMESPACE, name).values()).count(node)


def test_replacements_come_first_and_the_node_is_not_cordoned():
    """Every pod serves until its replacement does; new pods go elsewhere first, and none is kept out."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 4, "all-in-spot")
        node = next(iter(stage.cluster.nodes_of(NAMESPACE, "web").values()))
        fewest = 4

        def away() -> bool:
            nonlocal fewest
            fewest = min(fewest, serving(stage.rig, "web"))
            return on(stage, "web", node) == 0

        says(stage, node)
        await stage.rig.until(away, 600.0)
        await stage.until_quiet()
        assert fewest == 4
        assert tainted(stage, node) and not spec_of(stage, node).get("unschedulable")

    Stage().play(scenario)


def test_nothing_is_taken_down_where_there_is_no_room_elsewhere():
    """A whole pool may be recommended at once: then all stays as it is, and pods may still come."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 4, "all-in-spot")
        for node in ("s0", "s1", "s2", "s3", "n0", "n1", "n2", "n3"):
            says(stage, node)
        await stage.rig.sleep(1800.0)
        assert stage.moves() == []
        stage.cluster.store.patch(Kind.DEPLOYMENT, NAMESPACE, "web", {"spec": {"replicas": 6}})
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "web") == 6)

    Stage().play(scenario)


def test_a_stateful_set_stays_and_a_pod_that_came_later_does_too():
    """One of them cannot run beside its replacement; the other had nowhere else to go, and would come back."""

    async def scenario(stage: Stage) -> None:
        labels = switched_on("all-in-spot")
        stage.cluster.stateful_set(NAMESPACE, "db", 3, labels=labels)
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "db") == 3)
        for node in ("s0", "s1", "s2", "s3"):
            says(stage, node)
        await stage.rig.sleep(30.0)
        await stage.deployed("web", 2, "all-in-spot")
        await stage.rig.sleep(1800.0)
        assert stage.moves() == []

    Stage().play(scenario)


def test_taken_back_the_taint_goes_and_an_interruption_still_cordons():
    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 2, "all-in-spot")
        says(stage, "s0")
        await stage.rig.until(lambda: tainted(stage, "s0"))
        says(stage, "s0", kind="")
        await stage.rig.until(lambda: not tainted(stage, "s0"))
        says(stage, "s1")
        await stage.rig.until(lambda: tainted(stage, "s1"))
        says(stage, "s1", kind="interrupt", ahead_s=120.0)
        await stage.rig.until(lambda: bool(spec_of(stage, "s1").get("unschedulable")))

    Stage().play(scenario)
