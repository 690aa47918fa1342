"""One answer out of several PD endpoints.

The problem: any member answers for the whole cluster by passing requests on to the leader, so any endpoint will do; but
while the leader is lost (about 12 s) they all say 500, after a restart they say 500 "not bootstrapped", under load 429,
and a dead one says nothing. The promise: an idempotent request is tried a bounded number of times, each time at the
next endpoint, with a short pause; what cannot be repeated is tried once. What comes back is PD's final word, or
`Unanswered` / `Throttled`; it never takes longer than attempts × (time-out + pause).

The server may be hostile: a tenant chooses what answers under its cluster's name. No redirect is followed, nothing is
unpacked, a body has a limit, a member's own address is asked only when `may_ask` says so, and what is quoted of an
answer is short, printable and without credentials.

PD's status codes are irregular (an absent operator is a 500), so nothing here turns a status into an error except the
ones that mean "not now". The client knows what each call's words mean.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import msgspec

from mooring.clients.pd import answers
from mooring.clients.pd.client_secret import ClientSecret
from mooring.clients.ports import Clock, Randomness, ThrottledError, TlsError, UnansweredError
from mooring.clients.texts import printable, without_credentials
from mooring.core.model.limits import MIB, is_dense

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
API: Final = "/pd/api/v1"
#: Bytes of an answer; all regions of a large cluster at once (for a snapshot) are many.
LARGEST: Final = 4 * MIB
LARGEST_BY_END: Final = {"/operators": 16 * MIB, "/regions": 64 * MIB}
LARGEST_RANGE: Final = 16 * MIB


#: The transport whose requests of this task all use one connection, and its session.
_PINNED: Final = ContextVar[tuple[object, aiohttp.ClientSession | None]]("_PINNED", default=(None, None))


def host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def in_cluster(url: str) -> str:
    """tidb-operator v2 writes `<service>.<namespace>`: with `.svc` it is no name outside the cluster, whatever the
    namespace is called (`dev` and `app` are on the internet, too)."""
    host = host_of(url)
    labels = host.split(".")
    short = len(labels) in {2, 3} and labels[-2].endswith(("-pd", "-pd-peer")) and labels[-1] != "svc"
    return url.replace(host, f"{host}.svc", 1) if short else url


class PdAnswer(msgspec.Struct, frozen=True):
    status: int
    body: bytes
    #: PD's own clock, by the second, where it says.
    date: str = ""

    @property
    def ok(self) -> bool:
        return self.status == 200

    @property
    def words(self) -> str:
        return answers.text(self.body[:65536])

    @property
    def said(self) -> str:
        """The same, to be quoted: short and printable."""
        return printable(self.words)


class PdTransport:
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
        """`secret`: what https:// endpoints are asked with; without it the system's authorities are trusted.
        `may_ask`: may a member be asked at this address, which PD itself has named? `may_keep`: is there room for so
        large an answer to this path?"""
        if not endpoints:
            raise ValueError("a PD client needs at least one endpoint")
        self.endpoints = tuple(e.rstrip("/") for e in endpoints)
        self._clock = clock
        self._randomness = randomness
        self._secret = secret
        self._may_ask = may_ask
        self._may_keep = may_keep
        self._timeout_s = timeout_s
        self._attempts = max(attempts, 1)
        #: The endpoint that answered last: stay with it as long as it does.
        self._current = 0
        self._session: aiohttp.ClientSession | None = None

    def _address(self, named: str) -> str:
        """Where a member may be asked that PD names so; "": nowhere."""
        return next((url for url in (named, in_cluster(named)) if self._may_ask(url)), "")

    async def ask(
        self, method: str, path: str, body: Any = None, *, idempotent: bool = True, at: Sequence[str] = ()
    ) -> PdAnswer:
        """`at`: ask these members themselves instead of any endpoint."""
        if at and not (at := [url for one in at if (url := self._address(one))]):
            raise UnansweredError(
                "PD names a member at an address outside its cluster; an administrator allows it with pd-hosts"
            )
        attempts = self._attempts if idempotent and self._pinned() is None else 1
        failure: UnansweredError | ThrottledError = UnansweredError("PD was not asked")
        for attempt in range(attempts):
            if attempt:
                await self._clock.sleep(self._pause_s(attempt, failure))
            used = self._current
            base = at[attempt % len(at)].rstrip("/") if at else self.endpoints[used]
            try:
                return await self._ask_once(method, base + path, body)
            except (UnansweredError, ThrottledError) as e:
                failure = e
                if not at and self._current == used:  # several requests may have failed together: move on once
                    self._current = (used + 1) % len(self.endpoints)
        raise failure

    async def _ask_once(self, method: str, url: str, body: Any) -> PdAnswer:
        where = without_credentials(url)
        secret = self._secret if url.startswith("https://") else None
        context = await secret.context() if secret is not None else True
        data = None if body is None else msgspec.json.encode(body)
        try:
            async with self._open().request(method, url, data=data, allow_redirects=False, ssl=context) as response:
                body_read = await _body(response, _largest(url), where)
                answer = PdAnswer(response.status, body_read, response.headers.get("Date", ""))
                retry_after = response.headers.get("Retry-After", "")
        except aiohttp.InvalidURL:
            raise UnansweredError(f"PD at {where}: not an address that can be asked") from None
        except (aiohttp.ClientError, TimeoutError, OSError, asyncio.IncompleteReadError) as e:
            if secret is not None and (failed := _of_tls(e) or ("" if secret.accepted else _hung_up(e))):
                raise secret.refused(f"PD at {where} and Mooring refuse each other: {failed}") from None
            raise UnansweredError(f"PD at {where} did not answer: {printable(str(e)) or type(e).__name__}") from None
        if method == "GET" and "/regions" not in url and not self._may_keep(url.partition(API)[2], len(answer.body)):
            raise UnansweredError(f"PD at {where} answers with more than there is room for, with all other PDs")
        if secret is not None:
            secret.accepted = True
        if answer.status == 429:
            raise ThrottledError(
                f"PD at {where} limits its requests", float(retry_after[:4]) if retry_after.isdecimal() else 1.0
            )
        if answer.status == 400 and "HTTP request to an HTTPS server" in answer.words:
            raise TlsError(
                f"PD at {where} speaks TLS alone", "set spec.tlsCluster.enabled of the TidbCluster, or write https://"
            )
        if 300 <= answer.status < 400:
            raise UnansweredError(f"PD at {where} answers with a redirect ({answer.status}), which is not followed")
        if answer.status in (502, 503, 504) or (answer.status >= 400 and _not_now(answer.words)):
            raise UnansweredError(f"PD at {where} cannot say now: {answer.status} {answer.said}")
        return answer

    def _pause_s(self, attempt: int, failure: UnansweredError | ThrottledError) -> float:
        pause: float = FIRST_PAUSE_S * 2 ** (attempt - 1)
        if isinstance(failure, ThrottledError):
            pause = max(pause, min(failure.retry_after_s, self._timeout_s))
        return pause if self._randomness is None else pause * self._randomness.uniform(0.75, 1.25)

    @asynccontextmanager
    async def one_connection(self) -> AsyncIterator[None]:
        """All that this task asks meanwhile goes over one TCP connection, to one endpoint, and is tried once: behind an
        address that a tenant chooses another server may answer each connection, so a PD that has shown whose it is
        shows nothing about the next one. Unanswered: the connection was closed, and nothing was sent."""
        made: list[object] = []

        async def once(*_: object) -> None:
            made.append(None)
            if len(made) > 1:
                raise UnansweredError("PD closed the connection on which it showed whose it is; nothing was written")

        traces = aiohttp.TraceConfig()
        traces.on_connection_create_start.append(once)
        session = self._new_session(1, [traces])
        token = _PINNED.set((self, session))
        try:
            yield
        finally:
            _PINNED.reset(token)
            await session.close()

    def _pinned(self) -> aiohttp.ClientSession | None:
        of, session = _PINNED.get()
        return session if of is self else None

    def _open(self) -> aiohttp.ClientSession:
        """Made on first use: a session belongs to the running loop."""
        if (pinned := self._pinned()) is not None:
            return pinned
        if self._session is None:
            self._session = self._new_session(8)
        return self._session

    def _new_session(self, connections: int, traces: list[aiohttp.TraceConfig] | None = None) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, keepalive_timeout=75.0),
            timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            headers={"Content-Type": "application/json", "User-Agent": "mooring", "Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            trace_configs=traces,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


def _hung_up(error: BaseException) -> str:
    """In TLS 1.3 a server refuses a client's certificate after the handshake, and what it says then gets lost."""
    cut = isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError | ConnectionError)
    return "it hung up after the handshake" if cut and not isinstance(error, aiohttp.ClientConnectorError) else ""


def _of_tls(error: BaseException | None) -> str:
    """What TLS said, where it was TLS that failed."""
    while error is not None:
        if isinstance(error, ssl.SSLError) and not isinstance(error, aiohttp.ClientError):
            said = str(error.reason or error).replace("_", " ").lower()
            return printable(
                f"{said}: {error.verify_message}" if isinstance(error, ssl.SSLCertVerificationError) else said
            )
        error = error.__cause__ or error.__context__
    return ""


def _largest(url: str) -> int:
    if "/regions/store/" in url:
        return LARGEST_BY_END["/regions"]
    return (
        LARGEST_RANGE
        if "/regions/key" in url or "/regions/check/" in url
        else LARGEST_BY_END.get(url[url.rindex("/") :], LARGEST)
    )


def _not_now(words: str) -> bool:
    return any(sign in words for sign in NOT_NOW)


async def _body(response: aiohttp.ClientResponse, largest: int, where: str) -> bytes:
    """Unanswered: packed, larger than allowed, or denser than anything PD says."""
    if response.headers.get("Content-Encoding", "identity").lower() not in {"", "identity"}:
        raise UnansweredError(f"PD at {where} answers with a compressed body, which is not unpacked")
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > largest:
            raise UnansweredError(f"PD at {where} answers with more than {largest // MIB} MiB")
    if is_dense(body):
        raise UnansweredError(f"PD at {where} answers with more values than any PD has")
    return bytes(body)
