"""The pure parts: slots, victims, room, notices, memory."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.capabilities.drain.room import NodeRoom
from mooring.capabilities.drain.signals import DETECTORS, Detector, NoticeKind, Sign
from mooring.capabilities.mix import memory
from mooring.capabilities.mix.capability import Mix
from mooring.capabilities.mix.interruption.notices import Notice, notice_of, signs_on
from mooring.capabilities.mix.labels import AFFINITY, DELETION_COST, ENABLED, SLOT
from mooring.capabilities.mix.memory import MAX_NOTES, Note
from mooring.capabilities.mix.policy import InterruptionPolicy, MixPolicy, OnNotice, RebalancePolicy
from mooring.capabilities.mix.rebalance.health import facts_of, health_of
from mooring.capabilities.mix.rebalance.misplaced import fix_slots, plan
from mooring.capabilities.mix.rebalance.room import Room
from mooring.capabilities.mix.targets import Mode, Share, Target
from mooring.core.model.capacity import CapacityRules, NodeClass
from mooring.core.model.cluster import (
    Claim,
    ConfigMap,
    Key,
    Node,
    Owner,
    Pod,
    PodShape,
    ReplicaSet,
    Requirement,
    SelectorTerm,
    Taint,
    Volume,
    Workload,
)
from mooring.core.model.events import Gone, Listed, Seen
from mooring.core.model.instructions import Create, Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import AGENT
from mooring.core.queue import Queue, live_settings
from mooring.core.world.world import World

NOW = 1_000_000.0
CAPACITY = "node.kubernetes.io/capacity"
TARGETS = st.one_of(
    st.sampled_from([Target(Mode.ALL_IN_SPOT), Target(Mode.ALL_IN_ON_DEMAND), Target(Mode.MAJORITY_IN_ON_DEMAND)]),
    st.builds(lambda n: Target(Mode.CUSTOM, Share(n)), st.integers(0, 9)),
    st.builds(lambda n: Target(Mode.CUSTOM, Share(n, percent=True)), st.integers(0, 100)),
)


def town(pods: list[Pod], nodes: list[Node] | None = None, replicas: int | None = None) -> tuple[World, Workload]:
    """One Deployment with one ReplicaSet, and two nodes of each class unless told otherwise."""
    workload = Workload("Deployment", "shop", "web", "d1", "1", {ENABLED: "true"}, replicas=replicas or len(pods))
    made = World()
    for index in Mix(ROOM).indexes():
        made.register(index)
    owner = Owner("Deployment", "web", "d1")
    rows = {
        Kind.NODE: nodes
        if nodes is not None
        else [node(f"{c}{i}", c) for c in ("on-demand", "spot") for i in range(2)],
        Kind.DEPLOYMENT: [workload],
        Kind.STATEFUL_SET: [],
        Kind.REPLICA_SET: [ReplicaSet("shop", "web-x", "r1", "1", owner, workload.replicas, "x")],
        Kind.POD: pods,
    }
    for kind, objects in rows.items():
        made.apply(Listed(kind, tuple(objects)))
    return made, workload


def node(name: str, capacity: str, **how) -> Node:
    how = {"ready": "True", "cpu_milli": 4000, "memory_bytes": 8 << 30} | how
    return Node(name, f"uid-{name}", "1", {CAPACITY: capacity}, **how)


def pod(index: int, capacity: str, slot: int | None = None, *, marked: bool = True, ready: bool = True, **shape) -> Pod:
    labels = {"app": "web", "pod-template-hash": "x"} | ({AFFINITY: capacity} if marked else {})
    return Pod(
        "shop",
        f"web-x-{index}",
        f"p{index}",
        "1",
        PodShape(labels, **shape),
        Owner("ReplicaSet", "web-x", "r1"),
        node=f"{capacity}0",
        phase="Running",
        ready=ready,
        ready_since=NOW - 100,
        created_at=NOW - 100,
        annotations={} if slot is None else {SLOT: str(slot), DELETION_COST: str(10_000 - slot)},
    )


def with_claim(one: Pod) -> Pod:
    return msgspec.structs.replace(one, claims=("data",))


@given(
    st.lists(
        st.tuples(st.sampled_from(["on-demand", "spot"]), st.one_of(st.none(), st.integers(0, 12)), st.booleans()),
        min_size=1,
        max_size=9,
    ),
    TARGETS,
)
@settings(max_examples=150, deadline=None)
def test_mending_gives_every_pod_a_slot_of_its_own_and_then_rests(drawn, target):
    """M5: whatever slots and marks pods had, one round of patches leaves unique slots 0…R−1; a second finds nothing to
    do; and where the count is right, every slot has the class of its sequence."""
    pods = [pod(i, c, slot, marked=marked) for i, (c, slot, marked) in enumerate(drawn)]
    world, workload = town(pods)
    patches = fix_slots(health_of(workload, world, NOW), target, world)
    mended = []
    for one in pods:
        patch = next((p.patch["metadata"] for p in patches if p.uid == one.uid), {})
        labels = {**one.labels, **patch.get("labels", {})}
        annotations = {**one.annotations, **patch.get("annotations", {})}
        capacity, slot = labels[AFFINITY], int(annotations[SLOT])
        assert annotations[DELETION_COST] == str(10_000 - slot)
        mended.append(pod(int(one.uid[1:]), capacity, slot))
    slots = sorted(int(p.annotations[SLOT]) for p in mended)
    assert slots == list(range(len(pods)))
    world, workload = town(mended)
    assert fix_slots(health_of(workload, world, NOW), target, world) == []
    if sum(c == "on-demand" for c, *_ in drawn) == target.on_demand(len(pods)):
        assert all(target.class_of(int(p.annotations[SLOT])).value == p.labels[AFFINITY] for p in mended)


def test_slots_of_many_adopted_pods_are_reckoned_in_one_pass():
    """M5: adopting 500 pods asks for the class of each slot a few times, not once per pod and slot."""

    asked: list[int] = []

    class Counting(Target, frozen=True):
        def class_of(self, slot: int) -> NodeClass:
            asked.append(slot)
            return super().class_of(slot)

    target = Counting(Mode.MAJORITY_IN_ON_DEMAND)
    pods = [pod(i, "on-demand" if i % 2 else "spot", None) for i in range(500)]
    world, workload = town(pods, replicas=500)
    patches = fix_slots(health_of(workload, world, NOW), target, world)
    assert sorted(int(p.patch["metadata"]["annotations"][SLOT]) for p in patches) == list(range(500))
    assert len(asked) <= 4 * 500


def test_a_deletion_cost_that_somebody_set_himself_stays():
    """M9: the user's own order of leaving is not ours to change."""
    mine = pod(0, "spot", 3)
    mine = Pod(
        **{f: getattr(mine, f) for f in mine.__struct_fields__} | {"annotations": {SLOT: "3", DELETION_COST: "7"}}
    )
    world, workload = town([mine])
    (patch,) = fix_slots(health_of(workload, world, NOW), Target(Mode.ALL_IN_SPOT), world)
    assert patch.patch["metadata"]["annotations"] == {SLOT: "0"}


@given(st.integers(1, 9), st.integers(0, 9), TARGETS)
@settings(max_examples=100, deadline=None)
def test_the_plan_moves_exactly_the_difference(replicas, have, target):
    """M5: |T(R) − a| pods, all of the class that there is too much of."""
    have = min(have, replicas)
    pods = [pod(i, "on-demand" if i < have else "spot", i) for i in range(replicas)]
    world, workload = town(pods)
    found = plan(health_of(workload, world, NOW), target, world, to_spot=True)
    wanted = target.on_demand(replicas)
    assert found.off_by == abs(wanted - have)
    assert len(found.candidates) >= found.off_by
    surplus = "spot" if have < wanted else "on-demand"
    assert {c.pod.labels[AFFINITY] for c in found.candidates} <= {surplus}


def test_who_goes_first():
    """M5: no node, then not Ready, then the most crowded node, then the highest slot."""
    pods = [pod(i, "spot", i) for i in range(4)]
    lonely = [Pod(**_fields(pods[3]) | {"node": "spot1"})]
    broken = [Pod(**_fields(pods[1]) | {"ready": False})]
    world, workload = town([pods[0], *broken, pods[2], *lonely])
    order = plan(health_of(workload, world, NOW), Target(Mode.ALL_IN_ON_DEMAND), world, to_spot=True).candidates
    assert [c.pod.name for c in order] == ["web-x-1", "web-x-2", "web-x-0", "web-x-3"]


def test_moving_back_to_spot_can_be_switched_off():
    """M10: it saves money and nothing else."""
    world, workload = town([pod(0, "on-demand", 0)])
    health = health_of(workload, world, NOW)
    assert plan(health, Target(Mode.ALL_IN_SPOT), world, to_spot=False).off_by == 0
    assert plan(health, Target(Mode.ALL_IN_SPOT), world, to_spot=True).off_by == 1


def test_facts_name_the_pods_that_are_missing_and_a_hanging_surge_pod_is_not_missed():
    """Facts: wanted − Ready and not leaving, no more."""
    broken = pod(1, "spot", 1, ready=False)
    world, workload = town([pod(0, "spot", 0), broken], replicas=3)
    facts = list(facts_of(health_of(workload, world, NOW), Queue(live_settings()), NOW))
    assert [(f.subject, f.amount) for f in facts] == [
        ("pod/shop/web-x-1", 1),
        ("missing/workload/shop/Deployment/web", 1),
    ]
    world, workload = town([pod(0, "spot", 0), broken], replicas=1)
    assert list(facts_of(health_of(workload, world, NOW), Queue(live_settings()), NOW)) == []


ROOM = MixPolicy()


@pytest.mark.parametrize(
    ("how", "fits"),
    [
        ({}, True),
        ({"unschedulable": True}, False),
        ({"ready": "False"}, False),
        ({"cpu_milli": 50}, False),
        ({"taints": (Taint("team", "NoSchedule", "a"),)}, False),
        ({"taints": (Taint("team", "PreferNoSchedule", "a"),)}, True),
    ],
)
def test_room_is_a_node_that_would_take_the_pod(how, fits):
    """M10: Ready, schedulable, tolerated, large enough."""
    mover = pod(0, "spot", 0, cpu_milli=100)
    world, _ = town([mover], [node("spot0", "spot"), node("on-demand0", "on-demand", **how)])
    assert Room(ROOM, world).fits(mover, NodeClass.ON_DEMAND) is fits


def test_room_leaves_out_interrupted_nodes_our_own_rule_and_those_already_on_their_way():
    """M10: an interrupted node is no room; our own affinity does not bind a successor; others in flight take room too."""
    ours = SelectorTerm((Requirement(CAPACITY, "In", ("on-demand",)),))
    mover = pod(0, "on-demand", 0, cpu_milli=1500, required_terms=(ours,))
    world, _ = town([mover])
    room = Room(ROOM, world)
    assert room.fits(mover, NodeClass.SPOT)
    assert room.fits(mover, NodeClass.SPOT, others=3)
    assert not room.fits(mover, NodeClass.SPOT, others=4)
    for name in ("spot0", "spot1"):
        told = {"annotations": {"vacant.io/interrupt-at": "2030-01-01T00:00:00Z"}, "resource_version": "2"}
        world.apply(Seen(Kind.NODE, msgspec.structs.replace(world.node(name), **told)))
    assert not room.fits(mover, NodeClass.SPOT)
    assert room.lack(mover, NodeClass.SPOT).words == "2 nodes: 2 interrupted"


def test_a_pod_tied_to_its_node_by_the_user_has_no_room_elsewhere():
    """M9: the user's own terms hold."""
    theirs = SelectorTerm((Requirement("disk", "In", ("ssd",)), Requirement(CAPACITY, "In", ("on-demand",))))
    mover = pod(0, "on-demand", 0, required_terms=(theirs,))
    world, _ = town([mover])
    assert not Room(ROOM, world).fits(mover, NodeClass.SPOT)


def test_a_node_with_a_replica_that_it_may_not_stand_beside_is_no_room():
    """M9, M10: required anti-affinity: evicted, the successor would find no node; so nobody is, and the words say why."""
    apart = {"anti_affinity_keys": ("kubernetes.io/hostname",)}
    mover, there = pod(0, "spot", 1, **apart), pod(1, "on-demand", 0, **apart)
    world, _ = town([mover, there], [node("spot0", "spot"), node("on-demand0", "on-demand")])
    room = Room(ROOM, world)
    assert not room.fits(mover, NodeClass.ON_DEMAND)
    lack = room.lack(mover, NodeClass.ON_DEMAND)
    assert lack.words == "1 node: 1 with a replica that it may not stand beside"
    more = [node("spot0", "spot"), node("on-demand0", "on-demand"), node("on-demand1", "on-demand")]
    world, _ = town([mover, there], more)
    assert Room(ROOM, world).fits(mover, NodeClass.ON_DEMAND)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("node"), st.integers(0, 4), st.sampled_from(["spot", "on-demand"]), st.integers(0, 5)),
            st.tuples(st.just("pod"), st.integers(0, 6), st.sampled_from(["spot", "on-demand"]), st.integers(0, 4)),
        ),
        max_size=25,
    )
)
@settings(max_examples=60, deadline=None)
def test_room_kept_per_change_is_room_counted_anew(changes):
    """Rule 11: whatever came, changed and went, the index is what a new one makes of the same rows."""
    world, _ = town([], [], replicas=1)
    for version, (what, number, capacity, how) in enumerate(changes, start=10):
        if what == "node":
            name, more = f"{capacity}{number}", ({}, {"unschedulable": True}, {"ready": "False"}, {"cpu_milli": 900})
            row = node(name, capacity, **(more[how] if how < 4 else {"taints": (Taint("team", "NoSchedule"),)}))
            event = Gone(Kind.NODE, row.key, row.uid) if how == 5 else Seen(Kind.NODE, _at(row, version))
        else:
            one = pod(number, capacity, number, cpu_milli=100 * how)
            event = Gone(Kind.POD, one.key, one.uid) if how == 4 else Seen(Kind.POD, _at(one, version))
        world.apply(event)
    kept, fresh = world.index(NodeRoom), NodeRoom()
    world.register(fresh)
    assert (kept.open, kept.closed) == (fresh.open, fresh.closed)


def _at(row, version: int):
    return msgspec.structs.replace(row, resource_version=str(version))


def test_a_volume_that_no_node_of_the_class_reaches_is_no_room():
    """B3: a zonal volume: on-demand nodes in another zone do not help, and the words say so."""
    world, _ = town([mover := with_claim(pod(0, "spot", 0))], [node("spot0", "spot"), node("on-demand0", "on-demand")])
    here = SelectorTerm((Requirement("zone", "In", ("a",)),))
    world.apply(Listed(Kind.PVC, (Claim("shop", "data", "c1", "1", volume="pv-1"),)))
    world.apply(Listed(Kind.PV, (Volume("pv-1", "v1", "1", required_terms=(here,)),)))
    room = Room(ROOM, world)
    assert not room.fits(mover, NodeClass.ON_DEMAND)
    assert room.lack(mover, NodeClass.ON_DEMAND).words == "1 node: 1 out of reach of its volumes"


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ([], "there is no on-demand node"),
        ([{"unschedulable": True}, {"ready": "False"}], "2 nodes: 1 cordoned, 1 not Ready"),
        ([{"taints": (Taint("team", "NoSchedule", "a"),)}], "1 node: 1 with a taint that it does not tolerate"),
        ([{"cpu_milli": 50}, {"deletion_at": NOW}], "2 nodes: 1 interrupted, 1 full"),
    ],
)
def test_why_there_is_no_room_is_counted(how, says):
    """M10: as kube-scheduler would say it, so that a person knows which node to look at."""
    mover = pod(0, "spot", 0, cpu_milli=100)
    nodes = [node(f"on-demand{i}", "on-demand", **one) for i, one in enumerate(how)]
    world, _ = town([mover], [node("spot0", "spot"), *nodes])
    assert Room(ROOM, world).lack(mover, NodeClass.ON_DEMAND).words == says


SEEN_BY_AGENT = {"kind": "interrupt", "what": "spot instance action", "at": "2026-01-01T00:02:00Z"}


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda d: f"{d.sign}-{d.key}")
def test_every_detector_speaks(detector):
    """M8: each sign of the table is seen, with its own time; a voluntary one has none."""
    policy = InterruptionPolicy()
    how = {
        Sign.ANNOTATION: {"annotations": {detector.key: "2026-01-01T00:02:00Z"}},
        Sign.AGENT: {"annotations": {AGENT: json.dumps({"notices": {"aws": SEEN_BY_AGENT}})}},
        Sign.TAINT: {"taints": (Taint(detector.key, "NoSchedule"),)},
        Sign.CONDITION: {"conditions": (detector.key,)},
        Sign.DELETION: {"deletion_at": NOW},
        Sign.SHUTDOWN: {"ready": "False", "ready_reason": "NodeShutdown"},
    }[detector.sign]
    world, _ = town([], [node("spot0", "spot", **how)], replicas=1)
    interrupted = world.node("spot0")
    assert interrupted is not None
    notice = notice_of(interrupted, policy, world, NOW)
    assert isinstance(notice, Notice)
    expected = 1_767_225_720.0 if detector.sign in {Sign.ANNOTATION, Sign.AGENT} else NOW + detector.notice_s
    if detector.kind is NoticeKind.VOLUNTARY:
        expected = None
    assert notice.deadline == expected


def test_a_cordon_is_no_notice_unless_asked_for_and_nonsense_is_none():
    """M8: people cordon too; a moment that cannot be read empties nobody's node."""
    cordoned = node("spot0", "spot", unschedulable=True)
    assert not signs_on(cordoned, InterruptionPolicy(), NodeClass.SPOT)
    asked = InterruptionPolicy(detectors=(Detector(sign=Sign.CORDON),))
    assert signs_on(cordoned, asked, NodeClass.SPOT)
    assert not signs_on(cordoned, asked, NodeClass.ON_DEMAND)
    odd = node("spot1", "spot", annotations={"vacant.io/interrupt-at": "soon"})
    assert not signs_on(odd, InterruptionPolicy(), NodeClass.SPOT)
    told = node("spot2", "spot", annotations={"vacant.io/interrupt-at": "2026-01-01T00:02:00Z"})
    assert not signs_on(told, InterruptionPolicy(action=OnNotice.OFF), NodeClass.SPOT)


def test_only_a_spot_node_that_is_silent_for_long_is_lost():
    """M8: unannounced loss."""
    for capacity, since, lost in (("spot", 31, True), ("spot", 29, False), ("on-demand", 300, False)):
        silent = node("x", capacity, ready="Unknown", ready_since=NOW - since)
        world, _ = town([], [silent], replicas=1)
        assert (notice_of(silent, InterruptionPolicy(), world, NOW) is not None) is lost


def test_memory_is_bounded_and_reads_back():
    """One-queue, "a crash": one small bounded ConfigMap; what is written is what is read; nonsense counts as nothing."""
    where = Key("mooring-system", "mooring-mix-memory")
    note = Note(
        until=NOW + 60, attempts=2, last_move=NOW, begun=True, reason="wrong-class", off_by=3, wanted="custom 3"
    )
    first = memory.write(None, where, "u1", note, NOW, "")
    assert isinstance(first, Create)
    endless = '{"x":' + "[" * 100_000
    full = {f"u{i}": f'{{"lastMove":{NOW - i}}}' for i in range(MAX_NOTES)}
    full |= {"old": '{"lastMove":1}', "bad": "?", "endless": endless}
    held = ConfigMap(where.namespace, where.name, "m1", "1", data=full)
    patch = memory.write(held, where, "new", note, NOW, "")
    assert isinstance(patch, Patch)
    gone = {key for key, value in patch.patch["data"].items() if value is None}
    assert {"old", "bad", "endless", f"u{MAX_NOTES - 1}"} <= gone
    assert len(full) - len(gone) + 1 <= MAX_NOTES
    after = ConfigMap(where.namespace, where.name, "m1", "2", data={"new": patch.patch["data"]["new"], "bad": "?"})
    assert memory.read(after, "new") == note
    assert memory.read(after, "bad") == memory.read(held, "endless") == memory.read(None, "u1") == Note()


def test_pauses_double_up_to_an_hour():
    """M10: 1, 2, 4 … 60 minutes (one-queue, no circles)."""
    pace = RebalancePolicy()
    assert [pace.pause(n) for n in (1, 2, 3, 6, 7, 20)] == [60, 120, 240, 1920, 3600, 3600]


def test_returns_to_spot_that_fail_become_rare():
    """M10: 20, 40 minutes … half a day after each that came back; nothing but money is at stake."""
    pace = RebalancePolicy()
    assert [pace.return_after(n) / 60 for n in (0, 1, 2, 6, 7, 99)] == [0, 20, 40, 640, 720, 720]
    assert RebalancePolicy(return_every_s=86400.0).return_after(3) == 86400.0


def test_spot_wins_where_labels_contradict():
    """B6: calling a spot node on-demand would break a floor without a sign."""
    labels = {CAPACITY: "on-demand", "karpenter.sh/capacity-type": "spot"}
    assert CapacityRules().class_of(labels) is NodeClass.SPOT


def _fields(one: Pod) -> dict:
    return {f: getattr(one, f) for f in one.__struct_fields__}
