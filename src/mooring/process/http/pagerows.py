"""The rows of the page: one operator, store, node or rack each, small enough to send twice a second.

Every row is a value built from what the engine and the world know now. Names and texts come from objects that any user
may create, so they are data and never markup; the browser sets them as text.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from mooring.capabilities.registry import descriptor, names
from mooring.core.engine.engine import Engine
from mooring.core.engine.standing import state_of
from mooring.core.engine.why.condition import Departures, of_node, rack_of
from mooring.core.model import subjects
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Key, Node, Pod, Workload
from mooring.core.model.decision import OperatorRecord, Verdict
from mooring.core.model.leaders import LeaderMember
from mooring.core.model.machine import Machine, MachineState
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import Store, TidbCluster
from mooring.core.queue.why import Why
from mooring.core.world.read import WorldRead

DIGITS: Final = re.compile(r"\d+")
MOST_PODS: Final = 8
MOST_GLYPHS: Final = 120


class QueueRow(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    id: str
    state: str
    source: str
    what: str
    subject: str
    op: str = ""
    step: str = ""
    progress: str = ""
    waiting_on: str = ""
    missing: str = ""
    by: tuple[str, ...] = ()
    since: float | None = None
    deadline: float | None = None
    detail: str = ""
    #: The object it is about, as people call it.
    about: str = ""
    #: What a person would type.
    remedy: str = ""


class StoreRow(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    id: str
    cluster: str
    pod: str
    node: str = ""
    rack: str = ""
    state: str = "Up"
    leaders: int = 0
    used: int = 0
    limit: int | None = None
    #: Who uses how much: ("op 41", 10, "op" | "fact").
    used_by: tuple[tuple[str, int, str], ...] = ()
    reserved: int = 0
    waiting: tuple[str, ...] = ()
    evicting: bool = False
    #: What `why` is asked about, where it is no store.
    subject: str = ""


class NodeRow(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    id: str
    cls: str
    state: str = "ok"
    rack: str = ""
    #: Workload → pods, the largest first.
    pods: tuple[tuple[str, int], ...] = ()
    more: int = 0
    news: str = ""
    until: float | None = None
    since: float | None = None


class RackRow(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    id: str
    #: Nodes; spare machines are counted apart.
    total: int
    ok: int
    interrupted: int = 0
    silent: int = 0
    leaving: int = 0
    cordoned: int = 0
    spare: int = 0
    #: One sign a node, only while there is news (`GLYPHS`).
    glyphs: str = ""


@lru_cache(maxsize=20_000)
def by_number(name: str) -> str:
    """A key that puts n2 before n10."""
    return DIGITS.sub(lambda digits: digits[0].zfill(6), name)


# ── The queue ─────────────────────────────────────────────────────────────────────────────────────────────────────


def running_row(running: OperatorRecord) -> QueueRow:
    operator = running.operator
    steps = operator.steps
    kind = steps[running.step].kind if running.step < len(steps) else "end"
    waiting_on = running.waiting_on.detail if running.waiting_on is not None else ""
    # The row names the pod already.
    waiting_on = waiting_on.replace(f"the replacement of {operator.payload.pod.rpartition('/')[2]}", "its replacement")
    return QueueRow(
        id=operator.id,
        op=operator.id,
        state=state_of(running),
        source=operator.source,
        what=what(operator),
        subject=subjects.operator(operator.id),
        step=f"{min(running.step + 1, len(steps))}/{len(steps)} {kind}" if steps else "",
        progress="" if _same(running.progress, waiting_on) else running.progress,
        waiting_on=waiting_on,
        since=running.promoted_at,
        deadline=operator.deadline,
        detail=operator.detail,
        about=about(operator),
        remedy=running.waiting_on.remedy if running.waiting_on is not None else "",
    )


def _same(progress: str, waiting_on: str) -> bool:
    """One of the two says it: a row does not repeat itself."""
    return bool(progress and waiting_on) and (progress in waiting_on or waiting_on in progress)


def waiting_row(operator: Operator, why: Why | None, since: float | None) -> QueueRow:
    target, missing = "", ""
    by: tuple[str, ...] = ()
    if why is not None and why.target:
        limit = "" if why.limit is None else f"/{why.limit}"
        reserved = f"+{why.reserved}" if why.reserved else ""
        target = f"{why.target} {why.used}{reserved}{limit}"
        missing = f"{why.missing} of {why.needs}" if why.missing < why.needs else str(why.missing)
        by = tuple(f"op {i}" for i in why.blocked_by[:3]) or tuple(f.detail or f.subject for f in why.facts[:1])
    return QueueRow(
        id=operator.id,
        op=operator.id,
        state=State.WAITING,
        source=operator.source,
        what=what(operator),
        about=about(operator),
        subject=subjects.operator(operator.id),
        waiting_on=target or "its turn",
        missing=missing,
        by=by,
        since=since,
        deadline=operator.deadline,
        detail=operator.detail,
    )


def _key_kind(capability: str) -> str:
    """How `why` spells the keys of a capability."""
    return (descriptor(capability).key_kind if capability in names() else "") or "workload"


def verdict_row(capability: str, key: str, verdict: Verdict) -> QueueRow:
    """Something that a person must act on, though nothing of ours runs there."""
    return QueueRow(
        id=f"{capability}:{key}",
        state=str(verdict.state),
        source=capability,
        what=key,
        subject=verdict.subject or f"{_key_kind(capability)}/{key}",
        waiting_on=verdict.detail,
        detail=verdict.remedy,
        about=(verdict.subject or key).partition("/")[2] or key,
        remedy=verdict.remedy,
    )


def what(operator: Operator) -> str:
    return f"{operator.kind.replace('-', ' ')} {about(operator)}"


def about(operator: Operator) -> str:
    """The pod that it is about, or its subject without the kind."""
    return operator.payload.pod or subjects.parse(operator.subject).rest


# ── Stores ────────────────────────────────────────────────────────────────────────────────────────────────────────


def store_row(
    engine: Engine,
    tc: TidbCluster,
    store: Store,
    pod: Pod | None,
    waiting: Mapping[str, list[str]],
    reserved: Mapping[str, int],
) -> StoreRow:
    world, queue = engine.world, engine.queue
    target = subjects.store(tc.key, store.id)
    node = world.node(pod.node) if pod is not None and pod.node else None
    held = [(f"op {op}", amount, "op") for op, amount in queue.holders(target)]
    held += [(fact.detail or fact.subject, fact.amount, "fact") for fact in queue.facts(target)]
    view = world.pd(tc.key)
    return StoreRow(
        id=f"{tc.key}/{store.id}",
        cluster=str(tc.key),
        pod=store.pod_name,
        node=node.name if node is not None else "",
        rack=rack_of(node) if node is not None else "",
        state=store.state,
        leaders=store.leader_count,
        used=queue.used(target),
        limit=queue.limit(target),
        used_by=tuple(held),
        reserved=reserved.get(target, 0),
        waiting=tuple(waiting.get(target, ())),
        evicting=bool(view is not None and view.evicting is not None and store.id in view.evicting),
    )


def member_row(engine: Engine, workload: Workload, member: LeaderMember, lost: str) -> StoreRow:
    """A member of another system with leaders, among the stores: one of them may be away at a time."""
    world, queue = engine.world, engine.queue
    target, subject = f"leaders/{workload.key}", subjects.pod(f"{workload.namespace}/{member.pod}")
    pod = world.pod(Key(workload.namespace, member.pod))
    node, holder = world.node(pod.node) if pod is not None and pod.node else None, queue.holder(subject)
    held = [
        (f"op {op}", amount, "op") for op, amount in queue.holders(target) if holder is not None and op == holder.id
    ]
    held += [(fact.detail, fact.amount, "fact") for fact in queue.facts(target) if fact.subject == subject]
    return StoreRow(
        id=f"{workload.key}/{member.pod}",
        cluster=str(workload.key),
        pod=member.pod,
        node=node.name if node is not None else "",
        rack=rack_of(node) if node is not None else "",
        state="unanswered" if lost else "Up" if member.is_well else member.detail or "not in sync",
        leaders=member.leaders,
        used=sum(amount for _, amount, _ in held),
        limit=queue.limit(target),
        used_by=tuple(held),
        waiting=(holder.id,) if holder is not None and not queue.is_running(holder.id) else (),
        subject=subject,
    )


# ── Nodes and racks ───────────────────────────────────────────────────────────────────────────────────────────────


#: Reason of a node's condition → how the map, the tables and the racks show it; others need no sign.
STATES: Final[Mapping[Reason, str]] = {
    Reason.NODE_NOT_READY: "silent",
    Reason.NOTICE: "interrupted",
    Reason.EXPIRED: "interrupted",
    Reason.MISCONFIGURED: "interrupted",
    Reason.RETIRING: "leaving",
    Reason.LEAVING: "leaving",
    Reason.CORDONED: "cordoned",
    Reason.RESERVED: "reserved",
}


def news_of(
    node: Node, departures: Departures, now: float | None = None
) -> tuple[str, str, float | None, float | None]:
    """State, words, since and until of a node, as `why` says them; ("ok", "", None, None): nothing to say."""
    found = of_node(node, departures, now)
    if found is None or found.state is State.STABLE:
        return "ok", "" if found is None else found.detail, None, None
    return STATES.get(found.reason, "ok"), found.detail, found.since, found.until


def node_row(engine: Engine, node: Node) -> NodeRow:
    world = engine.world
    state, words, since, until = news_of(node, engine.departures)
    counts = Counter(_workload_name(world, pod) for pod in world.pods_on(node.name) if not pod.terminal)
    most = counts.most_common(MOST_PODS)
    return NodeRow(
        id=node.name,
        cls=class_word(world.node_class(node.name), state),
        state=state,
        rack=rack_of(node),
        pods=tuple(most),
        more=sum(counts.values()) - sum(n for _, n in most),
        news=words,
        since=since,
        until=until,
    )


def _workload_name(world: WorldRead, pod: Pod) -> str:
    workload = world.workload_of(pod)
    if workload is not None:
        return workload.name
    if pod.owner is not None:
        return pod.owner.name
    # Detached while its replacement comes: still known by the name its ReplicaSet gave it.
    return pod.generate_name.rstrip("-").rpartition("-")[0] or pod.name


def class_word(node_class: NodeClass, state: str) -> str:
    """A node that leaves is counted apart; one that is interrupted or cordoned is still of its class."""
    return "leaving" if state == "leaving" else str(node_class)


def rack_rows(states: Iterable[tuple[str, str]]) -> list[RackRow]:
    """From (rack, state of one node or spare machine): racks with news first, then by number."""
    racks: dict[str, list[str]] = {}
    for rack, state in states:
        racks.setdefault(rack or "–", []).append(state)
    rows = []
    for rack, members in racks.items():
        counts = Counter(members)
        quiet = counts["ok"] + counts["spare"] + counts["reserved"] == len(members)
        rows.append(
            RackRow(
                id=rack,
                total=len(members) - counts["spare"],
                ok=counts["ok"] + counts["reserved"],
                interrupted=counts["interrupted"],
                silent=counts["silent"],
                leaving=counts["leaving"],
                cordoned=counts["cordoned"],
                spare=counts["spare"],
                glyphs="" if quiet else "".join(GLYPHS[m] for m in members[:MOST_GLYPHS]),
            )
        )
    return sorted(
        rows, key=lambda r: (not r.silent, not r.interrupted, not r.glyphs, not r.id.isdigit(), r.id.zfill(8))
    )


GLYPHS: Final[Mapping[str, str]] = {
    "ok": "·",
    "reserved": "□",
    "cordoned": "=",
    "leaving": "~",
    "interrupted": "▲",
    "silent": "!",
    "spare": "–",
}


def machine_states(machines: Iterable[Machine], nodes: Mapping[str, tuple[str, str]]) -> Iterable[tuple[str, str]]:
    """(rack, state) of each node, and of each machine that is none yet; `nodes`: address → rack and state there."""
    states = dict(nodes)
    for machine in machines:
        match machine.state:
            case MachineState.RETIRED:
                continue
            case MachineState.HEALTHY | MachineState.UNINITIALIZED:
                if machine.address not in states:
                    states[machine.address] = (str(machine.rack), "spare")
            case MachineState.RETIRING | MachineState.UPDATING:
                rack, state = states.get(machine.address, (str(machine.rack), "ok"))
                states[machine.address] = (rack, "leaving" if state == "ok" else state)
            case _:
                states[machine.address] = (states.get(machine.address, (str(machine.rack), ""))[0], "silent")
    return states.values()
