"""The lines under the answer of `why`: who asked, the queue, the sum, who is ahead, what to type."""

from collections.abc import Iterator

from mooring.capabilities.registry import limits
from mooring.core.engine.capability import Explains
from mooring.core.engine.engine import Engine
from mooring.core.engine.why.commands import commands, typed
from mooring.core.engine.why.dry import Dry
from mooring.core.engine.why.findings import Answer
from mooring.core.engine.why.phrases import doing, span, standstill_s, step, then
from mooring.core.engine.why.places import places
from mooring.core.engine.why.subject import Subject
from mooring.core.model.decision import Line, OperatorRecord
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason
from mooring.core.model.times import time_of_day
from mooring.core.queue import targets
from mooring.core.queue.why import Why

MOST_AHEAD = 3


def lines_of(engine: Engine, subject: Subject, first: Answer, operators: list[Operator], now: float) -> Iterator[Line]:
    if first.reason is Reason.FEATURE_OFF:
        yield Line("off", f"{', '.join(sorted(set(engine.capabilities) - engine.on))}; on: {_on(engine)}")
    operator = first.operator
    spoken = list(_spoken(engine, subject, first, now))
    if operator is not None and not any(line.label == "asked" for line in spoken):
        yield Line("asked", operator.detail or str(operator.reason))
    if operator is not None and operator.id in engine.waiting:
        yield from _queued(engine, operator, first.waiting_on, now)
    ahead = set(first.waiting_on.blocked_by) if first.waiting_on is not None else set()
    for one in operators:
        running = engine.running.get(one.id)
        if running is not None and one.id not in ahead:
            yield Line("running", on_its_way(running, now))
    for line in places(engine, subject, now):
        # The target that it waits for stands there already, with its sum.
        if (
            first.waiting_on is None
            or line.label != "target"
            or not line.text.startswith(f"{first.waiting_on.target} ")
        ):
            yield line
    yield from spoken
    if subject.kind == "pod" and subject.pod is not None and not any(line.label == "why there" for line in spoken):
        yield Line("why there", "kube-scheduler chose it; nothing of Mooring's keeps it there")
    yield from commands(engine, subject, first, spoken)
    if first.waiting_on is not None and first.waiting_on.blocked_by:
        yield typed("look ahead", f"mooring why operator/{first.waiting_on.blocked_by[0]}")
    elif operator is not None and subject.kind != "operator" and engine.deciding:
        yield typed("look ahead", f"mooring why operator/{operator.id}")


def _spoken(engine: Engine, subject: Subject, first: Answer, now: float) -> Iterator[Line]:
    """The capabilities' own lines. One that is off keeps nothing anywhere: it may say what is, not what it would do."""
    for name in sorted(engine.capabilities):
        capability = engine.capabilities[name]
        if not isinstance(capability, Explains):
            continue
        wanted = name in engine.on or first.reason is Reason.FEATURE_OFF
        for line in capability.explain(subject.name, engine.world, engine.queue, now):
            if line.label in {"asked", "now"} or (wanted and (name in engine.on or line.label == "to change")):
                yield line


def _queued(engine: Engine, operator: Operator, waiting_on: Why | None, now: float) -> Iterator[Line]:
    order = engine.queue.waiting
    place = order.index(operator.id) if operator.id in order else 0
    queued_at = next((e.at for e in engine.history.of(f"operator/{operator.id}") if e.verb == "queued"), None)
    waited = f"; waiting {span(now - queued_at)}" if queued_at is not None else ""
    where = "first in line" if place == 0 else f"{place} ahead of it"
    parked = "; parked: it keeps its place and delays no other" if waiting_on is not None and waiting_on.parked else ""
    deadline = f"; deadline {time_of_day(operator.deadline)}" if operator.deadline is not None else ""
    yield Line("queued", f"op {operator.id}, {where}{waited}{parked}{deadline}")
    if waiting_on is None or not waiting_on.target:
        return
    yield Line("target", f"{waiting_on.target}  {_meaning(waiting_on.target)}".rstrip())
    yield Line("target", waiting_on.sum())
    for target, cost in sorted(operator.cost.items()):
        limit = engine.queue.limit(target)
        if targets.is_share(target):  # named only where it is what is missing
            continue
        if target != waiting_on.target and (limit is None or engine.queue.used(target) + cost <= limit):
            free = "no limit" if limit is None else f"free {limit - engine.queue.used(target)}"
            yield Line("would fit", f"{target} needs {cost}, {free}")
    for blocker in waiting_on.blocked_by[:MOST_AHEAD]:
        running = engine.running.get(blocker)
        if running is not None:
            yield Line("ahead", on_its_way(running, now))
            yield Line("ahead", _stalled(running, now))
        else:
            other = engine.queue.get(blocker)
            yield Line("ahead", f"op {blocker} {doing(other)}, waits too" if other is not None else f"op {blocker}")
    rest = len(waiting_on.blocked_by) + waiting_on.more - MOST_AHEAD
    if rest > 0:
        yield Line("ahead", f"and {rest} more")


def _meaning(target: str) -> str:
    if targets.is_share(target):
        return f"what one namespace may have of {targets.shared(target)}"
    kind = target.partition("/")[0]
    return "what one store takes at once" if kind == "store" else limits().get(kind, (None, ""))[1]


def on_its_way(running: OperatorRecord, now: float) -> str:
    operator = running.operator
    since = f" for {span(now - running.step_since)}"
    so_far = f"; {running.progress}" if running.progress else ""
    due = f"; {span(operator.deadline - now)} left until its deadline" if operator.deadline is not None else ""
    return f"op {operator.id} {doing(operator)}, {step(running)}{since}{so_far}{then(running)}{due}"


def _stalled(running: OperatorRecord, now: float) -> str:
    still = standstill_s(running, now)
    if still:
        on = running.waiting_on.detail if running.waiting_on is not None else running.progress or "nothing seen"
        return f"stalled for {span(still)}: {on}"
    return "not stalled" + (f"; {running.waiting_on.detail}" if running.waiting_on is not None else "")


def dry_lines(engine: Engine, subject: Subject, dry: tuple[Dry, ...], first: Answer) -> Iterator[Line]:
    """What the capabilities would do now. Said when nothing happens, and of what is switched off."""
    if not engine.deciding:
        who = "it does not lead" if not engine.leading else "what has begun is still being read back"
        yield Line("dry run", f"this replica proposes nothing: {who}")
        return
    if first.operator is not None or subject.kind == "operator":
        return
    for one in dry:
        what = ", ".join(sorted({o.kind for o in one.proposals}))
        because = "; ".join(one.because)
        if not one.on:
            if what or one.verdicts:
                says = f"would propose {what}" if what else f"says: {because}"
                yield Line("dry run", f"{one.capability} is off; asked now, it {says}")
        elif what:
            yield Line("dry run", f"{one.capability} would propose {what}")
        else:
            because = because or "nothing is asked of it and nothing is out of place"
            yield Line("dry run", f"{one.capability} would propose nothing, because {because}")
    if not any(one.on for one in dry):
        yield Line("dry run", f"nothing that is switched on ({_on(engine)}) has anything to decide about this")


def _on(engine: Engine) -> str:
    return ", ".join(sorted(engine.on)) or "none"
