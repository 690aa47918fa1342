"""Play one scenario under one scheme, half a second at a time, and count.

Each tick: what is copied goes on at the rate that its two stores have left, steps that are done change their region,
operators that are done make room, and the schedulers look. It is over when nothing runs, nothing waits and nothing has
been proposed for a while.
"""

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Final

import msgspec

from bench.regions.effects import apply
from bench.regions.model import Model
from bench.regions.scenarios import RegionCluster
from bench.regions.schemes import LimitScheme, Scheme
from mooring.capabilities.balance import BalancePolicy, Summary
from mooring.capabilities.balance.policy import ORDER, REPLICA
from mooring.core.model.operator import Operator, StepKind
from mooring.core.queue.config import REGION_SCHEDULERS
from mooring_lab.cluster.randomness import SeededRandomness

TICK_S: Final = 0.5
#: Looks per tick: PD's schedulers look every 10 ms, and find nothing new in most of them.
LOOKS: Final = 5
QUIET_TICKS: Final = 8
#: Shares are compared over windows of so many ticks.
WINDOW: Final = 20
_COPIES: Final = frozenset({StepKind.ADD_LEARNER, StepKind.ADD_PEER})


class Figures(msgspec.Struct, kw_only=True):
    """What one play came to. `balanced_s` None: not within the time given."""

    scheme: str
    balanced_s: float | None
    #: When the last repair was done; None: there was nothing to repair.
    repaired_s: float | None
    moves: int
    #: Cost under way on one store: the most ever, and the 99th percentile of those that had any.
    peak_cost: int
    p99_cost: int
    #: Store-seconds above MaxScheduleCost, and how often a limit of the scheme's own was overrun.
    above_limit_s: float
    overshoots: int
    #: Peers and leaders that went back from where an earlier move had brought them.
    undone: int
    #: 1: schedulers that wanted something began equally much; 1/n: one began everything.
    jain: float
    by_source: dict[str, int]
    #: Times an idle store's latency: the slowest store ever, and the 99th percentile over time of the slowest one.
    peak_latency: float
    p99_latency: float


class RunningOperator:
    __slots__ = ("left_mib", "left_s", "operator", "step")

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.step = -1
        self.left_s = 0.0
        self.left_mib = 0.0


class _Counts:
    """What is counted on the way."""

    def __init__(self) -> None:
        self.moves: Counter[str] = Counter()
        self.gained: set[tuple[str, int, int]] = set()
        self.undone = 0
        self.costs_seen: Counter[int] = Counter()
        self.worst: list[float] = []
        self.above = 0
        self.begun: Counter[str] = Counter()
        self.shares: list[float] = []
        self.repaired: int | None = None


class _Play:
    def __init__(
        self, cluster: RegionCluster, scheme: Scheme, model: Model, policy: BalancePolicy, randomness: Random
    ) -> None:
        self.model = model
        self.scheme = scheme
        self.summary = Summary(policy)
        self.summary.set_stores(cluster.stores.values(), cluster.evicting)
        for region in cluster.regions:
            self.summary.put(region)
        self.busy = {s: randomness.uniform(model.busy_low, model.busy_high) for s in cluster.stores}
        #: Some stores are slower than others.
        self.bandwidth = dict.fromkeys(cluster.stores, model.bandwidth_mib_per_s)
        self.sources = tuple(policy.sources)
        self.running: dict[str, RunningOperator] = {}
        self.cost: Counter[int] = Counter()
        self.next_region = max((r.id for r in cluster.regions), default=0) + 1
        self.ticks = 0
        self.counts = _Counts()

    # ── Carrying out ──────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, operators: list[Operator]) -> None:
        for operator in operators:
            self.running[operator.id] = run = RunningOperator(operator)
            self.counts.moves[operator.source] += 1
            for target, cost in operator.cost.items():
                self.cost[int(target)] += cost
                self.counts.begun[operator.source] += cost
            self._next_step(run)

    def _next_step(self, run: RunningOperator) -> bool:
        """False: there is none left."""
        run.step += 1
        if run.step == len(run.operator.steps):
            return False
        step = run.operator.steps[run.step]
        region = self.summary.regions.get(int(run.operator.subject.rpartition("/")[2]))
        run.left_mib = float(max(1, region.size_mib)) if step.kind in _COPIES and region is not None else 0.0
        run.left_s = self.model.merge_s if step.kind is StepKind.MERGE_REGION else self.model.fast_step_s
        return True

    def carry_on(self) -> None:
        sending, receiving = Counter[int](), Counter[int]()
        copies = []
        for run in self.running.values():
            step = run.operator.steps[run.step]
            if step.kind in _COPIES and run.left_mib > 0:
                ends = self._leader(run.operator), step.store or 0
                sending[ends[0]] += 1
                receiving[ends[1]] += 1
                copies.append((run, ends))
        for run, (sender, receiver) in copies:
            rate = min(
                self.model.snapshot_mib_per_s,
                self.bandwidth.get(sender, self.model.bandwidth_mib_per_s) / sending[sender],
                self.bandwidth.get(receiver, self.model.bandwidth_mib_per_s) / receiving[receiver],
            )
            run.left_mib -= rate * TICK_S
        for run in list(self.running.values()):
            if run.left_mib <= 0:
                run.left_s -= TICK_S
                if run.left_s <= 0:
                    self._step_done(run)

    def _leader(self, operator: Operator) -> int:
        region = self.summary.regions.get(int(operator.subject.rpartition("/")[2]))
        return region.leader_store if region is not None else 0

    def _step_done(self, run: RunningOperator) -> None:
        operator, step = run.operator, run.operator.steps[run.step]
        gains, losses, self.next_region = apply(self.summary, operator, step, self.next_region)
        self.counts.undone += sum(1 for loss in losses if loss in self.counts.gained)
        self.counts.gained.difference_update(losses)
        self.counts.gained.update(gains)
        if not self._next_step(run):
            del self.running[operator.id]
            if operator.source == REPLICA:
                self.counts.repaired = self.ticks
            for target, cost in operator.cost.items():
                self.cost[int(target)] -= cost
            self.begin(self.scheme.finish(operator))

    # ── Counting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def measure(self, limit: int) -> None:
        for cost in self.cost.values():
            if cost:
                self.counts.costs_seen[cost] += 1
                self.counts.above += cost > limit
        load = dict(self.busy)
        for run in self.running.values():
            step, peers = run.operator.steps[run.step], run.operator.cost
            one = self.model.load_of(step.kind)
            sender = step.from_store or (
                step.store if step.kind is StepKind.REMOVE_PEER else self._leader(run.operator)
            )
            receiver = step.to_store or step.store or 0
            for store, share in ((sender or 0, one.sender), (receiver, one.receiver)):
                if store in load:
                    load[store] += share
            if one.every_peer:
                for target in peers:
                    load[int(target)] = load.get(int(target), 0.0) + one.every_peer
        self.counts.worst.append(self.model.latency(max(load.values())))

    def compare_shares(self, turn: int) -> None:
        """Of those that wanted something in this window: did each begin as much as the others?"""
        wanting = self.scheme.wanting(self.summary, self.sources, turn) | set(self.counts.begun)
        if len(wanting) > 1:
            shares = [self.counts.begun[s] for s in sorted(wanting)]
            squares = len(shares) * sum(x * x for x in shares)
            self.counts.shares.append(sum(shares) ** 2 / squares if squares else 1.0)
        self.counts.begun.clear()


def play(
    cluster: RegionCluster,
    scheme: Scheme,
    *,
    seed: int = 1,
    model: Model | None = None,
    policy: BalancePolicy | None = None,
    limit: int = 20,
    slow: Mapping[int, float] | None = None,
    at_most_s: float = 4 * 3600.0,
) -> Figures:
    """`limit`: what a store may bear, for counting who went above it; `slow`: stores with a bandwidth of their own."""
    policy = policy or BalancePolicy(sources=REGION_SCHEDULERS)
    stage = _Play(cluster, scheme, model or Model(), policy, SeededRandomness(f"{seed}/busy").random)
    stage.bandwidth.update(slow or {})
    quiet = last = turn = 0
    while quiet < QUIET_TICKS and stage.ticks * TICK_S < at_most_s:
        stage.carry_on()
        looks = LOOKS
        while looks:
            turn += 1
            begun = scheme.propose(stage.summary, stage.sources, turn, stage.ticks * TICK_S)
            stage.begin(begun)
            looks = looks - 1 if begun else 0
        stage.measure(limit)
        stage.ticks += 1
        if stage.ticks % WINDOW == 0:
            stage.compare_shares(turn)
        if stage.running or scheme.waiting:
            quiet, last = 0, stage.ticks
        else:
            quiet += 1
    return _figures(stage, scheme, last if quiet >= QUIET_TICKS else None)


def _figures(stage: _Play, scheme: Scheme, last: int | None) -> Figures:
    costs = sorted(stage.counts.costs_seen.elements()) if stage.counts.costs_seen else [0]
    worst = sorted(stage.counts.worst) or [1.0]
    return Figures(
        scheme=scheme.name,
        balanced_s=None if last is None else last * TICK_S,
        repaired_s=None if stage.counts.repaired is None else stage.counts.repaired * TICK_S,
        moves=stage.counts.moves.total(),
        peak_cost=costs[-1],
        p99_cost=costs[int(0.99 * (len(costs) - 1))],
        above_limit_s=stage.counts.above * TICK_S,
        overshoots=scheme.overshoots if isinstance(scheme, LimitScheme) else 0,
        undone=stage.counts.undone,
        jain=round(sum(stage.counts.shares) / len(stage.counts.shares), 3) if stage.counts.shares else 1.0,
        by_source={s: stage.counts.moves[s] for s in ORDER if stage.counts.moves[s]},
        peak_latency=round(worst[-1], 2),
        p99_latency=round(worst[int(0.99 * (len(worst) - 1))], 2),
    )
