"""Wishes for a look at PD or at the machine registry, turned into one look at a time, never two at once.

However many wish for one, a PD is looked at again only a moment after it has answered: what was written meanwhile is
then surely in the picture, and nobody can turn in a circle.
"""

from collections.abc import Iterable
from typing import Final

from mooring.core.model.cluster import Key
from mooring.core.model.decision import PdRefresh
from mooring.core.model.instructions import Instruction, ReadMachines, ReadPd

#: Between an answer and the next look at the same PD.
MOMENT_S: Final = 0.5


class RefreshSchedule:
    def __init__(self) -> None:
        self._not_before: dict[Key, float] = {}
        self._due: dict[Key, float] = {}
        self._asked: set[Key] = set()
        self._machines_due: float | None = None
        self._machines_asked = False

    def wish(self, refreshes: Iterable[PdRefresh]) -> None:
        for refresh in refreshes:
            at = max(refresh.at, self._not_before.get(refresh.cluster, refresh.at))
            due = self._due.get(refresh.cluster)
            if due is None or at < due:
                self._due[refresh.cluster] = at

    def wish_machines(self, at: float) -> None:
        if self._machines_due is None or at < self._machines_due:
            self._machines_due = at

    def answered(self, cluster: Key, now: float) -> None:
        self._asked.discard(cluster)
        not_before = self._not_before[cluster] = now + MOMENT_S
        if cluster in self._due:
            self._due[cluster] = max(self._due[cluster], not_before)

    def answered_machines(self) -> None:
        self._machines_asked = False

    def ask(self, now: float) -> Iterable[Instruction]:
        for cluster in [c for c, at in self._due.items() if at <= now and c not in self._asked]:
            del self._due[cluster]
            self._asked.add(cluster)
            yield ReadPd(cluster=cluster, cause=f"pd/{cluster}", why="looks at PD")
        if self._machines_due is not None and self._machines_due <= now and not self._machines_asked:
            self._machines_due = None
            self._machines_asked = True
            yield ReadMachines(cause="machines", why="asks the machine registry")

    def next_due(self) -> float | None:
        times = [at for cluster, at in self._due.items() if cluster not in self._asked]
        if self._machines_due is not None and not self._machines_asked:
            times.append(self._machines_due)
        return min(times, default=None)
