"""Processes: started, watched, ended, and never mistaken for somebody else's. Small Python programs stand in for servers."""

import os
import socket
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from mooring_lab.control.errors import LabError
from mooring_lab.control.loopback import PORTS, answers, free_ports
from mooring_lab.control.processes import Processes, ProcessNote, Server, run

#: Nobody answers there.
NOWHERE = "http://127.0.0.1:9/"
FOREVER = "import time\ntime.sleep(600)"
SERVES = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/ready" else 500)
        self.end_headers()
    log_message = print
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def program(name: str, script: str, *args: str, ready: str = NOWHERE) -> Server:
    return Server(name=name, argv=(sys.executable, "-S", "-c", script, *args), ready_url=ready)


@pytest.fixture
def processes(tmp_path: Path):
    made = Processes(tmp_path, foreground=True)
    yield made
    for name in made.names():
        made.kill(name)


def test_ready_means_it_answers(processes: Processes):
    """Waiting ends when the server answers 200, and an error answer is not ready."""
    (port,) = free_ports(1)
    server = program("web", SERVES, str(port), ready=f"http://127.0.0.1:{port}/ready")
    assert processes.start(server) == processes.pid("web")
    processes.wait_ready([server])
    assert not answers(f"http://127.0.0.1:{port}/broken")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port that is kept cannot be listened on")
def test_a_port_is_found_once_by_all_who_look(processes: Processes):
    """Several labs start at the same time: between finding a port and listening on it nobody else is given it."""
    ours = free_ports(1)
    script = f"from mooring_lab.control import loopback; print(*map(loopback._reserve, {ours}))"
    assert run([sys.executable, "-c", script]) == "False\n"
    server = program("web", SERVES, str(ours[0]), ready=f"http://127.0.0.1:{ours[0]}/ready")
    processes.start(server)
    processes.wait_ready([server])


def test_death_before_ready_shows_the_log(processes: Processes):
    """A server that ends instead of getting ready is an error with its last words, at once."""
    server = program("dies", "raise SystemExit('no such flag')")
    processes.start(server)
    with pytest.raises(LabError, match="dies ended before it was ready:\nno such flag"):
        processes.wait_ready([server])


def test_never_ready_is_an_error(processes: Processes):
    """A server that lives but does not answer in time is an error."""
    server = program("mute", FOREVER)
    processes.start(server)
    with pytest.raises(LabError, match="mute was not ready within"):
        processes.wait_ready([server], within_s=0.1)


def test_stubborn_server_is_killed(processes: Processes):
    """One that ignores the polite signal is ended all the same."""
    (port,) = free_ports(1)
    stubborn = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SERVES
    server = program("stubborn", stubborn, str(port), ready=f"http://127.0.0.1:{port}/ready")
    pid = processes.start(server)
    processes.wait_ready([server])
    processes.stop("stubborn", within_s=0.1)
    assert processes.pid("stubborn") is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_second_start_is_refused_while_the_first_lives(processes: Processes):
    """The same server never runs twice in one lab."""
    processes.start(program("one", FOREVER))
    with pytest.raises(LabError, match="already running"):
        processes.start(program("one", FOREVER))


def test_another_process_finds_and_ends_it(tmp_path: Path):
    """What one command started, a later one knows from the notes, and ends."""
    first = Processes(tmp_path, foreground=False)
    server = program("kept", FOREVER)
    pid = first.start(server)
    later = Processes(tmp_path, foreground=False)
    assert later.names() == ["kept"]
    assert later.pid("kept") == pid
    assert later.server("kept") == server
    later.stop("kept")
    assert later.names() == []
    assert first.pid("kept") is None


def test_reused_pid_is_not_ours(tmp_path: Path):
    """A note whose pid now belongs to somebody else is taken for dead, and that process is let be."""
    processes = Processes(tmp_path, foreground=False)
    (tmp_path / "run").mkdir()
    note = ProcessNote(pid=os.getpid(), began="long ago", server=program("old", FOREVER))
    (tmp_path / "run" / "old.json").write_bytes(msgspec.json.encode(note))
    assert processes.pid("old") is None
    processes.stop("old")  # would end this very test run
    assert processes.names() == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_server_outlives_the_thread_that_asked_for_it(processes: Processes):
    """Started from a short-lived thread, as asyncio's pools are, a server lives on: only our own death ends it."""
    (port,) = free_ports(1)
    server = program("web", SERVES, str(port), ready=f"http://127.0.0.1:{port}/ready")

    def ask() -> None:
        processes.start(server)
        processes.wait_ready([server])

    asker = threading.Thread(target=ask)
    asker.start()
    asker.join()
    for _ in range(10):  # a thread's last moments in the kernel come after its join
        assert answers(server.ready_url)


def test_ctrl_c_does_not_reach_the_servers(processes: Processes):
    """Each server is in a session of its own, so that the terminal's signals come to us and we end them in order."""
    pid = processes.start(program("calm", FOREVER))
    assert os.getsid(pid) == pid != os.getsid(0)


def test_free_ports_are_free_and_different():
    """Ports differ, lie below those the system gives to outgoing connections, and a server can listen on them."""
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(port in PORTS for port in ports)
    with socket.create_server(("127.0.0.1", ports[0])):
        pass


def test_failed_program_is_quoted():
    """A program that fails is named with its arguments and its words."""
    with pytest.raises(LabError, match=r"`sh -c echo no >&2; exit 3` failed: no"):
        run(["/bin/sh", "-c", "echo no >&2; exit 3"])
