"""The same day without Mooring: the same cluster, the same seed, the same moments, and what people do by themselves.

It is played as fast as it goes, in a process of its own beside the demo; what it costs is counted second by second, so
that the page can show both days at the same moment.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from mooring.capabilities.fleet.planner.keys import STATE_TAINT
from mooring.core.model.kinds import Kind
from mooring.demo.acts import ACTS
from mooring.demo.acts.mode_change import ModeChange
from mooring.demo.acts.notice import NOTICE_S, NoticeAct
from mooring.demo.acts.restart import POD, Restart
from mooring.demo.acts.retire import NODE, Retire
from mooring.demo.acts.rolling_update import RollingUpdateAct
from mooring.demo.acts.two_restarts import FIRST, SECOND, TwoRestarts
from mooring.demo.losses import LossCounter, Losses
from mooring.demo.sandbox_stage import SandboxStage
from mooring.demo.stage import TIDB

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


#: What the same moment is without Mooring. An act that is not here costs nothing.
PARTS: dict[type[Any], Part] = {
    RollingUpdateAct: _roll,
    ModeChange: _relabel,
    NoticeAct: _notice,
    Restart: lambda stage: _delete(stage, POD),
    Retire: _taint,
    TwoRestarts: lambda stage: _delete(stage, FIRST, SECOND),
}


def play(seed: int = 1, acts: tuple[type[Any], ...] = ACTS) -> list[tuple[float, Losses]]:
    """(moment, what was lost by then), each time that it changes."""
    stage, told = WithoutStage(seed), list[tuple[float, Losses]]()

    async def whole() -> None:
        await stage.build()
        counter = LossCounter(stage)

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


class DayWithout:
    """That day, played by another process while ours goes on; asked what it had cost by a moment."""

    def __init__(self, seed: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(seed)],
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
        return next((losses for at, losses in reversed(self._told) if at <= moment), Losses())

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
    told = play(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    json.dump([(at, (each.pods, each.leaders, each.quorum)) for at, each in told], sys.stdout)


if __name__ == "__main__":
    main()
