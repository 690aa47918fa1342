"""The eviction's state machine as a pure function: every exit, from every place in its diagram.

A small world of values stands for everything outside: what the machine asks for is done to it, and time goes on.
"""

from math import inf

import msgspec
import pytest

from mooring.capabilities.handoff.eviction import next_eviction_step
from mooring.capabilities.handoff.operators import eviction_for, marks_of, read_back
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.requests import EVICT_LEADER, EXPIRATION, RESTART, request_of
from mooring.core.model.cluster import Key, Node, Pod, PodShape, Requirement, SelectorTerm, Volume
from mooring.core.model.decision import OperatorRecord, Verdict
from mooring.core.model.instructions import AddEvictLeader, Patch, RemoveEvictLeader
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import GAVE_UP, HANDOFF
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import PdView, Store, TidbCluster
from mooring.core.world.outside import Outside as Looks

CLUSTER = Key("tidb", "demo")
POLICY = HandoffPolicy(timeout_s=600.0)
change = msgspec.structs.replace


class Outside:
    """One member, its cluster, its PD. `view` is seen anew whenever time passes, unless PD is away."""

    def __init__(self):
        self.now = 100_000.0
        self.tc = TidbCluster("tidb", "demo", "tc-1", "1", tikv_replicas=3)
        self.member = Pod(
            "tidb", "demo-tikv-0", "old", "1", PodShape(), node="n1", ready=True, annotations={RESTART: ""}
        )
        heard = {"last_heartbeat_at": inf}  # just now, at whatever moment
        stores = tuple(
            Store(i, f"demo-tikv-{i - 1}:20160", leader_count=30, region_count=90, **heard) for i in (1, 2, 3)
        )
        self.view = PdView(stores, (), 90, start_timestamp=1, leader="pd-0")
        self.away = None
        self.entries = {}
        self.bound = ()
        self.looks = Looks()
        self.looks.look(CLUSTER, self.view, self.now - 60)

    def tidb_cluster(self, _):
        return self.tc

    def pod(self, _):
        return self.member

    def workload(self, _kind, _key):
        return None

    def pd(self, cluster):
        return self.looks.pd[cluster].view

    def pd_look(self, cluster):
        return self.looks.pd[cluster]

    def pd_lost(self, _):
        return self.away

    def volumes_of(self, _):
        return self.bound

    def node(self, name):
        return next((n for n in self.nodes() if n.name == name), None)

    def nodes(self):
        return (Node("n1", "u1", "1", unschedulable=True, ready="True"), Node("n2", "u2", "1", ready="True"))

    def leaders(self, *counts):
        stores = tuple(change(s, leader_count=n) for s, n in zip(self.view.stores, counts, strict=True))
        self.view = change(self.view, stores=stores)

    def carry_out(self, instruction):
        match instruction:
            case AddEvictLeader(store_id=store):
                self.view = change(self.view, evicting=(*self.view.evicting, store))
            case RemoveEvictLeader(store_id=store):
                self.view = change(self.view, evicting=tuple(s for s in self.view.evicting if s != store))
            case Patch(kind=Kind.TIDB_CLUSTER, patch=patch):
                said = patch["metadata"]["annotations"][HANDOFF]
                self.tc = change(self.tc, annotations={HANDOFF: said} if said else {})
                self.entries |= patch["status"]["tikv"]["evictLeaderStatus"]
            case Patch(kind=Kind.POD, patch=patch):
                gone = {k for k, v in patch["metadata"]["annotations"].items() if v is None}
                kept = {k: v for k, v in self.member.annotations.items() if k not in gone}
                self.member = change(self.member, annotations=kept)


def begin(world):
    operator = eviction_for(CLUSTER, world.member, request_of(world.member), 1, str(CLUSTER))
    return OperatorRecord(operator=change(operator, id="7"), promoted_at=world.now - 1)


def step(world, running):
    """One question and its consequences; the End, if that was the answer."""
    world.now += 1.0
    if not world.away:
        world.looks.look(CLUSTER, world.view, world.now)
    course = next_eviction_step(running, world, POLICY, world.now)
    running.step = course.step
    running.notes = dict(course.notes)
    for instruction in course.instructions:
        assert not world.away or not isinstance(instruction, AddEvictLeader | RemoveEvictLeader)
        world.carry_out(instruction)
        running.acted_at = world.now
    return course.end


def reach(place):
    """The world and the operator in that place of the diagram."""
    world = Outside()
    running = begin(world)
    if place == "asked":
        return world, running
    step(world, running)
    assert marks_of(world.tc).keys() == {"demo-tikv-0"}
    assert world.view.evicting == ()
    if place == "recorded":
        return world, running
    step(world, running)
    assert world.view.evicting == (1,)
    if place == "evicting":
        return world, running
    world.leaders(0, 45, 45)
    for _ in range(6):
        assert step(world, running) is None
    assert running.step == 1
    return world, running


def annotated(**annotations):
    return lambda w: setattr(w, "member", change(w.member, annotations=annotations))


def new_pod(w):
    w.member = Pod("tidb", "demo-tikv-0", "new", "2", PodShape(), node="n2", ready=True, created_at=w.now)


def other_store(w):
    first, *others = w.view.stores
    w.view = change(w.view, stores=(change(first, id=9), *others))


def alone(w):
    first, *others = w.view.stores
    w.view = change(w.view, stores=(first, *(change(s, state="Disconnected") for s in others)))


def bound(w):
    term = SelectorTerm(fields=(Requirement("metadata.name", "In", ("n1",)),))
    w.bound = (Volume("pv-1", "v1", "1", required_terms=(term,)),)


def scaled_in(w):
    w.member, w.tc = None, change(w.tc, tikv_replicas=0)


EXITS = {
    "annotation removed": (annotated(), Reason.WITHDRAWN),
    "annotation changed": (annotated(**{EVICT_LEADER: "none"}), Reason.WITHDRAWN),
    "expired": (annotated(**{RESTART: "", EXPIRATION: "1970-01-01T00:00:01Z"}), Reason.EXPIRED),
    "pod recreated by others": (new_pod, Reason.DONE),
    "member scaled in": (scaled_in, Reason.SUBJECT_GONE),
    "store id changed": (other_store, Reason.STORE_CHANGED),
    "one store only": (alone, Reason.ONE_STORE),
    "nowhere to come back to": (bound, Reason.LOCAL_VOLUME),
    "leaders that will not go": (lambda w: setattr(w, "now", w.now + 601.0), Reason.TIMEOUT),
}
PLACES = ("asked", "recorded", "evicting", "empty")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", EXITS)
def test_every_exit_leaves_nothing_behind(way, place):
    """E5, E9: whatever ends it and wherever it is: scheduler out of PD, entry out of the status, the mark gone (or, when it
    was given up, a memory that evicts nothing)."""
    world, running = reach(place)
    pull, reason = EXITS[way]
    pull(world)
    ends = [end for end in (step(world, running) for _ in range(8)) if end is not None]
    assert ends[0].reason is reason
    assert world.view.evicting == ()
    assert not any(world.entries.values())
    left = marks_of(world.tc)
    given_up = reason is Reason.TIMEOUT and place != "asked"
    assert [m.step for m in left.values()] == ([GAVE_UP] if given_up else [])


@pytest.mark.parametrize("place", PLACES[1:])
@pytest.mark.parametrize("way", EXITS)
def test_exit_while_pd_is_down_waits_for_it(way, place):
    """E4, E5: nobody can remove a scheduler from a PD that is away: the mark stays until it has been seen to be gone."""
    world, running = reach(place)
    pull, reason = EXITS[way]
    pull(world)
    world.away = Verdict(State.WAITING, Reason.PD_UNREACHABLE, "connection refused")
    assert all(step(world, running) is None for _ in range(5))
    assert marks_of(world.tc), "who comes next must know"
    world.away = None
    ends = [end for end in (step(world, running) for _ in range(8)) if end is not None]
    assert ends[0].reason is reason
    assert world.view.evicting == ()
    assert not any(world.entries.values())


@pytest.mark.parametrize("place", PLACES)
def test_cluster_gone_asks_pd_once_more(place):
    """E5: the mark is gone with its cluster; PD may outlive it and is asked to end what we began there."""
    world, running = reach(place)
    world.tc = None
    ends = [end for end in (step(world, running) for _ in range(8)) if end is not None]
    assert ends[0].reason is Reason.CLUSTER_GONE
    assert world.view.evicting == ()


@pytest.mark.parametrize("place", ["recorded", "evicting", "empty"])
@pytest.mark.parametrize("way", ["annotation removed", "store id changed"])
def test_scheduler_that_was_there_before_us_stays(place, way):
    """E5: we undo only what the mark says that we did."""
    world = Outside()
    world.view = change(world.view, evicting=(1,))
    running = begin(world)
    step(world, running)
    if place != "recorded":
        world.leaders(0 if place == "empty" else 10, 40, 40)
        step(world, running)
    EXITS[way][0](world)
    ends = [end for end in (step(world, running) for _ in range(8)) if end is not None]
    assert ends
    assert world.view.evicting == (1,)
    assert not marks_of(world.tc)


def test_a_pd_that_lists_only_some_of_its_schedulers_yet_ends_nothing():
    """E5: a PD that comes back adds its schedulers one by one; ours is among them a moment later, and is taken out. The
    mark stays until then, or nobody would know that it was ours."""
    world, running = reach("evicting")
    world.member = change(world.member, annotations={})
    world.view = change(world.view, evicting=(), start_timestamp=2)
    assert step(world, running) is None
    assert marks_of(world.tc)
    world.view = change(world.view, evicting=(1,))
    ends = [step(world, running) for _ in range(4)]
    assert world.view.evicting == ()
    assert not marks_of(world.tc)
    assert Reason.WITHDRAWN in [end.reason for end in ends if end is not None]


def test_a_scheduler_that_is_gone_after_pd_restarted_is_not_waited_for():
    """E5: a person took it out while PD was away: absent in two looks, some seconds apart, is gone."""
    world, running = reach("evicting")
    world.member = change(world.member, annotations={})
    world.view = change(world.view, evicting=(), start_timestamp=2)
    ends = [step(world, running) for _ in range(8)]
    assert Reason.WITHDRAWN in [end.reason for end in ends if end is not None]
    assert not marks_of(world.tc)


def outlives(world, running, turns=12):
    """The request is withdrawn; what PD evicts when all is over."""
    world.member = change(world.member, annotations={})
    ends = [end for end in (step(world, running) for _ in range(turns)) if end is not None]
    assert ends
    assert not marks_of(world.tc)
    return world.view.evicting


def test_a_scheduler_that_pd_lists_late_after_its_restart_is_not_taken_for_absent():
    """E3: a person's is stored in PD, and the list of a PD that has just come back does not name it yet when we begin."""
    world, running = reach("asked")
    world.view = change(world.view, evicting=(), start_timestamp=2)
    assert step(world, running) is None
    assert not marks_of(world.tc), "whose it is cannot be said yet"
    world.view = change(world.view, evicting=(1,))
    for _ in range(4):
        step(world, running)
    assert marks_of(world.tc)["demo-tikv-0"].before == {"evicting": "true"}
    assert outlives(world, running) == (1,)


def test_another_clients_scheduler_that_pd_lists_late_does_not_become_ours():
    """E3: it was there before us; PD restarts midway and does not list it for a moment."""
    world = Outside()
    world.view = change(world.view, evicting=(1,))
    running = begin(world)
    step(world, running)
    world.view = change(world.view, evicting=(), start_timestamp=2)
    step(world, running)
    world.view = change(world.view, evicting=(1,))
    for _ in range(4):
        step(world, running)
    assert marks_of(world.tc)["demo-tikv-0"].before == {"evicting": "true"}
    assert outlives(world, running) == (1,)


def test_another_clients_scheduler_that_is_gone_for_good_gives_way_to_ours():
    """E3, E5: absent for longer than PD takes to list it, so ours takes its place and is ended by us."""
    world = Outside()
    world.view = change(world.view, evicting=(1,))
    running = begin(world)
    step(world, running)
    world.view = change(world.view, evicting=(), start_timestamp=2)
    for _ in range(8):
        step(world, running)
    assert world.view.evicting == (1,)
    assert marks_of(world.tc)["demo-tikv-0"].before == {}
    assert outlives(world, running) == ()


@pytest.mark.parametrize("seen", [True, False], ids=["seen while it runs", "withdrawn at once"])
def test_a_scheduler_that_came_between_our_mark_and_ours_stays(seen):
    """E3: we never added one, so the one that is there is another client's, whatever the mark was written for."""
    world, running = reach("recorded")
    world.view = change(world.view, evicting=(1,))
    if seen:
        step(world, running)
        step(world, running)
        assert marks_of(world.tc)["demo-tikv-0"].before == {"evicting": "true"}
    assert outlives(world, running) == (1,)


def test_a_scheduler_that_came_between_our_mark_and_ours_outlives_the_cluster():
    """E3: nothing of it is ours to end when the TidbCluster is deleted."""
    world, running = reach("recorded")
    world.view = change(world.view, evicting=(1,))
    world.tc = None
    assert [end for end in (step(world, running) for _ in range(4)) if end is not None]
    assert world.view.evicting == (1,)


@pytest.mark.parametrize("deadline", [None, 9e9])
def test_a_scheduler_of_ours_from_before_a_restart_is_ours(deadline):
    """E5: what the mark says is all that a new leader knows, and it ends what was begun, under a notice too."""
    world, running = reach("evicting")
    ((name, mark),) = marks_of(world.tc).items()
    resumed, *_ = read_back(world.tc.key, name, change(mark, deadline=deadline), "")
    running = OperatorRecord(operator=resumed.operator, promoted_at=world.now)
    assert outlives(world, running) == ()


def test_a_scheduler_of_another_leader_whose_operator_had_the_same_number_is_ours():
    """E5: a leader that sees the mark late proposes anew, and its operator may have the number that the mark names."""
    world, running = reach("evicting")
    running = OperatorRecord(operator=running.operator, promoted_at=world.now)
    assert outlives(world, running) == ()


def test_a_pd_that_took_over_while_we_were_away_is_believed_once_its_stores_have_reported():
    """E6: one node may have run both our leader and PD's: what we noted is lost, the mark still names the PD before."""
    world, running = reach("evicting")
    world.leaders(0, 45, 45)
    world.view = change(world.view, leader="pd-1")
    world.looks = Looks()  # ours is another process from here on
    running = OperatorRecord(operator=change(running.operator, reason=Reason.RESUMED), promoted_at=world.now)
    took_over = world.now
    while running.step != 1:
        assert step(world, running) is None
    assert world.now - took_over >= POLICY.young_pd_s


def test_our_own_restart_alone_does_not_put_the_proof_off():
    """E6: the same PD leads as when it began."""
    world, running = reach("evicting")
    world.leaders(0, 45, 45)
    world.looks = Looks()
    running = OperatorRecord(operator=change(running.operator, reason=Reason.RESUMED), promoted_at=world.now)
    for _ in range(6):
        step(world, running)
    assert running.step == 1
