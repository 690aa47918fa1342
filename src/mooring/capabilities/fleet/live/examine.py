"""What `mooring doctor` says of fleet: can its settings be used, and does CKE generate clusters beside it?"""

from collections.abc import Iterator

from mooring.capabilities.fleet.live import settings
from mooring.capabilities.fleet.planner.problem import PlanError
from mooring.core.model.descriptor import Examined
from mooring.core.model.finding import Finding, ill, well


def generators(seen: Examined) -> Iterator[Finding]:
    """One finding: what stands first in the way of a plan that reaches CKE."""
    what = f"fleet's settings (ConfigMap {seen.config.namespace}/{settings.NAME})"
    if seen.settings is None:
        if not seen.on:
            yield well("fleet", "fleet is off, and nothing is set for it")
            return
        fix = "mooring fleet set-template template.yml"
        yield ill("fleet", "MO902", what, "there are none: fleet is on and has nothing to plan from", fix)
        return
    made = settings.parse_settings(seen.settings)
    if isinstance(made, PlanError):
        told = f"{made.message}; the last good settings stay in force"
        yield ill("fleet", "MO902", what, told, "mooring fleet set-template (set-constraints, set-variables, …) FILE")
    elif settings.cke_finding(made):
        told = "CKE's own sabakan integration is on: two generators would fight, so cluster.yml is not written out"
        fix = "ckecli sabakan disable && mooring fleet cke-integration off"
        yield ill("fleet", "MO901", "only fleet generates cluster.yml", told, fix)
    else:
        yield well("fleet", "fleet's settings can be used, and nothing else is known to generate cluster.yml")
