"""`mooring top`: the page's rows, live in the terminal."""

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from mooring.cli.output import Format, Output, plain_values, print_data
from mooring.cli.server import HERE, Reach, ask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

app = App(name="top")


@app.default
def top(
    *,
    every: Annotated[float, Parameter(help="Seconds between two looks.")] = 1.0,
    namespace: Annotated[
        str, Parameter(name=["--namespace", "-n"], help="Only operators and stores of this namespace. Default: all.")
    ] = "",
    once: Annotated[bool, Parameter(help="One look, then stop; the default without a terminal.")] = False,
    reach: Reach = HERE,
    output: Output = Format.TABLE,
) -> None:
    """Show what the page shows, in the terminal, until q or Ctrl-C.

    Arrows or j and k choose a row, Enter asks why, / filters, ? lists the keys.

    Without a terminal, or with --once, it prints one look and ends; with -o json the frame itself.

    Example: mooring top --every 2

    Example: mooring top --once -o json
    """
    from mooring.core.engine.why.words import render
    from mooring.process.terminal.screen import live, narrowed

    def look() -> "Mapping[str, Any]":
        frame: Mapping[str, Any] = plain_values(narrowed(ask(reach, "/api/v1/frame"), namespace))
        return frame

    frame = look()
    console = None if output.data else _console()
    if once or console is None or not console.is_terminal or console.is_dumb_terminal:
        show(frame, output)
        return

    def why(subject: str) -> list[str]:
        answer = ask(reach, f"/api/v1/why/{subject}", missing=f"{subject} not found")
        return render(plain_values(answer), width=console.width)

    try:
        live(console, look, why, frame, max(0.2, every))
    except KeyboardInterrupt:
        return


def show(frame: "Mapping[str, Any]", output: Format) -> None:
    """One look."""
    from mooring.process.terminal.screen import ENDLESS, screen

    if output.data:
        print_data(output, frame)
        return
    console = _console()
    console.print(screen(plain_values(frame), height=ENDLESS, width=console.width))


def _console() -> "Console":
    from rich.console import Console

    from mooring.process.terminal.screen import WIDE

    return Console(width=None if sys.stdout.isatty() or os.environ.get("COLUMNS") else WIDE)
