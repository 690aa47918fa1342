"""What `mooring fleet status` and `history` say of the settings, the stored cluster and the nodes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mooring.capabilities.fleet.live import settings
from mooring.capabilities.fleet.live.ledger import StoredChange, StoredCluster
from mooring.capabilities.fleet.live.settings import cke_finding, parse_settings
from mooring.capabilities.fleet.planner.problem import PlanError
from mooring.core.model.marks import RETIRING, read_mark
from mooring.core.model.times import rfc3339

HISTORY_COLUMNS: Final = ("REVISION", "AT", "ACTION", "CONTROL PLANES", "WORKERS", "CHANGES")


def fleet_status(data: Mapping[str, str], stored: StoredCluster, nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    made = parse_settings(data)
    findings = [made.message] if isinstance(made, PlanError) else [cke_finding(made)]
    if stored.held:
        held = ", ".join(sorted(stored.held))
        findings.append(f"removal blocked: {held} vanished with too many others (mooring fleet confirm-removal)")
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
        "pending": {"added": stored.pending.added, "removed": stored.pending.removed},
        "retiring": [
            {"node": name, "machine": m.machine, "step": m.step, "detail": m.detail} for name, m in retiring if m
        ],
        "findings": [f for f in findings if f],
    }


def status_lines(found: Mapping[str, Any]) -> Iterator[str]:
    for key, value in found.items():
        if key not in {"retiring", "findings"}:
            yield f"{key.replace('_', ' '):<18} {_words(value)}"
    for one in found["retiring"]:
        yield f"retiring           {one['node']} ({one['machine']}): {one['step']}, {one['detail']}"


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{k}: {_words(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(value) or "–"
    return {True: "yes", False: "no"}.get(value, str(value) or "–") if isinstance(value, bool) else str(value) or "–"


def history_row(entry: StoredChange) -> tuple[str, ...]:
    return (
        str(entry.revision),
        rfc3339(entry.at),
        entry.action,
        str(entry.control_planes),
        str(entry.workers),
        "; ".join(entry.changes) + (f"; and {entry.more} more" if entry.more else ""),
    )
