"""The page: one HTML file, plain modules, one stylesheet; and what it asks for. Read only.

Nothing comes from outside and nothing an object is called can run: the content policy allows our own scripts, styles
and connections and nothing else, and the modules set text, never markup. The files themselves hold no data and are
served without a token; everything they fetch wants one where the API does.
"""

import asyncio
from collections.abc import Callable
from importlib import resources
from typing import Any, Final

import msgspec
from aiohttp import web

from mooring.run.replica import Replica
from mooring.serve.frames import PAGE, Framer, whole
from mooring.serve.pagerows import node_row
from mooring.serve.saying import full_answer, render, unknown
from mooring.serve.stream import Hub, picture

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
TYPES: Final = {
    "html": "text/html",
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
}
MOST_FOUND: Final = 50
PODS_PER_SLICE: Final = 10_000


class Page:
    """The routes of the page; `hub` is shared by all viewers."""

    def __init__(self, find: Callable[[], Replica | None]) -> None:
        self._find = find
        self.hub = Hub(Framer(find))
        self._files = {
            file.name: file.read_bytes()
            for file in resources.files("mooring.serve").joinpath("static").iterdir()
            if file.name.rpartition(".")[2] in TYPES
        }

    def add_to(self, app: web.Application) -> None:
        app.add_routes(
            [
                web.get("/", self.index),
                web.get("/static/{name}", self.file),
                web.get("/api/v1/stream", self.hub.serve),
                web.get("/api/v1/frame", self.frame),
                web.get("/api/v1/nodes", self.nodes),
                web.get("/api/v1/find", self.find),
                web.get("/api/v1/say/{subject:.+}", self.say),
            ]
        )
        app.cleanup_ctx.append(self.hub.run)
        app.on_shutdown.append(self.hub.hang_up)

    @property
    def _replica(self) -> Replica:
        replica = self._find()
        if replica is None:
            raise web.HTTPServiceUnavailable(text="no replica runs just now\n")
        return replica

    async def index(self, _: web.Request) -> web.Response:
        return self._answer("index.html")

    async def file(self, request: web.Request) -> web.Response:
        return self._answer(request.match_info["name"])

    def _answer(self, name: str) -> web.Response:
        body = self._files.get(name)
        if body is None:
            raise web.HTTPNotFound(text=f"no file {name!r}\n")
        return web.Response(body=body, headers=HEADERS, content_type=TYPES[name.rpartition(".")[2]], charset="utf-8")

    async def frame(self, _: web.Request) -> web.Response:
        """One frame, whole: what the stream begins with, for those who look once (`mooring top`)."""
        frame = await self.hub.now()
        if frame is None:
            raise web.HTTPServiceUnavailable(text="no replica runs just now\n")
        return _json(picture(frame))

    async def nodes(self, request: web.Request) -> web.Response:
        """One page of all nodes, those with news first: `?offset=400`."""
        world = self._replica.world
        framer = self.hub.framer
        if not framer.node_names:
            await framer.build()
        text = request.query.get("offset", "0")
        offset = int(text) if text.isdigit() else 0
        names = framer.node_names[offset : offset + PAGE]
        found = [node for name in names if (node := world.node(name)) is not None]
        made = [whole(lambda n=n: node_row(world, n), n.name) for n in found]  # type: ignore[misc]
        return _json({"offset": offset, "total": len(framer.node_names), "rows": made})

    async def find(self, request: web.Request) -> web.Response:
        """Subjects whose name contains `?q=`: operators, nodes, clusters, pods. In slices: there may be 150,000."""
        wanted = request.query.get("q", "").strip().lower()
        found: list[str] = []
        if wanted:
            replica = self._replica
            engine, world = replica.engine, replica.world
            found += [
                f"operator/{o.id}" for o in engine.queue.operators() if wanted in f"op {o.id} {o.subject}".lower()
            ]
            found += sorted(f"node/{n.name}" for n in world.nodes() if wanted in n.name.lower())[:MOST_FOUND]
            found += sorted(f"cluster/{t.key}" for t in world.tidb_clusters() if wanted in str(t.key).lower())
            pods: list[str] = []
            for number, pod in enumerate(list(world.pods()), 1):
                if wanted in pod.name.lower() or wanted in f"{pod.namespace}/{pod.name}".lower():
                    pods.append(f"pod/{pod.namespace}/{pod.name}")
                    if len(pods) > 20 * MOST_FOUND:
                        break
                if number % PODS_PER_SLICE == 0:
                    await asyncio.sleep(0)
            found += sorted(pods)
        return _json({"q": wanted, "found": found[:MOST_FOUND], "more": max(0, len(found) - MOST_FOUND)})

    async def say(self, request: web.Request) -> web.Response:
        """`why`, in the very words of the command line."""
        subject = request.match_info["subject"]
        found = await full_answer(self._replica, subject)
        if found is None:
            return web.Response(status=404, text=unknown(self._replica.engine, subject) + "\n")
        lines = render(msgspec.to_builtins(found), everything="all" in request.query)
        return web.Response(text="\n".join(lines) + "\n", headers=HEADERS)


def _json(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json", headers=HEADERS)
