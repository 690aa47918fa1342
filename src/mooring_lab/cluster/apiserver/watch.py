"""Watches: every change once, in order, from any resourceVersion that is still remembered.

    changes → window (bounded, per kind) → watchers
                 │ older than the window: 410, list again

The window forgets the oldest changes; `compact` makes it forget all, `cut` ends the streams that are open: a watcher
that was cut gets nothing more, however slowly it reads. A watch ends by itself after its time-out, as a real one does;
bookmarks tell an idle watcher how far it has come. A watch may lag: every event comes that much later, in order.
"""

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Final

from mooring.clients.ports import Json
from mooring.clients.wire.kube import project
from mooring.core.model.events import Object
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline

BOOKMARK_EVERY_S: Final = 60.0
WINDOW: Final = 10_000


class WatchChange:
    """One event of a stream, with its projection made once for all watchers."""

    __slots__ = ("_projected", "at", "kind", "object", "old", "revision", "type")
    code = 0
    message = ""
    initial_end = False

    def __init__(
        self,
        kind: Kind,
        type_: str,
        revision: int,
        obj: Json | None = None,
        old: Json | None = None,
        *,
        at: float = -math.inf,
    ) -> None:
        self.kind = kind
        self.type = type_
        self.revision = revision
        self.object = obj
        self.old = old
        #: When it happened, on the monotonic clock.
        self.at = at
        self._projected: Object | None = None

    def projected(self) -> Object | None:
        if self._projected is None and self.object is not None:
            self._projected = project(self.kind, self.object)
        return self._projected


class WatchSignal(WatchChange):
    """An event without an object: BOOKMARK or ERROR."""

    __slots__ = ("code", "initial_end", "message")

    def __init__(
        self, kind: Kind, type_: str, revision: int, *, code: int = 0, message: str = "", initial_end: bool = False
    ) -> None:
        super().__init__(kind, type_, revision)
        self.code = code
        self.message = message
        self.initial_end = initial_end


class Watcher:
    """One open stream: what it has not yet been given, and how to wake it."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.pending: deque[WatchChange] = deque()
        self.closed = False
        self._waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, timeline: Timeline, until: float) -> None:
        """Until there is something new, or a moment has come."""
        if self.closed:
            return
        self._waiter = asyncio.get_running_loop().create_future()
        timer = timeline.at(until, self.wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None


class WatchWindow:
    def __init__(self, store: ObjectStore, window: int = WINDOW) -> None:
        self._store = store
        self._timeline = store.timeline
        self._size = window
        self._changes: dict[Kind, deque[WatchChange]] = {kind: deque() for kind in Kind}
        #: Changes up to here are forgotten.
        self._floor: dict[Kind, int] = dict.fromkeys(Kind, 0)
        self._watchers: dict[Kind, list[Watcher]] = {kind: [] for kind in Kind}
        self._on_compact: list[Callable[[], None]] = []
        store.listen(self._record)

    def compact(self, kind: Kind | None = None) -> None:
        """Forget every change so far; open streams go on."""
        for each in [kind] if kind else Kind:
            self._changes[each].clear()
            self._floor[each] = self._store.revision
        for fn in self._on_compact:
            fn()

    def on_compact(self, fn: Callable[[], None]) -> None:
        self._on_compact.append(fn)

    def cut(self, kind: Kind | None = None) -> int:
        """End the open streams without a word, as a lost connection does. Says how many there were."""
        count = 0
        for each in [kind] if kind else Kind:
            for watcher in self._watchers[each]:
                watcher.closed = True
                watcher.pending.clear()
                watcher.wake()
            count += len(self._watchers[each])
            self._watchers[each] = []
        return count

    async def stream(
        self,
        kind: Kind,
        *,
        resource_version: str,
        timeout_s: float,
        initial_events: bool = False,
        lag_s: Callable[[], float] = lambda: 0.0,
    ) -> AsyncGenerator[WatchChange, None]:
        """Ends after `timeout_s` or when cut. Too old a resourceVersion: one ERROR with 410, then the end. `lag_s`: how
        long after it happened each event is given."""
        watcher = Watcher(kind)
        start = self._start(watcher, resource_version, initial_events=initial_events)
        if start is not None:
            yield start
            return
        self._watchers[kind].append(watcher)
        ends = self._timeline.monotonic() + timeout_s
        bookmark_at = self._timeline.monotonic() + BOOKMARK_EVERY_S
        try:
            while not watcher.closed:
                now = self._timeline.monotonic()
                due = watcher.pending[0].at + lag_s() if watcher.pending else math.inf
                if due <= now:
                    yield watcher.pending.popleft()
                elif now >= ends:
                    return
                elif now >= bookmark_at and not watcher.pending:
                    bookmark_at = now + BOOKMARK_EVERY_S
                    yield WatchSignal(kind, "BOOKMARK", self._store.revision)
                else:
                    wake_at = due if watcher.pending else bookmark_at
                    await watcher.wait(self._timeline, min(ends, wake_at))
        finally:
            if watcher in self._watchers[kind]:
                self._watchers[kind].remove(watcher)

    def _start(self, watcher: Watcher, resource_version: str, *, initial_events: bool) -> WatchChange | None:
        """Fills in what the watcher must see first. A Change: the ERROR it gets instead."""
        kind = watcher.kind
        if initial_events or resource_version in {"", "0"}:
            for obj in self._store.list(kind):
                watcher.pending.append(WatchChange(kind, "ADDED", int(obj["metadata"]["resourceVersion"]), obj))
            if initial_events:
                watcher.pending.append(WatchSignal(kind, "BOOKMARK", self._store.revision, initial_end=True))
            return None
        if not resource_version.isdigit():
            return WatchSignal(kind, "ERROR", 0, code=400, message=f"invalid resource version {resource_version!r}")
        since = int(resource_version)
        if since < self._floor[kind]:
            words = f"too old resource version: {since} ({self._floor[kind]})"
            return WatchSignal(kind, "ERROR", 0, code=410, message=words)
        watcher.pending.extend(change for change in self._changes[kind] if change.revision > since)
        return None

    def _record(self, kind: Kind, event: str, old: Json | None, new: Json | None) -> None:
        obj = new if new is not None else old
        if obj is None:
            return
        revision, at = int(obj["metadata"]["resourceVersion"]), self._timeline.monotonic()
        change = WatchChange(kind, event, revision, obj, old if new is not None else None, at=at)
        changes = self._changes[kind]
        changes.append(change)
        if len(changes) > self._size:
            self._floor[kind] = changes.popleft().revision
        for watcher in self._watchers[kind]:
            watcher.pending.append(change)
            watcher.wake()
