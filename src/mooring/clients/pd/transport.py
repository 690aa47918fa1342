"""One answer out of several PD endpoints.

The problem: any member answers for the whole cluster by passing requests on to the leader, so any endpoint will do; but
while the leader is lost (about 12 s) they all say 500, after a restart they say 500 "not bootstrapped", under load 429,
and a dead one says nothing. The promise: an idempotent request is tried a bounded number of times, each time at the
next endpoint, with a short pause; what cannot be repeated is tried once. What comes back is PD's final word, or
`Unanswered` / `Throttled`; it never takes longer than attempts × (time-out + pause).

PD's status codes are irregular (an absent operator is a 500), so nothing here turns a status into an error except the
ones that mean "not now". The client knows what each call's words mean.
"""

import asyncio
import ssl
from collections.abc import Sequence
from typing import Any, Final

import aiohttp
import msgspec

from mooring.clients.pd import answers
from mooring.clients.ports import Chance, Clock, Throttled, Unanswered

#: Words in a 500 that mean: this member cannot say now, another one or a later moment can.
NOT_NOW: Final = (
    "ErrRedirect",
    "redirect failed",
    "ErrNotBootstrapped",
    "not bootstrapped",
    "no leader",
    "ErrLeaderNil",
    "not leader",
    "ErrServerNotStarted",
    "server not started",
)
FIRST_PAUSE_S: Final = 0.2


class Answer(msgspec.Struct, frozen=True):
    status: int
    body: bytes

    @property
    def ok(self) -> bool:
        return self.status == 200

    @property
    def words(self) -> str:
        return answers.text(self.body)


class Transport:
    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        clock: Clock,
        chance: Chance | None = None,
        ssl_context: ssl.SSLContext | None = None,
        timeout_s: float = 5.0,
        attempts: int = 3,
    ) -> None:
        if not endpoints:
            raise ValueError("a PD client needs at least one endpoint")
        self.endpoints = tuple(e.rstrip("/") for e in endpoints)
        self._clock = clock
        self._chance = chance
        self._ssl = ssl_context
        self._timeout_s = timeout_s
        self._attempts = max(attempts, 1)
        #: The endpoint that answered last: stay with it as long as it does.
        self._current = 0
        self._session: aiohttp.ClientSession | None = None

    async def ask(
        self, method: str, path: str, body: Any = None, *, idempotent: bool = True, at: Sequence[str] = ()
    ) -> Answer:
        """`at`: ask these members themselves instead of any endpoint."""
        attempts = self._attempts if idempotent else 1
        failure: Unanswered | Throttled = Unanswered("PD was not asked")
        for attempt in range(attempts):
            if attempt:
                await self._clock.sleep(self._pause_s(attempt, failure))
            used = self._current
            base = at[attempt % len(at)].rstrip("/") if at else self.endpoints[used]
            try:
                return await self._ask_once(method, base + path, body)
            except (Unanswered, Throttled) as e:
                failure = e
                if not at and self._current == used:  # several requests may have failed together: move on once
                    self._current = (used + 1) % len(self.endpoints)
        raise failure

    async def _ask_once(self, method: str, url: str, body: Any) -> Answer:
        try:
            async with self._open().request(
                method, url, data=None if body is None else msgspec.json.encode(body)
            ) as response:
                answer = Answer(response.status, await response.read())
                retry_after = response.headers.get("Retry-After", "")
        except (aiohttp.ClientError, TimeoutError, OSError, asyncio.IncompleteReadError) as e:
            raise Unanswered(f"PD at {url} did not answer: {str(e) or type(e).__name__}") from e
        if answer.status == 429:
            raise Throttled(f"PD at {url} limits its requests", float(retry_after) if retry_after.isdecimal() else 1.0)
        if answer.status in (502, 503, 504) or (answer.status >= 400 and _not_now(answer.words)):
            raise Unanswered(f"PD at {url} cannot say now: {answer.status} {answer.words[:200]}")
        return answer

    def _pause_s(self, attempt: int, failure: Unanswered | Throttled) -> float:
        pause: float = FIRST_PAUSE_S * 2 ** (attempt - 1)
        if isinstance(failure, Throttled):
            pause = max(pause, min(failure.retry_after_s, self._timeout_s))
        return pause if self._chance is None else pause * self._chance.uniform(0.75, 1.25)

    def _open(self) -> aiohttp.ClientSession:
        """Made on first use: a session belongs to the running loop."""
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._ssl or True, limit=8, keepalive_timeout=75.0)
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=self._timeout_s),
                headers={"Content-Type": "application/json", "User-Agent": "mooring"},
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


def _not_now(words: str) -> bool:
    return any(sign in words for sign in NOT_NOW)
