"""`mooring mix`: replicas across on-demand and spot nodes."""

import asyncio
from typing import Annotated, Any

from cyclopts import App, Parameter

from mooring.capabilities.mix.report_text import (
    POD_COLUMNS,
    POLICY_COLUMNS,
    WORKLOAD_COLUMNS,
    node_line,
    pod_row,
    policy_row,
    slots_text,
    workload_lines,
    workload_row,
)
from mooring.capabilities.mix.worth import last_line
from mooring.cli.connect import Context, Kubeconfig, ObjectNamespace, OnlyNamespace, connect
from mooring.cli.output import Format, Output, Whole, note, print_data, print_lines, print_table, print_text
from mooring.cli.server import HERE, Reach, ask
from mooring.core.engine.why.names import kind_of, namespace_of, workload_typed
from mooring.core.model.exits import Exit, UserError

app = App(name="mix", help="Replicas across on-demand and spot nodes: who goes where, and why.")


@app.command
def target(
    *,
    kind: Annotated[str, Parameter(help="Deployment, StatefulSet, Rollout or CloneSet.")],
    replicas: Annotated[Whole, Parameter(help="How many replicas.")],
    mode: Annotated[str | None, Parameter(help="The mode; without it, the default of the kind.")] = None,
    custom: Annotated[str | None, Parameter(help="With mode custom: 3, 30% or 30pct.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Say how many replicas a mode puts on on-demand and on spot nodes, and the class of each slot.

    Slot i has the same class for every number of replicas: scaling up or down moves no other pod.

    Example: mooring mix target --kind StatefulSet --replicas 5 -o json

    Example: mooring mix target --kind Deployment --replicas 10 --mode custom --custom 30%
    """
    from mooring.capabilities.mix.labels import target_asked

    if not 0 <= replicas <= 1_000_000:
        raise UserError(f"--replicas {replicas}: it must be between 0 and 1000000")
    wanted = target_asked(kind, mode, custom)
    if isinstance(wanted, str):
        raise UserError(wanted)
    on_demand, sequence = wanted.on_demand(replicas), wanted.sequence(replicas)
    if output.data:
        print_data(
            output, {"mode": wanted.mode, "on_demand": on_demand, "spot": replicas - on_demand, "sequence": sequence}
        )
        return
    row = (str(wanted), str(on_demand), str(replicas - on_demand), slots_text(sequence))
    print_table(("MODE", "ON-DEMAND", "SPOT", "SLOTS"), [row])


@app.command
def status(*, namespace: OnlyNamespace = "", reach: Reach = HERE, output: Output = Format.TABLE) -> None:
    """List every workload that is switched on, those that need attention first, and the interrupted nodes.

    ON-DEMAND is "have of wanted"; SAFE counts the Ready ones on on-demand nodes that stay: what survives if every spot
    node goes at once.

    Example: mooring mix status

    Example: mooring mix status -n shop -o json
    """
    answer = ask(reach, "/api/v1/mix")
    answer["workloads"] = [w for w in answer["workloads"] if namespace in {"", w["namespace"]}]
    if output.data:
        print_data(output, answer)
        return
    if not answer["on"]:
        note("mix is off (mooring run --features mix=true): nothing is moved")
    elif not answer["leading"]:
        note("this replica follows: ask the leader for what waits and runs")
    for node in answer["nodes"]:
        note(node_line(node))
    if not answer["workloads"]:
        note("no workload has the label vacant.io/optimize-scheduling")
        return
    print_table(WORKLOAD_COLUMNS, map(workload_row, answer["workloads"]))
    if not namespace:
        print_lines(["", last_line(answer["worth"])])


@app.command
def policies(*, namespace: OnlyNamespace = "", reach: Reach = HERE, output: Output = Format.TABLE) -> None:
    """List the workloads that `mix.policies` select, what each gets, and why: the policy, or its own labels.

    A policy with `observe: true` only shows here what it would give.

    Example: mooring mix policies

    Example: mooring mix policies -n shop -o json
    """
    answer = ask(reach, "/api/v1/mix")
    found = [w for w in answer["workloads"] if w["policy"] and namespace in {"", w["namespace"]}]
    found.sort(key=lambda w: (answer["policies"].index(w["policy"]), w["namespace"], w["name"], w["kind"]))
    if output.data:
        rows = [{key: w[key] for key in ("policy", "kind", "namespace", "name", "gives", "because")} for w in found]
        print_data(output, {"policies": answer["policies"], "workloads": rows})
        return
    if not answer["policies"]:
        note("there are no mix.policies in the settings (docs/mix.md): only labels switch workloads on")
        return
    for name in answer["policies"]:
        if not any(w["policy"] == name for w in found):
            note(f"policy {name} is the first to select no workload{f' in {namespace}' if namespace else ''}")
    if found:
        print_table(POLICY_COLUMNS, map(policy_row, found))


@app.command
def explain(
    workload: Annotated[
        str, Parameter(help="NAME, NAMESPACE/NAME or KIND/NAME; KIND is Deployment, StatefulSet, Rollout or CloneSet.")
    ],
    *,
    namespace: ObjectNamespace = "",
    reach: Reach = HERE,
    output: Output = Format.TABLE,
) -> None:
    """Say of one workload: its slots, where each pod stands, what is wrong, what happens next and why not yet.

    Example: mooring mix explain web -n shop

    Example: mooring mix explain StatefulSet/db -n shop -o json
    """
    answer = asked(reach, workload, namespace)
    if output.data:
        print_data(output, answer)
        return
    if not answer["on"]:
        note("mix is off (mooring run --features mix=true): this is what it would do")
    elif not answer["leading"]:
        note("this replica follows: ask the leader for what waits and runs")
    print_lines(workload_lines(answer))
    print_table(POD_COLUMNS, map(pod_row, answer["pods"]))


def asked(reach: Reach, workload: str, namespace: str) -> dict[str, Any]:
    """What Mooring knows of it; of a bare name, whichever kind there is."""
    if workload.lower().startswith(("job/", "cronjob/", "jobs/", "cronjobs/")):
        raise UserError(f"{workload}: mix leaves Jobs alone; their pods stay where kube-scheduler put them")
    if (first := workload.partition("/"))[1] and not kind_of(first[0]) and not namespace:
        workload, namespace = first[2], first[0]  # NAMESPACE/NAME, as the page and `why` write it
    kinds, name = workload_typed(workload)
    space = namespace or namespace_of(ask(reach, f"/api/v1/find?q={name}")["found"], kinds, name)
    for kind in kinds if space else ():
        try:
            answer: dict[str, Any] = ask(reach, f"/api/v1/mix/{kind}/{space}/{name}", missing="it is not there")
        except UserError as error:
            if error.code is not Exit.CHECK_FAILED:
                raise
        else:
            return answer
    what = f"there is no {' or '.join(kinds)} {name} in {f'namespace {namespace}' if namespace else 'any namespace'}"
    raise UserError(f"{what}; `mooring mix status` lists them", Exit.CHECK_FAILED)


@app.command
def release(
    *,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    namespace: Annotated[
        str, Parameter(name=["--namespace", "-n"], help="Only pods of this namespace, and no node. Default: all.")
    ] = "",
    dry_run: Annotated[bool, Parameter(help="Only say what would be done.")] = False,
    output: Output = Format.TABLE,
) -> int:
    """Give back what Mix has taken: detached pods go back to their ReplicaSets, our cordons and marks go.

    For an uninstall, or when Mooring was stopped for good in the middle of something. Stop it first: a replica that
    leads would begin again. Only what a mark says we did is undone; a person's cordon stays.

    Example: mooring mix release --dry-run

    Example: mooring mix release --context prod
    """
    found, failed = asyncio.run(_release(kubeconfig, context, namespace, dry_run=dry_run))
    if output.data:
        print_data(output, {"undone": found, "failed": failed, "dry_run": dry_run})
    else:
        for line in found:
            print_text(line)
        for line in failed:
            note(f"not done: {line}")
        if not found and not failed:
            note("leftovers: none")
    return Exit.CHECK_FAILED if failed else Exit.DONE


async def _release(kubeconfig: str, context: str, namespace: str, *, dry_run: bool) -> tuple[list[str], list[str]]:
    from mooring.install.cleanup.undo import released

    async with connect(kubeconfig, context) as api:
        return await released(api, namespace, dry_run=dry_run)
