"""The state of an object in one of five words, by one rule for all who say it: status, Events, metrics, page, `why`.

What needs a person comes first (`blocked`, `refused`), then what runs, then what waits. A proposal that the queue will
never take is `refused`: it costs more than a limit, its target is paused by a setting, or its source may have nothing
waiting.
"""

from typing import TYPE_CHECKING, Final

import msgspec

from mooring.core.model.decision import OperatorRecord, Verdict
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import BLOCKED_REASONS, REFUSED_REASONS, Reason, State
from mooring.core.queue import QueueRead

if TYPE_CHECKING:
    from mooring.core.engine.engine import Engine

#: A running operator that says one of these is simply on its way.
ON_ITS_WAY: Final = frozenset({Reason.POD_NOT_READY, Reason.LEADERS_LEFT, Reason.SETTLING})
#: A person must act before these end, or it is as configured and nothing will happen.
NEEDS_YOU: Final = frozenset({State.BLOCKED, State.REFUSED})
_ORDER: Final = {State.BLOCKED: 0, State.REFUSED: 1, State.MOVING: 2, State.WAITING: 3}


class Standing(msgspec.Struct, frozen=True, gc=False):
    """One object, or operator, and how it stands."""

    id: str
    state: State
    of: Verdict | OperatorRecord | Operator
    capability: str = ""

    def matches(self, words: str) -> bool:
        match self.of:
            case Verdict() as verdict:
                text = f"{self.id} {verdict.subject} {verdict.detail}"
            case OperatorRecord(operator=operator) | (Operator() as operator):
                text = f"op {operator.id} {operator.source} {operator.kind} {operator.subject} {operator.detail}"
        return words in f"{self.state} {text}".lower()


def state_of(running: OperatorRecord) -> State:
    """The word for a released operator."""
    verdict = running.waiting_on
    if verdict is not None and (verdict.state == State.BLOCKED or verdict.reason in BLOCKED_REASONS):
        return State.BLOCKED
    return State.MOVING if verdict is None or verdict.reason in ON_ITS_WAY else State.WAITING


def state_of_refusal(queue: QueueRead, operator: Operator, reason: Reason) -> State:
    """The word for a proposal that the queue did not take: `refused` where the settings must change first."""
    settings = queue.settings
    if reason in REFUSED_REASONS:
        return State.REFUSED
    if reason in {Reason.STORE_PAUSED, Reason.TARGET_PAUSED} and any(settings.limit(t) == 0 for t in operator.cost):
        return State.REFUSED
    if reason is Reason.TOO_MANY_WAITING and settings.cap(operator.source) == 0:
        return State.REFUSED
    return State.WAITING


def needs_you(engine: "Engine") -> list[Standing]:
    """What a person must act on: operators on their way, and what was not begun. An object has one line for each
    feature that says something of it."""
    found: dict[str, Standing] = {}
    for (capability, key), verdict in sorted(engine.verdicts.items()):
        refused = engine.refused.get((capability, key), ())
        for one in (*refused, verdict) if verdict not in refused else refused:
            if one.state in NEEDS_YOU:
                name = f"{capability}:{one.subject or key}" if one in refused else f"{capability}:{key}"
                found.setdefault(name, Standing(name, one.state, one, capability))
    for record in engine.running.values():
        if (state := state_of(record)) in NEEDS_YOU:
            found[record.operator.id] = Standing(record.operator.id, state, record)
    return sorted(found.values(), key=lambda one: _ORDER[one.state])


def standings(engine: "Engine") -> list[Standing]:
    """Everything that is not `stable`: what needs a person, then what runs, then what waits, in its order."""
    found = needs_you(engine)
    rest = [(state_of(record), record) for record in engine.running.values()]
    found += [Standing(record.operator.id, state, record) for state, record in rest if state not in NEEDS_YOU]
    found += [Standing(i, State.WAITING, operator) for i, operator in engine.waiting.items()]
    found.sort(key=lambda one: _ORDER[one.state])
    return found
