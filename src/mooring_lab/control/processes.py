"""Start servers, wait until they are ready, and leave none running.

A lab either ends with the process that started it (`foreground`, the tests) or outlives the command that started it
(`mooring lab up`). In the foreground the kernel kills the servers when that process ends. In any case a note on disk
(pid and the instant the process began, so that a reused pid is never mistaken for ours) lets a later `down` find them.
Each server is in a session of its own, so that Ctrl-C reaches us alone and we can stop them in the right order.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from mooring_lab.control.errors import LabError
from mooring_lab.control.loopback import answers

STOP_WITHIN_S: Final = 10.0
READY_WITHIN_S: Final = 240.0
_POLL_S: Final = 0.05
#: Asks the kernel for SIGKILL when the parent is gone (PR_SET_PDEATHSIG), makes sure it is not gone already, and
#: becomes the server. A program of its own: running Python between fork and exec is unsafe once there are threads.
_DIE_WITH_PARENT: Final = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the starter is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


class Server(msgspec.Struct, frozen=True):
    """One program to run: how it is called, and the URL that answers 200 once it is ready."""

    name: str
    argv: tuple[str, ...]
    ready_url: str


class ProcessNote(msgspec.Struct, frozen=True):
    """What is written down about a started process."""

    pid: int
    began: str
    server: Server


class Processes:
    """The servers of one lab, by name; their notes and logs are under the lab's directory."""

    def __init__(self, directory: Path, *, foreground: bool) -> None:
        self._notes = directory / "run"
        self._logs = directory / "logs"
        # The kernel's watch is on the thread that starts a server: it must be one that lasts as long as we do, not a
        # pool's that some test's event loop takes down with it.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="lab-starter") if foreground else None
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, server: Server) -> int:
        """Start it without waiting for it to be ready; returns its pid."""
        if self.pid(server.name) is not None:
            raise LabError(f"{server.name} is already running (pid {self.pid(server.name)})")
        self._notes.mkdir(parents=True, exist_ok=True)
        self._logs.mkdir(parents=True, exist_ok=True)
        child = self._spawn(server) if self._starter is None else self._starter.submit(self._spawn, server).result()
        self._children[server.name] = child
        note = ProcessNote(pid=child.pid, began=_began(child.pid) or "", server=server)
        (self._notes / f"{server.name}.json").write_bytes(msgspec.json.encode(note))
        return child.pid

    def wait_ready(self, servers: Sequence[Server], within_s: float = READY_WITHIN_S) -> None:
        """Until all of them answer. One that ends, or takes too long, is an error with the end of its log."""
        deadline = time.monotonic() + within_s
        waiting = list(servers)
        while waiting:
            waiting = [server for server in waiting if not answers(server.ready_url)]
            for server in waiting:
                if self.pid(server.name) is None:
                    raise LabError(f"{server.name} ended before it was ready:\n{self.tail(server.name)}")
            if waiting and time.monotonic() > deadline:
                slow = waiting[0].name
                raise LabError(f"{slow} was not ready within {within_s:.0f} s:\n{self.tail(slow)}")
            if waiting:
                time.sleep(_POLL_S)

    def pid(self, name: str) -> int | None:
        """The pid while the server lives, else None."""
        child = self._children.get(name)
        if child is not None:
            return child.pid if child.poll() is None else None
        note = self._note(name)
        if note is None or _began(note.pid) != note.began:
            return None
        return note.pid

    def names(self) -> list[str]:
        """Everything that was started here and not stopped since, alive or not."""
        return sorted(path.stem for path in self._notes.glob("*.json"))

    def server(self, name: str) -> Server | None:
        """How it was started, as written down; None for one that never was, or was stopped."""
        note = self._note(name)
        return note.server if note else None

    def stop(self, name: str, within_s: float = STOP_WITHIN_S) -> None:
        """SIGTERM, wait, then SIGKILL. It may be gone already."""
        self._end(name, signal.SIGTERM, within_s)

    def kill(self, name: str) -> None:
        """Kill it with SIGKILL."""
        self._end(name, signal.SIGKILL, STOP_WITHIN_S)

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def tail(self, name: str, lines: int = 12) -> str:
        try:
            text = self.log(name).read_text(errors="replace")
        except OSError:
            return "(no log)"
        return "\n".join(text.splitlines()[-lines:])

    def _spawn(self, server: Server) -> subprocess.Popen[bytes]:
        with self.log(server.name).open("ab") as log:
            return subprocess.Popen(
                (*_dying_with(os.getpid()), *server.argv) if self._starter else server.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _end(self, name: str, sign: signal.Signals, within_s: float) -> None:
        pid = self.pid(name)
        if pid is not None:
            _signal_session(pid, sign)
            if not self._gone(name, within_s):
                _signal_session(pid, signal.SIGKILL)
                if not self._gone(name, STOP_WITHIN_S):
                    raise LabError(f"{name} (pid {pid}) did not end, even when killed")
        child = self._children.pop(name, None)
        if child is not None:
            child.wait()  # reaped, so that no zombie is left
        (self._notes / f"{name}.json").unlink(missing_ok=True)

    def _gone(self, name: str, within_s: float) -> bool:
        deadline = time.monotonic() + within_s
        while self.pid(name) is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def _note(self, name: str) -> ProcessNote | None:
        try:
            return msgspec.json.decode((self._notes / f"{name}.json").read_bytes(), type=ProcessNote)
        except (OSError, msgspec.DecodeError):
            return None


def run(argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, stdin: str | None = None) -> str:
    """Run a program to its end and return what it printed; anything but success is an error with its words."""
    done = subprocess.run(
        [str(part) for part in argv],
        input=stdin,
        env=None if env is None else {**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        called = " ".join([Path(str(argv[0])).name, *(str(part) for part in argv[1:])])
        raise LabError(f"`{called}` failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def _signal_session(pid: int, sign: signal.Signals) -> None:
    # The server leads its own session, so its group is what it started too.
    try:
        os.killpg(pid, sign)
    except ProcessLookupError:
        return


def _began(pid: int) -> str | None:
    """When the process began, in whatever form this system tells; None when it is gone (a zombie is gone)."""
    if sys.platform == "linux":
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] in "ZX" else fields[19]
    shown = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.split(maxsplit=1)
    return None if len(shown) < 2 or shown[0].startswith("Z") else shown[1].strip()


def _dying_with(parent: int) -> tuple[str, ...]:
    """What to put before a command so that it ends with its parent. Only Linux knows how."""
    if sys.platform != "linux":
        return ()
    return (sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(parent))
