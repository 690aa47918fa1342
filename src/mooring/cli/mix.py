"""`mooring mix`: replicas across on-demand and spot nodes."""

import asyncio
from enum import StrEnum
from typing import Annotated, Any

from cyclopts import App, Parameter

from mooring.capabilities.mix.wording import counted
from mooring.cli.connect import Context, Kubeconfig, connect
from mooring.cli.exits import CommandError, Exit
from mooring.cli.numbers import Whole
from mooring.cli.output import Format, Output, note, print_json, print_table
from mooring.cli.server import HERE, Reach, ask

app = App(name="mix", help="Replicas across on-demand and spot nodes: who goes where, and why.")


#: Of what line 1 says.
LONGEST_LINE = 110
#: Slots that are written out.
LONGEST_SEQUENCE = 40


class WorkloadKind(StrEnum):
    Deployment = "Deployment"
    StatefulSet = "StatefulSet"


#: As kubectl spells them.
_KINDS = {
    "deployment": WorkloadKind.Deployment,
    "deploy": WorkloadKind.Deployment,
    "statefulset": WorkloadKind.StatefulSet,
    "sts": WorkloadKind.StatefulSet,
}


@app.command
def target(
    *,
    kind: Annotated[str, Parameter(help="Deployment or StatefulSet.")],
    replicas: Annotated[Whole, Parameter(help="How many replicas.")],
    mode: Annotated[str | None, Parameter(help="The mode; without it, the default of the kind.")] = None,
    custom: Annotated[str | None, Parameter(help="With mode custom: 3, 30% or 30pct.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Say how many replicas a mode puts on on-demand and on spot nodes, and the class of each slot.

    Slot i has the same class for every number of replicas: scaling up or down moves nobody.

    Example: mooring mix target --kind StatefulSet --replicas 5 -o json

    Example: mooring mix target --kind Deployment --replicas 10 --mode custom --custom 30%
    """
    from mooring.capabilities.mix.labels import parse_share
    from mooring.capabilities.mix.targets import MODES, Mode, Target, default_target

    if kind not in set(WorkloadKind):
        raise CommandError(f"--kind {kind}: it must be Deployment or StatefulSet")
    if not 0 <= replicas <= 1_000_000:
        raise CommandError(f"--replicas {replicas}: it must be between 0 and 1000000")
    if mode is not None and mode not in MODES:
        raise CommandError(f"--mode {mode}: it must be one of {', '.join(MODES)}")
    if mode == Mode.CUSTOM and custom is None:
        raise CommandError("--mode custom needs --custom: a count such as 3, or a percentage such as 30%")
    if mode != Mode.CUSTOM and custom is not None:
        raise CommandError(f"--custom {custom} goes with --mode custom only; the mode is {mode or 'the default'}")
    share = None
    if custom is not None:
        share = parse_share(custom)
        if share is None:
            raise CommandError(f"--custom {custom}: it must be a count (0, 1, 2 …) or a percentage, 0% to 100%")
    wanted = default_target(kind) if mode is None else Target(Mode(mode), share)
    on_demand, sequence = wanted.on_demand(replicas), wanted.sequence(replicas)
    if output is Format.JSON:
        print_json({"mode": wanted.mode, "on_demand": on_demand, "spot": replicas - on_demand, "sequence": sequence})
        return
    slots = _sequence(sequence)
    print_table(
        ("MODE", "ON-DEMAND", "SPOT", "SLOTS"), [(str(wanted), str(on_demand), str(replicas - on_demand), slots)]
    )


def _sequence(slots: str) -> str:
    if len(slots) <= LONGEST_SEQUENCE:
        return slots
    return f"{slots[:LONGEST_SEQUENCE]}… ({len(slots)}, -o json shows all)"


@app.command
def status(*, reach: Reach = HERE, output: Output = Format.TABLE) -> None:
    """List every workload that is switched on, those that need a look first, and the nodes that are about to go.

    ON-DEMAND is "have of wanted"; SAFE counts the Ready ones on on-demand nodes that stay: what survives if every spot
    node goes at once.

    Example: mooring mix status

    Example: mooring mix status -o json
    """
    answer = ask(reach, "/api/v1/mix")
    if output is Format.JSON:
        print_json(answer)
        return
    if not answer["on"]:
        note("mix is off (mooring run --features mix=true): nothing is moved")
    elif not answer["leading"]:
        note("this replica follows: ask the leader for what waits and runs")
    for node in answer["nodes"]:
        note(_node(node))
    if not answer["workloads"]:
        note("no workload has the label vacant.io/optimize-scheduling")
        return
    rows = [_row(one) for one in answer["workloads"]]
    print_table(("STATE", "NAMESPACE", "WORKLOAD", "MODE", "READY", "ON-DEMAND", "SAFE", "WHAT IS WRONG"), rows)


def _node(node: dict[str, Any]) -> str:
    if node["signal"] and node["seconds_left"] is None:
        return f"{node['node']} is being emptied ({node['signal']}), {counted(node['pods'], 'pod')} on it"
    if node["signal"]:
        left = f"goes in {node['seconds_left']:.0f} s" if node["seconds_left"] else "was to be gone by now"
        return f"{node['node']} {left} ({node['signal']}), {counted(node['pods'], 'pod')} on it"
    if node["problem"]:
        return f"{node['node']} is not emptied: {node['problem']}"
    return f"{node['node']} stays after all; our cordon is lifted once it is Ready"


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    return (
        one["state"],
        one["namespace"],
        f"{one['kind']}/{one['name']}",
        one["mode"] or "–",
        f"{one['ready']}/{one['replicas']}",
        f"{one['have']}/{one['wanted']}" if one["managed"] else "–",
        str(one["safe"]),
        one["wrong"] or "nothing",
    )


@app.command
def explain(
    workload: Annotated[str, Parameter(help="NAME, Deployment/NAME or StatefulSet/NAME.")],
    *,
    namespace: Annotated[str, Parameter(name=["--namespace", "-n"], help="The namespace of the workload.")] = "default",
    reach: Reach = HERE,
    output: Output = Format.TABLE,
) -> None:
    """Say of one workload: its slots, where each pod stands, what is wrong, what happens next and why not yet.

    Example: mooring mix explain web -n shop

    Example: mooring mix explain StatefulSet/db -n shop -o json
    """
    answer = _asked(reach, workload, namespace)
    if output is Format.JSON:
        print_json(answer)
        return
    if not answer["on"]:
        note("mix is off (mooring run --features mix=true): this is what it would do")
    elif not answer["leading"]:
        note("this replica follows: ask the leader for what waits and runs")
    print("\n".join(_story(answer)))
    rows = [
        (
            "–" if pod["slot"] is None else str(pod["slot"]),
            pod["name"],
            pod["given"],
            pod["node"] or "–",
            pod["node_class"] or "–",
            "yes" if pod["ready"] else "no",
            pod["note"],
        )
        for pod in answer["pods"]
    ]
    print_table(("SLOT", "POD", "CLASS", "NODE", "OF CLASS", "READY", ""), rows)


def _asked(reach: Reach, workload: str, namespace: str) -> dict[str, Any]:
    """What Mooring knows of it; of a bare name, whichever kind there is."""
    written, slash, name = workload.rpartition("/")
    kind = _KINDS.get(written.lower())
    if not name or (slash and kind is None):
        raise CommandError(f"{workload}: write NAME, Deployment/NAME or StatefulSet/NAME")
    kinds = list(WorkloadKind) if kind is None else [kind]
    for one in kinds:
        try:
            answer: dict[str, Any] = ask(reach, f"/api/v1/mix/{one}/{namespace}/{name}", missing="it is not there")
        except CommandError as error:
            if error.code is not Exit.NOT_AS_IT_SHOULD_BE:
                raise
        else:
            return answer
    what = f"there is no {' or '.join(kinds)} {name} in namespace {namespace}"
    raise CommandError(f"{what}; -n names another namespace", Exit.NOT_AS_IT_SHOULD_BE)


def _story(one: dict[str, Any]) -> list[str]:
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
        lines.append(f"mode        {one['mode']}{by}: slots {_sequence(one['sequence'])}")
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


@app.command
def release(
    *,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    dry_run: Annotated[bool, Parameter(help="Only say what would be done.")] = False,
    output: Output = Format.TABLE,
) -> int:
    """Give back what Mix has taken: detached pods go back to their ReplicaSets, our cordons and marks go.

    For an uninstall, or when Mooring was stopped for good in the middle of something. Stop it first: a replica that
    leads would begin anew. Only what a mark says we did is undone; a person's cordon stays.

    Example: mooring mix release --dry-run

    Example: mooring mix release --context prod
    """
    found, failed = asyncio.run(_release(kubeconfig, context, dry_run=dry_run))
    if output is Format.JSON:
        print_json({"undone": found, "failed": failed, "dry_run": dry_run})
    else:
        for line in found:
            print(line)
        for line in failed:
            note(f"not done: {line}")
        if not found and not failed:
            note("nothing of ours is left behind")
    return Exit.NOT_AS_IT_SHOULD_BE if failed else Exit.DONE


async def _release(kubeconfig: str, context: str, *, dry_run: bool) -> tuple[list[str], list[str]]:
    from mooring.install.cleanup.undo import released

    async with connect(kubeconfig, context) as api:
        return await released(api, dry_run=dry_run)
