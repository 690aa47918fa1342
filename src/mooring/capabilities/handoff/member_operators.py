"""PD and TiDB pods leave carefully too: the `restart-member` and `transfer-pd-leader` operators.

    asked ──► [PD leads? leadership handed on, seen to have moved] ──► marked ──► evicted ──► new pod Ready ──► ended
                 │                                                       │
                 └── no other member to lead: blocked, nothing deleted      └── request withdrawn: mark cleared, ended

`tidb.pingcap.com/pd-transfer-leader` and `tidb.pingcap.com/tidb-graceful-shutdown` take `none` and `delete-pod`; an
unknown value acts as `none`. `none` on a PD pod only hands leadership on; on a TiDB pod there is nothing to do. A
`mooring.dev/leaving` mark of fleet, mix or spot on a PD pod is the same request as `delete-pod`, and so is
`tidb.pingcap.com/restart`, with any value, on both.

Room is the workload's: one member away at a time, and missing members take it as facts. Only the mark
has to be undone: leadership that has moved may stay where it is.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Final

import msgspec

from mooring.capabilities.drain.leaders import ALLOW_QUORUM_LOSS, may_be_lost
from mooring.capabilities.drain.readiness import is_ready, node_cost
from mooring.capabilities.drain.room import stuck_volume
from mooring.capabilities.handoff.facts import counted, pod_subject
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.requests import (
    ALLOWED,
    DELETE_POD,
    NONE,
    Request,
    TidbOperatorGrace,
    expiry_of,
    leaving_request,
    printable_value,
    unattended,
)
from mooring.capabilities.handoff.requests import RESTART as ASKS_RESTART
from mooring.core.model.cluster import Key, Pod
from mooring.core.model.decision import PD_NOT_SEEN, Fact, ReadBack, Recovered, Verdict, Withdrawal
from mooring.core.model.instructions import EmitEvent, HarmlessWrite, Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING, Mark, leaving
from mooring.core.model.operator import NO_COST, Operator, Payload, Step, StepKind
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import PdMember, PdView, TidbCluster, pd_member_name, v2_component
from mooring.core.queue import QueueRead
from mooring.core.world.read import WorldRead

RESTART: Final = "restart-member"
TRANSFER: Final = "transfer-pd-leader"
KINDS: Final = frozenset({RESTART, TRANSFER})
COMPONENTS: Final = ("pd", "tidb")

PD_TRANSFER_LEADER: Final = "tidb.pingcap.com/pd-transfer-leader"
PD_EXPIRATION: Final = "tidb.pingcap.com/pd-evict-leader-expiration-time"
TIDB_GRACEFUL_SHUTDOWN: Final = "tidb.pingcap.com/tidb-graceful-shutdown"
_KEYS: Final[Mapping[str, str]] = {"pd": PD_TRANSFER_LEADER, "tidb": TIDB_GRACEFUL_SHUTDOWN}

#: Steps by component: only PD has leadership to hand on.
_STEPS: Final[Mapping[str, tuple[Step, ...]]] = {
    "pd": (Step(StepKind.TRANSFER_PD_LEADER), Step(StepKind.DELETE_POD), Step(StepKind.AWAIT_READY)),
    "tidb": (Step(StepKind.DELETE_POD), Step(StepKind.AWAIT_READY)),
}
SOURCE: Final = "handoff"


class MemberPayload(Payload, frozen=True, gc=False, kw_only=True):
    """One member of PD or TiDB."""

    component: str
    #: `none` or `delete-pod`.
    value: str


def member_payload(operator: Operator) -> MemberPayload:
    assert isinstance(operator.payload, MemberPayload)
    return operator.payload


LOOK_S: Final = 2.0


def member_request(pod: Pod, component: str, policy: HandoffPolicy) -> Request | None:
    """What is asked of a PD or TiDB pod, or None."""
    leaving = leaving_request(pod) if component == "pd" or v2_component(pod.owner) is not None else None
    if leaving is not None and leaving.source != SOURCE:
        return leaving
    if ASKS_RESTART in pod.annotations:
        return Request(value=DELETE_POD, key=ASKS_RESTART, detail=f"annotation {ASKS_RESTART}")
    key = _KEYS[component]
    if policy.leaves_all or key not in pod.annotations:
        return None
    value = pod.annotations[key]
    return Request(
        value=DELETE_POD if value == DELETE_POD else NONE,
        key=key,
        detail=f"annotation {key}={printable_value(value)}" if value else f"annotation {key}",
        unknown="" if value in ALLOWED or value == "" else printable_value(value),
        expires_at=expiry_of(pod, PD_EXPIRATION) if component == "pd" else None,
    )


def missing_members(
    tc: TidbCluster, component: str, pods: Mapping[str, Pod], view: PdView | None, world: WorldRead, now: float
) -> Iterator[Fact]:
    """Members that are not there, not Ready or, as PD says of its own, not well take the workload's room."""
    return counted(workload_target(tc, component), _missing(tc, component, pods, view, world, now))


def _missing(
    tc: TidbCluster, component: str, pods: Mapping[str, Pod], view: PdView | None, world: WorldRead, now: float
) -> Iterator[Fact]:
    wanted = tc.ordinals(component)
    names = sorted(pods) if wanted is None else [f"{tc.name}-{component}-{i}" for i in wanted]
    target = workload_target(tc, component)
    short = (tc.wanted(component) or 0) - len(pods) if tc.v2 else 0
    if short > 0:
        yield Fact(target, f"missing/{target}", short, f"{tc.name} misses {short} of its members of {component}")
    for name in names:
        pod = pods.get(name)
        if pod is None or pod.terminating or not is_available(pod, world, now):
            word = "missing" if pod is None else "leaving" if pod.terminating else "not Ready"
            yield Fact(target, pod_subject(Key(tc.namespace, name)), 1, f"{name} is {word}")
        elif component == "pd" and view is not None and _unwell(view, pd_member_name(pod)):
            yield Fact(
                target, pod_subject(Key(tc.namespace, name)), 1, f"PD says that its member {name} is not healthy"
            )


def is_available(pod: Pod, world: WorldRead, now: float) -> bool:
    """Ready for its StatefulSet's minReadySeconds."""
    workload = world.workload_of(pod)
    return pod.ready if workload is None else is_ready(pod, workload, now)


def _unwell(view: PdView, member: str) -> bool:
    """Without a readiness probe a pod is Ready as soon as it runs, so PD's own health check counts."""
    return any(m.healthy is False and m.name.partition(".")[0] == member for m in view.members)


def workload_target(tc: TidbCluster, component: str) -> str:
    return f"workload/{tc.namespace}/{_owner_kind(tc)}/{tc.name}-{component}"


def _owner_kind(tc: TidbCluster) -> Kind:
    return Kind.TIDB_V2 if tc.v2 else Kind.STATEFUL_SET


def operator_for(tc: TidbCluster, pod: Pod, component: str, request: Request, id_: str = "") -> Operator:
    cluster = tc.key
    subject = pod_subject(pod.key)
    restarts = request.value == DELETE_POD
    cost = {workload_target(tc, component): 1, **node_cost(pod.node, cluster.namespace)}
    return Operator(
        id=id_,
        source=SOURCE,
        quota=str(cluster),
        kind=RESTART if restarts else TRANSFER,
        subject=subject,
        claims=(subject,),
        steps=_STEPS[component] if restarts else _STEPS["pd"][:1],
        phases=(cost if restarts else NO_COST,),
        deadline=request.deadline,
        reason=Reason.ASKED if request.deadline is None else Reason.DEADLINE,
        detail=request.detail,
        payload=MemberPayload(
            cluster=str(cluster),
            pod=str(pod.key),
            node=pod.node,
            workload=f"{_owner_kind(tc)}/{cluster.namespace}/{cluster.name}-{component}",
            uid=pod.uid,
            component=component,
            value=request.value,
        ),
    )


# ── After a crash ─────────────────────────────────────────────────────────────────────────────────────────────────


def own_mark(pod: Pod) -> Mark | None:
    mark = leaving(pod)
    return mark if mark is not None and mark.source == SOURCE else None


def resumed_members(tc: TidbCluster, world: WorldRead) -> Iterator[ReadBack]:
    """Pods that carry our mark: their restart goes on. Without a mark nothing had begun, and the request is still
    there."""
    for component in COMPONENTS:
        for pod in sorted(world.tidb_pods(tc.key, component), key=lambda p: p.name):
            yield partial(_resumed, tc, pod, component)


def _resumed(tc: TidbCluster, pod: Pod, component: str) -> Iterator[Recovered]:
    mark = own_mark(pod)
    if mark is not None and mark.pod_uid == pod.uid:
        request = Request(value=DELETE_POD, key=LEAVING, detail=mark.detail, deadline=mark.deadline)
        operator = operator_for(tc, pod, component, request, id_=mark.operator)
        yield Recovered(operator, len(operator.steps) - 2, 0, mark.since)


# ── Small questions ───────────────────────────────────────────────────────────────────────────────────────────────


def leads(view: PdView, pod: Pod) -> bool:
    """A member is named after its pod (or instance), or by the pod's full domain name."""
    return view.leader.partition(".")[0] == pd_member_name(pod)


def successor(view: PdView, pod: Pod, unready: Collection[str] = ()) -> PdMember | None:
    """Who leads next: the first other member by name that is not known to be unhealthy."""
    others = [m for m in sorted(view.members, key=lambda m: m.name) if m.healthy is not False]
    return next((m for m in others if m.name.partition(".")[0] not in {pd_member_name(pod), *unready}), None)


# ── Evaluation ──────────────────────────────────────────────────────────────────────────────────────────────────────
#
# What an evaluation of one TidbCluster finds about its PD and TiDB pods: operators to propose, reasons not to.


class MemberEvaluation:
    """What an evaluation of one TidbCluster finds about its PD and TiDB pods."""

    def __init__(
        self,
        tc: TidbCluster,
        world: WorldRead,
        policy: HandoffPolicy,
        queue: QueueRead,
        now: float,
        grace: TidbOperatorGrace,
    ) -> None:
        self.proposals: list[Operator] = []
        self.instructions: list[HarmlessWrite] = []
        self.verdicts: list[Verdict] = []
        self.facts: list[Fact] = []
        self.withdrawals: list[Withdrawal] = []
        lost, view = world.pd_lost(tc.key), world.pd(tc.key)
        for component in COMPONENTS:
            pods = {p.name: p for p in world.tidb_pods(tc.key, component)}
            requests = list(_requests(pods, component, policy))
            busy = [o for name in sorted(pods) if (o := _ours(queue, pods[name])) is not None]
            if requests or busy:
                self.facts.extend(missing_members(tc, component, pods, view, world, now))
            asked = {}
            for pod, request in requests:
                if request.expired(now):
                    self.instructions.append(_expire(pod, request))
                    continue
                asked[pod.name] = request
                yields = grace.verdict(pod, request) if _ours(queue, pod) is None else None
                if yields is not None:
                    self.verdicts.append(msgspec.structs.replace(yields, subject=pod_subject(pod.key)))
                    continue
                stuck = stuck_volume(pod, world) if request.value == DELETE_POD else None
                if stuck is not None and _ours(queue, pod) is None:
                    self._blocked(pod, Reason.LOCAL_VOLUME, stuck.detail, stuck.remedy)
                else:
                    self._consider(tc, pod, component, request, None if lost else view, lost)
            for operator in busy:
                name = operator.payload.pod.partition("/")[2]
                request_now = asked.get(name)
                if request_now is None or request_now.value != member_payload(operator).value:
                    text = "the request was withdrawn or has expired"
                    self.withdrawals.append(Withdrawal(operator.id, Reason.WITHDRAWN, text))
                elif request_now.is_sooner_than(operator.deadline):
                    text = "its node is interrupted: asked again, with that deadline"
                    self.withdrawals.append(Withdrawal(operator.id, Reason.REPLACED, text))

    @property
    def busy(self) -> bool:
        return bool(self.proposals or self.verdicts)

    def _consider(
        self, tc: TidbCluster, pod: Pod, component: str, request: Request, view: PdView | None, lost: Verdict | None
    ) -> None:
        if request.unknown:
            text = f"{request.key}={request.unknown!r} acts as none; allowed: {', '.join(ALLOWED)}"
            self.instructions.append(
                EmitEvent(kind=Kind.POD, key=pod.key, uid=pod.uid, reason=Reason.INVALID, message=text, warning=True)
            )
        subject = pod_subject(pod.key)
        if tc.unattended and request.value == DELETE_POD:
            self._blocked(pod, Reason.MISCONFIGURED, *unattended(tc))
            return
        if component == "tidb":
            if request.value == DELETE_POD:
                self.proposals.append(operator_for(tc, pod, component, request))
            return
        if view is None:
            why = lost or PD_NOT_SEEN
            self.verdicts.append(msgspec.structs.replace(why, detail=f"{pod.name}: {why.detail}", subject=subject))
        elif leads(view, pod) and successor(view, pod) is None and not may_be_lost(view, pod):
            detail = f"{pod.name} is the only PD member: its leadership has nowhere to go"
            remedy = (
                "set spec.replicas: 3 in its PDGroup" if tc.v2 else f"set spec.pd.replicas: 3 in TidbCluster {tc.name}"
            )
            if request.value == DELETE_POD and len(view.members) == 1:
                force = f"kubectl -n {pod.namespace} annotate pod {pod.name} {ALLOW_QUORUM_LOSS}=true"
                remedy += f"; to restart it all the same, without PD until it is back: {force}"
            self._blocked(pod, Reason.QUORUM, detail, remedy)
        elif request.value == DELETE_POD or leads(view, pod):
            self.proposals.append(operator_for(tc, pod, component, request))

    def _blocked(self, pod: Pod, reason: Reason, detail: str, remedy: str = "") -> None:
        """A person must act: reported as an Event on the pod."""
        self.verdicts.append(Verdict(State.BLOCKED, reason, detail, remedy, pod_subject(pod.key)))
        text = f"{detail}; {remedy}" if remedy else detail
        self.instructions.append(
            EmitEvent(kind=Kind.POD, key=pod.key, uid=pod.uid, reason=reason, message=text, warning=True)
        )


def _requests(pods: Mapping[str, Pod], component: str, policy: HandoffPolicy) -> Iterator[tuple[Pod, Request]]:
    for name in sorted(pods):
        request = None if pods[name].terminating else member_request(pods[name], component, policy)
        if request is not None:
            yield pods[name], request


def _ours(queue: QueueRead, pod: Pod) -> Operator | None:
    holder = queue.holder(pod_subject(pod.key))
    return holder if holder is not None and holder.kind in KINDS else None


def _expire(pod: Pod, request: Request) -> Patch:
    patch = {"metadata": {"annotations": {request.key: None, PD_EXPIRATION: None}}}
    return Patch(kind=Kind.POD, key=pod.key, uid=pod.uid, patch=patch, why="the request has expired")
