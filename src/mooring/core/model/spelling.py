"""The nearest of the names that there are: for objects, features, events and settings alike."""

import difflib
from collections.abc import Iterable


def did_you_mean(typed: str, names: Iterable[str]) -> str:
    """A clause to put behind a message; "" when nothing is near."""
    lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(typed.lower(), lower, 1, 0.6)
    return f"; did you mean {lower[near[0]]}?" if near else ""
