"""Many events on one cluster: loaded and settled once, then forked for each, so many at a time.

A fork is the same process at the same virtual moment: an event played in it comes out as `mooring rehearse play` of
that event would, byte for byte, without the loading. Nothing that a child does reaches the others; what it found comes
back through a pipe. A child that is killed is an error of its event alone.
"""

import asyncio
import gc
import os
import selectors
import signal
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Generic, TypeVar

import msgspec

from mooring_lab.cluster.clock import quiet_collector, run_virtual
from mooring_lab.rehearse.events.catalog import Act
from mooring_lab.rehearse.outcome import RehearsalOutcome, with_slowest
from mooring_lab.rehearse.play import Play
from mooring_lab.stage.rig import Rig

T = TypeVar("T")
_CHUNK: Final = 1 << 16


class Task(msgspec.Struct, Generic[T], frozen=True):
    """An event to play, and what to make of its outcome, in the child."""

    acts: list[Act]
    seed: int
    summary: Callable[[RehearsalOutcome], T]
    #: What somebody changes first.
    change: Callable[[Rig], Awaitable[None]] | None = None
    #: Every pod takes as long to start as the slowest of its kind.
    slowest: bool = False


class Failed(msgspec.Struct, frozen=True, tag=True):
    """It could not be played, and why."""

    why: str


class _Child(msgspec.Struct):
    pid: int
    number: int
    body: bytearray


def play_each(
    play: Play, tasks: Iterable[Task[T]], shape: type[T], jobs: int, found: Callable[[int, T | Failed], None]
) -> bool:
    """Tell each result by the number of its task, as they come. False: interrupted by Ctrl-C, and some are missing.

    The next task is asked for when there is room for it: with one job, when the one before was told.
    """

    async def whole() -> bool:
        await play.come_up()
        gc.collect()
        gc.freeze()  # what was loaded is never looked at by the collector again, so that its pages stay shared
        children, loop = _Children(found, shape), asyncio.get_running_loop()
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            coming = enumerate(tasks)
            while True:
                children.wait(below=jobs)
                number, task = next(coming, (0, None))
                if task is None:
                    break
                write = children.fork(number)
                if write is not None:
                    await _in_child(play, task, write, loop)
            children.wait(below=1)
        except KeyboardInterrupt:
            return False
        finally:
            children.end()
            signal.signal(signal.SIGINT, before)
            gc.unfreeze()
        return True

    with quiet_collector():
        return run_virtual(lambda: play.and_clean_up(whole), play.rig.cluster.timeline)


async def _in_child(play: Play, task: Task[T], write: int, loop: asyncio.AbstractEventLoop) -> None:
    """Play, send, and end without a word: what the parent would do at its own end is not done here."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        asyncio._set_running_loop(loop)  # noqa: SLF001 - asyncio forgets it in a fork
        if task.change is not None:
            await play.change(task.change)
        if task.slowest:
            play.play_slow_starts()
        play.draw(task.seed)
        await play.perform(task.acts)
        body = msgspec.msgpack.encode(task.summary(play.outcome))
        with os.fdopen(write, "wb") as pipe:
            pipe.write(body)
        code = 0
    except BaseException as error:  # noqa: BLE001 - told to the parent
        words = (str(error).splitlines() or [type(error).__name__])[0]
        os.write(write, msgspec.msgpack.encode(Failed(words)))
    finally:
        os._exit(code)


class _Children(Generic[T]):
    def __init__(self, found: Callable[[int, T | Failed], None], shape: type[T]) -> None:
        self._found = found
        self._shape = shape
        self._selector = selectors.DefaultSelector()
        self._running: dict[int, _Child] = {}

    def fork(self, number: int) -> int | None:
        """In the child: where to write; in the parent None."""
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            return write
        os.close(write)
        self._running[read] = _Child(pid, number, bytearray())
        self._selector.register(read, selectors.EVENT_READ)
        return None

    def wait(self, below: int) -> None:
        """Until fewer than so many run."""
        while len(self._running) >= below:
            for key, _ in self._selector.select():
                read = key.fd
                part = os.read(read, _CHUNK)
                if part:
                    self._running[read].body.extend(part)
                else:
                    self._ended(read)

    def _ended(self, read: int) -> None:
        child = self._running.pop(read)
        self._selector.unregister(read)
        os.close(read)
        _, status = os.waitpid(child.pid, 0)
        self._found(child.number, self._decoded(bytes(child.body), os.waitstatus_to_exitcode(status)))

    def _decoded(self, body: bytes, code: int) -> T | Failed:
        if code == 0:
            return msgspec.msgpack.decode(body, type=self._shape)
        try:
            return msgspec.msgpack.decode(body, type=Failed)
        except msgspec.MsgspecError:
            return Failed(f"the process that played it ended with {code}")

    def end(self) -> None:
        """Those that still run are not waited for."""
        for read, child in self._running.items():
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)
            os.close(read)
        self._running.clear()
        self._selector.close()


def play_usual_and_slowest(play: Play, acts: list[Act], seed: int) -> RehearsalOutcome:
    """With the usual start times, and where they vary with the slowest, both at once."""
    if not play.starts_vary:
        return play.run()
    found: dict[int, RehearsalOutcome | Failed] = {}
    tasks = [Task(acts, seed, lambda outcome: outcome, slowest=slowest) for slowest in (False, True)]
    if not play_each(play, tasks, RehearsalOutcome, len(tasks), found.__setitem__):
        raise KeyboardInterrupt
    usual, slow = found[0], found[1]
    if isinstance(usual, Failed):
        raise AssertionError(usual.why)  # noqa: TRY004 - as in this process
    return usual if isinstance(slow, Failed) else with_slowest(usual, slow)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
