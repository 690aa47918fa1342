"""What fleet knows of a machine or its node, for `why`: its place, why it was chosen, and what would change that."""

from collections.abc import Iterator

import msgspec

from mooring.capabilities.drain import empty_node
from mooring.capabilities.drain.leaders import LOOK_AT_LEADERS
from mooring.capabilities.fleet.live import retire
from mooring.capabilities.fleet.live.ledger import StoredCluster
from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.capabilities.fleet.live.retire import emptying_of, retiring_mark, taken_back
from mooring.capabilities.fleet.planner.current import Member
from mooring.core.model.cluster import Node
from mooring.core.model.decision import Line, Verdict
from mooring.core.model.machine import Machine, MachineState
from mooring.core.model.marks import RETIRING
from mooring.core.model.reasons import Reason, State
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
    ends = f"it leaves {policy.wait_retired_s / 60:g} min after this: sabactl machines set-state {serial} retired"
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
