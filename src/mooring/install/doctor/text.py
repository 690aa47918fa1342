"""What `mooring doctor` prints of its findings: for people in groups, or one line each to paste into a chat; and one
script of all fixes, which is printed and never run."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from mooring.core.model.finding import Finding, Level
from mooring.install.doctor.codes import see

MARKS: Final = {"ok": "√", "warning": "‼", "error": "×", "skipped": "–"}


def finding_lines(findings: Sequence[Finding], *, short: bool) -> Iterator[str]:
    """`short`: only what is not well, one line each."""
    if short:
        for f in findings:
            if f.level not in {"ok", "skipped"}:
                yield f"{f.level} [{f.code}] ({f.group}) {f.what}: {f.seen}"
        return
    group = ""
    for f in findings:
        if f.group != group:
            yield from ([""] if group else [])
            yield f.group
            group = f.group
        if f.level == "ok":
            yield f"  {MARKS['ok']} {f.what}"
        elif f.level == "skipped":
            yield f"  {MARKS['skipped']} {f.what}: not looked at: {f.seen}"
        else:
            yield f"  {MARKS[f.level]} {f.level} [{f.code}] ({f.group}) {f.what}"
            yield f"      seen   {f.seen}\n      fix    {f.fix}\n      see    {see(f.code)}"


def counts_line(findings: Sequence[Finding]) -> str:
    counts = {level: sum(f.level == level for f in findings) for level in MARKS}
    return ", ".join(f"{n} {level}" for level, n in counts.items() if n)


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
