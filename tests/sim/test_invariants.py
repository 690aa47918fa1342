"""Each promise of the simulation can be seen broken: a policy that does the wrong thing is found, a right one is not."""

from typing import Any

import msgspec

from mooring.capabilities.drain import gate
from mooring.capabilities.fleet.live.ledger import Decisions, StoredCluster
from mooring.capabilities.fleet.planner.current import Member
from mooring.capabilities.handoff import requests as requests_of_handoff
from mooring.capabilities.home import verbs
from mooring.capabilities.home.verbs import HomeChoice
from mooring.capabilities.mix import capability
from mooring.capabilities.mix.interruption import notices
from mooring.capabilities.mix.rebalance import diagnosis
from mooring.capabilities.mix.rebalance.diagnosis import NOTHING_WRONG
from mooring.capabilities.mix.targets import Mode, Target
from mooring.clients.leaders.etcd import Etcd
from mooring.core.model.kinds import Kind
from mooring.core.model.leaders import LeaderView
from mooring.core.model.marks import CORDONED_BY, Mark, write_mark
from mooring.core.model.reasons import Reason
from mooring_lab.cluster.pd import requests
from mooring_lab.events.catalogue import CATALOGUE
from mooring_lab.events.context import TIDB, Draw, EventContext
from mooring_lab.simulate.build import build, replaced_again
from mooring_lab.simulate.plan import Action, App, Plan, Tidb, draw_plan
from mooring_lab.simulate.simulation import Result, Simulation, simulate
from mooring_lab.stage.rig import Rig


def plan_of(
    features: tuple[str, ...], *actions: Action, apps: tuple[App, ...] = (), tidbs: tuple[Tidb, ...] = ()
) -> Plan:
    drawn = draw_plan(3, hours=0.1, features=features)
    shape = msgspec.structs.replace(drawn.shape, apps=apps, tidbs=tidbs, replicas=1, spots=6)
    return msgspec.structs.replace(drawn, shape=shape, actions=actions)


def broken(result: Result) -> str:
    return result.failure.promise if result.failure is not None else ""


ROLLED = plan_of(
    ("home",), Action(60.0, "tidb-rollout", 0.0, 0.5), tidbs=(Tidb(name="demo", tikv=1, tidb=3, regions=20),)
)
SPOT_SET = plan_of(
    ("mix",),
    Action(60.0, "notice-to-all", 0.0, 0.0),
    apps=(App(name="db", kind="StatefulSet", replicas=5, mode="all-in-spot", start_s=20.0),),
)
WEB = plan_of(
    ("mix",),
    Action(60.0, "mode-change", 0.0, 0.0),  # to all-in-on-demand
    apps=(App(name="web", kind="Deployment", replicas=4, mode="custom", custom="2"),),
)


def test_a_member_that_is_sent_elsewhere_is_found(monkeypatch):
    """H1: its last node was offered, and it was bound to another."""
    assert broken(simulate(ROLLED)) == ""
    assert simulate(ROLLED).coverage["member-came-home"] == 3

    def elsewhere(pod, names, world):
        other = next((name for name in names if name != pod.home), "")
        return HomeChoice(Reason.HOME, other, sentence="wrong")

    monkeypatch.setattr(verbs, "choose", elsewhere)
    assert broken(simulate(ROLLED)) == "H1 a member goes home"


def test_a_quorum_that_is_lost_under_a_notice_is_found(monkeypatch):
    """M8: all pods of a StatefulSet have notice, and too many are let go at once."""
    kept = simulate(SPOT_SET)
    assert broken(kept) == ""
    assert kept.coverage["quorum-kept-under-notice"]
    monkeypatch.setattr(capability, "quorum_room", lambda workload: workload.replicas)
    assert broken(simulate(SPOT_SET)) == "M8 quorum under a notice"


def test_pods_that_go_for_the_silence_of_a_whole_zone_are_found(monkeypatch):
    """M8: half of the spot nodes are in a zone that is cut off for five minutes, and nothing is deleted there."""
    web = App(name="web", kind="Deployment", replicas=6, mode="all-in-spot")
    plan = plan_of(("mix",), Action(60.0, "zone-silent", 0.0, 0.9), apps=(web,))
    plan = msgspec.structs.replace(plan, shape=msgspec.structs.replace(plan.shape, zones=2, racks=2))
    assert broken(simulate(plan)) == ""
    monkeypatch.setattr(notices.NodeReports, "silent", lambda self, zone, before: (0, 9))
    assert broken(simulate(plan)) == "M8 nothing goes for the silence of a whole zone"


def test_a_notice_lasts_beyond_its_machine_only_under_our_cordon_with_a_deadline():
    """M8: a taint does not say when the machine goes. Seen late, it counts from then on, and the last call comes when the
    machine has stopped; a machine that stopped without a word is no excuse."""
    sim = Simulation(SPOT_SET)
    cluster, noticed = sim.stage.cluster, sim.watch.noticed

    def cordoned(node: str, **mark: Any) -> None:
        text = write_mark(Mark(operator="", reason="notice", step="Cordon", since=0.0, node=node, **mark))
        cluster.annotate(Kind.NODE, "", node, {CORDONED_BY: text})

    async def scenario(_: Rig) -> None:
        cluster.add_nodes(4, "late-", capacity="spot")
        cordoned("late-0", source="spot", deadline=300.0)
        cordoned("late-1", source="spot")
        cordoned("late-2", source="fleet", deadline=300.0)
        assert not noticed("late-0"), "nobody has given notice, and the machine runs"
        for node in ("late-0", "late-1", "late-2", "late-3"):
            cluster.cloud.notice(node)
            assert noticed(node)
            cluster.cloud.take(node)
        assert [noticed(f"late-{n}") for n in range(4)] == [True, False, False, False]

    sim.stage.play(scenario)


def test_an_on_demand_replica_that_goes_at_the_floor_is_found(monkeypatch):
    """M5: housekeeping takes on-demand pods of a workload that asks for all of them."""
    quiet = msgspec.structs.replace(WEB, actions=())
    assert broken(simulate(quiet)) == ""
    plan, no_floor = diagnosis.plan, Target(Mode.ALL_IN_SPOT)

    def all_in_spot(health, target, world, *, to_spot):
        return plan(health, no_floor, world, to_spot=to_spot)

    monkeypatch.setattr(diagnosis, "plan", all_in_spot)
    assert broken(simulate(quiet)) == "M5 no on-demand replica goes at the floor"


def test_a_floor_that_nobody_minds_is_found(monkeypatch):
    """M4: below the floor for minutes, and Mooring says that nothing is wrong."""
    assert broken(simulate(WEB)) == ""
    monkeypatch.setattr(diagnosis.Diagnosis, "case", lambda self: NOTHING_WRONG)
    assert broken(simulate(WEB)) == "M4 nothing is below its on-demand floor unnoticed"


def test_an_eviction_that_begins_again_and_again_is_found():
    """Rule 12: begun and ended in a circle. A request that PD never got has begun nothing, and store 1 of another
    cluster is another store (seed 4738)."""
    sim = Simulation(plan_of(("handoff",), tidbs=tuple(Tidb(name=name, tikv=3) for name in ("demo", "other"))))

    async def scenario(rig: Rig) -> None:
        await build(rig, sim.plan.shape)
        sim.watch.begin()

        def circle(cluster: str, *, arrives: bool = True) -> None:
            server = rig.cluster.pd["tidb", cluster].server
            rig.on_write("pd add_evict_leader 1")
            if arrives:
                requests.add_evict_leader(server, 1)
                rig.on_write("pd remove_evict_leader 1")
                requests.remove_evict_leader(server, 1)

        for _ in range(6):
            circle("demo", arrives=False)
            circle("demo")
            circle("other")
        assert sim.failure is None
        circle("demo")
        assert sim.failure is not None
        assert sim.failure.promise == "evictions per store and minute"

    sim.stage.play(scenario)


def test_a_pod_that_the_gate_lets_go_too_soon_is_found(monkeypatch):
    """D1, D2: `kubectl drain` of every node, with a TiKV and a Deployment of mix with one replica; then a gate that says
    of everything that it is prepared."""
    drains = (Action(30.0 + number, "drain", number / 20, 0.0) for number in range(0, 20, 4))
    plan = plan_of(
        ("drain", "handoff", "mix"),
        *drains,
        tidbs=(Tidb(name="demo", tikv=3),),
        apps=(App(name="web", kind="Deployment", replicas=1, mode="all-in-on-demand", start_s=20.0),),
    )
    kept = simulate(plan)
    assert broken(kept) == ""
    assert kept.coverage["eviction-judged"] and kept.coverage["eviction-by-others-held"]
    monkeypatch.setattr(gate, "prepared", lambda *_: True)
    assert broken(simulate(plan))[:2] in {"D1", "D2"}


def test_an_eviction_that_is_held_for_ever_is_found(monkeypatch):
    """D3: a replacement that takes four minutes, and one minute of `max-hold-s`; then a gate that forgets since when."""
    drains = (Action(30.0 + number, "drain", number / 20, 0.0) for number in range(0, 20, 4))
    slow = App(name="web", kind="Deployment", replicas=4, mode="all-in-spot", start_s=250.0)
    plan = plan_of(("drain", "mix"), *drains, apps=(slow,))
    plan = msgspec.structs.replace(plan, shape=msgspec.structs.replace(plan.shape, max_hold_s=60.0))
    kept = simulate(plan)
    assert broken(kept) == ""
    assert kept.coverage["eviction-held-to-the-end"]
    monkeypatch.setattr(gate, "held_since", lambda *_: None)
    assert broken(simulate(plan))[:2] == "D3"


def test_a_pod_that_we_delete_on_the_word_of_a_review_is_found(monkeypatch):
    """D1: handoff takes the leaders off for an eviction, and stops there; then one that deletes the pod itself."""
    drains = (Action(30.0 + number, "drain", number / 20, 0.0) for number in range(20))
    plan = plan_of(("drain", "handoff"), *drains, tidbs=(Tidb(name="demo", tikv=3, storage="remote"),))
    monkeypatch.setattr(requests_of_handoff, "PREPARE", "no such value")
    assert broken(simulate(plan)) == "D1 nothing is deleted on the word of a review"


def test_karpenter_ends_nodes_and_no_leader_is_lost_while_there_is_time():
    """D1-D3: taint, evictions and the moment of the NodeClaim; what cannot be prepared passes before it."""
    ends = (Action(30.0 + number, "node-ended", number / 20, 0.9) for number in range(0, 20, 2))
    web = App(name="web", kind="Deployment", replicas=2, mode="all-in-on-demand", start_s=20.0)
    plan = plan_of(("drain", "handoff", "mix"), *ends, tidbs=(Tidb(name="demo", tikv=3),), apps=(web,))
    kept = simulate(msgspec.structs.replace(plan, hours=0.3))
    assert broken(kept) == ""
    assert kept.coverage["action node-ended"] and kept.coverage["eviction-by-others-held"]


def test_a_machine_that_never_boots_becomes_no_node_until_a_person_mends_it():
    """F9: the stand-in for CKE makes no Node of it, so what waits for it has to go on without."""
    drawn = plan_of(
        ("fleet",), Action(60.0, "machine-never-boots", 0.0, 0.0), Action(120.0, "machine-unhealthy", 0.0, 0.0)
    )
    shape = msgspec.structs.replace(drawn.shape, workers=drawn.shape.machines - drawn.shape.planes)
    result = simulate(msgspec.structs.replace(drawn, shape=shape))
    assert broken(result) == ""
    address = next(line.split()[-1] for line in result.timeline if "machine-never-boots" in line)
    quiet = next(i for i, line in enumerate(result.timeline) if "quiet:" in line)
    assert result.coverage["action machine-never-boots"] and result.coverage["action machine-unhealthy"]
    before = result.timeline[:quiet]
    assert any("patch ConfigMap mooring-system/mooring-fleet-cluster" in line for line in before), "it was chosen"
    assert not [line for line in before if f"adds node {address}" in line]


def test_a_control_plane_that_is_replaced_twice_in_an_hour_is_found():
    """F14: by the revisions alone; one that joins or leaves without another is not replaced."""
    stored = lambda revision, *planes: StoredCluster(Decisions("t", tuple(Member(a, True) for a in planes)), revision)
    one, other, grown = stored(1, "a", "b", "c"), stored(2, "a", "b", "d"), stored(3, "a", "b", "c", "d")
    replaced: dict[str, float] = {}
    assert replaced_again(one, other, replaced, 100.0) == [] and replaced == {"c": 100.0}
    assert replaced_again(other, grown, replaced, 200.0) == [] == replaced_again(grown, other, replaced, 300.0)
    assert replaced_again(other, one, replaced, 1000.0) == []
    assert replaced_again(one, other, dict(replaced), 2000.0) == ["c after 1900 s"]
    assert replaced_again(one, other, dict(replaced), 4000.0) == []


PAIR = (Tidb(name="demo", tikv=3, regions=20), Tidb(name="other", tikv=3, shares="demo"))


def test_a_scheduler_in_a_pd_that_two_clusters_share_is_judged_once(monkeypatch):
    """E5: what is left in PD is left by one of those that share it; what a person took the mark of is that person's."""

    def left(sim: EventContext, _: tuple[str, ...], draw: Draw) -> str:
        requests.add_evict_leader(sim.stage.cluster.pd[TIDB, "other"].server, 2)
        if draw.a:
            sim.edits.tampered.add("demo")
        return "2"

    monkeypatch.setitem(CATALOGUE, "leave-a-scheduler", left)
    told = simulate(plan_of(("home",), Action(30.0, "leave-a-scheduler", 0.0, 0.0), tidbs=PAIR)).failure
    assert told is not None and told.detail == "evict-leader schedulers of demo/other: (2,)"
    assert broken(simulate(plan_of(("home",), Action(30.0, "leave-a-scheduler", 0.5, 0.0), tidbs=PAIR))) == ""


def test_a_member_that_goes_while_it_leads_is_found(monkeypatch):
    """L1: a driver that says of nobody that it leads lets the leader go; the right one hands over first."""
    system = App(name="db", kind="StatefulSet", replicas=3, leaders="etcd")
    plan = plan_of(("handoff",), Action(60.0, "member-restarts", 0.0, 0.0), apps=(system,))
    result = simulate(plan)
    assert broken(result) == "" and result.coverage["led-member-deleted-by-us"] == 3
    assert result.coverage["leadership-moved-by-us"] >= 1
    right = Etcd._member
    monkeypatch.setattr(Etcd, "_member", lambda *args: msgspec.structs.replace(right(*args), leaders=0))
    monkeypatch.setattr(LeaderView, "leader", "db-0")
    read = Etcd.read

    async def calm(self):
        return msgspec.structs.replace(await read(self), busy="")

    monkeypatch.setattr(Etcd, "read", calm)
    assert broken(simulate(plan)) == "L1 no leader on a member that goes"
