"""`mooring mix`: replicas across on-demand and spot nodes."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Final

from cyclopts import App, Parameter

from mooring.capabilities.mix.worth import last_line
from mooring.cli.connect import AllNamespaces, Context, Kubeconfig, ObjectNamespace, OnlyNamespace, connect
from mooring.cli.output import (
    Format,
    Listed,
    Listing,
    Output,
    Whole,
    note,
    print_data,
    print_lines,
    print_table,
    print_text,
)
from mooring.cli.server import HERE, Reach, Watch, ask, following, only_in
from mooring.core.engine.why.names import kind_of, namespace_of, workload_typed
from mooring.core.model.exits import Exit, UserError
from mooring.core.model.spelling import counted

#: Of what line 1 says.
LONGEST_LINE: Final = 110
#: Slots that are written out.
LONGEST_SEQUENCE: Final = 40
WORKLOAD_COLUMNS: Final = ("STATE", "NAMESPACE", "WORKLOAD", "MODE", "READY", "ON-DEMAND", "SAFE", "WHAT IS WRONG")
WIDE_COLUMNS: Final = ("SLOTS", "BECAUSE")
POLICY_COLUMNS: Final = ("POLICY", "NAMESPACE", "WORKLOAD", "GETS", "BECAUSE")
POD_COLUMNS: Final = ("SLOT", "POD", "CLASS", "NODE", "OF CLASS", "READY", "")

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
def status(
    *,
    namespace: OnlyNamespace = "",
    everywhere: AllNamespaces = False,
    watch: Watch = False,
    reach: Reach = HERE,
    output: Listed = Listing.TABLE,
) -> None:
    """List every workload that is switched on, those that need attention first, and the interrupted nodes.

    ON-DEMAND is "have of wanted"; SAFE counts the Ready ones on on-demand nodes that stay: what survives if every spot
    node goes at once.

    Example: mooring mix status -w

    Example: mooring mix status -n shop -o json
    """

    def look() -> Any:
        answer = ask(reach, "/api/v1/mix")
        answer["workloads"] = [w for w in answer["workloads"] if namespace in {"", w["namespace"]}]
        return answer

    def first(answer: Any) -> None:
        only_in(reach, namespace, everywhere=everywhere, found=bool(answer["workloads"]))
        show(answer, namespace, output)

    def news(answer: Any) -> Any:
        return [*map(workload_row, answer["workloads"]), *(node["node"] for node in answer["nodes"])]

    following(look, news, first, watch=watch)


def show(answer: Any, namespace: str, output: Listing) -> None:
    if output is Listing.NAME:
        names = (f"workload/{w['namespace']}/{w['kind']}/{w['name']}\n" for w in answer["workloads"])
        print_text("".join(names), end="")
        return
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
    wide = output is Listing.WIDE
    columns = (*WORKLOAD_COLUMNS[:-1], *(WIDE_COLUMNS if wide else ()), WORKLOAD_COLUMNS[-1])
    print_table(columns, (workload_row(one, wide=wide) for one in answer["workloads"]))
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
    one, where = kinds[0] if len(kinds) == 1 else "workload", f"namespace {namespace}" if namespace else "any namespace"
    what = f"there is no {one} {name} in {where}"
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


def slots_text(slots: str) -> str:
    if len(slots) <= LONGEST_SEQUENCE:
        return slots
    return f"{slots[:LONGEST_SEQUENCE]}… ({len(slots)}, -o json shows all)"


def node_line(node: Mapping[str, Any]) -> str:
    if node.get("likely"):
        words = "may be interrupted, replacements where there is room"
        return f"{node['node']} {words} ({node['signal']}), {counted(node['pods'], 'pod')} on it"
    if node["signal"] and node["seconds_left"] is None:
        return f"{node['node']} is being emptied ({node['signal']}), {counted(node['pods'], 'pod')} on it"
    if node["signal"]:
        left = f"is interrupted in {node['seconds_left']:.0f} s" if node["seconds_left"] else "should be gone by now"
        return f"{node['node']} {left} ({node['signal']}), {counted(node['pods'], 'pod')} on it"
    if node["problem"]:
        return f"{node['node']} is not emptied: {node['problem']}"
    return f"{node['node']} stays after all; our cordon is lifted once it is Ready"


def workload_row(one: Mapping[str, Any], *, wide: bool = False) -> tuple[str, ...]:
    more = (slots_text(one["sequence"]) or "–", one["because"] or "–") if wide else ()
    return (
        one["state"],
        one["namespace"],
        f"{one['kind']}/{one['name']}",
        one["mode"] or "–",
        f"{one['ready']}/{one['replicas']}",
        f"{one['have']}/{one['wanted']}" if one["managed"] else "–",
        str(one["safe"]),
        *more,
        one["wrong"] or "nothing",
    )


def policy_row(one: Mapping[str, Any]) -> tuple[str, ...]:
    gets = one["gives"] or "nothing"
    return one["policy"], one["namespace"], f"{one['kind']}/{one['name']}", gets, one["because"]


def pod_row(pod: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        "–" if pod["slot"] is None else str(pod["slot"]),
        pod["name"],
        pod["given"],
        pod["node"] or "–",
        pod["node_class"] or "–",
        "yes" if pod["ready"] else "no",
        pod["note"],
    )


def workload_lines(one: Mapping[str, Any]) -> list[str]:
    """Line 1 is the answer."""
    name = f"{one['kind']}/{one['name']}"
    if one["problems"]:
        first = f"{name} is not managed: {'; '.join(one['problems'])}"
    elif not one["managed"]:
        first = f"{name} is not managed{': ' + one['wrong'] if one['wrong'] else ''}"
    elif one["wrong"]:
        first = f"{name} is {one['state']}: {one['wrong']}"
    else:
        first = f"{name} is stable: {one['have']} of {one['replicas']} on on-demand, as {one['mode']} wants"
    lines = [_headline(first, one["problems"]), ""]
    if len(first) > LONGEST_LINE:
        lines += [f"wrong       {part}" for part in one["problems"] or one["wrong"].split("; ")]
    if one["managed"]:
        by = " (the default of its kind)" if one["by_default"] else ""
        by += f" (by policy {one['policy']})" if one["because"] == "the policy" else ""
        lines.append(f"mode        {one['mode']}{by}: slots {slots_text(one['sequence'])}")
        lines.append(f"floor       {one['wanted']} on on-demand; {one['safe']} Ready there now")
    lines += [f"next        {one['next']}"] if one["next"] else []
    lines += [f"not yet     {one['not_yet']}"] if one["not_yet"] not in {"", one["wrong"]} else []
    lines += [f"to change   {one['remedy']}"] if one["remedy"] else []
    return [*lines, ""]


def _headline(words: str, problems: list[str]) -> str:
    """At most one line. The last clause names what blocks; of several problems, the first. The rest follows below."""
    if len(words) <= LONGEST_LINE:
        return words
    name, _, rest = words.partition(": ")
    clause = problems[0] if problems else rest.rpartition("; ")[2]
    short = f"{name}: {clause}"
    if len(short) > LONGEST_LINE and "; " in clause:
        short = f"{name}: {clause.rpartition('; ')[0]}"
    return short if len(short) <= LONGEST_LINE else short[: LONGEST_LINE - 1] + "…"
