"""The ports: what the process needs of the outside, as Protocols.

Each has a real implementation (`kube/`, `pd/`, `registry/`) and one in the sandbox, and one contract test-suite runs
against both. Errors form one small tree. `Unanswered` is the important leaf: the request may or may not have taken
effect, and only looking tells.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from mooring.core.model.events import Object
from mooring.core.model.kinds import Kind
from mooring.core.model.leaders import LeaderView
from mooring.core.model.machine import Machine
from mooring.core.model.tidb import PdMember, PdOperator, PdView, Region, Store

#: A Kubernetes object as plain JSON values.
Json = dict[str, Any]
#: RFC 6902: a list of operations.
JsonPatch = list[Json]


class PortError(Exception):
    """An error that the outside answered with. The message is written for people."""


class UnansweredError(PortError):
    """No answer, or none that says what happened (connection lost, time-out, 5xx): look before doing it again."""

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TlsError(UnansweredError):
    """The two sides' certificates do not fit, so nothing was sent. `remedy`: what a person must do."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


class NotFoundError(PortError):
    pass


class AlreadyExistsError(PortError):
    pass


class ConflictError(PortError):
    """A precondition did not hold (uid, resourceVersion, a `test` operation): nothing was changed."""


class ExpiredError(PortError):
    """410: this resourceVersion or continue token is too old. List again."""


class ThrottledError(PortError):
    """429 by flow control: nothing was changed. `retry_after_s` is what the server asks for."""

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class EvictionBlockedError(PortError):
    """429 by a PodDisruptionBudget: nothing was changed."""


class RefusedError(PortError):
    """The server refuses the request and a retry would be refused, too: forbidden, invalid, denied by admission or
    quota."""

    def __init__(self, message: str, code: int = 403) -> None:
        super().__init__(message)
        self.code = code


def remedy_of(error: PortError) -> str:
    """What a person must do about it; "": nothing is known that would help."""
    return error.remedy if isinstance(error, TlsError) else ""


# ── Kubernetes ────────────────────────────────────────────────────────────────────────────────────────────────────


class PatchType(StrEnum):
    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class ListPage(msgspec.Struct, frozen=True):
    """One page of a list, already projected (`mooring.clients.wire`)."""

    items: tuple[Object, ...]
    resource_version: str
    continue_token: str = ""


class WatchEvent(msgspec.Struct, frozen=True):
    """ADDED, MODIFIED, DELETED carry an object; BOOKMARK only a resourceVersion; ERROR a status code (410: Expired)."""

    type: str
    object: Object | None = None
    resource_version: str = ""
    code: int = 0
    message: str = ""
    #: The bookmark that ends the initial events of a WatchList.
    initial_end: bool = False


class KubeApi(Protocol):
    """The Kubernetes API, verb by verb, with no cache and no retries.

    `list` and `watch` answer in slim structs: parse → project → drop happens behind this interface. The other verbs
    speak plain JSON, since a read-modify-write must not lose fields that we do not know.
    """

    async def list(
        self,
        kind: Kind,
        *,
        limit: int = 500,
        continue_token: str = "",
        resource_version: str | None = None,
        node: str = "",
    ) -> ListPage:
        """`node`: only the pods on this node."""
        ...

    def watch(
        self, kind: Kind, *, resource_version: str = "", timeout_s: int = 300, initial_events: bool = False
    ) -> AsyncIterator[WatchEvent]: ...

    async def get(self, kind: Kind, namespace: str, name: str) -> Json: ...

    async def create(self, kind: Kind, obj: Json, *, dry_run: bool = False) -> Json: ...

    async def replace(self, kind: Kind, obj: Json, *, subresource: str = "") -> Json: ...

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Json | JsonPatch,
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
    ) -> Json: ...

    async def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_s: int | None = None,
    ) -> None: ...

    async def evict(self, namespace: str, name: str, *, uid: str = "", grace_s: int | None = None) -> None: ...

    async def bind(self, namespace: str, name: str, node: str, *, uid: str = "") -> None: ...


# ── PD ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class PlacementDriver(Protocol):
    """One PD cluster. Everything but `add_operator` is idempotent and retried inside; raises PortError leaves."""

    async def observe(self, *leaving: int) -> PdView:
        """One consistent-enough look: stores, evicting list, region count, start timestamp, members, operators.
        `leaving`: stores about to go away; `at_risk` counts the regions that would lose their quorum, and does not name
        a store where PD could not say."""
        ...

    async def add_evict_leader(self, store_id: int) -> bool:
        """Lists first, adds only when absent (re-adding breaks eviction on PD < 8.3). False: it was there already.

        NotFoundError: no such store.
        """
        ...

    async def remove_evict_leader(self, store_id: int) -> None:
        """One DELETE, absent already is fine. Once it is answered, what PD lists for this store is somebody else's."""
        ...

    async def hold_lock(self, lock_id: str, description: str) -> None:
        """PD's maintenance lock for a restart. ConflictError: another one holds it."""
        ...

    async def release_lock(self, lock_id: str) -> None:
        """Absent, or held by another one, is fine."""
        ...

    async def stores(self, *ids: int) -> Sequence[Store]:
        """As PD lists them now, or these of them: asked before a write, to know whose they are."""
        ...

    async def regions(self, start_key: str = "", limit: int = 0) -> Sequence[Region]:
        """In the order of their keys, from the one that holds this key (hex, as PD prints it) on; 0: all."""
        ...

    async def region(self, region_id: int) -> Region | None:
        """One of them; None: PD knows no such region."""
        ...

    async def operators(self) -> Sequence[PdOperator]: ...

    async def operator(self, region_id: int) -> PdOperator | None: ...

    async def add_operator(self, body: Json) -> None:
        """Not idempotent: after UnansweredError, read `operator(region)` first. ConflictError: region busy."""
        ...

    async def cancel_operator(self, region_id: int) -> None: ...

    async def pause_scheduler(self, name: str, seconds: int) -> None:
        """0 resumes. A longer pause than ours (BR, TiDB Lightning, a person) is neither shortened nor ended."""
        ...

    async def schedulers(self, *, paused: bool = False) -> Sequence[str]: ...

    async def config(self) -> Json: ...

    async def members(self) -> Sequence[PdMember]: ...

    async def transfer_pd_leader(self, name: str) -> None: ...

    async def close(self) -> None: ...


# ── Systems with leaders ──────────────────────────────────────────────────────────────────────────────────────────────


class LeaderDriver(Protocol):
    """One system with leaders, in a StatefulSet. Members are named by their pods. Raises only PortError."""

    async def read(self) -> LeaderView:
        """Who leads, how much, and who is well, by the system's own word. UnansweredError: nobody could say."""
        ...

    async def move_off(self, member: str, to: str) -> None:
        """Move what `member` leads to `to`. That it leads nothing any more is fine; whether it has moved is answered by
        the next look. RefusedError: the system refuses it."""
        ...

    async def release(self, member: str) -> None:
        """It stays after all, and may lead again. Nothing to do where `move_off` holds nothing."""
        ...


# ── Machines ──────────────────────────────────────────────────────────────────────────────────────────────────────


class MachineRegistry(Protocol):
    """The machines that match the query, in the registry's own words; None: its default. The whole list or an error,
    never a shorter one, and without news the very same tuple. A state that changed has a `state_since` of its own."""

    async def machines(self, query: Json | None = None) -> Sequence[Machine]: ...

    async def close(self) -> None: ...


# ── Time, randomness, words ───────────────────────────────────────────────────────────────────────────────────────────


class Clock(Protocol):
    """Wall time for what people and other systems read; monotonic time for what we measure (a wall clock may jump)."""

    def now(self) -> float: ...

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...

    def later(self, seconds: float, call: Callable[[], None]) -> "Alarm":
        """Call it once, so many seconds from now. It must not raise."""
        ...


class Alarm(Protocol):
    def cancel(self) -> None:
        """Not any more."""
        ...


class Randomness(Protocol):
    """Ids and jitter, from a seed wherever runs must repeat."""

    def token(self, length: int = 8) -> str: ...

    def uniform(self, low: float, high: float) -> float: ...


class Recorder(Protocol):
    """Kubernetes Events and metrics, in the one vocabulary of reasons. Never raises, never blocks."""

    def event(
        self, kind: Kind, namespace: str, name: str, *, uid: str, reason: str, message: str, warning: bool = False
    ) -> None: ...

    def count(self, name: str, labels: Mapping[str, str], by: int = 1) -> None: ...

    def observe(self, name: str, labels: Mapping[str, str], value: float) -> None: ...
