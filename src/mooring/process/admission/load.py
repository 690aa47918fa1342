"""Whether so many pods are being admitted that deciding should be delayed.

Decisions can wait a few seconds: what changes meanwhile is evaluated once. The creation of a pod cannot: the API server
waits for the answer.
"""

from collections.abc import Callable
from typing import Final

#: So many requests within so short a time count as high load: 300 a second.
MANY: Final = 30
WINDOW_S: Final = 0.1


class AdmissionLoad:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since = float("-inf")
        self._count = 0
        #: Of the window before this one.
        self._before = 0

    def asked(self) -> None:
        at = self._now()
        if at - self._since >= WINDOW_S:
            self._before = self._count if at - self._since < 2 * WINDOW_S else 0
            self._since, self._count = at, 0
        self._count += 1

    def is_on(self) -> bool:
        return max(self._count, self._before) >= MANY and self._now() - self._since < 2 * WINDOW_S
