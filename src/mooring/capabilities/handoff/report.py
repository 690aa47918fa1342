"""What `mooring handoff status` prints: every member, what is asked of it and how far it has come.

Progress is in figures, not only in words: leaders left, leaders gone, how many leave a second, and how long the rest
will take at that pace. A script that waits for a hand-over reads `state` and `leaders_left`.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from mooring.capabilities.handoff import led
from mooring.capabilities.handoff.capability import Handoff
from mooring.capabilities.handoff.eviction import pace_of
from mooring.capabilities.handoff.facts import pod_subject, store_target
from mooring.capabilities.handoff.member_operators import COMPONENTS, leads, member_request
from mooring.capabilities.handoff.operators import marks_of
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.requests import Request, request_of
from mooring.core.model.cluster import Key, Pod, Workload
from mooring.core.model.decision import OperatorRecord, Verdict
from mooring.core.model.leaders import driver_of
from mooring.core.model.marks import GAVE_UP, Mark
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import State
from mooring.core.model.tidb import PdView, TidbCluster
from mooring.core.queue import QueueRead
from mooring.core.world.leaders import look_at
from mooring.core.world.members import members_of
from mooring.core.world.read import WorldRead


def report(
    world: WorldRead,
    queue: QueueRead,
    running: Mapping[str, OperatorRecord],
    policy: HandoffPolicy,
    now: float,
    refused: Mapping[str, Verdict] = MappingProxyType({}),
) -> dict[str, Any]:
    """`refused`: object → why the queue takes no proposal about it."""
    clusters = sorted(world.tidb_clusters(), key=lambda tc: (tc.namespace, tc.name))
    found = [_cluster(tc, world, queue, running, policy, now, refused) for tc in clusters]
    systems = sorted((w for w in world.workloads() if w.annotations and driver_of(w)), key=lambda w: w.key)
    told = [_system(w, world, queue, running, policy, now) for w in systems]
    return {"clusters": found, "systems": told, "as_of": now}


def _system(
    workload: Workload,
    world: WorldRead,
    queue: QueueRead,
    running: Mapping[str, OperatorRecord],
    policy: HandoffPolicy,
    now: float,
) -> dict[str, Any]:
    """A system with leaders, as it said when it was last asked, and its members."""
    look, pods, marks = look_at(workload, world), members_of(workload, world), led.marks_of(workload) or {}
    listed = {m.pod: m for m in look.view.members} if look.view is not None else {}
    said = {v.subject: v for v in led.evaluate_led(workload.key, world, policy, queue, now).verdicts}
    rows = []
    for name in sorted({*listed, *pods, *marks}):
        pod, member, subject = pods.get(name), listed.get(name), pod_subject(Key(workload.namespace, name))
        holder, request = queue.holder(subject), led.request_for(pod) if pod is not None else None
        live = [holder] if holder is not None else []
        row = _member(name, driver_of(workload), pod, request, live, queue, running, marks.get(name), said.get(subject))
        row["leaders_left"] = member.leaders if member is not None else None
        row["well"] = member is not None and member.is_well
        row["detail"] = member.detail if member is not None else ""
        rows.append(row)
    return {
        "system": str(workload.key),
        "driver": driver_of(workload),
        "state": "lost" if look.lost else "unseen" if look.view is None else "answers",
        "detail": look.lost or (look.view.busy if look.view is not None else ""),
        "leader": look.view.leader if look.view is not None else "",
        "well": sum(row["well"] for row in rows),
        "needs": look.view.needs if look.view is not None else None,
        "age_s": round(max(0.0, now - look.at), 1) if look.at else None,
        "members": rows,
    }


def _cluster(
    tc: TidbCluster,
    world: WorldRead,
    queue: QueueRead,
    running: Mapping[str, OperatorRecord],
    policy: HandoffPolicy,
    now: float,
    refused: Mapping[str, Verdict],
) -> dict[str, Any]:
    view, lost = world.pd(tc.key), world.pd_lost(tc.key)
    seen_at = world.pd_observed_at(tc.key)
    # A look of its own, of which nothing is taken up: what has not begun has no operator that could say why.
    said = {v.subject: v for v in Handoff(policy).evaluate(str(tc.key), world, queue, None, now).verdicts} | {**refused}
    return {
        "cluster": str(tc.key),
        "pd": "lost" if lost else "unseen" if view is None else "answers",
        "pd_detail": lost.detail if lost else "",
        "pd_age_s": None if seen_at is None else round(max(0.0, now - seen_at), 1),
        "pd_leader": view.leader if view is not None else "",
        "evicting": list(view.evicting or ()) if view is not None else [],
        "members": [
            *_tikv(tc, world, queue, running, policy, view, said),
            *_others(tc, world, queue, running, policy, view, said),
        ],
    }


def _tikv(
    tc: TidbCluster,
    world: WorldRead,
    queue: QueueRead,
    running: Mapping[str, OperatorRecord],
    policy: HandoffPolicy,
    view: PdView | None,
    said: Mapping[str, Verdict],
) -> Iterator[dict[str, Any]]:
    marks = marks_of(tc) or {}
    pods = {p.name: p for p in world.tidb_pods(tc.key, "tikv")}
    for name in sorted({*pods, *marks}):
        pod, mark = pods.get(name), marks.get(name)
        store = view.store_of(tc, name) if view is not None else None
        store_id = store.id if store is not None else mark.store_id if mark is not None else 0
        claims = (store_target(tc.key, store_id), pod_subject(Key(tc.namespace, name)))
        request = request_of(pod, leave_to_tidb_operator=policy.leaves_all) if pod is not None else None
        live = [o for o in map(queue.holder, claims) if o is not None]
        row = _member(
            name, "tikv", pod, request, live, queue, running, mark, said.get(claims[1]) or said.get(claims[0])
        )
        row["store"] = store_id or None
        row["store_state"] = store.state if store is not None else ""
        row["leaders_left"] = store.leader_count if store is not None else None
        yield row | _pace(claims[0], queue, running)


def _others(
    tc: TidbCluster,
    world: WorldRead,
    queue: QueueRead,
    running: Mapping[str, OperatorRecord],
    policy: HandoffPolicy,
    view: PdView | None,
    said: Mapping[str, Verdict],
) -> Iterator[dict[str, Any]]:
    for component in COMPONENTS:
        for pod in sorted(world.tidb_pods(tc.key, component), key=lambda p: p.name):
            holder = queue.holder(pod_subject(pod.key))
            request = member_request(pod, component, policy)
            live = [holder] if holder is not None else []
            row = _member(pod.name, component, pod, request, live, queue, running, None, said.get(pod_subject(pod.key)))
            if component == "pd":
                row["leads"] = view is not None and leads(view, pod)
            yield row


def _member(
    name: str,
    component: str,
    pod: Pod | None,
    request: Request | None,
    operators: list[Operator],
    queue: QueueRead,
    running: Mapping[str, OperatorRecord],
    mark: Mark | None,
    said: Verdict | None,
) -> dict[str, Any]:
    on_its_way = [running[o.id] for o in operators if o.id in running]
    # The last of a pair tells most: a restart knows more than the eviction that it follows.
    latest = on_its_way[-1] if on_its_way else None
    verdict = next((r.waiting_on for r in reversed(on_its_way) if r.waiting_on is not None), said)
    return {
        "pod": name,
        "component": component,
        "node": pod.node if pod is not None else "",
        "ready": pod is not None and pod.ready and not pod.terminating,
        "asked": request.detail if request is not None else "",
        "value": request.value if request is not None else "",
        "deadline": request.deadline if request is not None else None,
        "expires_at": request.expires_at if request is not None else None,
        "state": _state(operators, latest, verdict, mark),
        "operators": [o.id for o in operators],
        "step": _step(latest) if latest is not None else "",
        "progress": latest.progress if latest is not None else "",
        "since": latest.promoted_at if latest is not None else None,
        "waiting_on": _queued(queue, operators) if verdict is None else verdict.detail,
        "reason": "" if verdict is None else str(verdict.reason),
        "remedy": "" if verdict is None else verdict.remedy,
        "given_up": mark.detail if mark is not None and mark.step == GAVE_UP else "",
    }


def _state(operators: list[Operator], latest: OperatorRecord | None, verdict: Verdict | None, mark: Mark | None) -> str:
    if mark is not None and mark.step == GAVE_UP:
        return State.BLOCKED
    if verdict is not None and verdict.state in {State.BLOCKED, State.REFUSED}:
        return verdict.state
    if latest is not None:
        return State.MOVING
    return State.WAITING if operators or verdict is not None else State.STABLE


def _step(running: OperatorRecord) -> str:
    steps = running.operator.steps
    kind = steps[running.step].kind if running.step < len(steps) else "end"
    return f"{running.step + 1}/{len(steps)} {kind}"


def _pace(target: str, queue: QueueRead, running: Mapping[str, OperatorRecord]) -> dict[str, Any]:
    """Leaders gone since it began, a second, and how long the rest takes at that pace; None while unknown."""
    holder = queue.holder(target)
    pace = pace_of(running[holder.id].notes) if holder is not None and holder.id in running else None
    if pace is None:
        return {"leaders_gone": None, "rate_per_s": None, "estimate_s": None, "still_s": None}
    rate, estimate, still = (
        None if x is None else round(x, 2) for x in (pace.rate_per_s, pace.estimate_s, pace.still_s)
    )
    return {"leaders_gone": pace.gone, "rate_per_s": rate, "estimate_s": estimate, "still_s": still}


def _queued(queue: QueueRead, operators: list[Operator]) -> str:
    """What a member that waits its turn waits for, by name."""
    for operator in operators:
        why = None if queue.is_running(operator.id) else queue.why(operator.id)
        if why is None:
            continue
        ahead = [o for o in map(queue.get, why.blocked_by) if o is not None]
        names = [(o.payload.pod or o.subject).rpartition("/")[2] for o in ahead]
        parts = [fact.detail for fact in why.facts if fact.detail] + [f"{n} is ahead" for n in dict.fromkeys(names)]
        return "; ".join(parts) or f"no room on {why.target}" if why.target else str(why.reason)
    return ""
