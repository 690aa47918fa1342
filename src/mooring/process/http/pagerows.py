"""The rows of the page: one operator, store, node or rack each, small enough to send twice a second.

Every row is a value built from what the engine and the world know now. Names and words come from objects that anybody
may create, so they are data and never markup; the browser sets them as text.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from mooring.core.engine.engine import Engine
from mooring.core.engine.why.condition import of_node, rack_of
from mooring.core.engine.why.findings import state_of
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Node, Pod
from mooring.core.model.decision import Running, Verdict
from mooring.core.model.machine import Machine, MachineState
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import Store, TidbCluster
from mooring.core.queue.why import Why
from mooring.core.world.read import WorldRead

#: Reasons of a node that somebody should look at; the others say that it leaves.
TROUBLE: Final = frozenset({Reason.NODE_NOT_READY, Reason.MISCONFIGURED})
#: Capability → how `why` spells the keys that it looks at.
SUBJECTS: Final[Mapping[str, str]] = {"handoff": "cluster", "fleet": "machine"}
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
    total: int
    ok: int
    leaving: int = 0
    trouble: int = 0
    spare: int = 0
    #: One sign a machine, only while there is news: · fine, ~ on its way, ▲ trouble, – spare.
    glyphs: str = ""


# ── The queue ─────────────────────────────────────────────────────────────────────────────────────────────────────


def running_row(running: Running) -> QueueRow:
    operator = running.operator
    steps = operator.steps
    kind = steps[running.step].kind if running.step < len(steps) else "end"
    return QueueRow(
        id=operator.id,
        op=operator.id,
        state=state_of(running),
        source=operator.source,
        what=what(operator),
        subject=f"operator/{operator.id}",
        step=f"{min(running.step + 1, len(steps))}/{len(steps)} {kind}" if steps else "",
        progress=running.progress,
        waiting_on=running.waiting_on.detail if running.waiting_on is not None else "",
        since=running.promoted_at,
        deadline=operator.deadline,
        detail=operator.detail,
    )


def waiting_row(operator: Operator, why: Why | None, since: float | None) -> QueueRow:
    target, missing = "", ""
    by: tuple[str, ...] = ()
    if why is not None and why.target:
        limit = "" if why.limit is None else f"/{why.limit}"
        target = f"{why.target} {why.used + why.reserved}{limit}"
        missing = f"{why.missing} of {why.needs}" if why.missing < why.needs else str(why.missing)
        by = tuple(f"op {i}" for i in why.blocked_by[:3]) or tuple(f.text or f.subject for f in why.facts[:1])
    return QueueRow(
        id=operator.id,
        op=operator.id,
        state=State.WAITING,
        source=operator.source,
        what=what(operator),
        subject=f"operator/{operator.id}",
        waiting_on=target or "its turn",
        missing=missing,
        by=by,
        since=since,
        deadline=operator.deadline,
        detail=operator.detail,
    )


def verdict_row(capability: str, key: str, verdict: Verdict) -> QueueRow:
    """Something that a person must act on, though nothing of ours runs there."""
    return QueueRow(
        id=f"{capability}:{key}",
        state=str(verdict.state),
        source=capability,
        what=key,
        subject=verdict.subject or f"{SUBJECTS.get(capability, 'workload')}/{key}",
        waiting_on=verdict.detail,
        detail=verdict.remedy,
    )


def what(operator: Operator) -> str:
    subject = operator.args.get("pod", operator.subject.partition("/")[2])
    return f"{operator.kind.replace('-', ' ')} {subject}"


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
    target = f"store/{tc.key}/{store.id}"
    node = world.node(pod.node) if pod is not None and pod.node else None
    held = [(f"op {op}", amount, "op") for op, amount in queue.holders(target)]
    held += [(fact.text or fact.subject, fact.amount, "fact") for fact in queue.facts(target)]
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


# ── Nodes and racks ───────────────────────────────────────────────────────────────────────────────────────────────


def news_of(node: Node, now: float | None = None) -> tuple[str, str, float | None, float | None]:
    """State, words, since and until of a node, as `why` says them; ("ok", "", None, None): nothing to say."""
    found = of_node(node, now)
    if found is None or found.state is State.STABLE:
        return "ok", "" if found is None else found.detail, None, None
    state = "trouble" if found.reason in TROUBLE else "leaving"
    return state, found.detail, found.since, found.until


def node_row(world: WorldRead, node: Node) -> NodeRow:
    state, words, since, until = news_of(node)
    cls = str(world.node_class(node.name))
    counts = Counter(_workload_name(world, pod) for pod in world.pods_on(node.name) if not pod.terminal)
    most = counts.most_common(MOST_PODS)
    return NodeRow(
        id=node.name,
        cls="leaving" if state == "leaving" else cls,
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
    return "leaving" if state == "leaving" else str(node_class)


def rack_rows(states: Iterable[tuple[str, str]]) -> list[RackRow]:
    """From (rack, state of one machine): racks with news first, then by number."""
    racks: dict[str, list[str]] = {}
    for rack, state in states:
        racks.setdefault(rack or "–", []).append(state)
    rows = []
    for rack, members in racks.items():
        counts = Counter(members)
        quiet = counts["ok"] + counts["spare"] == len(members)
        rows.append(
            RackRow(
                id=rack,
                total=len(members),
                ok=counts["ok"],
                leaving=counts["leaving"],
                trouble=counts["trouble"],
                spare=counts["spare"],
                glyphs="" if quiet else "".join(GLYPHS[m] for m in members[:MOST_GLYPHS]),
            )
        )
    return sorted(rows, key=lambda r: (not r.trouble, not r.leaving, not r.id.isdigit(), r.id.zfill(8)))


GLYPHS: Final[Mapping[str, str]] = {"ok": "·", "leaving": "~", "trouble": "▲", "spare": "–"}


def machine_states(machines: Iterable[Machine], nodes: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """(rack, state) of each machine that is not retired; `nodes`: address → state of the node there."""
    for machine in machines:
        match machine.state:
            case MachineState.RETIRED:
                continue
            case MachineState.HEALTHY | MachineState.UNINITIALIZED:
                state = nodes.get(machine.address, "spare")
            case MachineState.RETIRING | MachineState.UPDATING:
                state = "leaving"
            case _:
                state = "trouble"
        yield str(machine.rack), state
