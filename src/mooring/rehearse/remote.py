"""A sweep on an existing Dask cluster: the snapshot is scattered once, shares of the events are gathered as they come.

Each share is played by a process of its own beside the worker, which loads the snapshot once and forks for each event,
as on one machine. A worker that is lost costs nothing but time: Dask gives its share to another. Versions are compared
first, since a worker with another Mooring would find something else.
"""

import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

import mooring
from mooring.rehearse.failures import Failure
from mooring.rehearse.forks import Failed, shares
from mooring.rehearse.schema import Snapshot
from mooring.rehearse.sweep import Found, Plan, Told, run

#: Shares per worker: enough that a slow or lost one is made up for by the others.
SHARES: Final = 4
CONNECT_S: Final = 10


class DaskUnreachableError(Exception):
    """Nobody answers there, or no worker is."""


class DaskMismatchError(Exception):
    """What differs, and what would be right."""


class Work(msgspec.Struct, frozen=True):
    snapshot: Snapshot
    plan: Plan


class Share(msgspec.Struct, frozen=True):
    work: Work
    todo: tuple[Failure, ...]


Results = list[tuple[Failure, Found | Failed]]


def run_on_dask(snapshot: Snapshot, todo: Sequence[Failure], plan: Plan, address: str, told: Told) -> bool:
    """As `sweep.run`. False: interrupted; what was told is all there is."""
    try:
        from distributed import Client, as_completed  # noqa: PLC0415 - an extra
    except ImportError:
        raise DaskMismatchError("--dask needs the extra sweep: pip install 'mooring[sweep]'") from None
    try:
        client: Any = _untyped(Client)(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise DaskUnreachableError(f"no Dask scheduler answers at {address}: {error}") from None
    with client:
        workers = check(_ask(client, address), address)
        body = client.scatter(msgspec.msgpack.encode(Work(snapshot, plan)), broadcast=True)
        parts = [tuple(todo[at] for at in part) for part in shares(len(todo), SHARES * workers)]
        futures = [client.submit(play_share, body, part, pure=False, retries=2) for part in parts if part]
        whose = dict(zip(futures, parts, strict=True))
        try:
            for future in _untyped(as_completed)(futures, loop=client.loop):
                for failure, result in _result(future, whose[future]):
                    told(failure, result)
        except KeyboardInterrupt:
            client.cancel(futures)
            return False
    return True


def _result(future: Any, part: Sequence[Failure]) -> Results:
    if future.status == "finished":
        found: Results = future.result()
        return found
    words = (str(future.exception()).splitlines() or ["lost"])[0]
    return [(one, Failed(words)) for one in part]


def _ask(client: Any, address: str) -> dict[str, tuple[str, str]]:
    """The versions of each worker."""
    try:
        found: dict[str, tuple[str, str]] = client.run(versions)
    except Exception as error:  # noqa: BLE001 - whatever a worker without Mooring answers with
        words = f"a worker of {address} cannot run Mooring {mooring.__version__}: {error}"
        raise DaskMismatchError(f"{words}; install it there") from None
    return found


def check(found: Mapping[str, tuple[str, str]], address: str) -> int:
    """How many workers there are; all of them have this Mooring and this Python."""
    here = versions()
    if not found:
        raise DaskUnreachableError(f"the Dask scheduler at {address} has no worker; start one: dask worker {address}")
    for worker, there in sorted(found.items()):
        if tuple(there) != here:
            words = f"Mooring {there[0]} on Python {there[1]}; here it is Mooring {here[0]} on Python {here[1]}"
            raise DaskMismatchError(f"worker {worker} of {address} has {words}: use the same on all")
    return len(found)


def versions() -> tuple[str, str]:
    """Of Mooring and Python, the latter without its patch level."""
    return mooring.__version__, ".".join(platform.python_version_tuple()[:2])


def play_share(body: bytes, part: tuple[Failure, ...]) -> Results:
    """On a worker: in a process of its own, since a fork of one with threads is not safe."""
    share = msgspec.msgpack.encode(Share(msgspec.msgpack.decode(body, type=Work), part))
    command = [sys.executable, "-m", "mooring.rehearse.remote"]
    done = subprocess.run(command, input=share, capture_output=True, check=False)
    if done.returncode:
        words = (done.stderr.decode(errors="replace").strip().splitlines() or ["?"])[-1]
        raise RuntimeError(f"a share ended with {done.returncode}: {words}")
    answers = msgspec.msgpack.decode(done.stdout, type=list[tuple[Failure, bool, bytes]])
    return [(one, _decoded(raw, Found if well else Failed)) for one, well, raw in answers]


def _decoded(raw: bytes, shape: type[Found] | type[Failed]) -> Found | Failed:
    return msgspec.msgpack.decode(raw, type=shape)


def _untyped(call: Any) -> Any:
    """`distributed` has no types."""
    return call


def main() -> None:
    """A share from stdin, what was found to stdout."""
    from mooring.process import logs  # noqa: PLC0415 - of this process alone

    logs.configure("critical", "auto")
    share = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Share)
    answers: list[tuple[Failure, bool, bytes]] = []

    def told(failure: Failure, result: Found | Failed) -> None:
        answers.append((failure, isinstance(result, Found), msgspec.msgpack.encode(result)))

    run(share.work.snapshot, share.todo, share.work.plan, 1, told)
    sys.stdout.buffer.write(msgspec.msgpack.encode(answers))


if __name__ == "__main__":
    main()
