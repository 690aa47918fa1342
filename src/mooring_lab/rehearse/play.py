"""An event on a snapshot: the sandbox is put into its state, a whole replica runs on it, and the observer counts.

    load ── Mooring comes up and settles ──▶ the event ──▶ … until nothing moves, or the time is over ──▶ outcome

All of it is virtual time from one seed: the same snapshot, event, settings and seed make the same outcome, byte for
byte. Nothing outside this process is touched.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

import msgspec

from mooring.capabilities.registry import names, serving
from mooring.core.model.kinds import Kind
from mooring.process.settings.config import Config
from mooring_lab.cluster.clock import quiet_collector, run_virtual
from mooring_lab.cluster.kubelet import KubeletPace
from mooring_lab.cluster.paced import PacedLoop, run_paced
from mooring_lab.cluster.randomness import SeededRandomness
from mooring_lab.demo.sandbox_stage import HURRY
from mooring_lab.judge.lines import some
from mooring_lab.rehearse.aftermath import LOOK_S, Aftermath, PlayTimeline, Progress
from mooring_lab.rehearse.events.catalog import Act
from mooring_lab.rehearse.outcome import RehearsalOutcome, judge
from mooring_lab.rehearse.snapshot.load import Loaded, load, schedulers_of_members
from mooring_lab.rehearse.snapshot.schema import Snapshot
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.home import ask_mooring

#: Ids and names: the same for every seed, so that seeds differ in what is left to randomness alone.
LOAD_SEED: Final = 1
#: Before the event Mooring may correct what it finds, for so long at most.
SETTLE_S: Final = 900.0
#: Nothing waits or runs for this long: Mooring has settled. Longer than the minute between two looks at a registry.
SETTLED_S: Final = 90.0

T = TypeVar("T")


class Companion(Protocol):
    """Something that lives while it is played."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


def everything_on(config: Config) -> Config:
    """The settings of a rehearsal that names no features: all of them."""
    return msgspec.structs.replace(config, features=dict.fromkeys(names(), True))


def rehearse(
    snapshot: Snapshot,
    acts: list[Act],
    config: Config,
    *,
    seed: int = 1,
    limit_s: float = 1800.0,
    pace: KubeletPace | None = None,
    progress: Progress = lambda _at, _words: None,
) -> RehearsalOutcome:
    return Play(snapshot, acts, config, seed=seed, limit_s=limit_s, pace=pace, progress=progress).run()


class Play:
    outcome: RehearsalOutcome

    def __init__(
        self,
        snapshot: Snapshot,
        acts: list[Act],
        config: Config,
        *,
        seed: int,
        limit_s: float,
        pace: KubeletPace | None = None,
        progress: Progress = lambda _at, _words: None,
        loaded: Loaded | None = None,
    ) -> None:
        """`loaded`: a cluster that stands already, instead of the snapshot's."""
        self._snapshot = snapshot
        self._acts = acts
        self._limit_s = limit_s
        self._progress = progress
        self._seed = seed
        self._loaded = loaded or load(snapshot, LOAD_SEED, pace)
        # One replica without competitors: renewing every two seconds would be most of an hour's work.
        config = msgspec.structs.replace(config, lease_s=60, renew_s=40.0, retry_s=15.0)
        # Where the real one finds its neighbours and certificates is not here.
        config = msgspec.structs.replace(
            config, namespace=snapshot.namespace, pd={}, webhook_url="", webhook_certificates=""
        )
        self.rig = Rig(seed=LOAD_SEED, config=config, cluster=self._loaded.cluster)
        if serving("extender", config.on()):
            for scheduler in schedulers_of_members(snapshot):
                ask_mooring(self.rig, scheduler=scheduler)
        self._housekeeping = 0

    @property
    def starts_vary(self) -> bool:
        """Pods of one workload took more or less long to start, or nothing is known of it."""
        return self._loaded.starts_vary

    def play_slow_starts(self) -> None:
        """From now on, and without a word of how far it is: it is played beside the usual."""
        self.rig.cluster.kubelets.slowest = True
        self._progress = lambda _at, _words: None

    def run(self, beside: Companion | None = None, speed: float = 1.0) -> RehearsalOutcome:
        """`beside`: what lives next to it, as the page does; from the event on, a second is `speed` virtual ones."""
        self._beside, self._speed = beside, speed
        timeline = self.rig.cluster.timeline
        with quiet_collector():
            if beside is None:
                run_virtual(self.whole, timeline)
            else:
                run_paced(self.whole, timeline, HURRY)
        return self.outcome

    # ── The whole of it ───────────────────────────────────────────────────────────────────────────────────────────

    async def whole(self) -> None:
        async def one() -> None:
            if self._beside is not None:
                await self._beside.start()
            await self.come_up()
            _set_speed(self._speed)
            await self.perform(self._acts)

        try:
            await self.and_clean_up(one)
        finally:
            if self._beside is not None:
                await self._beside.stop()

    async def and_clean_up(self, body: Callable[[], Awaitable[T]]) -> T:
        """`body`, and afterwards no replica is left."""
        try:
            return await body()
        finally:
            for name in list(self.rig.replicas):
                self.rig.kill(name)
            await asyncio.sleep(0)

    async def perform(self, acts: list[Act]) -> None:
        """The event and what comes of it, on a cluster that has come up; the outcome is there afterwards."""
        self.draw(self._seed)
        after = Aftermath(self.rig, self._loaded, acts, self._limit_s, self._progress)
        await after.follow()
        _set_speed(HURRY)
        said = (*self._snapshot.remarks, *self._loaded.remarks, *self._put_right())
        self.outcome = judge(await after.finish(self._snapshot, self._seed, said))

    def _put_right(self) -> list[str]:
        if not self._housekeeping:
            return []
        moved = some(self._housekeeping, "operator")
        return [f"before the event, Mooring fixed what it found ({moved}); not counted"]

    def draw(self, seed: int) -> None:
        """What is left to randomness from now on: which of several equal nodes the scheduler takes; 1: the first."""
        self._seed = seed
        self.rig.cluster.scheduler.draw_ties(None if seed == 1 else SeededRandomness(seed).fork("ties"))

    async def come_up(self) -> None:
        """Mooring runs on the snapshot and has corrected what it found."""
        self._progress(0.0, "Mooring comes up on the snapshot")
        rig = self.rig
        replica = rig.start()
        await rig.until(rig.leads)
        if serving("webhook", rig.config.on()):
            await rig.until(lambda: bool(rig.cluster.store.list(Kind.MUTATING_WEBHOOK)))
        count = PlayTimeline(lambda: 0.0)
        count.follow(replica.engine)
        await self._settle()
        count.unfollow(replica.engine)
        self._housekeeping = sum(ends.get("finished", 0) for ends in count.ended.values())

    async def change(self, made: Callable[[Rig], Awaitable[None]]) -> None:
        """A change by a person, before the event."""
        await made(self.rig)
        await self._settle()

    async def _settle(self) -> None:
        rig = self.rig
        calm, end = 0.0, rig.clock.monotonic() + SETTLE_S
        while calm < SETTLED_S and rig.clock.monotonic() < end:
            await rig.sleep(LOOK_S)
            calm = 0.0 if rig.unsettled() else calm + LOOK_S


def _set_speed(speed: float) -> None:
    loop = asyncio.get_running_loop()
    if isinstance(loop, PacedLoop):
        loop.pace.speed = speed
