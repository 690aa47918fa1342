"""`mooring fleet get KEY`, `status`, `history`: what the loop works from, and what it has stored."""

import http.client
import sys
import urllib.error
import urllib.request
from enum import StrEnum
from typing import Annotated

from cyclopts import App, Parameter

from mooring.capabilities.fleet.live.explain import HISTORY_COLUMNS, history_row, status_lines, with_running
from mooring.capabilities.fleet.planner.document import ErrorCode, decode_document
from mooring.cli.fleet_settings import FleetKey, Where, talk
from mooring.cli.output import Format, Output, note, print_data, print_json, print_lines, print_table
from mooring.cli.server import Reach, Server, ask
from mooring.clients.wire.document import encode_yaml
from mooring.core.model.exits import Exit, UserError
from mooring.process.fleet.inputs import good
from mooring.process.fleet.store import FleetStore

HERE = Where()


def register(app: App) -> None:
    """Add these commands to `mooring fleet`."""
    for function in (get, status, history):
        app.command(function)


class GetFormat(StrEnum):
    YAML = "yaml"
    JSON = "json"


def get(
    key: Annotated[FleetKey, Parameter(help="What to print.")],
    /,
    *,
    cke_metrics: Annotated[
        str, Parameter(help="cluster: CKE's /metrics, asked whether its own integration is on.")
    ] = "",
    output: Annotated[
        GetFormat, Parameter(name=["--output", "-o"], help="yaml: as it was set, or as CKE reads it; json for scripts.")
    ] = GetFormat.YAML,
    where: Where = HERE,
) -> None:
    """Print what the loop works from, as it was set, or the cluster it has stored.

    cluster is what is decided *and* released, not what is planned: a cluster.yml for CKE. Refused (exit 3) while CKE's
    own sabakan integration is on: two generators would fight over one file.

    Example: mooring fleet get template > template.yml

    Example: mooring fleet get cluster > cluster.yml && ckecli cluster set cluster.yml
    """
    if key is not FleetKey.CLUSTER:
        _print(where, key, output)
        return
    if cke_metrics and cke_is_on(cke_metrics):
        raise UserError(f"{cke_metrics}: CKE's own sabakan integration is on (ckecli sabakan disable)", Exit.REFUSED)
    document, gone = talk(where, FleetStore.released)
    if gone:
        note(f"note: never listed by the registry, written without labels: {', '.join(gone)}")
    if output is GetFormat.JSON:
        print_json(document)
    else:
        sys.stdout.write(encode_yaml(document))


# ── Looking ───────────────────────────────────────────────────────────────────────────────────────────────────────


def status(*, server: Server = "", output: Output = Format.TABLE, where: Where = HERE) -> int:
    """Show what is set, what is stored, what the running Mooring makes of it, and the repair queue.

    Exit 1 when something needs a person. Where no running Mooring answers, what is stored is shown all the same.

    Example: mooring fleet status

    Example: mooring fleet status -o json
    """

    found = talk(where, FleetStore.status)
    try:
        running = ask(Reach(server, where.kubeconfig, where.context, where.namespace), "/api/v1/fleet")
    except UserError as error:
        if server:
            raise
        running = None
        note(f"note: what is stored alone: {str(error).splitlines()[0]}")
    found = with_running(found, running)
    if output.data:
        print_data(output, found)
    else:
        print_lines(status_lines(found))
    for finding in found["findings"]:
        note(f"mooring: finding: {finding}")
    return Exit.CHECK_FAILED if found["findings"] else Exit.DONE


def history(
    *,
    every: Annotated[bool, Parameter(name="--all", negative="", help="Every change with its reason.")] = False,
    output: Output = Format.TABLE,
    where: Where = HERE,
) -> None:
    """List the stored revisions, the newest last, a line each: when, what for, and how many machines.

    Example: mooring fleet history --all

    Example: mooring fleet history -o json
    """

    entries = talk(where, FleetStore.ledger).history
    if output.data:
        print_data(output, entries)
        return
    print_table(HISTORY_COLUMNS, (history_row(entry, every=every) for entry in entries))


def _print(where: Where, key: FleetKey, output: GetFormat) -> None:
    """The text as it was set, or what it says as JSON."""

    text = talk(where, FleetStore.data).get(key, "")
    if not text:
        raise UserError(f"{key} is not set", Exit.CHECK_FAILED)
    if output is GetFormat.JSON:
        print_json(
            text if key is FleetKey.URL else good(decode_document(text.encode(), key, ErrorCode.INVALID_TEMPLATE))
        )
        return
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def cke_is_on(metrics: str) -> bool:
    """Whether CKE's own sabakan integration generates the cluster."""
    try:
        return _generates(metrics)
    except OSError as error:
        raise UserError(f"--cke-metrics {metrics}: {error}", Exit.UNREACHABLE) from None
    except ValueError as error:
        raise UserError(f"--cke-metrics {metrics}: {error}") from None


def _generates(url: str) -> bool:
    """CKE shows this metric on its leader, and only while its integration is on.

    ValueError: the address is none. OSError: it did not answer.
    """
    if not url.startswith(("http://", "https://")):
        raise ValueError("must be an http:// or https:// address")
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 — the scheme is checked above
            return b"\ncke_sabakan_integration_timestamp_seconds" in b"\n" + answer.read()
    except urllib.error.HTTPError as error:
        error.close()
        raise
    except http.client.HTTPException as error:
        raise ConnectionError(str(error)) from None
