"""The admission webhooks over HTTPS, and the way from one replica to the one that leads.

    POST /admit/pods        mutating; fails open. The lease holder decides; a follower passes the request on to it.
    POST /admit/workloads   validating; every replica, from the request alone; fails open.
    POST /admit/responders  mutating; every replica; fails open. Only where the API server has Evictions.
    POST /admit/evictions   validating; fails open. The lease holder for guarded pods, every replica for all others.
    POST /pass-on/pods      between replicas: as /admit/pods, for callers with our certificate: by issuer and by name.
    POST /pass-on/evictions likewise.

A body that is not an AdmissionReview gets a 400 that says what is wrong: to the API server the call has failed, and
the failurePolicy (Ignore) lets the object pass. A caller of /pass-on without our certificate gets a 403; so does one of
/admit without a certificate of `webhook-client-ca`, where that is given.
"""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import aiohttp
import structlog
from aiohttp import web

from mooring.capabilities.mix.admission.reviews import BadReviewError
from mooring.core.model.limits import MIB
from mooring.process.admission.reloading_tls import ReloadingTls
from mooring.process.admission.reviewer import PODS, NotLeadingError, Reviewer
from mooring.process.http.intake import BodyIntake, BodyRefusedError
from mooring.process.http.listening import Listener

log = structlog.get_logger()

#: The largest object that Kubernetes stores has 1.5 MiB; old and new come together.
LARGEST: Final = 3 * MIB
#: Longer than a request waits for the watch: said in the log.
SLOW_S: Final = 0.5
#: A leader that has not answered by then may have been followed by another: look, and again as often.
LATE_S: Final = 0.3
#: How long a connection to the leader may take.
CONNECT_S: Final = 10.0
#: How often, and how many times, a server that stops looks whether its connections have ended.
LEAVE_S: Final = 0.1
LEAVES_WITHIN: Final = 10


def webhook_app(reviewer: Reviewer, intake: BodyIntake, front: ReloadingTls) -> web.Application:
    pages = WebhookPages(reviewer, intake, front)
    app = web.Application(client_max_size=0)
    app.add_routes(
        [
            web.post("/admit/pods", pages.pods),
            web.post("/admit/workloads", pages.workloads),
            web.post("/admit/responders", pages.responders),
            web.post("/admit/evictions", pages.evictions),
            web.post("/pass-on/pods", pages.passed_on),
            web.post("/pass-on/evictions", pages.passed_on),
        ]
    )
    return app


class WebhookPages:
    def __init__(self, reviewer: Reviewer, intake: BodyIntake, front: ReloadingTls) -> None:
        self._reviewer = reviewer
        self._front = front
        self._intake = intake

    async def pods(self, request: web.Request) -> web.Response:
        """Fails open."""
        return self._stranger(request) or await self._answered(self._reviewer.pods, request)

    async def responders(self, request: web.Request) -> web.Response:
        """Fails open."""
        return self._stranger(request) or await self._answered(self._reviewer.responders, request)

    async def evictions(self, request: web.Request) -> web.Response:
        """Fails open."""
        return self._stranger(request) or await self._answered(self._reviewer.evictions, request)

    async def workloads(self, request: web.Request) -> web.Response:
        """Fails open."""
        return self._stranger(request) or await self._answered(self._reviewer.workloads, request)

    def _stranger(self, request: web.Request) -> web.Response | None:
        if self._front.knows(_certificate(request)):
            return None
        return _closing(web.Response(status=403, text="a client certificate is required here (webhook-client-ca)\n"))

    async def passed_on(self, request: web.Request) -> web.Response:
        """Fails closed for unknown callers, open for replicas. Never forwarded a second time."""
        # Our authorities may have issued other certificates, too: the name counts, as that of a host.
        names: Any = _certificate(request).get("subjectAltName", ())
        if not any(name == self._front.peer_name and kind in {"DNS", "IP Address"} for kind, name in names):
            return web.Response(status=403, text="only replicas of Mooring pass requests on, with their certificate\n")
        review = self._reviewer.pods if request.path.endswith(PODS) else self._reviewer.evictions
        try:
            return await self._answered(lambda body: review(body, passed_on=True), request)
        except NotLeadingError:
            return web.Response(status=503, text="this replica does not lead\n")

    async def _answered(self, review: Callable[[bytes], Awaitable[bytes]], request: web.Request) -> web.Response:
        began = time.perf_counter()
        try:
            async with self._intake.body(request, LARGEST) as body:
                answer = await review(body)
        except BadReviewError as error:
            return web.Response(status=400, text=f"{error}\n")
        except BodyRefusedError as refused:
            response = web.Response(status=refused.status, text=f"{refused}\n")
            return _closing(response) if refused.reason == "late" else response
        except RecursionError:
            return web.Response(status=400, text="not an AdmissionReview: it is nested too deep\n")
        took_s = time.perf_counter() - began
        self._reviewer.took(request.path, took_s)
        if took_s > SLOW_S:
            log.warning("webhook.slow", path=request.path, seconds=round(took_s, 3))
        return web.Response(body=answer, content_type="application/json")


def _certificate(request: web.Request) -> Mapping[str, Any]:
    """The caller's certificate; empty unless an authority that we trust has issued it."""
    tls: ssl.SSLObject | None = request.get_extra_info("ssl_object")
    return (tls.getpeercert() if tls is not None else None) or {}


def _closing(response: web.Response) -> web.Response:
    response.force_close()
    return response


class LeaderForwarder:
    """Carries a follower's requests to the lease holder. `holder()`: the address it published, or ""; `look()` has the
    lease looked at.

    A leader that is slow is asked once and waited for, and the first connection to it outlives the request that wanted
    it: TLS handshakes are most of the work, and a busy leader whose callers ask again and again would do nothing else.
    Only a lease with another holder ends the waiting."""

    def __init__(self, front: ReloadingTls, holder: Callable[[], str], look: Callable[[], None] = lambda: None) -> None:
        self._front = front
        self._holder = holder
        self._look = look
        self._session: aiohttp.ClientSession | None = None
        #: The address to which a connection is being made, or was made.
        self._connecting: tuple[str, asyncio.Task[bool]] | None = None

    async def __call__(self, what: str, body: bytes, within_s: float) -> bytes | None:
        """The leader's answer, or None: it could not be had within these seconds, or another one leads."""
        address = self._holder()
        if not address or self._front.client is None:
            return None
        asking = asyncio.ensure_future(self._ask(f"{address}/pass-on/{what}", address, body, within_s))
        try:
            while not (await asyncio.wait({asking}, timeout=LATE_S))[0]:
                if self._holder() != address:
                    return None
                self._look()
            return None if asking.cancelled() else asking.result()  # its connection was given up: another one leads
        finally:
            asking.cancel()

    async def _ask(self, url: str, address: str, body: bytes, within_s: float) -> bytes | None:
        try:
            async with asyncio.timeout(within_s):
                if not await asyncio.shield(self._connection(address)):
                    return None
                async with self._call("POST", url, within_s, body) as answer:
                    if answer.status == 200:
                        said: bytes = await answer.read()
                        return said
                    log.warning("admission.not-forwarded", leader=address, status=answer.status)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            log.warning("admission.not-forwarded", leader=address, error=f"{type(error).__name__}: {error}")
            if self._connecting is not None and self._connecting[0] == address and self._connecting[1].done():
                self._connecting = None  # the next request makes a connection first
        return None

    def _connection(self, address: str) -> asyncio.Task[bool]:
        if self._connecting is not None and self._connecting[0] != address:
            self._connecting[1].cancel()
            self._connecting = None
        if self._connecting is None or (self._connecting[1].done() and not self._connecting[1].result()):
            self._connecting = address, asyncio.ensure_future(self._connect(address))
        return self._connecting[1]

    async def _connect(self, address: str) -> bool:
        """Leaves a connection in the session. False: it could not be made."""
        try:
            async with self._call("GET", f"{address}/pass-on/{PODS}", CONNECT_S) as answer:
                await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            log.warning("admission.not-forwarded", leader=address, error=f"{type(error).__name__}: {error}")
            return False
        return True

    def _call(self, method: str, url: str, within_s: float, body: bytes | None = None) -> Any:
        assert self._front.client is not None
        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=False)
        return self._session.request(
            method,
            f"https://{url}",
            data=body,
            headers={"Content-Type": "application/json"},
            ssl=self._front.client,
            server_hostname=self._front.peer_name,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=within_s),
        )

    async def close(self) -> None:
        if self._connecting is not None:
            self._connecting[1].cancel()
        if self._session is not None:
            await self._session.close()


class WebhookServer:
    """The listening side; the address it got is `port`."""

    def __init__(
        self, reviewer: Reviewer, front: ReloadingTls, host: str, port: int, intake: BodyIntake | None = None
    ) -> None:
        self._front = front
        self._host, self.port = host, port
        self._leaving = False
        app = webhook_app(reviewer, intake or BodyIntake(), front)
        app.on_response_prepare.append(self._part)
        self._listener = Listener(app, shutdown_timeout=2.0)

    @property
    def listens(self) -> bool:
        return self._listener.listens

    async def start(self) -> None:
        """OSError: the address is taken."""
        await self._listener.start(self._host, self.port, self._front.context)
        self.port = self._listener.port

    async def stop(self) -> None:
        """Every connection is closed, so that API servers look elsewhere: one in use with its next answer, for a
        request that meets a closing connection is a call that failed; the idle ones a moment later."""
        self._leaving = True
        for _ in range(LEAVES_WITHIN):
            if not self._listener.connections:
                break
            await asyncio.sleep(LEAVE_S)
        await self._listener.stop()

    async def _part(self, _: web.Request, response: web.StreamResponse) -> None:
        if self._leaving:
            response.force_close()
            response.headers["Connection"] = "close"  # its headers are made by now
