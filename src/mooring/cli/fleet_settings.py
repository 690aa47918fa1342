"""`mooring fleet set KEY`, `enable`, `disable`, `confirm-removal`, `cke-integration`: what the loop works from."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from cyclopts import App, Parameter

from mooring.capabilities.fleet.live import settings
from mooring.capabilities.fleet.live.settings import read_constraints
from mooring.capabilities.fleet.planner.current import parse_cluster
from mooring.capabilities.fleet.planner.document import ErrorCode, decode_document
from mooring.capabilities.fleet.planner.template import parse_template
from mooring.cli.connect import Context, Kubeconfig, OwnNamespace, connect
from mooring.cli.output import note
from mooring.clients.ports import NotFoundError
from mooring.core.model.exits import UserError
from mooring.process.fleet.inputs import good, machines
from mooring.process.fleet.store import FleetStore, read_text

T = TypeVar("T")


@Parameter(name="*")
@dataclass(frozen=True)
class Where:
    """Which cluster, and where in it."""

    kubeconfig: Kubeconfig = ""
    context: Context = ""
    namespace: OwnNamespace = "mooring-system"


def talk(where: Where, what: Callable[[FleetStore], Awaitable[T]]) -> T:
    """One conversation with the cluster; everything that may go wrong becomes a message and an exit code."""

    async def whole() -> T:
        async with connect(where.kubeconfig, where.context) as api:
            try:
                return await what(FleetStore(api, where.namespace))
            except NotFoundError as error:
                raise UserError(
                    f"{error}; does the namespace {where.namespace} exist? (kubectl create namespace {where.namespace})"
                ) from None

    return asyncio.run(whole())


HERE = Where()
#: Of a list of machines in the settings: a ConfigMap holds 1 MiB.
_MOST_BYTES = 700 << 10


class FleetKey(StrEnum):
    """What `mooring fleet get` and `set` know."""

    TEMPLATE = settings.TEMPLATE
    CONSTRAINTS = settings.CONSTRAINTS
    VARIABLES = settings.VARIABLES
    URL = settings.URL
    MACHINES = settings.MACHINES
    CLUSTER = "cluster"


def register(app: App) -> None:
    """Add these commands to `mooring fleet`."""
    app.command(set_, name="set")
    for function in (enable, disable, confirm_removal, cke_integration):
        app.command(function, name=function.__name__.replace("_", "-"))


class Switch(StrEnum):
    ON = "on"
    OFF = "off"


def set_(
    key: Annotated[FleetKey, Parameter(help="What to set.")],
    value: Annotated[str, Parameter(help="A file; for url an address.")],
    /,
    *,
    quorum_is_lost: Annotated[
        bool, Parameter(negative="", help="cluster: replace half of the control planes or more.")
    ] = False,
    where: Where = HERE,
) -> None:
    """Set what the loop works from; it is checked first.

    template: a cluster.yml with one control-plane node and at least one worker node, without addresses.

    constraints: control-plane-count, minimum-workers and maximum-workers, as YAML or JSON.

    url: where the registry answers: http://10.0.0.1:10080 (sabakan), netbox+https://netbox.example.com, or a list of
    machines: file:///etc/mooring/machines.yaml, https://example.com/machines.yaml.

    machines: a list of machines, YAML or JSON, where there is no registry. It takes the place of the url.

    variables: the query, a JSON object in the registry's own words: having and notHaving for sabakan (a key left out
    keeps its default), filters for NetBox.

    cluster: the cluster.yml in use, to adopt a cluster that is there or to fix one. Checked against constraints and
    quorum.

    Example: mooring fleet set template template.yml

    Example: mooring fleet set url http://10.0.0.1:10080 --context prod

    Example: ckecli cluster get > cluster.yml && mooring fleet set cluster cluster.yml
    """
    if quorum_is_lost and key is not FleetKey.CLUSTER:
        raise UserError(f"--quorum-is-lost is for `mooring fleet set cluster`, not for {key.name.lower()}")
    match key:
        case FleetKey.CLUSTER:
            _set_cluster(Path(value), where, quorum_is_lost=quorum_is_lost)
        case FleetKey.URL:
            _check_url(value)
            talk(where, lambda store: store.set(**{settings.URL: value, settings.MACHINES: None}))
        case FleetKey.MACHINES:
            text = read_text(Path(value))
            _check_machines(text, value)
            talk(where, lambda store: store.set(**{settings.MACHINES: text, settings.URL: None}))
        case FleetKey.VARIABLES:
            text = read_text(Path(value))
            _check_variables(text, value, talk(where, FleetStore.data).get(settings.URL, ""))
            _set(where, key, text)
        case _:
            text = read_text(Path(value))
            for remark in _remarks(key, text, value):
                note(f"note: {remark}")
            _set(where, key, text)


def _check_url(url: str) -> None:
    from mooring.clients.registry.choose import check_url

    try:
        check_url(url)
    except ValueError as error:
        raise UserError(str(error)) from None


def _remarks(key: FleetKey, text: str, file: str) -> tuple[str, ...]:
    """What is odd about it; what is wrong is a `UserError`."""
    match key:
        case FleetKey.TEMPLATE:
            document = good(decode_document(text.encode(), file, ErrorCode.INVALID_TEMPLATE))
            return good(parse_template(document, file)).notes
        case _:
            return good(read_constraints(text)).notes


def _check_variables(text: str, file: str, url: str) -> None:
    from mooring.clients.registry.choose import check_query

    try:
        check_query(url, msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError) as error:
        raise UserError(f"{file}: not JSON: {error}") from None
    except ValueError as error:
        raise UserError(f"{file}: {error}") from None


def _check_machines(text: str, file: str) -> None:
    if len(text.encode()) > _MOST_BYTES:
        raise UserError(f"{file}: more than {_MOST_BYTES >> 10} KiB do not fit into a ConfigMap: serve it at a URL")
    found = machines(Path(file), datetime.now(UTC).timestamp())
    if not found:
        raise UserError(f"{file}: lists no machine")
    for one in found:
        if one.problem or not one.address:
            note(f"note: left out: {one.serial or one.address}: {one.problem or 'no address'}")


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


def _set_cluster(file: Path, where: Where, *, quorum_is_lost: bool) -> None:
    document = good(decode_document(read_text(file).encode(), str(file), ErrorCode.INVALID_CLUSTER))
    current = good(parse_cluster(document, str(file)))
    now = datetime.now(UTC).timestamp()
    revision = talk(where, lambda store: store.replace(current, str(file), now, quorum_is_lost=quorum_is_lost))
    note(f"stored as revision {revision}")


def _set(where: Where, key: str, text: str) -> None:
    talk(where, lambda store: store.set(**{key: text}))
