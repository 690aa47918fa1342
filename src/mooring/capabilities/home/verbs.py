"""The extender's three verbs, from the world alone: a scheduler's request in, its answer out.

    filter      a member's home among the candidates → only it; else all of them, unchanged
    prioritize  a member's home 10, every other node 0: a preference instead of a must
    preempt     a member that must preempt anyway does so at home, unless that breaks more budgets than elsewhere

All three fail open (H2, H7): a pod that is not ours, a feature that is off, a world that is not synced yet, data that
is missing or stale: everything passes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from mooring.capabilities.home.members import MemberSet, member_set_of
from mooring.capabilities.home.memory import last_home
from mooring.capabilities.home.policy import HomeMode, HomePolicy
from mooring.capabilities.home.reserve import reservation_on
from mooring.capabilities.home.wire import (
    AskedPod,
    ExtenderRequest,
    NodeFields,
    PreemptRequest,
    WireVictims,
    pod_in_front,
    read_preempt,
    read_request,
)
from mooring.core.model.cluster import Owner
from mooring.core.model.marks import RESERVED_TAINT
from mooring.core.model.reasons import Reason
from mooring.core.world.read import WorldRead

# ── Answers ─────────────────────────────────────────────────────────────────────────────────────────────────────────
#
# The extender's answers, extender/v1: full Nodes go back as the bytes that came.

_Nodes = Sequence[msgspec.Raw | NodeFields]
_encode = msgspec.json.Encoder().encode
_NO_ERROR: Final = b',"FailedAndUnresolvableNodes":{},"Error":""}'


def write_unchanged(request: ExtenderRequest) -> bytes:
    """Every candidate as it came."""
    nodes = request.given_nodes
    if isinstance(nodes, msgspec.Raw):
        return b"".join((b'{"Nodes":', nodes, _after_nodes(request.given_names, {})))
    return _written(None if nodes is None else request.items, request.given_names, {})


def write_only(request: ExtenderRequest, names: list[str], only: str, sentence: str) -> bytes:
    """One candidate and no other; `names` are all of them, `sentence` says why not the rest."""
    failed = dict.fromkeys(names, sentence)
    del failed[only]
    return _written(_nodes_where(request, names, {only}.__contains__), _given(request, [only]), failed)


def write_without(request: ExtenderRequest, names: list[str], without: Mapping[str, str]) -> bytes:
    """Every candidate but those in `without`, which says why not."""
    kept = [name for name in names if name not in without]
    nodes = _nodes_where(request, names, lambda name: name not in without)
    return _written(nodes, _given(request, kept), without)


def _given(request: ExtenderRequest, names: list[str]) -> list[str] | None:
    return None if request.given_names is None else names


def _nodes_where(request: ExtenderRequest, names: list[str], keep: Callable[[str], bool]) -> _Nodes | None:
    if request.given_nodes is None:
        return None
    mine = names if request.given_names is None else request.node_names()
    # Names and Nodes that do not name the same: better all of them than none.
    return [raw for name, raw in zip(mine, request.items, strict=True) if keep(name)] or request.items


def _written(nodes: _Nodes | None, names: list[str] | None, failed: Mapping[str, str]) -> bytes:
    parts: list[Any] = [b'{"Nodes":null']
    if nodes is not None:
        parts = [b'{"Nodes":{"metadata":{},"items":[']
        for node in nodes:
            parts += node.pieces() if isinstance(node, NodeFields) else (node,)
            parts.append(b",")
        if nodes:
            parts.pop()
        parts.append(b"]}")
    parts.append(_after_nodes(names, failed))
    return b"".join(parts)


def _after_nodes(names: list[str] | None, failed: Mapping[str, str]) -> bytes:
    return b"".join((b',"NodeNames":', _encode(names), b',"FailedNodes":', _encode(failed), _NO_ERROR))


class _HostScore(msgspec.Struct, frozen=True, gc=False):
    host: str = msgspec.field(name="Host")
    score: int = msgspec.field(name="Score")


def write_scores(names: Sequence[str], score: Callable[[str], int]) -> bytes:
    """Written as they are made, a thousand at a time."""
    batches = (names[at : at + 1000] for at in range(0, len(names), 1000))
    return b"[%s]" % b",".join(_encode([_HostScore(n, score(n)) for n in batch])[1:-1] for batch in batches)


def write_victims(victims: Mapping[str, WireVictims]) -> bytes:
    return _encode(
        {
            "NodeNameToMetaVictims": {
                name: {"Pods": [{"UID": uid} for uid in v.uids], "NumPDBViolations": v.pdb_violations}
                for name, v in victims.items()
            }
        }
    )


# ── Choice ──────────────────────────────────────────────────────────────────────────────────────────────────────────
#
# Which of a scheduler's candidates a member may have: its home when it is there, else all of them.
#
# Home never narrows to nothing: where our data is missing, stale or says a node that is not offered, every candidate
# comes back, and the scheduler picks (H2).

#: extender/v1: the highest score an extender gives.
HIGHEST: Final = 10


class HomeMember(msgspec.Struct, frozen=True, gc=False):
    """A pod that is a member of some set, as a scheduler asks about it."""

    namespace: str
    name: str
    member_set: MemberSet
    home: str


class HomeChoice(msgspec.Struct, frozen=True, gc=False):
    """`only` set: that node and no other. Else all candidates but `without`."""

    reason: Reason
    only: str = ""
    #: Node → the sentence that says why not.
    without: Mapping[str, str] = {}
    #: The sentence for every other node, when `only` is set.
    sentence: str = ""


def home_member(
    namespace: str,
    name: str,
    labels: Mapping[str, str],
    owner: Owner | None,
    world: WorldRead,
    policy: HomePolicy,
) -> HomeMember | None:
    """None: the pod is none of ours, and nothing about its candidates changes."""
    member_set = member_set_of(namespace, labels, owner, world, policy)
    return None if member_set is None else HomeMember(namespace, name, member_set, last_home(member_set, name, world))


def choose(pod: HomeMember, names: Sequence[str], world: WorldRead) -> HomeChoice:
    if pod.home in names and pod.member_set.mode is HomeMode.REQUIRE:
        return HomeChoice(Reason.HOME, pod.home, sentence=f"mooring: its home is {pod.home}")
    taken = _reserved_for_others(pod, names, world)
    reason = _why_all(pod, names)
    if taken and len(taken) < len(names):
        return HomeChoice(reason, without=taken)
    return HomeChoice(reason)


def _why_all(pod: HomeMember, names: Sequence[str]) -> Reason:
    if not pod.home:
        return Reason.HOME_UNKNOWN
    return Reason.HOME if pod.home in names else Reason.HOME_ABSENT


def _reserved_for_others(pod: HomeMember, names: Sequence[str], world: WorldRead) -> dict[str, str]:
    """Members tolerate each other's reservations, since one toleration serves them all: here they are kept apart."""
    found = {}
    for node in world.nodes_with_taint(RESERVED_TAINT):
        reservation = reservation_on(node)
        if node.name in names and reservation is not None and reservation.pod != f"{pod.namespace}/{pod.name}":
            if node.name == pod.home:
                continue  # both belong there; resources decide
            found[node.name] = f"mooring: {node.name} is reserved for {reservation.pod}"
    return found


def score(pod: HomeMember | None, name: str) -> int:
    return HIGHEST if pod is not None and name == pod.home else 0


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
