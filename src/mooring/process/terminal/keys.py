"""The keys of `mooring top`: what is chosen, what is filtered, what is open. Values only; `screen` draws."""

import contextlib
import os
import select
import sys
import termios
import tty
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

UP, DOWN, ENTER, ESCAPE, BACK = "up", "down", "enter", "escape", "back"
_NAMED: Final = {
    b"\x1b[A": UP,
    b"\x1bOA": UP,
    b"\x1b[B": DOWN,
    b"\x1bOB": DOWN,
    b"\r": ENTER,
    b"\n": ENTER,
    b"\x1b": ESCAPE,
    b"\x7f": BACK,
    b"\x08": BACK,
}
LINE: Final = "q quit  ↑↓ j k choose  Enter why  / filter  ? keys"
HELP: Final = (
    "q, Ctrl-C      quit",
    "↑ ↓, k j       choose a row",
    "Enter          why: the same text as `mooring why`",
    "/              filter rows by words; Enter keeps, Esc clears",
    "Esc            back",
    "?              these keys",
)


@dataclass
class View:
    """Where the person is."""

    chosen: int = 0
    words: str = ""
    typing: bool = False
    #: Lines that cover the tables: an answer of `why`, or the keys.
    over: list[str] = field(default_factory=list)
    #: The first of these lines that shows.
    scrolled: int = 0

    def press(self, key: str, subjects: Sequence[str]) -> str:
        """Take one key in; answers with `quit`, with the subject that `why` is to be asked about, or with ""."""
        if self.typing:
            self._type(key)
            return ""
        if self.over:
            return self._over(key)
        match key:
            case "q":
                return "quit"
            case "j" | "down":
                self.chosen = min(self.chosen + 1, max(0, len(subjects) - 1))
            case "k" | "up":
                self.chosen = max(0, self.chosen - 1)
            case "enter" if subjects:
                return subjects[min(self.chosen, len(subjects) - 1)]
            case "/":
                self.typing = True
            case "escape":
                self.words, self.chosen = "", 0
            case "?":
                self.over, self.scrolled = list(HELP), 0
            case _:
                pass
        return ""

    def _over(self, key: str) -> str:
        match key:
            case "j" | "down":
                self.scrolled = min(self.scrolled + 1, max(0, len(self.over) - 1))
            case "k" | "up":
                self.scrolled = max(0, self.scrolled - 1)
            case "q" | "escape" | "enter" | "?":
                self.over, self.scrolled = [], 0
            case _:
                pass
        return ""

    def _type(self, key: str) -> None:
        if key in {ENTER, ESCAPE}:
            self.typing = False
            self.words = "" if key == ESCAPE else self.words
        elif key == BACK:
            self.words = self.words[:-1]
        elif len(key) == 1 and key.isprintable():
            self.words += key
        self.chosen = 0

    def line(self) -> str:
        """The last line of the screen."""
        if self.typing:
            return f"/{self.words}▏  Enter keeps, Esc clears"
        kept = f"filter: {self.words} (Esc clears)  " if self.words else ""
        return f"{kept}{'Esc back  ↑↓ scroll  q back' if self.over else LINE}"


def matches(row: Mapping[str, Any], words: str) -> bool:
    """Every word stands somewhere in the row."""
    text = " ".join(str(value) for value in row.values()).lower()
    return all(word in text for word in words.lower().split())


@contextlib.contextmanager
def keyboard() -> Iterator[bool]:
    """Keys come one by one, unechoed, until this ends. False: stdin is no terminal."""
    if not sys.stdin.isatty():
        yield False
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        yield True
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def keys_within(seconds: float) -> list[str]:
    """The keys pressed within this time; comes back with the first."""
    fd = sys.stdin.fileno()
    if not select.select([fd], [], [], max(0.0, seconds))[0]:
        return []
    return parsed(os.read(fd, 256))


def parsed(raw: bytes) -> list[str]:
    found = []
    while raw:
        name = next((n for n in sorted(_NAMED, key=len, reverse=True) if raw.startswith(n)), None)
        if name is not None:
            found.append(_NAMED[name])
            raw = raw[len(name) :]
        else:
            text = raw.decode(errors="ignore")
            if not text:
                break
            found.append(text[0])
            raw = text[1:].encode()
    return found
