"""The lines under the answer of `why`: who asked, the queue, the sum, who is ahead, where the object is now."""

from collections.abc import Iterator

from mooring.core.engine.capability import Explains
from mooring.core.engine.engine import Engine
from mooring.core.engine.why.commands import commands, typed
from mooring.core.engine.why.condition import rack_of, spelled
from mooring.core.engine.why.dry import Dry
from mooring.core.engine.why.findings import Answer
from mooring.core.engine.why.subject import Subject
from mooring.core.engine.why.words import doing, plural, span, standstill_s, step, then
from mooring.core.model import subjects
from mooring.core.model.cluster import Node, Pod
from mooring.core.model.decision import Line, OperatorRecord
from mooring.core.model.marks import CORDONED_BY, RETIRING, read_mark
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason
from mooring.core.model.times import time_of_day
from mooring.core.queue import targets
from mooring.core.queue.why import Why
from mooring.core.world.members import shown_target

MOST_AHEAD = 3


def lines_of(engine: Engine, subject: Subject, first: Answer, operators: list[Operator], now: float) -> Iterator[Line]:
    if first.reason is Reason.FEATURE_OFF:
        yield Line("off", f"{', '.join(sorted(set(engine.capabilities) - engine.on))}; on: {_on(engine)}")
    operator = first.operator
    spoken = list(_spoken(engine, subject, first, now))
    if operator is not None and not any(line.label == "asked" for line in spoken):
        yield Line("asked", operator.detail or str(operator.reason))
    if operator is not None and operator.id in engine.waiting:
        yield from _queued(engine, operator, first.waiting_on, now)
    ahead = set(first.waiting_on.blocked_by) if first.waiting_on is not None else set()
    for one in operators:
        running = engine.running.get(one.id)
        if running is not None and one.id not in ahead:
            yield Line("running", on_its_way(engine, running, now))
    for line in places(engine, subject, now):
        # The target that it waits for stands there already, with its sum.
        if (
            first.waiting_on is None
            or line.label != "target"
            or not line.text.startswith(f"{first.waiting_on.target} ")
        ):
            yield line
    yield from spoken
    if subject.kind == "pod" and subject.pod is not None and not any(line.label == "why there" for line in spoken):
        yield Line("why there", "kube-scheduler chose it; nothing of Mooring's keeps it there")
    yield from commands(engine, subject, first, spoken)
    if first.waiting_on is not None and first.waiting_on.blocked_by:
        yield typed("look ahead", f"mooring why operator/{first.waiting_on.blocked_by[0]}")
    elif operator is not None and subject.kind != "operator" and engine.deciding:
        yield typed("look ahead", f"mooring why operator/{operator.id}")


def _spoken(engine: Engine, subject: Subject, first: Answer, now: float) -> Iterator[Line]:
    """The capabilities' own lines. One that is off keeps nothing anywhere: it may say what is, not what it would do."""
    for name in sorted(engine.capabilities):
        capability = engine.capabilities[name]
        if not isinstance(capability, Explains):
            continue
        wanted = name in engine.on or first.reason is Reason.FEATURE_OFF
        for line in capability.explain(subject.name, engine.world, engine.queue, now):
            if line.label in {"asked", "now"} or (wanted and (name in engine.on or line.label == "to change")):
                yield line


def _queued(engine: Engine, operator: Operator, waiting_on: Why | None, now: float) -> Iterator[Line]:
    order = engine.queue.waiting
    place = order.index(operator.id) if operator.id in order else 0
    queued_at = next((e.at for e in engine.history.of(subjects.operator(operator.id)) if e.verb == "queued"), None)
    waited = f"; waiting {span(now - queued_at)}" if queued_at is not None else ""
    where = "first in line" if place == 0 else f"{place} ahead of it"
    parked = "; parked: it keeps its place and delays no other" if waiting_on is not None and waiting_on.parked else ""
    deadline = f"; deadline {time_of_day(operator.deadline)}" if operator.deadline is not None else ""
    yield Line("queued", f"op {operator.id}, {where}{waited}{parked}{deadline}")
    if waiting_on is None or not waiting_on.target:
        return
    yield Line("target", f"{waiting_on.target}  {_meaning(engine, waiting_on.target)}".rstrip())
    yield Line("target", waiting_on.sum())
    for target, cost in sorted(operator.cost.items()):
        limit = engine.queue.limit(target)
        if targets.is_share(target):  # named only where it is what is missing
            continue
        shown = shown_target(target, engine.world)
        if shown != waiting_on.target and (limit is None or engine.queue.used(target) + cost <= limit):
            free = "no limit" if limit is None else f"free {limit - engine.queue.used(target)}"
            yield Line("would fit", f"{shown} needs {cost}, {free}")
    for blocker in waiting_on.blocked_by[:MOST_AHEAD]:
        running = engine.running.get(blocker)
        if running is not None:
            yield Line("ahead", on_its_way(engine, running, now))
            yield Line("ahead", _stalled(running, now))
        else:
            other = engine.queue.get(blocker)
            yield Line(
                "ahead",
                f"op {blocker} {doing(engine.described, other)}, waits too" if other is not None else f"op {blocker}",
            )
    rest = len(waiting_on.blocked_by) + waiting_on.more - MOST_AHEAD
    if rest > 0:
        yield Line("ahead", f"and {rest} more")


def _meaning(engine: Engine, target: str) -> str:
    if targets.is_share(target):
        return f"what one namespace may have of {targets.shared(target)}"
    kind = target.partition("/")[0]
    return "what one store takes at once" if kind == "store" else engine.described.limits.get(kind, (None, ""))[1]


def on_its_way(engine: Engine, running: OperatorRecord, now: float) -> str:
    operator = running.operator
    since = f" for {span(now - running.step_since)}"
    so_far = f"; {running.progress}" if running.progress else ""
    due = f"; {span(operator.deadline - now)} left until its deadline" if operator.deadline is not None else ""
    return f"op {operator.id} {doing(engine.described, operator)}, {step(running)}{since}{so_far}{then(running)}{due}"


def _stalled(running: OperatorRecord, now: float) -> str:
    still = standstill_s(running, now)
    if still:
        on = running.waiting_on.detail if running.waiting_on is not None else running.progress or "nothing seen"
        return f"stalled for {span(still)}: {on}"
    return "not stalled" + (f"; {running.waiting_on.detail}" if running.waiting_on is not None else "")


def dry_lines(engine: Engine, subject: Subject, dry: tuple[Dry, ...], first: Answer) -> Iterator[Line]:
    """What the capabilities would do now. Said when nothing happens, and of what is switched off."""
    if not engine.deciding:
        who = "it does not lead" if not engine.leading else "what has begun is still being read back"
        yield Line("dry run", f"this replica proposes nothing: {who}")
        return
    if first.operator is not None or subject.kind == "operator":
        return
    for one in dry:
        what = ", ".join(sorted({o.kind for o in one.proposals}))
        because = "; ".join(one.because)
        if not one.on:
            if what or one.verdicts:
                says = f"would propose {what}" if what else f"says: {because}"
                yield Line("dry run", f"{one.capability} is off; asked now, it {says}")
        elif what:
            yield Line("dry run", f"{one.capability} would propose {what}")
        else:
            yield Line("dry run", f"{one.capability}: no change{f' now: {because}' if because else ' needed'}")
    if not any(one.on for one in dry):
        yield Line("dry run", f"nothing that is switched on ({_on(engine)}) has anything to decide about this")


def _on(engine: Engine) -> str:
    return ", ".join(sorted(engine.on)) or "none"


def places(engine: Engine, subject: Subject, now: float) -> Iterator[Line]:
    match subject.kind:
        case "pod" if subject.pod is not None:
            yield Line("now", _pod(engine, subject.pod, subject.node, now))
            yield from _keeps(engine, subject.pod)
        case "node" if subject.node is not None:
            yield from _node(engine, subject.node, now)
        case "workload" if subject.workload is not None:
            yield from _workload(engine, subject)
        case "machine" if subject.machine is not None:
            machine = subject.machine
            yield Line(
                "now", f"{machine.state} · rack {machine.rack} · role {machine.role or 'none'} · {machine.address}"
            )
            if subject.node is None:
                yield Line("now", "no node of the cluster")
            else:
                yield from _node(engine, subject.node, now)
        case "rack" if subject.nodes:
            ready = sum(n.ready == "True" for n in subject.nodes)
            pods = sum(1 for n in subject.nodes for p in engine.world.pods_on(n.name) if not p.terminal)
            yield Line("now", f"{ready} of {plural(len(subject.nodes), 'node')} Ready · {plural(pods, 'pod')}")
        case "store" if subject.store is not None:
            target = f"store/{subject.rest}"
            held = ", ".join(f"op {i}: {cost}" for i, cost in engine.queue.holders(target))
            used = f"{engine.queue.used(target)}{f' ({held})' if held else ''}"
            yield Line("target", f"{target}  used {used} · limit {engine.queue.limit(target)}")


def _pod(engine: Engine, pod: Pod, node: Node | None, now: float) -> str:
    if not pod.node:
        where = "no node yet" if pod.schedulable else "no node: unschedulable"
    else:
        where = f"node {pod.node}" if node is None else _where(engine, node)
    if pod.terminating:
        state = "leaving"
    elif pod.ready:
        state = f"Ready for {span(now - pod.ready_since)}" if pod.ready_since is not None else "Ready"
    else:
        state = f"not Ready ({pod.phase})"
    return f"{where} · {state}"


def _where(engine: Engine, node: Node) -> str:
    rack = rack_of(node)
    parts = [f"node {node.name}", f"rack {rack}" if rack else "", str(engine.world.node_class(node.name))]
    return ", ".join(part for part in parts if part and part != "unknown")


def _keeps(engine: Engine, pod: Pod) -> Iterator[Line]:
    for pdb in engine.world.pdbs_of(pod):
        yield Line(
            "budget",
            f"pdb/{pdb.name} allows {pdb.disruptions_allowed} (healthy {pdb.current_healthy} of {pdb.desired_healthy})",
        )


def _node(engine: Engine, node: Node, now: float) -> Iterator[Line]:
    pods = [p for p in engine.world.pods_on(node.name) if not p.terminal]
    ready = "Ready" if node.ready == "True" else f"not Ready ({node.ready_reason or node.ready})"
    since = f" for {span(now - node.ready_since)}" if node.ready_since is not None else ""
    yield Line("now", f"{_where(engine, node)} · {ready}{since} · {plural(len(pods), 'pod')}")
    if node.taints:
        yield Line("now", f"tainted {', '.join(spelled(t) for t in node.taints)}")
    if node.unschedulable:
        found = (read_mark(node.annotations.get(key, "")) for key in (CORDONED_BY, RETIRING))
        mark = next((m for m in found if m is not None), None)
        by = "not by us" if mark is None else f"by {f'op {mark.operator}' if mark.operator else 'us'} ({mark.detail})"
        yield Line("now", f"cordoned {by}")
    target = subjects.node(node.name)
    limit = engine.queue.limit(target)
    yield Line("target", f"{target}  used {engine.queue.used(target)} · limit {'none' if limit is None else limit}")


def _workload(engine: Engine, subject: Subject) -> Iterator[Line]:
    workload = subject.workload
    assert workload is not None
    counts: dict[str, int] = {}
    for pod in engine.world.pods_of(workload):
        if pod.active:
            where = str(engine.world.node_class(pod.node)) if pod.node else "unplaced"
            counts[where] = counts.get(where, 0) + 1
    spread = ", ".join(f"{n} {where}" for where, n in sorted(counts.items())) or "no pods"
    yield Line("now", f"{workload.kind} · {workload.ready_replicas} of {workload.replicas} Ready · {spread}")
    target = subjects.workload(workload)
    limit = engine.queue.limit(target)
    yield Line("target", f"{target}  used {engine.queue.used(target)} · limit {'none' if limit is None else limit}")
