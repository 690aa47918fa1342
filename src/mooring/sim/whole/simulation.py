"""One run: build the cluster of a plan, let its deeds happen, watch, wait until nothing is pending, and judge.

    result = simulate(draw_plan(7))
    result.failure      None, or the first promise that was broken: which, when, and what was seen

Everything is drawn from the plan, so the same plan gives the same run; `digest` is a hash over all that happened.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.process.replica import Replica
from mooring.sandbox.clock import StuckError
from mooring.sandbox.collector import quiet_collector
from mooring.sandbox.controllers.podstate import annotations_of
from mooring.sim.rig import Rig
from mooring.sim.whole import cke, faults, interference, load, machines, quiet
from mooring.sim.whole.build import build, rig_of
from mooring.sim.whole.coverage import Coverage
from mooring.sim.whole.invariants import Watch
from mooring.sim.whole.plan import Deed, Plan

T = TypeVar("T")
DeedFn = Callable[["Simulation", float, float], str]

DEEDS: dict[str, DeedFn] = {**load.DEEDS, **machines.DEEDS, **interference.DEEDS, **faults.DEEDS}


class BrokenInvariant(msgspec.Struct, frozen=True):
    invariant: str
    #: Virtual seconds since the replicas started.
    at: float
    detail: str


class Result(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    failure: BrokenInvariant | None
    digest: str
    #: Virtual seconds that the run took.
    lasted_s: float
    coverage: dict[str, int]
    timeline: tuple[str, ...]


class Persons(msgspec.Struct):
    """What people did that only people undo."""

    cordoned: set[str] = msgspec.field(default_factory=set)
    #: (cluster, store) whose evict-leader scheduler is a person's.
    evicts: set[tuple[str, int]] = msgspec.field(default_factory=set)
    #: Clusters whose marks or schedulers a person has tampered with: what is left in PD is theirs to remove.
    tampered: set[str] = msgspec.field(default_factory=set)
    #: Pods whose mark a person took away: one that was detached is theirs to delete.
    unmarked: set[str] = msgspec.field(default_factory=set)
    tainted: set[str] = msgspec.field(default_factory=set)
    #: When something that Mooring relies on was last deleted or changed.
    at: float = -1e9


class Simulation:
    def __init__(self, plan: Plan, *, until_s: float | None = None) -> None:
        self.plan = plan
        self.rig: Rig = rig_of(plan)
        self.until_s = until_s
        self.coverage = Coverage()
        self.persons = Persons()
        self.timeline: list[str] = []
        self.failure: BrokenInvariant | None = None
        self.began = 0.0
        self.over = False
        self.watch = Watch(self)

    # ── Time and words ────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def now(self) -> float:
        """Virtual seconds since the replicas started."""
        return self.rig.clock.monotonic() - self.began

    def after(self, seconds: float, fn: Callable[[], object]) -> None:
        """Unless the run is over by then."""

        def due() -> None:
            if not self.over:
                fn()

        self.rig.cluster.timeline.after(seconds, due)

    def note(self, words: str) -> None:
        self.timeline.append(f"{self.now:9.2f}  {words}")

    def fail(self, invariant: str, detail: str) -> None:
        """The first one counts; the run ends within a second."""
        if self.failure is None:
            self.failure = BrokenInvariant(invariant, round(self.now, 2), detail)
            self.note(f"BROKEN {invariant}: {detail}")

    # ── Finding objects ───────────────────────────────────────────────────────────────────────────────────────────

    @staticmethod
    def pick(found: Sequence[T], draw: float) -> T | None:
        return found[int(draw * len(found))] if found else None

    def objects(self, kind: Kind, having: str = "", namespace: str | None = None) -> list[Json]:
        """By name; `having`: with this annotation."""
        found = self.rig.cluster.store.list(kind, namespace)
        return [obj for obj in found if not having or having in annotations_of(obj)]

    def replicas(self) -> list[Replica]:
        return [one.replica for one in self.rig.replicas.values()]

    # ── The run ───────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> Result:
        try:
            self.rig.play(self._whole)
        except StuckError as error:
            self.fail("virtual time advances", str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            if self.failure is None:
                self.fail("no defect", f"{type(error).__name__}: {error}")
        if self.rig.calls_in_vain:
            self.coverage.hit("webhook-refused", self.rig.calls_in_vain)
        return Result(
            seed=self.plan.seed,
            failure=self.failure,
            digest=self._digest(),
            lasted_s=round(self.now, 2),
            coverage=dict(sorted(self.coverage.counts.items())),
            timeline=tuple(self.timeline),
        )

    def _digest(self) -> str:
        store = self.rig.cluster.store
        parts = [*self.timeline, *self.rig.writes, str(store.revision)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    async def _whole(self, rig: Rig) -> None:
        self.began = rig.clock.monotonic()
        for _ in range(self.plan.shape.replicas):
            self.start_replica()
        await build(rig, self.plan.shape)
        await rig.until(rig.leads, limit_s=120)
        self.began = rig.clock.monotonic()
        cke.begin(self)
        self.watch.begin()
        for deed in self.plan.deeds:
            self.after(deed.at_s, lambda deed=deed: self._do(deed))  # type: ignore[misc]
        if await self._pass(self.plan.hours * 3600):
            await quiet.come_to_rest(self)

    async def _pass(self, seconds: float) -> bool:
        """False: the run is over before that."""
        end = self.now + seconds
        while self.now < end and self.failure is None:
            if self.until_s is not None and self.now >= self.until_s:
                return False
            await self.rig.sleep(min(1.0, end - self.now))
            self.watch.each_second()
        return self.failure is None

    def start_replica(self) -> Replica:
        replica = self.rig.start()
        self.watch.follow(replica)
        return replica

    def _do(self, deed: Deed) -> None:
        words = DEEDS[deed.what](self, deed.a, deed.b)
        if words:
            self.coverage.hit(f"action {deed.what}")
            self.note(f"{deed.what}: {words}")

    def engine(self) -> Any:
        leader = self.rig.leader()
        return leader.engine if leader is not None else None


def simulate(plan: Plan, *, until_s: float | None = None) -> Result:
    with quiet_collector(young=10_000_000):  # what a run leaves behind is collected once, when it is over
        return Simulation(plan, until_s=until_s).run()
