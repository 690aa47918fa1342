"""What Mix says about itself, and how it lets go."""

from mooring.capabilities.mix.capability import Mix
from mooring.capabilities.mix.explain import in_order, interrupted, report, speaking
from mooring.capabilities.mix.labels import AFFINITY, CUSTOM, MODE
from mooring.cli.mix import workload_lines, workload_row
from mooring.core.engine.why import explain
from mooring.core.model.cluster import Key
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason, State
from mooring.install.cleanup.undo import released
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.kubelet import FAIL
from mooring_lab.stage.scenarios.mix import NAMESPACE, left_behind, physical, slow_template, switched_on, uids
from tests.capabilities.mix.rebalance.mix_stage import Stage
from tests.sim.scenarios.mix import relabel


def _report(stage: Stage, name: str):
    leader = stage.rig.leader()
    assert leader is not None
    engine = leader.engine
    mix = engine.capabilities["mix"]
    assert isinstance(mix, Mix)
    workload = engine.world.workload(Kind.DEPLOYMENT, Key(NAMESPACE, name))
    assert workload is not None
    return mix, engine, report(mix, workload, engine.world, engine.queue, engine.now, engine.running)


def _builtins(value):
    import msgspec

    return msgspec.to_builtins(value)


def test_a_workload_at_rest_is_placed_and_every_pod_has_its_slot():
    """M10: `mooring mix explain` of a workload with nothing wrong."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 3, "majority-in-on-demand")
        _, engine, one = _report(stage, "web")
        assert (one.state, one.have, one.wanted, one.safe, one.sequence) == ("stable", 2, 2, 2, "OOs")
        assert [(p.slot, p.given, p.node_class) for p in one.pods] == [
            (0, "on-demand", "on-demand"),
            (1, "on-demand", "on-demand"),
            (2, "spot", "spot"),
        ]
        assert (
            workload_lines(_builtins(one))[0]
            == "Deployment/web is stable: 2 of 3 on on-demand, as majority-in-on-demand wants"
        )
        assert [w.name for w in speaking(engine.capabilities["mix"], engine.world)] == ["web"]
        assert workload_row(_builtins(in_order([one])[0]))[0] == "stable"

    Stage().play(scenario)


def test_what_waits_is_explained_with_the_fact_that_blocks_it():
    """M10, O3: what is wrong, who goes next, and the pod that it waits for, by name; the Event says the same."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 5, "custom", 2)
        broken = next(
            p for p in stage.cluster.pods(NAMESPACE, "web") if podstate.labels_of(p)[AFFINITY] == "on-demand"
        )["metadata"]["name"]
        stage.cluster.annotate(Kind.POD, NAMESPACE, broken, {"lab.mooring.dev/fail": "ready"})
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "web") == 4)
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {CUSTOM: "3"})
        await stage.rig.sleep(30.0)
        _, engine, one = _report(stage, "web")
        assert one.wrong == "custom 3 wants 3 of 5 on on-demand, has 2"
        assert "its successor goes to on-demand" in one.next
        assert f"{broken} is not Ready" in one.not_yet
        said = explain(engine, f"workload/{NAMESPACE}/Deployment/web")
        assert said is not None
        stage.cluster.annotate(Kind.POD, NAMESPACE, broken, {"lab.mooring.dev/fail": None})
        await stage.rig.until(lambda: len(stage.moves()) == 1)
        events = [e["message"] for e in stage.cluster.store.list(Kind.EVENT, NAMESPACE)]
        assert any(m.endswith("is moved: custom 3 wants 3 of 5 on on-demand, has 2") for m in events)

    Stage().play(scenario)


def test_a_default_deployment_says_that_its_floor_is_zero():
    """M2: the floor is in the words, not only in the docs."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 2)
        _, _, one = _report(stage, "web")
        assert one.by_default
        assert "floor       0 on on-demand; 0 Ready there now" in workload_lines(_builtins(one))

    Stage().play(scenario)


def test_release_gives_back_what_we_took():
    """M8: Mooring is stopped for good in the middle of a notice; `mooring mix release` leaves nothing of ours."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 2, "all-in-spot", template=slow_template("web", 60))
        before = uids(stage.rig, "web")
        stage.cluster.cloud.notice_all_spot()
        await stage.rig.sleep(5.0)
        leader = stage.rig.leader()
        assert leader is not None
        mix = leader.engine.capabilities["mix"]
        assert isinstance(mix, Mix)
        assert len(interrupted(mix, leader.engine.world, leader.engine.now)) == 2
        await stage.rig.stop()
        for node in ("s0", "s1"):
            stage.cluster.cloud.withdraw(node)
        would, _ = await released(stage.rig.api, dry_run=True)
        assert left_behind(stage.rig) != []
        done, failed = await released(stage.rig.api, dry_run=False)
        assert (done, failed) == (would, [])
        assert left_behind(stage.rig) == []
        await stage.rig.sleep(90.0)
        assert uids(stage.rig, "web") == before

    Stage(on_demand=2, spot=2).play(scenario)


def test_release_leaves_a_persons_cordon():
    """M8: only what a mark says we did is undone."""

    async def scenario(stage: Stage) -> None:
        stage.cluster.cordon("s0")
        stage.cluster.cloud.notice_all_spot()
        await stage.rig.sleep(5.0)
        await stage.rig.stop()
        await released(stage.rig.api, dry_run=False)
        nodes = {
            n["metadata"]["name"]: n["spec"].get("unschedulable", False) for n in stage.cluster.store.list(Kind.NODE)
        }
        assert nodes == {"n0": False, "s0": True, "s1": False}

    Stage(on_demand=1, spot=2).play(scenario)


def test_the_mode_label_is_read_again_after_each_change():
    """M5: back and forth, each change moves only the difference."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 4, "all-in-spot")
        for mode, count in (("majority-in-on-demand", 3), ("all-in-spot", 4)):
            writes = len(stage.rig.writes)
            relabel(stage.rig, Kind.DEPLOYMENT, "web", {MODE: mode})
            await stage.rig.sleep(200.0)
            assert len(stage.moves(writes)) == (count if mode != "all-in-spot" else 3)

    Stage().play(scenario)


def test_too_few_on_on_demand_are_told_of_also_while_pods_go():
    """M4, M10: a StatefulSet does not scale down while its first pod is not Ready; until then nobody is moved, and why
    is said."""

    async def scenario(stage: Stage) -> None:
        rig, kind = stage.rig, Kind.STATEFUL_SET
        stage.cluster.stateful_set(NAMESPACE, "db", 5, labels=switched_on("custom", 1))
        await rig.until(lambda: stage.cluster.ready(NAMESPACE, "db") == 5)
        await rig.sleep(15.0)
        stage.cluster.annotate(Kind.POD, NAMESPACE, "db-0", {FAIL: "ready"})
        stage.cluster.scale(kind, NAMESPACE, "db", 3)
        relabel(rig, kind, "db", {CUSTOM: "3"})
        await rig.sleep(30.0)
        verdict = stage.verdict("db", "StatefulSet")
        assert verdict is not None
        assert (verdict.state, verdict.reason) == (State.WAITING, Reason.SETTLING)
        assert verdict.detail == (
            "custom 3 wants 3 of 3 on on-demand, has 1; db has 5 pods, those that are too many go first"
        )
        stage.cluster.annotate(Kind.POD, NAMESPACE, "db-0", {FAIL: None})
        await rig.until(lambda: physical(rig, "db") == ["on-demand"] * 3)
        await rig.until(lambda: stage.verdict("db", "StatefulSet") is None)

    Stage().play(scenario)
