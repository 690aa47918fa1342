"""Checks of fleet: can its settings be used, and does CKE generate clusters beside it?"""

from mooring.capabilities.fleet.live import settings
from mooring.capabilities.fleet.planner.problem import PlanError
from mooring.clients.kube.api import HttpKubeApi
from mooring.clients.ports import NotFoundError, PortError
from mooring.core.model.kinds import Kind
from mooring.install.doctor.finding import Finding, ill, skipped, well


async def generators(api: HttpKubeApi, namespace: str, *, on: bool) -> Finding:
    """One finding: what stands first in the way of a plan that reaches CKE."""
    what = f"fleet's settings (ConfigMap {namespace}/{settings.NAME})"
    try:
        data = (await api.get(Kind.CONFIG_MAP, namespace, settings.NAME)).get("data") or {}
    except NotFoundError:
        if not on:
            return well("fleet", "fleet is off, and nothing is set for it")
        fix = "mooring fleet set-template template.yml"
        return ill("fleet", "MO902", what, "there are none: fleet is on and has nothing to plan from", fix)
    except PortError as error:
        return skipped("fleet", what, str(error))
    made = settings.parse_settings(data)
    if isinstance(made, PlanError):
        seen = f"{made.message}; the last good settings stay in force"
        return ill("fleet", "MO902", what, seen, "mooring fleet set-template (set-constraints, set-variables, …) FILE")
    if settings.cke_finding(made):
        seen = "CKE's own sabakan integration is on: two generators would fight, so cluster.yml is not written out"
        fix = "ckecli sabakan disable && mooring fleet cke-integration off"
        return ill("fleet", "MO901", "only fleet generates cluster.yml", seen, fix)
    return well("fleet", "fleet's settings can be used, and nothing else is known to generate cluster.yml")
