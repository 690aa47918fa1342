"""`explain(engine, subject)`: the findings in order, the first as the answer, and every line that belongs under it."""

import difflib
from collections.abc import Iterator

from mooring.core.engine.capability import Speaks
from mooring.core.engine.engine import Engine
from mooring.core.engine.history import Entry
from mooring.core.engine.why.dry import Dry, run_dry
from mooring.core.engine.why.explanation import Explanation, in_order
from mooring.core.engine.why.findings import CALM, CALMEST, ON_THE_WAY, Finding, of_dry, of_operators
from mooring.core.engine.why.phrases import clock, doing, short, span, standstill_s, step, then
from mooring.core.engine.why.places import places
from mooring.core.engine.why.subject import Subject, belongs, find, history_of, operators_on
from mooring.core.model.decision import Line, Running
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.queue.why import Why

MOST_AHEAD = 3
MOST_ALSO = 4


def explain(
    engine: Engine, name: str, *, now: float | None = None, leader: str = "", data_age_s: float | None = None
) -> Explanation | None:
    """None: nothing is known of this subject; `unknown` says what is."""
    now = engine.now if now is None else now
    subject = find(engine.world, name)
    operators = operators_on(engine, subject)
    history = history_of(engine, subject)
    if not (operators or history or subject.exists):
        return None
    dry = tuple(run_dry(engine, subject, now))
    findings = sorted(_findings(engine, subject, operators, dry, now), key=lambda f: f.rank)
    first = findings[0] if findings else _calm(engine, subject, history)
    also = _also(findings, subject)
    lines = [*_lines(engine, subject, first, operators, now), *_dry(engine, subject, dry, first)]
    lines += [Line("also", text) for text in also[:MOST_ALSO]]
    if len(also) > MOST_ALSO:
        lines.append(Line("also", f"{len(also) - MOST_ALSO} more; `mooring queue` lists them all"))
    pd_at = engine.world.pd_observed_at(subject.cluster.key) if subject.cluster is not None else None
    return Explanation(
        subject=subject.name,
        state=first.state,
        reason=first.reason,
        answer=first.says(short(subject.name)),
        lines=in_order(lines),
        operators=tuple(o.id for o in operators),
        waiting_on=first.waiting_on,
        history=history,
        as_of=now,
        leading=engine.leading,
        leader=leader,
        data_age_s=data_age_s,
        pd_age_s=None if pd_at is None else max(0.0, now - pd_at),
    )


def unknown(engine: Engine, name: str) -> str:
    """What to say when nothing is known: the nearest names that are."""
    kind, _, rest = name.partition("/")
    world = engine.world
    match kind:
        case "pod":
            names = [str(p.key) for p in world.pods()]
        case "node":
            names = [n.name for n in world.nodes()]
        case "cluster":
            names = [str(tc.key) for tc in world.tidb_clusters()]
        case "workload":
            names = [str(w.key) for w in world.workloads()]
        case "machine":
            names = [m.serial for m in world.machines()]
        case "operator":
            names = [o.id for o in engine.queue.operators()]
        case _:
            names = [f"{tc.key}/{s.id}" for tc in world.tidb_clusters() if (v := world.pd(tc.key)) for s in v.stores]
    near = sorted(difflib.get_close_matches(rest, sorted(names), 2, 0.6))
    hint = f"; there is {', '.join(f'{kind}/{n}' for n in near)}" if near else f"; {len(names)} of that kind are known"
    return f"nothing is known of {name}{hint}"


def _also(findings: list[Finding], subject: Subject) -> list[str]:
    """The other findings, each reason of an operator once; what is simply on its way stands under `running`."""
    said = {(findings[0].reason, findings[0].detail)} if findings else set()
    also: list[str] = []
    for finding in findings[1:]:
        if finding.rank not in {ON_THE_WAY, CALMEST} and (finding.reason, finding.detail) not in said:
            said.add((finding.reason, finding.detail))
            also.append(finding.says(short(subject.name)))
    return also


# ── Findings ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _findings(
    engine: Engine, subject: Subject, operators: list[Operator], dry: tuple[Dry, ...], now: float
) -> Iterator[Finding]:
    if engine.deciding:
        # The newest first: it says most about where the subject stands.
        yield from of_operators(engine, subject, operators[::-1] if subject.kind == "pod" else operators, now)
        for one in dry:
            yield from of_dry(engine, subject, one)
        return
    # Not deciding: the queue here is empty. What has begun is written on the objects, and can be read by anyone.
    for name in sorted(engine.capabilities):
        for resumed in engine.capabilities[name].recover(engine.world, now):
            operator = resumed.operator
            if belongs(engine.world, subject, operator):
                at = f"step {resumed.step + 1}/{len(operator.steps)} {operator.steps[resumed.step].kind}"
                says = f"is moving: op {operator.id} {doing(operator)}, {at}, as its mark says."
                yield Finding(state=State.MOVING, reason=Reason.RESUMED, head=says, operator=operator)
    for one in dry:
        if not one.on:
            yield from of_dry(engine, subject, one)
    if not engine.synced:
        says = "waits: this replica has not seen the whole cluster yet; ends when it has synced."
        yield Finding(state=State.WAITING, reason=Reason.NOT_SYNCED, head=says, rank=8)


def _calm(engine: Engine, subject: Subject, history: tuple[Entry, ...]) -> Finding:
    """No pending changes."""
    pod = subject.pod
    if not subject.exists:
        last = history[-1] if history else None
        told = f"{last.verb} at {clock(last.at)}" if last is not None else "gone"
        detail = f"{told}: {last.text}" if last is not None and last.text else told
        return Finding(
            state=State.STABLE, reason=Reason.DONE, head="is stable: ", detail=detail, tail=".", rank=CALMEST
        )
    if pod is not None and not pod.node:
        says = "waits for kube-scheduler to find it a node; nothing of ours is in its way."
        return Finding(state=State.WAITING, reason=Reason.NOT_MANAGED, head=says, rank=CALMEST)
    where = f" on {pod.node}" if pod is not None else ""
    tail = CALM if engine.deciding else "Only the leader knows what waits."
    says = f"is stable{where}; no pending changes. {tail}"
    return Finding(state=State.STABLE, reason=Reason.DONE, head=says, rank=CALMEST)


# ── Lines ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _lines(engine: Engine, subject: Subject, first: Finding, operators: list[Operator], now: float) -> Iterator[Line]:
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
    verdict = first.verdict
    if verdict is not None and verdict.remedy and not any(line.label == "to change" for line in spoken):
        yield Line("to change", verdict.remedy)
    if first.waiting_on is not None and first.waiting_on.blocked_by:
        yield Line("to change", f"look ahead  mooring why operator/{first.waiting_on.blocked_by[0]}")
    elif operator is not None and subject.kind != "operator" and engine.deciding:
        yield Line("to change", f"look ahead  mooring why operator/{operator.id}")


def _spoken(engine: Engine, subject: Subject, first: Finding, now: float) -> Iterator[Line]:
    """The capabilities' own lines. One that is off keeps nothing anywhere: it may say what is, not what it would do."""
    for name in sorted(engine.capabilities):
        capability = engine.capabilities[name]
        if not isinstance(capability, Speaks):
            continue
        wanted = name in engine.on or first.reason is Reason.FEATURE_OFF
        for line in capability.explain(subject.name, engine.world, engine.queue, now):
            if line.label in {"asked", "now"} or (wanted and (name in engine.on or line.label == "to change")):
                yield line


def _queued(engine: Engine, operator: Operator, waiting_on: Why | None, now: float) -> Iterator[Line]:
    order = engine.queue.waiting
    place = order.index(operator.id) if operator.id in order else 0
    queued_at = next((e.at for e in engine.story.of(f"operator/{operator.id}") if e.verb == "queued"), None)
    waited = f"; waiting {span(now - queued_at)}" if queued_at is not None else ""
    where = "first in line" if place == 0 else f"{place} ahead of it"
    parked = "; parked: it keeps its place and stops nobody" if waiting_on is not None and waiting_on.parked else ""
    deadline = f"; deadline {clock(operator.deadline)}" if operator.deadline is not None else ""
    yield Line("queued", f"op {operator.id}, {where}{waited}{parked}{deadline}")
    if waiting_on is None or not waiting_on.target:
        return
    yield Line("target", f"{waiting_on.target}  {_meaning(waiting_on.target)}".rstrip())
    yield Line("target", waiting_on.sum())
    for target, cost in sorted(operator.cost.items()):
        limit = engine.queue.limit(target)
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
    return {
        "evicting": "leaders may leave one store at a time",
        "tikv": "members of one TiKV cluster away at once",
        "workload": "replicas away at once",
        "node": "what leaves one node at once",
        "control-plane": "control plane nodes changed at once",
        "fleet": "machines on their way out at once",
        "store": "what one store takes at once",
    }.get(target.partition("/")[0], "")


def on_its_way(running: Running, now: float) -> str:
    operator = running.operator
    since = f" for {span(now - running.step_since)}"
    so_far = f"; {running.progress}" if running.progress else ""
    due = f"; {span(operator.deadline - now)} left until its deadline" if operator.deadline is not None else ""
    return f"op {operator.id} {doing(operator)}, {step(running)}{since}{so_far}{then(running)}{due}"


def _stalled(running: Running, now: float) -> str:
    still = standstill_s(running, now)
    if still:
        on = running.waiting_on.detail if running.waiting_on is not None else running.progress or "nothing seen"
        return f"stalled for {span(still)}: {on}"
    return "not stalled" + (f"; {running.waiting_on.detail}" if running.waiting_on is not None else "")


def _dry(engine: Engine, subject: Subject, dry: tuple[Dry, ...], first: Finding) -> Iterator[Line]:
    """What the deciders would do now. Said when nothing happens, and of what is switched off."""
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


__all__ = ["explain", "on_its_way", "unknown"]
