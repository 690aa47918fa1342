"""One run: build the cluster of a plan, let its actions happen, watch, wait until nothing is pending, and judge.

    result = simulate(draw_plan(7))
    result.failure      None, or the first promise that was broken: which, when, and what was seen

Everything is drawn from the plan, so the same plan gives the same run; `digest` is a hash over all that happened.
"""

import hashlib

import msgspec

from mooring.clients.ports import Json
from mooring.process.replica import Replica
from mooring_lab.cluster.clock import StuckError, quiet_collector
from mooring_lab.events.catalogue import CATALOGUE
from mooring_lab.events.context import Draw, EventContext
from mooring_lab.judge.findings import Finding, at_once
from mooring_lab.simulate import quiet
from mooring_lab.simulate.build import add_app, build, follow_fleet, rig_of
from mooring_lab.simulate.invariants import Watch
from mooring_lab.simulate.plan import Action, App, Coverage, Plan
from mooring_lab.stage.rig import Rig


class Result(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    failure: Finding | None
    digest: str
    #: Virtual seconds that the run took.
    lasted_s: float
    coverage: dict[str, int]
    timeline: tuple[str, ...]


class Simulation(EventContext):
    def __init__(self, plan: Plan, *, until_s: float | None = None) -> None:
        super().__init__(rig_of(plan))
        self.plan = plan
        self.replica_count, self.features = plan.shape.replicas, plan.shape.features
        self.until_s = until_s
        self.coverage = Coverage()
        self.timeline: list[str] = []
        self.failure: Finding | None = None
        self.watch = Watch(self)

    # ── Words ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def note(self, words: str) -> None:
        self.timeline.append(f"{self.now:9.2f}  {words}")

    def fail(self, invariant: str, detail: str) -> None:
        """The first one counts; the run ends within a second."""
        if self.failure is None:
            self.failure = at_once(invariant, "", round(self.now, 2), detail)
            self.note(f"BROKEN {invariant}: {detail}")

    def evicted(self, pod: Json, by: str) -> None:
        self.watch.gate.on_eviction(pod, by)

    def held(self, pod: Json, words: str) -> None:
        self.watch.gate.on_held(pod, words)

    # ── The run ───────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> Result:
        try:
            self.stage.play(self._whole)
        except StuckError as error:
            self.fail("virtual time advances", str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            if self.failure is None:
                self.fail("no defect", f"{type(error).__name__}: {error}")
        if self.stage.calls_in_vain:
            self.coverage.hit("webhook-refused", self.stage.calls_in_vain)
        return Result(
            seed=self.plan.seed,
            failure=self.failure,
            digest=self._digest(),
            lasted_s=round(self.now, 2),
            coverage=dict(sorted(self.coverage.counts.items())),
            timeline=tuple(self.timeline),
        )

    def _digest(self) -> str:
        store = self.stage.cluster.store
        parts = [*self.timeline, *self.stage.writes, str(store.revision)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    async def _whole(self, rig: Rig) -> None:
        self.began = rig.clock.monotonic()
        for _ in range(self.plan.shape.replicas):
            self.start_replica()
        await build(rig, self.plan.shape)
        await rig.until(rig.leads, limit_s=120)
        self.began = rig.clock.monotonic()
        follow_fleet(self)
        self.watch.begin()
        for action in self.plan.actions:
            self.after(action.at_s, lambda action=action: self._do(action))  # type: ignore[misc]
        if await self._pass(self.plan.hours * 3600):
            await quiet.come_to_rest(self)

    async def _pass(self, seconds: float) -> bool:
        """False: the run is over before that."""
        end = self.now + seconds
        while self.now < end and self.failure is None:
            if self.until_s is not None and self.now >= self.until_s:
                return False
            await self.stage.sleep(min(1.0, end - self.now))
            self.watch.each_second()
        return self.failure is None

    def start_replica(self) -> Replica:
        replica = self.stage.start()
        self.watch.follow(replica)
        return replica

    def _do(self, action: Action) -> None:
        words = CATALOGUE[action.what](self, (), Draw(action.a, action.b))
        if words:
            self.coverage.hit(f"action {action.what}")
            self.note(f"{action.what}: {words}")

    def hit(self, name: str, times: int = 1) -> None:
        self.coverage.hit(name, times)

    def add_app(self, name: str, replicas: int, mode: str) -> None:
        add_app(self.stage, App(name=name, kind="Deployment", replicas=replicas, mode=mode))


def simulate(plan: Plan, *, until_s: float | None = None) -> Result:
    with quiet_collector(young=10_000_000):  # what a run leaves behind is collected once, when it is over
        return Simulation(plan, until_s=until_s).run()
