"""`mooring blackbox`: fetch the recording of a running Mooring, and redact it for others."""

import shutil
from pathlib import Path
from typing import Annotated, BinaryIO, Final

from cyclopts import App, Parameter

from mooring.cli.output import note
from mooring.cli.server import HERE, Reach, ask
from mooring.core.model.exits import Exit, UserError

app = App(name="blackbox", help="Fetch the recording of a running Mooring, and redact it for others.")

#: A recording may be hundreds of megabytes.
PULL_S: Final = 120.0


@app.command
def pull(
    *,
    to: Annotated[str, Parameter(help="The file to write; one that is there is not replaced.")] = "mooring.blackbox",
    reach: Reach = HERE,
) -> int:
    """Fetch what a running Mooring has recorded so far, for `mooring replay`.

    It answers with its own recording: of several replicas, that of the one that is reached. A Mooring off loopback
    wants its token (MOORING_HTTP_TOKEN). The file has names, labels and our own ConfigMaps in it, and no Secret.

    Example: mooring blackbox pull

    Example: mooring blackbox pull --mooring-namespace mooring --kubeconfig prod.kubeconfig

    Example: mooring blackbox pull --to incident.blackbox --server http://127.0.0.1:8390
    """
    from mooring.process.blackbox.file import BadRecordingError, RecordingFile, create

    target = Path(to)
    try:
        file = create(target)
    except OSError as error:
        raise UserError(f"--to {to}: {error.strerror or error}; name another file") from None
    whole = False
    try:
        with file:
            missing = "this Mooring records nothing; start it with mooring run --blackbox DIR"
            ask(reach, "/api/v1/blackbox", missing=missing, timeout_s=PULL_S, read=lambda body: _save(body, file))
        header = RecordingFile(target).header
        whole = True
    except BadRecordingError as error:
        raise UserError(f"what was answered is not a recording: {error}", Exit.UNREACHABLE) from None
    finally:
        if not whole:
            target.unlink(missing_ok=True)
    note(f"mooring: {target.stat().st_size} bytes of {header.identity}, Mooring {header.mooring}, in {to}")
    note(f"Next: mooring replay {to}")
    return Exit.DONE


@app.command
def redact(
    file: Annotated[str, Parameter(help="A recording, or a directory: then the newest in it.")],
    /,
    *,
    to: Annotated[str, Parameter(help="The file to write; one that is there is not replaced.")] = "redacted.blackbox",
    names: Annotated[bool, Parameter(negative="", help="Replace names by pseudonyms that sort alike.")] = False,
) -> int:
    """Take out of a recording what others need not see.

    There is no Secret, environment, argument or image in one. Logins in URLs and bearer tokens are taken out of every
    text; with --names names, IP addresses and every word that Mooring does not use itself are replaced by pseudonyms,
    the same everywhere. What was written is replayed: exits 0 when it is still equal, 1 when it is not, and says where.

    Example: mooring blackbox redact mooring.blackbox --to report.blackbox

    Example: mooring blackbox redact mooring.blackbox --names --to report.blackbox
    """
    from mooring.core.engine.recording.replay import Replay
    from mooring.process.blackbox.file import RecordingFile
    from mooring.process.blackbox.playback import Playback
    from mooring.process.blackbox.redact import redact as write

    try:
        replaced = write(RecordingFile(Path(file)), Path(to), names=names)
        played = Playback(RecordingFile(Path(to)))
        played.engine.defects.listener = lambda where, error: note(f"mooring: {where}: {type(error).__name__}: {error}")
        replay = Replay(played.engine)
        different = next((found for one in played.records if (found := replay.put(one)) is not None), None)
    except OSError as error:
        raise UserError(f"{error.filename or file}: {error.strerror or error}") from None
    words = f", {replaced} words replaced" if names else ""
    note(f"mooring: {Path(to).stat().st_size} bytes in {to}{words}")
    if different is not None:
        note(
            f"mooring: it does not replay equal any more, from turn {different.turn} on: mooring replay {to} says where"
        )
        return Exit.CHECK_FAILED
    note(f"mooring: it replays equal: {replay.instructions} instructions in {replay.turns} turns")
    return Exit.DONE


def _save(body: BinaryIO, file: BinaryIO) -> None:
    file.seek(0)
    file.truncate()
    shutil.copyfileobj(body, file)
