"""Health, readiness, metrics and the read-only API. Read only, loopback by default, a token when it is not.

`/readyz` fails closed: ready means synced and able to serve what is switched on. Everything else answers with what is
known, and says how old it is.
"""

import asyncio
import contextlib
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any

import msgspec
from aiohttp import web

from mooring.capabilities.registry import descriptors
from mooring.core.model.descriptor import Descriptor
from mooring.process.http.page import Page
from mooring.process.http.queuerows import queue_answer
from mooring.process.http.served_replica import Find, replica_behind
from mooring.process.http.why import full_answer, not_found
from mooring.process.replica import Replica

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: Bytes of a recording that are sent at a time.
BLOCK = 1 << 18
#: Answered without a token: an orchestrator's probes carry none, and the page's own files hold no data.
OPEN = frozenset({"/", "/healthz", "/readyz"})
FILES = "/static/"
#: So many fetch a recording at a time, and each takes what it is sent within this time.
MOST_FETCHING = 4
UNREAD_S = 30.0
#: The host names of loopback. A request with another Host header comes from a foreign page (DNS rebinding).
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
#: What browsers say of a request that no other site's page made: by our own page, or typed by a person.
OWN_SITE = frozenset({"same-origin", "none"})


def status_app(
    replica: Find,
    *,
    token: str = "",
    on_loopback: bool = True,
    cluster: str = "",
    beside: Callable[[], Mapping[str, Any]] = dict,
    page: Page | None = None,
) -> web.Application:
    """`replica` names the one to ask: in the demo replicas come and go. `cluster` and `beside` are for the page, unless
    there is one."""
    pages = StatusPages(replica)
    app = web.Application(middlewares=[_guard(token, on_loopback=on_loopback)])
    app.add_routes(
        [
            web.get("/healthz", pages.healthz),
            web.get("/readyz", pages.readyz),
            web.get("/metrics", pages.metrics),
            web.get("/api/v1/status", pages.status),
            web.get("/api/v1/queue", pages.queue),
            web.get("/api/v1/why/{subject:.+}", pages.why),
            web.get("/api/v1/blackbox", pages.blackbox, allow_head=False),
            *(web.get(f"/api/v1/{one.name}", _report(replica, one)) for one in descriptors() if one.report),
            *(web.get(f"/api/v1/{d.name}/{{object:.+}}", _detail(replica, d)) for d in descriptors() if d.detail),
        ]
    )
    (page or Page(replica, cluster=cluster, beside=beside)).add_to(app)
    return app


def _report(find: Find, descriptor: Descriptor) -> Handler:
    """What a capability says of its objects; any replica answers, only the one that leads knows what waits and runs."""

    async def answer(_: web.Request) -> web.Response:
        replica = replica_behind(find)
        engine = replica.engine
        assert descriptor.report is not None
        found = descriptor.report(engine, replica.config)
        if isinstance(found, Generator):
            found = await _slowly(found)
        return _json({**found, "on": descriptor.name in engine.on, "synced": engine.synced})

    return answer


async def _slowly(report: Generator[None, None, Mapping[str, Any]]) -> Mapping[str, Any]:
    while True:
        try:
            next(report)
        except StopIteration as end:
            found: Mapping[str, Any] = end.value
            return found
        await asyncio.sleep(0)


def _detail(find: Find, descriptor: Descriptor) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        engine, name = replica_behind(find).engine, request.match_info["object"]
        assert descriptor.detail is not None
        found = descriptor.detail(engine, name)
        if found is None:
            return _json({"error": f"there is no {name}"}, status=404)
        return _json({**found, "on": descriptor.name in engine.on})

    return answer


class StatusPages:
    def __init__(self, replica: Find) -> None:
        self._find = replica
        #: How many fetch the recording.
        self._fetching = 0

    @property
    def _replica(self) -> Replica:
        return replica_behind(self._find)

    async def healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(self, _: web.Request) -> web.Response:
        missing = self._replica.not_ready()
        if missing:
            return web.Response(status=503, text="not ready: " + "; ".join(missing) + "\n")
        return web.Response(text="ok\n")

    async def metrics(self, _: web.Request) -> web.Response:
        replica = self._replica
        replica.metrics.look_at(replica.engine, replica.shell.backlog)
        return web.Response(body=replica.metrics.render(), headers={"Content-Type": "text/plain; version=0.0.4"})

    async def status(self, _: web.Request) -> web.Response:
        engine = self._replica.engine
        return _json(
            {
                "identity": self._replica.identity,
                "leader": self._replica.elector.holder,
                "leading": engine.leading,
                "deciding": engine.deciding,
                "synced": engine.synced,
                "features": sorted(engine.on),
                "observing": sorted(engine.observing),
                "paused": {name: msgspec.to_builtins(pause) for name, pause in sorted(engine.holds.pauses.items())},
                "would": sum(map(len, engine.would.values())),
                "running": len(engine.running),
                "waiting": len(engine.waiting),
                "blackbox_stopped": box.stopped if (box := self._replica.blackbox) is not None else "",
            }
        )

    async def queue(self, _: web.Request) -> web.Response:
        return _json(queue_answer(self._replica.engine, self._replica.shell.now()))

    async def why(self, request: web.Request) -> web.Response:
        subject, namespace = request.match_info["subject"], request.query.get("namespace", "")
        found = await full_answer(self._replica, subject, namespace)
        if found is None:
            return _json({"error": not_found(self._replica.engine, subject, namespace)}, status=404)
        return _json(found)

    async def blackbox(self, request: web.Request) -> web.StreamResponse:
        """The recording as far as it is written. Its files stay open meanwhile, so few may fetch it at a time, and none
        who does not read."""
        if self._fetching >= MOST_FETCHING:
            return _json({"error": "others fetch the recording just now; try again in a minute"}, status=503)
        self._fetching += 1
        try:
            return await self._recording(request)
        finally:
            self._fetching -= 1

    async def _recording(self, request: web.Request) -> web.StreamResponse:
        box = self._replica.blackbox
        with contextlib.ExitStack() as open_files:
            # Opened first: a part that makes room for a new one meanwhile is still read to its end.
            paths = [path for path in (box.paths if box is not None else ()) if path.exists()]
            files = [open_files.enter_context(path.open("rb")) for path in paths]
            if not files:
                return _json({"error": "nothing is recorded there; mooring run --blackbox DIR does"}, status=404)
            answer = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
            await answer.prepare(request)
            try:
                for file in files:
                    while block := await asyncio.to_thread(file.read, BLOCK):
                        async with asyncio.timeout(UNREAD_S):
                            await answer.write(block)
            except TimeoutError:
                if request.transport is not None:
                    request.transport.abort()
                return answer
            await answer.write_eof()
            return answer


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


def _guard(token: str, *, on_loopback: bool) -> Callable[..., Awaitable[web.StreamResponse]]:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        # Without a Host header `request.host` would look up the name of this machine, and block on it.
        host = request.headers.get("Host", "localhost")
        if on_loopback and not _is_local(host):
            return web.Response(status=421, text=f"this is not {host!r}; ask for localhost or 127.0.0.1\n")
        is_open = request.path in OPEN or request.path.startswith(FILES)
        if not is_open and request.headers.get("Sec-Fetch-Site", "none") not in OWN_SITE:
            # It could not read the answer, and yet have us make it: a replay, a recording.
            return web.Response(status=403, text="another site's page asks this; open the page itself\n")
        if on_loopback or is_open:
            return await handler(request)
        given = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        if not token or not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), token.encode()):
            return web.Response(status=401, text="a bearer token is required here (http-token)\n")
        return await handler(request)

    return guard


def _is_local(host: str) -> bool:
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name in LOCAL_NAMES or is_loopback(name)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
