"""What `mooring doctor` prints of its findings: for people in groups, or one line each to paste into a chat."""

from collections.abc import Iterator, Sequence
from typing import Final

from mooring.core.model.finding import Finding
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
