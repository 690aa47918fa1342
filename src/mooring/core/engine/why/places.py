"""Where a thing is now, in one line of figures; what every object has, whichever capability knows more."""

from collections.abc import Iterator

from mooring.core.engine.engine import Engine
from mooring.core.engine.why.condition import rack_of, spelled
from mooring.core.engine.why.phrases import plural, span
from mooring.core.engine.why.subject import Subject
from mooring.core.model.cluster import Node, Pod
from mooring.core.model.decision import Line
from mooring.core.model.marks import CORDONED_BY, RETIRING, read_mark


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
    target = f"node/{node.name}"
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
    target = f"workload/{workload.namespace}/{workload.kind}/{workload.name}"
    limit = engine.queue.limit(target)
    yield Line("target", f"{target}  used {engine.queue.used(target)} · limit {'none' if limit is None else limit}")
