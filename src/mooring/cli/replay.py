"""`mooring replay`: a recording put through the engine once more, and questions at any moment of it."""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from mooring.cli import queue as queue_command
from mooring.cli import top as top_command
from mooring.cli import why as why_command
from mooring.cli.connect import ObjectNamespace
from mooring.cli.output import Format, Output, note, print_data, print_table, print_text
from mooring.core.model.exits import Exit, UserError

if TYPE_CHECKING:
    from mooring.process.blackbox.played import Played

app = App(name="replay")


@app.default
def replay(
    file: Annotated[str, Parameter(help="A recording, or a directory: then the newest in it.")],
    /,
    *question: Annotated[str, Parameter(help="why SUBJECT, queue, top or page: of the end, or of --until.")],
    until: Annotated[str, Parameter(help='Stop there: RFC 3339, HH:MM:SS (UTC), +SECONDS, or "op 57 promoted".')] = "",
    namespace: ObjectNamespace = "",
    set_: Annotated[
        tuple[str, ...], Parameter(name="--set", help="KEY=VALUE: from --until on with other settings, on the sandbox.")
    ] = (),
    for_: Annotated[str, Parameter(name="--for", help="With --set: so much virtual time.")] = "10m",
    port: Annotated[int, Parameter(help="page: where to serve it; not given: 8390 or the next that is free.")] = -1,
    all_: Annotated[bool, Parameter(name="--all", help="why: the whole history that is kept.")] = False,
    output: Output = Format.TABLE,
) -> int:
    """Recompute what a recorded replica decided, and compare instruction by instruction.

    Exits 0 when all are equal, 1 at the first that differs, with both sides, 2 where the recording is damaged. `mooring
    run --blackbox DIR` and `mooring demo --blackbox DIR` record.

    Example: mooring replay box --until 09:02:05 why pod/demo-tikv-1 -n tidb

    Example: mooring replay box page

    Example: mooring replay box --until 09:20:00 --set mix.rebalance.return-every-s=60 --for 30m
    """
    from mooring.process.blackbox.played import difference_json, difference_lines, play

    _check(question)
    played, different = play(file, until, note)
    if different is not None:
        if output.data:
            print_data(output, difference_json(different))
        else:
            print_text("\n".join(difference_lines(different)))
        return Exit.CHECK_FAILED
    if set_:
        if question:
            raise UserError("--set goes on from there: leave the question out, or --set")
        _go_on(played, set_, for_, output)
    else:
        _answer(played, question, namespace, port, output, everything=all_)
    return Exit.USAGE if played.damaged and not (set_ or question) else Exit.DONE


def _answer(
    played: "Played", question: tuple[str, ...], namespace: str, port: int, output: Format, *, everything: bool
) -> None:
    match question[:1]:
        case ("why",):
            why_command.show(played.why("/".join(question[1:]), namespace), output, everything=everything)
        case ("queue",):
            queue_command.show(played.queue(), output)
        case ("top",):
            top_command.show(asyncio.run(played.frame()), output)
        case ("page",):
            from mooring.process.http.recorded import serve
            from mooring.process.http.served import listen

            with contextlib.suppress(KeyboardInterrupt):
                asyncio.run(serve(played.recording, played.now, listen(port), note))
        case _ if output.data:
            print_data(output, played.equal_json())
        case _:
            print_text(played.equal_line())


def _go_on(played: "Played", settings: tuple[str, ...], for_: str, output: Format) -> None:
    from mooring.cli import from_lab
    from mooring.process import logs

    what_if = from_lab("what-if", "replay --set").load()
    logs.configure("critical", "auto")
    found = what_if(played, settings, for_, note)
    if output.data:
        print_data(output, found.as_json())
        return
    if rows := found.rows():
        print_table(["OPERATORS", "RECORDED", "CHANGED"], rows)
        print_text()
    print_text("\n".join(found.timeline()))


def _check(question: tuple[str, ...]) -> None:
    match question:
        case () | ("queue",) | ("top",) | ("page",) | ("why", _) | ("why", _, _):
            return
        case ("why",):
            raise UserError("Which object? e.g. mooring replay FILE why pod/demo-tikv-1 -n tidb")
        case _:
            raise UserError(f"{' '.join(question)!r}: a recording can be asked `why SUBJECT`, `queue`, `top` or `page`")
