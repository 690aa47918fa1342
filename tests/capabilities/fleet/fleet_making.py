"""Short ways to write down a fleet: `m(4, rack=1)` is a healthy machine 10.69.0.4 in rack 1."""

from typing import Any

import msgspec

from mooring.capabilities.fleet.planner import keys
from mooring.capabilities.fleet.planner.current import Current, parse_cluster
from mooring.capabilities.fleet.planner.decide import decide, write_cluster
from mooring.capabilities.fleet.planner.plan import ClusterPlan, FleetView
from mooring.capabilities.fleet.planner.template import Constraints, Template, parse_template
from mooring.core.model.machine import Machine, MachineState

NOW = 1_790_000_000.0
DAY = 86_400.0


def address(number: int) -> str:
    return f"10.69.{number // 256}.{number % 256}"


def m(
    number: int, *, rack: int = 0, role: str = "cs", state: str = "HEALTHY", days: float = 0, since: float = 0, **more
) -> Machine:
    return Machine(
        serial=f"S{number}",
        address=address(number),
        state=MachineState(state),
        rack=rack,
        index_in_rack=number,
        role=role,
        registered_at=1_700_000_000.0,
        retire_at=NOW + days * DAY,
        state_since=NOW - since,
        **more,
    )


def node(*, cp: bool = False, role: str = "", weight: str = "", **more: Any) -> dict[str, Any]:
    labels = {k: v for k, v in ((keys.ROLE, role), (keys.WEIGHT, weight)) if v}
    return {"user": "cybozu", "control_plane": cp, "labels": labels, **more}


def template_document(*workers: dict[str, Any], cp: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    nodes = [cp or node(cp=True), *(workers or (node(),))]
    return {"name": "cluster", "nodes": nodes, "service_subnet": "10.68.0.0/16", **more}


def template(*workers: dict[str, Any], cp: dict[str, Any] | None = None, **more: Any) -> Template:
    made = parse_template(template_document(*workers, cp=cp, **more))
    assert isinstance(made, Template), made
    return made


def limits(cps: int = 1, minimum: int = 1, maximum: int = 0) -> Constraints:
    return Constraints(cps, minimum, maximum)


def cluster(cps: list[int], workers: list[int], tainted: dict[int, str] | None = None) -> Current:
    """A current cluster by numbers; `tainted` maps a number to its state taint's value."""
    nodes = []
    for number in [*cps, *workers]:
        taint = (tainted or {}).get(number)
        taints = [{"key": keys.STATE_TAINT, "value": taint, "effect": "NoExecute"}] if taint else []
        nodes.append({"address": address(number), "user": "cybozu", "control_plane": number in cps, "taints": taints})
    made = parse_cluster({"name": "cluster", "nodes": nodes, "service_subnet": "10.68.0.0/16"})
    assert isinstance(made, Current), made
    return made


def view(machines: list[Machine], **more: Any) -> FleetView:
    return FleetView(
        **{"template": template(), "constraints": limits(), "machines": machines, "now": NOW, **more}  # type: ignore[arg-type]
    )


def numbers(addresses) -> list[int]:
    return [int(a.split(".")[2]) * 256 + int(a.split(".")[3]) for a in addresses]


def cps_of(plan: ClusterPlan) -> list[int]:
    return numbers(s.address for s in plan.control_planes)


def workers_of(plan: ClusterPlan) -> list[int]:
    return numbers(s.address for s in plan.workers)


def moves(plan: ClusterPlan) -> dict[int, str]:
    return {numbers([c.address])[0]: c.change.value for c in plan.changes}


def passes(v: FleetView, most: int = 60) -> list[ClusterPlan]:
    """Pass after pass over the same machines until nothing is left to do, each starting from the file the last one wrote."""
    plans = []
    for _ in range(most):
        plan = decide(v)
        plans.append(plan)
        if plan.error is not None or plan.action == "none":
            return plans
        current = parse_cluster(write_cluster(v, plan))
        assert isinstance(current, Current), current
        v = msgspec.structs.replace(v, current=current, regenerate=False)
    raise AssertionError(f"no end after {most} passes: {[p.action for p in plans[-5:]]}")
