"""The queue as text: a row of a table each, or a block where a table has no room."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from mooring.core.engine.why.words import fold
from mooring.core.model.times import clock

#: Word and shape, so that neither colour nor sight of it is needed.
GLYPHS: Final = {"blocked": "▲ blocked", "refused": "× refused", "moving": "● moving", "waiting": "○ waiting"}
#: Below this a table of ten columns would break every cell.
NARROW: Final = 100
COLUMNS: Final = ("STATE", "OP", "SOURCE", "WHAT", "STEP", "WAITING FOR", "MISSING", "USED BY", "SINCE", "DEADLINE")


def within(rows: Iterable[dict[str, Any]], namespace: str) -> list[dict[str, Any]]:
    """Those about something in this namespace; "": all."""
    return [row for row in rows if not namespace or namespace in _spaces(row)]


def _spaces(row: Mapping[str, Any]) -> list[str]:
    """`shop/pay-0`, `pod/shop/pay-0`, `store/tidb/demo/4`: what stands before the name, and behind the kind."""
    return [*row.get("about", "").split("/")[:-1], *row.get("subject", "").split("/")[1:-1]]


def lasting(row: Mapping[str, Any]) -> tuple[str, ...]:
    """What of a row is news when it changes: not how long it has been so."""
    return cells(row, 0.0)[:8]


def subject_of(row: Mapping[str, Any]) -> str:
    """As `mooring why` takes it."""
    return f"operator/{row['op']}" if row.get("op") else str(row.get("subject") or row["id"])


def everything(rows: list[tuple[str, ...]]) -> tuple[list[str], list[list[str]]]:
    """Every column, also one that says nothing in any row."""
    return list(COLUMNS), [list(row) for row in rows]


def block(row: tuple[str, ...], room: int) -> tuple[list[str], list[str]]:
    """A row on a narrow terminal: state, operator and what it does; then what there is to say, label by label."""
    said = [f"{label.lower():<12}{cell}" for label, cell in zip(COLUMNS[4:], row[4:], strict=True) if cell != "–"]
    return fold(f"{row[0]}  op {row[1]}  {row[3]}", room), [part for line in said for part in fold(line, room)]


def table(rows: list[tuple[str, ...]]) -> tuple[list[str], list[list[str]]]:
    """Columns and cells. A column that says nothing in any row is left out."""
    shown = [i for i in range(len(COLUMNS)) if i < 4 or any(row[i] != "–" for row in rows)]
    return [COLUMNS[i] for i in shown], [[row[i] for i in shown] for row in rows]


def cells(row: Mapping[str, Any], now: float) -> tuple[str, ...]:
    progress = row.get("progress", "")
    step = ", ".join(filter(None, (row.get("step", ""), progress)))
    since, deadline = row.get("since"), row.get("deadline")
    return (
        GLYPHS.get(row["state"], row["state"]),
        row.get("op") or "–",
        row["source"],
        row["what"],
        step or "–",
        row.get("waiting_on") or "–",
        row.get("missing") or "–",
        ", ".join(row.get("by", ())) or "–",
        clock(max(0, int(now - since))) if since else "–",
        clock(max(0, int(deadline - now))) + " left" if deadline else "–",
    )
