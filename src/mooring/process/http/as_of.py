"""`why` as of a moment that has passed, out of the black box.

A process of its own replays the recording up to that moment (`mooring replay`), so that the deciding loop is not
delayed; one at a time, while few wait, and only with enough free memory: else the answer is the command to type
elsewhere.
"""

import asyncio
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

LIMIT_S: Final = 120.0
#: So many questions wait for the one that is being answered; more are refused.
MOST_WAITING: Final = 2
#: A replay needs as much memory as this process, and a little more.
SHARE, SPARE_BYTES = 1.5, 200 << 20
CGROUP: Final = Path("/sys/fs/cgroup")
#: What may be asked about: it becomes an argument of a command.
SUBJECT: Final = re.compile(r"[a-z]+/[A-Za-z0-9][A-Za-z0-9._/-]{0,300}")
NOTHING: Final = "Reasons are not kept in frames. With the black box on (--blackbox DIR) the page answers as of then."


class AsOf:
    def __init__(self, recording: Callable[[], str]) -> None:
        """`recording`: a file, or a directory of them; "": there is none."""
        self._recording = recording
        self._one = asyncio.Lock()
        #: Questions that are being answered, or wait for it.
        self._asked = 0
        self._process: subprocess.Popen[str] | None = None

    async def words(self, subject: str, at: float) -> tuple[str, int]:
        """The answer and its HTTP status."""
        recording = self._recording()
        if not recording:
            return f"As of {_clock(at)}.\n{NOTHING}\n", 501
        if SUBJECT.fullmatch(subject) is None:
            return f"{subject[:80]!r} is nothing that can be asked about\n", 404
        typed = ["replay", recording, "--until", f"{_clock(at)}Z", "why", subject]
        needs = int(SHARE * _resident()) + SPARE_BYTES
        missing = "too little memory to replay" if _free() < needs else ""
        if missing or self._asked > MOST_WAITING:
            why = missing or f"{MOST_WAITING} questions wait for a replay already"
            return f"As of {_clock(at)}: {why} here. Elsewhere:\nmooring {' '.join(typed)}\n", 503
        self._asked += 1
        try:
            async with self._one:
                # In a thread, on the wall clock: the loop of the demo has a time of its own.
                return await asyncio.to_thread(self._run, typed, needs)
        finally:
            self._asked -= 1

    async def close(self, *_: object) -> None:
        """No request waits for an answer any more."""
        if self._process is not None:
            self._process.kill()

    def _run(self, typed: list[str], memory: int) -> tuple[str, int]:
        bounded = f"resource.setrlimit(resource.RLIMIT_DATA, ({memory}, {memory}))"
        code = (
            f"import os, resource, runpy, sys; os.nice(5); {bounded}; runpy.run_module('mooring', run_name='__main__')"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code, *typed],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "COLUMNS": "110", "NO_COLOR": "1"},
            text=True,
            errors="replace",
        ) as process:
            self._process = process
            try:
                said, complained = process.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                return f"It took longer than {LIMIT_S:.0f} s. Elsewhere:\nmooring {' '.join(typed)}\n", 504
            finally:
                self._process = None
        if process.returncode == 0:
            return said, 200
        lines = complained.strip().splitlines() or ["the replay ended without an answer"]
        return f"{lines[-1].removeprefix('mooring: ')}\n", 404


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).replace(tzinfo=None).isoformat(timespec="milliseconds")


def _resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _free() -> int:
    """Bytes that another process may take: of our cgroup where it has a limit, else of the machine."""
    try:
        limit = (CGROUP / "memory.max").read_text().strip()
        if limit != "max":
            return int(limit) - int((CGROUP / "memory.current").read_text())
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except (OSError, ValueError):
        return sys.maxsize
    return int(found[1]) * 1024 if found is not None else sys.maxsize
