"""Handoff on the real control plane, as a user meets it: kubectl in, pods that moved out."""

import asyncio
import json
import subprocess
import sys

import pytest

from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF, read_marks
from mooring_lab.control.servers import NO_PD
from tests.e2e.spine_environment import Environment
from tests.e2e.waiting import eventually

# Patient: a loaded machine and a controller that backs off cost time, and time is not what is promised here.
pytestmark = pytest.mark.e2e
RESTART = "tidb.pingcap.com/restart="
EVICT = "tidb.pingcap.com/evict-leader"


@pytest.fixture(params=["sandbox's PD", "real PD"])
def real_pd(request, lab):
    if request.param == "real PD" and lab.pd_server is None:
        pytest.skip(NO_PD)
    return request.param == "real PD"


async def mooring(environment, *args):
    """A reading command against the running process."""
    leader = await eventually(environment.leader, tell=environment.logs)
    argv = [sys.executable, "-m", "mooring", *args, "--server", leader.url]
    done = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_story_1(lab, tmp_path, real_pd):
    """E8: cordon, annotate, the pod comes back on another node without a leader interrupted, drain, the node is empty."""
    async with Environment(lab, tmp_path, real_pd=real_pd) as environment:
        await environment.start()
        await eventually(environment.leads, tell=environment.logs)
        before = await environment.pod("demo-tikv-0")
        node, uid = before["spec"]["nodeName"], before["metadata"]["uid"]
        await asyncio.to_thread(lab.kubectl, "cordon", node)
        await asyncio.to_thread(environment.annotate, "demo-tikv-0", RESTART)
        await eventually(lambda: environment.handed_over("demo-tikv-0", uid), tell=environment.logs)
        after = await environment.pod("demo-tikv-0")
        assert after["spec"]["nodeName"] != node
        assert environment.placement.interrupted() == 0
        await asyncio.to_thread(
            lab.kubectl, "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s"
        )
        left = json.loads(
            await asyncio.to_thread(
                lab.kubectl, "get", "pods", "-A", "-o", "json", "--field-selector", f"spec.nodeName={node}"
            )
        )["items"]
        assert [p for p in left if p["metadata"].get("ownerReferences", [{}])[0].get("kind") != "DaemonSet"] == []


async def test_evict_leader_as_long_as_it_is_asked(lab, tmp_path):
    """E2, E3: an unknown value acts as none, with a Warning; mark and status are there before the scheduler is, and all
    of it goes with the annotation."""
    async with Environment(lab, tmp_path) as environment:
        await environment.start()
        await eventually(environment.leads, tell=environment.logs)
        await asyncio.to_thread(environment.annotate, "demo-tikv-1", f"{EVICT}=please")

        async def empty():
            return await environment.placement.evicting() == (2,) and environment.placement.leaders(1) == 0

        await eventually(empty, tell=environment.logs)
        tc = await environment.api.get(Kind.TIDB_CLUSTER, environment.namespace, "demo")
        mark = read_marks(tc["metadata"]["annotations"][HANDOFF])["demo-tikv-1"]
        pod = await environment.pod("demo-tikv-1")
        assert (mark.value, mark.pod_create_time) == ("none", pod["metadata"]["creationTimestamp"])
        assert "evictLeaderStatus" not in tc["status"]["tikv"], "pruned, as by tidb-operator's CRD"
        assert "PATCH" in environment.toll.writes[0], "written down first"
        assert tc["status"]["tikv"]["phase"] == "Normal", "others' fields stay"

        async def told():
            return {"Warning", "Normal"} <= {kind for kind, _, _ in await environment.events("demo-tikv-1")}

        await eventually(told)
        said = {reason: (kind, message) for kind, reason, message in await environment.events("demo-tikv-1")}
        assert said.keys() == {"Invalid", "Asked"}
        kind, message = said["Invalid"]
        assert kind == "Warning"
        assert "none, delete-pod" in message
        assert said["Asked"][1].startswith("leaders leave store 2 (annotation tidb.pingcap.com/evict-leader=please)")
        await asyncio.to_thread(environment.annotate, "demo-tikv-1", f"{EVICT}-")

        async def clean():
            return not await environment.left_overs()

        await eventually(clean, tell=environment.logs)
        assert await environment.uid("demo-tikv-1") == pod["metadata"]["uid"]


async def test_two_at_once_go_one_after_the_other(lab, tmp_path):
    """E7, worked example 1: the second waits for the first by name, and they are never both away."""
    async with Environment(lab, tmp_path) as environment:
        await environment.start()
        await eventually(environment.leads, tell=environment.logs)
        uids = {name: await environment.uid(name) for name in ("demo-tikv-0", "demo-tikv-1")}
        # One leader of each stays until both questions are answered.
        environment.placement.keep_a_leader(*uids)
        await asyncio.to_thread(
            lab.kubectl, "annotate", "pods", *uids, RESTART, "-n", environment.namespace, "--overwrite"
        )

        states = {}

        async def begun():
            """It has heard of both by then, and PD evicts one."""
            words = ("handoff", "status", f"{environment.namespace}/demo", "-o", "json")
            members = json.loads(await mooring(environment, *words))["clusters"][0]["members"]
            states.update({m["pod"]: m["state"] for m in members})
            evicts = bool(await environment.placement.evicting())
            return evicts and sorted(states.values()) == ["moving", "stable", "waiting"]

        await eventually(begun, "one moves, one waits", every_s=0.5, tell=lambda: f"{states}\n{environment.logs()}")
        moving = next(name for name, state in states.items() if state == "moving")
        waiting = next(name for name, state in states.items() if state == "waiting")
        answer = json.loads(
            await mooring(environment, "why", f"pod/{waiting}", "-n", environment.namespace, "-o", "json")
        )
        assert answer["state"] == "waiting"
        assert moving in answer["answer"]
        environment.placement.keep_a_leader()
        for name, uid in uids.items():
            await eventually(lambda name=name, uid=uid: environment.handed_over(name, uid), tell=environment.logs)
        assert environment.most_away <= 1
        assert environment.placement.interrupted() == 0


async def test_pd_restarts_while_leaders_leave(lab, tmp_path, real_pd):
    """E4, E6: PD restarts midway and shows zero leaders for a moment: nothing is deleted on that word."""
    async with Environment(lab, tmp_path, real_pd=real_pd) as environment:
        await environment.start()
        await eventually(environment.leads, tell=environment.logs)
        uid = await environment.uid("demo-tikv-2")
        restarting = asyncio.ensure_future(environment.placement.restart())
        await asyncio.sleep(6.0 if real_pd else 0.0)
        await asyncio.to_thread(environment.annotate, "demo-tikv-2", RESTART)
        await restarting
        await eventually(lambda: environment.handed_over("demo-tikv-2", uid), tell=environment.logs)
        assert environment.placement.interrupted() == 0


async def test_pd_leader_hands_leadership_on_before_it_goes(lab, tmp_path):
    """E9: the PD leader's pod is evicted when another member has been seen to lead, and comes back."""
    async with Environment(lab, tmp_path, pd_pods=3) as environment:
        pd = environment.placement.pd
        assert pd.leader == "demo-pd-0"
        await environment.start()
        await eventually(environment.leads, tell=environment.logs)
        uid = await environment.uid("demo-pd-0")
        led_by = []
        seen = environment.toll.passes

        def passes(what, side, kill):
            if "eviction" in what and side == "before":
                led_by.append(pd.leader)
            return seen(what, side, kill)

        environment.toll.passes = passes
        await asyncio.to_thread(environment.annotate, "demo-pd-0", "tidb.pingcap.com/pd-transfer-leader=delete-pod")
        await eventually(lambda: environment.handed_over("demo-pd-0", uid), tell=environment.logs)
        assert led_by == ["demo-pd-1"]
        assert pd.leader == "demo-pd-1"
