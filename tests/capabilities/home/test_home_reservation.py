"""Holding a reservation: when it is wanted, what is written, and every way it ends."""

import pytest

from mooring.capabilities.home.capability import Home
from mooring.capabilities.home.members import RESERVE_NODE
from mooring.capabilities.home.policy import HomePolicy
from mooring.capabilities.home.reserve import (
    ALL,
    KIND,
    LINGER_S,
    reservation_limits,
    reservation_on,
    resumed_reservation,
)
from mooring.core.model.cluster import Taint
from mooring.core.model.decision import OperatorRecord
from mooring.core.model.instructions import EditTaints, EmitEvent
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING, RESERVED_TAINT, Mark, read_mark, write_mark
from mooring.core.model.reasons import Reason, State
from mooring.core.queue import Queue, live_settings

KEY = "tidb/tidb/demo"
NOW = 100.0
HOLD = HomePolicy().hold_s
ON = {RESERVE_NODE: "true"}
HOMES = {f"demo-tidb-{i}": f"n{i}" for i in range(3)}


@pytest.fixture
def queue():
    return Queue(live_settings())


@pytest.fixture
def demo(scenario):
    """Three members at home, reservations on, and demo-tidb-2 on its way out."""
    scenario.cluster(HOMES, labels=ON)
    scenario.set()
    scenario.pod("demo-tidb-0", "n0")
    scenario.pod("demo-tidb-1", "n1")
    scenario.pod("demo-tidb-2", "n2", uid="old", deletion_at=NOW + 30)
    return scenario


def evaluate(scenario, queue, now=NOW, notes=None):
    return Home().evaluate(KEY, scenario.world, queue, notes, now)


def the_reservation(scenario, queue):
    (operator,) = evaluate(scenario, queue).proposals
    return OperatorRecord(operator=operator, promoted_at=NOW)


def next_step(scenario, running, queue, now=NOW):
    course = Home().next_step(running, scenario.world, queue, now)
    running.notes = dict(course.notes)
    return course


@pytest.mark.parametrize(("gone", "in_all"), [((), 2), (("n4",), 2), (("n3", "n4"), 1), (("n1", "n2", "n3", "n4"), 1)])
def test_half_of_the_nodes_stay_free_and_one_may_always_be_reserved(scenario, gone, in_all):
    """H8: of five, four, three nodes and of a single one; the limit of a namespace is its own."""
    for name in gone:
        scenario.gone(Kind.NODE, name, namespace="")
    limits = reservation_limits("tidb", scenario.world, HomePolicy(reserve_per_namespace=7, reserve_in_all=9))
    assert limits == {f"{ALL}/tidb": 7, ALL: in_all}


def held(demo, queue):
    """The operator with its reservation standing on n2."""
    running = the_reservation(demo, queue)
    demo.reservation("n2", "tidb/demo-tidb-2", until=NOW + 30 + HOLD)
    assert next_step(demo, running, queue).end is None
    return running


def test_a_leaving_member_has_its_reservation_held(demo, queue):
    """H8: proposed as soon as it leaves, one of its namespace's reservations, bounded by its grace and the policy's
    time."""
    (operator,) = evaluate(demo, queue).proposals
    counted = {"reservations/tidb": 1, "reservations": 1}
    assert (operator.kind, operator.source, dict(operator.cost)) == (KIND, "home", counted)
    assert operator.payload.until == NOW + 30 + HOLD


def test_taint_and_mark_are_one_write(demo, queue):
    """H8: the taint that others do not tolerate, and a mark that says whose reservation it is and until when."""
    course = next_step(demo, the_reservation(demo, queue), queue)
    (write,) = course.instructions
    assert isinstance(write, EditTaints)
    assert write.add == (Taint(RESERVED_TAINT, "NoSchedule", "demo-tidb-2"),)
    mark = read_mark(write.annotations[RESERVED_TAINT])
    assert (mark.pod, mark.node, mark.deadline) == ("tidb/demo-tidb-2", "n2", NOW + 30 + HOLD)
    assert (write.node, write.uid) == ("n2", "n2-uid")


def test_off_by_default(demo, queue):
    """H8: without the label nothing is held."""
    demo.cluster(HOMES)
    assert evaluate(demo, queue).proposals == ()


@pytest.mark.parametrize(
    "how",
    [
        {"unschedulable": True},
        {"ready": "False"},
        {"annotations": {"vacant.io/interrupt-at": "2026-01-01T00:00:00Z"}},
    ],
    ids=["cordoned", "not Ready", "about to be taken"],
)
def test_no_reservation_where_nobody_would_come_back(demo, queue, how):
    """H8: a node that takes no pods is not held, and a held one is given back."""
    running = held(demo, queue)
    demo.node("n2", **how)
    assert evaluate(demo, queue).proposals == ()
    assert next_step(demo, running, queue).end.reason == Reason.WITHDRAWN


def test_a_pod_that_does_not_tolerate_the_reservation_is_told(demo, queue):
    """H8: the reservation would keep the member itself out, so it is not held; an Event says what to add."""
    demo.pod("demo-tidb-2", "n2", uid="old", deletion_at=NOW + 30, tolerations=())
    answer = evaluate(demo, queue)
    assert answer.proposals == ()
    assert answer.verdict.state == State.BLOCKED
    (told,) = answer.instructions
    assert isinstance(told, EmitEvent)
    assert "operator: Exists" in told.message


def test_a_pending_member_gets_its_reservation_too(demo, queue):
    """H8: a pod deleted by force leaves no warning; its successor's reservation is held as soon as it is seen."""
    notes = evaluate(demo, queue).notes
    demo.pod("demo-tidb-2", "", uid="new", created_at=NOW - 1)
    (operator,) = evaluate(demo, queue, notes=notes).proposals
    assert operator.payload.node == "n2"
    assert evaluate(demo, queue, now=NOW + HOLD, notes=notes).proposals == (), "not for ever"


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        (lambda s: s.pod("demo-tidb-2", "n2", uid="new"), Reason.DONE, "is back on n2"),
        (lambda s: s.pod("demo-tidb-2", "n4", uid="new"), Reason.DONE, "went to n4 instead"),
        (lambda s: s.set(replicas=2), Reason.SUBJECT_GONE, "no longer wanted"),
        (lambda s: s.gone(Kind.TIDB_CLUSTER, "demo"), Reason.SUBJECT_GONE, "no longer wanted"),
        (lambda s: s.cluster(HOMES), Reason.WITHDRAWN, "was removed"),
        (lambda s: s.pod("demo-tidb-2", "", uid="new", tolerations=()), Reason.MISCONFIGURED, "does not tolerate"),
    ],
    ids=["back", "elsewhere", "scaled in", "cluster gone", "switched off", "template changed"],
)
def test_given_back_at_once(demo, queue, change, reason, words):
    """H8: released at once when the member is back or gone, then ended once the taint is seen to be gone."""
    running = held(demo, queue)
    change(demo)
    next_step(demo, running, queue)
    course = next_step(demo, running, queue, now=NOW + LINGER_S)
    (write,) = course.instructions
    assert isinstance(write, EditTaints)
    assert (write.add, write.annotations) == ((), {RESERVED_TAINT: None})
    assert [(t.key, t.effect) for t in write.remove] == [(RESERVED_TAINT, "NoSchedule")]
    assert course.end is None, "not before it is seen to be gone"
    demo.node("n2")
    end = next_step(demo, running, queue).end
    assert end.reason == reason
    assert words in end.detail


def test_taken_it_lingers_for_a_second(demo, queue):
    """H8: other schedulers hear of nodes and pods on two streams: none may see the room before it sees who took it."""
    running = held(demo, queue)
    demo.pod("demo-tidb-2", "n2", uid="new")
    course = next_step(demo, running, queue)
    assert (course.instructions, course.again_at) == ((), NOW + LINGER_S)
    demo.gone(Kind.POD, "demo-tidb-2")
    assert next_step(demo, running, queue, now=NOW + LINGER_S).instructions == (), "gone again: still held"
    demo.pod("demo-tidb-2", "n2", uid="newer")
    assert next_step(demo, running, queue, now=NOW + 5).again_at == NOW + 5 + LINGER_S


def test_time_is_up(demo, queue):
    """H8: a member that does not come back in time loses its reservation, with a Warning."""
    running = held(demo, queue)
    demo.gone(Kind.POD, "demo-tidb-2")
    until = NOW + 30 + HOLD
    course = next_step(demo, running, queue, now=until - 1)
    assert (course.instructions, course.again_at) == ((), until)
    write, told = next_step(demo, running, queue, now=until).instructions
    assert isinstance(write, EditTaints)
    assert isinstance(told, EmitEvent)
    assert (told.kind, told.warning) == (Kind.TIDB_CLUSTER, True)
    demo.node("n2")
    assert next_step(demo, running, queue, now=until).end.reason == Reason.EXPIRED


def test_our_own_move_gives_the_reservation_back(demo, queue):
    """One queue: a member that one of our operators moves off is not waited for."""
    running = held(demo, queue)
    mark = Mark(operator="3", source="spot", reason="notice", step="DeletePod", since=0.0, pod_uid="old")
    demo.pod("demo-tidb-2", "n2", uid="old", deletion_at=NOW + 30, annotations={LEAVING: write_mark(mark)})
    assert next_step(demo, running, queue).instructions
    assert evaluate(demo, queue).proposals == ()


def test_node_gone_ends_it(demo, queue):
    """The reservation goes with its node."""
    running = held(demo, queue)
    demo.gone(Kind.NODE, "n2", "")
    assert next_step(demo, running, queue).end.reason == Reason.NODE_GONE


def test_somebody_elses_taint_stays(demo, queue):
    """A taint under our key without our mark is not ours: it is neither replaced nor removed."""
    running = the_reservation(demo, queue)
    demo.node("n2", taints=(Taint(RESERVED_TAINT, "NoSchedule"),))
    assert next_step(demo, running, queue).end.reason == Reason.WITHDRAWN
    assert evaluate(demo, queue).proposals == (), "and it is not tried again and again"


def test_a_reservation_that_a_person_removed_is_not_set_again(demo, queue):
    """A mark that a person removed ends it, and for this pod it is not set again; for the next one it is."""
    first = evaluate(demo, queue)
    running = OperatorRecord(operator=first.proposals[0], promoted_at=NOW)
    assert next_step(demo, running, queue).instructions
    running.acted_at = NOW
    assert next_step(demo, running, queue).end.reason == Reason.WITHDRAWN
    second = Home().evaluate(KEY, demo.world, queue, first.notes, NOW)
    assert second.proposals == ()
    assert Home().evaluate(KEY, demo.world, queue, second.notes, NOW).proposals == ()
    demo.pod("demo-tidb-2", "n2", uid="next", deletion_at=NOW + 30)
    assert Home().evaluate(KEY, demo.world, queue, second.notes, NOW).proposals


def test_a_refused_write_is_tried_again(demo, queue):
    """The write conflicted and nothing stands there: it is asked for once more, not taken for removed."""
    running = the_reservation(demo, queue)
    assert next_step(demo, running, queue).instructions
    assert next_step(demo, running, queue).instructions


def test_two_members_of_one_node_take_turns(demo, queue):
    """One reservation a node: the second waits for the first."""
    first = the_reservation(demo, queue).operator
    queue.submit(first.__class__(**{**{f: getattr(first, f) for f in first.__struct_fields__}, "id": "1"}))
    demo.pod("demo-tidb-1", "n2", uid="other", deletion_at=NOW + 30)
    answer = evaluate(demo, queue)
    assert answer.proposals == ()
    assert answer.again_at is not None


def test_marks_are_read_back(demo, queue):
    """E5's rule for reservations: whoever leads next finds the reservation, keeps its time, and ends it."""
    node = demo.reservation("n2", "tidb/demo-tidb-2", until=NOW + 60, operator="41")
    assert reservation_on(node).pod == "tidb/demo-tidb-2"
    (resumed,) = resumed_reservation(node, NOW)
    running = OperatorRecord(operator=resumed.operator, promoted_at=NOW)
    assert resumed.operator.id == "41"
    assert next_step(demo, running, queue).again_at == NOW + 60
    demo.pod("demo-tidb-2", "n2", uid="new")
    assert next_step(demo, running, queue, now=NOW + 60).instructions == ()
    assert next_step(demo, running, queue, now=NOW + 60 + LINGER_S).instructions


def test_a_mark_that_cannot_be_read_is_left_alone(demo):
    """Never guessed at."""
    demo.node("n3", annotations={RESERVED_TAINT: "{"}, taints=(Taint(RESERVED_TAINT, "NoSchedule"),))
    assert list(resumed_reservation(demo.world.node("n3"), NOW)) == []
