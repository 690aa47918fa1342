"""Each scheduler proposals for what evens out, repairs or reshapes, and for nothing that would come back."""

from itertools import islice

import pytest

from mooring.capabilities.balance import BalancePolicy, Influence, Picture, operator_of, propose
from mooring.capabilities.balance.policy import BALANCE_LEADER, BALANCE_REGION, HOT, MERGE, REPLICA, SPLIT
from mooring.core.model.tidb import Region
from mooring.core.queue import Settings
from mooring.core.queue.config import REGION_SCHEDULERS


def moves(picture, source, room=3):
    """What a scheduler proposals for, as (region, [(step, store or from→to)])."""
    return [
        (w.move.regions[0], [(s.kind.value, s.store or (s.from_store, s.to_store)) for s in w.move.steps])
        for w in propose(picture, source, room)
    ]


def leaning(town, **how):
    """Twenty regions, all led by store 1."""
    made = town(**how)
    for n in range(1, 21):
        made.region(n, 1, 2, 3)
    return made


def test_leaders_leave_the_store_that_leads_most(town):
    """T12: balance-leader hands leadership from the store with most to the follower with fewest, one region each."""
    proposals = moves(leaning(town).picture(), BALANCE_LEADER, room=4)
    assert [steps for _, steps in proposals] == [
        [("TransferLeader", (1, 2))],
        [("TransferLeader", (1, 3))],
        [("TransferLeader", (1, 2))],
        [("TransferLeader", (1, 3))],
    ]
    assert len({region for region, _ in proposals}) == 4


def test_leaders_stop_moving_before_they_would_come_back(town):
    """T10: proposals end while the giver still leads no less than the taker, so none is undone."""
    made = leaning(town)
    proposals = moves(made.picture(), BALANCE_LEADER, room=100)
    led = {1: 20, 2: 0, 3: 0}
    for _, [(_, (source, target))] in proposals:
        led[source] -= 1
        led[target] += 1
        assert led[source] >= led[target]
    assert max(led.values()) - min(led.values()) <= made.policy.leader_tolerance


@pytest.mark.parametrize("how", ["evicting", "Down", "Offline", "Disconnected"])
def test_no_leader_goes_where_none_is_taken(town, how):
    """T12: a store whose leaders are being taken off, or that is not Up, is given none."""
    made = leaning(town)
    made.evict(2) if how == "evicting" else made.state(2, how)
    targets = {steps[0][1][1] for _, steps in moves(made.picture(), BALANCE_LEADER, room=50)}
    assert targets == {3}


def test_what_is_under_way_counts(town):
    """T10: an imbalance that operators under way will cure is not cured again."""
    made = leaning(town)
    picture = made.picture()
    first = list(propose(picture, BALANCE_LEADER, 100))
    later = Picture(made.summary, Influence(made.summary))
    for proposal in first:
        later.influence.add(proposal.move.regions, proposal.move.steps)
    assert list(propose(later, BALANCE_LEADER, 100)) == []


def test_an_operator_half_done_counts_half(town):
    """T10: a step whose effect the region already shows is not counted once more."""
    made = town(stores=4)
    made.region(1, 1, 2, 3)
    (proposal,) = islice(propose(_full(made, 1).picture(), BALANCE_REGION, 1), 1)
    to = next(s.store for s in proposal.move.steps if s.store)
    influence = Influence(made.summary)
    influence.add(proposal.move.regions, proposal.move.steps)
    assert influence.size_mib[to] == 96
    region = made.summary.regions[proposal.move.regions[0]]
    made.region(region.id, *[p.store_id for p in region.peers], to, leader=region.leader_store)
    influence = Influence(made.summary)
    influence.add(proposal.move.regions, proposal.move.steps)
    assert to not in influence.size_mib and sum(influence.size_mib.values()) == -96


def _full(made, first, count=30):
    for n in range(first, first + count):
        made.region(n, 1 + n % 3, 1 + (n + 1) % 3, 1 + (n + 2) % 3)
    return made


def test_peers_move_to_the_new_store_and_followers_go_first(town):
    """T12: balance-region moves a follower's peer from the fullest store to the empty one, add before remove."""
    made = _full(town(stores=4), 1)
    for region, steps in moves(made.picture(), BALANCE_REGION, room=6):
        (added, to), (promoted, also), (removed, source) = steps
        assert (added, promoted, removed) == ("AddLearner", "PromoteLearner", "RemovePeer")
        assert to == also == 4
        assert made.summary.regions[region].leader_store != source


def test_an_only_peer_takes_its_leader_with_it(town):
    """A region of one replica cannot step aside first: its leader follows the data in the same operator."""
    made = town(stores=2)
    for n in range(1, 21):
        made.region(n, 1)
    (_, steps), *_ = moves(made.picture(), BALANCE_REGION, room=1)
    assert [kind for kind, _ in steps] == ["AddLearner", "PromoteLearner", "TransferLeader", "RemovePeer"]


def test_large_regions_weigh_more(town):
    """Stores are compared by what they hold, not by how many regions: one large region is not joined by small ones."""
    made = town(stores=3)
    made.region(1, 1, size=2000)
    for n in range(2, 22):
        made.region(n, 2, size=50)
    made.region(22, 3, size=900)
    assert all(steps[0][1] != 1 for _, steps in moves(made.picture(), BALANCE_REGION, room=10))


def test_replicas_stay_apart(town):
    """No move makes two replicas of a region share a zone that did not share one before."""
    zones = {1: "a", 2: "b", 3: "c", 4: "a"}
    made = _full(town(stores=4, labels={s: {"zone": z} for s, z in zones.items()}), 1)
    for _, steps in moves(made.picture(), BALANCE_REGION, room=20):
        assert steps[-1] == ("RemovePeer", 1), "only a peer in zone a may go to another store in zone a"


def test_peers_leave_a_store_that_is_offline(town):
    """T12: replica moves peers off an Offline store; a leader there steps aside first."""
    made = _full(town(stores=4), 1, count=3)
    made.state(1, "Offline")
    for region, steps in moves(made.picture(), REPLICA, room=9):
        if made.summary.regions[region].leader_store == 1:
            assert [kind for kind, _ in steps] == ["TransferLeader"]
        else:
            assert steps[0] == ("AddLearner", 4) and steps[-1] == ("RemovePeer", 1)


def test_a_lost_peer_is_made_up_for_and_a_surplus_one_goes(town):
    """T12: as many peers as most regions have: one too few is added, one too many is removed, never the leader's."""
    made = _full(town(stores=4), 1, count=6)
    made.region(50, 2, 3)
    made.region(51, 1, 2, 3, 4)
    found = dict(moves(made.picture(), REPLICA, room=9))
    assert [k for k, _ in found[50]] == ["AddLearner", "PromoteLearner"]
    assert found[51][0][0] == "RemovePeer" and found[51][0][1] != 1


def test_a_region_without_a_leader_is_left_alone(town):
    """Nobody could carry it out."""
    made = _full(town(stores=4), 1, count=6)
    made.region(50, 2, 3, leader=0)
    assert 50 not in dict(moves(made.picture(), REPLICA, room=9))


def test_hot_regions_leave_the_hot_store(town):
    """T12: hot takes leaders off the store that serves most, and stops before another store is hotter."""
    made = town(policy=BalancePolicy(sources=REGION_SCHEDULERS, hot_region_bytes=100))
    for n in range(1, 7):
        made.region(n, 1, 2, 3, flow=1000)
    proposals = moves(made.picture(), HOT, room=10)
    assert len(proposals) >= 2 and {steps[0][1][1] for _, steps in proposals} == {2, 3}
    served = {1: 6000, 2: 0, 3: 0}
    for _, [(_, (source, target))] in proposals:
        served[source] -= 1000
        served[target] += 1000
    assert max(served.values()) <= 1.5 * 2000


def test_one_region_that_is_all_the_heat_stays(town):
    """Moving it would only make another store hot."""
    made = town(policy=BalancePolicy(sources=REGION_SCHEDULERS, hot_region_bytes=100))
    made.region(1, 1, 2, 3, flow=100_000)
    assert moves(made.picture(), HOT) == []


def test_small_neighbours_on_the_same_stores_merge(town):
    """T12: merge claims both regions; neighbours that lie elsewhere, or are large, are no partners."""
    made = town(stores=4)
    made.region(1, 1, 2, 3, size=5)
    made.region(2, 1, 2, 3, size=9)
    made.region(4, 1, 2, 3, size=5)
    made.region(5, 2, 3, 4, size=5)
    (proposal,) = propose(made.picture(), MERGE, 5)
    assert proposal.move.regions == (1, 2)
    operator = operator_of(proposal, Settings(), "tidb/demo")
    assert operator.claims == ("region/tidb/demo/1", "region/tidb/demo/2")
    assert operator.cost == {"store/tidb/demo/1": 3, "store/tidb/demo/2": 2, "store/tidb/demo/3": 2}


def test_large_regions_split(town):
    """T12: split takes every region above the threshold, and no other."""
    made = town()
    made.region(1, 1, 2, 3, size=500)
    made.region(2, 1, 2, 3, size=96)
    assert moves(made.picture(), SPLIT) == [(1, [("SplitRegion", (None, None))])]


def test_a_store_full_of_immovable_regions_does_not_hide_the_rest(town):
    """Each look begins elsewhere, so regions beyond the first window are found."""
    made = town(stores=4)
    for n in range(1, 301):
        made.region(n, 1, 2, 3, pending_peers=(n * 10 + 1,) if n <= 280 else ())
    found = [r for turn in range(8) for r, _ in moves(made.picture(turn), BALANCE_LEADER, room=1)]
    assert found and min(found) > 280


def test_same_picture_same_wishes(town):
    """Same input, same output: two looks at the same cluster proposal for the same, in the same order."""
    made = _full(leaning(town, stores=4), 100)
    for source in (BALANCE_LEADER, BALANCE_REGION, REPLICA):
        assert moves(made.picture(3), source) == moves(made.picture(3), source)


def test_an_unknown_region_is_not_counted():
    """An operator on a region nobody has seen takes its claim and no influence."""
    from mooring.capabilities.balance import Summary

    summary = Summary(BalancePolicy())
    influence = Influence(summary)
    influence.add((7,), ())
    assert influence.busy == {7} and not influence.leaders
    assert Region(7).leader_store == 0


def test_a_learner_left_behind_goes_and_tiflash_stays(town):
    """T12: what an operator left when PD forgot it is cleaned up; a TiFlash learner is nobody's left-over."""
    from mooring.core.model.tidb import Peer

    made = _full(town(stores=5, labels={5: {"engine": "tiflash"}}), 1, count=6)
    for region_id, store in ((50, 4), (51, 5)):
        peers = (*(Peer(region_id * 10 + s, s) for s in (1, 2, 3)), Peer(region_id * 10 + 4, store, "Learner"))
        made.summary.put(Region(region_id, peers=peers, leader_store=1, size_mib=96))
    assert moves(made.picture(), REPLICA) == [(50, [("RemovePeer", 4)])]


def test_hot_and_balance_leader_come_to_rest(town):
    """T10: one evens out what is served, the other how many are led, and neither undoes the other for ever."""
    made = town(stores=4, policy=BalancePolicy(sources=REGION_SCHEDULERS, hot_region_bytes=100))
    for n in range(1, 41):
        made.region(n, 1 + n % 4, 1 + (n + 1) % 4, 1 + (n + 2) % 4, flow=20_000 if n % 4 == 0 else 1000)
    rounds = 0
    while True:
        picture = made.picture(rounds)
        proposals = [*propose(picture, HOT, 3), *propose(picture, BALANCE_LEADER, 3)]
        if not proposals:
            break
        rounds += 1
        assert rounds < 40, "they undo each other"
        for proposal in proposals:
            region = made.summary.regions[proposal.move.regions[0]]
            where = [p.store_id for p in region.peers]
            made.region(region.id, *where, leader=proposal.move.steps[0].to_store, flow=region.written_bytes)
    served = [row.flow for row in made.summary.stores.values()]
    assert max(served) <= 1.5 * sum(served) / 4
