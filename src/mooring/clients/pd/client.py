"""`ports.PlacementDriver` over PD's HTTP API, 2.1 to 8.5.

Three rules carry it:
- One look is one look. `observe` asks a fixed handful of lists, never one per store; first of all who leads and since
  when. Between two looks with the same leader and start time PD did not restart: the first one's lists
  cannot come from a later process.
- PD may not know. A PD that has just started shows every store Up with no leaders, and has no schedulers yet; its list
  of evicted stores is then a 404, exactly as when there is no such scheduler. The scheduler names tell the two apart:
  a PD that runs always has some. `evicting` is None as long as it has none.
- List before add, look after remove. Adding a store twice breaks its eviction before 8.3; a remove that PD did not
  carry out leaves a store without leaders for ever.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final
from urllib.parse import quote

from mooring.clients.pd import answers, regions
from mooring.clients.pd.answers import EVICT_LEADER
from mooring.clients.pd.client_secret import ClientSecret
from mooring.clients.pd.placement import PlacementReader
from mooring.clients.pd.transport import API, PdAnswer, PdTransport
from mooring.clients.ports import (
    Clock,
    ConflictError,
    Json,
    NotFoundError,
    PortError,
    Randomness,
    RefusedError,
    UnansweredError,
)
from mooring.core.model.placement import Placement
from mooring.core.model.tidb import (
    OUR_LONGEST_PAUSE_S,
    PD_RESTART,
    PdLock,
    PdMember,
    PdOperator,
    PdPause,
    PdView,
    Region,
    Store,
    loses_quorum,
)

#: How long a PD without schedulers is asked to pause one, and how often.
STARTING_S: Final = 8.0
#: It adds them one after another: one that is missing may come so long after the first.
ADDING_S: Final = 0.3
PAUSE_RETRY_S: Final = 0.03
#: PD asks its members one after another, three seconds each, when it is asked for their health.
HEALTH_S: Final = 1.0
MAINTENANCE: Final = "/pd/api/v2/maintenance"


class PdClient:
    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        clock: Clock,
        randomness: Randomness | None = None,
        secret: ClientSecret | None = None,
        timeout_s: float = 5.0,
        attempts: int = 3,
        may_ask: Callable[[str], bool] = lambda _: True,
        may_keep: Callable[[str, int], bool] = lambda *_: True,
    ) -> None:
        self._clock = clock
        #: Scheduler → when we last paused it, and for how long: old versions do not say.
        self._asked: dict[str, tuple[float, int]] = {}
        self._transport = PdTransport(
            endpoints,
            clock=clock,
            randomness=randomness,
            secret=secret,
            timeout_s=timeout_s,
            attempts=attempts,
            may_ask=may_ask,
            may_keep=may_keep,
        )

        self._placement = PlacementReader(lambda path: self._ask("GET", path), clock)

    async def close(self) -> None:
        await self._transport.close()

    # ── Looking ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def observe(self, *leaving: int) -> PdView:
        said = await self._get("/members")
        members, leader = answers.members(said)
        started = await self._leader_started(members, leader)
        # First of all who is paused: what such a scheduler began before is then among the operators, and nothing later.
        pauses, (lock, lockable) = await asyncio.gather(self._pauses(), self._lock())
        stores, (evicting, schedulers), count, operators, healthy, placement = await asyncio.gather(
            self._get("/stores"),
            self._evicting_and_names(),
            self._region_count(),
            self.operators(),
            self._health(members),
            self._placement.read(),
        )
        return PdView(
            stores=answers.stores(stores),
            evicting=evicting,
            region_count=count,
            start_timestamp=started,
            leader=leader,
            members=tuple(PdMember(m.name, m.member_id, m.client_urls, healthy.get(m.member_id)) for m in members),
            operators=tuple(operators),
            schedulers=schedulers,
            pauses=pauses,
            placement=placement,
            cluster_id=answers.cluster_id(said),
            lock=lock,
            lockable=lockable,
            at_risk=await self._at_risk(leaving, placement) if leaving else {},
        )

    async def _at_risk(self, leaving: Sequence[int], placement: Placement | None) -> dict[int, int]:
        """Regions with a peer that is down, behind or missing; where a rule wants fewer than three voters, all regions
        of the store. Empty: PD could not say, or more than there is room for."""
        try:
            checks = [self._get(f"/regions/check/{kind}") for kind in ("down-peer", "pending-peer", "miss-peer")]
            unwell = [r for body in await asyncio.gather(*checks) for r in regions.regions(body)]
            found: dict[int, int] = {}
            for store_id in leaving:
                every = placement is None or placement.few_voters
                own = regions.regions(await self._get(f"/regions/store/{store_id}")) if every else ()
                known = {r.id: r for r in (*own, *unwell)}
                found[store_id] = sum(loses_quorum(r, store_id) for r in known.values())
        except PortError:
            return {}
        return found

    async def _leader_started(self, members: Sequence[PdMember], leader: str) -> int:
        """A follower of 8.5 answers for itself here, not for the leader, so the leader is asked at its own address."""
        urls = next((m.client_urls for m in members if m.name == leader), ())
        if not urls:
            raise UnansweredError("PD has no leader now")
        # With one member any endpoint is the leader, also through a tunnel that its own address does not pass.
        answer = await self._transport.ask("GET", API + "/status", at=urls if len(members) > 1 else ())
        if not answer.ok:
            raise _error(answer, f"status of the PD leader {leader}")
        return answers.status(answer.body).start_timestamp

    async def _evicting(self) -> tuple[int, ...] | None:
        answer = await self._ask("GET", f"/scheduler-config/{EVICT_LEADER}/list")
        return _evicting(answer, await self.schedulers() if answer.status == 404 else ())

    async def _evicting_and_names(self) -> tuple[tuple[int, ...] | None, tuple[str, ...]]:
        answer = await self._ask("GET", f"/scheduler-config/{EVICT_LEADER}/list")
        names = await (self.schedulers() if answer.status == 404 else self._listed("/schedulers"))
        return _evicting(answer, names), names

    async def _region_count(self) -> int:
        answer = await self._ask("GET", "/regions/count")
        if answer.status == 404:  # before 6.1
            answer = await self._ask("GET", "/stats/region")
        if not answer.ok:
            raise _error(answer, "count regions")
        return regions.region_count(answer.body)

    async def stores(self, *ids: int) -> Sequence[Store]:
        if not ids:
            return answers.stores(await self._get("/stores"))
        found = await asyncio.gather(*(self._ask("GET", f"/store/{store_id}") for store_id in ids))
        for answer in found:
            if not answer.ok and not _is_absent(answer):
                raise _error(answer, "ask for a store")
        return tuple(answers.store(answer.body) for answer in found if answer.ok)

    async def regions(self, start_key: str = "", limit: int = 0) -> Sequence[Region]:
        if not limit:
            found = regions.regions(await self._get("/regions"))
            return tuple(r for r in found if not r.end_key or r.end_key > start_key)
        key = quote(bytes.fromhex(start_key), safe="")
        return regions.regions_of_range(await self._get(f"/regions/key?key={key}&limit={limit}"), start_key, limit)

    async def region(self, region_id: int) -> Region | None:
        return regions.region(await self._get(f"/region/id/{region_id}"))

    async def operators(self) -> Sequence[PdOperator]:
        return answers.operators(await self._get("/operators"))

    async def operator(self, region_id: int) -> PdOperator | None:
        answer = await self._ask("GET", f"/operators/{region_id}")
        if answer.ok:
            return answers.operator(answer.words)
        if _is_absent(answer):
            return None
        raise _error(answer, f"operator of region {region_id}")

    async def schedulers(self, *, paused: bool = False) -> tuple[str, ...]:
        body = await self._get("/schedulers?status=paused" if paused else "/schedulers")
        return tuple(sorted(answers.names(body, "schedulers")))

    async def _pauses(self) -> tuple[PdPause, ...]:
        """For a look: a PD that cannot list them shows none. One that does not say until when is taken at our word."""
        answer = await self._ask("GET", "/schedulers?status=paused&timestamp=true")
        found = answers.pauses(answer.body, answer.date) if answer.ok else ()
        now = self._clock.monotonic()
        return tuple(
            p if p.length_s or p.name not in self._asked else PdPause(p.name, *_left(self._asked[p.name], now))
            for p in found
        )

    async def _listed(self, path: str) -> tuple[str, ...]:
        """Names for a look; a PD that cannot list them has none to show, and the rest of the look stands."""
        answer = await self._ask("GET", path)
        return tuple(sorted(answers.names(answer.body, "schedulers"))) if answer.ok else ()

    async def _health(self, members: Sequence[PdMember]) -> dict[int, bool | None]:
        """By member, for a look. PD asks each one by HTTP and waits for those that are silent; the look does not, and
        where PD cannot say in time, no member is called unhealthy."""
        if len(members) < 2:
            return {}
        try:
            answer = await asyncio.wait_for(self._ask("GET", "/health"), HEALTH_S)
            return answers.health(answer.body) if answer.ok else {}
        except (PortError, TimeoutError):
            return {}

    async def config(self) -> Json:
        return answers.plain(await self._get("/config/schedule"), "config")

    async def members(self) -> Sequence[PdMember]:
        members, health = await asyncio.gather(self._get("/members"), self._get("/health"))
        known, _ = answers.members(members)
        healthy = answers.health(health)
        return tuple(PdMember(m.name, m.member_id, m.client_urls, healthy.get(m.member_id)) for m in known)

    # ── Evicting leaders ──────────────────────────────────────────────────────────────────────────────────────────

    async def add_evict_leader(self, store_id: int) -> bool:
        evicting = await self._evicting()
        if evicting is None:
            raise UnansweredError("PD does not list its schedulers yet: nothing was added")
        if store_id in evicting:
            return False
        answer = await self._ask("POST", "/schedulers", {"name": EVICT_LEADER, "store_id": store_id})
        if not answer.ok:
            raise _error(answer, f"evict leaders of store {store_id}")
        return True

    async def remove_evict_leader(self, store_id: int) -> None:
        # Asked once: a second try, after an answer that was lost, could remove what a person has added since.
        answer = await self._ask("DELETE", f"/schedulers/{EVICT_LEADER}-{store_id}", idempotent=False)
        if answer.ok:
            return  # what is listed from now on is another client's
        if answer.status != 404:
            raise _error(answer, f"end the eviction of store {store_id}")
        # A scheduler that PD has stored and not loaded yet answers 404 too, and would come back.
        await self._clock.sleep(ADDING_S)
        evicting = await self._evicting()
        if evicting is None or store_id in evicting:
            raise UnansweredError("PD has not loaded its schedulers yet: the end of the eviction is not proven")

    # ── The maintenance lock ──────────────────────────────────────────────────────────────────────────────────────

    async def _lock(self) -> tuple[PdLock | None, bool]:
        """Who holds it, and whether this PD has one at all: both are a 404 where nobody does."""
        answer = await self._transport.ask("GET", MAINTENANCE)
        if answer.ok:
            return answers.lock(answer.body), True
        if answer.status != 404:
            raise _error(answer, "maintenance lock")
        return None, "maintenance task" in answer.words

    async def hold_lock(self, lock_id: str, description: str) -> None:
        answer = await self._transport.ask("PUT", f"{MAINTENANCE}/{PD_RESTART}/{quote(lock_id, safe='')}", description)
        if answer.status == 409:
            held, _ = await self._lock()
            if held is None or held.id != lock_id:
                raise ConflictError(f"PD's maintenance lock is held by {held or 'another task'}")
        elif not answer.ok:
            raise _error(answer, "take the maintenance lock")

    async def release_lock(self, lock_id: str) -> None:
        answer = await self._transport.ask("DELETE", f"{MAINTENANCE}/{PD_RESTART}/{quote(lock_id, safe='')}")
        if not answer.ok and answer.status not in (404, 409):
            raise _error(answer, "release the maintenance lock")

    # ── Operators, schedulers, the leader ─────────────────────────────────────────────────────────────────────────

    async def add_operator(self, body: Json) -> None:
        answer = await self._ask("POST", "/operators", body, idempotent=False)
        if answer.ok:
            return
        if "ErrAddOperator" in answer.words:
            raise ConflictError(answer.said)
        if answer.status >= 500 and not _is_absent(answer) and answer.words.startswith("[PD:etcd"):
            raise _error(answer, "add an operator")
        raise NotFoundError(answer.said) if _is_absent(answer) else RefusedError(answer.said, answer.status)

    async def cancel_operator(self, region_id: int) -> None:
        answer = await self._ask("DELETE", f"/operators/{region_id}")
        if not answer.ok and not _is_absent(answer):
            raise _error(answer, f"cancel the operator of region {region_id}")

    async def pause_scheduler(self, name: str, seconds: int) -> None:
        """A PD that has just started has no schedulers yet, and they do not wait for us: it is asked until it has."""
        for pause in await self._pauses():
            if pause.name == name and pause.length_s > OUR_LONGEST_PAUSE_S:
                return
        end = self._clock.monotonic() + STARTING_S
        while True:
            asked = self._clock.monotonic()
            answer = await self._ask("POST", f"/schedulers/{quote(name, safe='')}", {"delay": seconds})
            if answer.ok:
                self._asked[name] = (asked, seconds)
                return
            if not _is_absent(answer):
                raise _error(answer, f"pause {name}")
            others = await self.schedulers()
            if others:
                end = min(end, self._clock.monotonic() + ADDING_S)
            if self._clock.monotonic() >= end:
                raise (
                    _error(answer, f"pause {name}")
                    if others
                    else UnansweredError("PD has no schedulers yet: nothing paused")
                )
            await self._clock.sleep(PAUSE_RETRY_S)

    async def transfer_pd_leader(self, name: str) -> None:
        answer = await self._ask("POST", f"/leader/transfer/{quote(name, safe='')}")
        if "no valid pd" in answer.words:
            raise NotFoundError(f"PD has no other member {name} to lead")
        if not answer.ok:
            raise _error(answer, f"hand PD's leadership to {name}")

    # ── ───────────────────────────────────────────────────────────────────────────────────────────────────────────

    def one_connection(self) -> AbstractAsyncContextManager[None]:
        """See `PdTransport.one_connection`."""
        return self._transport.one_connection()

    async def _ask(self, method: str, path: str, body: Json | None = None, *, idempotent: bool = True) -> PdAnswer:
        return await self._transport.ask(method, API + path, body, idempotent=idempotent)

    async def _get(self, path: str) -> bytes:
        answer = await self._ask("GET", path)
        if not answer.ok:
            raise _error(answer, path)
        return answer.body


def _evicting(answer: PdAnswer, names: tuple[str, ...]) -> tuple[int, ...] | None:
    """By the list; where there is none, by the names, which were asked for after it."""
    if answer.ok:
        return answers.evicting_by_list(answer.body)
    if answer.status != 404:
        raise _error(answer, "list evicted stores")
    if not names or EVICT_LEADER in names:
        # None yet (starting), or one that appeared between the two questions: PD could not say.
        return None
    return answers.evicting_by_name(names)


def _left(asked: tuple[float, int], now: float) -> tuple[float, float]:
    at, seconds = asked
    return seconds, max(0.0, at + seconds - now)


def _is_absent(answer: PdAnswer) -> bool:
    return answer.status == 404 or "NotFound]" in answer.words


def _error(answer: PdAnswer, what: str) -> PortError:
    """PD's no, by its words first: an unknown store is a 404, a 400 or a 500, as version and call will have it."""
    message = f"PD: {what}: {answer.status} {answer.said}"
    if _is_absent(answer):
        return NotFoundError(message)
    if answer.status < 500:
        return RefusedError(message, answer.status)
    return UnansweredError(message)
