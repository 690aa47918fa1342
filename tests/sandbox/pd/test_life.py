"""Evicting leaders, and what PD shows while it or a store comes and goes."""

import pytest

from mooring.clients.ports import NotFoundError, UnansweredError
from mooring.core.model.tidb import TidbCluster
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.pd import SandboxPd

TC = TidbCluster("default", "demo", "u", "1")


def leaders(pd):
    return {s.id: s.leader_count for s in pd.server.stores()}


def truth(pd):
    return {s: len(led) for s, led in pd.server.tikv.led.items()}


def groups(pd):
    return pd.server.tikv.groups.values()


def test_evicted_store_loses_its_leaders_to_the_others(make_pd, look, timeline):
    """E1: the scheduler takes every leader off its store, in a few seconds, and they stay off."""
    pd = make_pd()
    look(pd.add_evict_leader(1))
    assert timeline.run_while(lambda: leaders(pd)[1] > 0, limit_s=10)
    timeline.run_for(60)
    assert leaders(pd)[1] == 0 and sum(leaders(pd).values()) == 30
    assert look(pd.observe()).evicting == (1,)


def test_leaders_return_when_the_eviction_ends(make_pd, look, timeline):
    """After the scheduler is removed, balance-leader brings leaders back until the difference is tolerable."""
    pd = make_pd(regions=90)
    look(pd.add_evict_leader(1))
    timeline.run_for(30)
    assert leaders(pd)[1] == 0
    look(pd.remove_evict_leader(1))
    timeline.run_for(30)
    found = leaders(pd)
    assert max(found.values()) - min(found.values()) <= 10
    assert look(pd.observe()).evicting == ()


@pytest.mark.parametrize("restarts", [False, True])
def test_replicas_that_were_too_few_stores_for_come_with_the_stores(look, timeline, restarts):
    """A cluster that began with one store has nowhere to lead but there; as stores come PD adds the replicas that its
    rule asks for, also when it restarts midway, and then the leaders can leave."""
    pd = SandboxPd(timeline, seed=1)
    pd.attach("demo-tikv-0")
    pd.load(regions=30, replenish=True)
    look(pd.add_evict_leader(1))
    timeline.run_for(60)
    assert truth(pd)[1] == 30
    pd.pod_ready("demo-tikv-1")
    if restarts:
        timeline.run_while(lambda: not any(p.role == "Learner" for g in groups(pd) for p in g.peers), limit_s=30)
        pd.restart()
    timeline.run_for(300)
    assert truth(pd)[1] == 0
    assert {tuple(p.role for p in g.peers) for g in groups(pd)} == {("Voter", "Voter")}
    pd.pod_ready("demo-tikv-2")
    timeline.run_for(300)
    assert {len(g.peers) for g in groups(pd)} == {3}


def test_a_voter_too_many_is_taken_away(make_pd, look, timeline):
    """A move that was canceled midway leaves one; PD's rule checker removes it, whoever set the rules."""
    pd = make_pd(stores=4, regions=30)
    region = next(g for g in groups(pd) if 4 not in {p.store_id for p in g.peers})
    look(pd.add_operator({"name": "add-peer", "region_id": region.id, "store_id": 4}))
    timeline.run_while(lambda: max(len(g.peers) for g in groups(pd)) == 3, limit_s=60)
    timeline.run_for(120)
    assert {len(g.peers) for g in groups(pd)} == {3}


def test_paused_balance_leaves_leaders_where_they_are(make_pd, look, timeline):
    """A paused scheduler moves nothing until its pause is over, and then goes on by itself."""
    pd = make_pd(regions=90)
    look(pd.add_evict_leader(1))
    timeline.run_for(30)
    look(pd.pause_scheduler("balance-leader-scheduler", 100))
    assert look(pd.schedulers(paused=True)) == ("balance-leader-scheduler",)
    look(pd.remove_evict_leader(1))
    timeline.run_for(99)
    assert leaders(pd)[1] == 0
    timeline.run_for(30)
    assert leaders(pd)[1] > 0


def test_evicting_every_store_moves_nothing(make_pd, look, timeline):
    """With no store left to lead, PD accepts the wish and moves nothing, without an error."""
    pd = make_pd()
    for store in (1, 2, 3):
        look(pd.add_evict_leader(store))
        # Before PD finds the time to begin.
    timeline.run_for(60)
    assert leaders(pd) == {1: 10, 2: 10, 3: 10}


def test_eviction_needs_a_healthy_follower(make_pd, look, timeline):
    """Leaders whose followers are all away stay where they are, and leave as soon as one is back."""
    pd = make_pd()
    look(pd.add_evict_leader(2))
    timeline.run_for(30)
    pd.pod_gone("demo-tikv-1")
    look(pd.remove_evict_leader(2))
    pd.pod_gone("demo-tikv-2")
    timeline.run_for(60)  # store 1 is alone: no quorum, nobody to go to
    look(pd.add_evict_leader(1))
    timeline.run_for(60)
    before = truth(pd)[1]
    assert before > 0
    pd.pod_ready("demo-tikv-1")
    timeline.run_for(120)
    assert truth(pd)[1] == 0


def test_restart_shows_a_false_zero(make_pd, look, timeline):
    """E6: a PD just restarted shows every store Up without leaders and cannot say what it evicts; the truth is otherwise."""
    pd = make_pd()
    look(pd.add_evict_leader(1))
    timeline.run_for(0.1)  # some leaders are still on their way
    before = look(pd.observe())
    pd.restart(down_s=3)
    with pytest.raises(UnansweredError):
        look(pd.observe())
    timeline.run_for(3.1)
    view = look(pd.observe())
    assert [(s.state, s.leader_count) for s in view.stores] == [("Up", 0)] * 3
    assert sum(s.region_count for s in view.stores) == 90 and view.region_count == 30
    assert view.evicting is None and view.operators == ()
    assert view.start_timestamp != before.start_timestamp
    assert look(pd.schedulers()) == ()
    assert sum(truth(pd).values()) == 30
    timeline.run_for(30)
    view = look(pd.observe())
    assert view.evicting == (1,), "the wish survives the restart"
    assert sum(s.leader_count for s in view.stores) == 30 and view.stores[0].leader_count == 0


def test_restarting_pd_takes_no_orders_about_schedulers(make_pd, look, timeline):
    """While PD cannot list its schedulers, neither adding nor removing one pretends to have worked."""
    pd = make_pd()
    look(pd.add_evict_leader(1))
    pd.restart(down_s=1)
    timeline.run_for(1.1)
    with pytest.raises(UnansweredError):
        look(pd.remove_evict_leader(1))
    with pytest.raises(UnansweredError):
        look(pd.add_evict_leader(2))
    timeline.run_for(30)
    look(pd.remove_evict_leader(1))
    assert look(pd.observe()).evicting == ()


def test_leaders_come_back_for_a_moment_when_pd_begins_again(make_pd, look, timeline):
    """E6: seen on a real PD: after a restart balance-leader acts before evict-leader counts, on a store proven empty."""
    pd = make_pd(regions=90)
    look(pd.add_evict_leader(1))
    timeline.run_for(20)
    assert truth(pd)[1] == 0
    pd.restart()
    assert timeline.run_while(lambda: truth(pd)[1] == 0, limit_s=30), "some came back"
    assert look(pd.observe()).evicting == (1,)
    timeline.run_for(10)
    assert truth(pd)[1] == 0


def test_restart_without_regions_looks_settled(make_pd, look, timeline):
    """E6: seen on a real PD killed right after it was filled: no regions, no leaders, and the eviction listed at once."""
    pd = make_pd()
    look(pd.add_evict_leader(1))
    pd.restart(down_s=3, regions_known=False)
    timeline.run_for(3.1)
    view = look(pd.observe())
    assert view.evicting == (1,) and view.region_count == 0
    assert [(s.state, s.leader_count, s.region_count) for s in view.stores] == [("Up", 0, 0)] * 3
    assert sum(truth(pd).values()) == 30
    timeline.run_for(30)
    assert look(pd.observe()).region_count == 30 and truth(pd)[1] == 0


def test_pod_deleted_with_leaders_is_an_interruption(make_pd, timeline):
    """A pod that goes with leaders on it is written down with their number; others lead them a lease later."""
    pd = make_pd()
    pd.pod_gone("demo-tikv-0")
    assert [(i.pod_name, i.leaders) for i in pd.interruptions] == [("demo-tikv-0", 10)]
    assert sum(truth(pd).values()) == 20
    assert leaders(pd)[1] == 10, "PD has not noticed yet"
    timeline.run_for(25)
    assert truth(pd)[1] == 0 and sum(truth(pd).values()) == 30
    assert leaders(pd) == truth(pd)


def test_pod_deleted_without_leaders_is_none(make_pd, look, timeline):
    """E1: handed over first, the same pod goes without anybody noticing, and its store is Up again with it."""
    pd = make_pd()
    look(pd.add_evict_leader(1))
    timeline.run_for(20)
    pd.pod_gone("demo-tikv-0")
    timeline.run_for(45)
    assert look(pd.observe()).store_of(TC, "demo-tikv-0").state == "Disconnected"
    pd.pod_ready("demo-tikv-0")
    assert look(pd.observe()).store_of(TC, "demo-tikv-0").state == "Up"
    assert pd.interruptions == []


def test_store_states_by_silence(make_pd, timeline):
    """Disconnected after 20 s without a heartbeat, Down after half an hour, and then its peers are made up for elsewhere."""
    pd = make_pd(stores=4, regions=40)
    store = pd.store_of("demo-tikv-3")
    pd.pod_gone("demo-tikv-3")
    timeline.run_for(9)
    assert pd.server.state_of(store) == "Up"
    timeline.run_for(22)
    assert pd.server.state_of(store) == "Disconnected"
    assert pd.server.heard.region_counts[store.id] == 30
    timeline.run_for(1800)
    assert pd.server.state_of(store) == "Down"
    timeline.run_for(600)
    assert pd.server.heard.region_counts[store.id] == 0


def test_silent_store_still_leads(make_pd, look, timeline):
    """E4: a store that PD does not hear is Disconnected with its leaders, which are really there; heard again, it is Up."""
    pd = make_pd()
    pd.silence("demo-tikv-0")
    timeline.run_for(60)
    store = look(pd.observe()).store_of(TC, "demo-tikv-0")
    assert (store.state, store.leader_count) == ("Disconnected", 10) and truth(pd)[1] == 10
    pd.silence("demo-tikv-0", silent=False)
    timeline.run_for(1)
    assert look(pd.observe()).store_of(TC, "demo-tikv-0").state == "Up"
    assert pd.interruptions == []


def test_leaders_that_will_not_go(make_pd, look, timeline):
    """E4: an eviction may hang on a few leaders for as long as they like, and ends when they let go."""
    pd = make_pd()
    pd.stick("demo-tikv-0", leaders=2)
    look(pd.add_evict_leader(1))
    timeline.run_for(300)
    assert leaders(pd)[1] == 2 and look(pd.observe()).evicting == (1,)
    pd.stick("demo-tikv-0", leaders=0)
    timeline.run_for(130)
    assert leaders(pd)[1] == 0


def test_lost_pd_leader_keeps_what_it_knows(make_pd, look, timeline):
    """With three members, killing the leader means 500s for a while; leaders and schedulers are known to the next one."""
    pd = make_pd(members=("pd-0", "pd-1", "pd-2"))
    look(pd.add_evict_leader(1))
    timeline.run_for(20)
    before = look(pd.observe())
    pd.lose_leader()
    timeline.run_for(11)
    with pytest.raises(UnansweredError, match="redirect"):
        look(pd.observe())
    timeline.run_for(1.0)
    after = look(pd.observe())
    assert before.leader == "pd-0" and after.leader == "pd-1"
    assert after.evicting == (1,)
    assert sum(s.leader_count for s in after.stores) == 30
    timeline.run_for(10)
    assert truth(pd)[1] == 0 and pd.interruptions == []


def test_lost_answer_did_happen(make_pd, look, timeline):
    """An answer that is lost leaves its effect; a request that is lost leaves none. Only looking tells."""
    pd = make_pd()
    pd.lose_requests()
    with pytest.raises(UnansweredError):
        look(pd.add_evict_leader(1))
    assert look(pd.observe()).evicting == ()
    pd.lose_answers()
    with pytest.raises(UnansweredError):
        look(pd.add_evict_leader(1))
    assert look(pd.observe()).evicting == (1,)


def test_unknown_store_is_not_found(make_pd, look):
    """Evicting a store that PD does not know says so."""
    with pytest.raises(NotFoundError, match="999"):
        look(make_pd().add_evict_leader(999))


def test_regions_come_with_the_last_store(timeline, look):
    """A scenario may ask for regions before its pods run: they are there as soon as the stores are, leaders on each."""
    pd = SandboxPd(timeline)
    pd.load(regions=9, when_stores=3)
    for i in range(3):
        assert look(pd.observe()).region_count == 0
        pd.pod_ready(f"demo-tikv-{i}")
    view = look(pd.observe())
    assert view.region_count == 9 and view.evicting == ()
    assert [s.leader_count for s in view.stores] == [3, 3, 3]


def test_two_runs_with_one_seed_are_the_same(look):
    """The same seed gives the same transfers at the same moments."""

    def run():
        timeline = Timeline()
        pd = SandboxPd(timeline, seed=7)
        for i in range(4):
            pd.attach(f"demo-tikv-{i}")
        pd.load(regions=50)
        ended = []
        pd.server.operators.on_end = lambda op: (ended.append((timeline.monotonic(), op.line())), pd.server.kick())
        look(pd.add_evict_leader(2))
        timeline.run_for(5)
        pd.restart()
        timeline.run_for(60)
        return ended, truth(pd)

    assert run() == run()
    assert len(run()[0]) > 10


def test_idle_cluster_costs_nothing(make_pd, timeline):
    """A balanced cluster with nothing to do sets no timer: an hour of it is free."""
    make_pd()
    timeline.run_for(60)
    assert timeline.next_at() is None
