"""The words of `why`: one rendering of the answer, printed by the command and shown by the page."""

import re
import textwrap
from collections.abc import Mapping
from typing import Any, Final

from mooring.core.model.times import time_of_day

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
        parts.append(f"data {answer['data_age_s']:.1f} s old")
    if answer.get("pd_age_s") is not None:
        parts.append(f"PD seen {answer['pd_age_s']:.0f} s ago")
    leader = answer.get("leader") or ""
    if answer.get("leading"):
        parts.append(f"leader {leader}".rstrip())
    else:
        parts.append(f"a follower answers; {leader or 'no replica'} leads")
    parts.append("same answer: -o json")
    return " · ".join(parts)
