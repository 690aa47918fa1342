"""09:55: a machine retires; its node is cordoned, emptied pod by pod, and only then tainted.

One pod on it has no controller that would recreate it, so Mooring does not delete it. The act is blocked until a
person types what `why` says.
"""

import re
from typing import Any

from mooring.capabilities.balance import BalancePolicy, foreign
from mooring.capabilities.balance.summary import Summary
from mooring.capabilities.fleet.live import settings
from mooring.capabilities.fleet.planner import keys
from mooring.capabilities.handoff.requests import RESTART
from mooring.clients.wire.document import encode_yaml
from mooring.core.engine.why import Explanation, explain
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import State
from mooring.core.queue import live_settings
from mooring_lab.cluster.pd import SandboxPd
from mooring_lab.cluster.pd.requests import take_offline
from mooring_lab.demo.acts.pods import nothing_left, uid_of
from mooring_lab.demo.stage import DEMO, TIDB, Check, DemoStage
from mooring_lab.stage.environment import Environment
from mooring_lab.stage.scenarios.fleet import (
    cordoned,
    marks_left,
    pods_on,
    roles_by_address,
    stored,
    taints_of,
)
from mooring_lab.stage.scenarios.mix import NAMESPACE

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# 10:25: two restarts in the same second wait for each other.


FIRST, SECOND = f"{DEMO}-tikv-0", f"{DEMO}-tikv-1"


class TwoRestarts:
    at = "10:25"
    speed = 6.0
    title = "two restarts in the same second"
    command = f'kubectl -n {TIDB} annotate pod {FIRST} {SECOND} {RESTART}=""'

    async def play(self, stage: DemoStage) -> list[Check]:
        before = {name: uid_of(stage, name) for name in (FIRST, SECOND)}
        pd = stage.cluster.pd[TIDB, DEMO]
        interrupted = len(pd.interruptions)
        await stage.kubectl(self.command)
        answer: Explanation | None = None
        most_away = 0

        def done() -> bool:
            nonlocal most_away, answer
            if answer is None and (answer := _waits(stage)) is not None:
                stage.say(answer.answer)
            ready = stage.cluster.ready(TIDB, f"{DEMO}-tikv")
            most_away = max(most_away, 3 - ready)
            new = all(uid_of(stage, name) not in {"", uid} for name, uid in before.items())
            return new and ready == 3 and not nothing_left(stage)

        await stage.rig.until(done)
        waited = answer is not None
        return [
            Check("E7", most_away == 1, f"at most {most_away} away at once"),
            Check("T4", waited, "the second waited for the first, and `why` named it"),
            Check(
                "T11",
                waited,
                answer.waiting_on.sum() if answer is not None and answer.waiting_on is not None else "no sum",
            ),
            Check("E6", len(pd.interruptions) == interrupted, "no leader was on a pod when it went"),
        ]


def _waits(stage: DemoStage) -> Explanation | None:
    """What `why` says of the second, once it waits for the first."""
    leader = stage.rig.leader()
    answer = explain(leader.engine, f"pod/{TIDB}/{SECOND}") if leader is not None else None
    return answer if answer is not None and answer.state == State.WAITING and answer.waiting_on is not None else None


# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# 10:05: a TiKV store is added, regions and leaders spread over it under the cost limit, and it is taken out again.


LIMIT = 20
POD = f"{DEMO}-tikv-3"
BALANCER = "balance-region-scheduler"


def scaled(members: int) -> str:
    """What one types for so many TiKV members."""
    return f'kubectl -n {TIDB} patch tc {DEMO} --type merge -p \'{{"spec":{{"tikv":{{"replicas":{members}}}}}}}\''


class ScaleOut:
    at = "10:05"
    speed = 55.0
    title = "a TiKV store is added"
    command = scaled(4)

    async def play(self, stage: DemoStage) -> list[Check]:
        leader = stage.rig.leader()
        assert leader is not None, "no replica leads"
        before = leader.engine.on
        leader.shell.switch(before | {"balance"})
        gauge = Gauge(stage)
        try:
            took, spread, paused = await self._grow(stage, gauge)
            gone = await self._shrink(stage, gauge)
        finally:
            leader.shell.switch(before)
        stage.say(
            f"{spread[0]} to {spread[1]} regions on each of 4 stores after {took:.0f} s, {gauge.moves} moves; "
            f"off the store again after {gone:.0f} s"
        )
        return [
            Check("T12", spread[1] - spread[0] <= 6, f"the new store filled: {spread[0]} to {spread[1]} regions each"),
            Check("T3", 0 < gauge.peak <= LIMIT, f"no store was ever above {gauge.peak} of {LIMIT}"),
            Check("T12", paused, "PD's own schedulers were paused, a minute at a time"),
        ]

    async def _grow(self, stage: DemoStage, gauge: "Gauge") -> tuple[float, tuple[int, int], bool]:
        await _members(stage, 4)
        began, pd = stage.rig.clock.monotonic(), gauge.pd
        await stage.rig.until(lambda: gauge.read() and gauge.moves > 0)
        paused = pd.server.is_paused(BALANCER)
        await stage.rig.until(lambda: gauge.read() and gauge.quiet() and gauge.spread(4) <= 6, limit_s=1800)
        return stage.rig.clock.monotonic() - began, gauge.bounds(4), paused

    async def _shrink(self, stage: DemoStage, gauge: "Gauge") -> float:
        """As tidb-operator scales in: the store is Offline first, and its pod goes when nothing is left on it."""
        pd, began = gauge.pd, stage.rig.clock.monotonic()
        store = pd.store_of(POD)
        assert store is not None, f"{POD} has no store"
        take_offline(pd.server, store.id)
        await stage.rig.until(lambda: gauge.read() and not pd.server.held_by(store.id) and gauge.quiet(), limit_s=1800)
        await _members(stage, 3)
        return stage.rig.clock.monotonic() - began


async def _members(stage: DemoStage, wanted: int) -> None:
    await stage.kubectl(scaled(wanted))
    await stage.rig.until(lambda: stage.cluster.ready(TIDB, f"{DEMO}-tikv") == wanted)


class Gauge:
    """What of ours runs in PD, priced by its own steps, and how even the stores are."""

    def __init__(self, stage: DemoStage) -> None:
        self._stage = stage
        self.pd: SandboxPd = stage.cluster.pd[TIDB, DEMO]
        self.peak = 0
        self._moved: set[tuple[int, float]] = set()

    @property
    def moves(self) -> int:
        return len(self._moved)

    def read(self) -> bool:
        server, summary, load = self.pd.server, Summary(BalancePolicy()), dict[int, int]()
        for running in server.operators.running.values():
            if running.region_id in server.cache:
                summary.put(server.cache[running.region_id])
            if running.desc not in foreign.OURS:
                continue  # PD's own checkers move replicas off a store that is Offline, by their own limits
            self._moved.add((running.region_id, running.created_at))
            for store, cost in foreign.costs(running.view(), live_settings(), summary).items():
                load[store] = load.get(store, 0) + cost
        self.peak = max([self.peak, *load.values()])
        return True

    def quiet(self) -> bool:
        """Nothing under way in PD, and nothing of ours that we have not seen end."""
        leader = self._stage.rig.leader()
        return not self.pd.server.operators.running and leader is not None and not leader.engine.running

    def bounds(self, stores: int) -> tuple[int, int]:
        kept = sorted((len(h) for h in self.pd.server.tikv.held.values()), reverse=True)[:stores]
        return min(kept), max(kept)

    def spread(self, stores: int) -> int:
        low, high = self.bounds(stores)
        return high - low


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
    command = "mooring fleet set machines machines.yaml"

    async def play(self, stage: DemoStage) -> list[Check]:
        rig, cluster = stage.rig, stage.cluster
        await rig.api.create(Kind.POD, bare_pod())
        stage.switch_on("fleet")
        await stage.set_fleet(**{settings.CONSTRAINTS: LIMITS, **listed(rig)})
        await rig.until(lambda: len(stored(rig).members) == 11, limit_s=120)
        address, node = rig.cluster.sabakan.entries[SERIAL].ipv4[0], NODE
        before, pd = pods_on(rig, node), cluster.pd[TIDB, DEMO]
        interrupted, began = len(pd.interruptions), rig.clock.monotonic()
        stage.say(f"machines.yaml now says: {{serial: {SERIAL}, address: {address}, …, state: retiring}}")
        await stage.set_fleet(**{settings.CONSTRAINTS: LIMITS, **listed(rig, SERIAL)})
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


def listed(rig: Environment, retiring: str = "") -> dict[str, str]:
    """Without a registry: a list of machines, as a person keeps it in a file."""
    machines = [
        {"serial": m.serial, "address": m.ipv4[0], "role": m.role, "rack": m.rack}
        | ({"state": "retiring"} if m.serial == retiring else {})
        for m in rig.cluster.sabakan.entries.values()
    ]
    return {settings.URL: "", settings.MACHINES: encode_yaml({"machines": machines})}


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
