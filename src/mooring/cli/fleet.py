"""`mooring fleet`: which machines make up the cluster, and why."""

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from cyclopts import App, Parameter

from mooring.capabilities.fleet.planner.current import Current
from mooring.capabilities.fleet.planner.decide import decide, write_cluster
from mooring.capabilities.fleet.planner.document import INVALID_INPUT
from mooring.capabilities.fleet.planner.plan import Action, ClusterPlan, FleetView, WhenShort
from mooring.cli import fleet_settings, fleet_show
from mooring.cli.output import note, print_json, print_table, print_text
from mooring.clients.registry.rows import parse_date
from mooring.clients.wire.document import encode_yaml
from mooring.core.model.exits import Exit, UserError
from mooring.process.fleet import inputs

app = App(
    name="fleet", help="Which machines make up the cluster: planned from a template, constraints and the registry."
)


fleet_settings.register(app)
fleet_show.register(app)


class PlanFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


@Parameter(name="*")
@dataclass(frozen=True)
class PlanInput:
    """What is planned from: files and limits."""

    template: Annotated[
        Path,
        Parameter(help="cluster.yml with one control-plane node and at least one worker node, without addresses."),
    ]
    machines: Annotated[Path, Parameter(help="A list of machines, or what sabakan answers to searchMachines.")]
    constraints: Annotated[
        Path | None,
        Parameter(help="control-plane-count (1), minimum-workers (1), maximum-workers (0: none), as JSON or YAML."),
    ] = None
    cluster: Annotated[Path | None, Parameter(help="The cluster.yml in use.")] = None
    nodes: Annotated[
        Path | None, Parameter(help="`kubectl get nodes -o json`: taints of live nodes, for the control plane.")
    ] = None
    regenerate: Annotated[
        bool, Parameter(negative="", help="The template has changed: keep the nodes, write them again.")
    ] = False
    now: Annotated[str | None, Parameter(help="Plan as of this moment (RFC 3339), e.g. 2026-04-01T00:00:00Z.")] = None
    wait_retired: Annotated[
        float,
        Parameter(help="Seconds a worker stays RETIRED before it is removed (where the list has RETIRED machines)."),
    ] = 300.0
    when_short: Annotated[
        WhenShort,
        Parameter(help="Constraints that cannot be met: fail and change nothing, or proceed with what can be done."),
    ] = WhenShort.FAIL
    yes_remove: Annotated[bool, Parameter(negative="", help="Let more than half of the workers go at once.")] = False

    def view(self, moment: float) -> FleetView:
        return FleetView(
            template=inputs.template(self.template),
            constraints=inputs.constraints(self.constraints),
            machines=inputs.machines(self.machines, moment),
            current=inputs.current(self.cluster),
            node_taints=inputs.node_taints(self.nodes),
            now=moment,
            wait_retired_s=self.wait_retired,
            when_short=self.when_short,
            yes_remove=self.yes_remove,
            regenerate=self.regenerate,
        )


@app.command
def plan(
    *,
    given: PlanInput,
    diff: Annotated[
        bool, Parameter(negative="", help="Show what differs from the current cluster, field by field.")
    ] = False,
    output: Annotated[
        PlanFormat, Parameter(name=["--output", "-o"], help="table for people, json or yaml for scripts.")
    ] = PlanFormat.TABLE,
) -> None:
    """Show what the cluster should become, what changes, and why each machine was chosen. Changes nothing.

    Without --cluster it is the first generation, with it the one action that is due now.

    Example: mooring fleet plan --template template.yml --machines machines.json

    Example: mooring fleet plan --template template.yml --machines machines.json --cluster cluster.yml --diff
    """
    moment = _moment(given.now)
    if not given.wait_retired >= 0:
        raise UserError(f"--wait-retired: {given.wait_retired} is not a number of seconds from 0 up")
    try:
        view = given.view(moment)
    except inputs.InvalidInputError as problem:
        _print(None, ClusterPlan(Action.NONE, error=problem.error), None, output)
        raise
    result = decide(view)
    for remark in result.notes:
        note(f"note: {remark}")
    document = write_cluster(view, result)
    found = differences(view.current, document) if diff and document is not None else None
    _print(document, result, found, output)
    if result.error is not None:
        code = Exit.USAGE if result.error.code in INVALID_INPUT else Exit.REFUSED
        raise UserError(f"{result.error.code.value}: {result.error.message}", code)


def _moment(text: str | None) -> float:
    if text is None:
        return time.time()
    found = parse_date(text)
    if found is None:
        raise UserError(f"--now: {text!r} is not an RFC 3339 date such as 2026-04-01T00:00:00Z")
    return found[0]


# ── What differs between the current cluster and the planned one, field by field ──────────────────────────────────


class ClusterDifference(msgspec.Struct, frozen=True):
    """One field. `before` None: new; `after` None: gone."""

    path: str
    before: Any
    after: Any

    def line(self) -> str:
        sign = "+" if self.before is None else "-" if self.after is None else "~"
        if sign == "~":
            return f"~ {self.path}: {_shown(self.before)} → {_shown(self.after)}"
        return f"{sign} {self.path}: {_shown(self.before if self.after is None else self.after)}"


def differences(current: Current | None, planned: Mapping[str, Any]) -> list[ClusterDifference]:
    """Nodes are told apart by address, so moving one in the file is no difference."""
    before = dict(current.document) if current is not None and current.document is not None else {}
    return list(_compare(_by_address(before), _by_address(planned), ""))


def _by_address(document: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: {str(n.get("address")): n for n in value} if key == "nodes" and isinstance(value, list) else value
        for key, value in document.items()
    }


def _compare(before: Any, after: Any, path: str) -> Iterator[ClusterDifference]:
    if (before or None) == (after or None) and not isinstance(before or after, bool | int):
        return  # null, {} and [] say the same
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [*before, *(k for k in after if k not in before)]:
            yield from _compare(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
    elif before != after:
        yield ClusterDifference(path, before, after)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# ── printing ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _print(
    document: Mapping[str, Any] | None, result: ClusterPlan, found: list[ClusterDifference] | None, output: PlanFormat
) -> None:
    if output is PlanFormat.TABLE:
        _print_table(result, found)
        return
    whole: dict[str, Any] = {
        "action": result.action,
        "cluster": document,
        "changes": result.changes,
        "unmet": result.unmet,
        "error": result.error,
    }
    if found is not None:
        whole["diff"] = found
    if output is PlanFormat.JSON:
        print_json(whole)
    else:
        sys.stdout.write(encode_yaml(msgspec.to_builtins(whole)))


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


def _print_table(result: ClusterPlan, found: list[ClusterDifference] | None) -> None:
    if result.error is not None:
        return
    for line in plan_lines(result):
        note(line)
    if found is not None:
        for difference in found:
            print_text(difference.line())
        return
    if rows := change_rows(result):
        print_table(COLUMNS, rows)
    else:
        note("nothing to do")
