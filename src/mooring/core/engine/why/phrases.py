"""How things are called: short, the same in every line, at most as long as a terminal is wide."""

from typing import Final

from mooring.capabilities.registry import phrases
from mooring.core.engine.why.explanation import LONGEST_ANSWER
from mooring.core.model.decision import OperatorRecord
from mooring.core.model.operator import Operator, StepKind

#: A step without any change for this long is called stalled.
STALLED_AFTER_S: Final = 600.0
#: Steps that are meant to last: holding something is no standstill.
LASTING: Final = frozenset({StepKind.HOLD_EMPTY, StepKind.RESERVE_NODE})

#: A line does not end with one of these.
_DANGLING: Final = frozenset(
    ["a", "an", "and", "at", "by", "for", "from", "in", "is", "of", "on", "or", "the", "to", "with"]
)


def short(subject: str) -> str:
    """The name a person uses: the last part, but a store with its number."""
    kind, _, rest = subject.partition("/")
    if kind == "store":
        return f"store {rest.rpartition('/')[2]}"
    if kind == "operator":
        return f"op {rest}"
    if kind == "rack":
        return f"rack {rest}"
    return rest.rpartition("/")[2]


def it(operator: Operator) -> str:
    return short(f"pod/{operator.args['pod']}") if "pod" in operator.args else short(operator.subject)


def doing(operator: Operator) -> str:
    phrase = phrases().get(operator.kind)
    if phrase is not None:
        return phrase[0].format(it=it(operator))
    return f"{operator.kind.replace('-', ' ')} {it(operator)}"


def ends_itself(running: OperatorRecord) -> str:
    """What ends a running operator, said of its own object."""
    operator = running.operator
    if operator.kind == "evict-leaders" and operator.args.get("value") == "none":
        return "when its annotation is removed"
    return ends(operator).replace(f"when {it(operator)} is", "when it is")


def brief(progress: str) -> str:
    """The first and the last figure of a progress: "15 of 80 leaders gone, about 22 s more"."""
    parts = progress.split(", ")
    return progress if len(parts) < 3 else f"{parts[0]}, {parts[-1]}"


def ends(operator: Operator) -> str:
    """What ends it, said to those who wait behind it."""
    if operator.kind == "evict-leaders" and operator.args.get("value") == "none":
        return f"when the leaders of {it(operator)} are gone"
    phrase = phrases().get(operator.kind)
    return phrase[1].format(it=it(operator)) if phrase is not None else f"when op {operator.id} ends"


def step(running: OperatorRecord) -> str:
    steps = running.operator.steps
    if running.step >= len(steps):
        return "last step"
    return f"step {running.step + 1}/{len(steps)} {steps[running.step].kind}"


def then(running: OperatorRecord) -> str:
    """The steps that are left, in words: "; then HoldEmpty, EndEviction"."""
    left = [str(s.kind) for s in running.operator.steps[running.step + 1 :]]
    return f"; then {', '.join(left)}" if left else ""


def standstill_s(running: OperatorRecord, now: float) -> float:
    """For how long nothing has changed; 0 while it gets on, or is meant to last."""
    steps = running.operator.steps
    if running.step < len(steps) and steps[running.step].kind in LASTING and running.waiting_on is None:
        return 0.0
    still = now - max(running.moved_at, running.step_since, running.acted_at)
    return still if still > STALLED_AFTER_S else 0.0


def span(seconds: float) -> str:
    """0:47, 12:05, 3 h 20 min, 12 days."""
    whole = max(0, int(seconds))
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} days"


def plural(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def cut(text: str) -> str:
    """At most as long as line 1 may be, never inside a word."""
    return _whole_words(text, LONGEST_ANSWER)


def _whole_words(text: str, room: int) -> str:
    """As many whole words as fit. A single word that is too long (a name) keeps its ends, which tell it apart."""
    if len(text) <= room:
        return text
    kept = text[:room].rpartition(" ")[0].rstrip(" ;,:(")
    # A word such as "on" or "is" at the end promises one that is not there.
    while kept.rpartition(" ")[2] in _DANGLING:
        kept = kept.rpartition(" ")[0].rstrip(" ;,:(")
    if kept:
        return f"{kept}…"
    half = room // 2
    return f"{text[:half]}…{text[len(text) - (room - half - 1) :]}"


def fit(head: str, detail: str, tail: str) -> str:
    """Line 1 in its room: what ends it matters more than the rest of a long detail, "Nothing for you to do." less than
    either."""
    if len(head + detail + tail) > LONGEST_ANSWER:
        tail = tail.removesuffix(" Nothing for you to do.")
    room = LONGEST_ANSWER - len(head) - len(tail)
    if len(detail) > room > 20:
        detail = _whole_words(detail, room)
    elif len(detail) > room:
        # No room for both: what it is says more than what ends it.
        tail = "."
        detail = _whole_words(detail, max(0, LONGEST_ANSWER - len(head) - 1))
    return cut(f"{head}{detail}{tail}")
