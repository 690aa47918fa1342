"""Back-off for repeated proposals: an operator that is proposed again and again for one subject, without any write in
between, is slowed down and reported.

The first repetitions are free: a capability may change its mind while the world settles. From the fourth within a
minute on, the subject backs off: a minute, doubling to an hour. A write on its behalf, or an hour without
repetitions, resets it.
"""

from typing import Final

import msgspec

from mooring.core.model.operator import Operator

FREE: Final = 3
WINDOW_S: Final = 60.0
FIRST_S: Final = 60.0
LONGEST_S: Final = 3600.0
_MOST: Final = 4096

#: What is repeated: source, kind, subject.
Repeated = tuple[str, str, str]


class _Count(msgspec.Struct, frozen=True, gc=False):
    times: int
    since: float
    wait_s: float = 0.0
    until: float = 0.0


class Repetitions:
    def __init__(self) -> None:
        self._idle: dict[Repeated, _Count] = {}
        #: How often a subject had to back off, since this replica leads.
        self.backed_off = 0

    def ended(self, operator: Operator, now: float, *, acted: bool) -> None:
        """An operator is over. `acted`: something was written in its name."""
        what = (operator.source, operator.kind, operator.subject)
        if acted:
            self._idle.pop(what, None)
            return
        count = self._idle.pop(what, None)
        if count is None or now - max(count.since, count.until) > (LONGEST_S if count.wait_s else WINDOW_S):
            count = _Count(0, now)
        count = msgspec.structs.replace(count, times=count.times + 1)
        if count.times > FREE:
            wait_s = min(LONGEST_S, 2 * count.wait_s) if count.wait_s else FIRST_S
            count = msgspec.structs.replace(count, wait_s=wait_s, until=now + wait_s)
            self.backed_off += 1
        self._idle[what] = count
        if len(self._idle) > _MOST:
            del self._idle[next(iter(self._idle))]

    def back_off_until(self, operator: Operator, now: float) -> float | None:
        """When this may be proposed again; None: now."""
        count = self._idle.get((operator.source, operator.kind, operator.subject))
        return count.until if count is not None and count.until > now else None

    def times(self, operator: Operator) -> int:
        count = self._idle.get((operator.source, operator.kind, operator.subject))
        return count.times if count is not None else 0
