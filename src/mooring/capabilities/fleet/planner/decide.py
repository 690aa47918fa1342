"""The planner: template, constraints, machines and the current cluster → one plan. Pure."""

from collections.abc import Mapping
from typing import Any

from mooring.capabilities.fleet.planner import generate
from mooring.capabilities.fleet.planner.current import Member
from mooring.capabilities.fleet.planner.draft import Draft, verb_of
from mooring.capabilities.fleet.planner.files.template import Template
from mooring.capabilities.fleet.planner.labels import Renderer, with_nodes
from mooring.capabilities.fleet.planner.plan import Action, Assignment, ClusterPlan, FleetView, PlanChange, Verb
from mooring.capabilities.fleet.planner.taints import wanted_state_taint
from mooring.capabilities.fleet.planner.update import update


def decide(view: FleetView) -> ClusterPlan:
    """First generation without a current cluster, else the one action that is due (or the new template's turn)."""
    draft = Draft(view)
    if view.current is None:
        action, error = Action.GENERATE, generate.generate(draft)
    elif view.regenerate:
        action, error = Action.REGENERATE, generate.regenerate(draft)
    else:
        action, error = update(draft)
    if error is not None:
        return ClusterPlan(action, unmet=generate.unmet(draft), error=error, notes=tuple(draft.notes))
    return _finish(draft, action)


def _finish(draft: Draft, action: Action) -> ClusterPlan:
    machines = draft.machines
    assignments = tuple(
        [Assignment(a, True, machines[a]) if a in machines else _vanished(draft, a) for a in draft.control_planes]
        + [Assignment(a, False, machines[a]) if a in machines else _vanished(draft, a) for a in draft.workers]
    )
    unmet, notes = generate.unmet(draft), tuple(draft.notes)
    if action is Action.NONE:
        return ClusterPlan(action, assignments, unmet=unmet, notes=notes)
    nodes = None
    if draft.view.current is not None and draft.view.current.document is not None:
        nodes = write_nodes(draft.view.template, assignments)
    return ClusterPlan(action, assignments, tuple(_changes(draft, assignments, nodes)), unmet, None, notes, nodes)


def _vanished(draft: Draft, address: str) -> Assignment:
    return Assignment(address, address in draft.control_planes, None, draft.members[address].node)


def _changes(
    draft: Draft, assignments: tuple[Assignment, ...], nodes: tuple[Mapping[str, Any], ...] | None
) -> list[PlanChange]:
    """Moves in the order they were decided, then what is only written again."""
    if not draft.members:
        return [PlanChange(a, draft.machines[a].serial, Verb.ADD, said) for a, said in draft.said.items()]
    moved = []
    for address, said in draft.said.items():
        verb = verb_of(draft, address)
        if verb is not None:
            moved.append(PlanChange(address, _serial(draft, address), verb, said))
    rewritten = []
    # From decisions alone there is nothing else to tell than taints.
    members = draft.members if nodes is not None else draft.wrongly_tainted()
    doubtful = assignments if nodes is not None else [s for s in assignments if s.address in members] if members else ()
    for index, assignment in enumerate(doubtful):
        member = members.get(assignment.address)
        if member is None or assignment.machine is None or member.control_plane != assignment.control_plane:
            continue
        node = nodes[index] if nodes is not None else None
        change = _rewritten(member, assignment, node, every_field=draft.view.regenerate)
        if change is not None:
            rewritten.append(change)
    return moved + rewritten


def _serial(draft: Draft, address: str) -> str:
    machine = draft.machines.get(address)
    return machine.serial if machine is not None else draft.members[address].serial


def _rewritten(
    member: Member, assignment: Assignment, node: Mapping[str, Any] | None, *, every_field: bool
) -> PlanChange | None:
    """A field that the current file leaves out is news only when everything is written again on purpose."""
    machine = assignment.machine
    assert machine is not None
    wanted = wanted_state_taint(machine.state)
    if wanted != member.state_taint:
        verb = Verb.UNTAINT if wanted is None else Verb.TAINT
        return PlanChange(assignment.address, machine.serial, verb, f"its machine is {machine.state.value}")
    if node is None or member.node is None:
        return None
    old = member.node
    compared = _COMPARED if every_field else [f for f in _COMPARED if old.get(f) is not None]
    differ = [f for f in compared if (node.get(f) or None) != (old.get(f) or None)]
    if not differ:
        return None
    return PlanChange(assignment.address, machine.serial, Verb.UPDATE, f"{', '.join(differ)} written again")


_COMPARED = ("user", "labels", "annotations", "taints")


def write_nodes(template: Template, assignments: tuple[Assignment, ...]) -> tuple[Mapping[str, Any], ...]:
    renderer = Renderer(template)
    return tuple(
        renderer.node(s.machine, control_plane=s.control_plane, state_taint=wanted_state_taint(s.machine.state))
        if s.machine is not None
        else renderer.vanished(s.address, control_plane=s.control_plane, kept=s.kept)
        for s in assignments
    )


def write_cluster(view: FleetView, plan: ClusterPlan) -> dict[str, Any] | None:
    """The plan in the shape of cluster.yml: the template's fields in their order, with the nodes in place of its own.

    Nothing to do: the current one, unchanged.
    """
    if plan.error is not None:
        return None
    if plan.action is Action.NONE and view.current is not None and view.current.document is not None:
        return dict(view.current.document)
    nodes = plan.nodes if plan.nodes is not None else write_nodes(view.template, plan.assignments)
    return with_nodes(view.template, nodes)
