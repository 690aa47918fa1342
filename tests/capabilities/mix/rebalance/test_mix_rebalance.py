"""The rebalancer on the sandbox, with the real admission logic in process."""

import pytest

from mooring.capabilities.mix.labels import AFFINITY, CUSTOM, ENABLED, MODE, REBALANCE, RELAXED, SLOT
from mooring.capabilities.mix.memory import NAME as MEMORY
from mooring.capabilities.mix.policy import MixPolicy, OnDisable, OnShortage, RebalancePolicy
from mooring.capabilities.mix.targets import Mode, Share, Target
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason, State
from mooring_lab.cluster.controllers import podstate
from mooring_lab.stage.scenarios.mix import (
    NAMESPACE,
    given,
    left_behind,
    physical,
    serving,
    slow_template,
    switched_on,
    uids,
)
from tests.capabilities.mix.rebalance.mix_stage import Stage
from tests.sim.scenarios.mix import relabel


def test_three_spot_and_two_on_demand_wanted_as_two_and_three_moves_exactly_one():
    """M5: the seed's example; one pod goes, it is a spot one, and its slot says so afterwards."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 5, "custom", 2)
        assert given(stage.rig, "web") == ["on-demand"] * 2 + ["spot"] * 3
        before, writes = uids(stage.rig, "web"), len(stage.rig.writes)
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {CUSTOM: "3"})
        await stage.rig.until(lambda: given(stage.rig, "web").count("on-demand") == 3)
        await stage.until_quiet()
        await stage.rig.sleep(120.0)
        assert len(before - uids(stage.rig, "web")) == 1
        assert len(stage.moves(writes)) == 1
        assert physical(stage.rig, "web") == ["on-demand"] * 3 + ["spot"] * 2
        target = Target(Mode.CUSTOM, Share(3))
        for pod in stage.cluster.pods(NAMESPACE, "web"):
            slot = int(podstate.annotations_of(pod)[SLOT])
            assert target.class_of(slot).value == podstate.labels_of(pod)[AFFINITY]
        assert left_behind(stage.rig) == []

    Stage().play(scenario)


def test_pods_that_were_there_before_are_adopted_without_a_restart():
    """M5: where the count already fits, a label is all it takes."""

    async def scenario(stage: Stage) -> None:
        for node in ("s0", "s1", "s2", "s3"):
            stage.cluster.cordon(node)
        stage.cluster.deployment(NAMESPACE, "web", 2)
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "web") == 2)
        for node in ("s0", "s1", "s2", "s3"):
            stage.cluster.cordon(node, on=False)
        for node in ("n0", "n1", "n2", "n3"):
            stage.cluster.cordon(node)
        stage.cluster.scale(Kind.DEPLOYMENT, NAMESPACE, "web", 5)
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "web") == 5)
        for node in ("n0", "n1", "n2", "n3"):
            stage.cluster.cordon(node, on=False)
        before = uids(stage.rig, "web")
        relabel(stage.rig, Kind.DEPLOYMENT, "web", switched_on("custom", 2))
        await stage.begin()
        await stage.rig.until(lambda: "-" not in given(stage.rig, "web"))
        await stage.rig.sleep(120.0)
        assert uids(stage.rig, "web") == before
        assert stage.moves() == []
        slots = sorted(int(podstate.annotations_of(p)[SLOT]) for p in stage.cluster.pods(NAMESPACE, "web"))
        assert slots == [0, 1, 2, 3, 4]

    Stage().play(scenario, begin=False)


def test_only_one_is_away_at_a_time():
    """M5: all five change class, one after another, never two away; the queue's own limit does it."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 5, "all-in-spot")
        fewest = 5
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {MODE: "all-in-on-demand"})
        for _ in range(1200):
            await stage.rig.sleep(0.25)
            fewest = min(fewest, stage.cluster.ready(NAMESPACE, "web"))
            if physical(stage.rig, "web") == ["on-demand"] * 5 and stage.cluster.ready(NAMESPACE, "web") == 5:
                break
        assert physical(stage.rig, "web") == ["on-demand"] * 5
        assert fewest == 4
        assert len(stage.moves()) == 5

    Stage().play(scenario)


def test_a_replica_that_is_being_moved_is_charged_once():
    """O1, facts with subjects: while a move runs, its workload shows one of one used, not the move and the gap besides."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 3, "all-in-spot", template=slow_template("web", 10))
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {MODE: "all-in-on-demand"})
        leader = stage.rig.leader()
        assert leader is not None
        target = f"workload/{NAMESPACE}/Deployment/web"
        used: set[int] = set()
        away = 0
        for _ in range(600):
            await stage.rig.sleep(0.1)
            used.add(leader.engine.queue.used(target))
            away += stage.cluster.ready(NAMESPACE, "web") < 3 and bool(leader.engine.running)
        assert away > 50, "replicas were seen to be away while their moves ran"
        assert used == {0, 1}
        assert physical(stage.rig, "web") == ["on-demand"] * 3

    Stage().play(scenario)


@pytest.mark.parametrize(("surge", "unavailable", "bounds"), [(2, 0, (6, 8)), (0, 2, (4, 6)), (2, 2, (4, 8))])
def test_the_quicker_way_stays_within_the_surge_and_what_may_be_unavailable(surge, unavailable, bounds):
    """M6: asked for by annotation, replacements come first, and beyond maxSurge as many as may be unavailable
    are evicted: never more pods than replicas + maxSurge (15 of 13 before), never fewer Ready than the strategy allows."""

    async def scenario(stage: Stage) -> None:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
        await stage.deployed(
            "web",
            6,
            "all-in-spot",
            strategy=strategy,
            annotations={REBALANCE: "fast"},
            template=slow_template("web", 10),
        )
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {MODE: "all-in-on-demand"})
        fewest, most = 6, 0
        began = stage.rig.clock.monotonic()
        while physical(stage.rig, "web") != ["on-demand"] * 6 or stage.rig.unsettled():
            await stage.rig.sleep(0.25)
            pods = [p for p in stage.cluster.store.list(Kind.POD, NAMESPACE) if podstate.active(p)]
            fewest, most = min(fewest, sum(podstate.ready(p) for p in pods)), max(most, len(pods))
            assert stage.rig.clock.monotonic() < began + 300
        assert (fewest, most) == bounds
        await stage.rig.sleep(35.0)  # the last ones' grace
        assert left_behind(stage.rig) == []

    Stage().play(scenario)


def test_a_workload_with_a_pod_that_is_not_ready_waits_until_it_is():
    """Worked example 2: another pod's failure is a fact that parks the move; it runs once that is mended."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 5, "custom", 2)
        broken = next(p for p in stage.cluster.pods(NAMESPACE, "web") if podstate.labels_of(p)[AFFINITY] == "on-demand")
        name = broken["metadata"]["name"]
        stage.cluster.annotate(Kind.POD, NAMESPACE, name, {"lab.mooring.dev/fail": "ready"})
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "web") == 4)
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {CUSTOM: "3"})
        await stage.rig.sleep(60.0)
        leader = stage.rig.leader()
        assert leader is not None
        assert stage.moves() == []
        (waiting,) = leader.engine.waiting.values()
        assert leader.engine.queue.records.by_id[waiting.id].parked
        assert waiting.subject != f"pod/{NAMESPACE}/{name}"
        stage.cluster.annotate(Kind.POD, NAMESPACE, name, {"lab.mooring.dev/fail": None})
        await stage.rig.until(lambda: given(stage.rig, "web").count("on-demand") == 3)
        await stage.until_quiet()
        assert stage.moves() == [waiting.subject.rpartition("/")[2]]

    Stage().play(scenario)


def test_the_cure_is_not_blocked_by_its_disease():
    """Worked example 2: if the one to move is the one that is not Ready, it runs at once."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 5, "custom", 2)
        broken = next(p for p in stage.cluster.pods(NAMESPACE, "web") if podstate.labels_of(p)[AFFINITY] == "spot")
        name = broken["metadata"]["name"]
        stage.cluster.annotate(Kind.POD, NAMESPACE, name, {"lab.mooring.dev/fail": "ready"})
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "web") == 4)
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {CUSTOM: "3"})
        await stage.rig.until(lambda: given(stage.rig, "web").count("on-demand") == 3)
        assert stage.moves() == [name]

    Stage().play(scenario)


def test_switched_off_pods_with_our_affinity_are_made_anew_one_by_one():
    """M5: on-disable recreate; every pod is new in the end, and none carries a label of ours."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 3, "all-in-on-demand")
        before = uids(stage.rig, "web")
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {ENABLED: "false"})
        fewest = 3
        for _ in range(600):
            await stage.rig.sleep(0.25)
            fewest = min(fewest, stage.cluster.ready(NAMESPACE, "web"))
        assert given(stage.rig, "web") == ["-"] * 3
        assert not before & uids(stage.rig, "web")
        assert fewest == 2
        affinities = [p["spec"].get("affinity") for p in stage.cluster.pods(NAMESPACE, "web")]
        assert affinities == [None] * 3

    Stage().play(scenario)


def test_switched_off_with_leave_nothing_happens():
    """M5: on-disable leave keeps the pods."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 3, "all-in-on-demand")
        before = uids(stage.rig, "web")
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {ENABLED: "false"})
        await stage.rig.sleep(120.0)
        assert uids(stage.rig, "web") == before

    Stage(MixPolicy(on_disable=OnDisable.LEAVE)).play(scenario)


def test_no_room_means_no_eviction_and_words_that_say_so():
    """M10: on-demand is full, so nobody is evicted only to come back; the verdict names what is missing."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed(
            "filler", 1, "off", template=_big("filler", "900m", {"node.kubernetes.io/capacity": "on-demand"})
        )
        await stage.deployed("web", 2, "all-in-spot", template=_big("web", "300m"))
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {MODE: "all-in-on-demand"})
        await stage.rig.sleep(600.0)
        assert stage.moves() == []
        verdict = stage.verdict("web")
        assert (verdict.state, verdict.reason) == (State.WAITING, Reason.NO_ROOM)
        assert "no on-demand node has room" in verdict.detail

    Stage(on_demand=1, spot=2, cpu="1").play(scenario)


def test_a_pod_that_finds_no_on_demand_node_is_let_go_and_comes_back_when_there_is_room():
    """M10: deadlock-free; on-shortage relax lets it prefer on-demand, and it moves there once a node comes."""

    async def scenario(stage: Stage) -> None:
        stage.cluster.deployment(
            NAMESPACE, "web", 2, labels=switched_on("all-in-on-demand"), template=_big("web", "700m")
        )
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "web") == 2, limit_s=300)
        pods = stage.cluster.pods(NAMESPACE, "web")
        assert sorted(RELAXED in podstate.annotations_of(p) for p in pods) == [False, True]
        assert physical(stage.rig, "web") == ["on-demand", "spot"]
        stage.cluster.add_node("n9", capacity="on-demand", cpu="1")
        await stage.rig.until(lambda: physical(stage.rig, "web") == ["on-demand", "on-demand"], limit_s=600)

    Stage(on_demand=1, spot=2, cpu="1").play(scenario)


def test_on_shortage_wait_holds_and_says_what_would_help():
    """M10: on-shortage wait leaves the Pending pod alone, visibly."""

    async def scenario(stage: Stage) -> None:
        stage.cluster.deployment(
            NAMESPACE, "web", 2, labels=switched_on("all-in-on-demand"), template=_big("web", "700m")
        )
        await stage.rig.sleep(200.0)
        assert stage.moves() == []
        assert stage.verdict("web").state is State.BLOCKED
        assert "add on-demand nodes" in stage.verdict("web").remedy

    Stage(MixPolicy(on_shortage=OnShortage.WAIT), on_demand=1, spot=2, cpu="1").play(scenario)


def test_a_budget_that_allows_none_holds_the_move_visibly():
    """M5, B2: a PodDisruptionBudget is asked first; its refusal is a wait that names it."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 3, "all-in-spot")
        stage.cluster.pdb(NAMESPACE, "web", {"app": "web"}, min_available=3)
        await stage.rig.sleep(5.0)
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {MODE: "majority-in-on-demand"})
        await stage.rig.sleep(60.0)
        leader = stage.rig.leader()
        assert leader is not None
        assert stage.moves() == []
        (running,) = leader.engine.running.values()
        assert running.waiting_on is not None
        assert (running.waiting_on.state, running.waiting_on.reason) == (State.BLOCKED, Reason.PDB)
        assert "pdb/web" in running.waiting_on.detail
        stage.cluster.store.patch(Kind.PDB, NAMESPACE, "web", {"spec": {"minAvailable": 2}})
        await stage.rig.until(lambda: given(stage.rig, "web").count("on-demand") == 2)

    Stage().play(scenario)


def test_a_rollout_is_waited_for():
    """M5: while a rollout goes on nothing is moved; it makes the pods anew anyway."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 4, "custom", 1, template=slow_template("web", 8))
        stage.cluster.set_image(Kind.DEPLOYMENT, NAMESPACE, "web", "registry.example/app:2")
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {CUSTOM: "2"})
        await stage.until_quiet()
        await stage.rig.sleep(60.0)
        assert given(stage.rig, "web").count("on-demand") == 2
        assert len(stage.moves()) <= 1

    Stage().play(scenario)


def test_scaling_moves_nobody():
    """M9: an autoscaler scales up and down; the split stays exact and nobody is moved."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 4, "majority-in-on-demand")
        target = Target(Mode.MAJORITY_IN_ON_DEMAND)
        for replicas in (7, 3, 10, 2, 6):
            stage.cluster.scale(Kind.DEPLOYMENT, NAMESPACE, "web", replicas)
            await stage.rig.until(lambda n=replicas: len(uids(stage.rig, "web")) == n)
            await stage.until_quiet()
            await stage.rig.sleep(30.0)
            assert given(stage.rig, "web").count("on-demand") == target.on_demand(replicas)
        assert stage.moves() == []

    Stage().play(scenario)


def test_a_stateful_set_moves_one_ordinal_at_a_time():
    """M5: StatefulSets too; the ordinal that the sequence wants elsewhere goes."""

    async def scenario(stage: Stage) -> None:
        stage.cluster.stateful_set(NAMESPACE, "db", 3, labels=switched_on("custom", 1))
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "db") == 3)
        await stage.rig.sleep(15.0)
        relabel(stage.rig, Kind.STATEFUL_SET, "db", {CUSTOM: "2"})
        await stage.rig.until(lambda: given(stage.rig, "db").count("on-demand") == 2)
        await stage.until_quiet()
        assert stage.moves() == ["db-1"]

    Stage().play(scenario)


def test_a_move_that_does_not_help_is_not_repeated_at_once():
    """M10: no eviction loop; without our webhook the successor comes back wrong, so the workload is paused, longer each
    time, and the memory of it is written before the pod goes."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 2, "all-in-spot")
        stage.cluster.store.remove(Kind.MUTATING_WEBHOOK, "", _webhook(stage))
        for node in ("n0", "n1", "n2", "n3"):
            stage.cluster.store.patch(
                Kind.NODE, "", node, {"spec": {"taints": [{"key": "x", "effect": "PreferNoSchedule"}]}}
            )
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {MODE: "all-in-on-demand"})
        memory = f"{stage.rig.config.namespace}/{MEMORY}"
        last = 0
        for _ in range(20):
            await stage.rig.sleep(30.0)
            for name in [c["metadata"]["name"] for c in stage.cluster.store.list(Kind.MUTATING_WEBHOOK)]:
                stage.cluster.store.remove(Kind.MUTATING_WEBHOOK, "", name)
            last = len(stage.moves())
        assert 1 <= last <= 6
        first = next(w for w in stage.rig.writes if "ConfigMap" in w or w.startswith("evict"))
        assert memory in first

    Stage().play(scenario)


def _back_on_spot(stage: Stage, *names: str) -> int:
    return sum(physical(stage.rig, name).count("spot") for name in names)


async def _fallen_back(stage: Stage, **replicas: int) -> None:
    """Workloads whose pods found no spot node; spot has room from now on."""
    spot = [n["metadata"]["name"] for n in stage.cluster.store.list(Kind.NODE, "") if n["metadata"]["name"][0] == "s"]
    for node in spot:
        stage.cluster.cordon(node)
    for name, count in replicas.items():
        await stage.deployed(name, count, "all-in-spot", template=slow_template(name, 10))
        assert physical(stage.rig, name) == ["on-demand"] * count
    for node in spot:
        stage.cluster.cordon(node, on=False)


def test_thirty_replicas_return_to_spot_in_minutes_and_none_is_away_meanwhile():
    """M10: once spot has had room for ten minutes one goes first, and where it stays the others follow, each replaced
    before it goes and at most ten in a minute; 30 replicas took five hours before."""

    async def scenario(stage: Stage) -> None:
        await _fallen_back(stage, web=30)
        began, back, fewest = stage.rig.clock.monotonic(), [], 30
        while len(back) < 30:
            await stage.rig.sleep(1.0)
            now = stage.rig.clock.monotonic() - began
            back += [now] * (_back_on_spot(stage, "web") - len(back))
            fewest = min(fewest, serving(stage.rig, "web"))
            assert now < 1200.0
        assert back[0] >= 595.0 and fewest == 30
        assert back[1] - back[0] > 10.0, "one alone"
        assert max(sum(at <= one < at + 60.0 for one in back) for at in back) <= 12
        await stage.until_quiet()
        assert len(stage.moves()) == 30

    Stage(on_demand=6, spot=6).play(scenario)


def test_returns_share_one_pace_in_the_whole_cluster_and_slow_down_where_spot_nodes_vanish():
    """M10: twelve workloads, ten returns in a minute; while a fifth of the spot nodes was lost lately, one."""

    names = [f"w{i}" for i in range(12)]

    async def scenario(stage: Stage) -> None:
        await _fallen_back(stage, **dict.fromkeys(names, 1))
        leader = stage.rig.leader()
        assert leader is not None
        await stage.rig.until(lambda: _back_on_spot(stage, *names) >= 10, 700.0)
        await stage.rig.sleep(20.0)
        assert _back_on_spot(stage, *names) == 10
        waiting = [op for op in leader.engine.waiting.values() if op.reason is Reason.RETURN_TO_SPOT]
        assert len(waiting) == 2 and leader.engine.queue.why(waiting[0].id).target == "return-to-spot"
        await stage.rig.until(lambda: _back_on_spot(stage, *names) == 12, 90.0)
        assert leader.engine.queue.limit("return-to-spot") == 10
        await stage.until_quiet()
        for node in ("s0", "s1"):
            stage.cluster.store.delete(Kind.NODE, "", node)
        await stage.rig.sleep(5.0)
        assert leader.engine.queue.limit("return-to-spot") == 1
        await stage.rig.sleep(1830.0)
        assert leader.engine.queue.limit("return-to-spot") == 10

    Stage(on_demand=6, spot=8).play(scenario)


def test_a_workload_that_is_not_understood_is_left_alone_and_told():
    """M1: never guess; the verdict and the Event carry the words of admission."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 2, "all-in-spot")
        await stage.rig.stop()
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {MODE: "mostly"})
        before = uids(stage.rig, "web")
        await stage.begin()
        await stage.rig.sleep(60.0)
        assert stage.verdict("web").reason is Reason.MISCONFIGURED
        assert uids(stage.rig, "web") == before
        events = [e["message"] for e in stage.cluster.store.list(Kind.EVENT, NAMESPACE)]
        assert any("it must be one of all-in-on-demand" in message for message in events)

    Stage().play(scenario)


def _big(name: str, cpu: str, selector: dict[str, str] | None = None):
    from mooring_lab.cluster.controllers.manifests import pod_template

    return pod_template({"app": name}, cpu=cpu, memory="", **({"nodeSelector": selector} if selector else {}))


def _webhook(stage: Stage) -> str:
    return stage.cluster.store.list(Kind.MUTATING_WEBHOOK)[0]["metadata"]["name"]


def test_a_held_move_is_given_up_when_nobody_wants_it_any_more():
    """M5: the mode is changed back while a budget holds the move; the mark goes, the pod stays."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 3, "all-in-spot")
        stage.cluster.pdb(NAMESPACE, "web", {"app": "web"}, min_available=3)
        await stage.rig.sleep(5.0)
        before = uids(stage.rig, "web")
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {MODE: "majority-in-on-demand"})
        await stage.rig.until(lambda: left_behind(stage.rig) != [])
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {MODE: "all-in-spot"})
        await stage.rig.until(lambda: left_behind(stage.rig) == [] and not stage.rig.unsettled())
        await stage.rig.sleep(60.0)
        assert uids(stage.rig, "web") == before

    Stage().play(scenario)


def test_housekeeping_is_bounded_in_the_whole_cluster():
    """O1: eight workloads change at once; no more moves are under way than the share of one namespace in `at-once`."""

    async def scenario(stage: Stage) -> None:
        names = [f"app{i:02d}" for i in range(8)]
        for name in names:
            stage.cluster.deployment(NAMESPACE, name, 2, labels=switched_on("all-in-spot"))
        await stage.rig.sleep(30.0)
        for name in names:
            relabel(stage.rig, Kind.DEPLOYMENT, name, {MODE: "all-in-on-demand"})
        most = 0
        for _ in range(800):
            await stage.rig.sleep(0.25)
            leader = stage.rig.leader()
            assert leader is not None
            most = max(most, len(leader.engine.running))
        assert most == 4
        assert all(physical(stage.rig, name) == ["on-demand"] * 2 for name in names)

    Stage(MixPolicy(rebalance=RebalancePolicy(at_once=5))).play(scenario)


def test_a_move_that_a_budget_blocks_gives_its_place_back():
    """O1: tenants whose budgets allow nothing hold no place for ever: the mark goes, others move, it is tried later."""

    async def scenario(stage: Stage) -> None:
        for name in ("stuck", "free"):
            await stage.deployed(name, 3, "all-in-spot")
        stage.cluster.pdb(NAMESPACE, "stuck", {"app": "stuck"}, min_available=3)
        await stage.rig.sleep(5.0)
        relabel(stage.rig, Kind.DEPLOYMENT, "stuck", {MODE: "all-in-on-demand"})
        await stage.rig.until(lambda: left_behind(stage.rig) != [])
        relabel(stage.rig, Kind.DEPLOYMENT, "free", {MODE: "all-in-on-demand"})
        await stage.rig.until(lambda: physical(stage.rig, "free") == ["on-demand"] * 3, limit_s=600)
        assert physical(stage.rig, "stuck") == ["spot"] * 3

    Stage(MixPolicy(rebalance=RebalancePolicy(at_once=1))).play(scenario)


def test_a_detached_pod_whose_workload_went_while_nobody_led_is_swept():
    """M8: no garbage collector knows it, so the next leader ends it, and says so."""

    async def scenario(stage: Stage) -> None:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        await stage.deployed(
            "web",
            2,
            "all-in-spot",
            strategy=strategy,
            annotations={REBALANCE: "fast"},
            template=slow_template("web", 60),
        )
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {MODE: "all-in-on-demand"})
        await stage.rig.until(lambda: left_behind(stage.rig) != [])
        stage.rig.kill()
        owners = [(Kind.DEPLOYMENT, "web")]
        owners += [
            (Kind.REPLICA_SET, r["metadata"]["name"]) for r in stage.cluster.store.list(Kind.REPLICA_SET, NAMESPACE)
        ]
        for pod in stage.cluster.pods(NAMESPACE, "web"):
            owners.append((Kind.POD, pod["metadata"]["name"]))
        for kind, name in owners:
            stage.cluster.store.remove(kind, NAMESPACE, name)
        assert left_behind(stage.rig) != []
        await stage.begin()
        await stage.rig.until(lambda: stage.cluster.store.list(Kind.POD, NAMESPACE) == [], limit_s=120)

    Stage().play(scenario)


@pytest.mark.parametrize("instance", ["", "my-release"])
def test_a_tikv_pod_is_asked_for_and_the_request_is_taken_back_when_nobody_wants_it(instance):
    """M5, E1, H3: mix never deletes a TiKV pod, whatever a release tool labels its cluster; the request goes to handoff,
    and goes away with its reason."""

    async def scenario(stage: Stage) -> None:
        for node in ("n0", "n1", "n2"):
            stage.cluster.cordon(node)
        stage.cluster.tidb_cluster("tidb", "demo", tidb=0, tikv=3, pd=0, with_pd=True)
        if instance:
            labels = {"metadata": {"labels": {"app.kubernetes.io/instance": instance}}}
            stage.cluster.store.patch(Kind.TIDB_CLUSTER, "tidb", "demo", labels)
        await stage.rig.sleep(1.0)
        await stage.rig.until(lambda: stage.cluster.ready("tidb", "demo-tikv") == 3)
        for node in ("n0", "n1", "n2"):
            stage.cluster.cordon(node, on=False)
        stage.cluster.pd["tidb", "demo"].load(300)
        await stage.rig.sleep(15.0)
        label = {"metadata": {"labels": switched_on("all-in-on-demand")}}
        stage.cluster.store.patch(Kind.STATEFUL_SET, "tidb", "demo-tikv", label)
        await stage.rig.until(lambda: left_behind(stage.rig) != [], limit_s=60)
        back = {"metadata": {"labels": {ENABLED: "false"}}}
        stage.cluster.store.patch(Kind.STATEFUL_SET, "tidb", "demo-tikv", back)
        await stage.rig.until(lambda: left_behind(stage.rig) == [], limit_s=60)
        assert stage.moves() == []

    Stage(on_demand=3, spot=3).play(scenario)
