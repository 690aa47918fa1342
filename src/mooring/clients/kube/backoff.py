"""Exponential back-off with jitter."""

from typing import Final

import msgspec

from mooring.clients.ports import Chance

FIRST_S: Final = 0.5
MOST_S: Final = 15.0


class Backoff(msgspec.Struct):
    """Doubles from `first_s` to `most_s`; each wait is drawn from [half, whole] of it. `reset()` after a success."""

    chance: Chance
    first_s: float = FIRST_S
    most_s: float = MOST_S
    failures: int = 0

    def reset(self) -> None:
        self.failures = 0

    def next_s(self, at_least_s: float = 0.0) -> float:
        """`at_least_s` is what the server asks for (Retry-After): never sooner, and up to half as much later."""
        whole = min(self.first_s * 2.0 ** min(self.failures, 16), self.most_s)
        self.failures += 1
        wait = self.chance.uniform(whole / 2, whole)
        if at_least_s <= 0:
            return wait
        return max(wait, at_least_s * self.chance.uniform(1.0, 1.5))
