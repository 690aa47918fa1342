"""The sweep: every single failure played on one snapshot, and what was found, ranked: where is this cluster weakest?"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from mooring.capabilities.mix.labels import AFFINITY
from mooring.capabilities.mix.policy import MixPolicy
from mooring.capabilities.mix.worth import saved_a_month
from mooring.clients.wire.kube import project
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Node, Pod
from mooring.core.model.kinds import Kind
from mooring.process.assemble import capacity_rules
from mooring.process.settings.config import Config
from mooring_lab.cluster.kubelet import KubeletPace
from mooring_lab.rehearse.events.catalog import Options, acts
from mooring_lab.rehearse.events.failures import Failure
from mooring_lab.rehearse.outcome import BROKEN, CANNOT_TELL, KEPT, RehearsalOutcome
from mooring_lab.rehearse.play import Play
from mooring_lab.rehearse.snapshot.schema import Snapshot
from mooring_lab.rehearse.sweep.broken import Broken
from mooring_lab.rehearse.sweep.forks import Failed, Task, play_each

FORMAT: Final = "mooring-rehearsal-sweep"


class SweepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How each event is played; the same for all."""

    config: Config
    options: Options = Options()
    seed: int = 1
    pace: KubeletPace = KubeletPace()


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one event."""

    event: str
    scope: str
    verdict: str
    #: Line 1 of `mooring rehearse play`.
    first: str
    breaches: tuple[Broken, ...] = ()
    cannot_tell: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()
    over_s: float | None = None


class Weakness(msgspec.Struct, frozen=True, kw_only=True):
    """One promise of one object, and all the events that break it."""

    object: str
    promise: str
    #: Of the worst of them.
    words: str
    seconds: float | None
    to_the_end: bool
    events: tuple[str, ...]
    #: What ends it: it was tried. "": nothing that was tried does.
    fix: str = ""
    #: What was tried and shortens it.
    helps: str = ""
    #: What was tried and does neither.
    tried: tuple[str, ...] = ()


class MixShare(msgspec.Struct, frozen=True, kw_only=True):
    """What mix has on spot in the snapshot, and what it saves; what it risks for that, the sweep shows."""

    replicas: int
    on_spot: int
    #: A month; None: no prices are given.
    saved: float | None = None
    currency: str = ""


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    format: str = FORMAT
    version: int = 1
    source: str
    taken_at: str
    #: Events that were played, and those that were to be.
    played: int
    planned: int
    #: Failures that these stand for: nodes that are alike are played once.
    stands_for: int
    kept: int
    broken: tuple[Found, ...]
    cannot_tell: tuple[Found, ...]
    #: Could not be played: the event, and why.
    failed: tuple[tuple[str, str], ...] = ()
    weakest: tuple[Weakness, ...] = ()
    #: None: mix places nothing there.
    mix: MixShare | None = None
    #: Jobs and autoscalers of the snapshot.
    standing_still: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


Told = Callable[[Failure, Found | Failed], None]


def run(snapshot: Snapshot, todo: Iterable[Failure], plan: SweepPlan, jobs: int, told: Told) -> bool:
    """On this machine. False: interrupted; what was told is all there is."""
    play = Play(snapshot, [], plan.config, seed=plan.seed, limit_s=plan.options.limit_s, pace=plan.pace)
    rules, begun = capacity_rules(plan.config), list[Failure]()

    def tasks() -> Iterator[Task[Found]]:
        for one in todo:
            begun.append(one)
            planned = acts(one.event.split(), snapshot, rules, plan.options)
            yield Task(planned, plan.seed, lambda it, one=one: summary(one, it))  # type: ignore[misc]

    return play_each(play, tasks(), Found, jobs, lambda number, result: told(begun[number], result))


def summary(failure: Failure, outcome: RehearsalOutcome) -> Found:
    return Found(
        event=failure.event,
        scope=failure.scope,
        verdict=outcome.verdict,
        first=outcome.answer,
        breaches=outcome.breaches,
        cannot_tell=tuple(one.words for one in outcome.played.not_played),
        alike=failure.alike,
        over_s=outcome.over_s,
    )


def collect(snapshot: Snapshot, todo: Sequence[Failure], results: Sequence[tuple[Failure, Found | Failed]]) -> Sweep:
    """Ranked, in an order that does not depend on who was done first."""
    place = {one.event: at for at, one in enumerate(todo)}
    results = sorted(results, key=lambda pair: place[pair[0].event])
    found = [one for _, one in results if isinstance(one, Found)]
    broken = sorted((one for one in found if one.verdict == BROKEN), key=_rank)
    return Sweep(
        source=snapshot.source,
        taken_at=snapshot.taken_at,
        played=len(found),
        planned=len(todo),
        stands_for=sum(1 + len(one.alike) for one in found),
        kept=sum(one.verdict == KEPT for one in found),
        broken=tuple(broken),
        cannot_tell=tuple(one for one in found if one.verdict == CANNOT_TELL),
        failed=tuple((failure.event, one.why) for failure, one in results if isinstance(one, Failed)),
        weakest=tuple(weakest(broken)),
        standing_still=snapshot.not_played,
        remarks=snapshot.remarks,
    )


def mix_share(snapshot: Snapshot, config: Config) -> MixShare | None:
    rules, prices = capacity_rules(config), config.policy(MixPolicy).prices
    nodes = [project(Kind.NODE, obj) for obj in snapshot.of(Kind.NODE)]
    spot = {one.name: one for one in nodes if isinstance(one, Node) and rules.class_of(one.labels) is NodeClass.SPOT}
    pods = [project(Kind.POD, obj) for obj in snapshot.of(Kind.POD)]
    placed = [one for one in pods if isinstance(one, Pod) and one.active and AFFINITY in one.labels]
    on_spot = [(one.shape, spot[one.node]) for one in placed if one.node in spot]
    saved = saved_a_month(on_spot, prices) if prices.known else None
    if not placed:
        return None
    return MixShare(replicas=len(placed), on_spot=len(on_spot), saved=saved, currency=prices.currency)


def weakest(found: Sequence[Found]) -> list[Weakness]:
    """Every promise that something breaks: what lasts to the end first, then the longest, then by the most events."""
    by: dict[tuple[str, str], list[tuple[Broken, str]]] = {}
    for one in found:
        for breach in one.breaches:
            by.setdefault((breach.object, breach.promise), []).append((breach, one.event))
    made = []
    for (name, promise), pairs in by.items():
        pairs.sort(key=lambda pair: _weight(pair[0]))
        worst = pairs[0][0]
        made.append(
            Weakness(
                object=name,
                promise=promise,
                words=worst.words,
                seconds=worst.seconds,
                to_the_end=worst.to_the_end,
                fix=worst.fix,
                events=tuple(event for _, event in pairs),
            )
        )
    return sorted(made, key=lambda w: (not w.to_the_end, -(w.seconds or 0.0), -len(w.events), w.object, w.promise))


def _weight(one: Broken) -> tuple[bool, float]:
    return not one.to_the_end, -(one.seconds or 0.0)


def _rank(one: Found) -> tuple[bool, int, float]:
    first = min(one.breaches, key=_weight)
    return not first.to_the_end, -len(one.breaches), -(first.seconds or 0.0)
