"""`mooring page`: several clusters on one page, a line each: its verdict, and a link to its own page.

It runs on the machine of the person who reads it, answers on loopback alone, and only reads: each cluster's Mooring is
asked for one frame every few seconds, in a thread of its own, so that a silent one holds up no other.
"""

import json
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Annotated, Any, Final

import msgspec
from cyclopts import App, Parameter

from mooring.cli.connect import Kubeconfig, MooringNamespace
from mooring.cli.output import Format, Output, note, print_json, print_table
from mooring.cli.server import OWN_NAMESPACE, Reach, address, ask
from mooring.core.model.exits import Exit, UserError

app = App(name="page")

#: How often a cluster is asked, and how long it may take.
EVERY_S: Final = 3.0
ANSWER_S: Final = 5.0
PORT: Final = 8389
#: Those that need somebody first.
ORDER: Final = ("needs-you", "unknown", "waiting", "safe")
COLUMNS: Final = ("CLUSTER", "WAITING", "RUNNING", "MOVED TODAY", "VERDICT")
FILES: Final = {
    "/": ("clusters.html", "text/html"),
    "/static/clusters.js": ("clusters.js", "text/javascript"),
    "/static/page.css": ("page.css", "text/css"),
    "/static/icon.svg": ("icon.svg", "image/svg+xml"),
}


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What one cluster said last, or why it says nothing."""

    name: str
    #: Of its own page; empty while it cannot be reached.
    link: str = ""
    state: str = "unknown"
    words: str = "? Unknown: it was not asked yet"
    waiting: int | None = None
    running: int | None = None
    moved: int | None = None
    needs: int | None = None
    #: What to type there.
    type: str = ""
    #: When it answered last, in seconds since 1970.
    seen: float | None = None


def look(name: str, reach: Reach, before: Line | None = None) -> Line:
    """One cluster's line now. One that does not answer keeps its figures from before, and says so."""
    try:
        head = ask(reach, "/api/v1/frame", timeout_s=ANSWER_S)["head"]
        verdict = head["verdict"]
        return Line(
            name=str(head.get("cluster") or name),
            link=address(reach),
            state=str(verdict["state"]),
            words=str(verdict["words"]),
            waiting=int(head["waiting"]),
            running=int(head["running"]),
            moved=int(head["moved"]),
            needs=int(head["needs"]),
            type=str(head["needs_do"]) if head["needs"] else "",
            seen=time.time(),
        )
    except UserError as error:
        said = str(error).partition("; reach one with")[0]
    except (KeyError, TypeError, ValueError):
        said = "what answers there is no Mooring of this version"
    last = before or Line(name=name)
    return msgspec.structs.replace(last, state="unknown", words=f"? Unknown: {said}", type="")


class Clusters:
    """The newest line of each, kept by a thread each."""

    def __init__(self, reaches: Sequence[tuple[str, Reach]]) -> None:
        self._reaches = reaches
        self._lines = [Line(name=name) for name, _ in reaches]
        self._over = threading.Event()

    def start(self) -> None:
        for number in range(len(self._reaches)):
            threading.Thread(target=self._follow, args=(number,), daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def once(self) -> list[Line]:
        """Each asked now, all at the same time."""
        threads = [threading.Thread(target=self._ask, args=(n,), daemon=True) for n in range(len(self._reaches))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.lines()

    def lines(self) -> list[Line]:
        return sorted(self._lines, key=lambda line: (rank(line), line.name))

    def _follow(self, number: int) -> None:
        while not self._over.is_set():
            self._ask(number)
            self._over.wait(EVERY_S)

    def _ask(self, number: int) -> None:
        name, reach = self._reaches[number]
        self._lines[number] = look(name, reach, self._lines[number])


def rank(line: Line) -> int:
    return ORDER.index(line.state) if line.state in ORDER else 0


@app.default
def page(
    *,
    server: Annotated[tuple[str, ...], Parameter(help="Where a Mooring answers; may repeat.")] = (),
    context: Annotated[
        tuple[str, ...], Parameter(help="A context of the kubeconfig, whose Mooring is reached by kubectl; may repeat.")
    ] = (),
    kubeconfig: Kubeconfig = "",
    own: MooringNamespace = OWN_NAMESPACE,
    port: Annotated[int, Parameter(help="The port of the page on loopback.")] = PORT,
    once: Annotated[bool, Parameter(help="Print the lines once instead of serving them.")] = False,
    output: Output = Format.TABLE,
) -> int:
    """Show several clusters on one page: a line each with its verdict, and a link to its own page. It only reads.

    With --once, exit 0: all are safe or waiting. 1: one needs you. 4: one could not be asked.

    Example: mooring page --context prod-eu --context prod-us

    Example: mooring page --server https://mooring.eu.example:8390 --server https://mooring.us.example:8390 --once
    """
    reaches = [(url, Reach(server=url)) for url in server]
    reaches += [(name, Reach(kubeconfig=kubeconfig, context=name, own=own)) for name in context]
    clusters = Clusters(reaches or [(kubeconfig or "this cluster", Reach(kubeconfig=kubeconfig, own=own))])
    if once or output is not Format.TABLE:
        return _print(clusters.once(), output)
    if not 0 < port < 65536:
        raise UserError(f"--port {port}: it must be between 1 and 65535")
    try:
        served = serve(clusters, port)
    except OSError as error:
        raise UserError(f"--port {port}: {error.strerror}; name another one") from None
    clusters.start()
    note(f"{len(clusters.lines())} clusters on http://127.0.0.1:{port}; Ctrl-C stops")
    try:
        served.serve_forever()
    except KeyboardInterrupt:
        note("stopped")
    finally:
        clusters.stop()
        served.server_close()
    return Exit.DONE


def _print(lines: Sequence[Line], output: Format) -> int:
    if output is Format.TABLE:
        counts = [tuple(map(_count, (line.waiting, line.running, line.moved))) for line in lines]
        print_table(COLUMNS, [(line.name, *n, line.words) for line, n in zip(lines, counts, strict=True)])
    else:
        print_json({"clusters": lines})
    if any(line.state == "unknown" for line in lines):
        return Exit.UNREACHABLE
    return Exit.CHECK_FAILED if any(line.state == "needs-you" for line in lines) else Exit.DONE


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def serve(clusters: Clusters, port: int) -> ThreadingHTTPServer:
    """On loopback, for GET alone, and for names of this machine alone: no page of others reaches it by DNS."""
    from mooring.process.http.page import HEADERS

    static = resources.files("mooring.process.http").joinpath("static")

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = self.headers.get("Host", "").rpartition(":")[0]
            if host not in {"127.0.0.1", "localhost", "[::1]"} or self.headers.get("Sec-Fetch-Site", "none") not in {
                "none",
                "same-origin",
            }:
                self._say(403, b"only pages of this machine may ask\n", "text/plain")
            elif self.path == "/api/clusters":
                body = json.dumps({"now": time.time(), "clusters": msgspec.to_builtins(clusters.lines())})
                self._say(200, body.encode(), "application/json")
            elif self.path in FILES:
                name, kind = FILES[self.path]
                self._say(200, static.joinpath(name).read_bytes(), kind)
            else:
                self._say(404, b"not found\n", "text/plain")

        def _say(self, code: int, body: bytes, kind: str) -> None:
            self.send_response(code)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            for key, value in HEADERS.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nobody reads a line per request."""

    return ThreadingHTTPServer(("127.0.0.1", port), Answers)
