"""An event on a snapshot: the sandbox stands as it says, a whole replica runs on it, and the observer counts.

    load ── Mooring comes up and settles ──▶ the event ──▶ … until nothing moves, or the time is over ──▶ outcome

All of it is virtual time from one seed: the same snapshot, event, settings and seed make the same outcome, byte for
byte. Nothing outside this process is touched.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

import msgspec

from mooring.capabilities.registry import names
from mooring.core.model.kinds import Kind
from mooring.core.queue.audit import audit
from mooring.demo.sandbox_stage import HURRY
from mooring.process.config import Config
from mooring.rehearse.events import LOSSES, Act, Name
from mooring.rehearse.findings import breaches, interrupted, not_played, remarks, still_open
from mooring.rehearse.inject import strike
from mooring.rehearse.load import Loaded, load, schedulers_of_members
from mooring.rehearse.members import Members
from mooring.rehearse.observer import Observer
from mooring.rehearse.outcome import Outcome, Played, judge
from mooring.rehearse.promises import others, promises, workloads
from mooring.rehearse.regions import Regions
from mooring.rehearse.room import more_nodes, unplaced
from mooring.rehearse.schema import Snapshot
from mooring.rehearse.timeline import PlayTimeline
from mooring.sandbox.chance import SeededChance
from mooring.sandbox.clock import run_virtual
from mooring.sandbox.collector import quiet_collector
from mooring.sandbox.kubelet import Pace
from mooring.sandbox.paced import PacedLoop, run_paced
from mooring.sim.rig import Rig
from mooring.sim.scenarios.home import ask_mooring

#: Ids and names: the same for every seed, so that seeds differ in what is left to chance alone.
LOAD_SEED: Final = 1
LOOK_S: Final = 0.5
#: Mooring may put right what it finds before anything befalls the cluster, for so long at most.
SETTLE_S: Final = 900.0
#: Nothing waits or runs for this long: Mooring has settled. Longer than the minute between two looks at a registry.
SETTLED_S: Final = 90.0
#: Nobody is short, nothing waits, and nothing has moved for this long: it is over.
CALM_S: Final = 80.0
#: Nothing moved for this long: it is over. Kubernetes believes in a silent node for 50 s and then waits for 300 s.
QUIET_S: Final = 420.0
#: Another replica leads so long after the leader was lost: the lease, and a moment to come up.
TAKE_OVER_S: Final = 17.0

T = TypeVar("T")
Progress = Callable[[float, str], None]


class Beside(Protocol):
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
    pace: Pace | None = None,
    progress: Progress = lambda _at, _words: None,
) -> Outcome:
    return Play(snapshot, acts, config, seed=seed, limit_s=limit_s, pace=pace, progress=progress).run()


class Play:
    outcome: Outcome

    def __init__(
        self,
        snapshot: Snapshot,
        acts: list[Act],
        config: Config,
        *,
        seed: int,
        limit_s: float,
        pace: Pace | None = None,
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
        # One replica and no rival: renewing every two seconds would be most of an hour's work.
        config = msgspec.structs.replace(config, lease_s=60, renew_s=40.0, retry_s=15.0)
        # Where the real one finds its neighbours and certificates is not here.
        config = msgspec.structs.replace(
            config, namespace=snapshot.namespace, pd={}, webhook_url="", webhook_certificates=""
        )
        self.rig = Rig(seed=LOAD_SEED, config=config, cluster=self._loaded.cluster)
        if "home" in config.on():
            for scheduler in schedulers_of_members(snapshot):
                ask_mooring(self.rig, scheduler=scheduler)
        self._ended = "limit"
        self._broken: dict[str, None] = {}
        self._audited = -1
        self._housekeeping = 0

    def run(self, beside: Beside | None = None, speed: float = 1.0) -> Outcome:
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
        self._acts = acts
        self.draw(self._seed)
        self._begin()
        await self._go_on()
        _set_speed(HURRY)
        await self._finish()

    def draw(self, seed: int) -> None:
        """What is left to chance from now on: which of several equal nodes the scheduler takes; 1: the first."""
        self._seed = seed
        self.rig.cluster.scheduler.draw_ties(None if seed == 1 else SeededChance(seed).fork("ties"))

    async def come_up(self) -> None:
        """Mooring runs on the snapshot and has put right what it found."""
        self._progress(0.0, "Mooring comes up on the snapshot")
        rig = self.rig
        replica = rig.start()
        await rig.until(rig.leads)
        if "mix" in rig.config.on():
            await rig.until(lambda: bool(rig.cluster.store.list(Kind.MUTATING_WEBHOOK)))
        count = PlayTimeline(lambda: 0.0)
        count.follow(replica.engine)
        calm, end = 0.0, rig.clock.monotonic() + SETTLE_S
        while calm < SETTLED_S and rig.clock.monotonic() < end:
            await rig.sleep(LOOK_S)
            calm = 0.0 if rig.unsettled() else calm + LOOK_S
        count.unfollow(replica.engine)
        self._housekeeping = sum(ends.get("finished", 0) for ends in count.ended.values())

    def _begin(self) -> None:
        rig, cluster = self.rig, self.rig.cluster
        config = rig.config
        known = workloads(cluster.store)
        self._wanted = known + others(cluster.store, known)
        # A machine that dies takes its on-demand replicas along; the floor is a promise against spot alone.
        floor = "mix" in config.on() and not any(act.name in LOSSES for act in self._acts)
        self._promises = promises(cluster.store, config.mix, mix=floor)
        self.timeline = PlayTimeline(lambda: self.observer.now_s)
        ours: set[str] = set()
        self._writes_read = len(rig.writes)

        def by_us(pod: str) -> bool:
            for write in rig.writes[self._writes_read :]:
                if write.startswith(("evict Pod ", "delete Pod ")):
                    ours.add(write.split(" ", 2)[2])
            self._writes_read = len(rig.writes)
            return pod in ours

        self.observer = Observer(
            cluster, self._wanted, self._promises, config.mix.capacity, by_us=by_us, say=self.timeline.say
        )
        self._members = Members(cluster, self.observer)
        self._regions = Regions(cluster, self.observer, self._loaded.scale)
        leader = rig.leader()
        if leader is not None:
            self.timeline.follow(leader.engine)
        self._shapes = list(cluster.store.list(Kind.NODE))
        self._pending = {one.pod for one in unplaced(cluster, self.observer.workload_of)}
        for act in self._acts:
            cluster.timeline.after(act.after_s, lambda act=act: self._strike(act))  # type: ignore[misc]

    def _strike(self, act: Act) -> None:
        self.timeline.say("event", act.title)
        if act.notice_s is not None:
            self.observer.noticed.update(act.nodes)
        strike(self.rig.cluster, act)
        if act.name is Name.LEADER_LOST:
            self.rig.kill()
            self.rig.cluster.timeline.after(TAKE_OVER_S, self._take_over)

    def _take_over(self) -> None:
        """The other replica: the lease of the one that was lost has run out by now."""
        store, namespace = self.rig.cluster.store, self.rig.config.namespace
        for lease in store.list(Kind.LEASE, namespace):
            store.delete(Kind.LEASE, namespace, lease["metadata"]["name"])
        replica = self.rig.start()
        self.timeline.follow(replica.engine)
        self.timeline.say("mooring", f"{replica.identity} takes over")

    async def _go_on(self) -> None:
        rig, observer = self.rig, self.observer
        last = max(act.after_s + (act.notice_s or act.away_s) for act in self._acts)
        shown = -1
        while observer.now_s < self._limit_s:
            await rig.sleep(LOOK_S)
            for words in self._members.look():
                self.timeline.say("pd", words)
            self._regions.look()
            self._audit()
            if int(observer.now_s) // 10 != shown:
                shown = int(observer.now_s) // 10
                self._progress(observer.now_s, self._where())
            if observer.now_s > last + 1.0 and self._is_quiet():
                self._ended = "quiet"
                return

    def _is_quiet(self) -> bool:
        """Nothing moves, and nothing that is awaited could still begin to."""
        leader = self.rig.leader()
        if leader is None:
            return False
        patience = QUIET_S if self._waits() else CALM_S
        return self.observer.quiet_s >= patience and self._told_s >= CALM_S

    @property
    def _told_s(self) -> float:
        """Since when nothing was told."""
        rows = self.timeline.rows
        return self.observer.now_s - rows[-1].at_s if rows else self.observer.now_s

    def _waits(self) -> bool:
        """Kubernetes may still have something to do: a silent node, an operator under way, a workload that is short."""
        cluster = self.rig.cluster
        if any(cluster.kubelets.silent_since(name) is not None for _, name in cluster.store.keys(Kind.NODE)):
            return True
        return bool(self.rig.leader() and self.rig.unsettled()) or any(
            meter.is_below for meter in self.observer.meters[: len(self._wanted)]
        )

    def _audit(self) -> None:
        """The queue's own rules, whenever it has told something new."""
        leader = self.rig.leader()
        if leader is not None and leader.engine.history.count != self._audited:
            self._audited = leader.engine.history.count
            self._broken.update(dict.fromkeys(audit(leader.engine.queue)))

    def _where(self) -> str:
        leader = self.rig.leader()
        if leader is None:
            return "no replica leads"
        queue = leader.engine.queue
        short = sum(meter.is_below for meter in self.observer.meters[: len(self._wanted)])
        return f"{len(queue.running)} run, {len(queue.waiting)} wait; {short} workloads short"

    # ── The end ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _finish(self) -> None:
        rig, cluster, observer = self.rig, self.rig.cluster, self.observer
        ended_s = observer.now_s
        observer.stop()
        open_ = still_open(rig.leader())
        waiting = unplaced(cluster, observer.workload_of)
        rows = tuple(self.timeline.rows)
        tolls, stuck = self._regions.tolls(), tuple(observer.stuck())
        cut_s = self._limit_s if self._ended == "limit" else None
        said = remarks(self._housekeeping, self._wanted, observer, cut_s)
        for name in list(rig.replicas):
            rig.kill(name)
        new = [one for one in waiting if one.pod not in self._pending]
        told, more = await more_nodes(cluster, new, rig.config.mix.capacity, self._shapes, rig.sleep)
        told += [msgspec.structs.replace(one, lacks="before") for one in waiting if one.pod in self._pending]
        self.outcome = judge(
            Played(
                source=self._snapshot.source,
                taken_at=self._snapshot.taken_at,
                nodes=len(self._snapshot.of(Kind.NODE)),
                pods=len(self._snapshot.of(Kind.POD)),
                seed=self._seed,
                features=tuple(sorted(rig.config.on())),
                events=tuple(act.title for act in self._acts),
                names=tuple(act.name for act in self._acts),
                ended=self._ended,
                played_s=round(ended_s, 1),
                interrupted=tuple(interrupted(self._wanted, observer.meters, ended_s)),
                workloads=len(self._wanted),
                not_played=tuple(not_played(self._wanted, observer)),
                lost_for_good=tuple(one.pod for one in observer.gone if one.how == "lost" and not one.workload),
                assumed_pds=tuple(sorted(str(key) for key in self._loaded.assumed_pds)),
                standing_still=self._snapshot.not_played,
                breaches=tuple(breaches(self._promises, observer.meters[len(self._wanted) :], ended_s)),
                regions=tolls,
                gone=tuple(observer.gone),
                come=tuple(observer.come),
                unplaced=tuple(told),
                more=tuple(more),
                stuck=stuck,
                broken_limits=tuple(self._broken),
                operators={source: dict(sorted(of.items())) for source, of in sorted(self.timeline.ended.items())},
                open=open_,
                timeline=rows,
                remarks=(*self._snapshot.remarks, *self._loaded.remarks, *said),
            )
        )


def _set_speed(speed: float) -> None:
    loop = asyncio.get_running_loop()
    if isinstance(loop, PacedLoop):
        loop.pace.speed = speed
