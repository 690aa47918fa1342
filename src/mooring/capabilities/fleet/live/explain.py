"""What fleet says to people: `why` about a machine or its node, and `mooring fleet status` and `history`."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from mooring.capabilities.drain import empty_node
from mooring.capabilities.drain.leaders import LOOK_AT_LEADERS
from mooring.capabilities.fleet.live import retire, settings
from mooring.capabilities.fleet.live.export import ExportRecord
from mooring.capabilities.fleet.live.ledger import StoredChange, StoredCluster
from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.capabilities.fleet.live.retire import emptying_of, retiring_mark, taken_back
from mooring.capabilities.fleet.live.settings import cke_finding, parse_settings
from mooring.capabilities.fleet.planner.current import Member
from mooring.capabilities.fleet.planner.document import PlanError
from mooring.core.model.cluster import Node
from mooring.core.model.decision import Line, Verdict
from mooring.core.model.machine import Machine, MachineState
from mooring.core.model.marks import RETIRING, read_mark
from mooring.core.model.reasons import Reason, State
from mooring.core.model.times import rfc3339
from mooring.core.world.read import WorldRead


def machine_words(
    machine: Machine | None, member: Member | None, ledger: StoredCluster, node: Node | None
) -> Iterator[Line]:
    if member is None:
        if machine is not None and machine.problem:
            yield Line("now", f"left out: its row in the registry cannot be used: {machine.problem}")
        elif machine is not None and not machine.address:
            yield Line("now", "left out: it has no IPv4 address")
        elif machine is not None:
            spare = "spare" if machine.state is MachineState.HEALTHY else f"not to be chosen: {machine.state.value}"
            yield Line("now", f"in no cluster (revision {ledger.revision}); {spare}")
        return
    yield Line("now", f"{_role(member)} in the stored cluster, revision {ledger.revision}")
    chosen = next(_said(ledger, member.address), None)
    if chosen is not None:
        yield Line("why there", chosen)
    if machine is not None and machine.problem:
        yield Line("now", f"as it was: its row in the registry cannot be used: {machine.problem}")
    if machine is None:
        held = member.address in ledger.held
        yield Line("now", "not in the registry any more" + ("; its removal is blocked" if held else ""))
        if held:
            yield Line("to change", f"confirm     mooring fleet confirm-removal {member.address}")
    mark = retiring_mark(node) if node is not None else None
    if mark is not None and mark.step == retire.BLOCKED:
        yield Line("now", f"given up for now: {mark.detail}; tried again later")


def retirement(
    node: Node, member: Member, machine: Machine, world: WorldRead, policy: FleetPolicy, now: float
) -> Verdict | None:
    """What a leaving machine waits for while no operator is at work on it; None: it is not leaving."""
    serial, state = machine.serial, machine.state.value
    mark = retiring_mark(node)
    if retire.still_wanted(member, machine) and taken_back(node):
        words = f"{node.name} was uncordoned by hand while machine {serial} is {state}: nothing more is evicted"
        return Verdict(State.BLOCKED, Reason.CORDONED, words, f"to go on: kubectl cordon {node.name}")
    if mark is not None and mark.step == retire.BLOCKED:
        again = max(0.0, retire.may_try(node, policy) - now) / 60
        words = f"gave up for now, tried again in {again:.0f} min"
        held = empty_node.emptiness(emptying_of(node.name, node, policy, now), world, now).held
        if held:
            return msgspec.structs.replace(held[0], detail=f"{held[0].detail}; {words}")
        if mark.reason == Reason.LEADERS_LEFT:
            return Verdict(State.BLOCKED, Reason.LEADERS_LEFT, f"{mark.detail}; {words}", LOOK_AT_LEADERS)
        at_once = f"to try at once: kubectl annotate node {node.name} {RETIRING}-"
        return Verdict(State.WAITING, Reason.BACK_OFF, f"{mark.detail}; {words}", at_once)
    if member.state_taint is None or mark is not None:
        return None
    ends = f"it leaves {policy.wait_retired_s / 60:g} min after its state in the registry is set to retired"
    return Verdict(State.WAITING, Reason.RETIRING, f"drained and tainted, {state}", ends)


def _role(member: Member) -> str:
    if member.control_plane:
        return "control plane"
    if member.leaving:
        return "leaving worker"
    return f"worker, tainted {member.state_taint[0]}" if member.state_taint else "worker"


def _said(ledger: StoredCluster, address: str) -> Iterator[str]:
    """What was said of it when its place last changed, the newest first."""
    for entry in reversed(ledger.history):
        for change in entry.changes:
            verb, _, rest = change.partition(" ")
            where, _, why = rest.partition(": ")
            if where == address:
                yield f"revision {entry.revision}, {verb}: {why}"


# ── `mooring fleet status` and `history` ────────────────────────────────────────────────────────────────────────────

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
        "machines": "listed in the settings" if data.get(settings.MACHINES) else "",
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
        return "; ".join(f"{k}: {_words(v)}" for k, v in value.items()) or "–"
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
