"""Filling up to the constraints, and the two plans that consist of nothing else: the first one, and a new template."""

from collections import Counter

from mooring.capabilities.fleet.planner.document import ErrorCode, PlanError
from mooring.capabilities.fleet.planner.draft import Draft
from mooring.capabilities.fleet.planner.plan import Action, Unmet, WhenShort
from mooring.capabilities.fleet.planner.score import listed
from mooring.capabilities.fleet.planner.template import CONTROL_PLANE_COUNT, MAXIMUM_WORKERS, MINIMUM_WORKERS


def fill(draft: Draft) -> PlanError | None:
    """Control planes first, then workers.

    A control plane comes from the unused machines, else from the workers as long as more than the minimum remain. What
    cannot be filled is an error under `fail`, and stays open under `proceed`.
    """
    waits = Action.INCREASE_CONTROL_PLANE in draft.view.skip
    return (None if waits else fill_control_planes(draft)) or fill_workers(draft)


def fill_control_planes(draft: Draft) -> PlanError | None:
    limits = draft.view.constraints
    while len(draft.control_planes) < limits.control_plane_count:
        if draft.add_control_plane():
            continue
        if len(draft.workers) > limits.minimum_workers and draft.promote_worker():
            continue
        if draft.view.when_short is WhenShort.PROCEED:
            break
        return short_of_control_planes(draft)
    return None


def fill_workers(draft: Draft) -> PlanError | None:
    limits = draft.view.constraints
    draft.add_workers(limits.minimum_workers - len(draft.workers))
    if len(draft.workers) < limits.minimum_workers and draft.view.when_short is WhenShort.FAIL:
        return short_of_workers(draft)
    return None


def generate(draft: Draft) -> PlanError | None:
    """The first cluster. Short of workers it may proceed; without any control plane it would be none."""
    error = fill(draft)
    if error is None and not draft.control_planes:
        return short_of_control_planes(draft)
    return error


def regenerate(draft: Draft) -> PlanError | None:
    """Exactly the current nodes, written again from the template; then filled up."""
    missing = draft.vanished(draft.control_planes) + draft.vanished(draft.workers)
    if missing:
        return PlanError(
            ErrorCode.MISSING_MACHINE,
            f"the registry does not list {listed(missing)}: its labels cannot be written again. "
            "Let a plain plan remove it first, or check the query's variables",
        )
    return role_guard(draft) or fill(draft)


def role_guard(draft: Draft) -> PlanError | None:
    """Workers of a role that no worker template offers could not be written."""
    template = draft.view.template
    if len(template.workers) == 1:
        return None
    offered = {t.role for t in template.workers}
    if offered.issuperset({m.role for m in draft.assigned_workers()}):
        return None
    lost: dict[str, list[str]] = {}
    for m in draft.assigned_workers():
        if m.role not in offered:
            lost.setdefault(m.role, []).append(m.address)
    said = "; ".join(f"role {role}: {listed(nodes)}" for role, nodes in sorted(lost.items()))
    return PlanError(
        ErrorCode.INVALID_TEMPLATE,
        f"no worker node of the template offers the role of these workers ({said}). "
        "Add one for the role, or retire the machines first",
    )


def unmet(draft: Draft) -> tuple[Unmet, ...]:
    """What does not hold after this pass. A surplus of control planes is no lack: a later pass takes it away."""
    limits, found = draft.view.constraints, []
    control_planes, workers = len(draft.control_planes), len(draft.workers)
    if control_planes < limits.control_plane_count:
        found.append(Unmet(CONTROL_PLANE_COUNT, limits.control_plane_count, control_planes))
    if workers < limits.minimum_workers:
        found.append(Unmet(MINIMUM_WORKERS, limits.minimum_workers, workers))
    if 0 < limits.maximum_workers < workers:
        found.append(Unmet(MAXIMUM_WORKERS, limits.maximum_workers, workers))
    return tuple(found)


def short_of_control_planes(draft: Draft, leaving: int = 0) -> PlanError:
    """`leaving`: control planes that are to be replaced, and cannot."""
    limits, have = draft.view.constraints, len(draft.control_planes) - leaving
    role = draft.view.template.control_plane.role
    wanted = f"a healthy, untainted machine of role {role}" if role else "a healthy, untainted machine"
    return PlanError(
        ErrorCode.NOT_AVAILABLE,
        f"{CONTROL_PLANE_COUNT} {limits.control_plane_count} cannot be met, {have} found: "
        f"no unused machine is {wanted}, and {_promotion(draft)}. {_census(draft, role)}",
    )


def short_of_workers(draft: Draft) -> PlanError:
    limits = draft.view.constraints
    roles = [t.role for t in draft.view.template.workers if t.role]
    of_role = f" of role {' or '.join(roles)}" if roles else ""
    return PlanError(
        ErrorCode.NOT_AVAILABLE,
        f"{MINIMUM_WORKERS} {limits.minimum_workers} cannot be met, {len(draft.workers)} found: "
        f"no unused healthy machine{of_role} is left. {_census(draft, '')}",
    )


def _promotion(draft: Draft) -> str:
    workers, minimum = len(draft.workers), draft.view.constraints.minimum_workers
    if workers <= minimum:
        return f"none of {workers} workers may be promoted ({MINIMUM_WORKERS} is {minimum})"
    return f"none of {workers} workers is one either"


def _census(draft: Draft, role: str) -> str:
    """What there is instead."""
    free = [
        m
        for a, m in draft.machines.items()
        if a not in draft.control_planes and a not in draft.workers and (not role or m.role == role)
    ]
    if not free:
        return "Every listed machine is in the cluster already" if draft.machines else "The registry lists no machine"
    by_kind = Counter((m.role, m.state.value) for m in free)
    counted = [f"{n} {r or 'role-less'} {s}" for (r, s), n in sorted(by_kind.items())]
    tainted = sum(1 for m in free if draft.bad_taint(m.address))
    return f"Not in the cluster: {listed(counted, 12)}" + (f"; {tainted} of them tainted" if tainted else "")
