"""Handing the stored cluster on: when is it due, and what is remembered of it. Pure; `process/fleet/export` does it."""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

NAME: Final = "mooring-fleet-export"
STATE: Final = "state.json"
#: The only Secret that Mooring may write cluster.yml into: its rights name it.
SECRET: Final = "mooring-fleet-cluster"  # noqa: S105
_LONGEST_S: Final = 3600.0
#: From here on the wait is the longest in any case.
_DOUBLINGS: Final = 20


class ExportPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    #: Run by the leader on each stored revision, without a shell: `["ckecli", "cluster", "set", "{file}"]`. `{file}` is
    #: cluster.yml, which is on stdin too.
    command: tuple[str, ...] = ()
    #: Or where cluster.yml is written, in Mooring's namespace, for GitOps: `configmap/NAME/KEY`, or
    #: `secret/mooring-fleet-cluster/KEY` where its options hold what not everybody may read.
    to: Annotated[
        str,
        Meta(pattern=rf"^((configmap/[a-z0-9]([-a-z0-9.]*[a-z0-9])?|secret/{SECRET})/[-._a-zA-Z0-9]+)?$"),
    ] = ""
    #: How long the command may take.
    timeout_s: Annotated[float, Meta(ge=1, le=3600)] = 60.0
    #: How long until it is tried again after it failed; doubled each time, at most an hour.
    retry_s: Annotated[float, Meta(ge=1, le=3600)] = 30.0

    @property
    def on(self) -> bool:
        return bool(self.command or self.to)


class ExportRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    #: Tried last, and when.
    revision: int = 0
    at: float = 0.0
    #: How often it failed since it last worked for this revision.
    tries: int = 0
    #: Its last words.
    said: str = ""
    #: The last revision that was handed on.
    worked: int = 0


def read_record(data: Mapping[str, str]) -> ExportRecord:
    """What cannot be read counts as nothing: the revision is then handed on once more."""
    try:
        return msgspec.json.decode(data.get(STATE) or "{}", type=ExportRecord)
    except (msgspec.DecodeError, RecursionError):
        return ExportRecord()


def due_at(record: ExportRecord, revision: int, policy: ExportPolicy) -> float | None:
    """When this revision is to be handed on; None: it has been."""
    if record.worked == revision:
        return None
    if record.revision != revision or not record.tries:
        return 0.0
    doubled: int = 2 ** (min(record.tries, _DOUBLINGS) - 1)
    return record.at + min(policy.retry_s * doubled, _LONGEST_S)


def after(record: ExportRecord, revision: int, now: float, *, worked: bool, said: str) -> ExportRecord:
    tries = 0 if worked else (record.tries if record.revision == revision else 0) + 1
    return ExportRecord(revision, now, tries, said, revision if worked else record.worked)
