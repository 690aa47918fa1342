"""`mooring replay`: a recording put through the engine once more, and questions at any moment of it."""

import asyncio
import contextlib
import datetime as dt
import json
import re
import socket
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from mooring.cli import demo as demo_command
from mooring.cli import queue as queue_command
from mooring.cli import top as top_command
from mooring.cli import why as why_command
from mooring.cli.connect import ObjectNamespace
from mooring.cli.output import Format, Output, note, print_json
from mooring.core.model.exits import Exit, UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mooring.core.engine.history import HistoryEntry
    from mooring.core.engine.recording.records import Record
    from mooring.core.engine.recording.replay import Difference
    from mooring.process.blackbox.file import RecordingFile
    from mooring.rehearse.snapshot.schema import Snapshot

app = App(name="replay")

WHEN: Final = 'it is 2026-01-01T03:12:05Z, 03:12:05, +90 (seconds from its start) or "op 57 promoted"'


@app.default
def replay(
    file: Annotated[str, Parameter(help="A recording, or a directory: then the newest in it.")],
    /,
    *question: Annotated[str, Parameter(help="why SUBJECT, queue, top or page: of the end, or of --until.")],
    until: Annotated[str, Parameter(help='Stop there: RFC 3339, HH:MM:SS (UTC), +SECONDS, or "op 57 promoted".')] = "",
    namespace: ObjectNamespace = "",
    set_: Annotated[
        tuple[str, ...], Parameter(name="--set", help="KEY=VALUE: from --until on with other settings, on the sandbox.")
    ] = (),
    for_: Annotated[str, Parameter(name="--for", help="With --set: so much virtual time.")] = "10m",
    port: Annotated[int, Parameter(help="page: where to serve it; not given: 8390 or the next that is free.")] = -1,
    all_: Annotated[bool, Parameter(name="--all", help="why: the whole history that is kept.")] = False,
    output: Output = Format.TABLE,
) -> int:
    """Recompute what a recorded replica decided, and compare instruction by instruction.

    Exits 0 when all are equal, 1 at the first that differs, with both sides. `mooring run --blackbox DIR` and
    `mooring demo --blackbox DIR` record.

    Example: mooring replay box --until 09:02:05 why pod/demo-tikv-1 -n tidb

    Example: mooring replay box page

    Example: mooring replay box --until 09:20:00 --set mix.rebalance.return-every-s=60 --for 30m
    """
    from mooring.core.engine.recording.records import BadRecordError
    from mooring.process.blackbox.file import BadRecordingError, RecordingFile

    _check(question)
    try:
        recording = RecordingFile(Path(file))
        played = _Played(recording, until)
        different = played.run()
    except OSError as error:
        raise UserError(f"{file}: {error.strerror or error}") from None
    except BadRecordingError as error:
        raise UserError(str(error)) from None
    except BadRecordError as error:
        raise UserError(f"{file}: {error}") from None
    if recording.cut_off:
        note(f"mooring: the last {recording.cut_off} bytes are no whole frame; everything before them was read")
    if different is not None:
        _show(different, output)
        return Exit.NOT_AS_IT_SHOULD_BE
    if set_:
        if question:
            raise UserError("--set goes on from there: leave the question out, or --set")
        _go_on(recording, played, set_, for_, output)
    elif not question:
        _equal(played, output)
    elif question[0] == "page":
        return _page(played, demo_command.listen(port))
    elif question[0] == "why":
        why_command.show(_why(played, "/".join(question[1:]), namespace), output, everything=all_)
    else:
        _list(played, question[0], output)
    return Exit.DONE


def _go_on(recording: "RecordingFile", played: "_Played", settings: tuple[str, ...], for_: str, output: Format) -> None:
    from mooring.cli import replay_what_if as other

    was, then, for_s = other.what_if(recording, played.replay, played.rest(), played.now, settings, for_)
    other.show(was, then, played.now, for_s, output)


def _list(played: "_Played", what: str, output: Format) -> None:
    from mooring.process.http.queuerows import queue_answer

    if what == "queue":
        queue_command.show(_plain(queue_answer(played.engine, played.now)), output)
    else:
        top_command.show(_plain(asyncio.run(_frame(played))), output)


def snapshot_at(text: str) -> "Snapshot":
    """FILE, or FILE@WHEN as --until takes it: what Mooring knew then, for a rehearsal."""
    from mooring.core.engine.recording.records import BadRecordError
    from mooring.process.blackbox.file import BadRecordingError, RecordingFile
    from mooring.rehearse.from_world import snapshot_of

    file, at, until = text.rpartition("@")
    file, until = (file, until) if at and not Path(text).exists() else (text, "")
    try:
        played = _Played(RecordingFile(Path(file)), until)
        different = played.run()
    except OSError as error:
        raise UserError(f"--from {text}: {error.strerror or error}") from None
    except (BadRecordError, BadRecordingError) as error:
        raise UserError(f"--from {text}: {error}") from None
    if different is not None:
        raise UserError(f"--from {text}: this version decides otherwise; mooring replay {file} says where")
    source = f"recording of {played.recording.header.identity}"
    return snapshot_of(played.engine.world, played.now, played.config, source=source)


def _check(question: tuple[str, ...]) -> None:
    match question:
        case () | ("queue",) | ("top",) | ("page",) | ("why", _) | ("why", _, _):
            return
        case ("why",):
            raise UserError("why about what? e.g. mooring replay FILE why pod/demo-tikv-1 -n tidb")
        case _:
            raise UserError(f"{' '.join(question)!r}: a recording can be asked `why SUBJECT`, `queue`, `top` or `page`")


class _Played:
    """A recording, as far as it was asked for."""

    def __init__(self, recording: "RecordingFile", until: str) -> None:
        from mooring.core.engine.recording.replay import Replay
        from mooring.process.blackbox.playback import Playback

        self.recording = recording
        self._operator, self._verb, self._until = _moment(until, recording.header.started_at)
        played = Playback(recording) if self._until is None else Playback(recording, self._until, first=False)
        self.engine, self.started_at = played.engine, played.started_at
        self._records: Iterator[Record] = played.records
        self.config = played.config
        self.engine.defects.listener = lambda where, error: note(f"mooring: {where}: {type(error).__name__}: {error}")
        self.replay: Replay = Replay(self.engine)
        self._reached = False
        self.engine.history.listeners.append(self._listen)

    def _listen(self, entry: "HistoryEntry") -> None:
        if self._operator and (entry.id, entry.verb) == (self._operator, self._verb):
            self._reached = True

    def run(self) -> "Difference | None":
        from mooring.core.engine.recording.records import Turn

        for record in self._records:
            if self._until is not None and isinstance(record, Turn) and record.now > self._until:
                self._records = chain((record,), self._records)
                return None
            different = self.replay.put(record)
            if different is not None or self._reached:
                return different
        if self._operator:
            raise UserError(
                f"operator {self._operator} is never {self._verb} in {self.recording.path}", Exit.NOT_AS_IT_SHOULD_BE
            )
        if self._until is not None:
            note(f"mooring: the recording ends before that, at {_clock(self.engine.now)}")
        return None

    def rest(self) -> "Iterator[Record]":
        """What was recorded after it."""
        return self._records

    @property
    def now(self) -> float:
        """The moment that questions are about."""
        return self.engine.now if self._until is None else self._until


def _moment(text: str, started_at: float) -> tuple[str, str, float | None]:
    """Operator and verb, or a time; neither: the end."""
    if not text:
        return "", "", None
    if said := re.fullmatch(r"op(?:erator)?[ /](\d+) ([a-z-]+)", text.strip()):
        return said[1], said[2], None
    if seconds := re.fullmatch(r"\+(\d+(?:\.\d+)?)", text):
        return "", "", started_at + float(seconds[1])
    start = dt.datetime.fromtimestamp(started_at, dt.UTC)
    try:
        if re.fullmatch(r"\d\d:\d\d(:\d\d(\.\d+)?)?", text):
            at = dt.datetime.combine(start.date(), dt.time.fromisoformat(text), dt.UTC)
            at += dt.timedelta(days=at < start.replace(microsecond=0))
        else:
            at = dt.datetime.fromisoformat(text)
            at = at.replace(tzinfo=at.tzinfo or dt.UTC)
    except ValueError:
        raise UserError(f"--until {text}: {WHEN}") from None
    if at.timestamp() < int(started_at):
        raise UserError(f"--until {text}: the recording begins at {_clock(started_at)}")
    return "", "", at.timestamp()


def _why(played: _Played, subject: str, namespace: str) -> Any:
    """As `mooring why` would have been told then; how old its data was is not recorded."""
    from mooring.core.engine.why import explain
    from mooring.core.engine.why.resolve import resolve
    from mooring.core.engine.why.typed import spelled_out
    from mooring.process.http.why import not_found

    path = spelled_out(subject, namespace)
    leader = played.recording.header.identity if played.engine.leading else ""
    found = explain(played.engine, path, now=played.now, leader=leader)
    if found is None and len(meant := resolve(played.engine, path, namespace)) == 1:
        found = explain(played.engine, meant[0], now=played.now, leader=leader)
    if found is None:
        raise UserError(not_found(played.engine, path, namespace), Exit.NOT_AS_IT_SHOULD_BE)
    return _plain(found)


async def _frame(played: _Played) -> Any:
    from mooring.process.http.frames import Framer
    from mooring.process.http.recorded import RecordedReplica
    from mooring.process.http.stream import picture

    shown: Any = RecordedReplica(played.recording, played.engine, played.config, played.now)
    frame = await Framer(lambda: shown).build()
    assert frame is not None
    return picture(frame)


def _page(played: _Played, listener: socket.socket) -> int:
    """Until Ctrl-C."""
    from aiohttp import web

    from mooring.process.http.recorded import RecordedPage

    async def serve() -> None:
        page = RecordedPage(played.recording, played.now)
        frames = await page.film()
        runner = web.AppRunner(page.app(), access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        await web.SockSite(runner, listener).start()
        note(f"mooring: {frames} frames, {_clock(played.recording.header.started_at)} to {_clock(played.now)}")
        note(f"Page: http://127.0.0.1:{listener.getsockname()[1]}/ until Ctrl-C; the scrubber is under the map")
        try:
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve())
    return Exit.DONE


def _plain(value: object) -> Any:
    import msgspec

    return json.loads(msgspec.json.encode(value))


def _clock(at: float) -> str:
    return dt.datetime.fromtimestamp(at, dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _equal(played: _Played, output: Format) -> None:
    header, done = played.recording.header, played.replay
    if output is Format.JSON:
        counts = {"turns": done.turns, "instructions": done.instructions}
        print_json({"equal": True, **counts, "from": played.started_at, "to": played.engine.now})
        return
    print(
        f"equal: {done.instructions} instructions in {done.turns} turns, {_clock(played.started_at)} to "
        f"{_clock(played.engine.now)}, recorded by {header.identity}, Mooring {header.mooring}"
    )


def _show(different: "Difference", output: Format) -> None:
    if output is Format.JSON:
        print_json({"equal": False, **_plain(different)})
        return
    print(f"different: instruction {different.place} of turn {different.turn}, at {_clock(different.at)}")
    for side, one in (("recorded", different.recorded), ("computed", different.computed)):
        print(
            f"  {side}  {'nothing' if one is None else f'{one[0]} {json.dumps(one[1], sort_keys=True, default=repr)}'}"
        )
