"""From meters to findings: who was short and for how long, which lines were undershot, and what cannot be told."""

from collections.abc import Iterable, Sequence
from typing import Final

from mooring.core.engine.why import explain
from mooring.process.replica import Replica
from mooring.rehearse.losses import Breach, Meter, breach, some
from mooring.rehearse.observer import Observer
from mooring.rehearse.outcome import Interrupted, NotPlayed
from mooring.rehearse.promises import Promise, Wanted

#: How many of those that wait at the end are explained.
EXPLAINED: Final = 20


def interrupted(wanted: Sequence[Wanted], meters: Iterable[Meter], at: float) -> list[Interrupted]:
    """The longest first. `meters` begin with one for each workload."""
    found = []
    for one, meter in zip(wanted, meters, strict=False):
        spans = meter.close(at)
        if not spans:
            continue
        until = spans[-1].until_s
        found.append(
            Interrupted(
                workload=one.name,
                wanted=one.replicas,
                before=meter.before,
                worst=meter.worst,
                away_s=round(meter.seconds(at), 1),
                from_s=round(spans[0].from_s, 1),
                until_s=None if until is None else round(until, 1),
                at_end=meter.value,
            )
        )
    return sorted(found, key=lambda one: (-one.away_s, one.workload))


def breaches(promises: Sequence[Promise], meters: Sequence[Meter], at: float) -> list[Breach]:
    pairs = zip(promises, meters, strict=True)
    found = (breach(promise.rule, promise.subject, meter, at) for promise, meter in pairs)
    return [one for one in found if one is not None]


def not_played(wanted: Sequence[Wanted], observer: Observer) -> list[NotPlayed]:
    """Owners that lost pods and whose controller is not played, the greatest loss first."""
    found = []
    for one, meter in zip(wanted, observer.meters, strict=False):
        lost = len({gone.pod for gone in observer.gone if gone.workload == one.name}) or meter.before - meter.worst
        if not one.is_played and lost:
            found.append(NotPlayed(owner=one.name, lost=lost, before=meter.before))
    return sorted(found, key=lambda one: (-one.lost, one.owner))


def still_open(leader: Replica | None) -> tuple[str, ...]:
    """What waits or runs at the end, in the queue's own words."""
    if leader is None:
        return ()
    engine, found = leader.engine, list[str]()
    for operator in (*engine.queue.running, *engine.queue.waiting)[:EXPLAINED]:
        answer = explain(engine, f"operator/{operator}", now=leader.shell.now())
        if answer is not None:
            found.append(answer.answer)
    return tuple(found)


def remarks(wanted: Sequence[Wanted], observer: Observer, cut_s: float | None) -> list[str]:
    """`cut_s`: the limit, when it came before everything had settled."""
    found = []
    away = sum(meter.before < meter.asked for meter in observer.meters[: len(wanted)])
    if away:
        found.append(f"{some(away, 'workload')} short before the event already, held to what there was")
    if cut_s is not None:
        found.append(f"the time was over (--for {cut_s:g}s) before everything had settled")
    return found
