"""What `mooring fleet status` and `history` say of the settings, the stored cluster and the nodes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mooring.capabilities.fleet.live import settings
from mooring.capabilities.fleet.live.export import ExportRecord
from mooring.capabilities.fleet.live.ledger import StoredChange, StoredCluster
from mooring.capabilities.fleet.live.settings import cke_finding, parse_settings
from mooring.capabilities.fleet.planner.problem import PlanError
from mooring.core.model.marks import RETIRING, read_mark
from mooring.core.model.times import rfc3339

HISTORY_COLUMNS: Final = ("REVISION", "AT", "ACTION", "CONTROL PLANES", "WORKERS", "CHANGES")


def fleet_status(
    data: Mapping[str, str],
    stored: StoredCluster,
    nodes: Sequence[Mapping[str, Any]],
    exported: ExportRecord | None = None,
) -> dict[str, Any]:
    made = parse_settings(data)
    findings = [made.message] if isinstance(made, PlanError) else [cke_finding(made)]
    if stored.held:
        held = ", ".join(sorted(stored.held))
        findings.append(f"removal blocked: {held} vanished with too many others (mooring fleet confirm-removal)")
    if exported is not None and exported.tries:
        findings.append(f"revision {exported.revision} is not handed on, tried {exported.tries} times: {exported.said}")
    planes = sum(m.control_plane for m in stored.members)
    marks = [(n["metadata"]["name"], (n["metadata"].get("annotations") or {}).get(RETIRING)) for n in nodes]
    retiring = [(name, read_mark(text)) for name, text in marks if text]
    return {
        "enabled": data.get(settings.ENABLED) == "true",
        "url": data.get(settings.URL, ""),
        "revision": stored.revision,
        "control_planes": planes,
        "workers": len(stored.members) - planes,
        "leaving": [m.address for m in stored.members if m.leaving],
        "tainted": [m.address for m in stored.members if m.state_taint],
        "pending": {"added": sorted(stored.pending.added), "removed": sorted(stored.pending.removed)},
        "exported": {} if exported is None else {"revision": str(exported.worked), "said": exported.said},
        "retiring": [
            {"node": name, "machine": m.machine, "step": m.step, "detail": m.detail} for name, m in retiring if m
        ],
        "findings": [f for f in findings if f],
    }


def with_running(found: Mapping[str, Any], running: Mapping[str, Any] | None) -> dict[str, Any]:
    """And what the running Mooring says; None: none answered."""
    findings = list(found["findings"])
    if running is not None:
        plan = running["plan"]
        if not running["on"]:
            findings.append("the running Mooring has fleet off: mooring run --features fleet=true")
        elif plan is not None and plan["state"] == "blocked":
            findings.append(f"plan: {plan['detail']}")
        if running["registry"]["error"]:
            findings.append(f"the registry does not answer: {running['registry']['error']}")
        findings += [f"left out: {one}" for one in running["left_out"]]
        failed = [one for one in running["repairs"] if one["state"] == "failed"]
        findings += [
            f"machine {one['serial']} ({one['address']}) did not come back from its repair, and keeps its place in the "
            f"queue until it is healthy or has left: {one['why']}"
            for one in failed
        ]
    return {**found, "running": running, "findings": list(dict.fromkeys(findings))}


def status_lines(found: Mapping[str, Any]) -> Iterator[str]:
    for key, value in found.items():
        if key not in {"retiring", "findings", "running"}:
            yield f"{key.replace('_', ' '):<18} {_words(value)}"
    running = found.get("running")
    if running is not None:
        plan = running["plan"]
        yield f"plan               {'–' if plan is None else plan['state'] + ': ' + plan['detail']}"
        yield f"registry           {running['registry']['error'] or 'asked ' + str(running['registry']['asked_at'])}"
        for one in running["repairs"]:
            yield f"repair             {one['serial']} ({one['address']}): {one['state']}, {one['why']}"
    for one in found["retiring"]:
        yield f"retiring           {one['node']} ({one['machine']}): {one['step']}, {one['detail']}"


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{k}: {_words(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(value) or "–"
    return {True: "yes", False: "no"}.get(value, str(value) or "–") if isinstance(value, bool) else str(value) or "–"


def history_row(entry: StoredChange, *, every: bool = False) -> tuple[str, ...]:
    """`every`: each change in words; else how many of a kind."""
    counted = Counter(change.partition(" ")[0] for change in entry.changes)
    told = "; ".join(entry.changes) if every else ", ".join(f"{verb} {n}" for verb, n in counted.items())
    return (
        str(entry.revision),
        rfc3339(entry.at),
        entry.action,
        str(entry.control_planes),
        str(entry.workers),
        told + (f" and {entry.more} more" if entry.more else ""),
    )
