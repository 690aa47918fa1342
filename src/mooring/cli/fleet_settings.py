"""`mooring fleet set-… get-… enable disable status history`: what the loop works from, and what it has stored."""

import sys
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter

from mooring.capabilities.fleet.live import ledger, settings
from mooring.capabilities.fleet.live.ledger import Ledger, next_data
from mooring.capabilities.fleet.live.release import write_released
from mooring.capabilities.fleet.live.settings import cke_finding, parse_settings, read_constraints
from mooring.capabilities.fleet.live.store import Decisions
from mooring.capabilities.fleet.planner.constraints import Constraints
from mooring.capabilities.fleet.planner.current import Current, parse_cluster
from mooring.capabilities.fleet.planner.document import decode_document, encode_yaml
from mooring.capabilities.fleet.planner.problem import ErrorCode, PlanError
from mooring.capabilities.fleet.planner.template import parse_template
from mooring.cli.exits import CommandError, Exit
from mooring.cli.fleet_store import Store, Where, talk
from mooring.cli.output import Format, Output, note, print_json, print_table
from mooring.clients.sabakan.variables import InvalidVariables, check_variables
from mooring.core.model.machine import Machine
from mooring.core.model.marks import RETIRING, read_mark

HERE = Where()
Template = Annotated[Path, Parameter(help="A cluster.yml without addresses.")]
Limits = Annotated[Path, Parameter(help="The constraints, as YAML or JSON.")]
Variables = Annotated[Path, Parameter(help="A JSON object with having and notHaving.")]


def register(app: App) -> None:
    """Add these commands to `mooring fleet`."""
    for function in (
        *(set_url, set_template, set_constraints, set_variables, set_cluster),
        *(get_url, get_template, get_constraints, get_variables, get_cluster),
        *(enable, disable, confirm_removal, cke_integration, status, history),
    ):
        app.command(function, name=function.__name__.replace("_", "-"))


class ClusterFormat(StrEnum):
    YAML = "yaml"
    JSON = "json"


class Switch(StrEnum):
    ON = "on"
    OFF = "off"


# ── Setting ───────────────────────────────────────────────────────────────────────────────────────────────────────


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
        raise CommandError(str(error)) from None
    _set(where, settings.URL, url)


def set_template(file: Template, /, *, where: Where = HERE) -> None:
    """Set the template: cluster.yml with one control-plane node and at least one worker node, without addresses.

    Example: mooring fleet set-template template.yml

    Example: mooring fleet set-template template.yml -n mooring-system
    """
    text = _read(file)
    document = _good(decode_document(text.encode(), str(file), ErrorCode.INVALID_TEMPLATE))
    for remark in _good(parse_template(document, str(file))).notes:
        note(f"note: {remark}")
    _set(where, settings.TEMPLATE, text)


def set_constraints(file: Limits, /, *, where: Where = HERE) -> None:
    """Set control-plane-count, minimum-workers and maximum-workers, as YAML or JSON.

    Example: mooring fleet set-constraints constraints.yml

    Example: mooring fleet set-constraints constraints.json --context prod
    """
    text = _read(file)
    for remark in _good(read_constraints(text)).notes:
        note(f"note: {remark}")
    _set(where, settings.CONSTRAINTS, text)


def set_variables(file: Variables, /, *, where: Where = HERE) -> None:
    """Set `having` and `notHaving` of the search; a key left out keeps its default.

    Example: mooring fleet set-variables variables.json

    Example: mooring fleet set-variables variables.json --context prod
    """
    try:
        check_variables(msgspec.json.decode(_read(file)))
    except (msgspec.DecodeError, RecursionError) as error:
        raise CommandError(f"{file}: not JSON: {error}") from None
    except InvalidVariables as error:
        raise CommandError(f"{file}: {error}") from None
    _set(where, settings.VARIABLES, _read(file))


def enable(*, where: Where = HERE) -> None:
    """Let the loop plan and act (with `mooring run --features fleet=true`).

    Example: mooring fleet enable

    Example: mooring fleet enable --context prod
    """

    async def go(store: Store) -> None:
        data = await store.data()
        made = parse_settings({**data, settings.ENABLED: "true"})
        if isinstance(made, PlanError):
            raise CommandError(made.message, Exit.REFUSED)
        if cke_finding(made):
            raise CommandError(cke_finding(made), Exit.REFUSED)
        await store.set(**{settings.ENABLED: "true"})

    talk(where, go)


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
    """Let workers go whose machines vanished, where too many did at once. Without addresses: all that are held.

    Example: mooring fleet confirm-removal 10.69.0.4 10.69.0.5

    Example: mooring fleet confirm-removal
    """

    async def go(store: Store) -> list[str]:
        stored = await store.ledger()
        strange = [a for a in addresses if a not in stored.held]
        if strange:
            held = ", ".join(sorted(stored.held)) or "none"
            raise CommandError(f"{', '.join(strange)}: no held removal; held are: {held}")
        chosen = sorted(addresses or stored.held)
        if not chosen:
            raise CommandError("no removal is held", Exit.REFUSED)
        before = msgspec.json.decode((await store.data()).get(settings.CONFIRMED) or "[]", type=list[str])
        # What was confirmed and has gone since is forgotten: a machine that comes back has its guard again.
        kept = [a for a in before if a in stored.held]
        await store.set(**{settings.CONFIRMED: msgspec.json.encode(sorted({*kept, *chosen})).decode()})
        return chosen

    note(f"confirmed: {', '.join(talk(where, go))}")


def set_cluster(
    file: Annotated[Path, Parameter(help="A cluster.yml, with addresses.")],
    /,
    *,
    quorum_is_lost: Annotated[bool, Parameter(negative="", help="Replace half of the control planes or more.")] = False,
    where: Where = HERE,
) -> None:
    """Set the cluster by hand: to adopt one that is there, or to mend one. Checked against constraints and quorum.

    Example: mooring fleet set-cluster cluster.yml

    Example: ckecli cluster get > cluster.yml && mooring fleet set-cluster cluster.yml
    """
    document = _good(decode_document(_read(file).encode(), str(file), ErrorCode.INVALID_CLUSTER))
    current = _good(parse_cluster(document, str(file)))

    async def go(store: Store) -> int:
        made, stored = await store.settings(), await store.ledger()
        problems = [*_unmet(current, made.constraints), *([] if quorum_is_lost else _quorum(current, stored))]
        if problems:
            raise CommandError(f"{file}: {'; '.join(problems)}", Exit.REFUSED)
        members = tuple(msgspec.structs.replace(m, node=None) for m in current.members)
        now = datetime.now(UTC).timestamp()
        data = next_data(stored, Decisions(made.revision, members), "set-by-hand", (), now, keep=50)
        await store.write(ledger.NAME, {**data, ledger.PENDING: "{}"}, stored.object)
        return stored.revision + 1

    note(f"stored as revision {talk(where, go)}")


def _unmet(current: Current, limits: Constraints) -> list[str]:
    planes = sum(m.control_plane for m in current.members)
    workers = len(current.members) - planes
    found = []
    if planes != limits.control_plane_count:
        found.append(f"{planes} control planes, control-plane-count is {limits.control_plane_count}")
    if workers < limits.minimum_workers:
        found.append(f"{workers} workers, minimum-workers is {limits.minimum_workers}")
    if 0 < limits.maximum_workers < workers:
        found.append(f"{workers} workers, maximum-workers is {limits.maximum_workers}")
    return found


def _quorum(current: Current, stored: Ledger) -> list[str]:
    planes = {m.address for m in stored.members if m.control_plane}
    stay = {m.address for m in current.members if m.control_plane} & planes
    if not planes or len(stay) * 2 > len(planes):
        return []
    lost = f"only {len(stay)} of {len(planes)} control planes would stay: etcd would lose its quorum"
    return [f"{lost}. Change fewer at a time, or --quorum-is-lost when it is"]


# ── Getting ───────────────────────────────────────────────────────────────────────────────────────────────────────


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
        raise CommandError(f"{cke_metrics}: CKE's own sabakan integration is on (ckecli sabakan disable)", Exit.REFUSED)

    async def go(store: Store) -> dict[str, Any]:
        made, stored = await store.settings(), await store.ledger()
        if cke_finding(made):
            raise CommandError(cke_finding(made), Exit.REFUSED)
        if not stored.members:
            raise CommandError("no cluster is stored yet: mooring fleet status says why", Exit.NOT_AS_IT_SHOULD_BE)
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


async def _machines(url: str, variables: Any) -> dict[str, Machine]:
    from mooring.clients.sabakan.client import Sabakan

    if not url:
        raise CommandError("no URL is set (mooring fleet set-url): labels come from the registry", Exit.COULD_NOT_LOOK)
    registry = Sabakan(url)
    try:
        return {m.address: m for m in await registry.machines(variables) if m.address}
    finally:
        await registry.close()


def _cke_generates(url: str) -> bool:
    """CKE shows this metric on its leader, and only while its integration is on."""
    import http.client
    import urllib.error
    import urllib.request

    if not url.startswith(("http://", "https://")):
        raise CommandError(f"--cke-metrics {url}: an http:// or https:// address is wanted")
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 — the scheme is checked above
            return b"\ncke_sabakan_integration_timestamp_seconds" in b"\n" + answer.read()
    except urllib.error.HTTPError as error:
        error.close()
        raise CommandError(f"--cke-metrics {url}: {error}", Exit.COULD_NOT_LOOK) from None
    except (OSError, http.client.HTTPException) as error:
        raise CommandError(f"--cke-metrics {url}: {error}", Exit.COULD_NOT_LOOK) from None
    except ValueError as error:
        raise CommandError(f"--cke-metrics {url}: {error}") from None


# ── Looking ───────────────────────────────────────────────────────────────────────────────────────────────────────


def status(*, output: Output = Format.TABLE, where: Where = HERE) -> None:
    """Show what is set, what is stored, and what it waits for. Exit 1 when something needs a person.

    Example: mooring fleet status

    Example: mooring fleet status -o json
    """

    async def go(store: Store) -> dict[str, Any]:
        data, stored = await store.data(), await store.ledger()
        return _status(data, stored, await store.nodes())

    found = talk(where, go)
    if output is Format.JSON:
        print_json(found)
    else:
        for key, value in found.items():
            if key not in {"retiring", "findings"}:
                print(f"{key.replace('_', ' '):<18} {_words(value)}")
        for one in found["retiring"]:
            print(f"retiring           {one['node']} ({one['machine']}): {one['step']}, {one['detail']}")
        for finding in found["findings"]:
            note(f"finding: {finding}")
    if found["findings"]:
        raise CommandError(found["findings"][0], Exit.NOT_AS_IT_SHOULD_BE)


def _status(data: dict[str, str], stored: Ledger, nodes: list[dict[str, Any]]) -> dict[str, Any]:
    made = parse_settings(data)
    findings = [made.message] if isinstance(made, PlanError) else [cke_finding(made)]
    if stored.held:
        held = ", ".join(sorted(stored.held))
        findings.append(f"removal held: {held} vanished with too many others (mooring fleet confirm-removal)")
    planes = sum(m.control_plane for m in stored.members)
    marks = [(n["metadata"]["name"], (n["metadata"].get("annotations") or {}).get(RETIRING)) for n in nodes]
    retiring = [(name, read_mark(text)) for name, text in marks if text]
    return {
        "enabled": data.get(settings.ENABLED) == "true",
        "url": data.get(settings.URL, ""),
        "revision": stored.revision,
        "control_planes": planes,
        "workers": len(stored.members) - planes,
        "leaving": [m.address for m in stored.members if m.leaving],
        "tainted": [m.address for m in stored.members if m.state_taint],
        "pending": {"added": stored.pending.added, "removed": stored.pending.removed},
        "retiring": [
            {"node": name, "machine": m.machine, "step": m.step, "detail": m.detail} for name, m in retiring if m
        ],
        "findings": [f for f in findings if f],
    }


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{k}: {_words(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(value) or "–"
    return {True: "yes", False: "no"}.get(value, str(value) or "–") if isinstance(value, bool) else str(value) or "–"


def history(*, output: Output = Format.TABLE, where: Where = HERE) -> None:
    """List the stored revisions, the newest last: when, what for, and which machines.

    Example: mooring fleet history

    Example: mooring fleet history -o json
    """

    async def go(store: Store) -> Ledger:
        return await store.ledger()

    entries = talk(where, go).history
    if output is Format.JSON:
        print_json(entries)
        return
    rows = [
        (
            str(e.revision),
            datetime.fromtimestamp(e.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            e.action,
            str(e.control_planes),
            str(e.workers),
            "; ".join(e.changes) + (f"; and {e.more} more" if e.more else ""),
        )
        for e in entries
    ]
    print_table(("REVISION", "AT", "ACTION", "CONTROL PLANES", "WORKERS", "CHANGES"), rows)


def _set(where: Where, key: str, text: str) -> None:
    async def go(store: Store) -> None:
        await store.set(**{key: text})

    talk(where, go)


def _print(where: Where, key: str, output: Format) -> None:
    """The text as it was set, or what it says as JSON."""

    async def go(store: Store) -> str:
        return (await store.data()).get(key, "")

    text = talk(where, go)
    if not text:
        raise CommandError(f"{key} is not set", Exit.NOT_AS_IT_SHOULD_BE)
    if output is Format.JSON:
        print_json(
            text if key == settings.URL else _good(decode_document(text.encode(), key, ErrorCode.INVALID_TEMPLATE))
        )
        return
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except OSError as error:
        raise CommandError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise CommandError(f"{file}: not UTF-8 text: {error}") from None


def _good(value: Any) -> Any:
    if isinstance(value, PlanError):
        raise CommandError(value.message)
    return value
