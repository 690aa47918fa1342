"""The stage inside this process: the sandbox's cluster, on virtual time, from half past eight in the morning."""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec

from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.demo.commands import type_in
from mooring.demo.stage import DEMO, TIDB, Figures, Stage, rack_of
from mooring.process.config import Config
from mooring.sandbox.clock import Timeline, run_virtual
from mooring.sandbox.cluster import Cluster
from mooring.sandbox.paced import PacedLoop, run_paced
from mooring.sandbox.pd import SandboxPd
from mooring.sim.rig import Rig
from mooring.sim.scenarios.home import ask_mooring

#: Virtual seconds a second between two acts: in effect, as fast as it goes.
HURRY = 1_000_000.0
MIDNIGHT = 1_767_225_600.0  # 2026-01-01T00:00:00Z


class SandboxStage(Stage):
    def __init__(self, seed: int = 1, *, speed: float | None = None, within_s: float | None = None) -> None:
        """`speed`: virtual seconds per second while an act plays; None: as fast as it goes. An act that begins later
        than `within_s` is played as fast as it goes too: on a slow machine the day stays short."""
        super().__init__(Figures())
        self._speed = speed
        self._hurry_from = math.inf if within_s is None else time.monotonic() + within_s
        config = Config(
            features={"handoff": True, "home": True, "mix": True},
            handoff=HandoffPolicy(recheck_s=5.0),
            # Thirteen hours of renewals every two seconds would be most of the day's work.
            lease_s=60,
            renew_s=40.0,
            retry_s=15.0,
        )
        self._seed = seed
        self._rig = Rig(seed=seed, config=config, cluster=Cluster(seed, Timeline(MIDNIGHT + 8.5 * 3600)))

    @property
    def rig(self) -> Rig:
        return self._rig

    async def kubectl(self, command: str) -> None:
        await type_in(self._rig.api.as_client("kubectl"), command)

    async def add_nodes(self, names: list[str], **how: Any) -> None:
        for name in names:
            self._rig.cluster.add_node(name, rack=rack_of(name), **how)

    async def open_scheduler(self) -> None:
        ask_mooring(self._rig)

    async def place_pd(self) -> None:
        cluster = self._rig.cluster
        cluster.pd[TIDB, DEMO] = SandboxPd(cluster.timeline, seed=self._seed, cluster=DEMO, namespace=TIDB)

    async def start(self) -> None:
        self._rig.start()

    def switch_on(self, feature: str) -> None:
        rig = self._rig
        rig.config = msgspec.structs.replace(rig.config, features={**rig.config.features, feature: True})
        for one in rig.replicas.values():
            one.replica.apply(rig.config)

    @property
    def registry_url(self) -> str:
        return "http://sabakan.sandbox:10080"

    async def wait_for(self, at: str) -> None:
        hours, _, minutes = at.partition(":")
        goal = MIDNIGHT + int(hours) * 3600 + int(minutes) * 60
        left = goal - self._rig.clock.now()
        if left > 0:
            await self._rig.sleep(left)

    @contextlib.contextmanager
    def hurry(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, PacedLoop):
            yield
            return
        pace, loop.pace.speed = loop.pace.speed, HURRY
        try:
            yield
        finally:
            loop.pace.speed = pace if time.monotonic() < self._hurry_from else HURRY

    def run(self, whole: Callable[[], Awaitable[None]]) -> None:
        if self._speed is None:
            run_virtual(whole, self._rig.cluster.timeline)
        else:
            run_paced(whole, self._rig.cluster.timeline, self._speed)

    async def close(self) -> None:
        for name in list(self._rig.replicas):
            self._rig.kill(name)
        await asyncio.sleep(0)

    def clock_word(self, at: str) -> str:
        return at
