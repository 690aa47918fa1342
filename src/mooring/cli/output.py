"""How commands print: data on stdout as a table for people or as JSON for scripts, everything else on stderr."""

import os
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"


#: The `-o / --output` of every reading command.
Output = Annotated[Format, Parameter(name=["--output", "-o"], help="How to print: table for people, json for scripts.")]


def print_json(value: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Plain aligned columns. On a terminal folded at its width; into a pipe one line per row, however long."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        lines = [tuple(columns), *(tuple(row) for row in rows)]
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
        table.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(table)


def note(message: str) -> None:
    """A remark for the person at the terminal: never on stdout."""
    print(message, file=sys.stderr)
