"""Dry runs of the capabilities: what would they propose about this subject now, and if nothing, why not?

`evaluate` is asked as the engine asks it, with the notes that the engine keeps, and nothing of the answer is taken up.
A switched-off capability is asked too: what it would do is what its switch keeps from happening.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from mooring.core.engine.engine import Engine
from mooring.core.engine.why.subject import Subject, belongs, happening_of, names_on
from mooring.core.model.decision import Deferred, Verdict
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason
from mooring.core.queue import targets

#: A verdict about another one of these says nothing about this subject.
INDIVIDUALS: Final = frozenset({"pod", "node", "machine", "store"})


class Dry(msgspec.Struct, frozen=True, kw_only=True):
    """What one capability would do about the subject."""

    capability: str
    on: bool
    proposals: tuple[Operator, ...] = ()
    #: What it says of the subject itself, or of what stands on it.
    verdicts: tuple[Verdict, ...] = ()
    #: All it says about why it proposes nothing, in words.
    because: tuple[str, ...] = ()


def run_dry(engine: Engine, subject: Subject, now: float) -> Iterator[Dry]:
    trigger = happening_of(engine.world, subject)
    if trigger is None:
        return
    names = frozenset((subject.name, *names_on(engine.world, subject)))
    # A key without a verdict by name is the object itself when it ends like it.
    own = subject.rest if subject.kind != "workload" else str(getattr(subject.workload, "key", subject.rest))
    for name in sorted(engine.capabilities):
        capability = engine.capabilities[name]
        touched = capability.affected_keys(trigger, engine.world)
        keys = tuple(dict.fromkeys(one.key if isinstance(one, Deferred) else one for one in touched))
        proposals: list[Operator] = []
        verdicts: list[Verdict] = []
        because: list[str] = []
        for key in keys:
            look = capability.evaluate(key, engine.world, engine.queue, engine.notes.get((name, key)), now)
            proposals += [o for o in look.proposals if belongs(engine.world, subject, o)]
            said = look.verdicts or ((look.verdict,) if look.verdict is not None else ())
            verdicts += [v for v in said if v.subject in names or (not v.subject and key.endswith(own))]
            because += [v.detail for v in said if v.subject in names or v.subject.partition("/")[0] not in INDIVIDUALS]
        if keys:
            yield Dry(
                capability=name,
                on=name in engine.on or name in engine.observing,
                proposals=tuple(proposals),
                verdicts=tuple(verdicts),
                because=tuple(dict.fromkeys(because)),
            )


def queue_refusal(engine: Engine, operator: Operator) -> tuple[Reason, str] | None:
    """Why the queue would not take this one in, in the order in which it checks; None: it would."""
    queue = engine.queue
    for claim in operator.claims or (operator.subject,):
        holder = queue.holder(claim)
        if holder is not None:
            return Reason.SUBJECT_BUSY, f"op {holder.id} has {claim} already"
    for target, cost in sorted(operator.cost.items()):
        limit = queue.limit(target)
        if limit == 0:
            return targets.paused_reason(target), f"{target} is paused: its limit is 0"
        if limit is not None and cost > limit:
            return Reason.NEVER_FITS, f"needs {cost} on {target}, whose limit is {limit}"
    full = queue.over_source_cap(operator)
    return (Reason.TOO_MANY_WAITING, full) if full else None
