"""The nearest of the names that there are, for objects, features, events and settings alike; and how many of them."""

import difflib
from collections.abc import Iterable
from heapq import nlargest
from itertools import pairwise
from typing import Final

#: Comparing takes 50 µs a name, and there may be ten thousand.
_COMPARED: Final = 500


def did_you_mean(typed: str, names: Iterable[str], prefix: str = "") -> str:
    """A clause to put behind a message; "" when nothing is near. `prefix`: what all of them have before them."""
    lower = {name.lower(): name for name in names}
    found = near(typed.lower(), lower, 1)
    return f"; did you mean {prefix}{lower[found[0]]}?" if found else ""


def near(typed: str, names: Iterable[str], most: int) -> list[str]:
    """The most similar, of the few hundred with most pairs of letters in common: a question does not stop the loop."""
    pairs = set(pairwise(typed))
    alike = nlargest(_COMPARED, names, key=lambda name: (len(pairs.intersection(pairwise(name))), name))
    return difflib.get_close_matches(typed, alike, most, 0.6)


def counted(count: int, noun: str) -> str:
    """As people read it: 1 pod, 3 pods, never 1 pod(s)."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
