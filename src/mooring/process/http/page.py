"""The page: one HTML file, plain modules, one stylesheet; and what it asks for. Read only.

Nothing is loaded from other hosts, and the name of an object cannot run as code: the content policy allows our own
scripts, styles and connections and nothing else, and the modules set text, never markup. The files themselves hold no
data and are served without a token; everything they fetch wants one where the API does.
"""

import re
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any, Final

import msgspec
from aiohttp import web

from mooring.process.http.as_of import AsOf
from mooring.process.http.frames import Framer
from mooring.process.http.lists import PAGED, find, rack_words, row_page
from mooring.process.http.queuerows import standing_words
from mooring.process.http.served_replica import Find, no_replica, replica_behind
from mooring.process.http.stream import Hub, picture
from mooring.process.http.why import full_answer, render, unknown
from mooring.process.replica import Replica

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
#: Longer questions are cut, and a list has no page beyond this many digits.
MOST_WORDS: Final = 200
MOST_DIGITS: Final = 9
MOMENT: Final = re.compile(r"\d{1,11}(\.\d{1,9})?")


class Page:
    """The routes of the page; `hub` is shared by all viewers."""

    def __init__(
        self,
        find: Find,
        *,
        cluster: str = "",
        beside: Callable[[], Mapping[str, Any]] = dict,
        recording: Callable[[], str] | None = None,
    ) -> None:
        """`recording`: where what happened is recorded; not given: in the black box of the replica behind it."""
        self._find = find
        self.hub = Hub(Framer(find, cluster=cluster, beside=beside))
        self._as_of = AsOf(recording or self._black_box)
        self._files = {
            file.name: file.read_bytes()
            for file in resources.files("mooring.process.http").joinpath("static").iterdir()
            if file.name.rpartition(".")[2] in TYPES
        }

    def add_to(self, app: web.Application) -> None:
        app[PAGE] = self
        app.add_routes(
            [
                web.get("/", self.index),
                web.get("/static/{name}", self.file),
                web.get("/api/v1/stream", self.hub.serve),
                web.get("/api/v1/frame", self.frame),
                web.get("/api/v1/past", self.past),
                web.get("/api/v1/past/{seq}", self.past),
                web.get("/api/v1/rows/{view}", self.rows),
                web.get("/api/v1/find", self.find),
                web.get("/api/v1/say/{subject:.+}", self.say),
            ]
        )
        app.cleanup_ctx.append(self.hub.run)
        app.on_shutdown.append(self.hub.hang_up)
        app.on_shutdown.append(self._as_of.close)

    def tell(self, beside: Callable[[], Mapping[str, Any]]) -> None:
        """What else the head says from now on: the act of the demo."""
        self.hub.framer.beside = beside

    def _black_box(self) -> str:
        replica = self._find()
        return replica.config.blackbox.dir if replica is not None else ""

    @property
    def _replica(self) -> Replica:
        return replica_behind(self._find)

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
            raise no_replica()
        return _json(picture(frame))

    async def past(self, request: web.Request) -> web.Response:
        """What frames are kept; with the number of a piece, the events of that piece: a part of a recording."""
        text = request.match_info.get("seq")
        if text is None:
            return _json(self.hub.past.index())
        found = self.hub.past.piece(int(text)) if text.isdecimal() and len(text) < 2 * MOST_DIGITS else None
        if found is None:
            raise web.HTTPNotFound(text=f"no piece begins with frame {text!r}; /api/v1/past lists them\n")
        return web.Response(body=found, headers={**HEADERS, "Content-Type": "text/event-stream; charset=utf-8"})

    async def rows(self, request: web.Request) -> web.Response:
        """One page of a whole view, what has news first: `/api/v1/rows/nodes?offset=400&q=rack 12`."""
        view = request.match_info["view"]
        if view not in PAGED:
            raise web.HTTPNotFound(text=f"no list {view!r}; there are {', '.join(PAGED)}\n")
        text = request.query.get("offset", "0")
        offset = int(text) if text.isdecimal() and len(text) < MOST_DIGITS else 0
        return _json(await row_page(self.hub.framer, self._replica, view, offset, _words(request)))

    async def find(self, request: web.Request) -> web.Response:
        """Subjects of `why` whose name contains `?q=`."""
        wanted = _words(request)
        found, more = await find(self._replica, wanted)
        return _json({"q": wanted, "found": found, "more": more})

    async def say(self, request: web.Request) -> web.Response:
        """`why`, in the very words of the command line; with `?at=`, as of then, where the black box knows it. Racks,
        which it does not know, list their machines."""
        subject, at = request.match_info["subject"], request.query.get("at", "")
        if at:
            if MOMENT.fullmatch(at) is None:
                raise web.HTTPBadRequest(text="at: seconds since 1970, e.g. 1767261782.5\n")
            return _text(*await self._as_of.words(subject, float(at)))
        replica = self._replica
        if subject.startswith("rack/"):
            told = rack_words(self.hub.framer, replica, subject.removeprefix("rack/"))
            return _text(told if told is not None else f"no {subject} is known\n", 200 if told is not None else 404)
        found = await full_answer(replica, subject)
        if found is None:
            verdict = standing_words(replica.engine, subject)
            return _text(verdict or unknown(replica.engine, subject) + "\n", 200 if verdict else 404)
        lines = render(msgspec.to_builtins(found), everything="all" in request.query)
        return _text("\n".join(lines) + "\n", 200)


def _words(request: web.Request) -> str:
    return request.query.get("q", "").strip().lower()[:MOST_WORDS]


def _text(text: str, status: int) -> web.Response:
    return web.Response(text=text, status=status, headers=HEADERS)


def _json(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json", headers=HEADERS)


#: The page of an application, for the code that serves it.
PAGE: Final = web.AppKey("page", Page)
