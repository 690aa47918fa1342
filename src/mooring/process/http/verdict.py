"""How the cluster is, in one sentence: the first line of the page, of `mooring top`, of `mooring why` and of `mooring`
without a command.

What makes Mooring blind comes first: nobody decides, or the API server does not answer. Then what needs a person, then
what is on its way, then what waits. `safe` is said only where nothing of these needs anybody.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from mooring.core.engine.standing import Standing
from mooring.core.engine.why.words import plural, span
from mooring.core.model.decision import OperatorRecord, Verdict
from mooring.core.model.reasons import State

#: Above this age what is shown may no longer be true.
BLIND_S: Final = 20.0


class Mood(StrEnum):
    SAFE = "safe"
    WAITING = "waiting"
    NEEDS_YOU = "needs-you"
    UNKNOWN = "unknown"


SIGNS: Final[Mapping[Mood, str]] = {
    Mood.SAFE: "✓ Safe",
    Mood.WAITING: "… Waiting",
    Mood.NEEDS_YOU: "▲ Needs you",
    Mood.UNKNOWN: "? Unknown",
}


class Interrupted(msgspec.Struct, frozen=True):
    """Nodes under an interruption notice: how many, the pods that are still there, and when the first node goes."""

    nodes: int = 0
    pods: int = 0
    until: float | None = None


def sentence(head: Mapping[str, Any], interrupted: Interrupted, now: float) -> dict[str, str]:
    """From the head of a frame."""
    mood, words = _found(head, interrupted, now)
    return {"state": str(mood), "words": f"{SIGNS[mood]}: {words}"}


def _found(head: Mapping[str, Any], interrupted: Interrupted, now: float) -> tuple[Mood, str]:
    if head["silent_s"] >= BLIND_S:
        return (
            Mood.UNKNOWN,
            f"the API server has not answered for {span(head['silent_s'])}; nothing new begins meanwhile",
        )
    if not head["leader"]:
        return Mood.UNKNOWN, "no replica holds the lease, so nobody decides"
    if head["needs"]:
        more = f", and {plural(head['needs'] - 1, 'more cause')}" if head["needs"] > 1 else ""
        return Mood.NEEDS_YOU, f"{head['needs_words']}{more}"
    running, waiting = head["running"], head["waiting"]
    then = f"; {waiting:,} waiting for their turn" if waiting else ""
    if interrupted.nodes:
        nodes = plural(interrupted.nodes, "interrupted node")
        if not interrupted.pods:
            return Mood.SAFE, f"{nodes}, all empty{then}"
        left = f", {span(interrupted.until - now)} left" if interrupted.until and interrupted.until > now else ""
        verb = "is" if interrupted.pods == 1 else "are"
        return Mood.SAFE, f"{plural(interrupted.pods, 'pod')} {verb} leaving {nodes}{left}{then}"
    if running:
        return Mood.SAFE, f"{plural(running, 'move')} under way{then}"
    if waiting:
        return Mood.WAITING, f"{plural(waiting, 'move')}, the first for {head['waiting_words'] or 'its turn'}"
    return Mood.SAFE, "no pending changes"


def causes(found: Iterable[Standing]) -> int:
    """How many different things need a person: forty pods behind one budget are one."""
    return len({_cause(one) for one in found if one.state is State.BLOCKED})


def _cause(one: Standing) -> tuple[str, str]:
    match one.of:
        case Verdict() as verdict:
            return verdict.reason, verdict.remedy or verdict.detail
        case OperatorRecord(waiting_on=Verdict() as verdict):
            return verdict.reason, verdict.remedy or verdict.detail
    return one.id, ""
