"""Who was turned away because too many of a source wait already, and whose turn it is when there is room.

One key may want dozens of places and another a single one (a node with fifty pods, a control plane to be replaced).
Asked in the same order every time, the first would take each place that falls free, for hours. So the one that got
something longest ago comes first.
"""

from typing import Final

from mooring.core.engine.worklist import Slot

#: Slots remembered per source; beyond that the order begins again.
_MOST: Final = 4096


class CapBacklog:
    def __init__(self) -> None:
        #: Source → slots turned away, in order.
        self._away: dict[str, dict[Slot, None]] = {}
        #: Source → slots that were ever turned away → the number of the operator that each last got in.
        self._served: dict[str, dict[Slot, int]] = {}

    def defer(self, source: str, slot: Slot) -> None:
        self._away.setdefault(source, {})[slot] = None
        served = self._served.setdefault(source, {})
        if len(served) >= _MOST:
            served.clear()
        served.setdefault(slot, 0)

    def admitted(self, source: str, slot: Slot, number: int) -> None:
        served = self._served.get(source)
        if served is not None and slot in served:
            served[slot] = number

    def ready(self, source: str) -> list[Slot]:
        """There is room: everybody who stands outside, in the order in which they shall try again."""
        away = self._away.pop(source, None)
        if away is None:
            return []
        served = self._served[source]
        return sorted(away, key=lambda slot: served.get(slot, 0))
