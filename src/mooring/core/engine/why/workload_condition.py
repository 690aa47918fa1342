"""What a pod, a workload, a store and a TidbCluster are like by themselves (nodes and machines: `condition.py`)."""

import re
from collections.abc import Iterable

from mooring.core.engine.why.condition import Condition, Departures, of_node
from mooring.core.engine.why.words import plural, span
from mooring.core.model.cluster import Pod, Workload
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import Store, TidbCluster
from mooring.core.world.read import WorldRead

# ── Pods and workloads ────────────────────────────────────────────────────────────────────────────────────────────


def of_pod(world: WorldRead, pod: Pod, departures: Departures, now: float) -> Condition | None:
    describe = (("look at", f"kubectl -n {pod.namespace} describe pod {pod.name}"),)
    if pod.deletion_at is not None:
        late = now - pod.deletion_at
        if late > 0:
            words = f"leaving: its grace period ended {span(late)} ago"
        else:
            words = f"leaving: {span(-late)} of its grace period left"
        where = f" on {pod.node}" if pod.node else ""
        ends = "ends when its containers have stopped"
        return Condition(
            state=State.WAITING,
            reason=Reason.LEAVING,
            detail=words + where,
            ends=ends,
            commands=describe,
            until=pod.deletion_at,
        )
    if pod.phase == "Succeeded":
        return Condition(state=State.STABLE, reason=Reason.DONE, detail="ended, Succeeded")
    if pod.phase == "Failed":
        words = f"ended, Failed{f' on {pod.node}' if pod.node else ''}"
        return Condition(state=State.STABLE, reason=Reason.FAILED, detail=words, commands=describe)
    if not pod.node:
        words = "kube-scheduler has not placed it yet" if pod.schedulable else "kube-scheduler finds no node for it"
        ends = "ends when a node fits"
        return Condition(state=State.WAITING, reason=Reason.UNSCHEDULED, detail=words, ends=ends, commands=describe)
    if not pod.ready:
        since = f" for {span(now - pod.ready_since)}" if pod.ready_since is not None else ""
        words = f"not Ready{since} on {pod.node}"
        ends = "ends when it is Ready"
        return Condition(state=State.WAITING, reason=Reason.POD_NOT_READY, detail=words, ends=ends, commands=describe)
    node = world.node(pod.node)
    found = of_node(node, departures, now) if node is not None else None
    if found is None or found.state is State.STABLE:
        return None
    if found.reason is Reason.RETIRING and found.state is State.BLOCKED:
        closed = sorted(b.name for b in world.pdbs_of(pod) if b.disruptions_allowed <= 0)
        if closed:
            words = f"{pod.node} is retiring, and pdb/{closed[0]} allows 0 disruptions"
            return Condition(state=State.BLOCKED, reason=Reason.PDB, detail=words, ends="a person must act")
    look = (("look at", f"mooring why node/{pod.node}"),)
    words = f"on {pod.node}, which is {_adjective(found, now)}"
    return Condition(state=State.STABLE, reason=found.reason, detail=words, commands=look)


def _adjective(found: Condition, now: float) -> str:
    if found.reason is Reason.EXPIRED:
        return "past its interruption notice"
    if found.reason is Reason.NOTICE:
        return f"interrupted in {span(found.until - now)}" if found.until is not None else "interrupted"
    return found.detail


def of_workload(world: WorldRead, workload: Workload) -> Condition | None:
    key = f"{workload.kind.lower()}/{workload.name}"
    look = (("look at", f"kubectl -n {workload.namespace} describe {key}"),)
    if workload.deletion_at is not None:
        return Condition(
            state=State.WAITING,
            reason=Reason.LEAVING,
            detail="leaving: being deleted",
            ends="ends when its pods are gone",
            commands=look,
        )
    missing = workload.replicas - workload.ready_replicas
    if missing <= 0:
        return None
    if workload.failure:
        return Condition(
            state=State.BLOCKED,
            reason=Reason.NOT_CREATED,
            detail=f"{workload.ready_replicas} of {workload.replicas} Ready; no pod can be created: {workload.failure}",
            ends="a person must act",
            commands=to_create(workload),
        )
    bad = sorted(p.name for p in world.pods_of(workload) if p.active and not p.ready)
    named = f": {bad[0]}{f' and {len(bad) - 1} more' if len(bad) > 1 else ''}" if bad else ""
    return Condition(
        state=State.WAITING,
        reason=Reason.POD_NOT_READY,
        detail=f"{workload.ready_replicas} of {workload.replicas} Ready; not Ready{named}",
        ends="ends when all are Ready",
        commands=(("look at", f"kubectl -n {workload.namespace} get pods{_selector(workload.match_labels.items())}"),),
    )


def to_create(workload: Workload) -> tuple[tuple[str, str], ...]:
    """What to type when its ReplicaSet cannot create pods: a quota is named, anything else stands in the Events."""
    kubectl = f"kubectl -n {workload.namespace}"
    found = re.search(r"exceeded quota: ([a-z0-9.-]+)", workload.failure)
    if found is None:
        return (("look at", f"{kubectl} describe {workload.kind.lower()} {workload.name}"),)
    return (
        ("look at", f"{kubectl} describe resourcequota {found[1]}"),
        ("raise it", f"{kubectl} edit resourcequota {found[1]}"),
    )


def _selector(labels: Iterable[tuple[str, str]]) -> str:
    pairs = ",".join(f"{k}={v}" for k, v in sorted(labels))
    return f" -l {pairs}" if pairs else ""


# ── TiDB ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def of_store(cluster: TidbCluster | None, store: Store) -> Condition | None:
    if store.state == "Up":
        return None
    where = f"-n {cluster.namespace} " if cluster is not None else ""
    look = (("look at", f"kubectl {where}describe pod {store.pod_name}"),)
    match store.state:
        case "Offline":
            words, ends = f"Offline: {plural(store.region_count, 'region')} left to move away", "ends with the last one"
        case "Tombstone":
            return Condition(state=State.STABLE, reason=Reason.DONE, detail="Tombstone: removed from the cluster")
        case _:
            words, ends = f"{store.state} in PD", "ends when its TiKV reports to PD again"
    return Condition(state=State.WAITING, reason=Reason.STORE_NOT_UP, detail=words, ends=ends, commands=look)


def of_cluster(world: WorldRead, cluster: TidbCluster) -> Condition | None:
    labels = f"app.kubernetes.io/instance={cluster.name},app.kubernetes.io/component"
    pods = f"kubectl -n {cluster.namespace} get pods -l {labels}"
    if cluster.deletion_at is not None:
        return Condition(
            state=State.WAITING,
            reason=Reason.LEAVING,
            detail="leaving: being deleted",
            ends="ends when tidb-operator is done",
            commands=(("look at", f"kubectl -n {cluster.namespace} describe {cluster.resource} {cluster.name}"),),
        )
    if lost := world.pd_lost(cluster.key):
        return Condition(
            state=lost.state,
            reason=lost.reason,
            detail=lost.detail if lost.detail.startswith("PD ") else f"PD does not answer: {lost.detail}",
            ends=lost.remedy or "ends when it answers",
            commands=(("look at", f"{pods}=pd"),),
        )
    view = world.pd(cluster.key)
    bad = [s for s in view.stores if s.state not in {"Up", "Tombstone"}] if view is not None else []
    if not bad:
        return None
    named = ", ".join(f"store {s.id} ({s.pod_name}) {s.state}" for s in sorted(bad, key=lambda s: s.id)[:3])
    return Condition(
        state=State.WAITING,
        reason=Reason.STORE_NOT_UP,
        detail=f"{len(bad)} of {plural(len(view.stores) if view is not None else 0, 'store')} not Up: {named}",
        ends="ends when all are Up",
        commands=(("look at", f"{pods}=tikv"),),
    )
