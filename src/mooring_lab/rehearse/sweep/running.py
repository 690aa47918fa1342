"""A sweep while it runs: how far it is, how long it will take, and what is known so far; on a page too."""

import time
from collections.abc import Callable
from typing import Final

import msgspec

from mooring.core.model.times import clock
from mooring_lab.rehearse.events.failures import Failure, longest_first
from mooring_lab.rehearse.snapshot.schema import Snapshot
from mooring_lab.rehearse.sweep.advice import advised
from mooring_lab.rehearse.sweep.forks import Failed, cores
from mooring_lab.rehearse.sweep.page import Shown, SweepPage
from mooring_lab.rehearse.sweep.remote import run_on_dask
from mooring_lab.rehearse.sweep.sweep import Found, Sweep, SweepPlan, collect, mix_share, run

_BAR: Final = 24
_PAGE_EVERY_S: Final = 1.0


class Running:
    """How far it is, how long it will take, and what is known so far; on a page too when there is one."""

    def __init__(
        self,
        taken: Snapshot,
        todo: list[Failure],
        plan: SweepPlan,
        line: Callable[[str], None],
        page: SweepPage | None,
        flags: str,
    ) -> None:
        self._taken = taken
        self.todo = todo
        self._plan = plan
        self._line = line
        self._page = page
        self._flags = flags
        self._mix = mix_share(taken, plan.config)
        self._began = time.monotonic()
        self._results: list[tuple[Failure, Found | Failed]] = []
        self._shown_at = 0.0
        line(f"Mooring comes up on the snapshot; then {len(todo)} events")
        self.show("Mooring comes up on the snapshot")

    def run(self, jobs: int, dask: str) -> bool:
        """False: stopped by Ctrl-C."""
        todo = longest_first(self.todo)
        if dask:
            return run_on_dask(self._taken, todo, self._plan, dask, self.told)
        return run(self._taken, todo, self._plan, jobs or cores(), self.told)

    def advised(self, jobs: int, rack_label: str) -> Sweep:
        """All of it, with what was tried for the weakest points; tried here, wherever the events were played."""
        found = self.show("Changes are tried for the weakest points")
        if found.weakest:
            self._line("changes are tried for the weakest points")
            found = advised(found, self._taken, self._plan, jobs or cores(), rack_label)
        if self._page is not None:
            self._page.show(Shown(found, "", self._flags))
        return found

    def told(self, failure: Failure, result: Found | Failed) -> None:
        if not self._results:
            self._began = time.monotonic()  # the first says when the others began; loading is not part of the pace
        self._results.append((failure, result))
        done, total = len(self._results), len(self.todo)
        weight = sum(one.weight for one, _ in self._results)
        to_do = sum(one.weight for one in self.todo) - weight
        left = (time.monotonic() - self._began) / max(1, weight - self._results[0][0].weight) * to_do
        full = _BAR * done // total
        words = f"{clock(left)} left"
        self._line(f"[{'#' * full}{'.' * (_BAR - full)}] {done} of {total}, {words}  {failure.event}")
        if time.monotonic() - self._shown_at > _PAGE_EVERY_S:
            self.show(words)

    def close(self) -> None:
        if self._page is not None:
            self._page.close()

    def show(self, words: str) -> Sweep:
        """What is known so far. `words`: how it goes on; "" when it is over."""
        found = msgspec.structs.replace(collect(self._taken, self.todo, self._results), mix=self._mix)
        if self._page is not None:
            self._shown_at = time.monotonic()
            self._page.show(Shown(found, words, self._flags))
        return found
