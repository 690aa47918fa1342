"""`mooring top`: keys, the filter, the line of keys; 60 columns; a dumb terminal prints and ends."""

import io
import os
import pty
import select
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import msgspec
import pytest
from rich.console import Console

from mooring.process.terminal.keys import BACK, DOWN, ENTER, ESCAPE, HELP, LINE, UP, View, matches, parsed
from mooring.process.terminal.screen import narrowed, screen, subjects


def table(*rows, **sums):
    return {"rows": {r["id"]: r for r in rows}, "order": [r["id"] for r in rows], "total": len(rows), "sums": sums}


ROW = {"id": "1", "op": "1", "state": "moving", "source": "handoff", "what": "restart tidb/demo-tikv-0", "step": "1/3"}
FRAME = {
    "as_of": 0.0,
    "head": {
        "identity": "m-0", "leader": "m-0", "needs": 0, "needs_words": "", "waiting": 0, "running": 1, "moved": 0,
        "not_ready": [],
    },
    "tables": {
        "queue": table({**ROW, "subject": "operator/1"}),
        "stores": table({"id": "tidb/demo/1", "leaders": 3}, {"id": "tidb/demo/2", "leaders": 4}),
        "nodes": table({"id": "n1", "cls": "spot", "news": "cordoned"}),
        "racks": table({"id": "2", "total": 1, "ok": 0, "glyphs": "~"}),
        "timeline": table(),
    },
}  # fmt: skip


def test_arrows_and_letters_choose_and_enter_asks_why():
    """The order of the screen; never beyond its ends."""
    view, all_ = View(), subjects(FRAME)
    assert all_ == ["operator/1", "store/tidb/demo/1", "store/tidb/demo/2", "node/n1", "rack/2"]
    for key in (DOWN, "j", "j", DOWN, "j", "j", "k", UP):
        assert view.press(key, all_) == ""
    assert view.press(ENTER, all_) == "store/tidb/demo/2"
    assert view.press("q", all_) == "quit"


def test_a_filter_is_typed_kept_and_cleared():
    """`/` opens it, letters are not keys meanwhile, Esc clears."""
    view = View()
    for key in ("/", "q", BACK, "n", "1"):
        assert view.press(key, []) == ""
    assert view.line().startswith("/n1")
    view.press(ENTER, [])
    assert subjects(FRAME, view.words) == ["node/n1"]
    assert "filter: n1" in view.line()
    view.press(ESCAPE, [])
    assert view.words == ""
    assert matches({"a": "Cordoned n1"}, "n1 cord")


def test_keys_and_answers_cover_the_tables_until_escape():
    """`?` lists the keys; q closes what is open instead of quitting."""
    view = View()
    view.press("?", [])
    assert view.over == list(HELP)
    assert view.press("q", []) == ""
    assert view.over == []


def test_bytes_of_a_terminal_are_keys():
    """Arrows come as escape codes, several keys in one read."""
    assert parsed(b"\x1b[B\x1b[Aj/\xc3\xa9\r\x7f\x1b") == [DOWN, UP, "j", "/", "é", ENTER, BACK, ESCAPE]


@pytest.mark.parametrize("width", [60, 140])
def test_it_fits_60_columns(width):
    """No line is wider than the terminal, and the line of keys is there."""
    out = io.StringIO()
    Console(file=out, width=width).print(screen(FRAME, height=40, width=width, view=View()))
    lines = out.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    assert lines[-1].startswith(LINE[:40])


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        why = {"answer": "op 1 is moving: so far", "state": "moving", "as_of": 0.0, "lines": []}
        self.wfile.write(msgspec.json.encode(why if "/why/" in self.path else FRAME))

    def log_message(self, *_):
        pass


@pytest.fixture
def url():
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def seen_until(fd: int, words: bytes) -> bytes:
    seen, deadline = b"", time.monotonic() + 30
    while words not in seen and time.monotonic() < deadline:
        if select.select([fd], [], [], 0.5)[0]:
            try:
                seen += os.read(fd, 65536)
            except OSError:
                break
    return seen


def test_in_a_terminal_enter_opens_why_and_q_ends(url):
    """Driven by its keys on a real terminal; q leaves with exit 0."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
        os.execv(sys.executable, [sys.executable, "-m", "mooring", "top", "--every", "0.2", "--server", url])
    assert b"Enter why" in seen_until(fd, b"Enter why")
    os.write(fd, b"\r")
    assert b"op 1 is moving: so far" in seen_until(fd, b"op 1 is moving: so far")
    os.write(fd, b"\x1b")
    assert b"Enter why" in seen_until(fd, b"Enter why")
    os.write(fd, b"q")
    seen_until(fd, b"never")
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_dumb_terminal_gets_one_look(url):
    """TERM=dumb: it prints and ends, without a code."""
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "dumb", "COLUMNS": "80"}
    command = [sys.executable, "-m", "mooring", "top", "--server", url]
    with subprocess.Popen(command, stdout=child, stdin=child, env=environment) as process:
        assert process.wait(30) == 0
    os.close(child)
    shown = seen_until(parent, b"Timeline")
    assert b"Queue" in shown
    assert b"\x1b[?1049h" not in shown


def test_a_namespace_narrows_what_is_in_one():
    """`mooring top -n tidb`: operators and stores of that namespace; nodes and racks are in none."""
    tables = {
        "queue": {
            "rows": {"1": {"id": "1", "about": "shop/web-1"}, "2": {"id": "2", "about": "tidb/x"}},
            "order": ["1", "2"],
        },
        "stores": {"rows": {"tidb/demo/4": {"id": "tidb/demo/4"}, "shop/s/1": {"id": "shop/s/1"}}, "total": 2},
        "nodes": {"rows": {"n1": {"id": "n1"}}, "order": ["n1"]},
    }
    tables["stores"]["order"] = list(tables["stores"]["rows"])
    shown = narrowed({"tables": tables}, "tidb")["tables"]
    assert (shown["queue"]["order"], shown["stores"]["order"], shown["stores"]["total"]) == (["2"], ["tidb/demo/4"], 1)
    assert shown["nodes"] == tables["nodes"]
    assert narrowed({"tables": tables}, "")["tables"] == tables
