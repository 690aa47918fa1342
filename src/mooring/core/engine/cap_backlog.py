"""Slots deferred because their source's cap of waiting operators was reached, and the order in which they retry.

One key may propose dozens of operators and another a single one (a node with fifty pods, a control plane to be
replaced). Retried in a fixed order, the first key would take every free place for hours. So the slot that was last
admitted longest ago goes first.
"""

from typing import Final

from mooring.core.engine.worklist import Slot

#: Slots remembered per source; beyond that the order begins again.
_MOST: Final = 4096


class CapBacklog:
    def __init__(self) -> None:
        #: Source → deferred slots, in order.
        self._away: dict[str, dict[Slot, None]] = {}
        #: Source → slots that were ever deferred → the number of the last operator that each got admitted.
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
        """There is room again: all deferred slots of the source, in the order in which they retry."""
        away = self._away.pop(source, None)
        if away is None:
            return []
        served = self._served[source]
        return sorted(away, key=lambda slot: served.get(slot, 0))
