"""The extender's three verbs, from the world alone: a scheduler's request in, its answer out.

    filter      a member's home among the candidates → only it; else all of them, unchanged
    prioritize  a member's home 10, every other node 0: a preference instead of a must
    preempt     a member that must preempt anyway does so at home, unless that breaks more budgets than elsewhere

All three fail open (H2, H7): a pod that is not ours, a feature that is off, a world that is not synced yet, data that
is missing or stale: everything passes.
"""

from collections.abc import Callable

import msgspec

from mooring.capabilities.home.answers import write_only, write_scores, write_unchanged, write_victims, write_without
from mooring.capabilities.home.choice import HomeMember, choose, home_member, score
from mooring.capabilities.home.policy import HomeMode, HomePolicy
from mooring.capabilities.home.wire import (
    AskedPod,
    PreemptRequest,
    WireVictims,
    pod_in_front,
    read_preempt,
    read_request,
)
from mooring.core.model.reasons import Reason
from mooring.core.world.read import WorldRead


class VerbAnswer(msgspec.Struct, frozen=True, gc=False):
    body: bytes
    #: What was decided, for metrics: `home`, `home-absent`, `home-unknown`, `not-managed`, `feature-off`, and
    #: `observing` where it would have been its home.
    reason: Reason


class Verbs:
    """`switched_on` False: the feature is off or the world not synced, so everything passes. `observing`: it is
    decided, and everything passes all the same (D9)."""

    def __init__(
        self,
        world: WorldRead,
        policy: Callable[[], HomePolicy],
        switched_on: Callable[[], bool],
        observing: Callable[[], bool] = lambda: False,
    ) -> None:
        self._world = world
        self._policy = policy
        self._switched_on = switched_on
        self._observing = observing

    def filter(self, body: bytes) -> VerbAnswer:
        return self._said("filter", body, self._filter(body))

    def prioritize(self, body: bytes) -> VerbAnswer:
        return self._said("prioritize", body, self._prioritize(body))

    def preempt(self, body: bytes) -> VerbAnswer:
        return self._said("preempt", body, self._preempt(body))

    def _said(self, verb: str, body: bytes, answer: VerbAnswer) -> VerbAnswer:
        if not self._observing():
            return answer
        would = Reason.OBSERVING if answer.reason is Reason.HOME else answer.reason
        return VerbAnswer(self.unchanged(verb, body), would)

    def _filter(self, body: bytes) -> VerbAnswer:
        front = pod_in_front(body)
        request = read_request(body, apart=front is None or self._member(front)[0] is not None)
        pod, reason = self._member(request.pod)
        if pod is None:
            return VerbAnswer(write_unchanged(request), reason)
        names = request.names()
        choice = choose(pod, names, self._world)
        if choice.only:
            return VerbAnswer(write_only(request, names, choice.only, choice.sentence), choice.reason)
        if choice.without:
            return VerbAnswer(write_without(request, names, choice.without), choice.reason)
        return VerbAnswer(write_unchanged(request), choice.reason)

    def _prioritize(self, body: bytes) -> VerbAnswer:
        request = read_request(body)
        pod, reason = self._member(request.pod)
        names = request.names()
        if pod is not None:
            reason = Reason.HOME if pod.home in names else (Reason.HOME_ABSENT if pod.home else Reason.HOME_UNKNOWN)
        return VerbAnswer(write_scores(names, lambda name: score(pod, name)), reason)

    def _preempt(self, body: bytes) -> VerbAnswer:
        request = read_preempt(body)
        pod, reason = self._member(request.pod)
        if pod is None:
            return VerbAnswer(write_victims(request.victims), reason)
        at_home = _at_home(pod, request)
        if at_home is None:
            return VerbAnswer(write_victims(request.victims), Reason.HOME_ABSENT if pod.home else Reason.HOME_UNKNOWN)
        return VerbAnswer(write_victims({pod.home: at_home}), Reason.HOME)

    def unchanged(self, verb: str, body: bytes) -> bytes:
        """What `verb` answers when nothing is to be changed: for the edge, when deciding itself has failed."""
        if verb == "preempt":
            return write_victims(read_preempt(body).victims)
        request = read_request(body)
        return write_scores(request.names(), lambda _: 0) if verb == "prioritize" else write_unchanged(request)

    def _member(self, pod: AskedPod | None) -> tuple[HomeMember | None, Reason]:
        if not self._switched_on():
            return None, Reason.FEATURE_OFF
        if pod is None:
            return None, Reason.NOT_MANAGED
        found = home_member(pod.namespace, pod.name, pod.labels, pod.owner, self._world, self._policy())
        return found, Reason.NOT_MANAGED


def _at_home(pod: HomeMember, request: PreemptRequest) -> WireVictims | None:
    """The victims at home, when preempting there harms no more budgets, and no more pods, than anywhere else: a home is
    what somebody wrote on the member's owner."""
    here = request.victims.get(pod.home)
    if here is None or not here.uids or pod.member_set.mode is not HomeMode.REQUIRE:
        return None
    budgets = min(v.pdb_violations for v in request.victims.values())
    pods = min(len(v.uids) for v in request.victims.values())
    return here if here.pdb_violations <= budgets and len(here.uids) <= pods else None
