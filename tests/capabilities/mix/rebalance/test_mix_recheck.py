"""Between the mark and the eviction of a pod, its workload may have lost another one."""

from mooring.capabilities.mix.labels import CUSTOM, ENABLED
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.kubelet import FAIL
from mooring_lab.stage.scenarios.mix import NAMESPACE, slow_template, switched_on
from tests.capabilities.mix.rebalance.mix_stage import Stage
from tests.sim.scenarios.mix import relabel


def test_health_is_checked_once_more_right_before_the_eviction():
    """M5, only while healthy: a sibling fails between mark and eviction; the move waits until it is Ready again."""
    failed: list[str] = []

    async def scenario(stage: Stage) -> None:
        rig = stage.rig
        stage.cluster.stateful_set(NAMESPACE, "db", 4, labels=switched_on("custom", 1), template=slow_template("db", 3))
        await rig.until(lambda: stage.cluster.ready(NAMESPACE, "db") == 4)
        await rig.sleep(15.0)

        def fail_a_sibling(what: str) -> None:
            marked = what.removeprefix(f"patch Pod {NAMESPACE}/")
            if what.startswith("patch Pod") and not failed:
                sibling = next(name for name in stage.cluster.nodes_of(NAMESPACE, "db") if name != marked)
                failed.append(sibling)
                stage.cluster.annotate(Kind.POD, NAMESPACE, sibling, {FAIL: "ready"})

        rig.on_write = fail_a_sibling
        writes = len(rig.writes)
        relabel(rig, Kind.STATEFUL_SET, "db", {CUSTOM: "3"})
        await rig.until(lambda: bool(failed), limit_s=120, every_s=0.05)
        await rig.sleep(30.0)
        assert stage.moves(writes) == [], "evicted while another one is away"
        stage.cluster.annotate(Kind.POD, NAMESPACE, failed[0], {FAIL: None})
        await stage.until_quiet()
        assert stage.moves(writes)

    Stage().play(scenario)


def test_quorum_is_checked_once_more_right_before_an_eviction_under_a_notice():
    """M8: a sibling fails between mark and eviction; it goes first, for it is missing already, and the others follow
    one by one."""
    failed: list[str] = []

    async def scenario(stage: Stage) -> None:
        rig = stage.rig
        stage.cluster.stateful_set(
            NAMESPACE, "db", 3, labels=switched_on("all-in-spot"), template=slow_template("db", 3, grace_s=10)
        )
        await rig.until(lambda: stage.cluster.ready(NAMESPACE, "db") == 3)
        await rig.sleep(15.0)

        def fail_a_sibling(what: str) -> None:
            marked = what.removeprefix(f"patch Pod {NAMESPACE}/")
            if what.startswith("patch Pod") and not failed:
                sibling = next(name for name in stage.cluster.nodes_of(NAMESPACE, "db") if name != marked)
                failed.append(sibling)
                stage.cluster.annotate(Kind.POD, NAMESPACE, sibling, {FAIL: "ready"})

        rig.on_write = fail_a_sibling
        writes, fewest = len(rig.writes), 3
        stage.cluster.cloud.notice_all_spot()
        for _ in range(240):
            await rig.sleep(0.25)
            fewest = min(fewest, stage.cluster.ready(NAMESPACE, "db"))
        moves = stage.moves(writes)
        assert failed == moves[:1]
        assert sorted(moves) == ["db-0", "db-1", "db-2"]
        assert fewest == 2

    Stage(on_demand=4, spot=4).play(scenario)


def test_a_replica_that_takes_over_counts_the_pod_that_the_last_one_evicted():
    """M8: the replacement of the evicted pod finds no node; whoever leads next does not take a second one of three."""

    async def scenario(stage: Stage) -> None:
        rig = stage.rig
        stage.cluster.stateful_set(
            NAMESPACE, "db", 3, labels=switched_on("all-in-spot"), template=slow_template("db", 3, grace_s=10)
        )
        await rig.until(lambda: stage.cluster.ready(NAMESPACE, "db") == 3)
        await rig.sleep(15.0)
        stage.cluster.cordon("n0")
        writes = len(rig.writes)
        stage.cluster.cloud.notice_all_spot()
        await rig.until(lambda: stage.cluster.ready(NAMESPACE, "db") == 2, limit_s=60, every_s=0.05)
        await rig.sleep(5.0)
        rig.kill()
        rig.start("next")
        await rig.until(lambda: rig.leader() is not None, limit_s=60)
        await rig.sleep(10.0)
        assert len(stage.moves(writes)) == 1

    Stage(on_demand=1, spot=3).play(scenario)


def test_a_notice_does_not_let_housekeeping_take_several():
    """M5, one by one: what a notice lets go at once is for the pods that it takes, not for those of a workload that was
    switched off."""
    fewest = [7]

    async def scenario(stage: Stage) -> None:
        rig = stage.rig
        stage.cluster.stateful_set(
            NAMESPACE, "db", 7, labels=switched_on("custom", 4), template=slow_template("db", 20)
        )
        await rig.until(lambda: stage.cluster.ready(NAMESPACE, "db") == 7, limit_s=300)
        await rig.sleep(15.0)
        stage.cluster.cloud.notice_all_spot(after_s=100.0)
        relabel(rig, Kind.STATEFUL_SET, "db", {ENABLED: None})
        began = len(rig.writes)
        for _ in range(180):
            await rig.sleep(0.5)
            fewest[0] = min(fewest[0], stage.cluster.ready(NAMESPACE, "db"))
        assert stage.moves(began), "housekeeping went on"
        assert fewest[0] == 6

    Stage().play(scenario)
