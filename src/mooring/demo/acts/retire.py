"""18:30: a machine retires; its node is cordoned, emptied gently, and only then tainted."""

from mooring.capabilities.fleet.live import settings
from mooring.capabilities.fleet.planner import keys
from mooring.core.engine.why import explain
from mooring.core.model.machine import MachineState
from mooring.demo.stage import DEMO, TIDB, Check, Stage
from mooring.sim.scenarios.fleet import cordoned, marks_left, pods_on, roles_by_address, set_state, stored, taints_of

#: n1, n5 and n9, the first of each rack, are the control plane; this one is a worker, with a TiKV pod on it.
SERIAL, NODE = "M002", "n2"
LIMITS = "control-plane-count: 3\nminimum-workers: 8\n"


class Retire:
    at = "18:30"
    title = "a machine retires"
    command = f"sabactl machines set-state {SERIAL} retiring"
    without = "NoExecute first: every pod on it cut off in the same second, leaders and all"

    async def play(self, stage: Stage) -> list[Check]:
        rig, cluster = stage.rig, stage.cluster
        stage.switch_on("fleet")
        await stage.set_fleet(**{settings.CONSTRAINTS: LIMITS})
        await rig.until(lambda: len(stored(rig).members) == 11, limit_s=120)
        address, node = rig.cluster.sabakan.entries[SERIAL].ipv4[0], NODE
        before, pd = pods_on(rig, node), cluster.pd[TIDB, DEMO]
        interrupted, began = len(pd.interruptions), rig.clock.monotonic()
        set_state(rig, address, MachineState.RETIRING)
        early: list[str] = []
        asked = False

        def done() -> bool:
            nonlocal asked
            tainted = keys.STATE_TAINT in taints_of(rig, node)
            left = [p for p in pods_on(rig, node) if p in before]
            if tainted and left:
                early.extend(left)
            leader = rig.leader()
            answer = explain(leader.engine, f"machine/{SERIAL}") if leader is not None else None
            if answer is not None and answer.operators and not asked:
                asked = True
                stage.say(answer.answer)
            return tainted and not list(marks_left(rig))

        await rig.until(done, limit_s=1800)
        took = rig.clock.monotonic() - began
        cut_off = len(pd.interruptions) - interrupted
        stage.say(f"{node}: {len(before)} pods left it one by one, then NoExecute; {took / 60:.0f} min in all")
        return [
            Check("O2", not early and cordoned(rig, node), f"{node} was empty before it was tainted"),
            Check("E6", cut_off == 0, f"{cut_off} leaders were on a pod when it went"),
            Check("F9", roles_by_address(rig)[address] == "worker, retiring", "stored with its taint, not before"),
            Check("F5", len(stored(rig).members) == 12, "a spare machine took its place"),
        ]
