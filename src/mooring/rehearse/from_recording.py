"""A snapshot of what Mooring knew at a moment of a recording."""

from collections.abc import Callable
from pathlib import Path

from mooring.core.model.exits import UserError
from mooring.process.blackbox.played import play
from mooring.rehearse.from_world import snapshot_of
from mooring.rehearse.snapshot.schema import Snapshot


def is_recording(path: Path) -> bool:
    """A file, or a directory of them, and perhaps a moment."""
    file = path if path.exists() else Path(str(path).rpartition("@")[0])
    if not file.is_file():
        return file.is_dir() and bool(str(path).rpartition("@")[0] or path.is_dir())
    with file.open("rb") as opened:
        return b'"mooring-blackbox"' in opened.read(1 << 16).partition(b"\n")[0]


def snapshot_at(text: str, say: Callable[[str], None]) -> Snapshot:
    """FILE, or FILE@WHEN: what Mooring knew then."""
    file, at, until = text.rpartition("@")
    file, until = (file, until) if at and not Path(text).exists() else (text, "")
    try:
        played, different = play(file, until, say)
    except UserError as error:
        raise UserError(f"--from {text}: {error}", error.code) from None
    if different is not None:
        raise UserError(f"--from {text}: this version decides otherwise; mooring replay {file} says where")
    source = f"recording of {played.recording.header.identity}"
    return snapshot_of(played.engine.world, played.now, played.config, source=source)
