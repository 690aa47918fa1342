"""Moments as Kubernetes writes them: RFC 3339 in whole seconds (metav1.Time) or in microseconds (metav1.MicroTime)."""

from datetime import UTC, datetime
from functools import lru_cache


def rfc3339(at: float) -> str:
    return _of_second(int(at // 1))


@lru_cache(maxsize=4096)
def _of_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(at: float) -> str:
    second, micro = divmod(round(at % 1 * 1e6), 1_000_000)
    return f"{_of_second(int(at // 1) + second)[:-1]}.{micro:06d}Z"


def rfc3339_milli(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def time_of_day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def clock(seconds: float) -> str:
    """0:42, 12:05, 1:02:30."""
    whole = round(seconds)
    minutes, left = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"


def moment(text: str) -> float | None:
    """Seconds since the epoch; None: no time, or one without a zone."""
    return None if len(text) > 64 else _moment(text)


@lru_cache(maxsize=65536)
def _moment(text: str) -> float | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at.timestamp() if at.tzinfo is not None else None
