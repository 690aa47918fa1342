"""Template, constraints, variables, URL and the switch: read from one ConfigMap, checked as files are.

    kubectl -n mooring-system get configmap mooring-fleet -o yaml

A value that cannot be used is reported and the last good settings stay in force; `mooring fleet set-…` reports it
before anything is written.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mooring.capabilities.fleet.live.ledger import revision_of
from mooring.capabilities.fleet.planner.document import ErrorCode, PlanError, decode_document
from mooring.capabilities.fleet.planner.template import Constraints, Template, parse_constraints, parse_template

NAME: Final = "mooring-fleet"
TEMPLATE: Final = "template.yml"
CONSTRAINTS: Final = "constraints.yml"
VARIABLES: Final = "variables.json"
URL: Final = "url"
#: A list of machines, where there is no registry.
MACHINES: Final = "machines.yml"
ENABLED: Final = "enabled"
#: Addresses of vanished workers that a person has confirmed to be gone.
CONFIRMED: Final = "confirmed-removals"
#: `on` or `off`: whether CKE's own sabakan integration is on, as the administrator says.
CKE_INTEGRATION: Final = "cke-integration"
KEYS: Final = (TEMPLATE, CONSTRAINTS, VARIABLES, URL, MACHINES, ENABLED, CONFIRMED, CKE_INTEGRATION)


class FleetSettings(msgspec.Struct, frozen=True, kw_only=True):
    template: Template
    #: Of the template's content.
    revision: str
    constraints: Constraints = Constraints()
    url: str = ""
    variables: Mapping[str, Any] | None = None
    enabled: bool = False
    confirmed: frozenset[str] = frozenset()
    cke_integration: str = ""
    #: Another query, another list of machines: changes when URL, variables or the list in the settings do.
    query: str = ""


def parse_settings(data: Mapping[str, str]) -> FleetSettings | PlanError:
    """Checks everything and reports the first problem. Unknown keys belong to other tools and are left alone."""
    if TEMPLATE not in data:
        return PlanError(ErrorCode.INVALID_TEMPLATE, f"ConfigMap {NAME} has no {TEMPLATE}: mooring fleet set template")
    document = decode_document(data[TEMPLATE].encode(), TEMPLATE, ErrorCode.INVALID_TEMPLATE)
    template = document if isinstance(document, PlanError) else parse_template(document, TEMPLATE)
    if isinstance(template, PlanError):
        return template
    limits = read_constraints(data.get(CONSTRAINTS, ""))
    if isinstance(limits, PlanError):
        return limits
    try:
        variables = msgspec.json.decode(data[VARIABLES], type=dict[str, Any] | None) if data.get(VARIABLES) else None
    except (msgspec.DecodeError, RecursionError) as error:
        return _wrong(VARIABLES, f"not a JSON object: {error}")
    enabled = data.get(ENABLED, "false")
    if enabled not in {"true", "false"}:
        return _wrong(ENABLED, f"must be true or false, not {enabled!r}")
    try:
        confirmed = msgspec.json.decode(data.get(CONFIRMED) or "[]", type=frozenset[str])
    except (msgspec.DecodeError, RecursionError) as error:
        return _wrong(CONFIRMED, f"not a JSON list of addresses: {error}")
    said = data.get(CKE_INTEGRATION, "")
    if said not in {"", "on", "off"}:
        return _wrong(CKE_INTEGRATION, f"must be on or off, not {said!r}")
    return FleetSettings(
        template=template,
        revision=revision_of(template.document),
        constraints=limits,
        url=data.get(URL, ""),
        variables=variables,
        enabled=enabled == "true",
        confirmed=confirmed,
        cke_integration=said,
        query=revision_of([data.get(URL, ""), variables, data.get(MACHINES, "")]),
    )


def read_constraints(text: str) -> Constraints | PlanError:
    if not text.strip():
        return Constraints()
    document = decode_document(text.encode(), CONSTRAINTS, ErrorCode.INVALID_CONSTRAINTS)
    return document if isinstance(document, PlanError) else parse_constraints(document, CONSTRAINTS)


def cke_finding(settings: FleetSettings) -> str:
    """What `mooring doctor` says about two generators of cluster.yml; "" when there is one."""
    if settings.cke_integration == "on":
        return (
            "CKE's own sabakan integration is on: two generators would fight over one cluster.yml. "
            "Switch it off (ckecli sabakan disable), then say so (mooring fleet cke-integration off)"
        )
    return ""


def _wrong(key: str, what: str) -> PlanError:
    return PlanError(ErrorCode.INVALID_CLUSTER, f"ConfigMap {NAME}, {key}: {what}")
