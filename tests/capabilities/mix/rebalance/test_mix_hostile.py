"""Workloads that are odd or contradict themselves, on the sandbox: nobody loops, nobody is guessed about."""

import pytest

from mooring.capabilities.drain.signals import INTERRUPT_AT
from mooring.capabilities.mix.labels import AFFINITY, CUSTOM, MODE, REBALANCE, RESERVATION, SLOT
from mooring.capabilities.mix.policy import InterruptionPolicy, MixPolicy, OnNotice, RebalancePolicy
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason, State
from mooring_lab.cluster.controllers import manifests, podstate
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

CAPACITY = "node.kubernetes.io/capacity"


def test_a_workload_whose_own_rules_tie_it_to_spot_is_held_in_words():
    """M9: its pods cannot be on-demand: nobody is moved, and the verdict names the contradiction and what would help."""

    async def scenario(stage: Stage) -> None:
        template = manifests.pod_template({"app": "web"}, nodeSelector={CAPACITY: "spot"})
        await stage.deployed("web", 3, "majority-in-on-demand", template=template)
        await stage.rig.sleep(60.0)
        assert physical(stage.rig, "web") == ["spot"] * 3
        assert stage.moves() == []
        verdict = stage.verdict("web")
        assert (verdict.state, verdict.reason) == (State.BLOCKED, Reason.CONFLICT)
        assert verdict.detail == (
            "majority-in-on-demand wants 2 of 3 on on-demand, has 0; "
            "3 pods tied to the other class: its nodeSelector asks for spot nodes, its slot is on-demand"
        )
        assert "mode" in verdict.remedy

    Stage().play(scenario)


def test_pods_on_nodes_of_no_known_class_are_held_in_words():
    """B7: a node without a label is never counted and never chosen; whoever must label it reads its name."""

    async def scenario(stage: Stage) -> None:
        stage.cluster.deployment(NAMESPACE, "web", 2)
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "web") == 2)
        nodes = set(stage.cluster.nodes_of(NAMESPACE, "web").values())
        for node in nodes:
            stage.cluster.store.patch(Kind.NODE, "", node, {"metadata": {"labels": {CAPACITY: None}}})
        relabel(stage.rig, Kind.DEPLOYMENT, "web", switched_on("all-in-on-demand"))
        await stage.rig.sleep(60.0)
        assert stage.moves() == []
        verdict = stage.verdict("web")
        assert (verdict.state, verdict.reason) == (State.BLOCKED, Reason.UNKNOWN)
        assert f"the class of {min(nodes)}" in verdict.detail and "label" in verdict.remedy

    Stage().play(scenario)


def test_a_node_that_turns_into_a_spot_node_gives_its_on_demand_replicas_back():
    """B7: the floor stood on a node whose label was changed; its replica is moved, and nobody else."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 3, "custom", 1)
        (node,) = (n for n in stage.cluster.nodes_of(NAMESPACE, "web").values() if n.startswith("n"))
        stage.cluster.store.patch(Kind.NODE, "", node, {"metadata": {"labels": {CAPACITY: "spot"}}})
        await stage.rig.until(lambda: bool(stage.moves()))
        await stage.until_quiet()
        await stage.rig.sleep(60.0)
        assert len(stage.moves()) == 1
        now = set(stage.cluster.nodes_of(NAMESPACE, "web").values())
        assert sum(n.startswith("n") and n != node for n in now) == 1

    Stage().play(scenario)


def test_a_notice_that_is_taken_back_wakes_the_workload_that_waited_for_it():
    """M5, M8: housekeeping stands back while a node of the workload is interrupted, and goes on when it is not."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 2, "all-in-spot")
        stage.cluster.annotate(Kind.NODE, "", "s0", {INTERRUPT_AT: "2099-01-01T00:00:00Z"})
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {MODE: "all-in-on-demand"})
        await stage.rig.sleep(60.0)
        assert stage.verdict("web").reason is Reason.NOTICE
        stage.cluster.annotate(Kind.NODE, "", "s0", {INTERRUPT_AT: None})
        await stage.rig.until(lambda: physical(stage.rig, "web") == ["on-demand"] * 2)

    Stage(MixPolicy(interruption=InterruptionPolicy(action=OnNotice.OBSERVE)), spot=1).play(scenario)


def test_a_stateful_set_may_count_from_anywhere_and_change_its_mind():
    """M4: ordinals.start is a large number and moves on; slots follow it, and each pod is written on once at most."""

    async def scenario(stage: Stage) -> None:
        stage.cluster.stateful_set(NAMESPACE, "db", 3, labels=switched_on(), ordinals={"start": 2_000_000})
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "db") == 3)
        await stage.rig.sleep(30.0)
        assert _slots(stage, "db") == {"db-2000000": "0", "db-2000001": "1", "db-2000002": "2"}
        assert given(stage.rig, "db") == ["on-demand", "on-demand", "spot"]
        writes = len(stage.rig.writes)
        stage.cluster.store.patch(Kind.STATEFUL_SET, NAMESPACE, "db", {"spec": {"ordinals": {"start": 2_000_001}}})
        await stage.rig.until(lambda: set(_slots(stage, "db").values()) == {"0", "1", "2"} and _first(stage) != "0")
        await stage.until_quiet()
        assert _slots(stage, "db") == {"db-2000001": "0", "db-2000002": "1", "db-2000003": "2"}
        patches = [w for w in stage.rig.writes[writes:] if w.startswith("patch Pod")]
        assert len(patches) <= 3

    Stage().play(scenario)


def _first(stage: Stage) -> str:
    return "0" if "db-2000000" in stage.cluster.nodes_of(NAMESPACE, "db") else ""


def _slots(stage: Stage, name: str) -> dict[str, str]:
    return {
        p["metadata"]["name"]: podstate.annotations_of(p).get(SLOT, "–")
        for p in stage.cluster.pods(NAMESPACE, name)
        if podstate.active(p)
    }


def test_news_that_was_lost_is_made_up_for_by_the_list():
    """M7: pods go and come, a mode is changed and a node is interrupted while our watches are cut and their history is
    compacted: after the list webhook and rebalancer agree, the split is exact and the interrupted node is empty."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 12, "custom", 4)
        for round_ in range(3):
            for pod in stage.cluster.pods(NAMESPACE, "web")[round_::4]:
                stage.cluster.store.delete(Kind.POD, NAMESPACE, pod["metadata"]["name"])
            if round_ == 1:
                relabel(stage.rig, Kind.DEPLOYMENT, "web", {CUSTOM: "7"})
                stage.cluster.annotate(Kind.NODE, "", "s0", {INTERRUPT_AT: "2099-01-01T00:00:00Z"})
            stage.cluster.api.faults.compact()
            await stage.rig.sleep(7.0)
        await stage.rig.until(lambda: given(stage.rig, "web").count("on-demand") == 7)
        await stage.until_quiet()
        await stage.rig.sleep(60.0)
        assert given(stage.rig, "web") == ["on-demand"] * 7 + ["spot"] * 5
        assert sorted(_slots(stage, "web").values(), key=int) == [str(i) for i in range(12)]
        assert "s0" not in stage.cluster.nodes_of(NAMESPACE, "web").values()

    Stage().play(scenario)


def test_pods_of_other_owners_are_left_alone():
    """M1, M9: a DaemonSet, a ReplicaSet of nobody's and a bare pod carry the labels and are not touched, at creation
    or on an interrupted node; the workload beside them is."""

    async def scenario(stage: Stage) -> None:
        stage.cluster.daemon_set(NAMESPACE, "agent", labels=switched_on("all-in-on-demand"))
        labelled = {"app": "lone"} | switched_on("all-in-on-demand")
        lone = manifests.deployment(NAMESPACE, "lone", 2, manifests.pod_template(labelled), labels=labelled)
        spec = {key: lone["spec"][key] for key in ("replicas", "selector", "template")}
        stage.cluster.store.create(Kind.REPLICA_SET, lone | {"kind": "ReplicaSet", "spec": spec})
        bare = manifests.pod_template({"app": "bare"} | switched_on("all-in-on-demand"))
        stage.cluster.store.create(
            Kind.POD, {"metadata": {"namespace": NAMESPACE, "name": "bare", **bare["metadata"]}, "spec": bare["spec"]}
        )
        await stage.deployed("web", 2, "all-in-spot")
        theirs = [p for p in stage.cluster.store.list(Kind.POD, NAMESPACE) if not _is_of(p, "web")]
        before = {p["metadata"]["uid"]: p["metadata"]["resourceVersion"] for p in theirs}
        assert len(before) == 4 + 4 + 3
        assert not [p for p in theirs if AFFINITY in podstate.labels_of(p) or RESERVATION in podstate.annotations_of(p)]
        stage.cluster.cloud.notice_all_spot()
        await stage.rig.until(lambda: physical(stage.rig, "web") == ["on-demand"] * 2)
        now = {p["metadata"]["uid"]: p["metadata"]["resourceVersion"] for p in stage.cluster.store.list(Kind.POD)}
        assert before.items() <= now.items()

    Stage().play(scenario)


def _is_of(pod, name: str) -> bool:
    return bool(pod["metadata"]["name"].startswith(f"{name}-"))


def test_a_workload_deleted_and_made_anew_under_its_name_in_the_middle_of_a_move():
    """M5: owners are known by uid: the new one starts at slot 0 with its own mode, nothing of the old one is left."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 3, "all-in-spot", template=slow_template("web", 20))
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {MODE: "all-in-on-demand"})
        await stage.rig.until(lambda: bool(stage.moves()))
        stage.cluster.store.delete(Kind.DEPLOYMENT, NAMESPACE, "web")
        await stage.rig.sleep(1.0)
        stage.cluster.deployment(NAMESPACE, "web", 3, labels=switched_on("custom", 1))
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "web") == 3)
        await stage.until_quiet()
        await stage.rig.sleep(60.0)
        assert given(stage.rig, "web") == ["on-demand", "spot", "spot"]
        assert sorted(_slots(stage, "web").values()) == ["0", "1", "2"]
        assert left_behind(stage.rig) == []

    Stage().play(scenario)


def test_a_rollout_at_full_surge_with_two_replica_sets_and_a_scaling_autoscaler_stays_exact():
    """M5, M9: maxSurge 100 %, maxUnavailable 0, the replica count flaps meanwhile: the end is T(R), nobody is moved."""

    async def scenario(stage: Stage) -> None:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}}
        await stage.deployed("web", 6, "custom", "30pct", template=slow_template("web", 6), strategy=strategy)
        writes = len(stage.rig.writes)
        stage.cluster.set_image(Kind.DEPLOYMENT, NAMESPACE, "web", "web:2")
        for replicas in (9, 4, 11, 7):
            await stage.rig.sleep(4.0)
            stage.cluster.scale(Kind.DEPLOYMENT, NAMESPACE, "web", replicas)
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "web") == 7 and stage.cluster.stable())
        await stage.until_quiet()
        await stage.rig.sleep(120.0)
        assert given(stage.rig, "web") == ["on-demand"] * 3 + ["spot"] * 4
        assert stage.moves(writes) == []

    Stage().play(scenario)


def test_a_leader_that_dies_in_the_middle_of_a_burst_costs_no_place():
    """M4: reservations die with their leader; the next one counts what it sees, and what came out wrong is mended."""

    async def scenario(stage: Stage) -> None:
        stage.rig.start()
        await stage.rig.sleep(5.0)
        stage.cluster.deployment(NAMESPACE, "web", 60, labels=switched_on("majority-in-on-demand"))
        await stage.rig.until(lambda: len(stage.cluster.pods(NAMESPACE, "web")) >= 20, every_s=0.01)
        leader = stage.rig.leader()
        assert leader is not None
        stage.rig.kill(leader.identity)
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "web") == 60)
        await stage.rig.until(lambda: given(stage.rig, "web").count("on-demand") == 31, 1800.0)
        await stage.until_quiet()
        await stage.rig.sleep(60.0)
        assert physical(stage.rig, "web") == ["on-demand"] * 31 + ["spot"] * 29
        assert sorted(_slots(stage, "web").values(), key=int) == [str(i) for i in range(60)]

    Stage(on_demand=6, spot=6).play(scenario)


def test_a_preference_of_the_users_own_is_not_fought_for_ever():
    """M9, M10: the user draws the pod to on-demand nodes harder than we draw it to spot: it is sent back ever more
    rarely, since nothing but money is at stake."""

    async def scenario(stage: Stage) -> None:
        drawn = {"matchExpressions": [{"key": CAPACITY, "operator": "In", "values": ["on-demand"]}]}
        named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}
        preferred = [{"weight": 100, "preference": one} for one in (drawn, named)]
        affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
        await stage.deployed(
            "web", 1, "all-in-spot", template=manifests.pod_template({"app": "web"}, affinity=affinity)
        )
        assert physical(stage.rig, "web") == ["on-demand"]
        await stage.rig.sleep(24 * 60.0)
        assert 2 <= len(stage.moves()) <= 5
        assert physical(stage.rig, "web") == ["on-demand"]

    pace = RebalancePolicy(room_for_s=60, return_every_s=60, pause_s=6, longest_pause_s=180)
    Stage(MixPolicy(rebalance=pace), on_demand=1, spot=1).play(scenario)


def test_a_label_in_a_namespace_that_is_left_out_moves_nobody():
    """M9: pods of kube-system are created without our webhook, so moving them would never help: nobody is moved, not
    even off an interrupted node, and the verdict says why."""

    async def scenario(stage: Stage) -> None:
        labels = switched_on("all-in-on-demand")
        stage.cluster.deployment("kube-system", "dns", 2, labels=labels)
        await stage.rig.until(lambda: stage.cluster.ready("kube-system", "dns") == 2)
        await stage.rig.sleep(60.0)
        leader = stage.rig.leader()
        assert leader is not None
        verdict = leader.engine.verdicts["mix", "workload/Deployment/kube-system/dns"]
        assert (verdict.state, verdict.reason) == (State.BLOCKED, Reason.MISCONFIGURED)
        assert "kube-system is left out" in verdict.detail
        stage.cluster.cloud.notice_all_spot()
        await stage.rig.sleep(30.0)
        assert not [w for w in stage.rig.writes if "Pod kube-system/" in w]

    Stage(on_demand=0, spot=2).play(scenario)


def test_a_paused_deployment_is_placed_and_not_rebalanced():
    """§1.8: paused stops rollouts, not pods: a lost one is placed as ever, a new mode waits and says for what."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 3, "custom", 1)
        stage.cluster.store.patch(Kind.DEPLOYMENT, NAMESPACE, "web", {"spec": {"paused": True}})
        lost = next(p for p in stage.cluster.pods(NAMESPACE, "web") if podstate.annotations_of(p)[SLOT] == "0")
        stage.cluster.store.delete(Kind.POD, NAMESPACE, lost["metadata"]["name"])
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "web") == 3 and len(_slots(stage, "web")) == 3)
        assert given(stage.rig, "web") == ["on-demand", "spot", "spot"]
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {CUSTOM: "2"})
        await stage.rig.sleep(120.0)
        assert stage.moves() == []
        assert stage.verdict("web").detail == "web is paused"
        stage.cluster.store.patch(Kind.DEPLOYMENT, NAMESPACE, "web", {"spec": {"paused": False}})
        await stage.rig.until(lambda: given(stage.rig, "web").count("on-demand") == 2)

    Stage().play(scenario)


@pytest.mark.parametrize(
    "strategy",
    [{"type": "OnDelete"}, {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}],
    ids=["OnDelete", "partition"],
)
def test_a_stateful_set_held_between_revisions_by_its_owner_is_not_rolled_by_us(strategy):
    """M5, M9: with OnDelete or a partition our eviction would roll a pod that its owner holds back: a new mode waits,
    and a pod that the owner deletes himself comes back with the class that is missing."""

    async def scenario(stage: Stage) -> None:
        stage.cluster.stateful_set(
            NAMESPACE, "db", 3, labels=switched_on("custom", 1), updateStrategy=strategy, podManagementPolicy="Parallel"
        )
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "db") == 3)
        stage.cluster.set_image(Kind.STATEFUL_SET, NAMESPACE, "db", "db:2")
        await stage.rig.sleep(60.0)
        relabel(stage.rig, Kind.STATEFUL_SET, "db", {CUSTOM: "2"})
        await stage.rig.sleep(120.0)
        assert stage.moves() == []
        assert "rollout" in stage.verdict("db", "StatefulSet").detail
        stage.cluster.store.delete(Kind.POD, NAMESPACE, "db-1")
        await stage.rig.until(lambda: given(stage.rig, "db") == ["on-demand", "on-demand", "spot"])

    Stage().play(scenario)


def test_available_is_ready_for_min_ready_seconds():
    """B8: health is what Kubernetes calls available: the next one goes only when the last has been Ready for long
    enough, and the words name it meanwhile."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 2, "all-in-spot", minReadySeconds=40)
        await stage.rig.sleep(60.0)
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {MODE: "all-in-on-demand"})
        await stage.rig.until(lambda: len(stage.moves()) == 1)
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "web") == 2)
        began = stage.rig.clock.monotonic()
        await stage.rig.until(lambda: len(stage.moves()) == 2)
        assert stage.rig.clock.monotonic() - began >= 38.0

    Stage().play(scenario)


def test_replica_sets_of_old_revisions_are_history():
    """B21, A10: after a rollout the old ReplicaSet stays behind with nothing in it; a new mode is heeded all the same."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 3, "custom", 1)
        for image in ("web:2", "web:3"):
            stage.cluster.set_image(Kind.DEPLOYMENT, NAMESPACE, "web", image)
            await stage.rig.until(lambda: stage.cluster.stable() and stage.cluster.ready(NAMESPACE, "web") == 3)
        assert len(stage.cluster.store.list(Kind.REPLICA_SET, NAMESPACE)) == 3
        await stage.rig.sleep(20.0)
        assert given(stage.rig, "web") == ["on-demand", "spot", "spot"]
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {CUSTOM: "2"})
        await stage.rig.until(lambda: given(stage.rig, "web").count("on-demand") == 2)
        assert len(stage.moves()) == 1

    Stage().play(scenario)


def test_the_quicker_way_gives_back_what_it_cannot_replace():
    """M6, M10: a quota leaves no room for a surge: the detached pods go back to their ReplicaSet, nobody restarts, the
    workload is paused, longer each time, and nothing of ours stays on the pods."""

    async def scenario(stage: Stage) -> None:
        stage.cluster.quota(NAMESPACE, "tight", pods=3)
        await stage.deployed("web", 3, "all-in-spot", annotations={REBALANCE: "fast"})
        before = uids(stage.rig, "web")
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {MODE: "all-in-on-demand"})
        fewest, detached = 3, 0
        for _ in range(400):
            await stage.rig.sleep(1.0)
            running = [p for p in stage.cluster.store.list(Kind.POD, NAMESPACE) if podstate.ready(p)]
            fewest = min(fewest, len(running))
            detached = max(detached, sum(not p["metadata"].get("ownerReferences") for p in running))
        assert detached >= 1, "it was tried"
        assert fewest == 3
        await stage.rig.until(lambda: left_behind(stage.rig) == [] and uids(stage.rig, "web") == before)
        assert stage.moves() == []
        assert stage.verdict("web").reason is Reason.BACK_OFF

    pace = RebalancePolicy(ready_within_s=30)
    Stage(MixPolicy(rebalance=pace)).play(scenario)


def test_recreate_is_never_run_side_by_side():
    """M6, M9: whoever chose Recreate wants no two of it at once: neither the quicker way nor a notice detaches it."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("one", 2, "all-in-spot", strategy={"type": "Recreate"}, annotations={REBALANCE: "fast"})
        relabel(stage.rig, Kind.DEPLOYMENT, "one", {MODE: "all-in-on-demand"})
        fewest = 2
        for _ in range(400):
            await stage.rig.sleep(0.5)
            assert _owned(stage) == 2 or stage.cluster.ready(NAMESPACE, "one") < 2
            fewest = min(fewest, stage.cluster.ready(NAMESPACE, "one"))
        assert physical(stage.rig, "one") == ["on-demand"] * 2
        assert fewest == 1, "one by one, as if the quicker way had not been asked for"
        relabel(stage.rig, Kind.DEPLOYMENT, "one", {MODE: "all-in-spot"})
        await stage.rig.until(lambda: physical(stage.rig, "one") == ["spot"] * 2)
        await stage.until_quiet()
        stage.cluster.cloud.notice_all_spot()
        for _ in range(200):
            await stage.rig.sleep(0.5)
            assert _owned(stage) <= 2
        assert physical(stage.rig, "one") == ["on-demand"] * 2

    Stage().play(scenario)


def _owned(stage: Stage) -> int:
    """Active pods; none of them without an owner."""
    pods = [p for p in stage.cluster.store.list(Kind.POD, NAMESPACE) if podstate.active(p)]
    assert all(p["metadata"].get("ownerReferences") for p in pods), "detached"
    return len(pods)


def test_scaled_to_nothing_and_back_starts_at_slot_zero():
    """§1.8: to 0 and back: the first pods after it are placed like the very first; one replica, then a hundred."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 5, "majority-in-on-demand")
        for replicas in (0, 1, 0, 30):
            stage.cluster.scale(Kind.DEPLOYMENT, NAMESPACE, "web", replicas)
            await stage.rig.until(
                lambda n=replicas: len(_slots(stage, "web")) == n and stage.cluster.ready(NAMESPACE, "web") == n
            )
            assert sorted(_slots(stage, "web").values(), key=int) == [str(i) for i in range(replicas)]
            assert given(stage.rig, "web").count("on-demand") == (replicas // 2 + 1 if replicas else 0)
        assert stage.moves() == []

    Stage(on_demand=6, spot=6).play(scenario)


def test_the_quicker_way_goes_as_far_as_the_workload_itself_allows():
    """M6, issue 20: 50 replicas with maxSurge 100 % went ten at a time, for the cluster-wide limit of housekeeping."""

    async def scenario(stage: Stage) -> None:
        strategy = {"rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}}
        annotations = {REBALANCE: "fast"}
        template = slow_template("web", 20.0)
        await stage.deployed("web", 50, "all-in-spot", template=template, annotations=annotations, strategy=strategy)
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {MODE: "all-in-on-demand"})
        most, fewest = 0, 50

        def moved() -> bool:
            nonlocal most, fewest
            pods = stage.cluster.store.list(Kind.POD, NAMESPACE)
            most = max(most, sum(not p["metadata"].get("ownerReferences") for p in pods))
            fewest = min(fewest, serving(stage.rig, "web"))
            return physical(stage.rig, "web") == ["on-demand"] * 50 and stage.cluster.ready(NAMESPACE, "web") == 50

        await stage.rig.until(moved, 120.0)
        assert most >= 40
        assert fewest >= 50

    Stage(on_demand=12, spot=12).play(scenario)


def test_after_an_admission_gap_the_split_is_back_as_quickly_as_the_workload_allows():
    """M4, issue 20: the leader is killed and 120 pods are created before an API server reaches the next one, all on spot:
    13 minutes when they went one by one. Exactly the difference goes, no more away than maxUnavailable (25 %) allows."""

    async def scenario(stage: Stage) -> None:
        rig = stage.rig
        for node in range(8):
            soft = {"spec": {"taints": [{"key": "x", "effect": "PreferNoSchedule"}]}}
            stage.cluster.store.patch(Kind.NODE, "", f"n{node}", soft)
        first = rig.leader()
        rig.start("second")
        await rig.sleep(5.0)
        rig.kill(first.identity)
        rig.webhook_away = True
        labels, template = switched_on("majority-in-on-demand"), slow_template("web", 3.0)
        stage.cluster.deployment(NAMESPACE, "web", 120, labels=labels, template=template)
        await rig.until(lambda: stage.cluster.ready(NAMESPACE, "web") == 120)
        await rig.until(rig.leads)
        rig.webhook_away = False
        most = 0

        def exact() -> bool:
            nonlocal most
            ready = stage.cluster.ready(NAMESPACE, "web")
            most = max(most, 120 - ready)
            return ready == 120 and physical(rig, "web").count("on-demand") == 61

        await rig.until(exact, 60.0)
        assert len(stage.moves()) == 61
        assert most <= 30

    Stage(on_demand=8, spot=8).play(scenario)
