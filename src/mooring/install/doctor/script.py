"""One script of all fixes: printed, never run. What only a person can decide stands there as a comment."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from mooring.core.model.finding import Finding, Level

_COMMAND: Final = re.compile(r"^(?:kubectl|mooring|helm|pd-ctl|sabactl|timedatectl) ")
#: Nothing is left to fill in by hand.
_OPEN: Final = re.compile(r"…|\bNAME\b|\bADDR\b|\bURL\b")
_LOOKS: Final = re.compile(
    r"^(?:kubectl (?:-n \S+ )?(?:get|describe|logs|version|port-forward)|mooring (?:why|doctor|config))\b"
)


def script(findings: Iterable[Finding], blocked: Iterable[Mapping[str, Any]] = ()) -> list[str]:
    """A shell script: each finding with its command; of what is blocked, the commands that `why` names, to choose."""
    lines = [
        "#!/bin/sh",
        "# Printed by mooring doctor --fix. Nothing was run: read it, then run what you mean.",
        "set -eu",
    ]
    count = 0
    for finding in findings:
        if finding.level in {Level.ERROR, Level.WARNING}:
            count += 1
            seen = " ".join(f"{finding.what}: {finding.seen}".split())
            lines += ["", f"# {finding.code} ({finding.group}) {seen}", *_fix(" ".join(finding.fix.splitlines()))]
    for answer in blocked:
        commands = list(_commands(answer))
        if commands:
            count += 1
            lines += ["", f"# {answer['answer']}", *(f"# {command}" for command in commands)]
    return [*lines, "", f"# {count} to fix"] if count else [*lines, "", "# nothing to fix"]


def _fix(fix: str) -> Iterator[str]:
    """`command   (a remark)`: what can be run as it stands is run, the rest is for a person."""
    command, _, remark = fix.partition("   (")
    if remark:
        yield f"# {remark.removesuffix(')')}"
    runs = _COMMAND.match(command) and not _OPEN.search(command) and ", " not in command and not _LOOKS.match(command)
    yield command if runs else f"# by hand: {command}"


def _commands(answer: Mapping[str, Any]) -> Iterator[str]:
    for line in answer.get("lines", ()):
        if line["label"] == "to change":
            yield line["text"]
