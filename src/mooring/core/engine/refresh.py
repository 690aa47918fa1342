"""Requests to read PD or the machine registry, turned into one read at a time, never two at once.

However many ask for one, a PD is read again only a moment after it has answered: what was written meanwhile is then
in the answer, and a capability that always wants a fresher view cannot loop.
"""

from collections.abc import Iterable
from typing import Final

from mooring.core.model.cluster import Key
from mooring.core.model.decision import PdRefresh
from mooring.core.model.events import MachinesLost, MachinesSeen, PdLost, PdSeen, RegionsSeen
from mooring.core.model.instructions import Instruction, ReadMachines, ReadPd

#: Between an answer and the next read of the same PD.
MOMENT_S: Final = 0.5


class RefreshSchedule:
    def __init__(self) -> None:
        self._not_before: dict[Key, float] = {}
        self._due: dict[Key, float] = {}
        self._asked: set[Key] = set()
        self._machines_due: float | None = None
        self._machines_asked = False

    def request(self, refreshes: Iterable[PdRefresh]) -> None:
        for refresh in refreshes:
            at = max(refresh.at, self._not_before.get(refresh.cluster, refresh.at))
            due = self._due.get(refresh.cluster)
            if due is None or at < due:
                self._due[refresh.cluster] = at

    def request_machines(self, at: float) -> None:
        if self._machines_due is None or at < self._machines_due:
            self._machines_due = at

    def answered(self, event: PdSeen | PdLost | MachinesSeen | MachinesLost | RegionsSeen, now: float) -> None:
        match event:
            case PdSeen(cluster=cluster) | PdLost(cluster=cluster):
                self._answered(cluster, now)
            case MachinesSeen() | MachinesLost():
                self._machines_asked = False
            case RegionsSeen():
                pass  # asked for by instruction, not by schedule

    def _answered(self, cluster: Key, now: float) -> None:
        self._asked.discard(cluster)
        not_before = self._not_before[cluster] = now + MOMENT_S
        if cluster in self._due:
            self._due[cluster] = max(self._due[cluster], not_before)

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
