"""Operators of the sandbox's PD, step by step to their ends; prints as a real 8.5.7 prints them."""

import pytest

from mooring.clients.ports import RefusedError


def region_led_by(pd, store, without=4):
    return next(
        r for r in pd.server.cache.values() if r.leader_store == store and all(p.store_id != without for p in r.peers)
    )


def test_moving_a_follower(make_pd, look, timeline):
    """A move copies the data, passes the joint state and removes the old peer; three voters at its end, leader unmoved."""
    pd = make_pd(stores=4, regions=40)
    region = region_led_by(pd, 1)
    look(pd.add_operator({"name": "transfer-peer", "region_id": region.id, "from_store_id": 2, "to_store_id": 4}))
    op = look(pd.operator(region.id))
    new, old = pd.server.tikv._next_id, next(p.id for p in region.peers if p.store_id == 2)
    change = f"promote learner peer {new} on store 4 to voter, demote voter peer {old} on store 2 to learner"
    assert op.brief == "mv peer: store [2] to [4]"
    assert op.steps == (
        f"add learner peer {new} on store 4",
        f"use joint consensus, {change}",
        f"leave joint state, {change}",
        "remove peer on store 2",
    )
    assert pd.server.operators.running[region.id].line().endswith("timeout:[17m0s])")
    timeline.run_for(1)
    assert look(pd.operator(region.id)).status == "RUNNING", "96 MiB take their time"
    timeline.run_for(10)
    assert look(pd.operator(region.id)).status == "SUCCESS"
    after = pd.server.cache[region.id]
    assert {(p.store_id, p.role) for p in after.peers} == {(1, "Voter"), (3, "Voter"), (4, "Voter")}
    assert after.leader_store == 1 and after.conf_ver > region.conf_ver
    assert pd.interruptions == []


def test_moving_the_leader(make_pd, look, timeline):
    """The leader hands over before its peer goes: no pod is interrupted."""
    pd = make_pd(stores=4, regions=40)
    region = region_led_by(pd, 1)
    look(pd.add_operator({"name": "transfer-peer", "region_id": region.id, "from_store_id": 1, "to_store_id": 4}))
    assert pd.server.operators.running[region.id].kinds == ("admin", "region", "leader")
    assert look(pd.operator(region.id)).steps[1] == "transfer leader from store 1 to store 2"
    timeline.run_for(15)
    assert look(pd.operator(region.id)).status == "SUCCESS"
    assert {p.store_id for p in pd.server.cache[region.id].peers} == {2, 3, 4}


def test_a_restart_leaves_no_region_in_the_joint_state(make_pd, look, timeline):
    """An operator that PD forgets half done: its joint-state checker ends the change, with the new voter in its place,
    and its rule checker takes the learner away that is left of the old one."""
    pd = make_pd(stores=4, regions=40)
    region = region_led_by(pd, 1)
    look(pd.add_operator({"name": "transfer-peer", "region_id": region.id, "from_store_id": 2, "to_store_id": 4}))
    group = pd.server.tikv.groups[region.id]
    while "IncomingVoter" not in {p.role for p in group.peers}:
        timeline.run_for(0.01)
    pd.restart()
    timeline.run_for(60)
    assert {p.store_id: p.role for p in pd.server.cache[region.id].peers} == dict.fromkeys((1, 3, 4), "Voter")
    assert not pd.server.heard.joint


def test_adding_and_removing(make_pd, look, timeline):
    """A learner stays one, a voter is made in two steps, and the leader's own peer is removed after a transfer."""
    pd = make_pd(stores=4, regions=40)
    for name, role in (("add-learner", "Learner"), ("add-peer", "Voter")):
        region = region_led_by(pd, 1)
        look(pd.add_operator({"name": name, "region_id": region.id, "store_id": 4}))
        while look(pd.operator(region.id)).status == "RUNNING":
            timeline.run_for(0.01)
        assert [p.role for p in pd.server.cache[region.id].peers if p.store_id == 4] == [role]
    region = region_led_by(pd, 1)
    look(pd.add_operator({"name": "remove-peer", "region_id": region.id, "store_id": 1}))
    timeline.run_for(5)
    after = pd.server.cache[region.id]
    assert {p.store_id for p in after.peers} == {2, 3} and after.leader_store in (2, 3)


def test_splitting_and_merging(make_pd, look, timeline):
    """A split makes two neighbours of one region, a merge one of the two; the key space stays whole."""
    pd = make_pd(regions=3)
    region = sorted(look(pd.regions()), key=lambda r: r.start_key)[1]
    key = region.start_key + "31"
    look(pd.add_operator({"name": "split-region", "region_id": region.id, "policy": "usekey", "keys": [key]}))
    timeline.run_for(5)
    found = sorted(look(pd.regions()), key=lambda r: r.start_key)
    assert [r.start_key for r in found][1:3] == [region.start_key, key] and len(found) == 4
    left = found[1]
    look(pd.add_operator({"name": "merge-region", "source_region_id": left.id, "target_region_id": region.id}))
    timeline.run_for(5)
    found = sorted(look(pd.regions()), key=lambda r: r.start_key)
    assert [r.id for r in found][1] == region.id and len(found) == 3
    assert found[1].start_key == region.start_key and found[1].size_mib == 96


def test_operator_to_a_dead_store_times_out(make_pd, look, timeline):
    """A step whose store is away is tried until the operator's time is over, and then says so."""
    pd = make_pd()
    region = region_led_by(pd, 2)
    pd.pod_gone("demo-tikv-2")
    look(pd.add_operator({"name": "transfer-leader", "region_id": region.id, "to_store_id": 3}))
    timeline.run_for(59)
    assert look(pd.operator(region.id)).status == "RUNNING"
    timeline.run_for(2)
    assert look(pd.operator(region.id)).status == "TIMEOUT"
    timeline.run_for(601)
    assert look(pd.operator(region.id)) is None, "remembered for ten minutes"


def test_restart_forgets_operators_and_tikv_does_not(make_pd, look, timeline):
    """A command that TiKV has already got is carried out although PD has forgotten it."""
    pd = make_pd(transfer_s=(2.0, 2.0))
    region = region_led_by(pd, 1)
    look(pd.add_operator({"name": "transfer-leader", "region_id": region.id, "to_store_id": 2}))
    pd.restart(down_s=1)
    timeline.run_for(10)
    assert look(pd.operator(region.id)) is None
    assert pd.server.tikv.groups[region.id].leader == 2
    assert pd.server.cache[region.id].leader_store == 2


def test_offline_store_is_emptied_and_buried(make_pd, timeline, look):
    """A store taken offline loses its peers one by one and is a Tombstone when none is left; PD then lists it no more."""
    from mooring_lab.cluster.pd import requests

    pd = make_pd(stores=4, regions=20)
    assert requests.take_offline(pd.server, 4).status == 200
    assert look(pd.observe()).stores[3].state == "Offline"
    timeline.run_for(300)
    assert pd.server.asked_state[4] == "Tombstone"
    view = look(pd.observe())
    assert [s.id for s in view.stores] == [1, 2, 3] and sum(s.leader_count for s in view.stores) == 20
    assert pd.interruptions == []


def test_impossible_wishes(make_pd, look):
    """What PD refuses, the sandbox refuses, and nothing runs."""
    pd = make_pd()
    region = region_led_by(pd, 1)
    for body in (
        {"name": "remove-peer", "region_id": region.id, "store_id": 9},
        {"name": "add-peer", "region_id": region.id, "store_id": 1},
        {"name": "split-region", "region_id": region.id, "policy": "nope"},
        {"name": "transfer-leader", "region_id": "1"},
    ):
        with pytest.raises(RefusedError):
            look(pd.add_operator(body))
    assert look(pd.operators()) == ()
