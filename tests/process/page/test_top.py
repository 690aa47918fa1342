"""`mooring top` shows the page's rows in a terminal, or once into a pipe."""

import io
import json
import os
import pty
import signal
import sys
import time

import pytest
from rich.console import Console

from mooring.capabilities.handoff.requests import RESTART
from mooring.core.model.kinds import Kind
from mooring.process.terminal.screen import bar, screen, sparkline
from tests.program import mooring

RUN = [sys.executable, "-m", "mooring", "top"]


@pytest.fixture
def busy(site):
    """A site on which one restart runs and one waits."""

    async def ask():
        for name in ("demo-tikv-0", "demo-tikv-1"):
            site.stage.cluster.annotate(Kind.POD, "tidb", name, {RESTART: ""})
        await site.stage.rig.until(lambda: site.stage.rig.leader().engine.waiting)

    site.do(ask)
    return site


def test_into_a_pipe_it_prints_one_look_and_ends(busy):
    """No terminal, no escape codes: every section once, with the waiting one's target and blocker."""
    ran = mooring("top", "--server", busy.url)
    assert "\x1b" not in ran.stdout
    for words in (
        "○ waiting",
        "evicting/tidb/demo 1/1",
        "██████████░░░░░░░░░░",
        "10/20",
    ):
        assert words in ran.stdout, ran.stdout
    # The first runs; on a slow machine its leaders are gone by now and it waits for PD to be sure.
    assert "WAITING 1  RUNNING 1" in ran.stdout or "WAITING 2  RUNNING 0" in ran.stdout, ran.stdout
    for section in ("Queue", "Stores (3, fullest first)", "Nodes", "Racks (3)", "Timeline"):
        assert section in ran.stdout


def test_json_is_the_frame_itself(busy):
    """Scripts get the numbers, whole."""
    ran = mooring("top", "-o", "json", "--server", busy.url)
    frame = json.loads(ran.stdout)
    assert frame["head"]["running"] + frame["head"]["waiting"] == 2 and set(frame["tables"]) == {
        "map",
        "moves",
        "queue",
        "stores",
        "nodes",
        "racks",
        "timeline",
    }


def test_in_a_terminal_it_stays_and_leaves_by_ctrl_c(busy):
    """It draws more than once, and Ctrl-C ends it with exit 0 and no traceback."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm", "COLUMNS": "140", "LINES": "50"}
        os.execv(sys.executable, [*RUN, "--every", "0.2", "--server", busy.url])
    seen = b""
    deadline = time.monotonic() + 30
    while seen.count(b"Queue") < 3 and time.monotonic() < deadline:
        seen += os.read(fd, 65536)
    os.kill(pid, signal.SIGINT)
    rest = b""
    while True:
        try:
            chunk = os.read(fd, 65536)
        except OSError:
            break
        if not chunk:
            break
        rest += chunk
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    assert seen.count(b"Queue") >= 3
    assert os.waitstatus_to_exitcode(status) == 0 and b"Traceback" not in rest


def test_nobody_there_is_exit_4():
    """Could not look is not the same as nothing to see."""
    ran = mooring("top", "--server", "http://127.0.0.1:9")
    assert ran.returncode == 4 and "no Mooring answers" in ran.stderr and ran.stdout == ""


def test_bars_and_old_data():
    """A bar has twenty cells, one shade per holder; what is old says so; markup in a name is text."""
    assert (
        bar({"used_by": [["op 1", 10, "op"], ["op 2", 8, "op"]], "used": 18, "limit": 20})
        == "█" * 10 + "▓" * 8 + "░" * 2
    )
    assert bar({"used_by": [["gone", 1, "fact"]], "used": 1, "limit": None}) == "▒" * 20
    assert sparkline([0, 1, 8]) == "▁▂█"
    empty = {"rows": {}, "order": [], "total": 0, "sums": {}}
    head = {
        "identity": "m",
        "leader": "",
        "needs": 0,
        "needs_words": "",
        "waiting": 0,
        "running": 0,
        "moved": 0,
        "not_ready": [],
    }
    row = {"id": "[red]x[/red]", "cls": "spot", "news": "[bold]no[/bold]"}
    tables = dict.fromkeys(("queue", "stores", "racks", "timeline"), empty) | {
        "nodes": {"rows": {"x": row}, "order": ["x"], "total": 1, "sums": {}}
    }
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(screen({"as_of": 0.0, "head": head, "tables": tables}, height=50, age_s=7.0, trouble="gone"))
    text = console.export_text()
    assert "STALE 00:00:00, 7.0 s old · leader none · gone" in text and "[red]x[/red]" in text
    console.print(screen({"as_of": 0.0, "head": head | {"silent_s": 30.0}, "tables": tables}, height=50, age_s=0.5))
    assert (
        "STALE 00:00:00, 30.5 s old · leader none · Mooring gets no answer from the API server" in console.export_text()
    )
