"""`mooring queue`: what waits and what runs, one row each."""

from typing import Any, Final

from cyclopts import App

from mooring.cli.output import Format, Output, note, painted, print_json, print_table, width
from mooring.cli.queue_replay import migrate, replay
from mooring.cli.server import HERE, Reach, ask

app = App(name="queue")
app.command(replay)
app.command(migrate)

#: Word and shape, so that neither colour nor sight of it is needed.
GLYPHS: Final = {"blocked": "▲ blocked", "refused": "× refused", "moving": "● moving", "waiting": "○ waiting"}
#: Below this a table of ten columns would break every cell.
NARROW: Final = 100
COLUMNS: Final = ("STATE", "OP", "SOURCE", "WHAT", "STEP", "WAITING FOR", "MISSING", "USED BY", "SINCE", "DEADLINE")


@app.default
def queue(*, reach: Reach = HERE, output: Output = Format.TABLE) -> None:
    """List every operator in the queue of the running Mooring, those that need a person on top.

    A row says how far it has come (step k/n and progress), or which target it waits for (used/limit), how much is
    missing there and who uses it. `mooring why operator/N` tells the rest.

    Example: mooring queue

    Example: mooring queue -o json
    """
    show(ask(reach, "/api/v1/queue"), output)


def show(answer: Any, output: Format) -> None:
    if output is Format.JSON:
        print_json(answer)
        return
    rows = [cells(row, answer["as_of"]) for row in answer["rows"]]
    if not rows:
        note("no pending changes")
        return
    if (room := width()) is not None and room < NARROW:
        for row in rows:
            print("\n".join(block(row, room)))
        return
    # A column that says nothing in any row is left out.
    shown = [i for i in range(len(COLUMNS)) if i < 4 or any(row[i] != "–" for row in rows)]
    print_table([COLUMNS[i] for i in shown], [[row[i] for i in shown] for row in rows])


def block(row: tuple[str, ...], room: int) -> list[str]:
    """A row on a narrow terminal: state, operator and what it does, then what there is to say, label by label."""
    from mooring.core.engine.why.text import fold

    state = row[0].partition(" ")[2]
    head = [painted(line, state) for line in fold(f"{row[0]}  op {row[1]}  {row[3]}", room)]
    said = [f"{label.lower():<12}{cell}" for label, cell in zip(COLUMNS[4:], row[4:], strict=True) if cell != "–"]
    return [*head, *(part for line in said for part in fold(line, room))]


def cells(row: dict[str, Any], now: float) -> tuple[str, ...]:
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
        _span(now - since) if since else "–",
        _span(deadline - now) + " left" if deadline else "–",
    )


def _span(seconds: float) -> str:
    whole = max(0, int(seconds))
    return (
        f"{whole // 60}:{whole % 60:02d}"
        if whole < 3600
        else f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"
    )
