"""`mooring doctor`: does the cluster have what Mooring needs, and does Mooring work in it?"""

import asyncio
import os
import time
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from mooring.cli.connect import ConfigFile, Context, Kubeconfig, OwnNamespace, Pd, connect
from mooring.cli.output import Format, Output, Progress, note, print_data, print_lines, print_text
from mooring.cli.server import DEFAULT, Server, ask
from mooring.core.model.exits import Exit, UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mooring.install.doctor import Finding
    from mooring.process.settings.config import Resolved

app = App(name="doctor")


@app.default
def doctor(
    *,
    pre: Annotated[bool, Parameter(help="Before installing: what the cluster must bring along.")] = False,
    wait: Annotated[float, Parameter(help="Look again for this many seconds while something is wrong.")] = 0.0,
    short: Annotated[bool, Parameter(help="Only findings, one line each: to paste into a chat.")] = False,
    strict: Annotated[bool, Parameter(help="Warnings fail too.")] = False,
    fix: Annotated[bool, Parameter(help="Print one script of all fixes. Nothing is run.")] = False,
    code: Annotated[str, Parameter(help="Only say what this code means, e.g. MO202.")] = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    config: ConfigFile = "",
    features: Annotated[str, Parameter(help="Whose rights and parts to check: NAME=true,…")] = "",
    namespace: OwnNamespace = "",
    pd: Pd = (),
    service_account: Annotated[str, Parameter(help='Whose rights to ask about; "" asks about your own.')] = "mooring",
    server: Server = "",
    output: Output = Format.TABLE,
) -> int:
    """Look at everything Mooring needs, and say for each finding what was seen and the command that fixes it.

    Exits 0 when every check passes, 1 with a finding, 4 when the cluster could not be looked at. Warnings fail only
    with --strict. Every code (MO###) has a section in docs/doctor.md.

    Example: mooring doctor --pre

    Example: mooring doctor --features handoff=true,mix=true --wait 60 --short

    Example: mooring doctor --fix > fixes.sh
    """
    if code:
        return _meaning(code)
    from mooring.core.model.finding import failed, ill
    from mooring.process.settings.config import ConfigError, resolve

    flags = {"kubeconfig": kubeconfig, "context": context, "features": features, "namespace": namespace}
    try:
        resolved = resolve(flags, os.environ, config, pd)
    except ConfigError as error:
        findings = [ill("settings", "MO801", "settings are valid", str(error), "mooring config")]
        _print(findings, output, short=short)
        return Exit.CHECK_FAILED
    address = server or os.environ.get("MOORING_SERVER", DEFAULT)
    findings = _until_well(lambda: asyncio.run(_examine(resolved, pre, service_account, address)), wait, strict=strict)
    bad = failed(findings, strict=strict)
    if fix:
        from mooring.install.doctor.text import script

        print_text("\n".join(script(findings, _blocked(server))))
    else:
        _print(findings, output, short=short)
    if any(f.code == "MO101" for f in bad):
        return Exit.UNREACHABLE
    return Exit.CHECK_FAILED if bad else Exit.DONE


def _until_well(look: "Callable[[], list[Finding]]", wait_s: float, *, strict: bool) -> "list[Finding]":
    """The findings of the first look at which every check passes, or of the last one within that time."""
    from mooring.core.model.finding import failed

    deadline = time.monotonic() + wait_s
    while True:
        findings = look()
        bad = failed(findings, strict=strict)
        if not bad or time.monotonic() >= deadline:
            return findings
        note(f"doctor: {len(bad)} not well yet ({bad[0].code} {bad[0].what}); looking again")
        time.sleep(min(2.0, max(0.0, deadline - time.monotonic())))


async def _examine(resolved: "Resolved", pre: bool, account: str, server: str) -> "list[Finding]":
    from mooring.install.doctor import DoctorTarget, examine
    from mooring.process.clock import SystemRandomness, WallClock

    settings = resolved.config
    async with connect(settings.kubeconfig, settings.context, probe=False) as api:
        patient = DoctorTarget(
            api=api,
            clock=WallClock(),
            randomness=SystemRandomness(),
            config=settings,
            sources=resolved.sources,
            server=server,
            token=settings.http_token,
            account=account,
        )
        progress = Progress()
        try:
            return await examine(patient, pre=pre, say=lambda what: progress.line(f"looking at {what}", stay=True))
        finally:
            progress.clear()


def _meaning(code: str) -> int:
    from mooring.install.doctor import codes, meaning

    found = codes().get(code.upper())
    if found is None:
        raise UserError(f"no code {code!r}; there are {', '.join(codes())}")
    print_text(f"{code.upper()}: {found}\n\n{meaning(code.upper())}")
    return Exit.DONE


def _blocked(server: str) -> "list[dict[str, Any]]":
    """What the running Mooring says a person must act on, with the commands; nothing when there is no answer."""
    try:
        rows = ask(server, "/api/v1/queue")["rows"]
        subjects = dict.fromkeys(row["subject"] for row in rows if row["state"] == "blocked")
        return [ask(server, f"/api/v1/why/{subject}", missing="gone") for subject in subjects]
    except UserError:
        return []


def _print(findings: "list[Finding]", output: Format, *, short: bool) -> None:
    from mooring.core.model.finding import failed
    from mooring.install.doctor.text import counts_line, finding_lines

    if output.data:
        print_data(output, {"well": not failed(findings), "findings": findings})
        return
    print_lines(finding_lines(findings, short=short))
    if short:
        note(counts_line(findings))
    else:
        print_lines(["", counts_line(findings)])
