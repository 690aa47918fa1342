"""What has begun, as the marks say: for a replica that does not decide. Nothing is recovered, only read."""

from collections.abc import Iterator

from mooring.core.engine.why.findings import Answer
from mooring.core.engine.why.phrases import short, span
from mooring.core.engine.why.subject import Subject, pods_on
from mooring.core.model.cluster import Node, Pod
from mooring.core.model.marks import CORDONED_BY, HANDOFF, LEAVING, RETIRING, Mark, read_mark, read_marks
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import TidbCluster
from mooring.core.world.read import WorldRead


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
