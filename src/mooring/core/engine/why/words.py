"""What `why` answers, as a value and as text: how things are called, short and the same in every line, and one
rendering, which the command prints and the page shows. `-o json` prints the value as it is.
"""

import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from mooring.core.engine.history import HistoryEntry
from mooring.core.model import subjects
from mooring.core.model.decision import Line, OperatorRecord
from mooring.core.model.descriptor import Described
from mooring.core.model.operator import Operator, StepKind
from mooring.core.model.reasons import Reason, State
from mooring.core.model.times import time_of_day
from mooring.core.queue.why import Why

LONGEST_ANSWER: Final = 110

#: Where a label stands. What has no place of its own comes before `to change`.
ORDER: Final = {
    label: place
    for place, label in enumerate(
        (
            "off",
            "asked",
            "queued",
            "target",
            "would fit",
            "ahead",
            "running",
            "gives up",
            "now",
            "why there",
            "mark",
            "dry run",
            "also",
            "features",
            "",
            "look ahead",
            "to change",
        )
    )
}


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    subject: str
    state: State
    reason: Reason
    #: Line 1, at most 110 characters: subject, state word, the blocker's name, what ends it.
    answer: str
    lines: tuple[Line, ...] = ()
    operators: tuple[str, ...] = ()
    #: The first target that keeps a waiting operator out, summed up.
    waiting_on: Why | None = None
    history: tuple[HistoryEntry, ...] = ()
    as_of: float = 0.0
    leading: bool = False
    #: Who decides, as far as this replica knows.
    leader: str = ""
    #: How old the newest event from the API server is; None: unknown.
    data_age_s: float | None = None
    #: How old the look at the PD behind this subject is; None: no PD is involved, or it was never seen.
    pd_age_s: float | None = None


def in_order(lines: Iterable[Line]) -> tuple[Line, ...]:
    """Lines by the place of their label, those of one label in the order given; several `now` become one."""
    kept: list[Line] = []
    now = [line.text for line in lines if line.label == "now"]
    if now:
        kept.append(Line("now", " · ".join(dict.fromkeys(now))))
    seen: set[tuple[str, str]] = set()
    for line in lines:
        if line.label != "now" and (line.label, line.text) not in seen:
            seen.add((line.label, line.text))
            kept.append(line)
    last = ORDER["to change"] - 1
    kept.sort(key=lambda line: ORDER.get(line.label, last))
    return tuple(kept)


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
    pod = operator.payload.pod
    return short(subjects.pod(pod)) if pod else short(operator.subject)


def doing(described: Described, operator: Operator) -> str:
    phrase = described.phrases.get(operator.kind)
    if phrase is not None:
        return phrase[0].format(it=it(operator))
    return f"{operator.kind.replace('-', ' ')} {it(operator)}"


def ends_itself(described: Described, running: OperatorRecord) -> str:
    """What ends a running operator, said of its own object."""
    operator = running.operator
    said = described.ends(operator)
    return said[0] if said is not None else ends(described, operator).replace(f"when {it(operator)} is", "when it is")


def brief(progress: str) -> str:
    """The first and the last figure of a progress: "15 of 80 leaders gone, about 22 s more"."""
    parts = progress.split(", ")
    return progress if len(parts) < 3 else f"{parts[0]}, {parts[-1]}"


def ends(described: Described, operator: Operator) -> str:
    """What ends it, said to those who wait behind it."""
    if said := described.ends(operator):
        return said[1].format(it=it(operator))
    phrase = described.phrases.get(operator.kind)
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


SHOWN: Final = 4
WIDTH: Final = 12
#: What a label is made of.
LABELS: Final = "abcdefghijklmnopqrstuvwxyz "
COMMAND: Final = re.compile(r"\b(?:kubectl|mooring|helm|sabactl|pd-ctl) [a-z-]")


def render(answer: Mapping[str, Any], *, everything: bool = False, width: int | None = None) -> list[str]:
    """Line 1 is the answer; then what there is to say, by label; the newest history; how old it all is.

    `width`: wrapped at words, under their label. A command stays whole, on a line of its own where it must.
    """
    lines = _lines(answer, everything=everything)
    return lines if width is None else [part for line in lines for part in fold(line, width)]


def _lines(answer: Mapping[str, Any], *, everything: bool) -> list[str]:
    lines = [answer["answer"], ""]
    before = ""
    for line in answer.get("lines", ()):
        label = "" if line["label"] == before else line["label"]
        before = line["label"]
        lines.append(f"{label:<{WIDTH}}{line['text']}")
    lines += _history(answer.get("history", ()), everything=everything)
    lines.append(_as_of(answer))
    return lines


def fold(line: str, width: int) -> list[str]:
    """One line in its width. What is labelled goes on under its text; a command is never broken."""
    room = max(20, width)
    if len(line) <= room:
        return [line]
    labelled = len(line) > WIDTH and (line[WIDTH - 1] == " " and line[WIDTH] != " ") and not line[:WIDTH].strip(LABELS)
    indent = " " * WIDTH if labelled else ""
    found = COMMAND.search(line)
    before, command = (line, "") if found is None else (line[: found.start()].rstrip(), line[found.start() :])
    parts = textwrap.wrap(before, room, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [*parts, f"{indent}  {command}"] if command else parts


def _history(history: Any, *, everything: bool) -> list[str]:
    shown = list(history) if everything else list(history)[-SHOWN:]
    hidden = "" if len(shown) == len(history) else f"   ({len(shown)} of {len(history)}, --all)"
    lines = []
    for index, entry in enumerate(shown):
        label = "history" if index == 0 else ""
        who = f"op {entry['id']} " if entry["id"].isdigit() else ""
        reason, text = entry.get("reason", ""), entry.get("text", "")
        words = f"{who}{entry['verb']}{f' ({reason})' if reason else ''}{f': {text}' if text else ''}"
        lines.append(f"{label:<{WIDTH}}{time_of_day(entry['at'])} {words}{hidden if index == 0 else ''}")
    return lines


def _as_of(answer: Mapping[str, Any]) -> str:
    parts = [f"as of {time_of_day(answer['as_of'])}"]
    if answer.get("data_age_s") is not None:
        silent = answer["data_age_s"]
        parts.append(f"the API server has not answered for {span(silent)}" if silent else "live")
    if answer.get("pd_age_s") is not None:
        parts.append(f"PD seen {answer['pd_age_s']:.0f} s ago")
    leader = answer.get("leader") or ""
    if answer.get("leading"):
        parts.append(f"leader {leader}".rstrip())
    else:
        parts.append(f"a follower answers; {leader or 'no replica'} leads")
    parts.append("same answer: -o json")
    return " · ".join(parts)
