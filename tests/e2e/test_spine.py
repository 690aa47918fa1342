"""The spine on the real control plane: `mooring run` as a process, killed -9 at every write, and an API server that dies."""

import asyncio
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from spine_ground import Ground, until

pytestmark = pytest.mark.e2e
RESTART = "tidb.pingcap.com/restart="


@pytest.fixture(params=["sandbox's PD", "real PD"])
def real_pd(request, lab):
    if request.param == "real PD" and lab.pd_server is None:
        pytest.skip("pd-server is not in MOORING_BIN_DIR: the sandbox's PD was asked instead")
    return request.param == "real PD"


async def restart(ground, name, within_s=40):
    """What a user does; the writes it took, without names and ids that differ from run to run."""
    uid, first = await ground.uid(name), len(ground.toll.writes)
    await asyncio.to_thread(ground.annotate, name, RESTART)

    async def over():
        if not ground.alive():
            ground.start()
        return await ground.handed_over(name, uid)

    await until(over, within_s, tell=lambda: f"{ground.toll.writes[first:]}\n{ground.log.read_text()[-4000:]}")
    return [write.replace(name, "POD").rstrip("0123456789") for write in ground.toll.writes[first:]]


@pytest.mark.parametrize("side", ["before", "after"])
async def test_killed_at_every_write(lab, tmp_path, side, real_pd):
    """E5, worked example 6: kill -9 right before and right after each write; another process ends it the same."""
    async with Ground(lab, tmp_path, real_pd=real_pd) as ground:
        ground.start()
        await until(ground.leads, 20)
        plain = await restart(ground, "demo-tikv-0")
        assert len(plain) == 6, plain
        once = Counter(w for w in plain if w.startswith(("DELETE", "POST")))
        for number in range(1, len(plain) + 1):
            await until(ground.leads, 20)
            ground.toll.kill_at(number, side)
            writes = await restart(ground, f"demo-tikv-{number % 3}")
            assert ground.toll.killed, f"write {number} was never made"
            twice = Counter(w for w in writes if w.startswith(("DELETE", "POST"))) - once
            assert not twice, f"{side} write {number}: {twice}"
        assert ground.placement.interrupted() == 0
        assert ground.most_away == 1


async def test_api_server_killed_and_restarted_midway(lab, tmp_path):
    """E5: the API server dies while leaders leave and comes back; the hand-over goes on and ends."""
    async with Ground(lab, tmp_path) as ground:
        ground.start()
        await until(ground.leads, 20)
        uid = await ground.uid("demo-tikv-0")
        await asyncio.to_thread(ground.annotate, "demo-tikv-0", RESTART)
        await until(lambda: _evicting(ground), 15)
        await asyncio.to_thread(lab.kill, "kube-apiserver")
        await asyncio.sleep(4)  # longer than the lease
        await asyncio.to_thread(lab.start, "kube-apiserver")
        await until(lambda: ground.handed_over("demo-tikv-0", uid), 40, tell=lambda: ground.log.read_text()[-4000:])
        assert ground.placement.interrupted() == 0
        assert sum(w.startswith("DELETE") and "pods" in w for w in ground.toll.writes) == 1


async def _evicting(ground):
    return bool(await ground.placement.evicting())


async def test_stopped_politely_and_started_again(lab, tmp_path):
    """SIGTERM midway: it ends within 10 s with 0, gives the lease back, and the next one finishes the work."""
    async with Ground(lab, tmp_path) as ground:
        ground.start()
        await until(ground.leads, 20)
        uid = await ground.uid("demo-tikv-1")
        await asyncio.to_thread(ground.annotate, "demo-tikv-1", RESTART)
        await until(lambda: _evicting(ground), 15)
        ground.process.terminate()
        assert await asyncio.to_thread(ground.process.wait, 10) == 0, ground.log.read_text()
        assert await _evicting(ground), "what had begun is marked and stays"
        ground.start()
        await until(lambda: ground.handed_over("demo-tikv-1", uid), 40, tell=lambda: ground.log.read_text()[-4000:])
        assert ground.placement.interrupted() == 0
