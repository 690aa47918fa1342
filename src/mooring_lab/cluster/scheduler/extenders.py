"""Scheduler extenders, called the way kube-scheduler calls them: in process, or over HTTP.

`filter`, `prioritize` and `preempt` take and return extender/v1 JSON (Capitalised keys out, any casing in). Called one
after another, after the scheduler's own filters, only while a node is left, for every pod of the profile. What goes
wrong fails the attempt, not the pod's chances: it is tried again later; an ignorable extender is passed over.
"""

import urllib.request
from collections.abc import Callable
from typing import Any, Final

import msgspec

from mooring.clients.ports import Json
from mooring_lab.cluster.scheduler.snapshot import SchedulerSnapshot

Verb = Callable[[Json], Any]


class ExtenderError(Exception):
    """The attempt failed through an extender; the message names it."""


#: Far less than kube-scheduler's 5 s: the sandbox stands still meanwhile.
_PATIENCE_S: Final = 1.0


def over_http(prefix: str) -> Verb:
    """Of an extender in another process: `prefix` with the verb at its end."""

    def ask(arguments: Json) -> Any:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(prefix, msgspec.json.encode(arguments), headers)  # noqa: S310 - ours
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:  # noqa: S310
            return msgspec.json.decode(answer.read())

    return ask


class Extender(msgspec.Struct, frozen=True):
    name: str = "extender"
    filter: Verb | None = None
    prioritize: Verb | None = None
    preempt: Verb | None = None
    weight: int = 1
    #: True: names only, both ways.
    node_cache_capable: bool = False
    ignorable: bool = False


def _field(reply: Json, name: str) -> Any:
    """Go decodes without regard to case."""
    if name in reply:
        return reply[name]
    lower = name.lower()
    return next((value for key, value in reply.items() if key.lower() == lower), None)


def _arguments(extender: Extender, pod: Json, names: list[str], snapshot: SchedulerSnapshot) -> Json:
    if extender.node_cache_capable:
        return {"Pod": pod, "Nodes": None, "NodeNames": names}
    items = [snapshot.nodes[name].obj for name in names]
    return {"Pod": pod, "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}


def _call(extender: Extender, verb: Verb, arguments: Json) -> Any:
    try:
        return verb(arguments)
    except Exception as error:  # an extender may fail in any way; the scheduler must not
        raise ExtenderError(f"{extender.name}: {error}") from error


def run_filter(
    extender: Extender, pod: Json, names: list[str], snapshot: SchedulerSnapshot
) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """(nodes left, why others failed, why others failed for good)."""
    if extender.filter is None:
        return names, {}, {}
    reply = _call(extender, extender.filter, _arguments(extender, pod, names, snapshot))
    if not isinstance(reply, dict):
        raise ExtenderError(f"{extender.name}: no answer")
    if _field(reply, "Error"):
        raise ExtenderError(f"{extender.name}: {_field(reply, 'Error')}")
    left: list[str] = []
    given_names, given_nodes = _field(reply, "NodeNames"), _field(reply, "Nodes")
    if extender.node_cache_capable and given_names is not None:
        unknown = [name for name in given_names if name not in names]
        if unknown:
            raise ExtenderError(f"{extender.name}: node {unknown[0]!r} was not in the request")
        left = list(given_names)
    elif given_nodes is not None:
        left = [item["metadata"]["name"] for item in given_nodes.get("items") or ()]
    return left, dict(_field(reply, "FailedNodes") or {}), dict(_field(reply, "FailedAndUnresolvableNodes") or {})


def run_prioritize(extender: Extender, pod: Json, names: list[str], snapshot: SchedulerSnapshot) -> dict[str, int]:
    """Points by node: an extender's 0…10 becomes 0…100, times its weight. Errors are ignored, as in kube-scheduler."""
    if extender.prioritize is None:
        return {}
    try:
        reply = _call(extender, extender.prioritize, _arguments(extender, pod, names, snapshot))
    except ExtenderError:
        return {}
    return {str(_field(item, "Host")): int(_field(item, "Score") or 0) * 10 * extender.weight for item in reply or ()}


def run_preempt(extender: Extender, pod: Json, victims: dict[str, list[Json]]) -> dict[str, list[str]]:
    """Which nodes may still be preempted on, with the uids of their victims."""
    uids = {name: [one["metadata"]["uid"] for one in pods] for name, pods in victims.items()}
    if extender.preempt is None:
        return uids
    arguments: Json = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": None}
    if extender.node_cache_capable:
        arguments["NodeNameToMetaVictims"] = {
            name: {"Pods": [{"UID": uid} for uid in those], "NumPDBViolations": 0} for name, those in uids.items()
        }
    else:
        arguments["NodeNameToVictims"] = {name: {"Pods": pods, "NumPDBViolations": 0} for name, pods in victims.items()}
    reply = _call(extender, extender.preempt, arguments)
    meta = _field(reply or {}, "NodeNameToMetaVictims") or {}
    result = {}
    for name, entry in meta.items():
        chosen = [str(_field(one, "UID")) for one in _field(entry, "Pods") or ()]
        if name not in uids or any(uid not in uids[name] for uid in chosen):
            raise ExtenderError(f"{extender.name}: preempt answered with a victim that is not on {name}")
        if not chosen and not extender.ignorable:
            raise ExtenderError(f"{extender.name}: preempt answered without victims for {name}")
        if chosen:
            result[name] = chosen
    return result
