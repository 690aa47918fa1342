"""What fleet says about itself: gauges in CKE's own names (dashboards keep working), and ours beside them."""

from collections import Counter
from collections.abc import Iterator

import msgspec

from mooring.capabilities.fleet.live.fleet_pass import Pass, Survey
from mooring.core.model.machine import MachineState


class FleetReport(msgspec.Struct, frozen=True):
    successful: bool = False
    at: float = 0.0
    workers: tuple[tuple[str, int], ...] = ()
    targets: tuple[tuple[str, float], ...] = ()
    unused: int = 0
    unmet: tuple[tuple[str, int], ...] = ()


def report_of(survey: Survey, made: Pass, before: FleetReport) -> FleetReport:
    """A failed pass says only that, and when: the other figures stay those of the last good one."""
    if made.wanted.error is not None:
        return msgspec.structs.replace(before, successful=False, at=survey.now, unmet=_unmet(made))
    machines, members = survey.machines, survey.ledger.members
    assigned = [machines[m.address] for m in members if not m.control_plane and m.address in machines]
    counted = Counter(m.role for m in assigned)
    roles = {t.role: t.weight for t in survey.settings.template.workers}
    weights = sum(roles.values())
    total = max(len(assigned), survey.settings.constraints.minimum_workers)
    in_cluster = {m.address for m in members}
    return FleetReport(
        True,
        survey.now,
        tuple(sorted({**dict.fromkeys(roles, 0), **counted}.items())),
        tuple((role, total * weight / weights) for role, weight in sorted(roles.items())),
        sum(1 for a, m in machines.items() if a not in in_cluster and m.state is MachineState.HEALTHY),
        _unmet(made),
    )


def _unmet(made: Pass) -> tuple[tuple[str, int], ...]:
    return tuple((u.constraint, abs(u.wanted - u.have)) for u in made.wanted.unmet)


def gauges(report: FleetReport) -> Iterator[tuple[str, dict[str, str], float]]:
    if not report.at:
        return
    yield "cke_sabakan_integration_successful", {}, float(report.successful)
    yield "cke_sabakan_integration_timestamp_seconds", {}, report.at
    yield "cke_sabakan_unused_machines", {}, float(report.unused)
    for role, count in report.workers:
        yield "cke_sabakan_workers", {"role": role}, float(count)
    for role, wanted in report.targets:
        yield "mooring_fleet_role_target", {"role": role}, wanted
    for constraint, short in report.unmet:
        yield "mooring_fleet_unmet", {"constraint": constraint}, float(short)
