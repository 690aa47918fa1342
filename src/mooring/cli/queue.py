"""`mooring queue`: what waits and what runs; recorded operators through the queue; PD's old limits as its settings."""

import sys
from math import inf
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec
from cyclopts import App, Parameter

from mooring.cli.connect import AllNamespaces, OnlyNamespace
from mooring.cli.output import (
    Format,
    Listed,
    Listing,
    Output,
    note,
    painted,
    print_data,
    print_table,
    print_text,
    width,
)
from mooring.cli.server import HERE, Reach, Watch, ask, following, only_in
from mooring.core.model.exits import UserError

#: A file to read; `-` is stdin.
Readable = Annotated[Path, Parameter(allow_leading_hyphen=True)]


def replay(
    events: Readable,
    *,
    config: Annotated[Path | None, Parameter(name="--config")] = None,
    output: Output = Format.JSON,
) -> None:
    """Play a recorded stream of operators through the queue and print what becomes of each.

    One JSON object a line in, one a line out; lines that make no sense are `ignored` with a reason (in words on
    stderr) and the replay goes on. End a recording with a `state` line to see who waits, and why.

    Example: mooring queue replay events.jsonl --config limits.yml | grep rejected

    Example: mooring queue replay events.jsonl -o table

    Parameters
    ----------
    events
        A file with one event a line, in time order; `-` reads stdin.
    config
        The settings (MaxScheduleCost, StoreMaxScheduleCost, OperatorStepCost, MaxWaitingOperator,
        SchedulerMaxWaitingOperator, CooldownSeconds, ReplaceLowerPriority) as JSON or YAML;
        null is unlimited, 0 is paused.
    output
        JSON, one object a line, or a table for people.
    """
    from mooring.capabilities.registry import limits
    from mooring.core.queue.config import QueueConfigError, Settings, parse, with_targets
    from mooring.core.queue.replay import QueueReplay, in_words

    settings = with_targets(Settings(), limits(), ())
    if config is not None:
        try:
            settings = parse(_load(config), settings)
        except QueueConfigError as error:
            raise UserError(f"{config}: {error}") from error
    number = 0
    player = QueueReplay(settings, remark=lambda text: note(f"{events}:{number}: {text}"))
    encode = msgspec.json.Encoder().encode
    with _open(events) as lines:
        for number, line in enumerate(lines, start=1):  # noqa: B007 - the remarks name it
            for record in player.line(line):
                if output is Format.YAML:
                    print_text("---")
                    print_data(output, record)
                elif output.data:
                    sys.stdout.buffer.write(encode(record) + b"\n")
                else:
                    print_text(in_words(record).decode())
    sys.stdout.flush()
    if player.unread and player.queue.now == -inf:
        raise UserError(f"{events}: no line of it is an event; `mooring queue replay --help` shows one")


def migrate(old_config: Readable, *, output: Output = Format.TABLE) -> None:
    """Turn PD's old limits into the five settings of the queue, each with its reason.

    Takes what `pd-ctl config show` (or `GET /pd/api/v1/config`) prints. With `-o json` the part under `config` is
    what `mooring queue replay --config` takes.

    Example: mooring queue migrate pd.json

    Example: pd-ctl config show | mooring queue migrate - -o json

    Parameters
    ----------
    old_config
        PD's configuration as JSON; `-` reads stdin.
    output
        A table for people, or JSON for scripts.
    """
    from mooring.core.queue.migrate import OldConfigError, migrate_config

    try:
        answer = migrate_config(_load(old_config))
    except OldConfigError as error:
        raise UserError(f"{old_config}: {error}") from error
    for warning in answer.warnings:
        note(f"WARNING: {warning}")
    if output.data:
        print_data(output, answer.as_json())
        return
    print_table(("SETTING", "VALUE", "WHY"), answer.rows())


def _open(path: Path) -> IO[bytes]:
    if str(path) == "-":
        return sys.stdin.buffer
    try:
        return path.open("rb")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; it must be a file that can be read") from error


def _load(path: Path) -> Any:
    """JSON or YAML, by content: JSON is YAML too."""
    from mooring.clients.wire.document import decode

    with _open(path) as file:
        raw = file.read()
    try:
        return decode(raw)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: neither JSON nor YAML: {error}") from error


app = App(name="queue")
app.command(replay)
app.command(migrate)


@app.default
def queue(
    *,
    namespace: OnlyNamespace = "",
    everywhere: AllNamespaces = False,
    watch: Watch = False,
    reach: Reach = HERE,
    output: Listed = Listing.TABLE,
) -> None:
    """List every operator in the queue of the running Mooring, those that need a person on top.

    A row says how far it has come (step k/n and progress), or which target it waits for (used/limit), how much is
    missing there and who uses it. `mooring why operator/N` tells the rest.

    Example: mooring queue -w

    Example: mooring queue -n tidb -o name

    Example: mooring queue -A -o wide
    """
    from mooring.process.terminal.queue import lasting, within

    def look() -> Any:
        answer = ask(reach, "/api/v1/queue")
        parts = ("running", "waiting", "rows")
        return answer | {part: within(answer[part], namespace) for part in parts if part in answer}

    def first(answer: Any) -> None:
        only_in(reach, namespace, everywhere=everywhere, found=bool(answer["rows"]))
        show(answer, output)

    following(look, lambda answer: [lasting(row) for row in answer["rows"]], first, watch=watch)


def show(answer: Any, output: Format | Listing) -> None:
    from mooring.process.terminal.queue import NARROW, block, cells, everything, subject_of, table

    if output.value == "name":
        print_text("\n".join(map(subject_of, answer["rows"])) or "", end="\n" if answer["rows"] else "")
        return
    if output.data:
        print_data(output, answer)
        return
    rows = [cells(row, answer["as_of"]) for row in answer["rows"]]
    if not rows:
        note("no pending changes")
    elif (room := width()) is not None and room < NARROW:
        for row in rows:
            head, said = block(row, room)
            print_text("\n".join([*(painted(line, row[0].partition(" ")[2]) for line in head), *said]))
    else:
        print_table(*(everything(rows) if output.value == "wide" else table(rows)))
