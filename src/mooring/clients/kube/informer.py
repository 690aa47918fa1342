"""An informer: one kind, kept in step with the API server. It lists, watches, and lists again when the watch is lost.

    ┌──────────── sync ────────────┐        ┌───────── follow ─────────┐
    │ WatchList, else paged list   │ Listed │ watch from the last      │ Seen, Gone
    │ (all of it, or nothing)      ├───────▶│ resourceVersion          ├──────────▶ sink
    └──────────────▲───────────────┘        └────┬─────────────────────┘
                   └──── 410, or three broken ───┘ cut, ended, timed out: watch again from there
                         streams in a row

Promises
- `Listed` is the whole truth at one resourceVersion; what is missing in it was deleted unobserved. So no
  delete is ever lost: not in an outage, not by a compacted etcd.
- Nothing reaches the sink from a sync that did not end.
- 410 means the same as HTTP status and inside the stream. Bookmarks move the resourceVersion on. ResourceVersions are
  passed back as they came, never compared.
- Waits are jittered and bounded; 429 has a counter of its own and honours Retry-After.
- A kind that the server does not know (a CRD not installed) is an empty one, looked for again every half minute. A
  built-in kind is never taken for gone: a 404 for pods comes from a proxy that leads elsewhere.
- Time and randomness come in as arguments, so the same code runs on virtual time.

It keeps no objects: the sink (the world) compares.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, nullcontext
from typing import Final

import msgspec
import structlog

from mooring.clients.kube.stream import BrokenStreamError
from mooring.clients.ports import (
    Clock,
    ExpiredError,
    KubeApi,
    NotFoundError,
    PortError,
    Randomness,
    RefusedError,
    ThrottledError,
    UnansweredError,
    WatchEvent,
)
from mooring.core.model.cluster import Key
from mooring.core.model.events import Gone, KubeEvent, Listed, Object, Seen
from mooring.core.model.kinds import RESOURCES, Kind

FIRST_S: Final = 0.5
MOST_S: Final = 15.0


class Backoff(msgspec.Struct):
    """Doubles from `first_s` to `most_s`; each wait is drawn from [half, whole] of it. `reset()` after a success."""

    randomness: Randomness
    first_s: float = FIRST_S
    most_s: float = MOST_S
    failures: int = 0

    def reset(self) -> None:
        self.failures = 0

    def next_s(self, at_least_s: float = 0.0) -> float:
        """`at_least_s` is what the server asks for (Retry-After): never sooner, and up to half as much later."""
        whole = min(self.first_s * 2.0 ** min(self.failures, 16), self.most_s)
        self.failures += 1
        wait = self.randomness.uniform(whole / 2, whole)
        if at_least_s <= 0:
            return wait
        return max(wait, at_least_s * self.randomness.uniform(1.0, 1.5))


PAGE_SIZE: Final = 500
WATCH_TIMEOUT_S: Final = (290.0, 590.0)
#: Streams in a row that broke without a single event: perhaps it is what we ask for. List again.
STREAMS_IN_VAIN: Final = 3
#: A stream that lived this long and ended is no failure; a shorter one is, or it would be a busy loop.
SHORT_STREAM_S: Final = 2.0
#: A known kind answers 404 this often before it counts as gone.
NOT_FOUND_BELIEVED: Final = 3
NOT_FOUND_RETRY_S: Final = 30.0

_log = structlog.get_logger("mooring.clients.kube")


class Stats(msgspec.Struct):
    """What happened so far, for metrics, `doctor` and tests."""

    syncs: int = 0
    streams: int = 0
    events: int = 0
    failures: int = 0
    throttled: int = 0
    #: Clock.monotonic of the last sign of life: an event, a bookmark, a finished sync.
    heard_at: float = 0.0
    #: The last error; "" after the next success.
    last_error: str = ""


class Retries:
    """What went wrong since the last success, and how long to wait for the next attempt."""

    def __init__(self, randomness: Randomness) -> None:
        self.backoff = Backoff(randomness)
        self.relists = Backoff(randomness)
        self.throttle = Backoff(randomness, first_s=1.0, most_s=60.0)
        #: Streams in a row that broke.
        self.broken = 0
        #: Answers in a row that the kind is not known.
        self.not_found = 0
        #: The sink has been told that there is nothing of this kind.
        self.absent = False

    def went_well(self) -> None:
        self.backoff.reset()
        self.throttle.reset()
        self.broken = self.not_found = 0
        self.absent = False


class Informer:
    """Feeds `sink` with what is true of `kind`, until cancelled. `run()` raises nothing of the API's."""

    def __init__(
        self,
        api: KubeApi,
        kind: Kind,
        sink: Callable[[KubeEvent], None],
        clock: Clock,
        randomness: Randomness,
        *,
        around_sync: Callable[[], AbstractContextManager[object]] = nullcontext,
        known: Callable[[Kind, Object], Object] = lambda _, obj: obj,
    ) -> None:
        """`known` may hand back the row that is kept already, so that a relist does not hold everything twice."""
        self.kind = kind
        self.stats = Stats()
        #: True from the first `Listed` on: the world may be old (see `stats.heard_at`), but it is whole.
        self.synced = False
        group, version = RESOURCES[kind].group, RESOURCES[kind].version
        self._built_in = ("." not in group or group.endswith(".k8s.io")) and "alpha" not in version
        self._api = api
        self._sink = sink
        self._clock = clock
        self._randomness = randomness
        self._around_sync = around_sync
        self._known = known
        self._resource_version = ""
        #: False for good once the server says that it does not know the request.
        self._knows_watch_list = True
        self._pages_next = False
        self._retries = Retries(randomness)

    @property
    def absent(self) -> bool:
        """The server does not know the kind."""
        return self._retries.absent

    async def run(self) -> None:
        while True:
            try:
                if self._resource_version:
                    await self._follow()
                elif self._knows_watch_list and not self._pages_next:
                    await self._sync_by_watch()
                else:
                    await self._sync_by_pages()
            except PortError as error:
                await self._clock.sleep(self._wait_after(error))

    # ── Sync ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _sync_by_watch(self) -> None:
        """The initial events of a watch, up to the bookmark that ends them; then the same stream is followed."""
        found: dict[Key, Object] = {}
        with ExitStack() as syncing:
            syncing.enter_context(self._around_sync())
            stream = self._api.watch(self.kind, timeout_s=self._timeout_s(), initial_events=True)
            try:
                async with _closing(stream):
                    async for event in stream:
                        _raise_if_error(event)
                        if self._resource_version:
                            self._pass_on(event)
                        elif event.initial_end:
                            self._listed(tuple(found.values()), event.resource_version)
                            found.clear()
                            syncing.close()
                        elif event.object is not None:
                            _collect(found, event.type, self._known(self.kind, event.object))
            except PortError as error:
                if self._resource_version:
                    raise
                if not self._refuses_watch_list(error):
                    # A proxy in between may break one way and not the other: the next attempt takes the other.
                    self._pages_next = not isinstance(error, (ThrottledError, NotFoundError))
                    self._missing(error)
                    raise
            else:
                if not self._resource_version:
                    self._pages_next = True
                    raise BrokenStreamError(f"watch {self.kind}: the stream ended before its initial events did")

    def _refuses_watch_list(self, error: PortError) -> bool:
        """400, 422: a server that does not know the parameter, or has it off (before 1.34). Pages, for good."""
        if isinstance(error, RefusedError) and error.code in {400, 405, 422, 501}:
            self._knows_watch_list = False
            _log.info("informer.no-watch-list", kind=self.kind.value, detail=str(error))
        return not self._knows_watch_list

    async def _sync_by_pages(self) -> None:
        with self._around_sync():
            try:
                objects, version = await self._list_by_pages()
            except PortError as error:
                self._pages_next = isinstance(error, (ThrottledError, NotFoundError))
                self._missing(error)
                raise
            self._listed(objects, version)

    def _listed(self, objects: tuple[Object, ...], version: str) -> None:
        self._take(objects)
        self._resource_version, self._pages_next = version, False
        self._went_well()

    def _missing(self, error: PortError) -> None:
        """The server does not know the kind: it is empty, at once at first, later only after a few looks."""
        if not isinstance(error, NotFoundError) or self._built_in:
            return
        self._retries.not_found += 1
        if not self._retries.absent and (not self.synced or self._retries.not_found >= NOT_FOUND_BELIEVED):
            self._retries.absent = True
            self._take(())

    def _take(self, objects: tuple[Object, ...]) -> None:
        self._sink(Listed(self.kind, objects))
        self.synced = True
        self.stats.syncs += 1

    async def _list_by_pages(self) -> tuple[tuple[Object, ...], str]:
        """Page by page, at one resourceVersion. A token that expires midway: again, with larger pages."""
        for limit in (PAGE_SIZE, PAGE_SIZE * 10, 0):
            objects: list[Object] = []
            token = ""
            try:
                while True:
                    page = await self._api.list(self.kind, limit=limit, continue_token=token)
                    objects.extend(self._known(self.kind, item) for item in page.items)
                    token = page.continue_token
                    if not token:
                        return tuple(objects), page.resource_version
            except ExpiredError:
                if not limit:
                    raise
        raise AssertionError

    # ── Follow ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _follow(self) -> None:
        """One stream, from the last resourceVersion to its end."""
        self.stats.streams += 1
        began, heard = self._clock.monotonic(), self.stats.heard_at
        stream = self._api.watch(self.kind, resource_version=self._resource_version, timeout_s=self._timeout_s())
        async with _closing(stream):
            async for event in stream:
                _raise_if_error(event)
                self._pass_on(event)
        if self._clock.monotonic() - began < SHORT_STREAM_S and self.stats.heard_at == heard:
            raise UnansweredError(f"watch {self.kind}: the stream ended at once")

    def _pass_on(self, event: WatchEvent) -> None:
        if event.object is not None:
            self.stats.events += 1
            if event.type == "DELETED":
                self._sink(Gone(self.kind, event.object.key, event.object.uid))
            else:
                self._sink(Seen(self.kind, event.object))
        # After the sink has it: should it raise, the event is not lost by a resume behind it.
        if event.resource_version:
            self._resource_version = event.resource_version
        self._retries.relists.reset()
        self._went_well()

    # ── Failures ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _went_well(self) -> None:
        self._retries.went_well()
        self.stats.heard_at = self._clock.monotonic()
        self.stats.last_error = ""

    def _wait_after(self, error: PortError) -> float:
        """Count the failure, decide whether to list again, and say how long to wait."""
        if isinstance(error, ExpiredError):
            # Not a failure, but all kinds and replicas lose their watches together when a server restarts: spread them.
            self._resource_version = ""
            _log.info("informer.expired", kind=self.kind.value, detail=str(error))
            return self._retries.relists.next_s()
        self.stats.last_error = str(error)
        if isinstance(error, ThrottledError):
            # Says nothing about us or the resourceVersion: it has its own counter.
            self.stats.throttled += 1
            return self._retries.throttle.next_s(error.retry_after_s)
        self.stats.failures += 1
        if isinstance(error, NotFoundError) and not self._built_in:
            self._resource_version = ""
            return self._randomness.uniform(0.8, 1.2) * (NOT_FOUND_RETRY_S if self._retries.absent else 1.0)
        if isinstance(error, BrokenStreamError):
            self._retries.broken += 1
            if self._retries.broken >= STREAMS_IN_VAIN:
                self._resource_version, self._retries.broken = "", 0
        _log.warning("informer.failed", kind=self.kind.value, error=str(error), failures=self.stats.failures)
        return self._retries.backoff.next_s(error.retry_after_s if isinstance(error, UnansweredError) else 0.0)

    def _timeout_s(self) -> int:
        """Random, so that the streams of all kinds and replicas do not end together."""
        return int(self._randomness.uniform(*WATCH_TIMEOUT_S))


def _raise_if_error(event: WatchEvent) -> None:
    if event.type != "ERROR":
        return
    if event.code == 410:
        raise ExpiredError(event.message)
    if event.code == 429:
        raise ThrottledError(event.message)
    raise BrokenStreamError(f"the stream ended with {event.code}: {event.message}")


def _collect(found: dict[Key, Object], kind: str, obj: Object) -> None:
    if kind == "DELETED":
        found.pop(obj.key, None)
    else:
        found[obj.key] = obj


@asynccontextmanager
async def _closing(stream: AsyncIterator[WatchEvent]) -> AsyncIterator[None]:
    """Close the stream now, not when the collector finds it: a connection hangs on it."""
    try:
        yield
    finally:
        if (close := getattr(stream, "aclose", None)) is not None:
            await close()
