"""How commands print: data on stdout as a table for people or as JSON for scripts, everything else on stderr."""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, TextIO

import msgspec
from cyclopts import Parameter

#: Word and luminance carry the meaning, the colour helps: blue rather than green for what is well.
COLOURS: Final = {"stable": "34", "moving": "36", "waiting": "33", "blocked": "1;31", "refused": "35"}
#: A command of ours inside a sentence; not the word in "by mooring" or "mooring-system".
_OURS: Final = re.compile(
    r"(?<![\w/.-])mooring (?=(?:balance|cleanup|completion|config|demo|doctor|fleet|handoff|home|lab|manifests|mix|"
    r"queue|rehearse|replay|run|sandbox|sim|top|why)\b)"
)
COMMANDS: Final = ("kubectl ", "mooring ", "helm ", "export ")


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"


#: The `-o / --output` of every reading command.
Output = Annotated[Format, Parameter(name=["--output", "-o"], help="How to print: table for people, json for scripts.")]


def plain(text: str) -> str:
    """What others wrote (names, annotations, answers of servers), with nothing in it that a terminal obeys."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c == "\n" else "·" for c in text)


def print_json(value: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Plain aligned columns. On a terminal folded at its width; into a pipe one line per row, however long."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        lines = [tuple(columns), *(tuple(map(plain, row)) for row in rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
        for line in lines:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        # As text, never as markup: names may hold anything.
        table.add_row(*(Text(plain(cell)) for cell in row))
    Console(highlight=False).print(table)


def runnable(text: str) -> str:
    """Our own commands as they work where this one was started from: `.venv/bin/mooring …`, `kubectl mooring …`."""
    program = _program()
    return text if program == "mooring" else _OURS.sub(f"{program} ", text)


def _program() -> str:
    started = Path(sys.argv[0])
    if started.name == "kubectl-mooring":
        return "kubectl mooring"
    if started.name != "mooring" or shutil.which("mooring") is not None:
        return "mooring"
    try:
        return str(started.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(started.absolute())


def note(message: str) -> None:
    """A remark for the person at the terminal: never on stdout. Wrapped at words; what is a command stays whole."""
    room = width(sys.stderr)
    for line in runnable(plain(message)).split("\n"):
        if room is None or len(line) <= room or line.lstrip().startswith(COMMANDS):
            print(line, file=sys.stderr)
            continue
        indent = " " * (len(line) - len(line.lstrip()))
        for part in textwrap.wrap(
            line, max(20, room), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        ):
            print(part, file=sys.stderr)


def width(stream: TextIO | None = None) -> int | None:
    """Columns to keep to: the terminal's, or COLUMNS; None into a pipe or a file, where there is no edge."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    return shutil.get_terminal_size().columns if (stream or sys.stdout).isatty() else None


def coloured() -> bool:
    """Colours are for terminals, and only where nobody asked for none."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def painted(text: str, state: str) -> str:
    """The state word of a line in its colour, on a terminal."""
    code = COLOURS.get(state)
    if code is None or not coloured():
        return text
    return re.sub(rf"\b{state}\b", f"\x1b[{code}m{state}\x1b[0m", text, count=1)
