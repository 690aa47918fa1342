"""What to type: every answer that a person must act on ends with a command, on a line of its own.

A capability's own `to change` lines come first; where they hold no command, the reason decides, and what no reason
knows ends with a look at the object itself.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from mooring.core.engine.engine import Engine
from mooring.core.engine.why.findings import Answer
from mooring.core.engine.why.subject import Subject
from mooring.core.engine.why.words import COMMAND, WIDTH
from mooring.core.engine.why.workload_condition import to_create
from mooring.core.model import subjects
from mooring.core.model.cluster import Key, Pdb, Pod, Workload
from mooring.core.model.decision import Line
from mooring.core.model.descriptor import About
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import TidbCluster
from mooring.core.world.read import WorldRead

LABEL: Final = "to change"
_KINDS: Final = {"Deployment": "deployment", "StatefulSet": "statefulset"}


def has_command(lines: Iterable[Line]) -> bool:
    return any(line.label == LABEL and COMMAND.search(line.text) for line in lines)


def typed(verb: str, command: str) -> Line:
    """`look at     kubectl describe node n7`: a word what for, then the command, whole."""
    return Line(LABEL, f"{verb:<{WIDTH - 1}} {command}")


def split_remedy(remedy: str) -> Iterator[Line]:
    """`once it is off: kubectl …`: the words, then the command, whole and alone, to the end of what was said."""
    found = COMMAND.search(remedy)
    words = remedy if found is None else remedy[: found.start()].rstrip(": ")
    if words:
        yield Line(LABEL, words)
    if found is not None:
        yield typed("do", remedy[found.start() :])


def commands(engine: Engine, subject: Subject, first: Answer, spoken: Iterable[Line]) -> Iterator[Line]:
    """What to type about this answer, besides what the capabilities said."""
    remedy = first.verdict.remedy if first.verdict is not None else ""
    for word, command in first.commands:
        yield typed(word, command)
    if first.state not in {State.BLOCKED, State.REFUSED}:
        if remedy and not has_command(spoken):
            yield from split_remedy(remedy)
        return
    own = [*_by_reason(engine, subject, first), *_of_capabilities(engine, subject, first)]
    if remedy and not (first.reason is Reason.PDB and own):
        known = {line.text[WIDTH:] for line in own}
        yield from (line for line in split_remedy(remedy) if line.text[WIDTH:] not in known)
    yield from own
    said = [*spoken, *own, *((Line(LABEL, remedy),) if remedy else ())]
    if not first.commands and not has_command(said):
        yield typed("look at", _describe(engine.world, subject, first))


def _by_reason(engine: Engine, subject: Subject, first: Answer) -> Iterator[Line]:
    world, pod = engine.world, _pod_of(engine.world, subject, first)
    match first.reason:
        case Reason.PDB if pod is not None:
            yield from _budget(world, pod)
        case Reason.RETIRING if subject.node is not None:
            pods = sorted(world.pods_on(subject.node.name), key=lambda p: p.key)
            for left in [p for p in pods if any(b.disruptions_allowed <= 0 for b in world.pdbs_of(p))][:2]:
                yield from _budget(world, left)
        case Reason.LOCAL_VOLUME if pod is not None:
            for claim in pod.claims[:2]:
                yield typed("look at", f"kubectl -n {pod.namespace} get pvc {claim}")
            node = world.node(pod.node) if pod.node else None
            if node is not None and node.unschedulable:
                yield typed("let it back", f"kubectl uncordon {node.name}")
        case Reason.BARE_POD | Reason.EMPTY_DIR if pod is not None:
            yield typed("let it go", f"kubectl -n {pod.namespace} delete pod {pod.name}")
        case Reason.QUORUM | Reason.PD_UNREACHABLE if (cluster := subject.cluster) is not None:
            yield typed("look at", _members(cluster, "pd"))
        case Reason.FORBIDDEN:
            on = ",".join(f"{name}=true" for name in sorted(engine.on))
            yield typed("give rights", f"mooring manifests --features {on} --rights | kubectl apply -f -")
            yield typed("see all", "mooring doctor --fix")
        case Reason.FAILED if pod is not None and "quota" in first.detail:
            yield typed("look at", f"kubectl -n {pod.namespace} describe resourcequota")
        case Reason.NOT_CREATED if not first.commands and (workload := _workload_of(world, subject, first)) is not None:
            for word, command in to_create(workload):
                yield typed(word, command)
        case Reason.FEATURE_OFF:
            upgrade = "helm upgrade mooring deploy/chart/mooring -n mooring-system --reuse-values"
            yield typed("switch on", f"{upgrade} --set features.{first.capability}=true")
        case Reason.NEVER_FITS | Reason.TARGET_PAUSED | Reason.STORE_PAUSED:
            yield typed("see limits", "mooring config queue")
        case Reason.DEFECT:
            yield typed("look at", "kubectl -n mooring-system logs deploy/mooring")
        case _:
            pass


def _of_capabilities(engine: Engine, subject: Subject, first: Answer) -> Iterator[Line]:
    """What the capabilities know to type about this reason."""
    pod = _pod_of(engine.world, subject, first)
    cluster = subject.cluster or (engine.world.tidb_cluster_of(pod) if pod is not None else None)
    workload = _workload_of(engine.world, subject, first)
    about = About(pod=pod, node=subject.node, workload=workload, cluster=cluster)
    yield from (typed(word, command) for word, command in engine.described.commands(first.reason, about))


def _budget(world: WorldRead, pod: Pod) -> Iterator[Line]:
    """A budget that allows no disruption: what is counted, and the two ways out."""
    closed = [b for b in world.pdbs_of(pod) if b.disruptions_allowed <= 0]
    for pdb in sorted(closed, key=lambda b: b.name)[:2]:
        yield Line(LABEL, _what_would_do(pdb))
        yield typed("look at", f"kubectl -n {pdb.namespace} get pdb {pdb.name}")
        workload = world.workload_of(pod)
        short = pdb.current_healthy < pdb.desired_healthy
        if short:
            yield typed("not Ready", f"kubectl -n {pod.namespace} get pods")
        elif workload is not None and world.tidb_cluster_of(pod) is None:
            key = f"{_KINDS.get(workload.kind, workload.kind.lower())}/{workload.name}"
            command = f"kubectl -n {pod.namespace} scale {key} --replicas {workload.replicas + 1}"
            yield typed("one more", command)
        if not short:
            yield typed("allow one", f"kubectl -n {pdb.namespace} edit pdb {pdb.name}")


def _what_would_do(pdb: Pdb) -> str:
    wants = f"pdb/{pdb.name} needs {pdb.desired_healthy} healthy, {pdb.current_healthy} are"
    if pdb.current_healthy < pdb.desired_healthy:
        return f"{wants}: it allows one when enough are Ready again"
    return f"{wants}: one more replica (minAvailable) or a higher maxUnavailable lets one go"


def _pod_of(world: WorldRead, subject: Subject, first: Answer) -> Pod | None:
    if first.operator is not None and (named := first.operator.payload.pod):
        return world.pod(subjects.key_of(named))
    if subject.pod is not None:
        return subject.pod
    about = first.verdict.subject if first.verdict is not None else ""
    if subjects.kind_of(about) == "pod":
        return world.pod(subjects.parse(about).key)
    # A retiring machine or node names the pod that keeps it in its sentence.
    node = subject.node
    words = set(re.findall(r"[a-z0-9.-]+", first.detail))
    return next((p for p in world.pods_on(node.name) if p.name in words), None) if node is not None else None


def _workload_of(world: WorldRead, subject: Subject, first: Answer) -> Workload | None:
    if first.operator is not None and (named := first.operator.payload.workload):
        kind, namespace, name = named.split("/")
        return world.workload(Kind(kind), Key(namespace, name))
    return subject.workload


def _members(cluster: TidbCluster, component: str) -> str:
    labels = f"app.kubernetes.io/instance={cluster.name},app.kubernetes.io/component={component}"
    return f"kubectl -n {cluster.namespace} get pods -l {labels}"


def _describe(world: WorldRead, subject: Subject, first: Answer) -> str:
    """The object itself: of an operator, the one it is about."""
    pod = _pod_of(world, subject, first)
    if pod is not None:
        return f"kubectl -n {pod.namespace} describe pod {pod.name}"
    match subject.kind:
        case "node" | "machine" if subject.node is not None:
            return f"kubectl describe node {subject.node.name}"
        case "machine":
            return "mooring fleet status"
        case "workload" if subject.workload is not None:
            workload = subject.workload
            return f"kubectl -n {workload.namespace} describe {workload.kind.lower()} {workload.name}"
        case "cluster" | "store" if subject.cluster is not None:
            return f"kubectl -n {subject.cluster.namespace} describe {subject.cluster.resource} {subject.cluster.name}"
        case _:
            return "mooring doctor"
