"""Times as sabakan writes them: RFC 3339 in UTC, fractions without trailing zeros."""

from datetime import UTC, datetime


def stamp(at: float) -> str:
    text = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return text.rstrip("0").rstrip(".") + "Z"


def parse(text: str) -> float:
    """Raises ValueError: a date alone is not enough."""
    if "T" not in text:
        raise ValueError(text)
    return datetime.fromisoformat(text).astimezone(UTC).timestamp()
