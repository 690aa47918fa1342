"""How commands print: data on stdout as a table for people or as JSON for scripts, everything else on stderr."""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, TextIO

import msgspec
from cyclopts import Parameter, Token

from mooring.core.model.times import clock
from mooring.process.terminal.wrap import COMMANDS, LAST_COLUMN, block, folded, plain, under_its_label

#: Word and luminance carry the meaning, the colour helps: blue rather than green for good states.
COLOURS: Final = {"stable": "34", "moving": "36", "waiting": "33", "blocked": "1;31", "refused": "35"}
#: A command of ours inside a sentence; not the word in "by mooring" or "mooring-system".
_OURS: Final = re.compile(
    r"(?<![\w/.-])mooring (?=(?:balance|cleanup|completion|config|demo|doctor|drain|fleet|handoff|home|lab|maintain|"
    r"manifests|mix|page|pause|queue|rehearse|replay|restart|resume|run|sandbox|sim|top|why)\b)"
)


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"

    @property
    def data(self) -> bool:
        """For scripts: everything that is known, in one of the two spellings."""
        return self is not Format.TABLE


class Listing(StrEnum):
    """How a command prints that lists: also with more columns, or the names alone, as `mooring why` takes them."""

    TABLE = "table"
    WIDE = "wide"
    NAME = "name"
    JSON = "json"
    YAML = "yaml"

    @property
    def data(self) -> bool:
        return self in {Listing.JSON, Listing.YAML}


#: The `-o / --output` of every reading command.
Output = Annotated[
    Format, Parameter(name=["--output", "-o"], help="How to print: table for people, json or yaml for scripts.")
]
#: That of a command that lists.
Listed = Annotated[
    Listing,
    Parameter(name=["--output", "-o"], help="How to print: table, wide (every column), name, json or yaml."),
]


#: The colours that this package writes itself.
_PAINT: Final = re.compile("(\x1b\\[(?:0|1|" + "|".join(COLOURS.values()) + ")m)")


def print_text(text: str = "", *, end: str = "\n", stream: TextIO | None = None) -> None:
    """The one way to a terminal for text, whoever wrote it: no control character gets through but our own colours."""
    parts = _PAINT.split(text) if "\x1b" in text else [text]
    said = "".join(part if number % 2 else plain(part) for number, part in enumerate(parts))
    print(said, end=end, file=stream or sys.stdout)


def plain_values(value: Any) -> Any:
    """An answer whose texts are drawn by rich, which lets every control character through."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, Mapping):
        return {key: plain_values(one) for key, one in value.items()}
    return [plain_values(one) for one in value] if isinstance(value, list | tuple) else value


def print_json(value: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    sys.stdout.flush()


def print_data(output: StrEnum, value: Any) -> None:
    """The same in JSON or in YAML, as was asked."""
    if output.value != "yaml":
        print_json(value)
        return
    import yaml

    text = yaml.safe_dump(msgspec.to_builtins(value), sort_keys=False, allow_unicode=True, width=120)
    print_text(text, end="")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Aligned columns. Into a pipe one line per row, however long; where they do not fit, the last column is wrapped at
    words, and where not even that has room, each row is a block of its own: label and cell, line by line."""
    shown, room = [tuple(map(plain, row)) for row in rows], width()
    widths = [max(len(line[i]) for line in (tuple(columns), *shown)) for i in range(len(columns))]
    left = sum(widths[:-1]) + 2 * (len(widths) - 1)
    if room is not None and left + min(widths[-1], LAST_COLUMN) > room:
        for row in shown:
            print_text("\n".join(block(columns, row, room)), end="\n\n")
        return
    last = None if room is None else max(1, room - left)
    head = "  ".join(column.ljust(wide) for column, wide in zip(columns, widths, strict=True)).rstrip()
    print_text(f"\x1b[1m{head}\x1b[0m" if coloured() else head)
    for row in shown:
        parts = textwrap.wrap(row[-1], last) if last is not None and len(row[-1]) > last else [row[-1]]
        cells = [cell.ljust(wide) for cell, wide in zip(row[:-1], widths[:-1], strict=True)]
        print_text("  ".join((*cells, parts[0])).rstrip())
        for part in parts[1:]:
            print_text(" " * left + part)


def print_lines(lines: Iterable[str]) -> None:
    """Text that is laid out already: where there is an edge, wrapped at words under its label; commands stay whole."""
    room = width()
    for line in "\n".join(lines).split("\n"):
        print_text(line if room is None else "\n".join(under_its_label(line, room)))


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


def note(message: str, *, typed: bool = True) -> None:
    """A remark for the person at the terminal: never on stdout. Wrapped at words; what is a command stays whole.
    `typed`: with our commands as they work from here."""
    room, text = width(sys.stderr), plain(message)
    for line in (runnable(text) if typed else text).split("\n"):
        if room is None or line.lstrip().startswith(COMMANDS):
            print_text(line, stream=sys.stderr)
            continue
        for part in folded(line, room, " " * (len(line) - len(line.lstrip()))):
            print_text(part, stream=sys.stderr)


def width(stream: TextIO | None = None) -> int | None:
    """Columns to keep to: the terminal's, or COLUMNS; None into a pipe or a file, where there is no edge."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    return shutil.get_terminal_size().columns if (stream or sys.stdout).isatty() else None


def coloured(stream: TextIO | None = None) -> bool:
    """Colours are for terminals, unless NO_COLOR or TERM=dumb is set."""
    return (stream or sys.stdout).isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def painted(text: str, state: str) -> str:
    """The state word of a line in its colour, on a terminal."""
    code = COLOURS.get(state)
    if code is None or not coloured():
        return text
    return re.sub(rf"\b{state}\b", f"\x1b[{code}m{state}\x1b[0m", text, count=1)


class Progress:
    """A line or some on a terminal, written over; nothing into a pipe."""

    def __init__(self) -> None:
        self._on = sys.stderr.isatty()
        self._drawn = 0

    def lines(self, lines: Sequence[str]) -> None:
        """Each cut at the edge, so that as many are there as were written."""
        if self._on:
            self.clear()
            room = (width(sys.stderr) or 80) - 1
            print("\n".join(plain(line)[:room] for line in lines), end="", file=sys.stderr, flush=True)  # noqa: T201
            self._drawn = len(lines)

    def show(self, at_s: float, words: str) -> None:
        self.line(f"{clock(int(at_s))}  {words}", stay=True)

    def line(self, words: str, *, stay: bool = False) -> None:
        if self._on:
            print(f"\r\x1b[K{plain(words)}", end="", file=sys.stderr, flush=True)  # noqa: T201
            if not stay:
                self.clear()

    def clear(self) -> None:
        if self._on:
            up = f"\x1b[{self._drawn - 1}A" if self._drawn > 1 else ""
            print(f"\r{up}\x1b[J", end="", file=sys.stderr, flush=True)  # noqa: T201
            self._drawn = 0


def whole(_: Any, tokens: Sequence[Token]) -> int:
    text = tokens[0].value
    if not re.fullmatch(r"[-+]?[0-9]{1,30}", text, re.ASCII):
        raise ValueError(f"{text!r} is not a whole number such as 3")
    return int(text)


#: An `int` that is taken as it is written: the parser's own would make 2 of 1.5.
Whole = Annotated[int, Parameter(converter=whole)]


def processes(kind: Any, tokens: Sequence[Token]) -> int:
    number = whole(kind, tokens)
    if number < 0:
        raise ValueError(f"{number} processes are not possible; 0 means one per core")
    return number


#: How many run at a time; 0: one per core.
Jobs = Annotated[int, Parameter(converter=processes)]
