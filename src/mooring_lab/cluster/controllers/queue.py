"""Keyed work queues on the timeline: how every controller of the sandbox wakes up.

A controller subscribes to objects and adds keys; after a small latency all dirty keys are synced once, in the order
of their names, whatever the order in which they became dirty. So a burst of changes costs one sync per key, and two
runs with one seed sync in the same order. A sync may ask to be called again (`return seconds`); one that the API
refuses (`PortError`) is tried again with the back-off of client-go (5 ms, doubling), and never loses its key.
"""

from collections.abc import Callable
from typing import Protocol

from mooring.clients.ports import PortError
from mooring_lab.cluster.clock import Timeline, Timer

#: Namespace and name; the namespace of cluster-scoped objects is "".
Key = tuple[str, str]


class Sync(Protocol):
    def __call__(self, key: Key, /) -> float | None: ...


class WorkQueue:
    def __init__(
        self,
        timeline: Timeline,
        sync: Sync,
        *,
        latency_s: float = 0.01,
        backoff_s: float = 0.005,
        max_backoff_s: float = 1000.0,
        forgets: bool = True,
        on_error: Callable[[Key, PortError], None] | None = None,
    ) -> None:
        self._timeline = timeline
        self._sync = sync
        self._latency_s = latency_s
        self._backoff_s = backoff_s
        self._max_backoff_s = max_backoff_s
        #: Whether a sync that returns ends the back-off of its key. False: the controller says so (`forget`).
        self._forgets = forgets
        self._on_error = on_error
        self._dirty: set[Key] = set()
        self._armed = False
        self._failures: dict[Key, int] = {}
        self._later: dict[Key, tuple[float, Timer]] = {}

    def add(self, key: Key) -> None:
        self._dirty.add(key)
        if not self._armed:
            self._armed = True
            self._timeline.after(self._latency_s, self._drain)

    def add_after(self, key: Key, delay_s: float) -> None:
        """The earliest of several requests for one key wins."""
        due = self._timeline.monotonic() + max(0.0, delay_s)
        waiting = self._later.get(key)
        if waiting is not None:
            if waiting[0] <= due:
                return
            waiting[1].cancel()
        self._later[key] = (due, self._timeline.at(due, lambda: self._due(key)))

    def retry(self, key: Key) -> None:
        """Again after the back-off of this key, which doubles until `forget`."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.add_after(key, min(self._backoff_s * 2.0**failures, self._max_backoff_s))

    def forget(self, key: Key) -> None:
        self._failures.pop(key, None)

    def _due(self, key: Key) -> None:
        self._later.pop(key, None)
        self.add(key)

    def _drain(self) -> None:
        self._armed = False
        keys, self._dirty = sorted(self._dirty), set()
        for key in keys:
            try:
                again_s = self._sync(key)
            except PortError as error:
                if self._on_error is not None:
                    self._on_error(key, error)
                self.retry(key)
                continue
            if self._forgets:
                self.forget(key)
            if again_s is not None:
                self.add_after(key, again_s)
