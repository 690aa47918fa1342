"""`mooring blackbox`: fetch the recording of a running Mooring."""

import shutil
from pathlib import Path
from typing import Annotated, BinaryIO, Final

from cyclopts import App, Parameter

from mooring.cli.exits import CommandError, Exit
from mooring.cli.output import note
from mooring.cli.server import HERE, Reach, ask

app = App(name="blackbox", help="Fetch the recording of a running Mooring.")

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

    Example: mooring blackbox pull --to incident.blackbox --server http://127.0.0.1:8390
    """
    from mooring.process.recording_file import BadRecordingError, RecordingFile

    target = Path(to)
    try:
        file = target.open("xb")
    except OSError as error:
        raise CommandError(f"--to {to}: {error.strerror or error}; name another file") from None
    whole = False
    try:
        with file:
            missing = "this Mooring records nothing; start it with mooring run --blackbox DIR"
            ask(reach, "/api/v1/blackbox", missing=missing, timeout_s=PULL_S, read=lambda body: _save(body, file))
        header = RecordingFile(target).header
        whole = True
    except BadRecordingError as error:
        raise CommandError(f"what was answered is no recording: {error}", Exit.COULD_NOT_LOOK) from None
    finally:
        if not whole:
            target.unlink(missing_ok=True)
    note(f"mooring: {target.stat().st_size} bytes of {header.identity}, Mooring {header.mooring}, in {to}")
    note(f"Next: mooring replay {to}")
    return Exit.DONE


def _save(body: BinaryIO, file: BinaryIO) -> None:
    file.seek(0)
    file.truncate()
    shutil.copyfileobj(body, file)
