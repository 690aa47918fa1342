"""What a subject stands for: the object in the world, its operators, its keys, its history.

pod/<ns>/<name> · node/<name> · machine/<serial> · operator/<id> · store/<ns>/<cluster>/<id> ·
cluster/<ns>/<name> · workload/<ns>/[<kind>/]<name> · rack/<name>
"""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from mooring.core.engine.engine import Engine
from mooring.core.engine.history import HistoryEntry, subjects_of
from mooring.core.engine.why.condition import rack_of
from mooring.core.model import subjects
from mooring.core.model.cluster import Key, Node, Pod, Workload
from mooring.core.model.events import Change, MachinesSeen, Trigger
from mooring.core.model.kinds import WORKLOADS, Kind
from mooring.core.model.machine import Machine
from mooring.core.model.operator import Operator
from mooring.core.model.tidb import Store, TidbCluster
from mooring.core.world.read import WorldRead


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A subject with everything that was found of it. `name` is spelled out in full."""

    name: str
    kind: str
    rest: str
    pod: Pod | None = None
    node: Node | None = None
    workload: Workload | None = None
    cluster: TidbCluster | None = None
    store: Store | None = None
    machine: Machine | None = None
    #: Of a rack.
    nodes: tuple[Node, ...] = ()

    @property
    def exists(self) -> bool:
        found = (self.pod, self.node, self.workload, self.store, self.machine)
        known = any(one is not None for one in found) or bool(self.nodes)
        return known or (self.kind == "cluster" and self.cluster is not None)


def find(world: WorldRead, name: str) -> Subject:
    kind, _, rest = name.partition("/")
    parts = rest.split("/")
    key = Key(parts[0], parts[-1])
    match kind:
        case "pod":
            pod = world.pod(key)
            return Subject(
                name=name,
                kind=kind,
                rest=rest,
                pod=pod,
                node=world.node(pod.node) if pod is not None and pod.node else None,
                cluster=world.tidb_cluster_of(pod) if pod is not None else None,
            )
        case "node":
            return Subject(name=name, kind=kind, rest=rest, node=world.node(rest))
        case "cluster":
            return Subject(name=name, kind=kind, rest=rest, cluster=world.tidb_cluster(key))
        case "store":
            return _store(world, name, rest, parts)
        case "workload":
            workload = _workload(world, parts)
            full = subjects.workload(workload) if workload is not None else name
            return Subject(name=full, kind=kind, rest=rest, workload=workload)
        case "machine":
            machine = next((m for m in world.machines() if m.serial == rest), None)
            node = node_of(world, machine) if machine is not None else None
            return Subject(name=name, kind=kind, rest=rest, machine=machine, node=node)
        case "rack":
            nodes = tuple(sorted((n for n in world.nodes() if rack_of(n) == rest), key=lambda n: n.name))
            return Subject(name=name, kind=kind, rest=rest, nodes=nodes)
        case _:
            return Subject(name=name, kind=kind, rest=rest)


def node_of(world: WorldRead, machine: Machine) -> Node | None:
    """A machine's node is called by its address."""
    if not machine.address:
        return None
    by_name = world.node(machine.address)
    if by_name is not None:
        return by_name
    return next((n for n in world.nodes() if n.internal_ip == machine.address), None)


def _store(world: WorldRead, name: str, rest: str, parts: list[str]) -> Subject:
    cluster = Key(parts[0], parts[1]) if len(parts) == 3 else None
    view = world.pd(cluster) if cluster is not None else None
    store = next((s for s in view.stores if str(s.id) == parts[-1]), None) if view is not None else None
    tc = world.tidb_cluster(cluster) if cluster is not None else None
    return Subject(name=name, kind="store", rest=rest, store=store, cluster=tc)


def _workload(world: WorldRead, parts: list[str]) -> Workload | None:
    key = Key(parts[0], parts[-1])
    kinds = [k for k in WORKLOADS if len(parts) != 3 or str(k) == parts[1]]
    return next((w for k in kinds if (w := world.workload(k, key)) is not None), None)


# ── What belongs to it ────────────────────────────────────────────────────────────────────────────────────────────


def belongs(world: WorldRead, subject: Subject, operator: Operator) -> bool:
    """Is this operator about the subject, or about something that stands on it?"""
    if subject.name in subjects_of(operator):
        return True
    match subject.kind:
        case "operator":
            return False
        case "cluster":
            return operator.payload.cluster == subject.rest
        case "node" | "machine" | "rack":
            names = {n.name for n in (*subject.nodes, *((subject.node,) if subject.node is not None else ()))}
            on = any(subjects.node(name) in operator.phases[0] for name in names)
            return on or _pod_of(world, operator, lambda p: p.node) in names
        case "store":
            known = subject.store is not None and operator.payload.store_id == subject.store.id
            return known and subject.rest.startswith(f"{operator.payload.cluster}/")
        case "workload":
            workload = subject.workload
            if workload is None:
                return False
            target = subjects.workload(workload)
            if target in operator.phases[0] or operator.payload.workload == f"{workload.kind}/{workload.key}":
                return True
            return (
                _pod_of(world, operator, lambda p: w.uid if (w := world.workload_of(p)) is not None else "")
                == workload.uid
            )
        case _:
            return False


def _pod_of(world: WorldRead, operator: Operator, ask: Callable[[Pod], str]) -> str:
    named = operator.payload.pod
    pod = world.pod(subjects.key_of(named)) if named else None
    return ask(pod) if pod is not None else ""


def operators_on(engine: Engine, subject: Subject) -> list[Operator]:
    """In queue order: running ones by promotion, then waiting ones."""
    if subject.kind == "operator":
        found = engine.queue.get(subject.rest)
        return [found] if found is not None else []
    running = [r.operator for r in engine.running.values()]
    waiting = [engine.waiting[i] for i in engine.queue.waiting if i in engine.waiting]
    return [o for o in (*running, *waiting) if belongs(engine.world, subject, o)]


def happening_of(world: WorldRead, subject: Subject) -> Trigger | None:
    """As if the object had just appeared: what a capability would look at then is what concerns it."""
    if subject.pod is not None:
        return Change(Kind.POD, subject.pod.key, None, subject.pod)
    if subject.kind == "machine":
        return MachinesSeen(world.machines(), world.machines_observed_at() or 0.0)
    if subject.node is not None:
        return Change(Kind.NODE, subject.node.key, None, subject.node)
    if subject.workload is not None:
        return Change(Kind(subject.workload.kind), subject.workload.key, None, subject.workload)
    if subject.cluster is not None:
        return Change(subject.cluster.kind, subject.cluster.key, None, subject.cluster)
    return None


def history_of(engine: Engine, subject: Subject) -> tuple[HistoryEntry, ...]:
    """Its own history; of what is made of many, the newest entries about any of them."""
    own = tuple(engine.history.of(subject.name))
    if own or subject.kind not in {"cluster", "node", "workload", "machine", "rack"}:
        return own
    names = frozenset(names_on(engine.world, subject))
    return tuple(e for e in engine.history.timeline if any(s in names for s in e.subjects))[-40:]


def pods_on(world: WorldRead, subject: Subject) -> Iterable[Pod]:
    """The pods that stand on this subject, or are it."""
    if subject.kind == "pod":
        return (subject.pod,) if subject.pod is not None else ()
    if subject.kind == "cluster" and subject.cluster is not None:
        return [p for part in ("pd", "tidb", "tikv") for p in world.tidb_pods(subject.cluster.key, part)]
    if subject.workload is not None:
        return world.pods_of(subject.workload)
    nodes = (*subject.nodes, *((subject.node,) if subject.node is not None else ()))
    return [p for node in nodes for p in world.pods_on(node.name)]


def names_on(world: WorldRead, subject: Subject) -> Iterator[str]:
    """The subjects that stand on this one: the pods of a node, the stores of a cluster, the pod of a store."""
    if subject.store is not None and subject.cluster is not None:
        yield subjects.pod(Key(subject.cluster.namespace, subject.store.pod_name))
        return
    if subject.kind == "pod":
        return
    if subject.kind == "cluster" and subject.cluster is not None:
        view = world.pd(subject.cluster.key)
        yield from (subjects.store(subject.cluster.key, s.id) for s in (view.stores if view is not None else ()))
    elif subject.workload is None:
        yield from (subjects.node(n.name) for n in subject.nodes)
        if subject.node is not None:
            yield subjects.node(subject.node.name)
        if subject.machine is not None:
            yield subjects.machine(subject.machine.serial)
    yield from (subjects.pod(p.key) for p in pods_on(world, subject))
