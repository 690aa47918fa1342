"""What `mooring mix status` and `explain` print of Mix's report: lines and rows for people."""

from collections.abc import Mapping
from typing import Any, Final

from mooring.capabilities.mix.wording import counted

#: Of what line 1 says.
LONGEST_LINE: Final = 110
#: Slots that are written out.
LONGEST_SEQUENCE: Final = 40
WORKLOAD_COLUMNS: Final = ("STATE", "NAMESPACE", "WORKLOAD", "MODE", "READY", "ON-DEMAND", "SAFE", "WHAT IS WRONG")
POLICY_COLUMNS: Final = ("POLICY", "NAMESPACE", "WORKLOAD", "GETS", "BECAUSE")
POD_COLUMNS: Final = ("SLOT", "POD", "CLASS", "NODE", "OF CLASS", "READY", "")


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


def workload_row(one: Mapping[str, Any]) -> tuple[str, ...]:
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
