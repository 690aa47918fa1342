"""Work on an existing Dask cluster: scattered once, done part by part, and gathered as it comes.

    here ── work, once ──▶ each worker ── a part ──▶ a process beside the worker ── its answer ──▶ here

Each thread of a worker keeps one process of its own (`python -m MODULE`), which reads the work once and then answers
part after part: what is slow to prepare is prepared once, and a fork in it is safe, which it is not in a worker with
threads. A worker that is lost takes its process along, and Dask gives its part to another. Versions are compared first,
since a worker with another Mooring would find something else.
"""

import contextlib
import os
import platform
import struct
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, Final, NamedTuple

import mooring
from mooring.core.model.exits import Exit, UserError

CONNECT_S: Final = 10
_HEAD: Final = struct.Struct(">Q")


class DaskUnreachableError(UserError):
    """No answer from there, or no worker."""

    code = Exit.UNREACHABLE


class DaskMismatchError(UserError):
    """What differs, and what would be right."""


class Lost(NamedTuple):
    """A part that no worker could answer, and why."""

    why: str


# ── Here ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def on_dask(address: str, module: str, work: bytes, parts: Sequence[bytes]) -> Iterator[tuple[int, bytes | Lost]]:
    """The number of a part and its answer, in the order in which they come. Closing it cancels what is left."""
    try:
        from distributed import Client, as_completed  # noqa: PLC0415 - an extra
    except ImportError:
        raise DaskMismatchError("--dask needs the extra sweep: pip install 'mooring[sweep]'") from None
    try:
        client: Any = _untyped(Client)(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise DaskUnreachableError(f"no Dask scheduler answers at {address}: {error}") from None
    with client:
        check(_ask(client, address), address)
        token = uuid.uuid4().hex
        body = client.scatter(work, broadcast=True)
        futures = [client.submit(answer_on_worker, module, token, body, part, pure=False, retries=2) for part in parts]
        numbers = {future: number for number, future in enumerate(futures)}
        try:
            for future in _untyped(as_completed)(futures, loop=client.loop):
                yield numbers[future], _result(future)
        finally:
            client.cancel(futures)
            with contextlib.suppress(Exception):  # a worker that went meanwhile has nothing to end
                client.run(end_processes, token)


def _result(future: Any) -> bytes | Lost:
    if future.status == "finished":
        found: bytes = future.result()
        return found
    return Lost((str(future.exception()).splitlines() or ["lost"])[0])


def _ask(client: Any, address: str) -> dict[str, tuple[str, str]]:
    """The versions of each worker."""
    try:
        found: dict[str, tuple[str, str]] = client.run(versions)
    except Exception as error:  # noqa: BLE001 - whatever a worker without Mooring answers with
        words = f"a worker of {address} cannot run Mooring {mooring.__version__}: {error}"
        raise DaskMismatchError(f"{words}; install it there") from None
    return found


def check(found: Mapping[str, tuple[str, str]], address: str) -> None:
    """There is a worker, and all of them have this Mooring and this Python."""
    here = versions()
    if not found:
        raise DaskUnreachableError(f"the Dask scheduler at {address} has no worker; start one: dask worker {address}")
    for worker, there in sorted(found.items()):
        if tuple(there) != here:
            words = f"Mooring {there[0]} on Python {there[1]}; here it is Mooring {here[0]} on Python {here[1]}"
            raise DaskMismatchError(f"worker {worker} of {address} has {words}: use the same on all")


def versions() -> tuple[str, str]:
    """Of Mooring and Python, the latter without its patch level."""
    return mooring.__version__, ".".join(platform.python_version_tuple()[:2])


def _untyped(call: Any) -> Any:
    """`distributed` has no types."""
    return call


# ── On a worker ───────────────────────────────────────────────────────────────────────────────────────────────────

_processes: dict[tuple[str, int], subprocess.Popen[bytes]] = {}


def answer_on_worker(module: str, token: str, work: bytes, part: bytes) -> bytes:
    """By the process of this thread, which is started when there is none."""
    key = (token, threading.get_ident())
    begun = key in _processes
    if not begun:
        command = [sys.executable, "-m", module]
        _processes[key] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process = _processes[key]
    try:
        if not begun:
            send(process.stdin, work)
        send(process.stdin, part)
        answer = receive(process.stdout)
    except OSError:
        answer = None
    if answer is None:
        _end(_processes.pop(key))
        raise RuntimeError(f"python -m {module} ended beside its worker; the worker's log says why")
    return answer


def end_processes(token: str) -> None:
    for key in [key for key in _processes if key[0] == token]:
        _end(_processes.pop(key))


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.communicate()


# ── In the process beside it ──────────────────────────────────────────────────────────────────────────────────────


class Asked:
    """The work, then part after part, each answered before the next is read. It ends when the other end is gone."""

    def __init__(self) -> None:
        self._in = sys.stdin.buffer
        # What else is printed goes to stderr: stdout is for answers.
        self._out = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        self.work = receive(self._in) or b""

    def parts(self) -> Iterator[bytes]:
        while (part := receive(self._in)) is not None:
            yield part

    def answer(self, body: bytes) -> None:
        send(self._out, body)


def send(to: IO[bytes] | None, body: bytes) -> None:
    if to is not None:
        to.write(_HEAD.pack(len(body)))
        to.write(body)
        to.flush()


def receive(of: IO[bytes] | None) -> bytes | None:
    """None: the other end is gone."""
    head = of.read(_HEAD.size) if of is not None else b""
    if of is None or len(head) < _HEAD.size:
        return None
    (size,) = _HEAD.unpack(head)
    body = of.read(size)
    return body if len(body) == size else None
