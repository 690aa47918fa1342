"""Which of a scheduler's candidates a member may have: its home when it is there, else all of them.

Home never narrows to nothing: where our data is missing, stale or says a node that is not offered, every candidate
comes back, and the scheduler picks (H2).
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from mooring.capabilities.home.members import MemberSet, member_set_of
from mooring.capabilities.home.memory import last_home
from mooring.capabilities.home.policy import HomeMode, HomePolicy
from mooring.capabilities.home.reservation import reservation_on
from mooring.core.model.cluster import Owner
from mooring.core.model.marks import RESERVED_TAINT
from mooring.core.model.reasons import Reason
from mooring.core.world.read import WorldRead

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
