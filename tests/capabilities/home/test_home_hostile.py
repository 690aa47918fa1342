"""Home among persons and odd data: labels nobody knows, half-removed reservations, clocks, and writes that do not stick."""

import json

import pytest

from mooring.capabilities.home.capability import RETRY_WRITE_S, Home
from mooring.capabilities.home.members import LABEL, RESERVE_NODE, member_set_by_key
from mooring.capabilities.home.policy import HomeMode, HomePolicy
from mooring.capabilities.home.report import explain, report
from mooring.capabilities.home.reserve import reservation_taint
from mooring.core.model.cluster import Taint
from mooring.core.model.decision import OperatorRecord
from mooring.core.model.instructions import EditTaints, EmitEvent, Patch
from mooring.core.model.marks import HOME, LEAVING, RESERVED_TAINT, Mark, write_mark
from mooring.core.model.reasons import Reason, State
from mooring.core.queue import Queue, live_settings

KEY = "tidb/tidb/demo"
NOW = 1000.0
HOMES = {f"demo-tidb-{i}": f"n{i}" for i in range(3)}


def evaluate(scenario, key=KEY, now=NOW, notes=None):
    return Home().evaluate(key, scenario.world, Queue(live_settings()), notes, now)


def reservation_of_2(scenario):
    """demo-tidb-2 leaves n2; the operator that holds its reservation."""
    scenario.cluster(HOMES, labels={RESERVE_NODE: "true"})
    scenario.set()
    scenario.pod("demo-tidb-2", "n2", uid="old", deletion_at=NOW + 30)
    (operator,) = evaluate(scenario).proposals
    return OperatorRecord(operator=operator, promoted_at=NOW, notes={"held": 1.0}, acted_at=NOW)


def next_step(scenario, running, now=NOW):
    course = Home().next_step(running, scenario.world, Queue(live_settings()), now)
    running.notes = dict(course.notes)
    return course


# ── Reservations ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("back", [False, True])
def test_a_person_who_removes_only_the_mark_leaves_no_taint_behind(scenario, back):
    """H8: the taint is the one we set for this pod: it goes, too, and then it is over; a node is never closed for good."""
    running = reservation_of_2(scenario)
    scenario.node("n2", taints=(reservation_taint("demo-tidb-2"),))
    if back:
        scenario.pod("demo-tidb-2", "n2", uid="new")
    (write,) = next_step(scenario, running).instructions
    assert isinstance(write, EditTaints)
    assert [t.key for t in write.remove] == [RESERVED_TAINT]
    scenario.node("n2")
    assert next_step(scenario, running).end is not None


def test_another_taint_under_our_key_is_not_removed(scenario):
    """H8: its value names somebody else: not ours."""
    running = reservation_of_2(scenario)
    scenario.node("n2", taints=(Taint(RESERVED_TAINT, "NoSchedule", "kept-by-bob"),))
    course = next_step(scenario, running)
    assert course.instructions == ()
    assert course.end.reason == Reason.WITHDRAWN


def test_switched_off_midway_the_reservation_is_given_back(scenario):
    """Features: nobody sends the member home any more, so nobody else is kept out for it."""
    running = reservation_of_2(scenario)
    scenario.reservation("n2", "tidb/demo-tidb-2", until=NOW + 150)
    running.off = True
    (write,) = next_step(scenario, running).instructions
    assert write.annotations == {RESERVED_TAINT: None}
    scenario.node("n2")
    assert next_step(scenario, running).end.reason == Reason.FEATURE_OFF


def test_a_clock_that_went_back_does_not_hold_a_reservation_for_hours(scenario):
    """H8: bounded by its own length from when it is found, whatever the clock said when it was written."""
    scenario.cluster(HOMES, labels={RESERVE_NODE: "true"})
    mark = Mark(
        operator="1", source="home", reason="reserved", step="ReserveNode", since=NOW + 7200, pod="tidb/demo-tidb-2",
        pod_uid="old", node="n2", value=KEY, deadline=NOW + 7200 + 150,
    )  # fmt: skip
    scenario.node("n2", taints=(reservation_taint("demo-tidb-2"),), annotations={RESERVED_TAINT: write_mark(mark)})
    (read_back,) = Home().recover(scenario.world, Queue(live_settings()), NOW)
    (resumed,) = read_back()
    assert float(resumed.operator.payload.until) == NOW + 150


@pytest.mark.parametrize("mark", [None, "not json"])
def test_a_reservation_that_nobody_answers_for_is_shown(scenario, mark):
    """H8, O3: it keeps every pod off that node; `status` and `why node/…` name it and the command that ends it."""
    scenario.node("n3", taints=(reservation_taint("web-0"),), annotations={RESERVED_TAINT: mark} if mark else {})
    (strange,) = report(scenario.world, HomePolicy(), NOW)["unknown_reservations"]
    assert strange["node"] == "n3"
    assert "kubectl taint node n3 mooring.dev/reserved-" in strange["remedy"]
    lines = {line.label: line.text for line in explain("node/n3", scenario.world, HomePolicy())}
    assert "no other pod" in lines["now"] or "other pods are not scheduled" in lines["now"]
    assert "kubectl taint node n3 mooring.dev/reserved-" in lines["to change"]


# ── Labels ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("label", [LABEL, RESERVE_NODE])
@pytest.mark.parametrize("value", ["False", "yes", "off", ""])
def test_a_label_of_a_cluster_that_says_neither_is_told(scenario, label, value):
    """H6: it acts as if it were not there, and both the verdict and an Event name what is allowed."""
    scenario.cluster(HOMES, labels={label: value})
    scenario.set()
    for name, node in HOMES.items():
        scenario.pod(name, node)
    answer = evaluate(scenario)
    assert answer.verdict.state == State.BLOCKED
    assert answer.verdict.reason == Reason.MISCONFIGURED
    assert "true" in answer.verdict.remedy
    (told,) = [i for i in answer.instructions if isinstance(i, EmitEvent)]
    assert told.warning
    member_set = member_set_by_key(KEY, scenario.world, HomePolicy())
    assert (member_set.mode, member_set.reserves_nodes) == (HomeMode.REQUIRE, False)


# ── Who is wanted ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_slots_that_are_left_out(scenario):
    """H3: an advanced StatefulSet without ordinal 1 has members 0, 2 and 3: the last has a home, the one left out none."""
    slots = {"tidb.tidb.pingcap.com/delete-slots": "[1]"}
    scenario.cluster({"demo-tidb-1": "n1"}, annotations=slots)
    scenario.pod("demo-tidb-3", "n3")
    (patch,) = [i for i in evaluate(scenario).instructions if isinstance(i, Patch)]
    written = patch.patch["status"]["tidb"]["members"]
    assert written["demo-tidb-3"]["node"] == "n3"
    assert written["demo-tidb-1"] is None


def test_a_stateful_set_that_is_being_recreated_forgets_nobody(scenario, pod_in_request):
    """H3: tidb-operator deletes and recreates the StatefulSet (a changed volume claim): the cluster still wants them."""
    scenario.cluster(HOMES)
    scenario.set(deletion_at=NOW)
    scenario.pod("demo-tidb-0", "n0")
    assert [i for i in evaluate(scenario).instructions if isinstance(i, Patch)] == []
    assert scenario.ask("filter", pod_in_request("demo-tidb-2"), ["n0", "n2"])["NodeNames"] == ["n2"]


def test_scaled_to_nothing_and_back_forgets(scenario):
    """H3: scaled in is forgotten, also all of them; a pod that is still there is not."""
    scenario.cluster(HOMES, tidb_replicas=0)
    scenario.set(replicas=0)
    scenario.pod("demo-tidb-0", "n0", deletion_at=NOW)
    (patch,) = [i for i in evaluate(scenario).instructions if isinstance(i, Patch)]
    assert patch.patch["status"]["tidb"]["members"] == {"demo-tidb-1": None, "demo-tidb-2": None}


def test_other_pods_with_our_labels_are_no_members(scenario):
    """H6: a copy of a member made for debugging has no home, and is not listed as one."""
    scenario.cluster(HOMES)
    scenario.set()
    scenario.pod("demo-tidb-0-debug", "n4")
    assert [i for i in evaluate(scenario).instructions if isinstance(i, Patch)] == []
    assert "demo-tidb-0-debug" not in {m["member"] for m in report(scenario.world, HomePolicy(), NOW)["members"]}


# ── Words ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_missing_members_of_a_stateful_set_are_listed(scenario):
    """O3: opted in by label, its homes stand in its annotation: a member without a pod is `missing`, with its home."""
    places = {"web-0": {"node": "n0"}, "web-1": {"node": "n1"}, "web-9": {"node": "n3"}, "web-2": {"left": "n2"}}
    scenario.set("web", annotations={HOME: json.dumps(places)}, labels={LABEL: "true"})
    scenario.pod("web-0", "n0", of="web")
    rows = {m["member"]: m for m in report(scenario.world, HomePolicy(), NOW)["members"]}
    assert {n: (m["state"], m["home"], m["left"]) for n, m in rows.items()} == {
        "web-0": ("home", "n0", ""),
        "web-1": ("missing", "n1", ""),
        "web-2": ("missing", "", "n2"),
    }


def test_a_move_of_ours_is_not_told_as_a_failure(scenario):
    """O1: one of our operators moved it: it did not fail to go back."""
    leaving = {LEAVING: write_mark(Mark(operator="7", source="mix", reason="wrong-class", step="x", since=0.0))}
    scenario.cluster(HOMES, annotations={HOME: '{"demo-tidb-0":{"left":"n0"}}'})
    scenario.set()
    scenario.pod("demo-tidb-0", "n4", uid="new")
    (told,) = [i for i in evaluate(scenario).instructions if isinstance(i, EmitEvent)]
    assert told.message == "demo-tidb-0 was moved off n0; n4 is its home from now on"
    assert leaving


def test_a_record_that_never_sticks_is_said(scenario):
    """H3: refused again and again (no right to, an object that is too large): held, and where to look."""
    scenario.cluster({})
    scenario.set()
    scenario.pod("demo-tidb-0", "n0")
    now, notes = NOW, None
    for _ in range(4):
        answer = evaluate(scenario, now=now, notes=notes)
        notes = answer.notes
        now += RETRY_WRITE_S
    assert answer.verdict.reason == Reason.MISCONFIGURED
    assert "written down" in answer.verdict.detail
    assert "mooring doctor" in answer.verdict.remedy


# ── The wire ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("key", ["NodeNameToVictims", "NodeNameToMetaVictims"])
def test_preempt_reads_a_node_without_victims(scenario, pod_in_request, key):
    """H7: Go writes an absent pointer as null: it is echoed, not refused."""
    scenario.cluster(HOMES)
    scenario.set()
    victims = {"n4": None, "n3": {"Pods": [{"UID": "u"}], "NumPDBViolations": 0}}
    body = json.dumps({"Pod": pod_in_request("demo-tidb-0"), key: victims}).encode()
    answer = json.loads(scenario.verbs().preempt(body).body)["NodeNameToMetaVictims"]
    assert answer["n3"]["Pods"] == [{"UID": "u"}]
    assert answer["n4"]["Pods"] == []


@pytest.mark.parametrize("names", [[], ["n0"], ["n0"] * 3, [f"n{i}" for i in range(20_000)], ["n0", "", "ü"]])
def test_any_list_of_names(scenario, pod_in_request, names):
    """H2: empty, repeated, huge or odd: home if it is there, else exactly what was asked."""
    scenario.cluster(HOMES)
    scenario.set()
    answer = scenario.ask("filter", pod_in_request("demo-tidb-0"), names)
    assert answer["NodeNames"] == (["n0"] if "n0" in names else names)
    assert answer["FailedNodes"].keys() == {n for n in names if n != "n0"}
    assert answer["Error"] == ""


def test_two_members_that_remember_the_same_node(scenario, pod_in_request):
    """H2: both are sent there while it can take them; whom it cannot take is not offered it and goes elsewhere."""
    scenario.cluster({"demo-tidb-0": "n0", "demo-tidb-1": "n0"})
    scenario.set()
    for name in ("demo-tidb-0", "demo-tidb-1"):
        assert scenario.ask("filter", pod_in_request(name), ["n0", "n1"])["NodeNames"] == ["n0"]
        assert scenario.ask("filter", pod_in_request(name), ["n1", "n2"])["NodeNames"] == ["n1", "n2"]


@pytest.mark.parametrize("name", ["web-" + "9" * 5000, "web-", "web-²", "", "web-0-0", "web--1"])
def test_an_annotation_edited_by_hand_with_odd_names(scenario, name):
    """H2: whatever stands there, nobody stumbles over it, and it is forgotten with the next record."""
    scenario.set("web", annotations={HOME: json.dumps({name: {"node": "n0"}})}, labels={LABEL: "true"})
    scenario.pod("web-0", "n1", of="web")
    (patch,) = [i for i in evaluate(scenario, "set/tidb/web").instructions if isinstance(i, Patch)]
    assert json.loads(patch.patch["metadata"]["annotations"][HOME]) == {"web-0": {"node": "n1"}}
    assert [m["member"] for m in report(scenario.world, HomePolicy(), NOW)["members"]] == ["web-0"]
