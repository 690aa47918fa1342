"""The spine on the real control plane: `mooring run` as a process, killed -9 at every write, and an API server that dies."""

import asyncio
import os
from collections import Counter
from itertools import pairwise

import pytest

from mooring_lab.control.servers import NO_PD
from tests.e2e.spine_environment import Environment
from tests.e2e.waiting import Stopwatch, eventually

# Patient: a real controller may back off for half a minute and more; what is promised is the end, not the time.
pytestmark = pytest.mark.e2e
RESTART = "tidb.pingcap.com/restart="


@pytest.fixture(params=["sandbox's PD", "real PD"])
def real_pd(request, lab):
    if request.param == "real PD" and lab.pd_server is None:
        pytest.skip(NO_PD)
    return request.param == "real PD"


async def restart(environment, name):
    """What a user does; answers with the writes it took."""
    uid, first = await environment.uid(name), len(environment.toll.writes)
    await asyncio.to_thread(environment.annotate, name, RESTART)

    async def over():
        if environment.toll.killed and not all(process.alive() for process in environment.processes[-2:]):
            await environment.start()  # another takes over meanwhile; this one stands by
        return await environment.handed_over(name, uid)

    await eventually(over, tell=lambda: f"{environment.toll.writes[first:]}\n{environment.logs()}")
    return environment.toll.writes[first:]


#: What an undisturbed restart writes: mark, scheduler, mark of the deletion, PD's lock, the pod, the lock given back,
#: scheduler out, mark out.
WRITES = ["PATCH", "POST", "PATCH", "PUT", "DELETE", "DELETE", "DELETE", "PATCH"]
ONCE = Counter({"DELETE pods": 1, "POST schedulers": 1})


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("numbers", [(1, 2, 3), (4, 5, 6), (7, 8)], ids=lambda some: f"writes {some[0]} to {some[-1]}")
async def test_killed_at_every_write(lab, tmp_path, numbers, side, real_pd):
    """E5, worked example 6: kill -9 right before and right after each write; another process ends it the same."""
    async with Environment(lab, tmp_path, real_pd=real_pd) as environment:
        await environment.start()
        await environment.start()
        for number in numbers:
            await eventually(environment.leads, tell=environment.logs)
            await eventually(environment.processes[-1].serves)
            environment.toll.kill_at(number, side)
            writes = await restart(environment, f"demo-tikv-{number % 3}")
            # The last write may be seen a moment before its answer, which the kill follows, is back.
            await eventually(lambda: environment.toll.killed, f"write {number} is made")
            twice = Counter(filter(None, map(disturbing, writes))) - ONCE
            assert not twice, f"{side} write {number}: {twice}"
        assert environment.placement.interrupted() == 0
        assert environment.most_away <= 1


def disturbing(write):
    """What must not happen twice, in two words; None for the rest."""
    verb, _, path = write.partition(" ")
    kind = "pods" if "/pods/" in path else "schedulers" if path.endswith("/schedulers") else ""
    return f"{verb} {kind}" if kind else None


async def test_undisturbed_restart(lab, tmp_path, real_pd):
    """E1, E3, E6, E7: mark, scheduler, mark, lock, delete, lock, scheduler and mark out; no leader was on the pod when it
    went. Both operators may give the lock back."""
    async with Environment(lab, tmp_path, real_pd=real_pd) as environment:
        await environment.start()
        await eventually(environment.leads, tell=environment.logs)
        writes = await restart(environment, "demo-tikv-0")
        once = [one for before, one in pairwise(["", *writes]) if one != before]
        assert [w.split(" ")[0] for w in once] == WRITES, writes
        assert once[4].endswith("/pods/demo-tikv-0")
        assert environment.placement.interrupted() == 0


async def test_api_server_killed_and_restarted_midway(lab, tmp_path):
    """E5: the API server dies while leaders leave and comes back; the hand-over goes on and ends."""
    async with Environment(lab, tmp_path) as environment:
        await environment.start()
        await eventually(environment.leads, tell=environment.logs)
        uid = await environment.uid("demo-tikv-0")
        environment.placement.keep_a_leader("demo-tikv-0")
        await asyncio.to_thread(environment.annotate, "demo-tikv-0", RESTART)
        await eventually(lambda: _evicting(environment))
        await asyncio.to_thread(lab.kill, "kube-apiserver")
        await asyncio.sleep(4)  # longer than the lease
        await asyncio.to_thread(lab.start, "kube-apiserver")
        await asyncio.to_thread(lab.revive)  # those that gave up without it, as a node's own manager would
        environment.placement.keep_a_leader()
        await eventually(lambda: environment.handed_over("demo-tikv-0", uid), tell=environment.logs)
        assert environment.placement.interrupted() == 0
        assert sum(w.startswith("DELETE") and "pods" in w for w in environment.toll.writes) == 1


async def _evicting(environment):
    return bool(await environment.placement.evicting())


async def test_stopped_politely_and_started_again(lab, tmp_path):
    """SIGTERM midway: it ends within 10 s with 0, gives the lease back, and the next one finishes the work."""
    async with Environment(lab, tmp_path) as environment:
        await environment.start()
        await eventually(environment.leads, tell=environment.logs)
        uid = await environment.uid("demo-tikv-1")
        environment.placement.keep_a_leader("demo-tikv-1")
        await asyncio.to_thread(environment.annotate, "demo-tikv-1", RESTART)
        await eventually(lambda: _evicting(environment))

        popen = environment.processes[-1].popen
        watch = Stopwatch(popen.pid)
        popen.terminate()
        ended = os.WEXITED | os.WNOWAIT | os.WNOHANG
        await eventually(lambda: os.waitid(os.P_PID, popen.pid, ended), every_s=0.05, tell=environment.logs)
        assert watch.took_s() < 10
        assert popen.wait() == 0, environment.logs()
        assert await _evicting(environment), "what had begun is marked and stays"
        environment.placement.keep_a_leader()
        await environment.start()
        await eventually(lambda: environment.handed_over("demo-tikv-1", uid), tell=environment.logs)
        assert environment.placement.interrupted() == 0
