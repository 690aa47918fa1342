"""`mooring fleet get-… status history`: what the loop works from, and what it has stored."""

import sys
from enum import StrEnum
from typing import Annotated, Any

from cyclopts import App, Parameter

from mooring.capabilities.fleet.live import settings
from mooring.capabilities.fleet.live.status import HISTORY_COLUMNS, history_row, status_lines
from mooring.capabilities.fleet.planner.files.document import decode_document, encode_yaml
from mooring.capabilities.fleet.planner.problem import ErrorCode
from mooring.cli.fleet_store import Where, talk
from mooring.cli.output import Format, Output, note, print_json, print_lines, print_table
from mooring.core.model.exits import Exit, UserError
from mooring.process.fleet.inputs import good
from mooring.process.fleet.registry import cke_is_on, registry_machines
from mooring.process.fleet.store import FleetStore

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
    if cke_metrics and cke_is_on(cke_metrics):
        raise UserError(f"{cke_metrics}: CKE's own sabakan integration is on (ckecli sabakan disable)", Exit.REFUSED)

    async def go(store: FleetStore) -> tuple[dict[str, Any], list[str]]:
        return await store.released(registry_machines)

    document, gone = talk(where, go)
    if gone:
        note(f"note: not in the registry, written without labels: {', '.join(gone)}")
    if output is ClusterFormat.JSON:
        print_json(document)
    else:
        sys.stdout.write(encode_yaml(document))


# ── Looking ───────────────────────────────────────────────────────────────────────────────────────────────────────


def status(*, output: Output = Format.TABLE, where: Where = HERE) -> int:
    """Show what is set, what is stored, and what it waits for. Exit 1 when something needs a person.

    Example: mooring fleet status

    Example: mooring fleet status -o json
    """

    found = talk(where, FleetStore.status)
    if output is Format.JSON:
        print_json(found)
    else:
        print_lines(status_lines(found))
    for finding in found["findings"]:
        note(f"mooring: finding: {finding}")
    return Exit.NOT_AS_IT_SHOULD_BE if found["findings"] else Exit.DONE


def history(*, output: Output = Format.TABLE, where: Where = HERE) -> None:
    """List the stored revisions, the newest last: when, what for, and which machines.

    Example: mooring fleet history

    Example: mooring fleet history -o json
    """

    entries = talk(where, FleetStore.ledger).history
    if output is Format.JSON:
        print_json(entries)
        return
    print_table(HISTORY_COLUMNS, map(history_row, entries))


def _print(where: Where, key: str, output: Format) -> None:
    """The text as it was set, or what it says as JSON."""

    text = talk(where, FleetStore.data).get(key, "")
    if not text:
        raise UserError(f"{key} is not set", Exit.NOT_AS_IT_SHOULD_BE)
    if output is Format.JSON:
        print_json(
            text if key == settings.URL else good(decode_document(text.encode(), key, ErrorCode.INVALID_TEMPLATE))
        )
        return
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
