"""Kubernetes' small notations as numbers: quantities, int-or-percent, RFC 3339 times.

They repeat endlessly (a cluster knows a few dozen distinct requests), so each parser remembers what it has seen, in
a bounded cache. None of them raises: what cannot be read counts as absent, as one odd object must not stop a list.
"""

from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Final

_SUFFIXES: Final[dict[str, Decimal]] = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}

_MOST: Final = Decimal(2**63 - 1)

#: "-2147483647", or a percentage that no Kubernetes could count.
_LONGEST: Final = 11
#: Of a quantity or a time: a longer one is none, and is not remembered.
_LONGEST_TEXT: Final = 64
#: Quantities and limits that JSON may also carry as plain numbers.
Amount = str | int | float | None


def _scaled(text: str, scale: int) -> int:
    return 0 if len(text) > _LONGEST_TEXT else _known_scaled(text, scale)


@lru_cache(maxsize=8192)
def _known_scaled(text: str, scale: int) -> int:
    text = text.strip()
    # "12E" is an exa, "12E3" and "12e3" are exponents: only a trailing run of letters is a suffix.
    digits = text.rstrip("numkKMGTPEi")
    factor = _SUFFIXES.get(text[len(digits) :])
    if factor is None:
        return 0
    try:
        value = Decimal(digits) * factor * scale
        # Kubernetes caps there as well; it also keeps "1e99999" from becoming a number of that length.
        return int(min(value, _MOST).to_integral_value(ROUND_CEILING)) if value > 0 else 0
    except ArithmeticError:
        return 0


def readable(quantity: Amount) -> bool:
    """Is it a quantity at all? The others count what is none as 0."""
    text = str(quantity).strip()
    digits = text.rstrip("numkKMGTPEi")
    try:
        return text[len(digits) :] in _SUFFIXES and Decimal(digits).is_finite()
    except ArithmeticError:
        return False


def milli(quantity: Amount) -> int:
    """`250m` → 250, `1.5` → 1500; fractions of a milli round up, as in Kubernetes."""
    return 0 if quantity is None else _scaled(str(quantity), 1000)


def whole(quantity: Amount) -> int:
    """`1Gi` → 1073741824, `1500m` → 2 (rounded up)."""
    return 0 if quantity is None else _scaled(str(quantity), 1)


def share_of(value: Amount, total: int, *, round_up: bool) -> int | None:
    """An int-or-percent resolved against `total`. None when it is absent or unreadable."""
    if value is None:
        return None
    text = str(value).strip()
    if len(text) > _LONGEST:
        return None
    try:
        if not text.endswith("%"):
            return int(text)
        hundredths = int(text[:-1]) * total
    except ValueError:
        return None
    return -(-hundredths // 100) if round_up else hundredths // 100


def epoch(text: str | None) -> float | None:
    """An RFC 3339 time as seconds since the epoch; None when absent or unreadable."""
    return None if not text or len(text) > _LONGEST_TEXT else _known_epoch(text)


@lru_cache(maxsize=16384)
def _known_epoch(text: str) -> float | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
