"""The planner: template, constraints, machines and the current cluster → one plan. Pure.

Maintenance is seven actions in the design's order. The first that wants a change makes it, and the pass ends.

    1 remove non-existent   2 increase control plane   3 decrease control plane   4 replace control plane
    5 increase workers      6 decrease workers         7 taint

Each is followed by filling up to the constraints. Two guards come before: losing half of the control planes or more is
never repaired by removing them (etcd would lose its quorum), and most workers vanishing at once looks like a bad query
until a person confirms it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from mooring.capabilities.fleet.planner import generate
from mooring.capabilities.fleet.planner.current import Member, wanted_state_taint
from mooring.capabilities.fleet.planner.document import ErrorCode, PlanError
from mooring.capabilities.fleet.planner.draft import Draft, verb_of
from mooring.capabilities.fleet.planner.generate import (
    fill,
    fill_control_planes,
    role_guard,
    short_of_control_planes,
    short_of_workers,
)
from mooring.capabilities.fleet.planner.labels import Renderer, with_nodes
from mooring.capabilities.fleet.planner.plan import (
    Action,
    Assignment,
    ClusterPlan,
    FleetView,
    PlanChange,
    Verb,
    WhenShort,
)
from mooring.capabilities.fleet.planner.score import listed
from mooring.capabilities.fleet.planner.template import Template
from mooring.core.model.machine import Machine, MachineState

#: A control plane in one of these is left alone: it works, or it is rebooting.
_GOOD_STATES: Final = frozenset({MachineState.HEALTHY, MachineState.UPDATING, MachineState.UNINITIALIZED})
_RETIRED: Final = MachineState.RETIRED
#: Fewer workers than this vanish for ordinary reasons.
_GUARDED_WORKERS: Final = 4

ONLY_ONE: Final = "the only control plane"
FLAPPING: Final = "a control plane is replaced later"
_HOUR_S: Final = 3600.0

#: True: it changed the draft. A PlanError ends the pass.
Outcome = bool | PlanError


def update(draft: Draft) -> tuple[Action, PlanError | None]:
    refused = _quorum_guard(draft) or role_guard(draft)
    if refused:
        return Action.REMOVE_NON_EXISTENT if refused.code is ErrorCode.TOO_MANY_NON_EXISTENT else Action.NONE, refused
    for action, run in _ACTIONS.items():
        if action in draft.view.skip:
            continue
        outcome = run(draft)
        if isinstance(outcome, PlanError):
            return action, outcome
        if outcome:
            return action, fill(draft)
    if draft.view.when_short is WhenShort.FAIL and len(draft.workers) < draft.view.constraints.minimum_workers:
        return Action.NONE, short_of_workers(draft)
    return Action.NONE, None


def _quorum_guard(draft: Draft) -> PlanError | None:
    planes, gone = len(draft.control_planes), draft.vanished(draft.control_planes)
    if (planes - len(gone)) * 2 > planes:
        return None
    said = (
        f"{len(gone)} of {planes} control planes are not in the registry ({listed(gone)})"
        if planes
        else "there is none"
    )
    return PlanError(
        ErrorCode.TOO_MANY_NON_EXISTENT,
        f"control planes: {said}; more than half must remain, or etcd loses its quorum. "
        "Check the registry and the query's variables, or set the cluster by hand",
    )


def _remove_non_existent(draft: Draft) -> Outcome:
    workers = draft.vanished(draft.workers)
    gone = [a for a in draft.vanished(draft.control_planes) if not _flaps(draft, a, "it is not in the registry")]
    view, before = draft.view, len(draft.workers)
    doubted = [a for a in workers if a not in view.confirmed_removals]
    if not (before >= _GUARDED_WORKERS and len(doubted) * 2 > before):
        doubted = [a for a in doubted if a in view.held_removals]
    if doubted and not view.yes_remove:
        said = f"{len(doubted)} of {before} workers are not in the registry ({listed(doubted)})"
        if not view.hold_removal:
            return PlanError(
                ErrorCode.TOO_MANY_NON_EXISTENT,
                f"{said}: more than half at once looks like a bad query. "
                "Check the query's variables; if they are really gone, confirm the removal (--yes-remove)",
            )
        draft.notes.append(f"removal blocked: {said}; confirm it, or fix the query's variables")
        workers = [a for a in workers if a not in doubted]
    gone += workers
    for address in gone:
        draft.remove(address, "its machine is not in the registry any more")
    return bool(gone)


def _increase_control_plane(draft: Draft) -> Outcome:
    if len(draft.control_planes) >= draft.view.constraints.control_plane_count:
        return False
    before = len(draft.control_planes)
    # Short of all of them under `proceed`: nothing changed here, so the other actions have their turn.
    return fill_control_planes(draft) or len(draft.control_planes) > before


def _decrease_control_plane(draft: Draft) -> Outcome:
    limits = draft.view.constraints
    if len(draft.control_planes) <= limits.control_plane_count:
        return False
    while len(draft.control_planes) > limits.control_plane_count:
        draft.demote_lowest()
    if limits.maximum_workers:
        draft.remove_lowest_workers(limits.maximum_workers)
    return role_guard(draft) or True


def _replace_control_plane(draft: Draft) -> Outcome:
    bad, why = _first_bad(draft)
    if not bad:
        return False
    if len(draft.control_planes) < 2:
        draft.notes.append(f"{ONLY_ONE} {bad} stays although {why}: no machine could take over its etcd")
        return False
    before = len(draft.workers)
    if not draft.replace_control_plane(bad, f"control plane replaced: {why}"):
        if draft.view.when_short is WhenShort.FAIL:
            return short_of_control_planes(draft, leaving=1)
        draft.notes.append(f"control plane {bad} ({why}) cannot be replaced: no machine can take over")
        return False
    refused = role_guard(draft)
    if refused:
        return refused
    maximum = draft.view.constraints.maximum_workers
    if maximum:
        # Workers beyond the maximum that were there before are not this action's business.
        draft.remove_lowest_workers(max(maximum, before))
    return True


def _first_bad(draft: Draft) -> tuple[str, str]:
    for m in draft.assigned_control_planes():
        taint = draft.bad_taint(m.address)
        broken = m.state not in _GOOD_STATES
        why = f"its machine is {m.state.value}" if broken else f"its node carries the taint {taint}" if taint else ""
        if why and not _flaps(draft, m.address, why, m.state_since if broken else None):
            return m.address, why
    return "", ""


def _flaps(draft: Draft, address: str, why: str, since: float | None = None) -> bool:
    """Back-off (F14): control planes that were replaced and came back soon say that "broken" means little just now. The
    first is replaced at once; then one must have been broken for a while, and none is replaced twice in an hour."""
    view = draft.view
    recent = {a: at for a, at in view.replaced.items() if view.now - at < _HOUR_S}
    came_back = [a for a, at in recent.items() if _is_back(draft.machines.get(a), at, view.replace_backoff_s)]
    if not view.replace_backoff_s or not (came_back or address in recent):
        return False
    patience_s = min(view.replace_backoff_s * 2 ** max(0, len(came_back) - 1), _HOUR_S)
    due = (max(recent.values()) if since is None else since) + patience_s
    if address in recent:
        due = max(due, recent[address] + _HOUR_S)
    if due <= view.now:
        return False
    said = f"{address} in {(due - view.now) / 60:.0f} min, {why}; {listed(sorted(came_back)) or address} came back soon"
    draft.notes.append(f"{FLAPPING}: {said}")
    return True


def _is_back(machine: Machine | None, replaced_at: float, within_s: float) -> bool:
    return (
        machine is not None
        and machine.state is MachineState.HEALTHY
        and 0 <= machine.state_since - replaced_at < within_s
    )


def _increase_workers(draft: Draft) -> Outcome:
    limits = draft.view.constraints
    missing = limits.minimum_workers - draft.healthy_workers()
    room = limits.maximum_workers - len(draft.workers) if limits.maximum_workers else missing
    return draft.add_workers(min(missing, room)) > 0


def _decrease_workers(draft: Draft) -> Outcome:
    if _RETIRED not in draft.worker_states():
        return False
    view, minimum = draft.view, draft.view.constraints.minimum_workers
    for m in draft.assigned_workers():
        if m.state != _RETIRED or not view.now - m.state_since > view.wait_retired_s:
            continue
        retired_s = int(view.now - m.state_since)
        if len(draft.workers) > minimum:
            draft.remove(m.address, f"RETIRED for {retired_s} s, and {len(draft.workers) - 1} workers suffice")
            return True
        if draft.has_spare_worker():
            draft.remove(m.address, f"RETIRED for {retired_s} s, replaced by a new machine")
            return True
        draft.notes.append(f"{m.address} is RETIRED for {retired_s} s and stays: no machine is free to replace it")
        return False
    return False


def _taint(draft: Draft) -> Outcome:
    return bool(draft.wrongly_tainted())


_ACTIONS: Final[dict[Action, Callable[[Draft], Outcome]]] = {
    Action.REMOVE_NON_EXISTENT: _remove_non_existent,
    Action.INCREASE_CONTROL_PLANE: _increase_control_plane,
    Action.DECREASE_CONTROL_PLANE: _decrease_control_plane,
    Action.REPLACE_CONTROL_PLANE: _replace_control_plane,
    Action.INCREASE_WORKERS: _increase_workers,
    Action.DECREASE_WORKERS: _decrease_workers,
    Action.TAINT: _taint,
}


# ── The plan ────────────────────────────────────────────────────────────────────────────────────────────────────────


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
