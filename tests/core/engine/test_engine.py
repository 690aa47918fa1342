"""The loop by hand: events in, instructions out."""

from mooring.core.engine.events import Features, LeaseChanged
from mooring.core.engine.invariants import broken
from mooring.core.model.events import Gone, Listed, PdLost, PdSeen, Seen
from mooring.core.model.instructions import AddEvictLeader, Outcome, Patch, ReadPd
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF, read_marks
from mooring.core.model.reasons import Reason
from mooring.process.replica import KINDS
from tests.core.engine.engine_by_hand import CLUSTER, Hand, of, pod, tidb_cluster, view


def test_nothing_is_decided_before_every_kind_is_listed_and_the_lease_is_won(hand):
    """Level, not edge: an annotation seen early waits for sync and lease, and is acted on then."""
    hand.feed(Features(frozenset({"handoff"})), LeaseChanged(True))
    hand.feed(
        Listed(Kind.TIDB_CLUSTER, (tidb_cluster(),)), Listed(Kind.POD, (pod(0, {"tidb.pingcap.com/restart": ""}),))
    )
    assert not hand.engine.deciding
    assert of(Patch, hand.asked) == []
    hand.feed(*(Listed(kind, ()) for kind in KINDS if kind not in {Kind.TIDB_CLUSTER, Kind.POD}))
    assert hand.engine.deciding


def test_the_mark_is_written_before_anything_is_disturbed(hand):
    """E3: first the mark, by compare-and-swap, with what PD evicted before us; only when it is confirmed, the scheduler."""
    hand.lead()
    (mark,) = of(Patch, hand.annotate(0))
    assert mark.resource_version == "1"
    written = read_marks(mark.patch["metadata"]["annotations"][HANDOFF])["demo-tikv-0"]
    assert (written.pod_uid, written.store_id, written.value, written.before) == ("uid-0", 1, "delete-pod", {})
    assert mark.patch["status"]["tikv"]["evictLeaderStatus"]["demo-tikv-0"]["value"] == "delete-pod"
    assert of(AddEvictLeader, hand.asked) == []
    hand.confirm(mark, version="2")
    hand.feed(PdSeen(CLUSTER, view(), hand.now + 1), at=hand.now + 1)
    (add,) = of(AddEvictLeader, hand.asked)
    assert add.store_id == 1


def test_two_in_the_same_second_one_waits_and_why_names_the_other(hand):
    """E7, T4, worked example 1: `evicting` 1/1, and `why` says who is ahead and at which step."""
    from mooring.core.engine.why import explain

    hand.lead()
    hand.annotate(0)
    hand.annotate(1)
    assert list(hand.engine.running) == ["1"]
    assert list(hand.engine.waiting) == ["2"]
    answer = explain(hand.engine, "pod/tidb/demo-tikv-1")
    assert answer.state == "waiting"
    assert answer.answer.startswith("demo-tikv-1 is waiting for op 1")
    assert len(answer.answer) <= 110
    assert answer.waiting_on.target == "evicting/tidb/demo"
    assert answer.waiting_on.sum().endswith("limit 1 → 1 missing")


def test_an_operator_is_not_asked_again_while_its_write_is_under_way(hand):
    """Whatever is seen meanwhile, the same write is not asked for twice."""
    hand.lead()
    assert len(of(Patch, hand.annotate(0))) == 1
    for version in range(3, 8):
        hand.feed(Seen(Kind.POD, pod(0, {"tidb.pingcap.com/restart": ""}, version=str(version))))
    assert len(of(Patch, hand.asked)) == 1


def test_a_refused_write_is_asked_again_after_a_while_and_not_at_once(hand):
    """A conflict costs time, not truth; the wait doubles."""
    hand.lead()
    (mark,) = of(Patch, hand.annotate(0))
    assert of(Patch, hand.feed(Outcome(instruction=mark.id, reason=Reason.CONFLICT, detail="409"))) == []
    again = of(Patch, hand.feed(PdSeen(CLUSTER, view(), hand.now + 5), at=hand.now + 5))
    assert len(again) == 1


def test_a_write_needs_no_watch_to_be_believed(hand):
    """The object in the server's answer is the news: the next step does not wait for the watch."""
    hand.lead()
    (mark,) = of(Patch, hand.annotate(0))
    hand.confirm(mark, version="2")
    assert hand.engine.world.tidb_cluster(CLUSTER).resource_version == "2"


def test_losing_the_lease_forgets_the_queue_and_winning_it_reads_the_marks_back(hand):
    """A new leader counts what has begun as running before it promotes anything."""
    hand.lead()
    (mark,) = of(Patch, hand.annotate(0))
    hand.confirm(mark, version="2")
    hand.annotate(1)
    hand.feed(LeaseChanged(False))
    assert (hand.engine.running, hand.engine.waiting) == ({}, {})
    hand.feed(LeaseChanged(True))
    assert list(hand.engine.running) == ["1"], "read back from the mark, with its own id"
    assert [o.payload.pod for o in hand.engine.waiting.values()] == ["tidb/demo-tikv-1"]


def test_a_leader_with_marks_looks_at_pd_before_it_decides():
    """A mark alone does not say how far its operator has come."""
    first = Hand()
    first.lead()
    (mark,) = of(Patch, first.annotate(0))
    text = mark.patch["metadata"]["annotations"][HANDOFF]
    second = Hand()
    marked = {Kind.TIDB_CLUSTER: (tidb_cluster({HANDOFF: text}),), Kind.POD: tuple(pod(i) for i in range(3))}
    second.feed(*(Listed(kind, marked.get(kind, ())) for kind in KINDS))
    second.feed(Features(frozenset({"handoff"})))
    assert of(ReadPd, second.feed(LeaseChanged(True)))
    assert not second.engine.deciding
    second.feed(PdLost(CLUSTER, "connection refused", second.now))
    assert second.engine.deciding, "a dead PD is an answer too: the operator runs, and says pd-unreachable"
    assert broken(second.engine) == []


def test_switching_a_feature_off_cancels_what_waits_and_lets_what_runs_end(hand):
    """Features can be switched while running: nothing that has begun is dropped."""
    hand.lead()
    hand.annotate(0)
    hand.annotate(1)
    hand.feed(Features(frozenset()))
    assert list(hand.engine.running) == ["1"]
    assert hand.engine.waiting == {}
    assert "feature-off" in {e.reason for e in hand.engine.history.of("pod/tidb/demo-tikv-1")}


def test_a_large_list_is_taken_in_by_parts_and_nothing_is_decided_meanwhile():
    """No pause on the first list of a large cluster; events of the same kind wait behind it."""
    hand = Hand()
    many = tuple(pod(i) for i in range(5000))
    hand.feed(*(Listed(kind, ()) for kind in KINDS if kind is not Kind.POD))
    hand.engine.handle(Listed(Kind.POD, many), hand.now)
    hand.engine.handle(Gone(Kind.POD, many[0].key, many[0].uid), hand.now)
    hand.feed(LeaseChanged(True))
    assert hand.engine.world.pod(many[0].key) is None
    assert hand.engine.world.pod(many[4999].key) is not None
    assert hand.engine.deciding


def test_the_story_of_an_object_is_bounded_and_in_order(hand):
    """`why` can tell what happened, newest last, without growing for ever."""
    hand.lead()
    hand.annotate(0)
    for turn in range(100):
        hand.annotate(0, {} if turn % 2 == 0 else {"tidb.pingcap.com/restart": ""})
    entries = list(hand.engine.history.of("pod/tidb/demo-tikv-0"))
    assert 0 < len(entries) <= 40
    assert entries == sorted(entries, key=lambda e: e.at)


def test_a_leader_asks_to_be_called_in_time_and_a_follower_for_nothing(hand):
    """Rule 12: time-outs and looks at PD come by themselves; who does not lead and has all its lists is left alone."""
    assert hand.engine.next_wakeup() is None
    hand.lead()
    hand.annotate(0)
    due = hand.engine.next_wakeup()
    assert due is not None and due > hand.now
    hand.feed(LeaseChanged(False))
    assert hand.engine.next_wakeup() is None
