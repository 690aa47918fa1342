"""The same day without Mooring: the same cluster, the same seed, the same moments, and what people do by themselves.

It is played as fast as it goes, in a process of its own beside the demo; what it costs is counted second by second, so
that the page can show both days at the same moment. TiKV is that of today unless asked for (`--tikv`): told to end, it
has PD take its leaders off by itself, one store at a time.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

from mooring.capabilities.fleet.planner.keys import STATE_TAINT
from mooring.core.model.kinds import Kind
from mooring_lab.demo.acts import ACTS
from mooring_lab.demo.acts.drain import KubectlDrain, beside_a_member
from mooring_lab.demo.acts.pods import NOTICE_S, POD, ModeChange, NoticeAct, Restart, RollingUpdateAct
from mooring_lab.demo.acts.stores import FIRST, NODE, SECOND, Retire, TwoRestarts
from mooring_lab.demo.sandbox_stage import TIKV, SandboxStage
from mooring_lab.demo.stage import DEMO, TIDB
from mooring_lab.judge.losses import LossCounter, Losses
from mooring_lab.stage.scenarios.drain import Drain

#: So long after the drain began the machine is needed.
MAINTENANCE_S: Final = 120.0

Part = Callable[[SandboxStage], Awaitable[None]]


class WithoutStage(SandboxStage):
    """No replica of ours runs: the scheduler finds no extender, pods meet no webhook."""

    async def start(self) -> None:
        pass

    async def admit(self) -> None:
        pass


async def _roll(stage: SandboxStage) -> None:
    await stage.kubectl(RollingUpdateAct.command)


async def _relabel(stage: SandboxStage) -> None:
    await stage.kubectl(ModeChange.command)


async def _notice(stage: SandboxStage) -> None:
    cloud = stage.cluster.cloud
    nodes = cloud.spot_nodes()
    cloud.notice_all_spot(after_s=NOTICE_S)
    await stage.rig.sleep(NOTICE_S + 30.0)
    for node in nodes:
        cloud.give_back(node)


async def _delete(stage: SandboxStage, *pods: str) -> None:
    await stage.kubectl(f"kubectl -n {TIDB} delete pod {' '.join(pods)}")


async def _taint(stage: SandboxStage) -> None:
    """As a machine that retires is taken out by its registry: NoExecute, at once."""
    taint = {"key": STATE_TAINT, "value": "retiring", "effect": "NoExecute"}
    await stage.rig.api.patch(Kind.NODE, "", NODE, {"spec": {"taints": [taint]}})


async def _drain(stage: SandboxStage) -> None:
    """The budget refuses every try, for ever; when the maintenance is due, the machine is stopped all the same."""
    node = await beside_a_member(stage.rig)
    stage.cluster.cloud.notice(node, after_s=MAINTENANCE_S)
    with contextlib.suppress(AssertionError):
        await Drain(stage.rig, node).run(limit_s=MAINTENANCE_S + 30.0)


#: What the same moment is without Mooring. An act that is not here costs nothing.
PARTS: dict[type[Any], Part] = {
    RollingUpdateAct: _roll,
    ModeChange: _relabel,
    NoticeAct: _notice,
    Restart: lambda stage: _delete(stage, POD),
    Retire: _taint,
    KubectlDrain: _drain,
    TwoRestarts: lambda stage: _delete(stage, FIRST, SECOND),
}


def play(seed: int = 1, acts: tuple[type[Any], ...] = ACTS, tikv: str = TIKV) -> list[tuple[float, Losses]]:
    """(moment, what was lost by then), each time that it changes."""
    stage, told = WithoutStage(seed, tikv=tikv), list[tuple[float, Losses]]()

    async def whole() -> None:
        await stage.build()
        counter = LossCounter(lambda: stage.rig, TIDB, DEMO)

        async def count() -> None:
            while True:
                found = counter.look()
                if not told or told[-1][1] != found:
                    told.append((stage.rig.clock.now(), found))
                await stage.rig.sleep(1.0)

        counting = asyncio.create_task(count())
        for act in acts:
            await stage.wait_for(act.at)
            if act in PARTS:
                await PARTS[act](stage)
        await stage.rig.sleep(120.0)
        counting.cancel()
        await asyncio.gather(counting, return_exceptions=True)
        await stage.close()

    stage.run(whole)
    return told


def lost_by(told: list[tuple[float, Losses]], moment: float) -> Losses:
    """What had been lost by then."""
    return next((losses for at, losses in reversed(told) if at <= moment), Losses())


class DayWithout:
    """That day, played by another process while ours goes on; asked what it had cost by a moment."""

    def __init__(self, seed: int, tikv: str = TIKV, acts: tuple[type[Any], ...] = ACTS) -> None:
        """`acts`: the first of the day's."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(seed), tikv, str(len(acts))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Ctrl-C is for us; we end it ourselves.
            start_new_session=True,
        )
        self._told: list[tuple[float, Losses]] | None = None

    def by(self, moment: float) -> Losses | None:
        """None: not known yet."""
        if self._told is None and self._process.poll() == 0 and self._process.stdout is not None:
            found = json.loads(self._process.stdout.read())
            self._told = [(at, Losses(*losses)) for at, losses in found]
        if self._told is None:
            return None
        return lost_by(self._told, moment)

    def wait(self, limit_s: float) -> None:
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def main() -> None:
    os.nice(3)  # the day that is watched goes first
    seed, tikv, acts = sys.argv[1:]
    told = play(int(seed), ACTS[: int(acts)], tikv)
    json.dump([(at, (each.pods, each.leaders, each.quorum)) for at, each in told], sys.stdout)


if __name__ == "__main__":
    main()
