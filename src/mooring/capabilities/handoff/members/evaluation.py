"""What an evaluation of one TidbCluster finds about its PD and TiDB pods: operators to propose, reasons not to."""

from collections.abc import Iterator, Mapping

import msgspec

from mooring.capabilities.drain.room import stuck_volume
from mooring.capabilities.handoff.facts import pod_subject
from mooring.capabilities.handoff.members.operators import (
    COMPONENTS,
    KINDS,
    PD_EXPIRATION,
    leads,
    member_payload,
    member_request,
    missing_members,
    operator_for,
    successor,
)
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.requests import ALLOWED, DELETE_POD, Request
from mooring.capabilities.handoff.yielding import Yielding
from mooring.core.model.cluster import Pod
from mooring.core.model.decision import PD_NOT_SEEN, Fact, Verdict, Withdrawal
from mooring.core.model.instructions import EmitEvent, HarmlessWrite, Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import PdView, TidbCluster
from mooring.core.queue import QueueRead
from mooring.core.world.read import WorldRead


class MemberEvaluation:
    """What an evaluation of one TidbCluster finds about its PD and TiDB pods."""

    def __init__(
        self, tc: TidbCluster, world: WorldRead, policy: HandoffPolicy, queue: QueueRead, now: float, yielding: Yielding
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
                yields = yielding.verdict(pod, request) if _ours(queue, pod) is None else None
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
        if component == "tidb":
            if request.value == DELETE_POD:
                self.proposals.append(operator_for(tc.key, pod, component, request))
            return
        if view is None:
            why = lost or PD_NOT_SEEN
            self.verdicts.append(msgspec.structs.replace(why, detail=f"{pod.name}: {why.detail}", subject=subject))
        elif leads(view, pod.name) and successor(view, pod.name) is None:
            self._blocked(pod, Reason.QUORUM, f"{pod.name} is the only PD member: its leadership has nowhere to go")
        elif request.value == DELETE_POD or leads(view, pod.name):
            self.proposals.append(operator_for(tc.key, pod, component, request))

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
