"""`mooring queue`: what waits and what runs, one row each."""

from typing import Any

from cyclopts import App

from mooring.cli.output import Format, Output, note, print_json, print_table
from mooring.cli.server import Server, ask

app = App(name="queue", help="Show what waits and what runs, in the order in which it will pass.")


@app.default
def queue(*, server: Server = "", output: Output = Format.TABLE) -> None:
    """List every operator in the queue of the running Mooring.

    Example: mooring queue -o json
    """
    answer = ask(server, "/api/v1/queue")
    if output is Format.JSON:
        print_json(answer)
        return
    rows = [_running(op, answer["as_of"]) for op in answer["running"]]
    rows += [_waiting(op) for op in answer["waiting"]]
    if not rows:
        note("nothing waits and nothing runs")
        return
    rows.sort(key=lambda row: row[0] != "held")
    print_table(("STATE", "OP", "SOURCE", "WHAT", "STEP", "WAITS FOR", "SINCE"), rows)


def _running(op: dict[str, Any], now: float) -> tuple[str, ...]:
    step = f"{op['step']}/{len(op['steps'])} {op['steps'][op['step'] - 1]}" if op["steps"] else ""
    text = f"{step}, {op['progress']}" if op["progress"] else step
    waits = op["waits"]["detail"] if op["waits"] else "–"
    seconds = max(0, int(now - op["since"]))
    since = f"{seconds // 60}:{seconds % 60:02d}"
    return (op["state"], op["id"], op["source"], f"{op['kind']} {op['subject']}", text, waits, since)


def _waiting(op: dict[str, Any]) -> tuple[str, ...]:
    why = op["why"] or {}
    return ("waits", op["id"], op["source"], f"{op['kind']} {op['subject']}", "–", why.get("answer", ""), "")
