"""What every placement driver does, ours and the real one: if these pass on both, the sandbox tells the truth."""

import asyncio
import itertools

import pytest

from mooring.clients.ports import ConflictError, NotFoundError, RefusedError


def leaders(view):
    return {s.id: s.leader_count for s in view.stores}


async def test_settled_cluster_in_one_look(rig):
    """One look shows every store Up and fresh, all leaders, the region count, the leader and since when it runs."""
    view = await rig.pd.observe()
    assert [(s.id, s.state) for s in view.stores] == [(1, "Up"), (2, "Up"), (3, "Up")]
    assert sum(leaders(view).values()) == view.region_count == 30
    assert all(s.region_count == 30 and s.capacity_bytes == 100 << 30 for s in view.stores)
    assert all(s.last_heartbeat_at and s.started_at for s in view.stores)
    assert view.evicting == ()
    assert view.start_timestamp > 0
    assert [m.name for m in view.members] == [view.leader]
    assert [(s.id, s.address) for s in await rig.pd.stores(2, 99)] == [(2, view.stores[1].address)]
    assert await rig.pd.stores(99) == ()


async def test_eviction_from_wish_to_end(rig):
    """E1: listed once added, empty soon, adding again changes nothing, removed it is no longer listed."""
    await rig.pd.add_evict_leader(1)
    await rig.pd.add_evict_leader(1)
    view = await rig.until(lambda v: leaders(v)[1] == 0)
    assert view.evicting == (1,)
    assert rig.truth()[1] == 0 and sum(rig.truth().values()) == 30
    await rig.pd.add_evict_leader(2)
    view = await rig.until(lambda v: leaders(v)[2] == 0)
    assert view.evicting == (1, 2) and leaders(view) == {1: 0, 2: 0, 3: 30}
    await rig.pd.remove_evict_leader(2)
    assert (await rig.pd.observe()).evicting == (1,)
    await rig.pd.remove_evict_leader(1)
    await rig.pd.remove_evict_leader(1)
    assert (await rig.pd.observe()).evicting == ()
    await rig.until(lambda v: leaders(v)[1] > 0 and leaders(v)[2] > 0)


async def test_unknown_store_cannot_be_evicted(rig):
    """Whether or not a scheduler exists already, an unknown store is NotFound; removing it is fine."""
    with pytest.raises(NotFoundError):
        await rig.pd.add_evict_leader(999)
    await rig.pd.add_evict_leader(3)
    with pytest.raises(NotFoundError):
        await rig.pd.add_evict_leader(999)
    await rig.pd.remove_evict_leader(999)
    assert (await rig.pd.observe()).evicting == (3,)


async def test_nothing_moves_when_every_store_is_evicted(rig):
    """Evicting all stores is accepted; the last leaders stay where they are."""
    for store in (1, 2, 3):
        await rig.pd.add_evict_leader(store)
    await rig.a_second()
    view = await rig.pd.observe()
    assert view.evicting == (1, 2, 3) and sum(leaders(view).values()) == 30


async def test_regions_have_leaders_among_their_peers(rig):
    """The regions cover the key space without a gap, each led by a voter of its own."""
    regions = sorted(await rig.pd.regions(), key=lambda r: r.start_key)
    assert len(regions) == 30
    assert regions[0].start_key == "" and regions[-1].end_key == ""
    assert all(a.end_key == b.start_key for a, b in itertools.pairwise(regions))
    for region in regions:
        assert region.leader_store in {p.store_id for p in region.peers if p.role == "Voter"}
        assert len(region.peers) == 3 and region.size_mib == 96


async def test_operator_runs_to_its_end(rig):
    """A transfer is listed while it runs, refuses a second one for its region, and is remembered as a success."""
    await rig.pd.pause_scheduler("balance-leader-scheduler", 60)
    region = (await rig.pd.regions())[5]
    to = next(p.store_id for p in region.peers if p.store_id != region.leader_store)
    wish = {"name": "transfer-leader", "region_id": region.id, "to_store_id": to}
    await rig.pd.add_operator(wish)
    with pytest.raises(ConflictError):
        await rig.pd.add_operator(wish)
    found = await rig.pd.operator(region.id)
    assert (found.status, found.desc, found.region_id) == ("RUNNING", "admin-transfer-leader", region.id)
    assert found.brief == f"transfer leader: store {region.leader_store} to {to}"
    assert found.steps == (f"transfer leader from store {region.leader_store} to store {to}",)
    listed = [op for op in await rig.pd.operators() if op.region_id == region.id]
    assert listed == [found]
    deadline = asyncio.get_running_loop().time() + 10
    while (await rig.pd.operator(region.id)).status == "RUNNING":
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.02)
    assert (await rig.pd.operator(region.id)).status == "SUCCESS"
    after = {r.id: r.leader_store for r in await rig.pd.regions()}
    assert after[region.id] == to


async def test_operator_can_be_canceled(rig):
    """Canceled, it is remembered as such; canceling nothing is fine; an unheard-of region has none."""
    await rig.pd.pause_scheduler("balance-leader-scheduler", 60)
    region = (await rig.pd.regions())[7]
    to = next(p.store_id for p in region.peers if p.store_id != region.leader_store)
    await rig.pd.add_operator({"name": "transfer-leader", "region_id": region.id, "to_store_id": to})
    await rig.pd.cancel_operator(region.id)
    await rig.pd.cancel_operator(region.id)
    assert (await rig.pd.operator(region.id)).status == "CANCEL"
    assert await rig.pd.operator(99999) is None


async def test_impossible_operators_are_refused(rig):
    """No voter there, no such region, no such operator: a no that names the reason, and nothing runs."""
    region = (await rig.pd.regions())[0]
    with pytest.raises(RefusedError, match="no voter in store 999"):
        await rig.pd.add_operator({"name": "transfer-leader", "region_id": region.id, "to_store_id": 999})
    with pytest.raises(NotFoundError, match="99999"):
        await rig.pd.add_operator({"name": "transfer-leader", "region_id": 99999, "to_store_id": 1})
    with pytest.raises(RefusedError, match="unknown operator"):
        await rig.pd.add_operator({"name": "nope"})


async def test_a_look_has_the_placement_rules(rig):
    """T12: three voters anywhere, as PD begins with, and the same value at the next look."""
    first, second = (await rig.pd.observe()).placement, (await rig.pd.observe()).placement
    (rule,) = first.rules
    assert (rule.group, rule.id, rule.role, rule.count) == ("pd", "default", "voter", 3)
    assert (first.denied, first.halted, first.low_space_ratio) == ((), False, 0.8)
    assert second is first


async def test_regions_are_read_by_range(rig):
    """T12: some at a time, in the order of their keys, each range from where the last one ended: all of them, once."""
    whole, found, start = [r.id for r in await rig.pd.regions()], [], ""
    while True:
        part = await rig.pd.regions(start, 7)
        assert len(part) <= 7 and part[0].start_key == start
        found += [r.id for r in part]
        start = part[-1].end_key
        if not start:
            break
    assert found == whole and len(set(found)) == 30


async def test_a_look_shows_how_long_schedulers_stay_paused(rig):
    """T12: by PD's own clock, which need not be ours, and never more than is left."""
    await rig.pd.pause_scheduler("balance-leader-scheduler", 50)
    (pause,) = (await rig.pd.observe()).pauses
    assert (pause.name, pause.length_s) == ("balance-leader-scheduler", 50)
    assert 20 < pause.left_s <= 50


async def test_scheduler_is_paused_and_resumed(rig):
    """A pause is listed until it is lifted; PD's own schedulers are there; an unknown one is NotFound."""
    names = await rig.pd.schedulers()
    assert {"balance-leader-scheduler", "balance-region-scheduler"} <= set(names)
    await rig.pd.pause_scheduler("balance-leader-scheduler", 60)
    assert await rig.pd.schedulers(paused=True) == ("balance-leader-scheduler",)
    await rig.pd.pause_scheduler("balance-leader-scheduler", 0)
    assert await rig.pd.schedulers(paused=True) == ()
    with pytest.raises(NotFoundError):
        await rig.pd.pause_scheduler("no-such-scheduler", 10)


async def test_limits_and_members_are_told(rig):
    """The schedule configuration has PD's names, and every member says how it is."""
    assert (await rig.pd.config())["leader-schedule-limit"] == 4
    assert [m.healthy for m in await rig.pd.members()] == [True]


async def test_restart_keeps_the_wish_and_forgets_the_leaders(rig):
    """E6: right after a restart PD shows no leaders and cannot say what it evicts; later it evicts as before."""
    await rig.pd.add_evict_leader(1)
    before = await rig.until(lambda v: leaders(v)[1] == 0)
    await rig.restart()
    unsure = await rig.until(lambda v: v.start_timestamp != before.start_timestamp)
    assert unsure.evicting is None
    assert sum(leaders(unsure).values()) == 0 < unsure.region_count
    assert {s.state for s in unsure.stores} == {"Up"}
    assert sum(rig.truth().values()) == 30
    await rig.stores_return()
    again = await rig.until(lambda v: v.evicting == (1,) and sum(leaders(v).values()) == v.region_count == 30)
    assert again.start_timestamp == unsure.start_timestamp
    await rig.until(lambda v: leaders(v)[1] == 0)
    await rig.pd.remove_evict_leader(1)
    assert (await rig.pd.observe()).evicting == ()


async def test_one_region_is_as_in_the_list_of_all(rig):
    """T12: a region asked for alone is the one in the list; one that is not there is None."""
    first = (await rig.pd.regions())[0]
    assert await rig.pd.region(first.id) == first
    assert await rig.pd.region(999_999) is None
