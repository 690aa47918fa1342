"""`explain(engine, subject)`: the findings in order, the first as the answer, and every line that belongs under it."""

from collections.abc import Iterator

from mooring.core.engine.engine import Engine
from mooring.core.engine.history import HistoryEntry
from mooring.core.engine.why import condition, workload_condition
from mooring.core.engine.why.condition import Condition
from mooring.core.engine.why.dry import Dry, run_dry
from mooring.core.engine.why.findings import (
    BY_ITSELF,
    CALM,
    CALMEST,
    ON_THE_WAY,
    Answer,
    of_condition,
    of_dry,
    of_operators,
)
from mooring.core.engine.why.lines import dry_lines, lines_of
from mooring.core.engine.why.subject import Subject, find, history_of, operators_on, pods_on
from mooring.core.engine.why.words import Explanation, in_order, short, span
from mooring.core.model.cluster import Node, Pod
from mooring.core.model.decision import Line
from mooring.core.model.marks import CORDONED_BY, HANDOFF, LEAVING, RETIRING, Mark, read_mark, read_marks
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import TidbCluster
from mooring.core.model.times import time_of_day
from mooring.core.world.read import WorldRead

MOST_ALSO = 4
#: Verbs of an operator's history that say how it ended.
ENDED = frozenset({"finished", "failed", "canceled", "timeout", "ended", "rejected"})


def explain(
    engine: Engine, name: str, *, now: float | None = None, leader: str = "", data_age_s: float | None = None
) -> Explanation | None:
    """None: the subject was not found; `unknown` names the nearest that exist."""
    now = engine.now if now is None else now
    subject = find(engine.world, name)
    operators = operators_on(engine, subject)
    history = history_of(engine, subject)
    if not (operators or history or subject.exists):
        return None
    dry = tuple(run_dry(engine, subject, now))
    by_itself = condition_of(engine, subject, now)
    findings = sorted(_findings(engine, subject, operators, dry, now), key=lambda f: f.rank)
    if by_itself is not None and by_itself.state is not State.STABLE:
        findings = sorted((*findings, of_condition(by_itself)), key=lambda f: f.rank)
    calm = not findings or findings[0].rank >= CALMEST
    first = _calm(engine, subject, by_itself, history) if calm else findings[0]
    also = _also(first, findings, subject)
    lines = [*lines_of(engine, subject, first, operators, now), *dry_lines(engine, subject, dry, first)]
    lines += [Line("also", text) for text in also[:MOST_ALSO]]
    if len(also) > MOST_ALSO:
        lines.append(Line("also", f"{len(also) - MOST_ALSO} more; `mooring queue` lists them all"))
    pd_at = engine.world.pd_observed_at(subject.cluster.key) if subject.cluster is not None else None
    return Explanation(
        subject=subject.name,
        state=first.state,
        reason=first.reason,
        answer=first.says(short(subject.name)),
        lines=in_order(lines),
        operators=tuple(o.id for o in operators),
        waiting_on=first.waiting_on,
        history=history,
        as_of=now,
        leading=engine.leading,
        leader=leader,
        data_age_s=data_age_s,
        pd_age_s=None if pd_at is None else max(0.0, now - pd_at),
    )


def condition_of(engine: Engine, subject: Subject, now: float) -> Condition | None:
    """What the object is like by itself; the page's rows ask the same functions."""
    world = engine.world
    if subject.kind == "pod" and subject.pod is not None:
        return workload_condition.of_pod(world, subject.pod, engine.departures, now)
    if subject.kind == "machine" and subject.machine is not None:
        return condition.of_machine(subject.machine, subject.node, engine.departures, now)
    if subject.kind == "node" and subject.node is not None:
        return condition.of_node(subject.node, engine.departures, now)
    if subject.workload is not None:
        return workload_condition.of_workload(world, subject.workload)
    if subject.store is not None:
        return workload_condition.of_store(subject.cluster, subject.store)
    if subject.kind == "cluster" and subject.cluster is not None:
        return workload_condition.of_cluster(world, subject.cluster)
    return condition.of_rack(subject.nodes, engine.departures, now) if subject.nodes else None


def _also(first: Answer, findings: list[Answer], subject: Subject) -> list[str]:
    """The other findings, each reason of an operator once; what is simply on its way stands under `running`."""
    said = {(first.reason, first.detail)}
    also: list[str] = []
    for finding in findings:
        # A replacement that is not Ready yet is what the operator is at work on.
        own = finding.rank == BY_ITSELF and finding.reason is Reason.POD_NOT_READY and first.operator is not None
        if not own and finding.rank not in {ON_THE_WAY, CALMEST} and (finding.reason, finding.detail) not in said:
            said.add((finding.reason, finding.detail))
            also.append(finding.says(short(subject.name)))
    return also


# ── Findings ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _findings(
    engine: Engine, subject: Subject, operators: list[Operator], dry: tuple[Dry, ...], now: float
) -> Iterator[Answer]:
    if engine.deciding:
        # The newest first: it says most about where the subject stands.
        yield from of_operators(engine, subject, operators[::-1] if subject.kind == "pod" else operators, now)
        for one in dry:
            yield from of_dry(engine, subject, one)
        return
    # Not deciding: the queue here is empty. What has begun is written on the objects as marks.
    yield from of_marks(engine.world, subject, now)
    for one in dry:
        if not one.on:
            yield from of_dry(engine, subject, one)
    if not engine.synced:
        says = "is waiting: this replica has not seen the whole cluster yet; ends when it has synced."
        yield Answer(state=State.WAITING, reason=Reason.NOT_SYNCED, head=says, rank=8)


def _calm(engine: Engine, subject: Subject, by_itself: Condition | None, history: tuple[HistoryEntry, ...]) -> Answer:
    """No pending changes."""
    if subject.kind == "operator":
        return _ended(history)
    if not subject.exists:
        last = history[-1]
        words = f"gone; the last of it at {time_of_day(last.at)}: {last.verb}{f', {last.text}' if last.text else ''}"
        says = ("is not there any more (stable): ", words, ".")
        return Answer(state=State.STABLE, reason=Reason.DONE, head=says[0], detail=says[1], tail=says[2], rank=CALMEST)
    if by_itself is not None:
        return of_condition(by_itself)
    where = f" on {subject.pod.node}" if subject.pod is not None else ""
    tail = CALM if engine.deciding else "Only the leader knows what waits."
    says_ = f"is stable{where}; no pending changes. {tail}"
    return Answer(state=State.STABLE, reason=Reason.DONE, head=says_, rank=CALMEST)


def _ended(history: tuple[HistoryEntry, ...]) -> Answer:
    """An operator that is neither waiting nor running: how it ended."""
    last = next((e for e in reversed(history) if e.verb in ENDED), history[-1])
    how = last.verb if last.reason in {"", Reason.DONE, last.verb} else f"{last.verb}, {last.reason}"
    reason = Reason(last.reason) if last.reason in set(Reason) else Reason.DONE
    head = f"ended at {time_of_day(last.at)} (stable; {how}){': ' if last.text else ''}"
    return Answer(state=State.STABLE, reason=reason, head=head, detail=last.text, tail=".", rank=CALMEST)


# ── What has begun, as the marks say: for a replica that does not decide. Nothing is recovered, only read ──────────


def of_marks(world: WorldRead, subject: Subject, now: float) -> Iterator[Answer]:
    seen: set[tuple[str, str]] = set()
    for about, mark in _marks(world, subject):
        if (mark.operator, about) in seen:
            continue
        seen.add((mark.operator, about))
        whose = "" if about == short(subject.name) else f" ({about})"
        who = f"op {mark.operator}" if mark.operator else "Mooring"
        detail = f"{who} of {mark.source}, {mark.step} since {span(now - mark.since)}, as its mark says"
        head, tail = f"is moving{whose}: ", "; ask the leader."
        yield Answer(state=State.MOVING, reason=Reason.RESUMED, head=head, detail=detail, tail=tail)


def _marks(world: WorldRead, subject: Subject) -> Iterator[tuple[str, Mark]]:
    if subject.kind == "operator":
        yield from ((about, mark) for about, mark in _every(world) if mark.operator == subject.rest)
        return
    if subject.kind in {"cluster", "store"} and subject.cluster is not None:
        for name, mark in _of_cluster(subject.cluster):
            if subject.store is None or subject.store.pod_name == name:
                yield name, mark
        return
    for node in (*subject.nodes, *((subject.node,) if subject.node is not None and subject.kind != "pod" else ())):
        yield from _of_node(node)
    for pod in pods_on(world, subject):
        yield from _of_pod(world, pod)


def _every(world: WorldRead) -> Iterator[tuple[str, Mark]]:
    for cluster in world.tidb_clusters():
        yield from _of_cluster(cluster)
    for node in world.nodes():
        yield from _of_node(node)
    for pod in world.pods():
        if LEAVING in pod.annotations:
            yield from _of_pod(world, pod)


def _of_cluster(cluster: TidbCluster) -> Iterator[tuple[str, Mark]]:
    yield from sorted((read_marks(cluster.annotations.get(HANDOFF, "")) or {}).items())


def _of_node(node: Node) -> Iterator[tuple[str, Mark]]:
    for key in (RETIRING, CORDONED_BY):
        mark = read_mark(node.annotations.get(key, ""))
        if mark is not None:
            yield node.name, mark


def _of_pod(world: WorldRead, pod: Pod) -> Iterator[tuple[str, Mark]]:
    mark = read_mark(pod.annotations.get(LEAVING, ""))
    if mark is not None:
        yield pod.name, mark
    cluster = world.tidb_cluster_of(pod)
    if cluster is not None:
        yield from ((name, mark) for name, mark in _of_cluster(cluster) if name == pod.name)
