"""Between plan and act: the plan is the destination, and only what the queue has released is stored, exported, tainted.

What may happen at once: a worker joins, a vanished worker leaves, a taint is lifted or goes on from retiring to
retired, labels change. What waits for the queue:

    control plane   one member at a time: one comes in, one goes out, or one replaces another; each its own revision
    NoExecute       until the node is empty (`retire-machine`)
    leaving         a node whose machine is still there goes out in two steps: decided out and stored as leaving, which
                    the planner no longer counts, then gone once it is empty

So `cluster_now` turns (stored members, plan, released) into the members to store next. Called again with the same, it
changes nothing; called until everything is released, it arrives at the plan.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from mooring.capabilities.fleet.planner.current import Member, wanted_state_taint
from mooring.capabilities.fleet.planner.labels import Renderer, with_nodes
from mooring.capabilities.fleet.planner.plan import Assignment, ClusterPlan
from mooring.capabilities.fleet.planner.template import Template
from mooring.core.model import subjects
from mooring.core.model.machine import Machine
from mooring.core.model.operator import Operator, Payload, Step, StepKind
from mooring.core.model.reasons import Reason

SOURCE: Final = "fleet"
RETIRE_MACHINE: Final = "retire-machine"
CHANGE_CONTROL_PLANE: Final = "change-control-plane"
FLEET_TARGET: Final = "fleet"
CONTROL_PLANE_TARGET: Final = "control-plane"
_STORE_STEPS: Final = (Step(StepKind.STORE_CLUSTER),)


class MemberChange(msgspec.Struct, frozen=True):
    """One change of the control plane. Both set: a replacement."""

    incoming: str = ""
    outgoing: str = ""


class Released(msgspec.Struct, frozen=True):
    """What the queue has let pass so far."""

    #: At most one at a time.
    control_plane: MemberChange | None = None
    #: Addresses of nodes that are empty (or whose time is up): NoExecute may be set, and they may leave.
    emptied: frozenset[str] = frozenset()
    #: The `immediate` mode: taint first, as CKE does.
    immediate: bool = False


def member_changes(members: Iterable[Member], plan: ClusterPlan) -> tuple[MemberChange, ...]:
    """The way from the stored control plane to the planned one, dead members first, replacements before the rest."""
    stored = [m.address for m in members if m.control_plane]
    planned = {s.address: s for s in plan.assignments if s.control_plane}
    assigned = {s.address: s for s in plan.assignments}
    incoming = [a for a in planned if a not in stored]
    outgoing = [a for a in stored if a not in planned]
    outgoing.sort(key=lambda a: a in assigned)  # those that leave altogether (vanished) before the demoted; stable
    pairs = min(len(incoming), len(outgoing))
    replaced = [MemberChange(i, o) for i, o in zip(incoming, outgoing, strict=False)]
    return (
        *replaced,
        *(MemberChange(incoming=a) for a in incoming[pairs:]),
        *(MemberChange(outgoing=a) for a in outgoing[pairs:]),
    )


def to_empty(members: Iterable[Member], plan: ClusterPlan, machines: Mapping[str, Machine]) -> tuple[Machine, ...]:
    """Machines whose node must be emptied before the plan can be carried out for them."""
    assignments = {s.address: s for s in plan.assignments}
    found = []
    for m in members:
        machine = machines.get(m.address)
        if machine is None or m.state_taint is not None or m.control_plane:
            continue  # nothing to empty, empty already, or not its turn yet: a control plane is demoted first
        if m.address not in assignments or wanted_state_taint(machine.state) is not None:
            found.append(machine)
    return tuple(found)


def cluster_now(
    members: Iterable[Member],
    plan: ClusterPlan,
    released: Released,
    machines: Mapping[str, Machine],
    maximum_workers: int = 0,
) -> tuple[Member, ...]:
    """The members to store now: what is there, plus what needs no release, plus what was released."""
    stored = {m.address: m for m in members}
    if not stored:
        return tuple(_member(s, tainted=True) for s in plan.assignments)
    assignments = {s.address: s for s in plan.assignments}
    change = released.control_plane
    if change not in member_changes(stored.values(), plan):
        change = None  # the cluster has changed since: an old release no longer applies
    incoming, outgoing = (change.incoming, change.outgoing) if change else ("", "")
    planes, workers = [], []
    for address, old in stored.items():
        if address == incoming:
            continue
        assignment = assignments.get(address)
        if old.control_plane and address != outgoing:
            planes.append(_kept(old, assignment, released, control_plane=True))
        elif assignment is not None:
            workers.append(_kept(old, assignment, released, control_plane=False))
        elif address in machines and not _may_leave(old, released):
            workers.append(Member(address, False, None, old.serial, leaving=True))
    if incoming:
        planes.append(_member(assignments[incoming], tainted=False))
    workers += _newcomers(plan, stored, workers, maximum_workers)
    return (*planes, *workers)


def _newcomers(plan: ClusterPlan, stored: Mapping[str, Member], kept: list[Member], maximum: int) -> list[Member]:
    """New workers, as many as the maximum allows while one to be promoted still sits among the workers."""
    new = [_member(s, tainted=False) for s in plan.assignments if not s.control_plane and s.address not in stored]
    if not maximum:
        return new
    before = sum(1 for m in stored.values() if not m.control_plane and not m.leaving)
    room = max(maximum, before) - sum(1 for m in kept if not m.leaving)
    return new[: max(room, 0)]


def _kept(old: Member, assignment: Assignment | None, released: Released, *, control_plane: bool) -> Member:
    if assignment is None or assignment.machine is None:
        return msgspec.structs.replace(old, control_plane=control_plane)
    wanted = wanted_state_taint(assignment.machine.state)
    waiting_on = wanted is not None and old.state_taint is None
    if waiting_on and not released.immediate and old.address not in released.emptied:
        wanted = None
    return Member(old.address, control_plane, wanted, assignment.machine.serial)


def _may_leave(old: Member, released: Released) -> bool:
    """Emptied, now or before it was tainted."""
    return released.immediate or old.state_taint is not None or old.address in released.emptied


def _member(assignment: Assignment, *, tainted: bool) -> Member:
    machine = assignment.machine
    if machine is None:
        return Member(assignment.address, assignment.control_plane)
    taint = wanted_state_taint(machine.state) if tainted else None
    return Member(assignment.address, assignment.control_plane, taint, machine.serial)


def write_released(template: Template, members: Iterable[Member], machines: Mapping[str, Machine]) -> dict[str, Any]:
    """cluster.yml of the stored members. `machines`: as they are stored beside them."""
    renderer = Renderer(template)
    nodes = []
    for m in members:
        machine = machines.get(m.address)
        if machine is None or not (m.control_plane or template.for_worker(machine.role)):
            nodes.append(renderer.vanished(m.address, control_plane=m.control_plane, kept=None))
        else:
            nodes.append(renderer.node(machine, control_plane=m.control_plane, state_taint=m.state_taint))
    return with_nodes(template, nodes)


class ChangeControlPlane(Payload, frozen=True, gc=False, kw_only=True):
    """Addresses of who joins and who leaves the control plane; "": nobody."""

    incoming: str
    outgoing: str


def control_plane_change(operator: Operator) -> ChangeControlPlane:
    assert isinstance(operator.payload, ChangeControlPlane)
    return operator.payload


def change_operator(change: MemberChange, members: Iterable[Member], plan: ClusterPlan, node: str) -> Operator:
    """What a change of the control plane asks of the queue. `node`: whom it is about, by name."""
    why = {c.address: c.why for c in plan.changes}
    serials = {m.address: m.serial for m in members}
    serials |= {s.address: s.machine.serial for s in plan.assignments if s.machine}
    both = [a for a in (change.outgoing, change.incoming) if a]
    return Operator(
        id="",
        source=SOURCE,
        kind=CHANGE_CONTROL_PLANE,
        subject=subjects.machine(serials.get(both[0]) or both[0]),
        claims=tuple(subjects.machine(serials.get(a) or a) for a in both),
        steps=_STORE_STEPS,
        phases=({CONTROL_PLANE_TARGET: 1},),
        reason=Reason.REPAIR if len(both) == 2 else Reason.ASKED,
        detail="; ".join(why[a] for a in both if a in why),
        payload=ChangeControlPlane(incoming=change.incoming, outgoing=change.outgoing, node=node),
    )
