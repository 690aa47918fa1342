"""How commands print: data on stdout as a table for people or as JSON for scripts, everything else on stderr."""

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
    """Plain aligned columns; colour and width are rich's business, and only on a terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(soft_wrap=not sys.stdout.isatty()).print(table)


def note(message: str) -> None:
    """A remark for the person at the terminal: never on stdout."""
    print(message, file=sys.stderr)
