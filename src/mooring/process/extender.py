"""The scheduler extender over HTTP: `POST /scheduler/filter|prioritize|preempt`, on every replica.

Fails open: a replica that is not synced, a feature that is off, a defect of ours: every candidate passes. Bad input is
answered with a 4xx and a sentence; a connection is never dropped, and a body above the limit is read to its end first,
so that the sender hears the answer. Nothing here calls the API server.
"""

from collections.abc import Callable
from typing import Final

import msgspec
import structlog
from aiohttp import web

from mooring.capabilities.home.policy import HomePolicy
from mooring.capabilities.home.verbs import Answer, Verbs
from mooring.capabilities.home.wire import BadRequest
from mooring.process.replica import Replica

log = structlog.get_logger()

VERBS: Final = ("filter", "prioritize", "preempt")
COUNTER: Final = "mooring_extender_requests_total"
MIB: Final = 1 << 20


def extender_app(replica: Replica) -> web.Application:
    """The extender of a replica. It answers from the first moment: until the world is synced, everything passes."""
    engine, policy = replica.engine, replica.config.home
    verbs = Verbs(replica.world, policy, lambda: engine.synced and "home" in engine.on)
    return app_of(verbs, policy, replica.metrics.count)


def app_of(verbs: Verbs, policy: HomePolicy, count: Callable[..., None]) -> web.Application:
    pages = ExtenderPages(verbs, limit=policy.body_limit_mb * MIB, count=count)
    # The limit is ours to keep: aiohttp's own would answer while the sender still sends.
    app = web.Application(client_max_size=0)
    app.router.add_post("/scheduler/filter", pages.filter)
    app.router.add_post("/scheduler/prioritize", pages.prioritize)
    app.router.add_post("/scheduler/preempt", pages.preempt)
    app.router.add_route("*", "/{rest:.*}", pages.unknown)
    return app


class ExtenderPages:
    def __init__(self, verbs: Verbs, *, limit: int, count: Callable[..., None]) -> None:
        self._verbs = verbs
        self._limit = limit
        self._count = count

    async def filter(self, request: web.Request) -> web.Response:
        return await self._answer(request, "filter", self._verbs.filter)

    async def prioritize(self, request: web.Request) -> web.Response:
        return await self._answer(request, "prioritize", self._verbs.prioritize)

    async def preempt(self, request: web.Request) -> web.Response:
        return await self._answer(request, "preempt", self._verbs.preempt)

    async def unknown(self, request: web.Request) -> web.Response:
        await self._read(request)
        known = ", ".join(f"/scheduler/{verb}" for verb in VERBS)
        if request.path in {f"/scheduler/{verb}" for verb in VERBS}:
            return _sentence(405, f"{request.method} {request.path}: write POST", headers={"Allow": "POST"})
        return _sentence(404, f"no verb at {request.path}; there are {known}")

    async def _answer(self, request: web.Request, verb: str, decide: Callable[[bytes], Answer]) -> web.Response:
        try:
            body = await self._read(request)
        except web.RequestPayloadError as error:
            self._count(COUNTER, {"verb": verb, "reason": "invalid"})
            return _sentence(400, f"the body cannot be read: {' '.join(str(error).split())}; plain JSON is wanted")
        if body is None:
            self._count(COUNTER, {"verb": verb, "reason": "too-large"})
            return _sentence(413, f"the request is larger than {self._limit // MIB} MB; raise home.body-limit-mb")
        try:
            answer = decide(body)
        except BadRequest as error:
            self._count(COUNTER, {"verb": verb, "reason": "invalid"})
            return _sentence(400, str(error))
        except Exception:
            # A defect of ours must not keep pods from being scheduled.
            log.exception("extender.failed", verb=verb)
            self._count(COUNTER, {"verb": verb, "reason": "failed"})
            return web.Response(body=self._verbs.unchanged(verb, body), content_type="application/json")
        self._count(COUNTER, {"verb": verb, "reason": answer.reason})
        return web.Response(body=answer.body, content_type="application/json")

    async def _read(self, request: web.Request) -> bytes | None:
        """The whole body, or None when it is too large; either way it has been read to its end."""
        content = request.content
        chunks, size = [], 0
        while chunk := await content.readany():
            size += len(chunk)
            if size <= self._limit:
                chunks.append(chunk)
            else:
                chunks.clear()
        if size > self._limit:
            return None
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _sentence(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    body = msgspec.json.encode({"Error": text})
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)
