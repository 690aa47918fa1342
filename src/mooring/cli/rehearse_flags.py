"""Flags that `mooring rehearse play` and `sweep` share: the snapshot, Mooring's settings, and how it is played."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from mooring.cli.connect import ConfigFile
from mooring.cli.output import note
from mooring.core.model.exits import Exit, UserError

if TYPE_CHECKING:
    from mooring.process.settings.config import Config, Resolved
    from mooring.rehearse.snapshot.schema import Snapshot
    from mooring.rehearse.sweep.sweep import Plan


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Setup:
    """What is played on, and how."""

    from_: Annotated[
        Path | None, Parameter(name="--from", help="A snapshot, or a recording of the black box: FILE@03:12:05.")
    ] = None
    demo: Annotated[bool, Parameter(negative="", help="The demo's cluster instead of a snapshot.")] = False
    notice: Annotated[str, Parameter(help="spot-gone: how long before they go the nodes get notice.")] = "120s"
    unannounced: Annotated[bool, Parameter(negative="", help="spot-gone: they just go.")] = False
    count: Annotated[int, Parameter(help="retire: so many machines, the first by serial that have a node.")] = 0
    rack_label: Annotated[str, Parameter(help="rack-lost: the node label that names the rack.")] = ""
    away: Annotated[str, Parameter(help="pd-away, api-away, zone-cut-off: for how long.")] = "5m"
    for_: Annotated[str, Parameter(name="--for", help="At most so much virtual time.")] = "30m"
    ending: Annotated[str, Parameter(help="How long a pod takes to end, at most its grace.")] = "1s"
    config: ConfigFile = ""
    features: Annotated[str, Parameter(help="NAME=true|false,…; every feature is on unless this or --config says.")] = (
        ""
    )
    seed: Annotated[int, Parameter(help="Another seed, another draw among equal nodes; 1: the first by name.")] = 1

    def snapshot(self) -> "Snapshot":
        from mooring.cli import replay
        from mooring.process import logs
        from mooring.rehearse.snapshot import schema

        if (self.from_ is None) != self.demo:
            raise UserError("name a snapshot: --from FILE (mooring rehearse snapshot -f FILE), or --demo")
        logs.configure("critical", "auto")
        if self.from_ is None:
            return demo(1)
        return replay.snapshot_at(str(self.from_)) if _is_recording(self.from_) else schema.read(self.from_)

    def flags(self) -> str:
        """What says the same snapshot again."""
        return "--demo" if self.from_ is None else f"--from {self.from_}"

    def plan(self) -> "Plan":
        """Raises BadEventError."""
        from mooring.rehearse.events.catalog import Options, span
        from mooring.rehearse.sweep.sweep import Plan
        from mooring.sandbox.kubelet import Pace

        options = Options(
            notice_s=span(self.notice),
            unannounced=self.unannounced,
            count=self.count,
            rack_label=self.rack_label,
            away_s=span(self.away),
        )
        pace = Pace(end_s=span(self.ending))
        return Plan(config=self._config(), options=options, seed=self.seed, limit_s=span(self.for_), pace=pace)

    def _config(self) -> "Config":
        from mooring.rehearse.play import everything_on

        resolved = settings({"features": self.features}, self.config, ())
        return resolved.config if resolved.sources["features"] != "default" else everything_on(resolved.config)


def _is_recording(path: Path) -> bool:
    """A file, or a directory of them, and perhaps a moment."""
    file = path if path.exists() else Path(str(path).rpartition("@")[0])
    if not file.is_file():
        return file.is_dir() and bool(str(path).rpartition("@")[0] or path.is_dir())
    with file.open("rb") as opened:
        return b'"mooring-blackbox"' in opened.read(1 << 16).partition(b"\n")[0]


@contextmanager
def explained(file: Path | None) -> Iterator[None]:
    """Bad input is 2 and a Mooring that does not come up is 4, each in a sentence."""
    from mooring.rehearse.events.catalog import BadEventError
    from mooring.rehearse.snapshot.schema import BadSnapshotError

    try:
        yield
    except BadEventError as error:
        raise UserError(str(error)) from None
    except BadSnapshotError as error:
        words = str(error)
        raise UserError(words if file is None or str(file) in words else f"{file}: {words}") from None
    except AssertionError as error:
        words = (str(error).splitlines() or ["?"])[0]
        raise UserError(f"Mooring did not come up on this snapshot: {words}", Exit.COULD_NOT_LOOK) from None


def settings(flags: Mapping[str, str | None], config: str, pd: tuple[str, ...]) -> "Resolved":
    from mooring.process.settings.config import ConfigError, resolve

    try:
        resolved = resolve(flags, os.environ, config, pd)
    except ConfigError as error:
        raise UserError(str(error)) from None
    for warning in resolved.warnings:
        note(f"mooring: warning: {warning}")
    return resolved


def demo(seed: int) -> "Snapshot":
    from mooring.process import logs
    from mooring.rehearse.snapshot.demo import demo_snapshot

    logs.configure("critical", "auto")
    return demo_snapshot(seed)


class Progress:
    """One line on a terminal, written over; nothing into a pipe."""

    def __init__(self) -> None:
        self._on = sys.stderr.isatty()

    def show(self, at_s: float, words: str) -> None:
        minutes, seconds = divmod(int(at_s), 60)
        self.line(f"{minutes}:{seconds:02d}  {words}", stay=True)

    def line(self, words: str, *, stay: bool = False) -> None:
        if self._on:
            print(f"\r\x1b[K{words}", end="", file=sys.stderr, flush=True)
            if not stay:
                self.clear()

    def clear(self) -> None:
        if self._on:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
