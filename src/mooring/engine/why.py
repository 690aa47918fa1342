"""Why is this where it is, and what does it wait for? The engine's answer as a value; the CLI and the page print it.

Line 1 is the answer: subject, one of five state words, the blocker's name, what ends it. One reason by fixed
precedence; the rest stands under `also`. The sum is on one line, with the contract's field names.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from mooring.engine.engine import Engine, subjects_of
from mooring.engine.story import Entry
from mooring.model.cluster import Key
from mooring.model.decision import Running
from mooring.model.operator import Operator
from mooring.model.reasons import Reason, State
from mooring.traffic.why import Why
from mooring.traffic.why import why as queue_why

LONGEST_ANSWER: Final = 110


class Line(msgspec.Struct, frozen=True):
    label: str
    text: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    subject: str
    state: State
    reason: Reason
    #: Line 1, at most 110 characters.
    answer: str
    lines: tuple[Line, ...] = ()
    operators: tuple[str, ...] = ()
    #: The first target that keeps a waiting operator out, summed up.
    waits: Why | None = None
    history: tuple[Entry, ...] = ()
    as_of: float = 0.0
    leading: bool = False


def explain(engine: Engine, subject: str) -> Explanation | None:
    """None: nothing is known of this subject."""
    operators = list(_operators_on(engine, subject))
    history = tuple(engine.story.of(subject))
    for operator in operators:
        running = engine.running.get(operator.id)
        if running is None:
            return _waiting(engine, subject, operator, history)
    if operators:
        return _moving(engine, subject, engine.running[operators[0].id], operators, history)
    return _still(engine, subject, history)


def _operators_on(engine: Engine, subject: str) -> Iterator[Operator]:
    """Waiting ones first: they say what keeps the subject; then running ones by promotion."""
    if subject.startswith("operator/"):
        found = engine.queue.get(subject.removeprefix("operator/"))
        if found is not None:
            yield found
        return
    for operator in engine.waiting.values():
        if subject in subjects_of(operator):
            yield operator
    for running in engine.running.values():
        if subject in subjects_of(running.operator):
            yield running.operator


def _waiting(engine: Engine, subject: str, operator: Operator, history: tuple[Entry, ...]) -> Explanation:
    name = subject.rpartition("/")[2]
    waits = queue_why(engine.queue, operator.id)
    if waits is None or not waits.target:
        answer = f"{name} waits to be looked at; op {operator.id} is next. Nothing for you to do."
        reason = Reason.BEHIND
    elif waits.reason is Reason.FACT:
        fact = waits.facts[0]
        answer = f"{name} waits: {fact.text or fact.subject}; ends when that is mended."
        reason = Reason.FACT
    else:
        who = ", ".join(f"op {i}" for i in waits.blocked_by[:2]) or waits.target
        first = engine.queue.get(waits.blocked_by[0]) if waits.blocked_by else None
        doing = f" ({_what(first)})" if first is not None else ""
        answer = f"{name} waits for {who}{doing}; ends when that ends. Nothing for you to do."
        reason = waits.reason
    lines = [
        Line("asked", operator.detail or str(operator.reason)),
        Line("queued", f"op {operator.id}, {_place(engine, operator.id)}"),
    ]
    if waits is not None:
        lines.append(Line("target", waits.target))
        lines.append(Line("", waits.sum()))
        for blocker in waits.blocked_by[:3]:
            running = engine.running.get(blocker)
            if running is not None:
                lines.append(Line("ahead", _on_its_way(engine, running)))
    return Explanation(
        subject=subject,
        state=State.WAITS,
        reason=reason,
        answer=_cut(answer),
        lines=tuple(lines),
        operators=(operator.id,),
        waits=waits,
        history=history,
        as_of=engine.now,
        leading=engine.leading,
    )


def _moving(
    engine: Engine, subject: str, running: Running, operators: list[Operator], history: tuple[Entry, ...]
) -> Explanation:
    name = subject.rpartition("/")[2]
    verdict = next((r.waits for o in operators if (r := engine.running.get(o.id)) and r.waits is not None), None)
    state = verdict.state if verdict is not None and verdict.state == State.HELD else State.MOVING
    what = _what(running.operator)
    if verdict is not None:
        answer = f"{name} is {state}: {what}; {verdict.detail}"
    else:
        answer = f"{name} is moving: {what}; {running.progress or _step(running)}"
    return Explanation(
        subject=subject,
        state=state,
        reason=verdict.reason if verdict is not None else running.operator.reason,
        answer=_cut(answer),
        lines=(
            Line("asked", running.operator.detail or str(running.operator.reason)),
            *(Line("running", _on_its_way(engine, engine.running[o.id])) for o in operators if o.id in engine.running),
        ),
        operators=tuple(o.id for o in operators),
        history=history,
        as_of=engine.now,
        leading=engine.leading,
    )


def _still(engine: Engine, subject: str, history: tuple[Entry, ...]) -> Explanation | None:
    name = subject.rpartition("/")[2]
    verdict = next(
        (v for (_, key), v in sorted(engine.verdicts.items()) if name in v.detail or key == subject.partition("/")[2]),
        None,
    )
    if verdict is not None:
        verb = "waits" if verdict.state == State.WAITS else f"is {verdict.state}"
        answer = f"{name} {verb}: {verdict.detail}"
        lines = (Line("to change", verdict.remedy),) if verdict.remedy else ()
        return Explanation(
            subject=subject,
            state=verdict.state,
            reason=verdict.reason,
            answer=_cut(answer),
            lines=lines,
            history=history,
            as_of=engine.now,
            leading=engine.leading,
        )
    if not history and not _exists(engine, subject):
        return None
    return Explanation(
        subject=subject,
        state=State.PLACED,
        reason=Reason.DONE,
        answer=_cut(f"{name} is placed; nothing of ours waits or runs on it."),
        history=history,
        as_of=engine.now,
        leading=engine.leading,
    )


def _exists(engine: Engine, subject: str) -> bool:
    kind, _, rest = subject.partition("/")
    namespace, _, name = rest.rpartition("/")
    match kind:
        case "pod":
            return engine.world.pod(Key(namespace, name)) is not None
        case "node":
            return engine.world.node(rest) is not None
        case "cluster":
            return engine.world.tidb_cluster(Key(namespace, name)) is not None
        case _:
            return False


def _what(operator: Operator) -> str:
    subject = operator.args.get("pod", operator.subject).rpartition("/")[2]
    return f"{operator.kind.replace('-', ' ')} of {subject}"


def _step(running: Running) -> str:
    steps = running.operator.steps
    kind = steps[running.step].kind if running.step < len(steps) else "end"
    return f"step {running.step + 1}/{len(steps)} {kind}"


def _on_its_way(engine: Engine, running: Running) -> str:
    operator = running.operator
    since = max(0, int(engine.now - running.step_since))
    text = f"op {operator.id} {_what(operator)}, {_step(running)} since {since} s"
    return f"{text}; {running.progress}" if running.progress else text


def _place(engine: Engine, operator_id: str) -> str:
    waiting = engine.queue.waiting
    place = waiting.index(operator_id) if operator_id in waiting else 0
    return "next" if place == 0 else f"{place} ahead of it"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_ANSWER else text[: LONGEST_ANSWER - 1] + "…"
