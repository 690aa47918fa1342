"""Text in so many columns: wrapped at words, what is to be typed whole."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

#: What the last column of a table needs at least, to be wrapped there.
LAST_COLUMN: Final = 24
#: A command that a sentence ends with; three spaces end it too.
_TYPED: Final = re.compile(r"(?:\$ |(?<=: )(?=[^ ]))(?:\S*/)?(?:kubectl|mooring|sabactl|helm) [a-z-].*?(?= {3}|$)")
#: What a line is indented by: blanks, a sign, or a word with two blanks or more behind it.
_LABEL: Final = re.compile(r" *(?:[-√×!–] |\S+ {2,})?")
#: Of a command: what is in quotes is never taken apart.
_WORD: Final = re.compile(r"""(?:'[^']*'|"[^"]*"|[^\s'"])+""")
COMMANDS: Final = ("kubectl ", "mooring ", "helm ", "export ")


def plain(text: str) -> str:
    """What others wrote (names, annotations, answers of servers), without control sequences for a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c == "\n" else "·" for c in text)


def folded(line: str, room: int, indent: str = "") -> list[str]:
    """One line in that many columns: wrapped at words, a command to type (behind `$` or a colon) whole and alone."""
    if len(line) <= max(20, room):
        return [line]
    found = _TYPED.search(line)
    if found is None:
        return textwrap.wrap(
            line, max(20, room), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
    before, after = line[: found.start()].rstrip(), line[found.end() :].strip()
    parts = folded(before, room, indent) if before else []
    return [*parts, f"{indent or '  '}{found[0]}", *(folded(after, room, indent) if after else ())]


def continued(command: str, room: int) -> list[str]:
    """A command that is longer than a line, as a shell reads it: broken between two words, never inside one."""
    first, *words = _WORD.findall(command)
    lines = [" " * (len(command) - len(command.lstrip())) + first]
    for word in words:
        if len(lines[-1]) + 1 + len(word) + 2 > room:
            lines[-1] += " \\"
            lines.append(f"    {word}")
        else:
            lines[-1] += f" {word}"
    return lines


def under_its_label(line: str, room: int) -> list[str]:
    """What is laid out already goes on under its text, behind blanks, a sign or a label; a command stays whole."""
    label = len(line) - len(_LABEL.sub("", line, count=1))
    return [line] if line[label:].startswith(COMMANDS) else folded(line, room, " " * min(label, LAST_COLUMN))


def block(columns: Sequence[str], row: Sequence[str], room: int) -> Iterator[str]:
    """A row of a table that has no room: label and cell, line by line."""
    label = max(map(len, columns)) + 2
    for column, cell in zip(columns, row, strict=True):
        if cell:
            parts = textwrap.wrap(cell, max(20, room - label), break_long_words=False, break_on_hyphens=False)
            yield f"{column.lower():<{label}}{parts[0]}"
            yield from (" " * label + part for part in parts[1:])
