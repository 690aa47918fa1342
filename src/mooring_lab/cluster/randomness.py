"""Random numbers from a seed: every stream of ids, names and jitter repeats when the seed does.

Each user takes a stream of its own by name (`fork("scheduler")`), so that one more draw in one place does not shift
the others.
"""

import random
from typing import Final

#: The alphabet of generated names: no vowels and no look-alikes, as in Kubernetes.
NAME_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"


class SeededRandomness:
    """`ports.Randomness`, and what the sandbox needs besides."""

    def __init__(self, seed: int | str = 0) -> None:
        self.seed = str(seed)
        # Seeding by string goes through SHA-512, not hash(): the same under every PYTHONHASHSEED.
        self.random = random.Random(self.seed)  # noqa: S311

    def fork(self, name: str) -> "SeededRandomness":
        return SeededRandomness(f"{self.seed}/{name}")

    def token(self, length: int = 8) -> str:
        pick = self.random.random
        return "".join([NAME_ALPHABET[int(pick() * 27)] for _ in range(length)])

    def uniform(self, low: float, high: float) -> float:
        return self.random.uniform(low, high)

    def happens(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability

    def uuid(self) -> str:
        """A version-4 UUID."""
        bits = self.random.getrandbits(128)
        text = f"{bits:032x}"
        variant = "89ab"[(bits >> 60) & 3]
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"
