"""How far an eviction has come: leaders gone, their pace, and how long the rest will take.

The pace is that of the whole way, which PD's limits keep even. It says nothing about leaders that do not move at all,
so once none has left for a while no estimate is given, and how long that has been is a figure of its own.
"""

from collections.abc import Mapping, MutableMapping
from typing import Final

import msgspec

#: So long without one leader less and the pace so far promises nothing.
STILL_S: Final = 60.0
#: So long on a node that has to be emptied, and a person must look.
KEPT_S: Final = 600.0


class Pace(msgspec.Struct, frozen=True, gc=False):
    left: int
    gone: int
    rate_per_s: float | None = None
    estimate_s: float | None = None
    #: Since when no leader has left, where that is long; else None.
    still_s: float | None = None

    @property
    def words(self) -> str:
        text = f"{self.gone} of {self.gone + self.left} leaders gone"
        if self.rate_per_s is None or self.estimate_s is None:
            return text
        return f"{text}, {self.rate_per_s:.1f}/s, about {span(self.estimate_s)} more"

    @property
    def stuck(self) -> str:
        """None has left for long: said as what it is; "" while they go."""
        if self.still_s is None:
            return ""
        return (
            f"{self.left} leaders left, and none has gone for {span(self.still_s)}: "
            "their regions may have no other healthy replica"
        )


def note_leaders(notes: MutableMapping[str, float], leaders: int, seen_at: float) -> None:
    """Remember one look at the store. More leaders than ever: it begins again."""
    if "first_leaders" not in notes or leaders > notes["first_leaders"]:
        notes["first_leaders"], notes["first_at"] = float(leaders), seen_at
        notes["fewest"], notes["fewest_at"] = float(leaders), seen_at
    if leaders < notes["fewest"]:
        notes["fewest"], notes["fewest_at"] = float(leaders), seen_at
    notes["leaders"], notes["last_at"] = float(leaders), seen_at


def pace_of(notes: Mapping[str, float]) -> Pace | None:
    """None: no look has shown a leader yet."""
    if "first_leaders" not in notes:
        return None
    left, gone = int(notes["leaders"]), int(notes["first_leaders"] - notes["leaders"])
    elapsed, still = notes["last_at"] - notes["first_at"], notes["last_at"] - notes["fewest_at"]
    if still >= STILL_S:
        return Pace(left, gone, still_s=still)
    if gone <= 0 or elapsed <= 0:
        return Pace(left, gone)
    rate = gone / elapsed
    return Pace(left, gone, rate, left / rate)


def span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"
