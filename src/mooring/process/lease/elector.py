"""The thin loop around `Election`: read the lease, do what it says, wait, again; give the lease back at the end.

Cancel `run()` to stop: we stop leading, `on_stopped` is waited for (so that no write is under way any more), and only
then the lease is given back, so that the next one takes it within a retry, not after ten seconds.

Figures with the defaults (10 / 7 / 2 s): at most about 12 s from a kill -9 to the next leader, 2 s from a clean stop.
"""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar
from urllib.parse import urlsplit

import structlog

from mooring.clients.ports import (
    AlreadyExistsError,
    Clock,
    ConflictError,
    Json,
    KubeApi,
    NotFoundError,
    PortError,
    Randomness,
    UnansweredError,
)
from mooring.core.model.kinds import Kind
from mooring.core.model.times import rfc3339_micro
from mooring.process.clock import TimedEvent
from mooring.process.lease.election import Acquire, Election, LeaseRecord, LeaseWait, Renew, StepDown, Timing

T = TypeVar("T")
#: How long one that stops waits for the next to lead.
SUCCESSOR_S = 4.0

_log = structlog.get_logger("mooring.clients.kube")


def _nothing() -> None:
    pass


async def _nothing_async() -> None:
    pass


class Elector:
    """Campaigns for one Lease. `identity` must be unique to this process: host name and a random token."""

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        randomness: Randomness,
        *,
        namespace: str,
        name: str,
        identity: str,
        timing: Timing | None = None,
        on_started: Callable[[], None] = _nothing,
        on_stopped: Callable[[], Awaitable[None]] = _nothing_async,
    ) -> None:
        self._election = Election(identity, timing)
        self._timing = self._election.timing
        self._api = api
        self._clock = clock
        self._randomness = randomness
        self._namespace = namespace
        self._name = name
        self._on_started = on_started
        self._on_stopped = on_stopped
        #: The whole object as last read or written by us: what we do not know of it is written back as it was.
        self._object: Json | None = None
        self._nudge = TimedEvent(clock)
        #: Whether requests may still reach us after the lease was given back.
        self.hands_over: Callable[[], bool] = lambda: False
        #: False: we have not seen the whole cluster yet, and leave the lease to others: a leader must answer at once.
        self.prepared = True

    @property
    def leading(self) -> bool:
        return self._election.leading

    @property
    def holder(self) -> str:
        return self._election.holder

    def may_write(self) -> bool:
        """The fence: ask right before every write (`fenced` does)."""
        return self._election.may_write(self._clock.monotonic())

    async def run(self) -> None:
        try:
            while True:
                await self._pause(await self._turn())
        finally:
            if self.leading:
                await self._step_down("stopped")
                await self._give_back()
                if self.hands_over():
                    await self._await_successor()

    def look_now(self) -> None:
        """A request needs a leader: do not wait for the next turn. A leader's own turns keep their pace."""
        if not self.leading:
            self._nudge.set()

    def prepare(self) -> None:
        """From now on we could lead."""
        self.prepared = True
        self.look_now()

    async def _pause(self, seconds: float) -> None:
        await self._nudge.wait(seconds)
        self._nudge.clear()

    async def _await_successor(self) -> None:
        """Until another replica leads, so that requests that still reach this one can be forwarded to it."""
        end = self._clock.monotonic() + SUCCESSOR_S
        while self._clock.monotonic() < end:
            with contextlib.suppress(PortError):
                self._object = await self._within(self._read())
                if self._object and self._election.followed(_record(self._object)):
                    return
            await self._clock.sleep(0.1)

    # ── One turn ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _turn(self) -> float:
        """Look, act, and say how long to wait until the next turn."""
        began = self._clock.monotonic()
        try:
            # A leader knows what it wrote; a compare-and-swap will tell if it no longer stands.
            if not (self.leading and self._object):
                self._object = await self._within(self._read())
            lease = _record(self._object) if self._object else None
            step = self._election.observe(lease, self._clock.monotonic())
        except PortError as error:
            _log.warning("lease.read-failed", lease=self._name, error=str(error))
            step = self._election.unheard(self._clock.monotonic())
        pause = self._timing.retry_s * self._randomness.uniform(0.8, 1.0)
        match step:
            case Acquire() if not self.prepared:
                pass
            case Acquire() | Renew():
                if not await self._write(step.base):
                    # Read it again. A leader has no time to lose.
                    self._object = None
                    pause = min(pause, 0.5) if self.leading else pause
            case LeaseWait(seconds):
                pause = min(pause, seconds)
            case StepDown(why):
                self._object = None
                await self._step_down(why)
        # Turns begin at a steady pace, however long the requests took; never in a busy loop.
        return max(began + pause - self._clock.monotonic(), 0.05)

    async def _write(self, base: LeaseRecord | None) -> bool:
        began = self._clock.monotonic()
        try:
            written = await self._within(self._put(base, self._election.identity))
        except (ConflictError, AlreadyExistsError, NotFoundError):
            return False
        except PortError as error:
            _log.warning("lease.write-failed", lease=self._name, error=str(error))
            return False
        self._object = written
        was_leading = self.leading
        self._election.written(_record(written), began, self._clock.monotonic())
        if not was_leading:
            _log.info("lease.acquired", lease=self._name, identity=self._election.identity)
            self._on_started()
        return True

    async def _step_down(self, why: str) -> None:
        # First the fence: from here on `may_write` says no. Then what is still under way.
        self._election.stepped_down()
        _log.warning("lease.stepped-down", lease=self._name, why=why)
        await self._on_stopped()

    async def _give_back(self) -> None:
        # Not given back: the next one waits for the lease to run out. Nothing is wrong.
        with contextlib.suppress(PortError):
            for _ in range(2):
                # After a failed renewal, or one that was accepted while we were stopped, the lease is read again.
                self._object = self._object or await self._within(self._read())
                if not self._object or _record(self._object).holder != self._election.identity:
                    return
                try:
                    await self._within(self._put(_record(self._object), ""))
                except ConflictError:
                    self._object = None
                else:
                    return

    # ── The object ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _read(self) -> Json | None:
        try:
            return await self._api.get(Kind.LEASE, self._namespace, self._name)
        except NotFoundError:
            return None

    async def _put(self, base: LeaseRecord | None, holder: str) -> Json:
        """Create, or replace what has `base`'s resourceVersion."""
        old = self._object if base is not None and self._object else {}
        metadata = {**old.get("metadata", {}), "namespace": self._namespace, "name": self._name}
        spec = dict(old.get("spec") or {})
        obj = {**old, "metadata": metadata, "spec": spec}
        now = rfc3339_micro(self._clock.now())
        if base is None or base.holder != holder:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = (base.transitions + 1) if base and holder else (base.transitions if base else 0)
        # A lease of a second without a holder: older clients look at the duration too.
        duration_s = self._timing.lease_s if holder else 1
        spec.update(holderIdentity=holder, leaseDurationSeconds=duration_s, renewTime=now)
        if base is None:
            return await self._api.create(Kind.LEASE, obj)
        metadata["resourceVersion"] = base.resource_version
        return await self._api.replace(Kind.LEASE, obj)

    async def _within(self, request: Coroutine[Any, Any, T]) -> T:
        """The answer, or Unanswered after `request_s`: on the clock we were given, which may be a virtual one."""
        try:
            async with asyncio.timeout(None) as limit:
                alarm = self._clock.later(self._timing.request_s, lambda: limit.reschedule(0))
                try:
                    return await request
                finally:
                    alarm.cancel()
        except TimeoutError:
            words = f"lease {self._namespace}/{self._name}: no answer in {self._timing.request_s} s"
            raise UnansweredError(words) from None


def _record(lease: Json) -> LeaseRecord:
    spec = lease.get("spec") or {}
    return LeaseRecord(
        holder=spec.get("holderIdentity") or "",
        resource_version=lease.get("metadata", {}).get("resourceVersion", ""),
        duration_s=spec.get("leaseDurationSeconds") or 0,
        transitions=spec.get("leaseTransitions") or 0,
    )


# ── Where the holder can be reached ───────────────────────────────────────────────────────────────────────────────
#
# The holder's identity in the lease is `<host>-<token>_<address>:<port>`, whether Mix is on or not. Name and address
# are one value, written by the compare-and-swap that wins the lease: there is no moment in which a follower knows a new
# leader and an old leader's address.

_ANY = frozenset({"0.0.0.0", "::", ""})


def identity_with(name: str, address: str) -> str:
    return f"{name}_{address}" if address else name


def address_of(identity: str) -> str:
    """`10.0.0.7:9443`, or "" when this holder could not tell its own address."""
    _, underscore, address = identity.rpartition("_")
    return address if underscore and ":" in address else ""


def advertised(listen_host: str, port: int, given: str, server_url: str) -> str:
    """The address others reach us at: as given (a pod's own), as listened on, or the way we reach the API server."""
    host = given or (listen_host if listen_host not in _ANY else _own_address(server_url))
    if not host:
        return ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _own_address(server_url: str) -> str:
    """The address of the interface that leads to the API server. Nothing is sent."""
    target = urlsplit(server_url)
    try:
        family, kind, _, _, address = socket.getaddrinfo(target.hostname, target.port or 443, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return ""
