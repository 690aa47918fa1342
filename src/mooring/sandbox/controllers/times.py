"""Kubernetes' timestamps: RFC 3339 in whole seconds, as the API server stores them."""

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=4096)
def _stamp(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def stamp(now: float) -> str:
    return _stamp(int(now))


@lru_cache(maxsize=65536)
def epoch(text: str) -> float:
    """Seconds since the epoch; 0 for text that is no time."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
