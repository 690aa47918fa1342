"""One replica's answers to AdmissionReviews: bytes in, bytes out, over whatever transport.

Pods are counted exactly, so only the lease holder answers for them; a follower passes the request on to it. Where the
world is behind (an owner that the watch has not shown yet) the request waits for the watch, 300 ms at most.

Fails open: whatever cannot be known in time, and whatever goes wrong in here, admits the pod as it came. The
rebalancer corrects it later. Evictions likewise: every replica lets those pass that are about no guarded pod, the
lease holder answers for the others, and without one they pass. Workloads are judged by every replica, from the request
alone; that fails open too: an error here allows the workload, with a warning. Only a request that is not an
AdmissionReview raises (`BadReviewError`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import structlog

from mooring.capabilities.mix.admission.affinity import PodRules
from mooring.capabilities.mix.admission.decide import Decision, MixAdmission, Wait
from mooring.capabilities.mix.admission.reviews import (
    PodRequest,
    WorkloadObject,
    allowed,
    denied,
    eviction_request,
    later,
    pod_request,
    workload_request,
)
from mooring.capabilities.mix.admission.validation import WorkloadDraft, judge
from mooring.capabilities.mix.schemes import Schemes, narrowed
from mooring.clients.ports import Randomness, Recorder
from mooring.clients.texts import printable
from mooring.core.model.cluster import NO_LABELS, Key
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason
from mooring.core.world.read import WorldRead
from mooring.process.admission.configurations import TIMEOUT_S
from mooring.process.admission.gatekeeper import Gatekeeper

log = structlog.get_logger()

#: How long a request may wait for the watch.
PATIENCE_S: Final = 0.3
#: How long a request may wait for the leader's answer, and for a leader: as long as the API server waits for us.
LEADER_S: Final = float(TIMEOUT_S)
#: How often it looks meanwhile.
LOOK_S: Final = 0.1

#: What kind of review, its body, and how many seconds are left; the leader's answer, or None: it could not be had, or
#: another leads by now.
PassOn = Callable[[str, bytes, float], Awaitable[bytes | None]]
PODS: Final = "pods"
EVICTIONS: Final = "evictions"
#: So many requests within so short a time count as high load: 300 a second.
MANY: Final = 30
WINDOW_S: Final = 0.1


class AdmissionLoad:
    """Whether so many pods are being admitted that deciding should be delayed.

    Decisions can wait a few seconds: what changes meanwhile is evaluated once. The creation of a pod cannot: the API
    server waits for the answer.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since = float("-inf")
        self._count = 0
        #: Of the window before this one.
        self._before = 0

    def asked(self) -> None:
        at = self._now()
        if at - self._since >= WINDOW_S:
            self._before = self._count if at - self._since < 2 * WINDOW_S else 0
            self._since, self._count = at, 0
        self._count += 1

    def is_on(self) -> bool:
        return max(self._count, self._before) >= MANY and self._now() - self._since < 2 * WINDOW_S


class NotLeadingError(Exception):
    """A request was passed on to a replica that does not lead (any more): the replica that passed it on looks again."""


class Reviewer:
    def __init__(
        self,
        admission: MixAdmission,
        world: WorldRead,
        now: Callable[[], float],
        randomness: Randomness,
        recorder: Recorder,
        gate: Gatekeeper,
        *,
        leads: Callable[[], bool],
        ready: Callable[[], bool],
        sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
    ) -> None:
        """`ready`: every first list has been taken in, so that absence means something. `now` and `sleep` are of one
        clock, which may run faster than the loop's."""
        self.admission = admission
        self.gate = gate
        self.pass_on: PassOn | None = None
        self._world = world
        self._now = now
        self._randomness = randomness
        self._recorder = recorder
        self._leads = leads
        self._ready = ready
        self._sleep = sleep
        #: Called while a request finds no leader: a candidate may look at the lease at once.
        self.on_leaderless: Callable[[], None] = lambda: None
        self.rush = AdmissionLoad(now)
        self._waiting: set[asyncio.Future[None]] = set()

    # ── Pods ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def pods(self, body: bytes, *, passed_on: bool = False) -> bytes:
        """Answer for a pod. Fails open. BadReviewError: not something that could be answered; NotLeadingError: it was
        passed on to us, and we do not lead."""
        request = pod_request(body)
        if passed_on and not self._leads():
            raise NotLeadingError
        self.rush.asked()
        try:
            if not self._leads():
                answer = await self._passed_on(PODS, body)
                if answer is not None or not self._leads():
                    if answer is None:
                        return self._as_it_came(request, Reason.NOT_LEADER)
                    self._count("passed-on")
                    return answer
            decision = await self._decide(request)
        except Exception:
            # A bug here must not keep a pod from being created.
            log.exception("admission.failed", uid=printable(request.uid))
            self._count(Reason.FAILED)
            return allowed(request.uid)
        if decision.reason in {Reason.NOT_SYNCED, Reason.UNKNOWN}:
            return self._as_it_came(request, decision.reason, decision.detail)
        self._count(decision.node_class or decision.reason)
        if decision.reason is Reason.CONFLICT:
            self._tell(decision)
        return allowed(request.uid, decision.operations, decision.warnings)

    def _as_it_came(self, request: PodRequest, reason: Reason, detail: str = "") -> bytes:
        """Admitted without our patch, though it may be ours: said, for the rebalancer will have to move it."""
        where = printable(f"{request.namespace}/{request.name}")
        log.warning("admission.as-it-came", pod=where, why=reason, detail=printable(detail))
        self._count(reason)
        return allowed(request.uid)

    async def _passed_on(self, what: str, body: bytes) -> bytes | None:
        """The leader's answer. While no replica leads (one stops, the next takes over) the request waits, about as long
        as the API server does; None when none was found, or we lead ourselves by now."""
        end = self._now() + LEADER_S
        while True:
            answer = None if self.pass_on is None else await self.pass_on(what, body, end - self._now())
            if answer is not None or self._leads() or self._now() >= end:
                return answer
            self.on_leaderless()
            await self._sleep(LOOK_S)
            if self._leads():
                return None

    async def _decide(self, request: PodRequest) -> Decision:
        if not self._ready():
            return Decision(Reason.NOT_SYNCED)
        token = self._randomness.token(16)
        decision = self.admission.decide(request, self._world, self._now(), token)
        if isinstance(decision, Decision):
            return decision
        end = self._now() + PATIENCE_S
        while isinstance(decision, Wait):
            await self._world_moves(end - self._now())
            patient = self._now() < end
            decision = self.admission.decide(request, self._world, self._now(), token, patient=patient)
        return decision

    async def _world_moves(self, at_most_s: float) -> None:
        moved = asyncio.get_running_loop().create_future()
        self._waiting.add(moved)
        try:
            await first_of(moved, self._sleep(max(0.0, at_most_s)))
        finally:
            self._waiting.discard(moved)

    def world_moved(self) -> None:
        """The world has changed: requests that wait for the watch look again."""
        self.gate.world_moved()
        for moved in self._waiting:
            if not moved.done():
                moved.set_result(None)

    def _tell(self, decision: Decision) -> None:
        workload = decision.workload
        if workload is not None:
            self._recorder.event(
                Kind(workload.kind),
                workload.namespace,
                workload.name,
                uid=workload.uid,
                reason=Reason.CONFLICT,
                message=f"A new pod was admitted without a place: {decision.detail}. Change its rules or the mode.",
                warning=True,
            )

    # ── Responders of evictions ───────────────────────────────────────────────────────────────────────────────

    async def responders(self, body: bytes) -> bytes:
        """Shall Mooring respond to requests for the eviction of this new pod? Fails open; every replica knows."""
        request, end = pod_request(body), self._now() + PATIENCE_S
        try:
            found = self.gate.responders(request) if self._ready() else []
            while found is None and self._now() < end:
                await self._world_moves(end - self._now())
                found = self.gate.responders(request)
        except Exception:
            log.exception("responders.failed", uid=printable(request.uid))
            return allowed(request.uid)
        return allowed(request.uid, found)

    # ── Evictions ─────────────────────────────────────────────────────────────────────────────────────────────

    async def evictions(self, body: bytes, *, passed_on: bool = False) -> bytes:
        """May this pod be evicted now? Fails open. NotLeadingError: passed on to a replica that does not lead."""
        request = eviction_request(body)
        if passed_on and not self._leads():
            raise NotLeadingError
        try:
            answer = self.gate.at_once(request) if self._ready() else None
            if answer is None:
                if not self._leads():
                    said = await self._passed_on(EVICTIONS, body)
                    if said is not None:
                        return said
                await self._deciding()
                if not (self._leads() and self.gate.decides):
                    log.warning(
                        "eviction.passes", pod=printable(f"{request.namespace}/{request.name}"), why="no leader"
                    )
                    self._count_eviction(Reason.NOT_LEADER)
                    return allowed(request.uid)
                answer = self.gate.decide(request)
        except Exception:
            log.exception("eviction.failed", uid=printable(request.uid))
            self._count_eviction(Reason.FAILED)
            return allowed(request.uid)
        self._count_eviction(answer.reason if answer.allowed else "held")
        return allowed(request.uid) if answer.allowed else later(request.uid, answer.message)

    async def _deciding(self) -> None:
        """One that has just begun to lead reads the marks first: about as long as the API server waits for us."""
        end = self._now() + LEADER_S - LOOK_S
        while self._leads() and not self.gate.decides and self._now() < end:
            await self._sleep(LOOK_S)

    def _count_eviction(self, outcome: str) -> None:
        self._recorder.count("mooring_evictions_total", {"outcome": str(outcome)})

    # ── Workloads ─────────────────────────────────────────────────────────────────────────────────────────────

    async def workloads(self, body: bytes) -> bytes:
        """Judge a workload. Fails open. BadReviewError: not something that could be answered."""
        request = workload_request(body)
        try:
            if request.object is None or request.operation not in {"CREATE", "UPDATE"} or request.sub_resource:
                return allowed(request.uid)
            kind = request.kind.kind
            before = None if request.old_object is None else _draft(kind, request.old_object)
            policy, classes = self.admission.policy, self._world.index(Schemes).written
            draft = _draft(kind, request.object)
            narrow = narrowed(draft.rules, self._world)
            judged = judge(draft, before, policy.deployment_target, classes, narrow)
        except Exception:
            log.exception("validation.failed", uid=printable(request.uid))
            return allowed(request.uid, warnings=("mooring could not check the vacant.io labels; see its log",))
        if judged.problems:
            self._count("refused")
            where = Key(request.namespace, request.name)
            return denied(request.uid, f"{kind} {where}: " + "; ".join(judged.problems))
        return allowed(request.uid, warnings=judged.warnings)

    def took(self, path: str, seconds: float) -> None:
        self._recorder.observe("mooring_admission_seconds", {"path": path}, seconds)

    def _count(self, outcome: str) -> None:
        self._recorder.count("mooring_admissions_total", {"outcome": str(outcome)})


async def first_of(*waiting_on: Coroutine[Any, Any, Any] | asyncio.Future[Any] | None) -> None:
    """Until one of these is done; the others are given up."""
    tasks = [asyncio.ensure_future(wait) for wait in waiting_on if wait is not None]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _draft(kind: str, found: WorkloadObject) -> WorkloadDraft:
    spec = found.spec
    template = spec.template if spec is not None else None
    labels = template.metadata.labels if template is not None and template.metadata is not None else None
    return WorkloadDraft(
        kind,
        found.metadata.labels or NO_LABELS,
        found.metadata.annotations or NO_LABELS,
        1 if spec is None or spec.replicas is None else spec.replicas,
        labels or NO_LABELS,
        (template.spec if template is not None else None) or PodRules(),
        spec.strategy.type if spec is not None and spec.strategy is not None else "",
    )
