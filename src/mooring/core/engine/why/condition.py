"""What an object is like by itself, whatever Mooring plans for it: ready or not, cordoned, interrupted, leaving.

One function per kind, read by `why` and by the page: both say the same about one object. None: nothing to say, it is
as it should be. Nodes and machines are here, what runs on them is in `workload_condition.py`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from mooring.core.engine.why.words import plural, span
from mooring.core.model.cluster import Node, Taint
from mooring.core.model.descriptor import Departure
from mooring.core.model.machine import Machine, MachineState
from mooring.core.model.marks import CORDONED_BY, RESERVED_TAINT, RETIRING, Mark, read_mark
from mooring.core.model.reasons import Reason, State
from mooring.core.model.times import time_of_day

#: The label that names a node's rack; the first that is there counts.
RACK: Final = ("cke.cybozu.com/rack", "topology.kubernetes.io/rack", "topology.kubernetes.io/zone")
#: The step of a retiring mark whose operator gave its place up: it is tried again, and only a person can end it.
GAVE_UP: Final = "blocked"
STATE_TAINT: Final = "cke.cybozu.com/state"
#: What Kubernetes sets and lifts by itself, beside a condition or a cordon.
_KUBERNETES: Final = "node.kubernetes.io/"
_CONTROL_PLANE: Final = "node-role.kubernetes.io/"


#: Node → every sign that it must be emptied (`Engine.departures`).
Departures = Callable[[Node], Sequence[Departure]]


class Condition(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    state: State
    reason: Reason
    #: What follows the state word: "cordoned, not by Mooring".
    detail: str
    #: What ends it, in a clause; "": nothing needs to.
    ends: str = ""
    #: What to type, each a word and a command.
    commands: tuple[tuple[str, str], ...] = ()
    since: float | None = None
    until: float | None = None


def rack_of(node: Node) -> str:
    """The rack (or zone) of a node, as `why`, the page and the rows name it; "": nothing says so."""
    return next((node.labels[key] for key in RACK if node.labels.get(key)), "")


# ── Nodes and machines ────────────────────────────────────────────────────────────────────────────────────────────


def of_node(node: Node, departures: Departures, now: float | None = None) -> Condition | None:
    """The first that applies: not Ready, interrupted, retiring, deleted, cordoned, reserved, tainted."""
    found = _not_ready(node) or _interrupted(node, departures(node), now)
    for look in (_retiring, _deleted, _cordoned, _reserved, _tainted):
        found = found or look(node)
    return found


def _not_ready(node: Node) -> Condition | None:
    if node.ready == "True":
        return None
    return Condition(
        state=State.WAITING,
        reason=Reason.NODE_NOT_READY,
        detail=f"not Ready: {node.ready_reason or node.ready}",
        ends="ends when its kubelet reports Ready",
        commands=(("look at", f"kubectl describe node {node.name}"),),
        since=node.ready_since,
    )


def _interrupted(node: Node, signs: Sequence[Departure], now: float | None) -> Condition | None:
    """The earliest moment counts; a sign without one only where none tells it."""
    wrong = next((key_text for one in signs if (key_text := one.unread) is not None), None)
    timed = min((one for one in signs if one.at is not None), key=lambda one: one.at or 0.0, default=None)
    if wrong is not None and timed is None:
        key, text = wrong
        return Condition(
            state=State.BLOCKED,
            reason=Reason.MISCONFIGURED,
            detail=f"interruption notice {text[:40]!r} is not a time",
            ends="a person must correct it",
            commands=(("correct", f"kubectl annotate node {node.name} --overwrite {key}=2026-01-31T08:15:00Z"),),
        )
    if timed is None or timed.at is None:
        untimed = next((one for one in signs if one.unread is None), None)
        if untimed is None:
            return None
        return Condition(
            state=State.WAITING,
            reason=Reason.NOTICE,
            detail=f"interruption notice, {untimed.sign}",
            ends="ends when the node goes",
            commands=(("look at", f"kubectl describe node {node.name}"),),
        )
    key = timed.sign.rpartition(" ")[2]
    if now is not None and timed.at < now:
        return Condition(
            state=State.BLOCKED,
            reason=Reason.EXPIRED,
            detail=f"interruption notice expired {span(now - timed.at)} ago, the node is still there",
            ends="a person must act",
            commands=(
                ("it stays", f"kubectl annotate node {node.name} {key}-"),
                ("it is gone", f"kubectl delete node {node.name}"),
            ),
            until=timed.at,
        )
    left = f", {span(timed.at - now)} left" if now is not None else ""
    return Condition(
        state=State.WAITING,
        reason=Reason.NOTICE,
        detail=f"interruption notice for {time_of_day(timed.at)}{left}",
        ends="ends when the node goes",
        commands=(("take back", f"kubectl annotate node {node.name} {key}-"),),
        until=timed.at,
    )


def _retiring(node: Node) -> Condition | None:
    text = node.annotations.get(RETIRING)
    taint = next((t for t in node.taints if t.key == STATE_TAINT), None)
    mark = read_mark(text) if text is not None else None
    if mark is not None and mark.step == GAVE_UP:
        return Condition(
            state=State.BLOCKED,
            reason=Reason.RETIRING,
            detail=f"retiring, given up for now: {mark.detail.removeprefix('given up for now: ')}",
            ends="a person must act",
            since=mark.since,
        )
    if text is not None:
        words = f"retiring{_by(mark)}"
    elif taint is not None:
        words = f"{taint.value}: tainted {taint.effect}"
    else:
        return None
    return Condition(
        state=State.WAITING,
        reason=Reason.RETIRING,
        detail=words,
        ends="ends when that is done",
        commands=(("look at", f"kubectl describe node {node.name}"),),
        since=mark.since if mark is not None else None,
        until=mark.deadline if mark is not None else None,
    )


def _deleted(node: Node) -> Condition | None:
    if node.deletion_at is None:
        return None
    return Condition(
        state=State.WAITING,
        reason=Reason.LEAVING,
        detail="being deleted",
        ends="ends when its finalizers are done",
        commands=(("look at", f"kubectl get node {node.name} -o jsonpath={{.metadata.finalizers}}"),),
        until=node.deletion_at,
    )


def _cordoned(node: Node) -> Condition | None:
    text = node.annotations.get(CORDONED_BY)
    if text is None and not node.unschedulable:
        return None
    mark = read_mark(text) if text is not None else None
    uncordon = (("lift it", f"kubectl uncordon {node.name}"),)
    if text is None:
        return Condition(
            state=State.BLOCKED,
            reason=Reason.CORDONED,
            detail="cordoned, not by Mooring: no new pods",
            ends="a person must lift it",
            commands=uncordon,
        )
    return Condition(
        state=State.WAITING,
        reason=Reason.CORDONED,
        detail=f"cordoned{_by(mark)}{f': {mark.detail}' if mark is not None and mark.detail else ''}",
        ends="ends when that ends",
        commands=uncordon if mark is None else (),
        since=mark.since if mark is not None else None,
        until=mark.deadline if mark is not None else None,
    )


def _reserved(node: Node) -> Condition | None:
    taint = next((t for t in node.taints if t.key == RESERVED_TAINT), None)
    if taint is None:
        return None
    return Condition(
        state=State.WAITING,
        reason=Reason.RESERVED,
        detail="reserved for a member that comes back",
        ends="ends when it is back",
        commands=(("look at", f"kubectl describe node {node.name}"),),
    )


def _tainted(node: Node) -> Condition | None:
    """A taint that keeps pods off is worth a word, and may be how the node is meant to be: it stays `stable`."""
    taints = [t for t in node.taints if t.effect in {"NoSchedule", "NoExecute"}]
    said = [spelled(t) for t in taints if not t.key.startswith((_KUBERNETES, _CONTROL_PLANE))]
    if not said:
        return None
    return Condition(
        state=State.STABLE,
        reason=Reason.TAINTED,
        detail=f"tainted {', '.join(said)}",
        commands=(("remove", f"kubectl taint node {node.name} {said[0]}-"),),
    )


_MACHINE: Final = {
    MachineState.UNINITIALIZED: (State.WAITING, "not set up yet", "ends when it is HEALTHY"),
    MachineState.UNHEALTHY: (State.BLOCKED, "the registry says UNHEALTHY", "a person must repair it"),
    MachineState.UNREACHABLE: (State.BLOCKED, "the registry says UNREACHABLE", "a person must repair it"),
    MachineState.UPDATING: (State.WAITING, "the registry says UPDATING", "ends when it is HEALTHY"),
    MachineState.RETIRING: (State.WAITING, "RETIRING", "ends when it is RETIRED"),
    MachineState.RETIRED: (State.STABLE, "RETIRED", ""),
}


def of_machine(
    machine: Machine, node: Node | None, departures: Departures, now: float | None = None
) -> Condition | None:
    """What the registry says of it; for a healthy one, what its node is like."""
    found = of_node(node, departures, now) if node is not None else None
    if machine.state is MachineState.HEALTHY or (found is not None and found.state is State.BLOCKED):
        return found
    state, words, ends = _MACHINE[machine.state]
    where = "no node of the cluster" if node is None else _emptied(node)
    reason = Reason.RETIRING if machine.state in {MachineState.RETIRING, MachineState.RETIRED} else Reason.FACT
    commands = () if state is State.STABLE else (("look at", "mooring fleet status"),)
    return Condition(
        state=state,
        reason=reason,
        detail=f"{words}; {where}",
        ends=ends,
        commands=commands,
        since=machine.state_since or None,
    )


def of_rack(nodes: Iterable[Node], departures: Departures, now: float | None = None) -> Condition | None:
    """The first node of a rack that there is something to say about, and how many there are."""
    looked = [(node, of_node(node, departures, now)) for node in nodes]
    found = [(node, one) for node, one in looked if one is not None and one.state is not State.STABLE]
    if not found:
        return None
    node, first = min(found, key=lambda pair: (pair[1].state is not State.BLOCKED, pair[0].name))
    more = f" (and {plural(len(found) - 1, 'more node')})" if len(found) > 1 else ""
    return msgspec.structs.replace(first, detail=f"{node.name} {first.detail}{more}")


def _emptied(node: Node) -> str:
    if any(t.key == STATE_TAINT and t.effect == "NoExecute" for t in node.taints):
        return f"its node {node.name} is drained and tainted NoExecute"
    return f"its node {node.name} is cordoned" if node.unschedulable else f"its node is {node.name}"


# ── Words ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def spelled(taint: Taint) -> str:
    """As kubectl writes it: key=value:Effect."""
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


def _by(mark: Mark | None) -> str:
    if mark is None:
        return ", by Mooring"
    return f", by Mooring (op {mark.operator})" if mark.operator else ", by Mooring"
