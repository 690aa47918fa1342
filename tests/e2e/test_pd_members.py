"""A real PD of three members: what our client sees when its leader is killed or steps aside."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture
async def rig(tmp_path):
    """Three members and a fake TiKV; see tests/clients/pd/conftest.py."""
    spec = spec_from_file_location("pd_rigs", HERE.parent / "clients" / "pd" / "conftest.py")
    rigs = module_from_spec(spec)
    spec.loader.exec_module(rigs)
    async for found in rigs.real_rig(tmp_path, rigs.WallClock(), members=3):
        yield found


def leaders(view):
    return {s.id: s.leader_count for s in view.stores}


async def test_killed_pd_leader_is_survived(rig):
    """E5: the leader killed in the middle of an eviction: another answers within half a minute, the eviction goes on."""
    before = await rig.pd.observe()
    await rig.pd.add_evict_leader(1)
    await rig.until(lambda v: leaders(v)[1] == 0)
    rig.kill(before.leader)
    after = await rig.until(lambda v: v.leader != before.leader and v.evicting == (1,))
    assert sum(leaders(after).values()) == after.region_count == 30
    assert len(after.members) == 3
    await rig.until(lambda v: leaders(v)[1] == 0)
    await rig.pd.remove_evict_leader(1)
    assert (await rig.pd.observe()).evicting == ()


async def test_pd_leadership_is_handed_on(rig):
    """E9: asked to, another member leads within seconds, and says since when."""
    before = await rig.pd.observe()
    other = next(m.name for m in before.members if m.name != before.leader)
    await rig.pd.transfer_pd_leader(other)
    after = await rig.until(lambda v: v.leader == other)
    assert after.start_timestamp > 0
    assert {m.name: m.healthy for m in await rig.pd.members()} == dict.fromkeys((m.name for m in after.members), True)
