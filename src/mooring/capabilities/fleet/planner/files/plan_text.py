"""What `mooring fleet plan` prints for people."""

from collections.abc import Iterator
from typing import Final

from mooring.capabilities.fleet.planner.plan import ClusterPlan

COLUMNS: Final = ("CHANGE", "ADDRESS", "SERIAL", "RACK", "ROLE", "WHY")


def plan_lines(plan: ClusterPlan) -> Iterator[str]:
    """The action in figures, then every constraint that it cannot meet."""
    planes, workers = len(plan.control_planes), len(plan.workers)
    yield f"{plan.action.value}: {planes} control planes, {workers} workers, {len(plan.changes)} changes"
    for short in plan.unmet:
        yield f"unmet: {short.constraint} wants {short.wanted}, has {short.have}"


def change_rows(plan: ClusterPlan) -> list[tuple[str, ...]]:
    machines = {one.address: one.machine for one in plan.assignments if one.machine is not None}
    rows: list[tuple[str, ...]] = []
    for change in plan.changes:
        machine = machines.get(change.address)
        where = ("", "") if machine is None else (str(machine.rack), machine.role)
        rows.append((change.change.value, change.address, change.serial, *where, change.why))
    return rows
