"""`mooring fleet set-… enable disable confirm-removal cke-integration`: what the loop works from."""

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from mooring.capabilities.fleet.live import settings
from mooring.capabilities.fleet.live.settings import read_constraints
from mooring.capabilities.fleet.planner.current import parse_cluster
from mooring.capabilities.fleet.planner.files.document import decode_document
from mooring.capabilities.fleet.planner.files.template import parse_template
from mooring.capabilities.fleet.planner.problem import ErrorCode
from mooring.cli.fleet_store import Where, talk
from mooring.cli.output import note
from mooring.clients.sabakan.variables import InvalidVariablesError, check_variables
from mooring.core.model.exits import UserError
from mooring.process.fleet.inputs import good
from mooring.process.fleet.store import FleetStore, read_text

HERE = Where()
Template = Annotated[Path, Parameter(help="A cluster.yml without addresses.")]
Limits = Annotated[Path, Parameter(help="The constraints, as YAML or JSON.")]
Variables = Annotated[Path, Parameter(help="A JSON object with having and notHaving.")]


def register(app: App) -> None:
    """Add these commands to `mooring fleet`."""
    for function in (
        *(set_url, set_template, set_constraints, set_variables, set_cluster),
        *(enable, disable, confirm_removal, cke_integration),
    ):
        app.command(function, name=function.__name__.replace("_", "-"))


class Switch(StrEnum):
    ON = "on"
    OFF = "off"


def set_url(
    url: Annotated[str, Parameter(help="http:// or https:// address of sabakan.")], /, *, where: Where = HERE
) -> None:
    """Say where sabakan answers.

    Example: mooring fleet set-url http://10.0.0.1:10080

    Example: mooring fleet set-url http://10.0.0.1:10080 --context prod
    """
    from mooring.clients.sabakan.client import graphql_url

    try:
        graphql_url(url)
    except ValueError as error:
        raise UserError(str(error)) from None
    _set(where, settings.URL, url)


def set_template(file: Template, /, *, where: Where = HERE) -> None:
    """Set the template: cluster.yml with one control-plane node and at least one worker node, without addresses.

    Example: mooring fleet set-template template.yml

    Example: mooring fleet set-template template.yml -n mooring-system
    """
    text = read_text(file)
    document = good(decode_document(text.encode(), str(file), ErrorCode.INVALID_TEMPLATE))
    for remark in good(parse_template(document, str(file))).notes:
        note(f"note: {remark}")
    _set(where, settings.TEMPLATE, text)


def set_constraints(file: Limits, /, *, where: Where = HERE) -> None:
    """Set control-plane-count, minimum-workers and maximum-workers, as YAML or JSON.

    Example: mooring fleet set-constraints constraints.yml

    Example: mooring fleet set-constraints constraints.json --context prod
    """
    text = read_text(file)
    for remark in good(read_constraints(text)).notes:
        note(f"note: {remark}")
    _set(where, settings.CONSTRAINTS, text)


def set_variables(file: Variables, /, *, where: Where = HERE) -> None:
    """Set `having` and `notHaving` of the search; a key left out keeps its default.

    Example: mooring fleet set-variables variables.json

    Example: mooring fleet set-variables variables.json --context prod
    """
    text = read_text(file)
    try:
        check_variables(msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError) as error:
        raise UserError(f"{file}: not JSON: {error}") from None
    except InvalidVariablesError as error:
        raise UserError(f"{file}: {error}") from None
    _set(where, settings.VARIABLES, text)


def enable(*, where: Where = HERE) -> None:
    """Let the loop plan and act (with `mooring run --features fleet=true`).

    Example: mooring fleet enable

    Example: mooring fleet enable --context prod
    """

    talk(where, FleetStore.enable)


def disable(*, where: Where = HERE) -> None:
    """Stop planning. What was begun is taken back: cordons of ours are lifted, nothing new is stored.

    Example: mooring fleet disable

    Example: mooring fleet disable --context prod
    """
    _set(where, settings.ENABLED, "false")


def cke_integration(state: Annotated[Switch, Parameter(help="on or off.")], /, *, where: Where = HERE) -> None:
    """Say whether CKE's own sabakan integration is on. While it is, cluster.yml is not written out: two would fight.

    Example: mooring fleet cke-integration on

    Example: ckecli sabakan disable && mooring fleet cke-integration off
    """
    _set(where, settings.CKE_INTEGRATION, state.value)


def confirm_removal(
    *addresses: Annotated[str, Parameter(help="Of the vanished machines.")], where: Where = HERE
) -> None:
    """Let workers go whose machines vanished, where too many did at once. Without addresses: all that are blocked.

    Example: mooring fleet confirm-removal 10.69.0.4 10.69.0.5

    Example: mooring fleet confirm-removal
    """
    confirmed = talk(where, lambda store: store.confirm_removal(addresses))
    note(f"confirmed: {', '.join(confirmed)}")


def set_cluster(
    file: Annotated[Path, Parameter(help="A cluster.yml, with addresses.")],
    /,
    *,
    quorum_is_lost: Annotated[bool, Parameter(negative="", help="Replace half of the control planes or more.")] = False,
    where: Where = HERE,
) -> None:
    """Set the cluster by hand: to adopt one that is there, or to fix one. Checked against constraints and quorum.

    Example: mooring fleet set-cluster cluster.yml

    Example: ckecli cluster get > cluster.yml && mooring fleet set-cluster cluster.yml
    """
    document = good(decode_document(read_text(file).encode(), str(file), ErrorCode.INVALID_CLUSTER))
    current = good(parse_cluster(document, str(file)))
    now = datetime.now(UTC).timestamp()
    revision = talk(where, lambda store: store.replace(current, str(file), now, quorum_is_lost=quorum_is_lost))
    note(f"stored as revision {revision}")


def _set(where: Where, key: str, text: str) -> None:
    talk(where, lambda store: store.set(**{key: text}))
