"""A page beside a sweep: how far it is and where the cluster is weakest so far.

It is served by a process of its own, since a sweep forks and a process that forks must have no threads. The sweep sends
what it knows through a pipe; when the pipe ends, so does the page. No script and no file: each answer is the whole of
it, and asks to be fetched again while the sweep runs.
"""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

import msgspec
from aiohttp import web

from mooring.process.http.status import LOCAL_NAMES
from mooring_lab.rehearse.sweep.report import first_line, how_long, last_line, what_to_do
from mooring_lab.rehearse.sweep.sweep import Sweep
from mooring_lab.stage.dask import receive, send

_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;color-scheme:light dark}"
    "h1{font-size:1.25rem}table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;"
    "padding:.35rem .6rem;border-bottom:1px solid #8886}progress{width:100%}code{white-space:nowrap}"
)
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}


class Shown(msgspec.Struct, frozen=True):
    sweep: Sweep
    #: "1:20 left", "Mooring comes up on the snapshot", "" when it is over.
    words: str
    #: What is typed to look at one of its events: behind `mooring rehearse play EVENT`.
    flags: str


class SweepPage:
    """In the process of the sweep."""

    def __init__(self, listener: socket.socket) -> None:
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        descriptor = listener.fileno()
        command = [sys.executable, "-m", __name__, str(descriptor)]
        # A group of its own: Ctrl-C is the sweep's.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(descriptor,), start_new_session=True)
        listener.close()

    def show(self, shown: Shown) -> None:
        try:
            send(self._process.stdin, msgspec.msgpack.encode(shown))
        except OSError:
            return  # the page is gone; the sweep is what was asked for

    def wait(self) -> None:
        """Serves until Ctrl-C, which the caller handles."""
        self._process.wait()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


# ── In the process of the page ────────────────────────────────────────────────────────────────────────────────────


def html(shown: Shown) -> str:
    return "\n".join(_lines(shown))


def _lines(shown: Shown) -> Iterator[str]:
    sweep = shown.sweep
    yield '<!doctype html><html lang="en"><meta charset="utf-8">'
    if shown.words:
        yield '<meta http-equiv="refresh" content="2">'
    yield f"<title>{sweep.played} of {sweep.planned}: mooring rehearse sweep</title><style>{_STYLE}</style>"
    yield f"<h1>{escape(first_line(sweep) if sweep.played or not shown.words else 'Nothing is played yet')}</h1>"
    done = f"{sweep.played + len(sweep.failed)} of {sweep.planned} events"
    yield f'<p role="status">{done}{f"; {escape(shown.words)}" if shown.words else ""}</p>'
    yield f'<progress aria-label="{done}" max="{sweep.planned}" value="{sweep.played + len(sweep.failed)}"></progress>'
    yield f"<p>{escape(last_line(sweep))}; on {escape(sweep.source)}, as of {escape(sweep.taken_at)}</p>"
    if sweep.weakest:
        rows = [
            (str(at), one.object, one.promise, how_long(one), one.events, what_to_do(one))
            for at, one in enumerate(sweep.weakest, 1)
        ]
        yield from _table(("", "Object", "Promise", "Broken", "By", "What to do"), rows)
    unknown = [(one.event, words) for one in sweep.cannot_tell for words in one.cannot_tell] + list(sweep.failed)
    if unknown:
        yield "<h2>Cannot tell</h2>"
        yield from _table(("Event", "Why"), unknown)
    yield f"<p>One of them in full: <code>mooring rehearse play EVENT {escape(shown.flags)}</code></p></html>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str | Sequence[str]]]) -> Iterator[str]:
    yield f"<table><tr>{''.join(f'<th scope=col>{escape(one)}' for one in head)}"
    for row in rows:
        cells = (escape(cell) if isinstance(cell, str) else "<br>".join(map(escape, cell)) for cell in row)
        yield f"<tr>{''.join(f'<td>{cell}' for cell in cells)}"
    yield "</table>"


async def _serve(descriptor: int) -> None:
    listener = socket.socket(fileno=descriptor)
    shown: list[Shown] = []

    async def page(request: web.Request) -> web.Response:
        if (request.url.host or "") not in LOCAL_NAMES:
            raise web.HTTPForbidden(text="not a name of this machine")
        body = html(shown[-1]) if shown else "the sweep has not begun"
        return web.Response(text=body, content_type="text/html", headers=_HEADERS)

    app = web.Application()
    app.add_routes([web.get("/", page)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    while (body := await asyncio.to_thread(receive, sys.stdin.buffer)) is not None:
        shown[:] = [msgspec.msgpack.decode(body, type=Shown)]
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
