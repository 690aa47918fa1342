"""T12: a store dies under operators of ours: they are canceled in PD, and their room is free when PD shows it."""

import msgspec
import pytest

from mooring.capabilities.balance import BalancePolicy, schedulers
from mooring.capabilities.balance.capability import Balance
from mooring.capabilities.balance.pause import PD_SCHEDULERS
from mooring.core.model.cluster import Key
from mooring.core.model.decision import OperatorRecord, no_answer
from mooring.core.model.events import Listed, PdLost, PdSeen, RegionsSeen
from mooring.core.model.instructions import AddPdOperator, CancelPdOperator, ReadRegions
from mooring.core.model.kinds import Kind
from mooring.core.model.placement import Placement, PlacementRule
from mooring.core.model.reasons import Reason
from mooring.core.model.tidb import PdOperator, PdPause, PdView, Peer, Region, Store, TidbCluster
from mooring.core.queue import Queue, live_settings
from mooring.core.world.world import World

DEMO = Key("tidb", "demo")
PAUSED = tuple(sorted(PD_SCHEDULERS.values()))
#: Stores 1 to 3 hold all twelve regions, and store 1 leads them.
REGIONS = tuple(
    Region(n, f"{n:04d}", f"{n + 1:04d}", 1, 1, tuple(Peer(n * 10 + s, s) for s in (1, 2, 3)), 1, size_mib=96)
    for n in range(100, 112)
)


def listed(operator, *, desc="admin-transfer-leader", to=None):
    """As PD prints a transfer of ours."""
    step = operator.steps[0]
    to = step.to_store if to is None else to
    text = f"transfer leader from store {step.from_store} to store {to}"
    region = int(operator.subject.rpartition("/")[2])
    return PdOperator(region, desc, f"transfer leader: store {step.from_store} to {to}", steps=(text,))


class RunningProcess:
    """A decider with its world and its queue, and a PD in a few words."""

    def __init__(self):
        self.world, self.queue = World(), Queue(live_settings())
        self.world.apply(Listed(Kind.TIDB_CLUSTER, (TidbCluster("tidb", "demo", "u", "1"),)))
        self.balance = Balance(BalancePolicy(sources=("balance-leader",), clusters=("*",)))
        for index in self.balance.indexes():
            self.world.register(index)
        self.notes = {}

    def sees(self, at, *operators, dead=(), state="Disconnected", life=7, paused=PAUSED):
        led = {1: len(REGIONS), 2: 0, 3: 0}
        stores = tuple(
            Store(s, f"s{s}:1", state if s in dead else "Up", led[s], len(REGIONS), last_heartbeat_at=at - 1)
            for s in (1, 2, 3)
        )
        pauses = tuple(PdPause(name, 60, 60.0) for name in paused)
        told = {"schedulers": PAUSED, "pauses": pauses, "placement": Placement((PlacementRule(),))}
        view = PdView(stores, (), len(REGIONS), life, operators=operators, **told)
        self.world.note_pd(DEMO, view, at)
        self.world.show(PdSeen(DEMO, view, at))

    def knows_regions(self, at, asked=()):
        self.world.show(RegionsSeen(DEMO, REGIONS, at, asked))

    def evaluate(self, at):
        answer = self.balance.evaluate(str(DEMO), self.world, self.queue, self.notes.get(DEMO), at)
        self.notes[DEMO] = answer.notes
        return answer

    def next_step(self, running, at):
        answer = self.balance.next_step(running, self.world, self.queue, at)
        if answer.notes is not None:
            running.notes = dict(answer.notes)
        return answer


@pytest.fixture
def house():
    """Balancing: its PD stands aside and its regions are known."""
    house = RunningProcess()
    house.sees(100.0)
    house.evaluate(100.0)
    house.knows_regions(100.5)
    house.sees(101.0)
    return house


@pytest.fixture
def running(house):
    """One of ours on its way to store 2, and PD has taken it."""
    proposal = next(p for p in house.evaluate(101.0).proposals if p.steps[0].to_store == 2)
    running = OperatorRecord(operator=proposal, promoted_at=101.0)
    assert isinstance(house.next_step(running, 101.0).instructions[0], AddPdOperator)
    running.acted_at = 101.5
    house.sees(102.0, listed(proposal))
    assert house.next_step(running, 102.0).instructions == ()
    return running


@pytest.mark.parametrize("state", ["Disconnected", "Down", "Offline"])
def test_one_whose_store_is_not_up_any_more_is_canceled_at_the_next_look(house, running, state):
    """T12: by PD's own words of it, so that nobody else's is canceled."""
    there = listed(running.operator)
    house.sees(103.0, there, dead={2}, state=state)
    (cancel,) = house.next_step(running, 103.0).instructions
    assert isinstance(cancel, CancelPdOperator)
    assert (cancel.region_id, cancel.desc, cancel.brief) == (there.region_id, there.desc, there.brief)
    assert "store 2 is not Up" in cancel.why


def test_one_that_pd_leads_over_a_dead_store_is_canceled_too(house, running):
    """T12: PD chose the steps, and in between its leader goes to a store that we never named."""
    there = listed(running.operator)
    house.sees(
        103.0, msgspec.structs.replace(there, steps=("transfer leader from store 1 to store 3", *there.steps)), dead={3}
    )
    (cancel,) = house.next_step(running, 103.0).instructions
    assert isinstance(cancel, CancelPdOperator) and "store 3 is not Up" in cancel.why


def test_its_room_is_free_only_when_pd_no_longer_lists_it(house, running):
    """T12: the cancel was answered, and still it is charged until a look that began later shows it gone."""
    house.sees(103.0, listed(running.operator), dead={2})
    house.next_step(running, 103.0)
    running.acted_at = 103.5
    assert house.next_step(running, 103.6).end is None, "that look is older than the answer"
    house.sees(104.0, dead={2})
    course = house.next_step(running, 104.0)
    assert course.end is None and isinstance(course.instructions[0], ReadRegions)
    house.knows_regions(104.2, asked=tuple(r.id for r in REGIONS))
    end = house.next_step(running, 104.3).end
    assert end.reason == Reason.STORE_NOT_UP and "store 2" in end.detail


def test_a_cancel_that_was_not_answered_is_asked_again(house, running):
    """T12: PD did not answer; at the next look it still lists it."""
    for at in (103.0, 104.0):
        house.sees(at, listed(running.operator), dead={2})
        assert len(house.next_step(running, at).instructions) == 1


def test_answered_once_what_pd_lists_there_is_not_canceled_again(house, running):
    """T12: after the answer it is somebody else's, who may want the same."""
    house.sees(103.0, listed(running.operator), dead={2})
    house.next_step(running, 103.0)
    running.acted_at = 103.5
    house.sees(104.0, listed(running.operator), dead={2})
    course = house.next_step(running, 104.0)
    assert course.instructions == () and course.end is None


@pytest.mark.parametrize("other", [{"desc": "replace-down-replica"}, {"to": 3}])
def test_another_ones_operator_on_the_region_is_left_alone(house, running, other):
    """T12: only what came in by our door and leads where ours did."""
    house.sees(103.0, listed(running.operator, **other), dead={2})
    (look,) = house.next_step(running, 103.0).instructions
    assert isinstance(look, ReadRegions), "ours is gone: its region tells how it ended"


@pytest.mark.parametrize("other", [{"desc": "replace-down-replica"}, {"to": 3}, {"desc": "admin-remove-peer"}])
def test_asked_without_an_answer_another_ones_operator_is_not_ours(house, other):
    """T12: a lost answer, and PD runs something else on that region: it is not followed as if it were ours."""
    proposal = next(p for p in house.evaluate(101.0).proposals if p.steps[0].to_store == 2)
    running = OperatorRecord(operator=proposal, promoted_at=101.0)
    house.next_step(running, 101.0)
    house.sees(103.0, listed(proposal, **other))
    course = house.next_step(running, 103.0)
    assert "begun" not in course.notes and course.progress == ""
    assert course.end.reason == Reason.WITHDRAWN and "PD runs" in course.end.detail


def test_what_was_noted_goes_back_as_a_value(house):
    """Issue 17: `running.notes` is read, never written to: the engine keeps what comes back."""
    running = OperatorRecord(operator=house.evaluate(101.0).proposals[0], promoted_at=101.0)
    answers = [house.balance.next_step(running, house.world, house.queue, 101.0) for _ in range(2)]
    assert running.notes == {} and answers[0] == answers[1] and answers[0].notes["tries"] == 1


def test_one_that_was_read_back_is_never_canceled(house, running):
    """T12: it may be a person's command; PD's own time-out ends it."""
    view = house.world.pd(DEMO)
    (read_back,) = house.balance.recover(house.world, house.queue, 102.0)
    (resumed,) = read_back()
    again = OperatorRecord(operator=resumed.operator, promoted_at=102.0)
    house.sees(103.0, *view.operators, dead={2})
    assert house.next_step(again, 103.0).instructions == ()
    assert resumed.operator.timeout_s is None


def test_when_its_time_is_over_it_is_canceled_and_stays_charged(house, running):
    """T12: a minute for a transfer; the queue does not free its room by the clock, PD's list does."""
    assert running.operator.timeout_s is None
    house.sees(160.9, listed(running.operator))
    assert house.next_step(running, 160.9).instructions == ()
    house.sees(161.0, listed(running.operator))
    course = house.next_step(running, 161.0)
    assert isinstance(course.instructions[0], CancelPdOperator) and course.end is None
    running.acted_at = 161.2
    house.sees(162.0)
    house.next_step(running, 162.0)
    house.knows_regions(162.2, asked=tuple(r.id for r in REGIONS))
    end = house.next_step(running, 162.3).end
    assert (end.reason, end.failed) == (Reason.TIMEOUT, True) and "60 s" in end.detail


def test_asked_without_an_answer_it_is_ours_when_pd_lists_it(house):
    """T12: the answer was lost, not the operator: it is followed instead of asked for again."""
    proposal = house.evaluate(101.0).proposals[0]
    running = OperatorRecord(operator=proposal, promoted_at=101.0)
    house.next_step(running, 101.0)
    house.sees(103.0, listed(proposal))
    course = house.next_step(running, 103.0)
    assert course.instructions == () and course.end is None and course.progress == listed(proposal).brief


def test_nothing_begins_while_pd_balances_by_itself(house):
    """T12: what waited while PD restarted ends before it begins: PD's own balancers have taken its room, unseen yet."""
    first, second = house.evaluate(101.0).proposals[:2]
    house.sees(110.0, life=8, paused=())
    end = house.next_step(OperatorRecord(operator=first, promoted_at=110.0), 110.0).end
    assert end.reason == Reason.WITHDRAWN and "not paused" in end.detail
    # PD stands aside again. What it began before is in this look, and charged once that has been looked at.
    house.evaluate(110.0)
    house.knows_regions(110.5)
    house.sees(111.0, life=8)
    assert house.next_step(OperatorRecord(operator=second, promoted_at=111.0), 111.0).end.reason == Reason.WITHDRAWN
    anew = house.evaluate(111.0).proposals[0]
    again = house.next_step(OperatorRecord(operator=anew, promoted_at=111.1), 111.1)
    assert isinstance(again.instructions[0], AddPdOperator)


def test_one_whose_region_has_another_leader_by_now_does_not_begin(house):
    """T12: the leader sends the data, and another one was charged for it; elected anew while the operator waited."""
    operator = house.evaluate(101.0).proposals[0]
    region = next(r for r in REGIONS if operator.subject.endswith(f"/{r.id}"))
    anew = RegionsSeen(DEMO, (msgspec.structs.replace(region, leader_store=3),), 101.5, (region.id,))
    house.world.show(anew)
    end = house.next_step(OperatorRecord(operator=operator, promoted_at=102.0), 102.0).end
    assert end.reason == Reason.WITHDRAWN and "store 3 leads the region now" in end.detail


def test_asked_in_vain_it_waits_for_a_look(house):
    """T12: PD did not answer: it may have it, and it may be another life of PD by now."""
    running = OperatorRecord(operator=house.evaluate(101.0).proposals[0], promoted_at=101.0)
    house.next_step(running, 101.0)
    course = house.next_step(running, 102.0)
    assert course.instructions == () and course.end is None and course.refreshes[0].at == 102.0
    house.sees(102.5)
    assert isinstance(house.next_step(running, 102.6).instructions[0], AddPdOperator)


def test_waiting_ones_are_withdrawn_at_the_first_look_that_shows_it(house):
    """T12: they do not wait for those that run there to end first."""
    for store in (1, 2, 3):
        house.queue.set_fact(f"store/{DEMO}/{store}", "", 20, "busy")
    for number, proposal in enumerate(house.evaluate(101.0).proposals):
        house.queue.submit(msgspec.structs.replace(proposal, id=str(number)))
    waiting = {op.id: op.steps[0].to_store for op in house.queue.operators()}
    assert set(waiting.values()) == {2, 3}
    house.sees(102.0, dead={2})
    gone = house.evaluate(102.0).withdrawals
    assert {w.operator for w in gone} == {i for i, to in waiting.items() if to == 2}
    assert all(w.reason == Reason.WITHDRAWN and "store 2" in w.detail for w in gone)


def test_clusters_do_not_share_caps(house):
    """T12: what waits for another cluster leaves this one all of its places, and the queue takes them."""
    cap, proposals = house.queue.settings.cap("balance-leader"), house.evaluate(101.0).proposals
    assert len(proposals) == cap

    def submit(like, cluster, number, **how):
        subject = f"region/{cluster}/{number}"
        phases = tuple({t.replace(str(DEMO), cluster): c for t, c in phase.items()} for phase in like.phases)
        told = {"id": subject, "subject": subject, "claims": (subject,), "phases": phases, "quota": cluster} | how
        house.queue.submit(msgspec.structs.replace(like, **told))

    for cluster in ("tidb/other", str(DEMO)):
        full = ({f"store/{cluster}/{store}": 20 for store in (1, 2, 3)},)
        submit(proposals[0], cluster, 9999, phases=full, source="hot")
    for number, mine in enumerate(proposals):
        submit(mine, "tidb/other", number)
    assert house.queue.waiting_of("balance-leader", "tidb/other") == cap
    again = house.evaluate(101.0).proposals
    assert len(again) == cap
    for mine in again:
        submit(mine, str(DEMO), mine.subject.rpartition("/")[2], quota=mine.quota)
    assert house.queue.waiting_of("balance-leader", str(DEMO)) == cap
    assert house.evaluate(102.0).proposals == ()


def test_what_waits_for_a_region_that_pd_works_on_is_withdrawn(house):
    """T12: PD's checkers took the region meanwhile: what their operator takes is charged to it, and would let ours pass
    above the limit."""
    for store in (1, 2, 3):
        house.queue.set_fact(f"store/{DEMO}/{store}", "", 20, "busy")
    (first, *_) = house.evaluate(101.0).proposals
    house.queue.submit(msgspec.structs.replace(first, id="1"))
    house.sees(102.0, listed(first, desc="replace-offline-replica"))
    (gone,) = house.evaluate(102.0).withdrawals
    assert gone.operator == "1" and "PD runs replace-offline-replica" in gone.detail


def test_the_cluster_and_its_pd_are_gone(house, running):
    """T12: there is nobody left to ask how it ended."""
    house.world.apply(Listed(Kind.TIDB_CLUSTER, ()))
    house.world.note_pd_lost(DEMO, no_answer(PdLost(DEMO, "no such host", 102.0)))
    assert house.next_step(running, 103.0).end.reason == Reason.CLUSTER_GONE


# ── A store that may be dead ──────────────────────────────────────────────────────────────────────────────────────


def tell(town, **stores):
    """`s2=(leaders, heartbeat)`; the others lead 30 and are heard of now."""
    for n in town.stores:
        led, heard = stores.get(f"s{n}", (30, stores["now"]))
        town.stores[n] = Store(n, f"s{n}:1", leader_count=led, last_heartbeat_at=heard)
    town.tell()


def test_a_store_that_lost_its_leaders_is_heard_of_first(town):
    """T12: elected elsewhere since its last heartbeat: that is how a death looks before PD says Disconnected."""
    town = town()
    tell(town, now=100.0, s2=(30, 98.0))
    assert town.summary.stores[2].takes_leaders
    tell(town, now=107.0, s2=(20, 98.0))
    row = town.summary.stores[2]
    assert row.up and not row.takes_leaders
    assert row.gives_leaders and row.takes_peers, "it may as well have given them away"
    tell(town, now=110.0, s2=(0, 108.0))
    assert town.summary.stores[2].takes_leaders, "it lives, and leads nothing: now it may have some"


def test_a_store_late_with_its_heartbeat_gets_nothing(town):
    """T12: by the heartbeats of its neighbours, since PD's clock need not be ours."""
    town = town()
    tell(town, now=115.0, s2=(0, 100.0))
    assert town.summary.stores[2].takes_leaders and town.summary.stores[2].takes_peers
    tell(town, now=115.1, s2=(0, 100.0))
    assert not town.summary.stores[2].takes_leaders and not town.summary.stores[2].takes_peers


def test_no_leader_is_sent_to_a_store_that_may_be_dead(town):
    """T12: it leads least of all, and others get the leaders meanwhile."""
    town = town(4)
    tell(town, now=100.0, s2=(30, 98.0))
    for n in range(40):
        town.region(n, 1, 2, 3)
    tell(town, now=107.0, s2=(0, 98.0))
    proposals = list(schedulers.propose(town.picture(), "balance-leader", 10))
    assert proposals and {w.move.steps[0].to_store for w in proposals} == {3}


def test_a_learner_left_behind_goes_before_the_dead_voter(town):
    """T12: what a canceled move left behind must not count as the peer that the dead store's was."""
    town = town(4)
    town.region(1, 1, 2, 3)
    town.region(2, 1, 2, 3)
    peers = (Peer(31, 1), Peer(32, 2), Peer(33, 3), Peer(34, 4, "Learner"))
    town.summary.put(Region(3, "00000003", "00000004", peers=peers, leader_store=1, size_mib=96))
    town.state(2, "Down")
    proposals = {w.move.regions[0]: w.move.steps for w in schedulers.propose(town.picture(), "replica", 10)}
    assert [(s.kind, s.store) for s in proposals[3]] == [("RemovePeer", 4)]
    assert [s.store for s in proposals[1]] == [4, 4, 2]
