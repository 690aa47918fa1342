"""The scheduler extender over HTTP: `POST /scheduler/filter|prioritize|preempt`, on every replica.

Fails open: a replica that is not synced, a feature that is off, a defect of ours: every candidate passes. Bad input is
answered with a 4xx and a sentence; a connection is never dropped, and a body above the limit is read to its end first,
so that the sender gets the answer. Nothing here calls the API server.

Who may ask: callers on loopback; from elsewhere only those with a certificate of `extender-certificates` (then the TLS
handshake has checked it) or with `extender-token`, which kube-scheduler sends when it stands in `urlPrefix`
(`http://mooring:TOKEN@HOST:10262/scheduler`).
"""

import base64
import binascii
import hmac
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web

from mooring.capabilities.home.policy import HomePolicy
from mooring.capabilities.home.verbs import VerbAnswer, Verbs
from mooring.capabilities.home.wire import BadRequestError, TooManyError
from mooring.capabilities.registry import serving
from mooring.core.model.limits import MIB
from mooring.process.http.intake import BodyIntake, BodyRefusedError
from mooring.process.replica import Replica

log = structlog.get_logger()

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

VERBS: Final = ("filter", "prioritize", "preempt")
COUNTER: Final = "mooring_extender_requests_total"


def extender_app(replica: Replica, intake: BodyIntake, *, open_to_all: bool) -> web.Application:
    """The extender of a replica. It answers from the first moment: until the world is synced, everything passes.
    `open_to_all`: requests need no token, since the listener is on loopback or checks certificates."""
    engine = replica.engine

    def policy() -> HomePolicy:
        return replica.config.policy(HomePolicy)

    verbs = Verbs(
        replica.world,
        policy,
        lambda: engine.synced and serving("extender", engine.on | engine.observing),
        lambda: serving("extender", engine.observing),
    )
    token = None if open_to_all else replica.config.extender_token
    return app_of(verbs, policy, replica.metrics.count, intake=intake, token=token)


def app_of(
    verbs: Verbs,
    policy: Callable[[], HomePolicy],
    count: Callable[..., None],
    *,
    intake: BodyIntake | None = None,
    token: str | None = None,
) -> web.Application:
    """`token` None: none is needed. Empty: none is valid, so every request is refused."""
    pages = ExtenderPages(verbs, intake or BodyIntake(), limit=lambda: policy().body_limit_mb * MIB, count=count)
    # The limit is ours to keep: aiohttp's own would answer while the sender still sends.
    app = web.Application(client_max_size=0, middlewares=[] if token is None else [_only_with(token)])
    app.router.add_post("/scheduler/filter", pages.filter)
    app.router.add_post("/scheduler/prioritize", pages.prioritize)
    app.router.add_post("/scheduler/preempt", pages.preempt)
    app.router.add_route("*", "/{rest:.*}", pages.unknown)
    return app


class ExtenderPages:
    def __init__(
        self, verbs: Verbs, intake: BodyIntake, *, limit: Callable[[], int], count: Callable[..., None]
    ) -> None:
        self._verbs = verbs
        self._intake = intake
        self._limit = limit
        self._count = count

    async def filter(self, request: web.Request) -> web.Response:
        return await self._answer(request, "filter", self._verbs.filter)

    async def prioritize(self, request: web.Request) -> web.Response:
        return await self._answer(request, "prioritize", self._verbs.prioritize)

    async def preempt(self, request: web.Request) -> web.Response:
        return await self._answer(request, "preempt", self._verbs.preempt)

    async def unknown(self, request: web.Request) -> web.Response:
        try:
            async with self._intake.body(request, self._limit()):
                pass
        except BodyRefusedError as refused:
            return _refusal(refused)
        known = ", ".join(f"/scheduler/{verb}" for verb in VERBS)
        if request.path in {f"/scheduler/{verb}" for verb in VERBS}:
            return _sentence(405, f"{request.method} {request.path}: write POST", headers={"Allow": "POST"})
        return _sentence(404, f"no verb at {request.path[:200]}; there are {known}")

    async def _answer(self, request: web.Request, verb: str, decide: Callable[[bytes], VerbAnswer]) -> web.Response:
        try:
            async with self._intake.body(request, self._limit()) as body:
                return self._decided(verb, decide, body)
        except BodyRefusedError as refused:
            self._count(COUNTER, {"verb": verb, "reason": refused.reason})
            return _refusal(refused, "; raise home.body-limit-mb" if refused.status == 413 else "")

    def _decided(self, verb: str, decide: Callable[[bytes], VerbAnswer], body: bytes) -> web.Response:
        try:
            answer = decide(body)
        except TooManyError as error:
            self._count(COUNTER, {"verb": verb, "reason": "too-large"})
            return _sentence(413, str(error))
        except BadRequestError as error:
            self._count(COUNTER, {"verb": verb, "reason": "invalid"})
            return _sentence(400, str(error))
        except Exception:
            # A bug here must not keep pods from being scheduled.
            log.exception("extender.failed", verb=verb)
            self._count(COUNTER, {"verb": verb, "reason": "failed"})
            return web.Response(body=self._verbs.unchanged(verb, body), content_type="application/json")
        self._count(COUNTER, {"verb": verb, "reason": answer.reason})
        return web.Response(body=answer.body, content_type="application/json")


def _only_with(token: str) -> Any:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if token and hmac.compare_digest(_shown(request), token.encode()):
            return await handler(request)
        said = "only callers on loopback, or with extender-token: http://mooring:TOKEN@HOST:PORT/scheduler"
        return _closing(_sentence(401, said))

    return guard


def _shown(request: web.Request) -> bytes:
    """The token in `Authorization`: as a bearer's, or as the password of Basic, which Go makes of a URL's."""
    kind, _, value = request.headers.get("Authorization", "").partition(" ")
    given = value.strip().encode("utf-8", "surrogateescape")
    if kind.lower() != "basic":
        return given
    try:
        return base64.b64decode(given, validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


def _refusal(refused: BodyRefusedError, more: str = "") -> web.Response:
    response = _sentence(refused.status, f"{refused}{more}")
    return _closing(response) if refused.reason == "late" else response


def _closing(response: web.Response) -> web.Response:
    response.force_close()
    return response


def _sentence(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    body = msgspec.json.encode({"Error": text})
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)
