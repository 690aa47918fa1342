"""From meters to findings: who was short and for how long, and which lines were undershot. Pure."""

from collections.abc import Iterable, Sequence

from mooring.rehearse.losses import Breach, Meter, breach
from mooring.rehearse.outcome import Interrupted
from mooring.rehearse.promises import Promise, Wanted


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
