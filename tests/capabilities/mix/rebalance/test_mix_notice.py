"""The two minutes on the sandbox."""

import pytest

from mooring.capabilities.mix.labels import CUSTOM, MODE
from mooring.capabilities.mix.policy import InterruptionPolicy, MixPolicy, OnNotice, RebalancePolicy
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import CORDONED_BY, LEAVING
from mooring.core.model.reasons import Reason, State
from mooring_lab.cluster.apiserver.faults import Fault
from mooring_lab.cluster.cloud import Dialect
from mooring_lab.cluster.controllers import podstate
from mooring_lab.stage.scenarios.mix import NAMESPACE, left_behind, physical, serving, slow_template, switched_on, uids
from tests.capabilities.mix.rebalance.mix_stage import Stage
from tests.sim.scenarios.mix import relabel


@pytest.mark.parametrize("dialect", [d for d in Dialect if d not in {Dialect.SILENT, Dialect.SHUTDOWN, Dialect.AKS}])
def test_a_single_replica_on_an_interrupted_node_never_has_zero_ready_endpoints(dialect: Dialect):
    """M8: 120 s of notice, 20 s of start-up, one replica: its replacement is Ready before it goes, in every dialect."""

    async def scenario(stage: Stage) -> None:
        stage.cluster.service(NAMESPACE, "one", {"app": "one"})
        await stage.deployed("one", 1, "all-in-spot", template=slow_template("one", 20))
        assert physical(stage.rig, "one") == ["spot"]
        stage.cluster.cloud.notice_all_spot(dialect=dialect)
        fewest = 1
        for _ in range(600):
            await stage.rig.sleep(0.25)
            fewest = min(fewest, len(stage.cluster.ready_nodes(NAMESPACE, "one")))
        assert fewest == 1
        assert physical(stage.rig, "one") == ["on-demand"]
        assert left_behind(stage.rig) == []

    Stage(on_demand=2, spot=2).play(scenario)


def test_moves_wait_for_the_cordons_of_the_other_interrupted_nodes():
    """Worked example 5: the request to cordon s0 is lost; no pod is moved off s1 until s0 is closed too."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 4, "all-in-spot", template=slow_template("web", 3))
        writes = len(stage.rig.writes)
        stage.cluster.api.faults.arm(Fault.LOST_REQUEST, verb="patch", kind=Kind.NODE)
        stage.cluster.cloud.notice_all_spot()
        await stage.rig.until(lambda: any(w.startswith("patch Pod") for w in stage.rig.writes[writes:]), every_s=0.05)
        closed = [bool(n["spec"].get("unschedulable")) for n in stage.cluster.store.list(Kind.NODE)]
        assert sum(closed) == 2, "moved before both were cordoned"

    Stage(on_demand=3, spot=2).play(scenario)


def test_twelve_spot_nodes_at_once():
    """Worked example 5: twelve cordons before the first move, on-demand floors untouched, forty pods on one node with
    20 s start-up replaced within 120 s, housekeeping stands back."""

    async def scenario(stage: Stage) -> None:
        elsewhere = [f"s{i:02d}" for i in range(1, 12)] + [f"n{i:02d}" for i in range(12)]
        for node in elsewhere:
            stage.cluster.cordon(node)
        await stage.deployed("crowd", 40, "all-in-spot", template=slow_template("crowd", 20, cpu="50m"))
        crowded = set(stage.cluster.nodes_of(NAMESPACE, "crowd").values())
        assert crowded == {"s00"}
        for node in elsewhere:
            stage.cluster.cordon(node, on=False)
        for name in ("api", "web", "pay"):
            await stage.deployed(name, 4, "custom", 2, template=slow_template(name, 20))
        writes = len(stage.rig.writes)
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {CUSTOM: "1"})
        stage.cluster.cloud.notice_all_spot()
        deadline = stage.rig.clock.monotonic() + 120
        floors: dict[str, int] = dict.fromkeys(("api", "web", "pay"), 2)
        fewest = 40
        while stage.rig.clock.monotonic() < deadline - 1:
            await stage.rig.sleep(0.5)
            fewest = min(fewest, serving(stage.rig, "crowd"))
            for name, floor in floors.items():
                floors[name] = min(floor, _ready_on_demand(stage, name))
        assert fewest == 40
        assert physical(stage.rig, "crowd") == ["on-demand"] * 40
        assert stage.cluster.ready(NAMESPACE, "crowd") == 40
        assert floors == {"api": 2, "web": 2, "pay": 2}
        made = stage.rig.writes[writes:]
        first_move = next(i for i, w in enumerate(made) if w.startswith(("patch Pod", "evict Pod", "delete Pod")))
        assert sum(w.startswith("patch Node") for w in made[:first_move]) == 12
        leader = stage.rig.leader()
        assert leader is not None
        sources = [o.source for o in leader.engine.running.values()] + [
            o.source for o in leader.engine.waiting.values()
        ]
        assert "mix" not in sources, "housekeeping waits until nothing of the workload is interrupted"
        await stage.rig.sleep(120.0)
        assert left_behind(stage.rig) == []

    Stage(on_demand=12, spot=12).play(scenario)


def test_a_housekeeping_move_waits_behind_a_notice():
    """Worked example 5, by name: a move of housekeeping waits for its node's room; a notice comes; what has a deadline
    is let through first, and housekeeping goes on when it has passed."""

    async def scenario(stage: Stage) -> None:
        for namespace, name in (("office", "idle"), ("studio", "idle"), (NAMESPACE, "busy")):
            stage.cluster.deployment(namespace, name, 2, labels=switched_on("all-in-spot"))
        await stage.rig.sleep(30.0)
        leader = stage.rig.leader()
        assert leader is not None
        interrupted = stage.cluster.nodes_of(NAMESPACE, "busy")
        # All want the one place that housekeeping has, or the one beside it; two are held by budgets, the last waits.
        for namespace in ("office", "studio"):
            stage.cluster.pdb(namespace, "idle", {"app": "idle"}, min_available=2)
        await stage.rig.sleep(5.0)
        wanted = {"metadata": {"labels": {MODE: "all-in-on-demand"}}}
        for namespace in ("office", "studio"):
            stage.cluster.store.patch(Kind.DEPLOYMENT, namespace, "idle", wanted)
        await stage.rig.until(lambda: [o.source for o in _running(leader)] == ["mix", "mix"])
        relabel(stage.rig, Kind.DEPLOYMENT, "busy", {MODE: "all-in-on-demand"})
        await stage.rig.until(lambda: any(o.source == "mix" for o in leader.engine.waiting.values()))
        waiting = {o.subject for o in leader.engine.waiting.values()}
        stage.cluster.deployment(NAMESPACE, "hasty", 2, labels=switched_on("all-in-spot"))
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "hasty") == 2)
        spot = sorted(set(stage.cluster.nodes_of(NAMESPACE, "hasty").values()) - set(interrupted.values()))
        assert spot, "a node of its own"
        stage.cluster.cloud.notice(spot[0])
        await stage.rig.until(lambda: any(o.source == "spot" for o in _running(leader)))
        assert waiting == {o.subject for o in leader.engine.waiting.values() if o.source == "mix"}, "it still waits"
        await stage.rig.sleep(125.0)
        for namespace in ("office", "studio"):
            stage.cluster.store.delete(Kind.PDB, namespace, "idle")
        await stage.rig.until(lambda: physical(stage.rig, "busy") == ["on-demand"] * 2, 600.0)

    Stage(MixPolicy(rebalance=RebalancePolicy(at_once=1)), on_demand=4, spot=6).play(scenario)


def _running(leader):
    return [one.operator for one in leader.engine.running.values()]


def test_a_stateful_set_keeps_its_quorum_until_the_last_call():
    """M8: no surge, so as many go at once as leave a quorum, the rest when those are back."""

    async def scenario(stage: Stage) -> None:
        stage.cluster.stateful_set(
            NAMESPACE, "db", 5, labels=switched_on("all-in-spot"), template=slow_template("db", 8, grace_s=10)
        )
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "db") == 5)
        await stage.rig.sleep(15.0)
        assert physical(stage.rig, "db") == ["spot"] * 5
        stage.cluster.cloud.notice_all_spot()
        fewest = 5
        for _ in range(400):
            await stage.rig.sleep(0.25)
            fewest = min(fewest, stage.cluster.ready(NAMESPACE, "db"))
        assert fewest >= 3
        assert physical(stage.rig, "db") == ["on-demand"] * 5
        assert stage.cluster.ready(NAMESPACE, "db") == 5

    Stage(on_demand=5, spot=5).play(scenario)


def test_without_room_a_pod_goes_with_its_grace_before_the_node_does():
    """M8: no replacement can start, so at deadline − grace − margin the pod is let go: it ends in order."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 1, "all-in-spot", template=slow_template("web", 5, grace_s=30))
        stage.cluster.cordon("n0")
        (name,) = stage.cluster.nodes_of(NAMESPACE, "web")
        began = stage.rig.clock.monotonic()
        stage.cluster.cloud.notice_all_spot()
        await stage.rig.until(lambda: any(w == f"delete Pod {NAMESPACE}/{name}" for w in stage.rig.writes))
        assert 84.0 <= stage.rig.clock.monotonic() - began <= 87.0
        await stage.rig.until(lambda: stage.rig.pod(NAMESPACE, name) is None)
        assert stage.rig.clock.monotonic() - began < 120.0

    Stage(on_demand=1, spot=1).play(scenario)


def test_a_notice_taken_back_undoes_only_what_we_did():
    """M8: our cordon is lifted, a person's stays; a detached pod goes back to its ReplicaSet, and nobody restarts."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 2, "all-in-spot", template=slow_template("web", 30))
        before = uids(stage.rig, "web")
        stage.cluster.cordon("s1")
        stage.cluster.cloud.notice_all_spot()
        await stage.rig.sleep(5.0)
        assert all(CORDONED_BY in podstate.annotations_of(_node(stage, name)) for name in ("s0", "s1"))
        for name in ("s0", "s1"):
            stage.cluster.cloud.withdraw(name)
        await stage.rig.sleep(20.0)
        assert not _node(stage, "s0")["spec"].get("unschedulable")
        assert _node(stage, "s1")["spec"].get("unschedulable")
        assert left_behind(stage.rig) == []
        await stage.until_quiet()
        assert uids(stage.rig, "web") == before

    Stage(on_demand=2, spot=2).play(scenario)


def test_a_spot_node_that_falls_silent_is_emptied_without_a_notice():
    """M8: unannounced loss; Deployment pods are replaced within a minute, not after the default five."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 2, "all-in-spot")
        node = min(stage.cluster.nodes_of(NAMESPACE, "web").values())
        stage.cluster.kubelets.silence(node)
        began = stage.rig.clock.monotonic()
        await stage.rig.until(
            lambda: (
                stage.cluster.ready(NAMESPACE, "web") == 2
                and node not in stage.cluster.nodes_of(NAMESPACE, "web").values()
            ),
            limit_s=200,
        )
        assert stage.rig.clock.monotonic() - began < 120.0

    Stage(on_demand=2, spot=2).play(scenario)


@pytest.mark.parametrize("dialect", [Dialect.SHUTDOWN, Dialect.AKS])
def test_half_a_minute_is_enough_to_go_in_order(dialect: Dialect):
    """M8, B10: a kubelet that shuts down, or a cloud that gives 30 s; the pod is replaced long before the default."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 1, "all-in-spot", template=slow_template("web", 5, grace_s=5))
        (node,) = stage.cluster.nodes_of(NAMESPACE, "web").values()
        stage.cluster.cloud.notice(node, after_s=30.0, dialect=dialect)
        await stage.rig.until(
            lambda: (
                stage.cluster.ready(NAMESPACE, "web") == 1
                and list(stage.cluster.nodes_of(NAMESPACE, "web").values()) != [node]
            ),
            limit_s=40,
        )

    Stage(on_demand=1, spot=2).play(scenario)


def test_workloads_that_are_not_switched_on_are_left_alone():
    """M1: the node is cordoned, for the others' sake; a pod that nobody gave us is not touched."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 2, "off")
        await stage.rig.sleep(5.0)
        stage.cluster.cloud.notice_all_spot()
        await stage.rig.sleep(60.0)
        assert stage.moves() == []
        assert not [w for w in stage.rig.writes if w.startswith("patch Pod")]

    Stage(on_demand=0, spot=2).play(scenario)


def test_observe_says_what_it_would_do_and_does_nothing():
    """M8: mix.interruption.action observe."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 2, "all-in-spot")
        writes = len(stage.rig.writes)
        stage.cluster.cloud.notice_all_spot()
        await stage.rig.sleep(30.0)
        assert stage.rig.writes[writes:] == []
        leader = stage.rig.leader()
        assert leader is not None
        assert leader.engine.verdicts["mix", "node/s0"].reason is Reason.NOTICE

    Stage(MixPolicy(interruption=InterruptionPolicy(action=OnNotice.OBSERVE)), on_demand=2, spot=1).play(scenario)


def test_off_hears_nothing_and_rebalances_all_the_same():
    """B9: mix.interruption.action off: no cordon, no verdict, no move off an interrupted or silent node; modes are still kept."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 2, "all-in-spot")
        writes = len(stage.rig.writes)
        stage.cluster.cloud.notice_all_spot(after_s=600.0)
        await stage.rig.sleep(30.0)
        assert stage.rig.writes[writes:] == []
        leader = stage.rig.leader()
        assert leader is not None
        assert not [key for _, key in leader.engine.verdicts if key.startswith("node/")]
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {MODE: "all-in-on-demand"})
        await stage.rig.until(lambda: physical(stage.rig, "web") == ["on-demand"] * 2)

    Stage(MixPolicy(interruption=InterruptionPolicy(action=OnNotice.OFF)), on_demand=2, spot=1).play(scenario)


def test_the_leaders_of_a_tikv_pod_on_an_interrupted_node_leave_before_it():
    """O2, M8: mix never deletes a TiKV pod; it writes the management with the deadline, and handoff empties its store."""

    async def scenario(stage: Stage) -> None:
        stage.cluster.tidb_cluster("tidb", "demo", tidb=0, tikv=3, pd=0, with_pd=True)
        await stage.rig.sleep(1.0)
        await stage.rig.until(lambda: stage.cluster.ready("tidb", "demo-tikv") == 3)
        pd = stage.cluster.pd["tidb", "demo"]
        pd.load(60)
        await stage.rig.sleep(5.0)
        nodes = stage.cluster.nodes_of("tidb", "demo-tikv")
        node = nodes["demo-tikv-1"]
        stage.cluster.cloud.notice(node)
        await stage.rig.sleep(10.0)
        pod = stage.rig.pod("tidb", "demo-tikv-1")
        asked = pod is None or LEAVING in podstate.annotations_of(pod) or podstate.node_of(pod) != node
        assert asked
        await stage.rig.sleep(105.0)
        assert len(pd.interruptions) == 0
        assert not [w for w in stage.rig.writes if w.startswith("evict Pod tidb/")]

    Stage(on_demand=0, spot=5).play(scenario)


def test_a_node_whose_leaders_can_go_nowhere_says_so():
    """E7, O2: with max-replicas 1 no leader can leave before the node does: the node is blocked, with the line to type."""

    async def scenario(stage: Stage) -> None:
        stage.cluster.tidb_cluster("tidb", "demo", tidb=0, tikv=3, pd=0, with_pd=True)
        await stage.rig.sleep(1.0)
        await stage.rig.until(lambda: stage.cluster.ready("tidb", "demo-tikv") == 3)
        stage.cluster.pd["tidb", "demo"].load(60, 1)
        node = stage.cluster.nodes_of("tidb", "demo-tikv")["demo-tikv-1"]
        stage.cluster.cloud.notice(node)
        await stage.rig.sleep(60.0)
        verdict = stage.rig.leader().engine.verdicts["mix", f"node/{node}"]
        assert (verdict.state, verdict.reason) == (State.BLOCKED, Reason.ONE_STORE)
        assert verdict.remedy == "pd-ctl config set max-replicas 3"

    Stage(on_demand=0, spot=5).play(scenario)


def test_when_all_tikv_nodes_are_to_go_the_last_store_stands_back_once():
    """E1, rule 12: leaders have nowhere to go, so one eviction is given up, and not begun again every second."""

    async def scenario(stage: Stage) -> None:
        stage.cluster.tidb_cluster("tidb", "demo", tidb=0, tikv=3, pd=0, with_pd=True)
        await stage.rig.sleep(1.0)
        await stage.rig.until(lambda: stage.cluster.ready("tidb", "demo-tikv") == 3)
        stage.cluster.pd["tidb", "demo"].load(30)
        await stage.rig.sleep(5.0)
        stage.cluster.cloud.notice_all_spot()
        await stage.rig.sleep(60.0)
        begun = [w for w in stage.rig.writes if w.startswith("pd add_evict_leader")]
        assert 2 <= len(begun) <= 4

    Stage(on_demand=0, spot=5).play(scenario)


def _ready_on_demand(stage: Stage, name: str) -> int:
    pods = [p for p in stage.cluster.pods(NAMESPACE, name) if podstate.ready(p) and podstate.active(p)]
    return sum(podstate.node_of(p).startswith("n") for p in pods)


def _node(stage: Stage, name: str):
    return stage.cluster.store.get(Kind.NODE, "", name)
