"""What `why` says about TiKV pods, their stores and their cluster, and what to type to change it."""

from collections.abc import Iterator

from mooring.capabilities.drain.leaders import component_of, led_set, look_at
from mooring.capabilities.handoff.facts import evicting_target, pd_name, store_target, tikv_target
from mooring.capabilities.handoff.leaders.operators import request_for
from mooring.capabilities.handoff.mark import marks_of
from mooring.capabilities.handoff.operators import EVICT_LEADERS, tikv_payload
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.requests import DELETE_POD, RESTART, request_of
from mooring.capabilities.handoff.tikv.log_backup import WITHOUT_FLUSH
from mooring.core.model.cluster import Key, Pod, Workload
from mooring.core.model.decision import Line
from mooring.core.model.leaders import driver_of
from mooring.core.model.marks import GAVE_UP, LEAVING
from mooring.core.model.tidb import Store, TidbCluster
from mooring.core.queue import QueueRead
from mooring.core.world.members import sharing_pd, shown_target
from mooring.core.world.read import WorldRead


def explain(subject: str, world: WorldRead, queue: QueueRead, policy: HandoffPolicy, now: float) -> Iterator[Line]:
    kind, _, rest = subject.partition("/")
    parts = rest.split("/")
    if kind == "operator":
        operator = queue.get(rest)
        if operator is not None and operator.source == "handoff":
            namespace, _, name = operator.payload.pod.partition("/")
            lines = _of_pod(Key(namespace, name), world, queue, policy)
            yield from (line for line in lines if line.label != "why there")
    elif kind == "pod" and len(parts) == 2:
        yield from _of_pod(Key(parts[0], parts[1]), world, queue, policy)
    elif kind == "store" and len(parts) == 3 and parts[2].isdecimal() and len(parts[2]) < 20:
        yield from _of_store(Key(parts[0], parts[1]), int(parts[2]), world)
    elif kind == "cluster" and len(parts) == 2:
        tc = world.tidb_cluster(Key(parts[0], parts[1]))
        if tc is not None:
            yield from _of_cluster(tc, world, queue, now)


def _of_pod(key: Key, world: WorldRead, queue: QueueRead, policy: HandoffPolicy) -> Iterator[Line]:
    pod = world.pod(key)
    system = led_set(pod, world) if pod is not None else None
    if pod is not None and system is not None:
        yield from _of_system(pod, system, world)
        return
    member = component_of(pod, world) if pod is not None else None
    tc = world.tidb_cluster(member.cluster) if member is not None else None
    if pod is None or member is None or tc is None or member.name != "tikv":
        return
    view = world.pd(tc.key)
    store = view.store_of(tc, pod.name) if view is not None else None
    if store is not None:
        yield Line("now", _store_now(store))
        yield from _gives_up(queue, tc, store, policy)
    bound = ", ".join(sorted(v.name for v in world.volumes_of(pod) if v.required_terms is not None))
    if bound:
        yield Line("why there", f"its volume keeps it there: {bound}")
    yield Line("why there", "kube-scheduler chose it; home keeps TiDB members where they were, not TiKV")
    yield from _to_change(tc, pod)


def _of_system(pod: Pod, system: Workload, world: WorldRead) -> Iterator[Line]:
    look, driver = look_at(system, world), driver_of(system)
    if look.lost:
        yield Line("now", f"{driver} of {system.key} cannot be read: {look.lost}")
    elif look.view is not None:
        well = sum(m.is_well for m in look.view.members)
        words = f"{driver}: {look.view.leader} leads · {well} of {len(look.view.members)} members are well"
        yield Line("now", f"{words} · {look.view.busy}" if look.view.busy else words)
    request = request_for(pod)
    if request is None:
        yield Line("to change", f"restart     mooring restart pod/{pod.name} -n {pod.namespace}")
    else:
        yield Line("asked", request.detail)


def _store_now(store: Store) -> str:
    return f"store {store.id} {store.state} · {store.leader_count} leaders"


def _gives_up(queue: QueueRead, tc: TidbCluster, store: Store, policy: HandoffPolicy) -> Iterator[Line]:
    live = queue.holder(store_target(tc.key, store.id))
    if (
        live is not None
        and live.kind == EVICT_LEADERS
        and queue.is_running(live.id)
        and tikv_payload(live).value == DELETE_POD
    ):
        hours = policy.timeout_s / 3600
        yield Line("gives up", f"after {hours:g} h with leaders left (handoff.timeout-s); nothing is deleted then")
        if WITHOUT_FLUSH not in tc.annotations:
            yield Line("now", "a log backup is not flushed before the pod is deleted")


def _to_change(tc: TidbCluster, pod: Pod) -> Iterator[Line]:
    request = request_of(pod)
    if request is None:
        yield Line("to change", f'restart     kubectl -n {pod.namespace} annotate pod {pod.name} {RESTART}=""')
        return
    mark = (marks_of(tc) or {}).get(pod.name)
    given_up = mark is not None and mark.step == GAVE_UP and mark.pod_uid == pod.uid
    if request.key == LEAVING:
        yield Line("asked", request.detail)
        return
    yield Line("asked", f"{'restart' if request.value == DELETE_POD else 'leaders off'} by {request.detail}")
    verb = "withdraw  " if given_up else "give up   "
    yield Line("to change", f"{verb}  kubectl -n {pod.namespace} annotate pod {pod.name} {request.key}-")
    if given_up:
        yield Line("to change", f'try again   kubectl -n {pod.namespace} annotate pod {pod.name} {request.key}=""')


def _of_store(cluster: Key, store_id: int, world: WorldRead) -> Iterator[Line]:
    view = world.pd(cluster)
    store = next((s for s in view.stores if s.id == store_id), None) if view is not None else None
    if view is None or store is None:
        return
    evicting = " · PD keeps leaders off it" if view.evicting and store_id in view.evicting else ""
    yield Line("now", f"{_store_now(store)} · {store.region_count} regions · pod {store.pod_name}{evicting}")


def _of_cluster(tc: TidbCluster, world: WorldRead, queue: QueueRead, now: float) -> Iterator[Line]:
    lost, seen_at = world.pd_lost(tc.key), world.pd_observed_at(tc.key)
    view = world.pd(tc.key)
    if lost:
        yield Line("now", f"PD does not answer: {lost.detail}")
    elif view is None or seen_at is None:
        yield Line("now", "PD has not been looked at yet")
    else:
        up = sum(s.state == "Up" for s in view.stores)
        leaders = sum(s.leader_count for s in view.stores)
        yield Line("now", f"{up} of {len(view.stores)} stores Up · {leaders} leaders, {view.region_count} regions")
    pd = pd_name(tc.key, view)
    others = [str(one.key) for one in sharing_pd(world, tc.key) if one.key != tc.key]
    if others:
        yield Line("now", f"its PD ({pd}) is shared with {', '.join(others)}: one member of them all at a time")
    for target, what in (
        (evicting_target(pd), "stores losing their leaders"),
        (tikv_target(pd), "members away"),
    ):
        limit = queue.limit(target)
        yield Line(
            "target",
            f"{shown_target(target, world)}  {queue.used(target)}/{limit if limit is not None else '∞'} {what}",
        )
    for name, mark in sorted((marks_of(tc) or {}).items()):
        since = max(0, int(now - mark.since))
        yield Line(
            "mark", f"{name}: {mark.step} by op {mark.operator}, {since // 60}:{since % 60:02d} ago ({mark.detail})"
        )
