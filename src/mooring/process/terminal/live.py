"""A screen that follows a running Mooring, with its keys, until the user leaves it."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.live import Live

from mooring.core.model.exits import UserError
from mooring.process.terminal.keys import View, keyboard, keys_within
from mooring.process.terminal.screen import screen, subjects


def live(
    console: Console,
    look: Callable[[], Mapping[str, Any]],
    why: Callable[[str], list[str]],
    frame: Mapping[str, Any],
    every: float,
) -> None:
    """`look` asks for the next frame, `why` about a row of it."""
    heard, trouble, view = time.monotonic(), "", View()
    with keyboard() as keys, Live(console=console, screen=True, auto_refresh=False) as shown:
        due = heard + every
        while True:
            age, size = time.monotonic() - heard, console.size
            picture = screen(frame, height=size.height, width=size.width, age_s=age, trouble=trouble, view=view)
            shown.update(picture, refresh=True)
            if keys:
                for key in keys_within(due - time.monotonic()):
                    asked = view.press(key, subjects(frame, view.words))
                    if asked == "quit":
                        return
                    if asked:
                        view.over, view.scrolled = _told(why, asked), 0
            else:
                time.sleep(every)
            if time.monotonic() < due:
                continue
            due = time.monotonic() + every
            try:
                frame, heard, trouble = look(), time.monotonic(), ""
            except UserError as error:
                # What was seen stays on the screen and looks its age.
                trouble = str(error).partition(";")[0]


def _told(why: Callable[[str], list[str]], subject: str) -> list[str]:
    try:
        return why(subject)
    except UserError as error:
        return [str(error)]
