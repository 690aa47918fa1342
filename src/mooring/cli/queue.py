"""`mooring queue`: what waits and what runs, one row each."""

from typing import Any

from cyclopts import App

from mooring.cli.connect import OnlyNamespace
from mooring.cli.output import Format, Output, note, painted, print_json, print_table, width
from mooring.cli.queue_replay import migrate, replay
from mooring.cli.server import HERE, Reach, ask

app = App(name="queue")
app.command(replay)
app.command(migrate)


@app.default
def queue(*, namespace: OnlyNamespace = "", reach: Reach = HERE, output: Output = Format.TABLE) -> None:
    """List every operator in the queue of the running Mooring, those that need a person on top.

    A row says how far it has come (step k/n and progress), or which target it waits for (used/limit), how much is
    missing there and who uses it. `mooring why operator/N` tells the rest.

    Example: mooring queue

    Example: mooring queue -n tidb -o json
    """
    from mooring.process.terminal.queue import within

    answer = ask(reach, "/api/v1/queue")
    show(
        answer | {part: within(answer[part], namespace) for part in ("running", "waiting", "rows") if part in answer},
        output,
    )


def show(answer: Any, output: Format) -> None:
    from mooring.process.terminal.queue import NARROW, block, cells, table

    if output is Format.JSON:
        print_json(answer)
        return
    rows = [cells(row, answer["as_of"]) for row in answer["rows"]]
    if not rows:
        note("no pending changes")
    elif (room := width()) is not None and room < NARROW:
        for row in rows:
            head, said = block(row, room)
            print("\n".join([*(painted(line, row[0].partition(" ")[2]) for line in head), *said]))
    else:
        print_table(*table(rows))
