"""The queue as rows, as the page orders them: what needs a person, then what runs, then what waits, in its order.

Ten thousand may stand in line when a whole zone gets notice, and that is when deciding must not wait for a picture: the
order is made of ids alone, and only rows that are shown are built.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from mooring.core.engine.engine import Engine
from mooring.core.engine.standing import Standing, standings, state_of
from mooring.core.model.decision import OperatorRecord, Verdict
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import State
from mooring.core.queue.why import Why, why_all
from mooring.core.world.members import shown_target
from mooring.process.http.pagerows import QueueRow, running_row, verdict_row, waiting_row

#: So many are asked about one by one; for more, one walk over the whole line is cheaper.
FEW: Final = 200


def counts(found: Iterable[Standing]) -> dict[str, int]:
    return dict(Counter(one.state for one in found))


def rows_of(engine: Engine, shown: Sequence[Standing], *, first: bool = True) -> Iterable[tuple[str, QueueRow]]:
    """`first`: these stand at the head of the line, where asking about each one by itself is cheap."""
    every: dict[str, Why] = {} if first and len(shown) <= FEW else why_all(engine.queue)
    for one in shown:
        yield one.id, row(engine, one, every.get(one.id) or engine.queue.why(one.id))


def row(engine: Engine, one: Standing, why: Why | None) -> QueueRow:
    match one.of:
        case Verdict() as verdict:
            return verdict_row(one.capability, one.id.partition(":")[2], verdict)
        case OperatorRecord() as running:
            return running_row(running)
        case Operator() as operator:
            told = engine.history.of(f"operator/{operator.id}")
            if why is not None:
                why = msgspec.structs.replace(why, target=shown_target(why.target, engine.world))
            return waiting_row(operator, why, next((e.at for e in told if e.verb == "queued"), None))


def queue_rows(engine: Engine) -> list[QueueRow]:
    """All of them: for `mooring queue`."""
    return [made for _, made in rows_of(engine, standings(engine), first=False)]


def standing_words(engine: Engine, subject: str) -> str:
    """A verdict about something that is no object ("the fleet's plan"): what is said of it, and what ends it; or ""."""
    for one in standings(engine):
        if isinstance(one.of, Verdict):
            made = row(engine, one, None)
            if made.subject == subject:
                lines = [f"{made.what} is {made.state}: {made.waiting_on}", "", f"reason      {one.of.reason}"]
                return "\n".join([*lines, *([f"to change   {made.detail}"] if made.detail else [])]) + "\n"
    return ""


def queue_answer(engine: Engine, now: float) -> dict[str, Any]:
    """What `mooring queue` is told."""
    running = [
        {
            "id": r.operator.id,
            "source": r.operator.source,
            "kind": r.operator.kind,
            "subject": r.operator.subject,
            "detail": r.operator.detail,
            "state": state_of(r),
            "step": r.step + 1,
            "steps": [s.kind for s in r.operator.steps],
            "progress": r.progress,
            "waiting_on": r.waiting_on,
            "since": r.promoted_at,
            "cost": dict(r.cost),
        }
        for r in engine.running.values()
    ]
    why, operators = why_all(engine.queue), engine.waiting
    waiting = [
        {
            "id": operator_id,
            "source": operator.source,
            "kind": operator.kind,
            "subject": operator.subject,
            "detail": operator.detail,
            "state": State.WAITING,
            "why": why.get(operator_id),
        }
        for operator_id, operator in operators.items()
    ]
    return {"running": running, "waiting": waiting, "rows": queue_rows(engine), "as_of": now}
