"""What people ask of nodes and pods: `mooring.dev/drain` on a Node, `mooring.dev/restart` on a Pod.

    mooring.dev/drain there ──► cordoned, with a mark ──► members handed over, all others replaced ──► empty
            └── taken away: requests taken back, the cordon lifted if it was ours

The annotation is the request, so any tool can ask, and the next leader goes on. It may say `by`, `since` and `until` in
JSON; an empty value of `drain` asks, too. What keeps a pod is told and waits for a person: a bare pod, a budget that
allows none. A person who uncordons the node ends its drain.

A restart is the same for one pod, wherever it comes back. It says since when: one that is older than its pod was copied
from a template, and would restart every pod of it for ever.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from mooring.capabilities.drain import empty_node
from mooring.capabilities.drain.cordon import cordon, cordon_mark, lift_cordon
from mooring.capabilities.drain.empty_node import Emptying
from mooring.capabilities.drain.gate import doing_of
from mooring.capabilities.drain.leaders import is_handed_over, led_set
from mooring.capabilities.drain.readiness import subject_of
from mooring.capabilities.drain.replace_pod import replacing
from mooring.capabilities.drain.request import request_of
from mooring.core.model.cluster import Key, Node, Pod
from mooring.core.model.decision import Evaluation, NextStep, OperatorRecord, ReadBack, Verdict
from mooring.core.model.instructions import HarmlessWrite, Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import CORDONED_BY, LEAVING, OWN_REASON, Mark, read_mark
from mooring.core.model.operator import Operator, StepKind
from mooring.core.model.reasons import Reason, State
from mooring.core.model.times import moment, rfc3339
from mooring.core.queue import QueueRead
from mooring.core.world.read import WorldRead

#: The source of operators and marks for what people ask.
SOURCE: Final = "drain"
DRAIN: Final = "mooring.dev/drain"
RESTART: Final = "mooring.dev/restart"
#: Where a node stands in a run of `mooring maintain`, which writes it.
MAINTAIN: Final = "mooring.dev/maintain"
#: Conditions of a Node (KEP-5683; any version keeps them).
DRAINING: Final = "DrainInProgress"
DRAINED: Final = "Drained"
_MAINTAINED: Final = {
    "planned": "MaintenancePlanned",
    **dict.fromkeys(("drain", "command", "return"), "MaintenanceInProgress"),
}
LOOK_S: Final = 5.0
_LONGEST: Final = 80
#: Of so many pods a report says what is being done.
_TOLD: Final = 20


class _Request(msgspec.Struct, frozen=True, gc=False):
    by: str = ""
    since: str = ""
    until: str = ""


class Maintenance(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    #: The same for all nodes of one command.
    run: str
    #: planned, drain, command, return, done or failed.
    step: str = "planned"
    by: str = ""
    since: str = ""
    #: Its drain was asked for by this run, not by others before it.
    asked: bool = False
    #: The boot ID before the command, and when the command ended.
    boot: str = ""
    ended: str = ""
    #: Which session has it, of which Node, and when it last said that it lives.
    session: str = ""
    uid: str = ""
    seen: str = ""


def maintenance_of(annotations: Mapping[str, str]) -> Maintenance | None:
    """None: there is none, or it cannot be read."""
    try:
        return msgspec.json.decode(annotations.get(MAINTAIN, "")[:1024], type=Maintenance)
    except (msgspec.DecodeError, RecursionError):
        return None


class Drained(msgspec.Struct, frozen=True, gc=False):
    """Since when this leader sees the node empty."""

    at: float


def _read(value: str) -> _Request:
    try:
        return msgspec.json.decode(value[:1024], type=_Request)
    except (msgspec.DecodeError, RecursionError):
        return _Request()


def asked_by(value: str) -> str:
    """Who asks, as far as the annotation says it in words that can be printed."""
    return "".join(c for c in _read(value).by[:_LONGEST] if c.isprintable()) or "somebody"


# ── Nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def is_asked(node: Node | None) -> bool:
    return node is not None and DRAIN in node.annotations


def concerns(node: Node | None) -> bool:
    """Something is asked of it, or was and is not undone yet."""
    return _is_drained(node) or (node is not None and (MAINTAIN in node.annotations or bool(node.own_conditions)))


def _is_drained(node: Node | None) -> bool:
    """It is to be drained, or was and has our mark still."""
    return node is not None and (DRAIN in node.annotations or cordon_mark(node, SOURCE) is not None)


def emptying_of(name: str, node: Node | None) -> Emptying:
    wanted = node is not None and is_asked(node) and node.unschedulable
    # The mark may be another's, who has cordoned the node before: it stays.
    mark = read_mark(node.annotations.get(CORDONED_BY, "")) if node is not None else None
    by = asked_by(node.annotations[DRAIN]) if node is not None and is_asked(node) else ""
    return Emptying(
        node=name,
        source=SOURCE,
        reason=Reason.ASKED,
        detail=f"{name} is drained by {by}" if by else f"{name} was drained",
        since=mark.since if mark is not None else float("inf"),
        over="" if wanted else f"{name} is no longer drained",
        look_s=LOOK_S,
    )


def evaluate_node(name: str, world: WorldRead, queue: QueueRead, notes: object, now: float) -> Evaluation:
    found, node = _evaluated(name, world, queue, notes, now), world.node(name)
    told = conditions(node, now, empty=isinstance(found.notes, Drained)) if node is not None else None
    return found if told is None else msgspec.structs.replace(found, instructions=(*found.instructions, told))


def conditions(node: Node, now: float, *, empty: bool) -> Patch | None:
    """Kubernetes' own words for where it stands (KEP-5683); those that others have set are theirs."""
    drained, state = is_asked(node) and node.unschedulable, maintenance_of(node.annotations)
    wanted = {
        **({(DRAINED if empty else DRAINING): f"asked by {asked_by(node.annotations[DRAIN])}"} if drained else {}),
        **({_MAINTAINED[state.step]: f"mooring maintain, {state.step}"} if state and state.step in _MAINTAINED else {}),
    }
    new = wanted.keys() - set(node.conditions)
    old = set(node.own_conditions) - wanted.keys()
    if not new and not old:
        return None
    at = rfc3339(now)
    rows = [
        {
            "type": one,
            "status": "True" if one in new else "False",
            "reason": f"{OWN_REASON}{'Asked' if one in new else 'Ended'}",
            "message": wanted.get(one, ""),
            "lastTransitionTime": at,
            "lastHeartbeatTime": at,
        }
        for one in sorted(new | old)
    ]
    why = f"conditions of {node.name}: {', '.join(sorted(wanted)) or 'none'}"
    patch = {"status": {"conditions": rows}}
    return Patch(kind=Kind.NODE, key=node.key, uid=node.uid, patch=patch, subresource="status", why=why)


def _evaluated(name: str, world: WorldRead, queue: QueueRead, notes: object, now: float) -> Evaluation:
    node = world.node(name)
    if node is None or not _is_drained(node):
        return Evaluation(instructions=_take_back(name, world) if node is not None else ())
    mark = cordon_mark(node, SOURCE)
    if not is_asked(node) or (mark is not None and not node.unschedulable):
        why = "the drain was called off" if not is_asked(node) else "a person uncordoned it"
        back = (*_take_back(name, world), lift_cordon(node, SOURCE, why, also=(DRAIN,)))
        return Evaluation(instructions=back)
    asked = emptying_of(name, node)
    if not node.unschedulable or CORDONED_BY not in node.annotations:
        return Evaluation(instructions=(_cordon(node, asked, now),))
    found, proposals = empty_node.emptiness(asked, world, now, queue), empty_node.proposals(asked, world, now)
    drained = notes if isinstance(notes, Drained) else Drained(now)
    return Evaluation(
        proposals=tuple(proposals),
        withdrawals=tuple(empty_node.outdated(proposals, queue)),
        facts=tuple(empty_node.workload_facts(name, world, queue, now)),
        instructions=empty_node.ask_members(asked, "", world, now),
        verdict=_verdict(asked, found),
        notes=None if found.left else drained,
        again_at=now + LOOK_S,
    )


def _take_back(name: str, world: WorldRead) -> tuple[HarmlessWrite, ...]:
    """The requests of a drain; those of pods that are to be restarted stay."""
    restarted = {p.key for p in world.pods_on(name) if restarts(p)}
    return tuple(one for one in empty_node.take_back(name, SOURCE, world) if one.key not in restarted)


def _cordon(node: Node, asked: Emptying, now: float) -> HarmlessWrite:
    mark = Mark(
        operator="",
        source=SOURCE,
        reason=Reason.ASKED.value,
        step=StepKind.CORDON.value,
        since=now,
        detail=asked.detail,
        node=node.name,
    )
    return cordon(node, None if CORDONED_BY in node.annotations else mark, asked.detail)


def _verdict(asked: Emptying, found: empty_node.Emptiness) -> Verdict:
    blocked = next((held for held in found.held if held.state is State.BLOCKED), None)
    if blocked is not None:
        return blocked
    if found.left:
        return Verdict(State.MOVING, Reason.ASKED, f"{asked.detail}: {found.words}")
    remedy = f"mooring drain {asked.node} --cancel lets pods come back"
    return Verdict(State.STABLE, Reason.DONE, f"{asked.detail}: it is empty", remedy)


def report(world: WorldRead, queue: QueueRead, notes: Mapping[str, object], now: float) -> list[dict[str, Any]]:
    """`GET /api/v1/drain`: every node that is to be drained."""
    return [_reported(n, world, queue, notes.get(f"node/{n.name}"), now) for n in world.nodes() if is_asked(n)]


def _reported(node: Node, world: WorldRead, queue: QueueRead, notes: object, now: float) -> dict[str, Any]:
    asked = emptying_of(node.name, node)
    left = empty_node.to_leave(node.name, world)
    held = [(pod, empty_node.held_by(pod, asked, world, now, queue)) for pod in left]
    blocked = [
        {"pod": str(pod.key), "reason": str(by.reason), "detail": by.detail, "to_type": by.remedy}
        for pod, by in held
        if by is not None and by.state is State.BLOCKED
    ]
    keeps = {pod.uid for pod, by in held if by is not None}
    doing = [(pod, doing_of(pod, queue.record_of(subject_of(pod)), queue, world)[0]) for pod in left[:_TOLD]]
    moving = len(left) > len(blocked)
    state = "draining" if asked.over or moving else "blocked" if blocked else "drained"
    drained_at = rfc3339(notes.at) if isinstance(notes, Drained) and not left else None
    return {
        "node": node.name,
        "state": state,
        "pods_left": len(left),
        "pods": [str(pod.key) for pod in left[:100]],
        "blocked": blocked,
        "doing": [{"pod": str(pod.key), "what": words} for pod, words in doing if words and pod.uid not in keeps],
        "drained_at": drained_at,
    }


# ── Pods ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def restarts(pod: Pod) -> bool:
    """Whether a restart of this very pod is asked."""
    value = pod.annotations.get(RESTART)
    since = moment(_read(value).since) if value is not None else None
    return since is not None and since >= int(pod.created_at)


def restart_of(pod: Pod | None, node: str) -> Emptying:
    """As if its node were to be emptied, of this pod alone."""
    wanted = pod is not None and restarts(pod)
    by = asked_by(pod.annotations[RESTART]) if pod is not None and wanted else ""
    return Emptying(
        node=node,
        source=SOURCE,
        reason=Reason.ASKED,
        detail=f"restart asked by {by}" if by else "a restart was asked",
        since=float("inf"),
        over="" if wanted else "the restart is no longer asked",
        look_s=LOOK_S,
    )


def restart(pod: Pod, world: WorldRead, now: float) -> Evaluation:
    """A member of TiKV or PD has an annotation of its own for this (docs/handoff.md); one of another system with
    leaders is handoff's."""
    asked = restart_of(pod, pod.node)
    if led_set(pod, world) is not None:
        return Evaluation(verdict=empty_node.held_by(pod, asked, world, now))
    if is_handed_over(pod, world) or empty_node.way_of(pod, world) is empty_node.Way.STAYS:
        words = f"{pod.name} is not restarted by {RESTART}"
        remedy = "annotate members of TiKV and PD with tidb.pingcap.com/restart"
        return Evaluation(verdict=Verdict(State.REFUSED, Reason.INVALID, words, remedy))
    held = empty_node.held_by(pod, asked, world, now)
    return Evaluation(
        proposals=(empty_node.operator_for(pod, asked, world, now),),
        verdict=held or Verdict(State.MOVING, Reason.ASKED, asked.detail),
        again_at=now + LOOK_S,
    )


# ── Both ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def next_step(running: OperatorRecord, world: WorldRead, queue: QueueRead, now: float) -> NextStep:
    how = replacing(running.operator)
    assert how is not None
    namespace, _, name = how.pod.partition("/")
    pod, node = world.pod(Key(namespace, name)), world.node(how.node)
    mine = pod if pod is not None and pod.uid == how.uid else None
    asked = restart_of(mine, how.node) if mine is not None and restarts(mine) else emptying_of(how.node, node)
    return empty_node.next_pod_step(running, asked, world, queue, now)


def marked(pod: Pod) -> Mark | None:
    return request_of(pod, SOURCE) if LEAVING in pod.annotations else None


def read_back(pod: Pod, world: WorldRead, now: float) -> ReadBack:
    def read() -> Iterator[Any]:
        mark = marked(pod)
        if mark is not None and mark.operator:
            yield from empty_node.read_back(pod, emptying_of(pod.node, world.node(pod.node)), world, now)

    return read


def keys_of(operator: Operator) -> Iterator[str]:
    """What an operator of ours was for."""
    how = replacing(operator)
    if how is not None:
        yield f"node/{how.node}"
        yield f"pod/{how.pod}"
