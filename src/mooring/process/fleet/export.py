"""What is stored is handed on (F13): the leader runs a command on each stored revision, or writes cluster.yml into a
ConfigMap or a Secret, and tries again with back-off until it has worked.

    revision stored ──► due ──► run, at most `timeout-s` ──► worked: said once ──► next revision
                         ▲             │
                         └── back-off ◄┴ failed: exit and last words in `fleet status`, Event and metric

How it went is kept in a ConfigMap of its own, so that the next leader neither repeats nor forgets it. A leader that
dies midway leaves the revision due: the command must bear being run twice on one file, as `ckecli cluster set` does.
"""

import asyncio
import contextlib
import os
import signal
import tempfile
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, Generic, Protocol, TypeVar

import msgspec
import structlog

from mooring.capabilities.fleet.live import ledger
from mooring.capabilities.fleet.live.export import NAME, STATE, ExportPolicy, ExportRecord, after, due_at, read_record
from mooring.capabilities.fleet.live.index import FleetIndex
from mooring.capabilities.fleet.live.ledger import StoredCluster
from mooring.capabilities.fleet.live.release import write_released
from mooring.capabilities.fleet.live.settings import FleetSettings, cke_finding
from mooring.clients.ports import Clock, KubeApi, NotFoundError, PortError, Recorder
from mooring.clients.texts import printable
from mooring.clients.wire.document import encode_yaml
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason
from mooring.core.world.read import WorldRead

log = structlog.get_logger()

#: How often it is looked whether it was switched on.
_IDLE_S: Final = 60.0
#: A ConfigMap holds 1 MiB, and so does a Secret.
_MOST_BYTES: Final = 1000 << 10
#: Above so many nodes the file is JSON, which is YAML too and a hundred times faster to write.
_MANY: Final = 500

#: argv, stdin, time limit → exit code (None: not ended in time, or not started), last words
RunCommand = Callable[[Sequence[str], bytes, float], Awaitable[tuple[int | None, str]]]


async def run_command(argv: Sequence[str], document: bytes, timeout_s: float) -> tuple[int | None, str]:
    """`{file}` in an argument is a file with the document; it is on stdin too. What runs too long is killed."""
    with tempfile.TemporaryDirectory(prefix="mooring-") as directory:
        path = Path(directory) / "cluster.yml"
        path.write_bytes(document)
        process = await asyncio.create_subprocess_exec(
            *(one.replace("{file}", str(path)) for one in argv),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            said, _ = await asyncio.wait_for(process.communicate(document), timeout_s)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            if isinstance(error, TimeoutError):
                return None, f"not ended within {timeout_s:g} s: killed"
            raise
    return process.returncode, said[-2000:].decode(errors="replace")


class Task(Protocol):
    """What the settings say of a command that the leader runs."""

    @property
    def on(self) -> bool: ...


_Policy = TypeVar("_Policy", bound=Task)


class LeaderTask(ABC, Generic[_Policy]):
    """Looks at every step whether there is something to hand to a command, while this replica leads."""

    what: ClassVar[str]
    look_s: ClassVar[float]

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        world: WorldRead,
        recorder: Recorder,
        *,
        namespace: str,
        policy: Callable[[], _Policy | None],
        leads: Callable[[], bool],
        gauge: Callable[[str, Mapping[str, str], float], None],
        run: RunCommand = run_command,
    ) -> None:
        """`api`: refuses to write once we do not lead. `policy`: None while fleet is off."""
        self._api, self._clock, self._world, self._recorder = api, clock, world, recorder
        self._namespace, self._policy, self._leads, self._gauge, self._run = namespace, policy, leads, gauge, run

    async def run(self) -> None:
        while True:
            policy = self._policy()
            on = policy is not None and policy.on
            await self._clock.sleep(self.look_s if on else _IDLE_S)
            if policy is not None and on and self._leads():
                try:
                    await self.step(policy)
                except PortError as error:
                    log.warning("fleet.task-not-recorded", task=self.what, error=str(error))
                except Exception:
                    log.exception("fleet.task-failed", task=self.what)

    @abstractmethod
    async def step(self, policy: _Policy) -> None: ...


class Exporter(LeaderTask[ExportPolicy]):
    what, look_s = "export", 5.0

    async def step(self, policy: ExportPolicy) -> None:
        """Hand on what is stored, if that is due."""
        index = self._world.index(FleetIndex)
        stored, settings = index.ledger, index.settings
        if isinstance(stored, str) or settings is None or not settings.enabled or cke_finding(settings):
            return
        record = await self._record()
        due = due_at(record, stored.revision, policy) if stored.members else None
        if due is None or self._clock.now() < due or not self._leads():
            return
        worked, said = await self._hand_on(policy, settings, stored)
        made = after(record, stored.revision, self._clock.now(), worked=worked, said=printable(said, 300))
        await self._put(NAME, {STATE: msgspec.json.encode(made).decode()})
        words = f"revision {made.revision} handed on" if worked else f"revision {made.revision}: {made.said}"
        uid = stored.object.uid if stored.object is not None else ""
        reason = Reason.DONE if worked else Reason.FAILED
        self._recorder.event(
            Kind.CONFIG_MAP, self._namespace, ledger.NAME, uid=uid, reason=reason, message=words, warning=not worked
        )
        self._gauge("mooring_fleet_export_successful", {}, float(worked))
        self._gauge("mooring_fleet_export_revision", {}, float(made.worked))
        log.info("fleet.exported" if worked else "fleet.export-refused", revision=made.revision, said=made.said)

    async def _hand_on(self, policy: ExportPolicy, settings: FleetSettings, stored: StoredCluster) -> tuple[bool, str]:
        document = await asyncio.to_thread(_written, settings, stored)
        if policy.to:
            return await self._write(policy.to, document)
        try:
            code, said = await self._run(policy.command, document, policy.timeout_s)
        except OSError as error:
            return False, f"{policy.command[0]}: {error.strerror}"
        return code == 0, said if code is None else f"exit {code}: {said}"

    async def _write(self, to: str, document: bytes) -> tuple[bool, str]:
        what, name, key = to.split("/")
        kind = Kind.SECRET if what == "secret" else Kind.CONFIG_MAP
        text = b64encode(document).decode() if kind is Kind.SECRET else document.decode()
        if len(text) > _MOST_BYTES:
            return False, f"{len(text) >> 10} KiB do not fit into a {kind}: use a command"
        try:
            await self._put(name, {key: text}, kind)
        except PortError as error:
            return False, str(error)
        return True, f"written to {kind} {self._namespace}/{name}, {key}"

    async def _put(self, name: str, data: dict[str, str], kind: Kind = Kind.CONFIG_MAP) -> None:
        try:
            await self._api.patch(kind, self._namespace, name, {"data": data})
        except NotFoundError:
            await self._api.create(kind, {**ledger.new_object(self._namespace, data, name), "kind": kind.value})

    async def _record(self) -> ExportRecord:
        try:
            obj = await self._api.get(Kind.CONFIG_MAP, self._namespace, NAME)
        except NotFoundError:
            return ExportRecord()
        return read_record(obj.get("data") or {})


def _written(settings: FleetSettings, stored: StoredCluster) -> bytes:
    document = write_released(settings.template, stored.members, stored.machines)
    return msgspec.json.encode(document) if len(stored.members) > _MANY else encode_yaml(document).encode()
