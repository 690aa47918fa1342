"""One finding of the doctor, as a value."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    SKIPPED = "skipped"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    #: "cluster", "rights", "mooring", "webhooks", "extender", "pd", "marks", "settings", or a capability.
    group: str
    level: Level
    #: What was looked at, in words: "API server answers (v1.36.1)".
    what: str
    #: `MO###`; "" for a check that passed.
    code: str = ""
    seen: str = ""
    #: The command that fixes it.
    fix: str = ""


def well(group: str, what: str) -> Finding:
    return Finding(group=group, level=Level.OK, what=what)


def ill(group: str, code: str, what: str, seen: str, fix: str, *, warning: bool = False) -> Finding:
    level = Level.WARNING if warning else Level.ERROR
    return Finding(group=group, level=level, what=what, code=code, seen=seen, fix=fix)


def skipped(group: str, what: str, because: str) -> Finding:
    return Finding(group=group, level=Level.SKIPPED, what=what, seen=because)


def failed(findings: Iterable[Finding], *, strict: bool = False) -> list[Finding]:
    """`strict`: warnings fail too."""
    bad = {"error", "warning"} if strict else {"error"}
    return [f for f in findings if f.level in bad]
