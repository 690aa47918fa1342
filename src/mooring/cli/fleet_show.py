"""`mooring fleet get-… status history`: what the loop works from, and what it has stored."""

import sys
from enum import StrEnum
from typing import Annotated, Any

from cyclopts import App, Parameter

from mooring.capabilities.fleet.live import settings
from mooring.capabilities.fleet.live.ledger import StoredCluster
from mooring.capabilities.fleet.live.release import write_released
from mooring.capabilities.fleet.live.settings import cke_finding
from mooring.capabilities.fleet.live.status import HISTORY_COLUMNS, fleet_status, history_row, status_lines
from mooring.capabilities.fleet.planner.files.document import decode_document, encode_yaml
from mooring.capabilities.fleet.planner.problem import ErrorCode
from mooring.cli.fleet_store import Store, Where, good, talk
from mooring.cli.output import Format, Output, note, print_json, print_table
from mooring.core.model.exits import Exit, UserError
from mooring.core.model.machine import Machine

HERE = Where()


def register(app: App) -> None:
    """Add these commands to `mooring fleet`."""
    for function in (get_url, get_template, get_constraints, get_variables, get_cluster, status, history):
        app.command(function, name=function.__name__.replace("_", "-"))


class ClusterFormat(StrEnum):
    YAML = "yaml"
    JSON = "json"


def get_url(*, output: Output = Format.TABLE, where: Where = HERE) -> None:
    """Print where sabakan is asked.

    Example: mooring fleet get-url

    Example: mooring fleet get-url -o json
    """
    _print(where, settings.URL, output)


def get_template(*, output: Output = Format.TABLE, where: Where = HERE) -> None:
    """Print the template as it was set.

    Example: mooring fleet get-template > template.yml

    Example: mooring fleet get-template -o json
    """
    _print(where, settings.TEMPLATE, output)


def get_constraints(*, output: Output = Format.TABLE, where: Where = HERE) -> None:
    """Print the constraints as they were set.

    Example: mooring fleet get-constraints

    Example: mooring fleet get-constraints -o json
    """
    _print(where, settings.CONSTRAINTS, output)


def get_variables(*, output: Output = Format.TABLE, where: Where = HERE) -> None:
    """Print the variables of the search as they were set.

    Example: mooring fleet get-variables

    Example: mooring fleet get-variables -o json
    """
    _print(where, settings.VARIABLES, output)


def get_cluster(
    *,
    cke_metrics: Annotated[str, Parameter(help="CKE's /metrics: asked whether its own integration is on.")] = "",
    output: Annotated[
        ClusterFormat, Parameter(name=["--output", "-o"], help="yaml for CKE, json for scripts.")
    ] = ClusterFormat.YAML,
    where: Where = HERE,
) -> None:
    """Print the stored cluster as cluster.yml, for CKE: what is decided *and* released, not what is planned.

    Refused (exit 3) while CKE's own sabakan integration is on: two generators would fight over one file.

    Example: mooring fleet get-cluster -o json

    Example: mooring fleet get-cluster > cluster.yml && ckecli cluster set cluster.yml
    """
    if cke_metrics and _cke_generates(cke_metrics):
        raise UserError(f"{cke_metrics}: CKE's own sabakan integration is on (ckecli sabakan disable)", Exit.REFUSED)

    async def go(store: Store) -> dict[str, Any]:
        made, stored = await store.settings(), await store.ledger()
        if cke_finding(made):
            raise UserError(cke_finding(made), Exit.REFUSED)
        if not stored.members:
            raise UserError("no cluster is stored yet: mooring fleet status says why", Exit.NOT_AS_IT_SHOULD_BE)
        machines = await _machines(made.url, made.variables)
        gone = [m.address for m in stored.members if m.address not in machines]
        if gone:
            note(f"note: not in the registry, written without labels: {', '.join(gone)}")
        return write_released(made.template, stored.members, machines)

    document = talk(where, go)
    if output is ClusterFormat.JSON:
        print_json(document)
    else:
        sys.stdout.write(encode_yaml(document))


def _cke_generates(url: str) -> bool:
    from mooring.clients.sabakan.cke import cke_generates

    try:
        return cke_generates(url)
    except OSError as error:
        raise UserError(f"--cke-metrics {url}: {error}", Exit.COULD_NOT_LOOK) from None
    except ValueError as error:
        raise UserError(f"--cke-metrics {url}: {error}") from None


async def _machines(url: str, variables: Any) -> dict[str, Machine]:
    from mooring.clients.sabakan.client import Sabakan

    if not url:
        raise UserError("no URL is set (mooring fleet set-url): labels come from the registry", Exit.COULD_NOT_LOOK)
    registry = Sabakan(url)
    try:
        return {m.address: m for m in await registry.machines(variables) if m.address}
    finally:
        await registry.close()


# ── Looking ───────────────────────────────────────────────────────────────────────────────────────────────────────


def status(*, output: Output = Format.TABLE, where: Where = HERE) -> None:
    """Show what is set, what is stored, and what it waits for. Exit 1 when something needs a person.

    Example: mooring fleet status

    Example: mooring fleet status -o json
    """

    async def go(store: Store) -> dict[str, Any]:
        data, stored = await store.data(), await store.ledger()
        return fleet_status(data, stored, await store.nodes())

    found = talk(where, go)
    if output is Format.JSON:
        print_json(found)
    else:
        for line in status_lines(found):
            print(line)
        for finding in found["findings"]:
            note(f"finding: {finding}")
    if found["findings"]:
        raise UserError(found["findings"][0], Exit.NOT_AS_IT_SHOULD_BE)


def history(*, output: Output = Format.TABLE, where: Where = HERE) -> None:
    """List the stored revisions, the newest last: when, what for, and which machines.

    Example: mooring fleet history

    Example: mooring fleet history -o json
    """

    async def go(store: Store) -> StoredCluster:
        return await store.ledger()

    entries = talk(where, go).history
    if output is Format.JSON:
        print_json(entries)
        return
    print_table(HISTORY_COLUMNS, map(history_row, entries))


def _print(where: Where, key: str, output: Format) -> None:
    """The text as it was set, or what it says as JSON."""

    async def go(store: Store) -> str:
        return (await store.data()).get(key, "")

    text = talk(where, go)
    if not text:
        raise UserError(f"{key} is not set", Exit.NOT_AS_IT_SHOULD_BE)
    if output is Format.JSON:
        print_json(
            text if key == settings.URL else good(decode_document(text.encode(), key, ErrorCode.INVALID_TEMPLATE))
        )
        return
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
