"""Notices that are short, late, wrong, corrected or never come, on the sandbox."""

from datetime import UTC, datetime

import msgspec
import pytest

from mooring.capabilities.drain.signals import INTERRUPT_AT, Detector, Sign
from mooring.capabilities.mix.labels import ENABLED
from mooring.capabilities.mix.policy import InterruptionPolicy, MixPolicy, ShortNotice
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import CORDONED_BY, HANDOFF, LEAVING
from mooring.core.model.reasons import Reason, State
from mooring_lab.cluster.controllers import podstate
from mooring_lab.stage.scenarios.mix import NAMESPACE, left_behind, physical, serving, slow_template, switched_on
from tests.capabilities.mix.rebalance.mix_stage import Stage


def _at(stage: Stage, seconds: float) -> str:
    """A moment so many seconds from now, as an agent would write it."""
    return datetime.fromtimestamp(stage.rig.clock.now() + seconds, UTC).isoformat()


async def _fewest(stage: Stage, name: str, seconds: float) -> int:
    """The fewest ready endpoints that a Service had at any moment."""
    fewest = 99
    for _ in range(int(seconds * 4)):
        await stage.rig.sleep(0.25)
        fewest = min(fewest, len(stage.cluster.ready_nodes(NAMESPACE, name)))
    return fewest


@pytest.mark.parametrize(("after_s", "start_s", "grace_s"), [(30.0, 12, 5), (20.0, 5, 2), (60.0, 20, 30)])
def test_a_short_notice_is_used_to_its_last_call(after_s: float, start_s: float, grace_s: int):
    """M8, B10: 30 s or less; a pod that serves goes on until deadline − grace − margin, so a quick replacement is
    Ready before it goes and the Service is never empty."""

    async def scenario(stage: Stage) -> None:
        stage.cluster.service(NAMESPACE, "one", {"app": "one"})
        template = slow_template("one", start_s, grace_s=grace_s)
        await stage.deployed("one", 1, "all-in-spot", template=template)
        (node,) = stage.cluster.nodes_of(NAMESPACE, "one").values()
        stage.cluster.cloud.notice(node, after_s=after_s)
        assert await _fewest(stage, "one", after_s + 10) == 1
        assert not [what for what in left_behind(stage.rig) if "pod" in what]

    Stage(on_demand=2, spot=2).play(scenario)


def test_a_grace_that_is_longer_than_the_notice_begins_at_once():
    """M8: 300 s of grace in 120 s of notice, `short-notice: grace`: it goes now, with all the time there is."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("slow", 1, "all-in-spot", template=slow_template("slow", 5, grace_s=300))
        (pod,) = stage.cluster.pods(NAMESPACE, "slow")
        stage.cluster.cloud.notice_all_spot()
        await stage.rig.until(lambda: bool(stage.moves()), 10.0)
        leaving = stage.cluster.store.find(Kind.POD, NAMESPACE, pod["metadata"]["name"])
        assert leaving is not None and 100 <= leaving["metadata"]["deletionGracePeriodSeconds"] <= 120

    policy = MixPolicy(interruption=InterruptionPolicy(short_notice=ShortNotice.GRACE))
    Stage(policy, on_demand=2, spot=2).play(scenario)


@pytest.mark.parametrize(("after_s", "start_s", "grace_s"), [(30.0, 8, 30), (120.0, 20, 110), (120.0, 5, 300)])
def test_a_notice_shorter_than_the_grace_period_is_served_out(after_s: float, start_s: float, grace_s: int):
    """M8: 30 s of notice and 30 s of grace: pods serve until their replacements are Ready, none goes before."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 12, "all-in-spot", template=slow_template("web", start_s, grace_s=grace_s))
        stage.cluster.cloud.notice_all_spot(after_s=after_s)
        fewest = 12
        for _ in range(int(after_s + 10) * 4):
            await stage.rig.sleep(0.25)
            fewest = min(fewest, serving(stage.rig, "web"))
        assert fewest == 12

    Stage(on_demand=4, spot=2).play(scenario)


def test_a_moment_that_has_passed_still_leaves_a_pod_its_grace():
    """M8: an annotation with a moment long gone on a node that lives: it is emptied at once, and nobody is killed in
    one second for a node that may stay."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 1, "all-in-spot", template=slow_template("web", 5, grace_s=30))
        (pod,) = stage.cluster.pods(NAMESPACE, "web")
        stage.cluster.annotate(Kind.NODE, "", podstate.node_of(pod), {INTERRUPT_AT: _at(stage, -600.0)})
        await stage.rig.until(lambda: bool(stage.moves()), 10.0)
        leaving = stage.cluster.store.find(Kind.POD, NAMESPACE, pod["metadata"]["name"])
        assert leaving is not None and leaving["metadata"]["deletionGracePeriodSeconds"] == 30

    Stage(on_demand=2, spot=2).play(scenario)


@pytest.mark.parametrize("text", ["", "soon", "2026-11-16T05:00:00", "05:00", "1794772680"])
def test_a_moment_that_cannot_be_read_is_told_and_empties_nobody(text: str):
    """M8: whoever wrote it finds a Warning on the node and a verdict that says how to write it; the node stays open."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 2, "all-in-spot")
        writes = len(stage.rig.writes)
        stage.cluster.annotate(Kind.NODE, "", "s0", {INTERRUPT_AT: text})
        await stage.rig.sleep(10.0)
        leader = stage.rig.leader()
        assert leader is not None
        verdict = leader.engine.verdicts["mix", "node/s0"]
        assert (verdict.state, verdict.reason) == (State.BLOCKED, Reason.MISCONFIGURED)
        assert "2026-01-31T08:15:00Z" in verdict.detail
        told = [e for e in stage.cluster.store.list(Kind.EVENT) if e["involvedObject"]["name"] == "s0"]
        assert [e for e in told if e["type"] == "Warning" and "is not a time" in e["message"]]
        assert not [w for w in stage.rig.writes[writes:] if "Pod" in w or "Node" in w]
        stage.cluster.annotate(Kind.NODE, "", "s0", {INTERRUPT_AT: None})
        await stage.rig.sleep(5.0)
        assert ("mix", "node/s0") not in leader.engine.verdicts

    Stage(on_demand=2, spot=1).play(scenario)


def test_a_notice_that_is_brought_forward_brings_the_last_call_forward():
    """M8: ten minutes become sixty seconds while a replacement hangs: the pod still ends in order before the node."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 1, "all-in-spot", template=slow_template("web", 5, grace_s=20))
        stage.cluster.cordon("n0")
        (pod,) = stage.cluster.pods(NAMESPACE, "web")
        name, node = pod["metadata"]["name"], podstate.node_of(pod)
        stage.cluster.annotate(Kind.NODE, "", node, {INTERRUPT_AT: _at(stage, 600.0)})
        await stage.rig.sleep(60.0)
        assert stage.moves() == []
        began = stage.rig.clock.monotonic()
        stage.cluster.annotate(Kind.NODE, "", node, {INTERRUPT_AT: _at(stage, 60.0)})
        await stage.rig.until(lambda: stage.moves() == [name])
        assert 33.0 <= stage.rig.clock.monotonic() - began <= 38.0

    Stage(on_demand=1, spot=1).play(scenario)


def test_a_notice_that_is_put_off_lets_the_pod_serve_on():
    """M8: sixty seconds become ten minutes: the pod that waits for its replacement is not sent away at the old moment."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 1, "all-in-spot", template=slow_template("web", 5, grace_s=20))
        stage.cluster.cordon("n0")
        node = podstate.node_of(stage.cluster.pods(NAMESPACE, "web")[0])
        stage.cluster.annotate(Kind.NODE, "", node, {INTERRUPT_AT: _at(stage, 60.0)})
        await stage.rig.sleep(20.0)
        stage.cluster.annotate(Kind.NODE, "", node, {INTERRUPT_AT: _at(stage, 600.0)})
        await stage.rig.sleep(120.0)
        assert stage.moves() == []
        assert serving(stage.rig, "web") == 1

    Stage(on_demand=1, spot=1).play(scenario)


def test_a_budget_that_allows_none_holds_a_interrupted_stateful_pod_until_its_last_call():
    """M8, B2: a PDB is respected while there is time; after that the pod goes with its grace instead of with the node."""

    async def scenario(stage: Stage) -> None:
        stage.cluster.stateful_set(
            NAMESPACE, "db", 2, labels=switched_on("all-in-spot"), template=slow_template("db", 5, grace_s=20)
        )
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "db") == 2)
        stage.cluster.pdb(NAMESPACE, "db", {"app": "db"}, min_available=2)
        await stage.rig.sleep(20.0)
        began = stage.rig.clock.monotonic()
        stage.cluster.cloud.notice_all_spot()
        await stage.rig.sleep(60.0)
        assert stage.moves() == []
        leader = stage.rig.leader()
        assert leader is not None
        assert "pdb/db" in " ".join(str(one.waiting_on) for one in leader.engine.running.values())
        await stage.rig.until(lambda: len(stage.moves()) == 2)
        assert 94.0 <= stage.rig.clock.monotonic() - began <= 98.0
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "db") == 2)

    Stage(on_demand=3, spot=2).play(scenario)


def test_every_spot_node_falls_silent_at_once():
    """M8: no notice at all; every workload keeps its on-demand floor throughout, and all of it is back within two
    minutes; a StatefulSet's pods on silent nodes are left for Kubernetes to declare dead."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 5, "custom", 2)
        await stage.deployed("api", 4, "majority-in-on-demand")
        stage.cluster.stateful_set(NAMESPACE, "db", 3, labels=switched_on())
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "db") == 3)
        await stage.rig.sleep(15.0)
        for node in ("s0", "s1", "s2"):
            stage.cluster.kubelets.silence(node)
        floors = {"web": 2, "api": 3, "db": 2}
        for _ in range(480):
            await stage.rig.sleep(0.25)
            for name, floor in floors.items():
                safe = [p for p in stage.cluster.pods(NAMESPACE, name) if podstate.ready(p) and podstate.active(p)]
                assert sum(podstate.node_of(p).startswith("n") for p in safe) >= floor, name
        assert stage.cluster.ready(NAMESPACE, "web") == 5 and physical(stage.rig, "web") == ["on-demand"] * 5
        assert stage.cluster.ready(NAMESPACE, "api") == 4
        assert not [name for name in stage.moves() if name.startswith("db-")]

    Stage(on_demand=4, spot=3).play(scenario)


def test_who_has_nothing_left_elsewhere_goes_first():
    """§1.9-2: a sibling on another interrupted node is no comfort: the pod with no safe replica is detached first."""

    async def scenario(stage: Stage) -> None:
        # zzz has replicas on both interrupted nodes and none elsewhere; bbb has one on a node that stays.
        await stage.deployed("bbb", 2, "custom", 1)
        await stage.deployed("zzz", 2, "all-in-spot", template=slow_template("zzz", 5))
        await stage.deployed("ccc", 2, "custom", 1)
        writes = len(stage.rig.writes)
        stage.cluster.cloud.notice_all_spot()
        await stage.rig.until(lambda: len([w for w in stage.rig.writes[writes:] if w.startswith("patch Pod")]) >= 4)
        order = [w.rpartition("/")[2] for w in stage.rig.writes[writes:] if w.startswith("patch Pod")]
        nodes = {n: [o for o in order if o in _on(stage, n)] for n in ("s0", "s1")}
        assert [names for names in nodes.values() if names]
        for names in nodes.values():
            if any(name.startswith("zzz") for name in names):
                assert names[0].startswith("zzz"), nodes

    Stage(on_demand=3, spot=2).play(scenario)


def _on(stage: Stage, node: str) -> list[str]:
    return [p["metadata"]["name"] for p in stage.cluster.store.list(Kind.POD, NAMESPACE) if podstate.node_of(p) == node]


def test_a_detector_of_ones_own_is_heeded():
    """M8: detectors are configurable: a label, and a cordon on a spot node, may be a notice; the default ones are then
    no longer listened to."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 2, "all-in-spot")
        stage.cluster.store.patch(Kind.NODE, "", "s0", {"metadata": {"labels": {"example.com/drain": "soon"}}})
        stage.cluster.cordon("s1")
        stage.cluster.annotate(Kind.NODE, "", "s2", {INTERRUPT_AT: _at(stage, 120.0)})
        await stage.rig.sleep(60.0)
        assert not set(stage.cluster.nodes_of(NAMESPACE, "web").values()) & {"s0", "s1"}
        assert _marked(stage) == {"s0", "s1"}
        stage.cluster.cordon("s1", on=False)
        await stage.rig.until(lambda: _marked(stage) == {"s0"})

    detectors = (Detector(sign=Sign.LABEL, key="example.com/drain"), Detector(sign=Sign.CORDON))
    Stage(MixPolicy(interruption=InterruptionPolicy(detectors=detectors)), on_demand=1, spot=3).play(scenario)


def _marked(stage: Stage) -> set[str]:
    nodes = stage.cluster.store.list(Kind.NODE)
    return {n["metadata"]["name"] for n in nodes if CORDONED_BY in podstate.annotations_of(n)}


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"sign": Sign.TAINT}, "has no key"),
        ({"sign": Sign.ANNOTATION, "key": "example.com/at"}, "vacant.io/"),
        ({"sign": Sign.DELETION, "notice-s": -1.0}, "notice-s"),
        ({"sign": Sign.DELETION, "notice-s": float("nan")}, "notice-s"),
    ],
)
def test_a_detector_that_could_never_speak_is_refused(how, says):
    """M8: an annotation that is not read, or no key at all: said when the file is read, not when the node is gone."""
    with pytest.raises(msgspec.ValidationError, match=says):
        msgspec.convert(how, Detector)


@pytest.mark.parametrize("text", [None, '{"operator": 7, "sour'], ids=["deleted", "mangled"])
def test_a_person_who_takes_the_mark_off_a_detached_pod_has_it_to_themselves(text: str | None):
    """M8, O5: whose it was cannot be told any more: its move ends, it is left alone, and nobody falls over."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 2, "all-in-spot", template=slow_template("web", 60, grace_s=5))
        node = podstate.node_of(stage.cluster.pods(NAMESPACE, "web")[0])
        detached = lambda: [
            p for p in stage.cluster.store.list(Kind.POD, NAMESPACE) if "ownerReferences" not in p["metadata"]
        ]
        stage.cluster.cloud.notice(node, after_s=300.0)
        await stage.rig.until(lambda: bool(detached()), 30.0)
        theirs = [p["metadata"]["name"] for p in detached()]
        for name in theirs:
            stage.cluster.annotate(Kind.POD, NAMESPACE, name, {LEAVING: text})
        await stage.until_quiet(240.0)
        assert not set(theirs) & set(stage.moves())
        assert stage.rig.leads()

    Stage(on_demand=2, spot=2).play(scenario)


def test_marks_go_when_a_node_of_the_same_name_comes_back_without_notice():
    """M8, E3: the node is taken and returned before anybody has removed its TiKV pods: nobody asks them away any more."""

    async def scenario(stage: Stage) -> None:
        stage.cluster.tidb_cluster("tidb", "demo", tidb=0, tikv=3, pd=0, with_pd=True)
        await stage.rig.sleep(1.0)
        await stage.rig.until(lambda: stage.cluster.ready("tidb", "demo-tikv") == 3)
        pd = stage.cluster.pd["tidb", "demo"]
        pd.load(30)
        await stage.rig.sleep(5.0)
        nodes = sorted(set(stage.cluster.nodes_of("tidb", "demo-tikv").values()))
        for node in nodes:
            stage.cluster.cloud.notice(node, after_s=10.0)
        await stage.rig.until(lambda: len(_asked_away(stage)) == 3, limit_s=9.0, every_s=0.05)
        for node in nodes:
            stage.cluster.cloud.take(node)
        await stage.rig.sleep(1.0)
        for node in nodes:
            stage.cluster.cloud.give_back(node)
        await stage.rig.until(lambda: not _asked_away(stage), limit_s=900.0)
        await stage.until_quiet(900.0)
        assert not [w for w in stage.rig.writes if w.startswith("delete Pod tidb/")], "nothing was wrong with it"
        assert not pd.server.evict_list()
        demo = stage.cluster.store.get(Kind.TIDB_CLUSTER, "tidb", "demo")
        assert HANDOFF not in podstate.annotations_of(demo)

    Stage(on_demand=0, spot=3).play(scenario)


def _asked_away(stage: Stage) -> list[str]:
    pods = stage.cluster.store.list(Kind.POD, "tidb")
    return [p["metadata"]["name"] for p in pods if LEAVING in podstate.annotations_of(p)]


def test_a_node_that_flaps_under_a_notice_loses_nobody():
    """M8: its kubelet misses the API server for a moment, so none of its pods counts as Ready: they still run, and each
    goes on serving until its replacement is Ready."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 12, "all-in-spot", template=slow_template("web", 100, grace_s=1))
        (node,) = set(stage.cluster.nodes_of(NAMESPACE, "web").values())
        stage.cluster.kubelets.silence(node)
        await stage.rig.sleep(20.0)
        stage.cluster.cloud.notice(node, after_s=120.0)
        await stage.rig.until(lambda: serving(stage.rig, "web") == 0, 60.0)
        stage.cluster.kubelets.resume(node)
        await stage.rig.sleep(3.0)
        assert serving(stage.rig, "web") == 12

    Stage(on_demand=2, spot=1).play(scenario)


def test_a_replica_whose_node_is_silent_is_not_taken_for_missing():
    """M8, worked example 2: its node fell silent while another replica of its StatefulSet was away: it stays, since it
    may still serve, and will be back before it could be replaced."""

    async def scenario(stage: Stage) -> None:
        template = slow_template("db", 100, grace_s=1)
        how = {"labels": switched_on("all-in-on-demand"), "template": template, "parallel": True}
        stage.cluster.stateful_set(NAMESPACE, "db", 3, **how)
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "db") == 3)
        await stage.rig.sleep(15.0)
        nodes = stage.cluster.nodes_of(NAMESPACE, "db")
        for node in nodes.values():
            taints = [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]
            stage.cluster.store.patch(Kind.NODE, "", node, {"spec": {"taints": taints}})
        await stage.rig.until(lambda: len(stage.moves()) == 1, 60.0)
        (first,) = stage.moves()
        for name in nodes.keys() - {first}:
            stage.cluster.kubelets.silence(nodes[name])
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "db") == 0, 60.0)
        await stage.rig.sleep(10.0)
        assert stage.moves() == [first]

    Stage(on_demand=6, spot=0).play(scenario)


@pytest.mark.parametrize("corrected_s", [60.0, 300.0])
def test_a_corrected_notice_moves_what_waits_in_the_queue(corrected_s: float):
    """M8: the moves that wait for their workload's room take the deadline that the node has now, earlier or later."""

    async def scenario(stage: Stage) -> None:
        how = {"labels": switched_on("all-in-spot"), "template": slow_template("db", 30, grace_s=1), "parallel": True}
        stage.cluster.stateful_set(NAMESPACE, "db", 3, **how)
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "db") == 3)
        await stage.rig.sleep(15.0)
        nodes = set(stage.cluster.nodes_of(NAMESPACE, "db").values())
        first = _at(stage, 120.0)
        for node in nodes:
            stage.cluster.annotate(Kind.NODE, "", node, {INTERRUPT_AT: first})
        engine = stage.rig.leader().engine
        await stage.rig.until(lambda: bool(engine.waiting), 20.0)
        until = _at(stage, corrected_s)
        for node in nodes:
            stage.cluster.annotate(Kind.NODE, "", node, {INTERRUPT_AT: until})
        await stage.rig.sleep(3.0)
        moment = datetime.fromisoformat(until).timestamp()
        assert engine.waiting and all(abs(o.deadline - moment) < 1 for o in engine.waiting.values())

    Stage(on_demand=3, spot=3).play(scenario)


@pytest.mark.parametrize("why", ["mode", "off"])
def test_housekeeping_moves_a_single_replica_replacement_first(why: str):
    """M10: mode changed, or switched off, with a PodDisruptionBudget of 1: it moves, and serves at every moment."""

    async def scenario(stage: Stage) -> None:
        stage.cluster.service(NAMESPACE, "one", {"app": "one"})
        stage.cluster.pdb(NAMESPACE, "one", {"app": "one"}, minAvailable=1)
        await stage.deployed("one", 1, "all-in-spot", template=slow_template("one", 20, grace_s=5))
        (before,) = stage.cluster.pods(NAMESPACE, "one")
        labels = switched_on("all-in-on-demand") if why == "mode" else {ENABLED: None}
        stage.cluster.store.patch(Kind.DEPLOYMENT, NAMESPACE, "one", {"metadata": {"labels": labels}})
        assert await _fewest(stage, "one", 120.0) == 1
        (after,) = stage.cluster.pods(NAMESPACE, "one")
        assert after["metadata"]["uid"] != before["metadata"]["uid"]

    Stage(on_demand=2, spot=2).play(scenario)
