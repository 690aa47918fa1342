"""The loop by hand when the outside is late, silent or somebody else's."""

from mooring.capabilities.handoff import Handoff
from mooring.core.engine.events import Features, LeaseChanged
from mooring.core.engine.invariants import broken
from mooring.core.model.decision import End, NextStep
from mooring.core.model.events import Gone, Listed, PdSeen, Seen
from mooring.core.model.instructions import AddEvictLeader, Outcome, Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF
from mooring.core.model.operator import StepKind
from mooring.core.model.reasons import Reason
from mooring.process.replica import KINDS
from tests.core.engine.engine_by_hand import CLUSTER, RESTART, Hand, of, pod, tidb_cluster, view


class Listening(Handoff):
    """Hand-over that remembers what it was asked about."""

    def __init__(self, name="handoff"):
        super().__init__()
        self.name = name
        self.heard = []

    def affected_keys(self, trigger, world):
        self.heard.append((self.name, trigger))
        return super().affected_keys(trigger, world)


def test_a_version_that_shows_nothing_new_wakes_nobody():
    """2,500 events a second: a kubelet's note is stored, and neither deciders nor operators are asked."""
    capability = Listening()
    hand = Hand(capability)
    hand.lead()
    hand.annotate(0)
    capability.heard.clear()
    hand.feed(Seen(Kind.POD, pod(0, RESTART, version="3")))
    assert capability.heard == []
    assert not hand.engine._term.worklist.pending
    hand.feed(Seen(Kind.POD, pod(0, RESTART, version="4", ready=False)))
    assert len(capability.heard) == 1


def test_a_conflict_with_a_silent_version_ends_with_the_next_try(hand):
    """E3: somebody wrote what we do not read and our mark was refused for it; the next try carries their version."""
    hand.lead()
    (mark,) = of(Patch, hand.annotate(0))
    hand.feed(Seen(Kind.TIDB_CLUSTER, tidb_cluster(version="7")))
    hand.feed(Outcome(instruction=mark.id, reason=Reason.CONFLICT, detail="409"))
    due = hand.engine.next_wakeup()
    assert due is not None
    (again,) = of(Patch, hand.feed(PdSeen(CLUSTER, view(), hand.now + 5), at=hand.now + 5))
    assert (mark.resource_version, again.resource_version) == ("1", "7")


def test_a_watch_that_is_half_a_minute_late_takes_no_mark_away(hand):
    """E5: the object of half a minute ago, without our mark, comes after the answer to our write: nothing is redone."""
    hand.lead()
    (mark,) = of(Patch, hand.annotate(0))
    hand.confirm(mark, version="9")
    hand.feed(PdSeen(CLUSTER, view(), hand.now + 1), at=hand.now + 1)
    hand.feed(Seen(Kind.TIDB_CLUSTER, tidb_cluster(version="1")), at=hand.now + 30)
    hand.feed(Seen(Kind.POD, pod(0, version="1")), at=hand.now + 1)
    assert HANDOFF in hand.engine.world.tidb_cluster(CLUSTER).annotations
    assert list(hand.engine.running) == ["1"]
    assert len(of(Patch, hand.asked)) == 1
    assert len(of(AddEvictLeader, hand.asked)) == 1


def test_an_answer_from_before_the_lease_was_lost_is_news_and_no_order(hand):
    """Worked example 7: the write of an earlier life ends while another leads; we learn of it and ask for nothing.
    With the lease back, the mark it made is read and not written again."""
    hand.lead()
    (mark,) = of(Patch, hand.annotate(0))
    hand.feed(LeaseChanged(False))
    assert hand.confirm(mark, version="2") == []
    assert HANDOFF in hand.engine.world.tidb_cluster(CLUSTER).annotations
    hand.feed(LeaseChanged(True))
    assert list(hand.engine.running) == ["1"]
    assert len(of(Patch, hand.asked)) == 1


def test_a_late_refusal_of_an_earlier_life_holds_nobody_back(hand):
    """The refusal of a write from before the lease was lost says nothing about the operator that goes on now."""
    hand.lead()
    (mark,) = of(Patch, hand.annotate(0))
    hand.feed(LeaseChanged(False), LeaseChanged(True))
    hand.feed(Outcome(instruction=mark.id, reason=Reason.FAILED, detail="timed out", retry_after_s=600.0))
    again = of(Patch, hand.asked)[1:]
    assert len(again) == 1
    assert again[0].id != mark.id
    hand.confirm(again[0], version="2")
    hand.feed(PdSeen(CLUSTER, view(), hand.now + 1), at=hand.now + 1)
    assert len(of(AddEvictLeader, hand.asked)) == 1


def test_capabilities_are_asked_by_name_and_only_while_they_are_on():
    """Same input, same output: the order in which they were given decides nothing."""
    later, sooner = Listening("zeta"), Listening("alpha")
    heard = later.heard = sooner.heard
    hand = Hand(later, sooner)
    hand.lead()
    hand.feed(Features(frozenset({"zeta", "alpha"})))
    heard.clear()
    hand.feed(Seen(Kind.POD, pod(1, version="5", ready=False)))
    assert [name for name, _ in heard] == ["alpha", "zeta"]
    hand.feed(Features(frozenset({"zeta"})))
    heard.clear()
    hand.feed(Seen(Kind.POD, pod(1, version="6")))
    assert [name for name, _ in heard] == ["zeta"]


def test_what_is_set_in_motion_carries_the_id_of_its_cause(hand):
    """Events in, instructions out: the operator names the pod whose annotation asked for it."""
    hand.lead()
    hand.annotate(0)
    (running,) = hand.engine.running.values()
    assert running.operator.cause == "Pod/tidb/demo-tikv-0"


def test_an_answer_that_is_later_than_the_successor_does_not_hide_it(hand):
    """E3: the old pod was seen to be gone, and before we read that answer the new one had come: it stays, and counts."""
    hand.lead()
    old, new = pod(0), pod(0, uid="uid-0-new", version="9")
    hand.feed(Gone(Kind.POD, old.key, old.uid), Seen(Kind.POD, new))
    hand.feed(Outcome(instruction="i1", gone=Gone(Kind.POD, old.key, old.uid)))
    assert hand.engine.world.pod(old.key) == new
    later = pod(0, uid="uid-0-new", version="10", ready=False)
    hand.feed(Seen(Kind.POD, later))
    assert hand.engine.world.pod(old.key) == later


class Contrary(Handoff):
    """Proposes what it gives up as soon as it may begin: its look and its steering disagree."""

    def __init__(self):
        super().__init__()
        self.looked = 0

    def evaluate(self, key, world, queue, notes, now):
        self.looked += 1
        return super().evaluate(key, world, queue, notes, now)

    def next_step(self, running, world, queue, now):
        return NextStep(step=0, end=End(reason=Reason.CANCELED, detail="not now"))


def test_a_capability_that_contradicts_itself_turns_in_no_circle():
    """Rule 12: an operator that ends as it began is proposed a few times more, then its subject backs off and says so."""
    capability = Contrary()
    hand = Hand(capability)
    hand.lead()
    hand.annotate(0)
    before = capability.looked
    for _ in range(10):
        hand.feed(Seen(Kind.POD, pod(2, version=str(10 + capability.looked))), at=hand.now + 1)
    assert capability.looked - before <= 30
    assert list(hand.engine.verdicts.values())[0].reason == Reason.BACK_OFF
    assert hand.asked and not of(Patch, hand.asked)
    assert broken(hand.engine) == []


def test_a_new_leader_that_finds_the_pod_back_sends_no_leaders_away_again():
    """E5, E6: the last leader had ended the eviction and died before it took the mark away; the pod has long been
    Ready, and to count that from our own first sight would begin the hand-over anew."""
    first = Hand()
    first.lead()
    (mark,) = of(Patch, first.annotate(0))
    text = mark.patch["metadata"]["annotations"][HANDOFF]
    second = Hand()
    back = pod(0, uid="new-0", created_at=second.now - 60)
    given = {Kind.TIDB_CLUSTER: (tidb_cluster({HANDOFF: text}),), Kind.POD: (back, pod(1), pod(2))}
    second.feed(*(Listed(kind, given.get(kind, ())) for kind in KINDS))
    second.feed(Features(frozenset({"handoff"})), LeaseChanged(True))
    second.feed(PdSeen(CLUSTER, view(), second.now), at=second.now + 0.2)
    (running,) = second.engine.running.values()
    assert running.operator.steps[running.step].kind is StepKind.END_EVICTION
    second.feed(PdSeen(CLUSTER, view(), second.now + 1), at=second.now + 1.2)
    assert of(Patch, second.asked) == [], "a PD that has just started may list its schedulers one by one"
    second.feed(PdSeen(CLUSTER, view(), second.now + 10), at=second.now + 10.2)
    assert of(AddEvictLeader, second.asked) == []
    (unmark,) = of(Patch, second.asked)
    assert unmark.patch["metadata"]["annotations"][HANDOFF] is None
