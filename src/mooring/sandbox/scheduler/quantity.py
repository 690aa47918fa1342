"""Kubernetes quantities: "500m", "1.5", "2Gi", "128M", "1e3"."""

from functools import lru_cache
from typing import Final

_SUFFIXES: Final = {
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
}


@lru_cache(maxsize=4096)
def milli(value: str | float) -> int:
    """In thousandths, rounded up as Kubernetes does."""
    text = str(value)
    if text.endswith("m"):
        return int(text[:-1])
    for suffix, factor in _SUFFIXES.items():
        if text.endswith(suffix):
            return -int(-float(text[: -len(suffix)]) * factor * 1000 // 1)
    return -int(-float(text) * 1000 // 1)


@lru_cache(maxsize=4096)
def whole(value: str | float) -> int:
    return -(-milli(value) // 1000)
