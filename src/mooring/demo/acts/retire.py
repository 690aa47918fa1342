"""09:55: a machine retires; its node is cordoned, emptied pod by pod, and only then tainted.

One pod on it has no controller that would recreate it, so Mooring does not delete it. The act is blocked until a
person types what `why` says.
"""

import re
from typing import Any

from mooring.capabilities.fleet.live import settings
from mooring.capabilities.fleet.planner import keys
from mooring.core.engine.why import Explanation, explain
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring.core.model.reasons import State
from mooring.demo.stage import DEMO, TIDB, Check, DemoStage
from mooring.sim.scenarios.fleet import cordoned, marks_left, pods_on, roles_by_address, set_state, stored, taints_of
from mooring.sim.scenarios.mix import NAMESPACE

#: n1, n5 and n9, the first of each rack, are the control plane; this one is a worker, with a TiKV pod on it.
SERIAL, NODE = "M002", "n2"
#: A pod without a controller.
REPORT = "report"
#: Of the day: long enough to read it on the page.
BLOCKED_S = 35.0
LIMITS = "control-plane-count: 3\nminimum-workers: 8\n"


class Retire:
    at = "09:55"
    speed = 5.0
    title = "a machine retires, one pod has no controller"
    command = f"sabactl machines set-state {SERIAL} retiring"

    async def play(self, stage: DemoStage) -> list[Check]:
        rig, cluster = stage.rig, stage.cluster
        await rig.api.create(Kind.POD, bare_pod())
        stage.switch_on("fleet")
        await stage.set_fleet(**{settings.CONSTRAINTS: LIMITS})
        await rig.until(lambda: len(stored(rig).members) == 11, limit_s=120)
        address, node = rig.cluster.sabakan.entries[SERIAL].ipv4[0], NODE
        before, pd = pods_on(rig, node), cluster.pd[TIDB, DEMO]
        interrupted, began = len(pd.interruptions), rig.clock.monotonic()
        set_state(rig, address, MachineState.RETIRING)
        early: list[str] = []
        typed = await self._blocked(stage)

        def done() -> bool:
            tainted = keys.STATE_TAINT in taints_of(rig, node)
            left = [p for p in pods_on(rig, node) if p in before]
            if tainted and left:
                early.extend(left)
            return tainted and not list(marks_left(rig))

        await rig.until(done, limit_s=1800)
        took = rig.clock.monotonic() - began
        cut_off = len(pd.interruptions) - interrupted
        stage.say(f"{node}: {len(before)} pods left it one by one, then NoExecute; {took / 60:.0f} min in all")
        return [
            Check("O2", not early and cordoned(rig, node), f"{node} was empty before it was tainted"),
            Check("E6", cut_off == 0, f"{cut_off} leaders were on a pod when it went"),
            Check("F9", roles_by_address(rig)[address] == "worker, retiring", "stored with its taint, not before"),
            Check("T11", bool(typed), f"blocked until the command that `why` printed was typed: {typed or 'none'}"),
            Check("F5", len(stored(rig).members) == 12, "a spare machine took its place"),
        ]

    async def _blocked(self, stage: DemoStage) -> str:
        """Wait until it is blocked, ask why, and type what the answer says; what was typed."""
        rig = stage.rig
        await rig.until(lambda: (found := _why(stage)) is not None and found.state == State.BLOCKED, limit_s=600)
        answer = _why(stage)
        command = command_in(answer) if answer is not None else ""
        if answer is None or not command:
            return ""
        stage.say(f"mooring why pod/{NAMESPACE}/{REPORT}: {answer.answer}")
        await rig.sleep(BLOCKED_S)
        stage.say(f"$ {command}")
        await stage.kubectl(command)
        return command


def _why(stage: DemoStage) -> Explanation | None:
    leader = stage.rig.leader()
    subject = f"pod/{NAMESPACE}/{REPORT}"
    return explain(leader.engine, subject, now=stage.rig.clock.now()) if leader is not None else None


def command_in(answer: Explanation) -> str:
    """The first whole kubectl command that `to change` names."""
    for line in answer.lines:
        found = re.search(r"kubectl [^,;]+$", line.text) if line.label == "to change" else None
        if found:
            return found[0].strip()
    return ""


def bare_pod() -> dict[str, Any]:
    container = {"name": REPORT, "image": REPORT, "resources": {"requests": {"cpu": "100m"}}}
    return {
        "metadata": {"namespace": NAMESPACE, "name": REPORT},
        "spec": {"nodeName": NODE, "containers": [container]},
    }
