"""The words of `why`: one rendering, printed by the command and shown by the page."""

import datetime as dt
from typing import Any, Final

SHOWN: Final = 4


def render(answer: dict[str, Any], *, everything: bool = False) -> list[str]:
    """Line 1 is the answer; then what there is to say, line by line; the newest history; how old it all is."""
    lines = [answer["answer"], ""]
    lines += [f"{line['label']:<12}{line['text']}" for line in answer.get("lines", [])]
    history = answer.get("history", [])
    if history:
        shown = history if everything else history[-SHOWN:]
        hidden = "" if len(shown) == len(history) else f"   ({len(shown)} of {len(history)}, --all)"
        for index, entry in enumerate(shown):
            label = "history" if index == 0 else ""
            words = " ".join(filter(None, (entry["verb"], entry.get("reason", ""), entry.get("text", ""))))
            lines.append(f"{label:<12}{clock(entry['at'])} {words}{hidden if index == 0 else ''}")
    who = "leader" if answer.get("leading") else "a follower: it does not decide"
    lines.append(f"as of {clock(answer['as_of'])} · {who} · same answer: -o json")
    return lines


def clock(at: float) -> str:
    return dt.datetime.fromtimestamp(at, dt.UTC).strftime("%H:%M:%S")
