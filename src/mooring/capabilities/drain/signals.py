"""Every sign that a node must be emptied, and when it goes. Read from the Node object alone, as the tool that brings
the notice writes it. Mix, home, `why` and the page read this one list.

A sign is of one of three kinds. An *interruption* has a deadline that is real: only then may a pod go past its budget.
A *voluntary* disruption (Karpenter or the cluster autoscaler drain, maintenance, a Node being deleted) has none. A
*recommendation* (AWS says that the machine is more likely than others to go) only prepares: it takes nothing down.

All detectors are read, and the earliest deadline counts. One that tells no moment counts from when it is first seen;
that moment is written into the mark on the node, so that a new leader does not count again. A sign that disappears
again from a Ready node is a notice taken back.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Final

import msgspec

from mooring.core.model.cluster import Node
from mooring.core.model.descriptor import Departure
from mooring.core.model.marks import AGENT, CORDONED_BY, TERMINATES_AT, Mark, read_mark
from mooring.core.model.times import moment

#: What the edge makes of a kubelet that says it is shutting down (`wire.objects.SHUTDOWN`).
_SHUTDOWN: Final = "NodeShutdown"
_Span = Annotated[float, msgspec.Meta(ge=0, le=31_536_000)]


class Sign(StrEnum):
    """Where on a Node a notice stands."""

    #: An annotation whose value is the moment, RFC 3339.
    ANNOTATION = "annotation"
    TAINT = "taint"
    CONDITION = "condition"
    LABEL = "label"
    #: The Node is being deleted.
    DELETION = "deletion"
    #: The kubelet says that the node is shutting down.
    SHUTDOWN = "shutdown"
    #: What `mooring agent` has read of the cloud on that node.
    AGENT = "agent"
    #: A cordon, on spot nodes only. Off unless configured: people cordon too.
    CORDON = "cordon"


class NoticeKind(StrEnum):
    #: The machine goes at a moment that is known: what is not moved by then is lost.
    INTERRUPTION = "interruption"
    #: The node is to be emptied, without a deadline: budgets, quorum and the workload's own limit hold.
    VOLUNTARY = "voluntary"
    #: The node may go: no new pods there, and what was there before is replaced where there is room.
    RECOMMENDATION = "recommendation"


_BY_KEY: Final = frozenset({Sign.ANNOTATION, Sign.TAINT, Sign.CONDITION, Sign.LABEL})
#: All other annotations of a node are dropped at the edge.
_READ: Final = ("vacant.io/", "mooring.dev/", TERMINATES_AT)
INTERRUPT_AT: Final = "vacant.io/interrupt-at"
_OF_AGENT: Final = {
    "interrupt": NoticeKind.INTERRUPTION,
    "empty": NoticeKind.VOLUNTARY,
    "prepare": NoticeKind.RECOMMENDATION,
}


class Detector(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    sign: Sign
    key: str = ""
    #: From the moment it is seen to the moment the node goes. An annotation tells the moment itself.
    notice_s: _Span = 120.0
    kind: NoticeKind = NoticeKind.INTERRUPTION

    def __post_init__(self) -> None:
        if self.sign in _BY_KEY and not self.key:
            raise ValueError(f"a detector of sign {self.sign} has no key: name the {self.sign} that it looks for")
        if self.sign is Sign.ANNOTATION and not self.key.startswith(_READ):
            raise ValueError(
                f"a detector of sign annotation has the key {self.key!r}; annotations of nodes are read only under "
                f"{' and '.join(_READ[:2])}, e.g. {INTERRUPT_AT}"
            )


_VOLUNTARY: Final = NoticeKind.VOLUNTARY
DETECTORS: Final = (
    Detector(sign=Sign.ANNOTATION, key=INTERRUPT_AT),
    Detector(sign=Sign.AGENT),
    # Of its NodeClaim: then Karpenter deletes by force, past budgets and past the gate.
    Detector(sign=Sign.ANNOTATION, key=TERMINATES_AT),
    Detector(sign=Sign.TAINT, key="vacant.io/interrupting"),
    # AWS Node Termination Handler, with taintNode=true.
    Detector(sign=Sign.TAINT, key="aws-node-termination-handler/spot-itn"),
    Detector(sign=Sign.TAINT, key="remediator.kubernetes.azure.com/unschedulable", notice_s=30.0),
    Detector(sign=Sign.CONDITION, key="VMEventScheduled", notice_s=30.0),
    Detector(sign=Sign.TAINT, key="node.cloudprovider.kubernetes.io/shutdown", notice_s=0.0),
    Detector(sign=Sign.TAINT, key="node.kubernetes.io/out-of-service", notice_s=0.0),
    Detector(sign=Sign.SHUTDOWN, notice_s=15.0),
    # Hours ahead, or until a lifecycle hook is answered: the taint does not say when.
    Detector(sign=Sign.TAINT, key="aws-node-termination-handler/asg-lifecycle-termination", kind=_VOLUNTARY),
    Detector(sign=Sign.TAINT, key="aws-node-termination-handler/scheduled-maintenance", kind=_VOLUNTARY),
    # Karpenter, now and before 1.0: for consolidation, drift and interruption alike, and it drains by itself.
    Detector(sign=Sign.TAINT, key="karpenter.sh/disrupted", kind=_VOLUNTARY),
    Detector(sign=Sign.TAINT, key="karpenter.sh/disruption", kind=_VOLUNTARY),
    Detector(sign=Sign.TAINT, key="ToBeDeletedByClusterAutoscaler", kind=_VOLUNTARY),
    # KEP-5683, set by others.
    Detector(sign=Sign.CONDITION, key="DrainInProgress", kind=_VOLUNTARY),
    Detector(sign=Sign.CONDITION, key="MaintenanceInProgress", kind=_VOLUNTARY),
    Detector(sign=Sign.DELETION, kind=_VOLUNTARY),
)


class Signal(msgspec.Struct, frozen=True, gc=False):
    """Something on a node says that it goes. `at` None: so many seconds after it was seen."""

    #: For people: "annotation vacant.io/interrupt-at".
    name: str
    #: When it goes; of a recommendation since when it stands.
    at: float | None
    notice_s: float
    kind: NoticeKind = NoticeKind.INTERRUPTION

    def deadline(self, mark: Mark | None, now: float) -> float | None:
        """Epoch seconds; None: voluntary, it goes when it is empty. `mark`: what a cordon has noted of this very sign,
        where it tells no moment itself."""
        if self.kind is not NoticeKind.INTERRUPTION:
            return None
        if self.at is not None:
            return self.at
        noted = mark is not None and mark.deadline is not None and mark.detail == self.name
        return mark.deadline if noted and mark is not None else now + self.notice_s


def ends_at(node: Node | None) -> float | None:
    """When Karpenter deletes what is left of this node by force; None: it does not."""
    text = node.annotations.get(TERMINATES_AT) if node is not None else None
    return None if text is None else moment(text)


def signals_of(node: Node, detectors: Iterable[Detector], *, spot: bool) -> list[Signal]:
    """All of them. `spot`: whether it is a spot node."""
    return [signal for detector in detectors for signal in _signals(detector, node, spot)]


def earliest(signals: Iterable[Signal], mark: Mark | None, now: float) -> tuple[Signal, float | None] | None:
    """The sign that counts, and its deadline: the earliest; one without a deadline only where none has one, and a
    recommendation last."""
    times = [(signal, signal.deadline(mark, now)) for signal in signals]
    timed = [(signal, at) for signal, at in times if at is not None]
    if timed:
        return min(timed, key=lambda one: one[1])
    return min(times, key=lambda one: one[0].kind is NoticeKind.RECOMMENDATION, default=None)


def _signals(detector: Detector, node: Node, spot: bool) -> Iterator[Signal]:
    if detector.sign is Sign.AGENT:
        yield from _by_agent(node.annotations[AGENT]) or () if AGENT in node.annotations else ()
        return
    for name, at in _seen(detector, node, spot):
        yield Signal(name, at, detector.notice_s, detector.kind)


class _Notice(msgspec.Struct):
    kind: str
    what: str
    at: str


class _Agent(msgspec.Struct):
    notices: dict[str, _Notice]


_AGENT: Final = msgspec.json.Decoder(_Agent)


@lru_cache(maxsize=16384)
def _by_agent(text: str) -> tuple[Signal, ...] | None:
    """None: no agent of ours wrote this. A notice that is for people alone is no sign."""
    try:
        found = [
            (_OF_AGENT.get(one.kind), one.what[:80], moment(one.at)) for one in _AGENT.decode(text).notices.values()
        ]
    except (msgspec.DecodeError, RecursionError):
        return None
    if any(kind is not None and at is None for kind, _, at in found):
        return None
    return tuple(Signal(f"{what}, annotation {AGENT}", at, 0.0, kind) for kind, what, at in found if kind is not None)


def _seen(detector: Detector, node: Node, spot: bool) -> Iterator[tuple[str, float | None]]:
    key = detector.key
    match detector.sign:
        case Sign.ANNOTATION if key in node.annotations:
            at = moment(node.annotations[key])
            if at is not None:
                yield f"annotation {key}", at
        case Sign.TAINT if any(t.key == key for t in node.taints):
            yield f"taint {key}", None
        case Sign.CONDITION if key in node.conditions and key not in node.own_conditions:
            yield f"condition {key}", None
        case Sign.LABEL if key in node.labels:
            yield f"label {key}", None
        case Sign.DELETION if node.deletion_at is not None:
            yield "the Node is being deleted", None
        case Sign.SHUTDOWN if node.ready == "False" and node.ready_reason == _SHUTDOWN:
            yield "the kubelet is shutting down", None
        case Sign.CORDON if node.unschedulable and spot and _cordoned_by_others(node):
            yield "a cordon on a spot node", None
        case _:
            pass


def _cordoned_by_others(node: Node) -> bool:
    """Also once our own mark stands beside it, which says that the cordon was there before."""
    if CORDONED_BY not in node.annotations:
        return True
    mark = read_mark(node.annotations[CORDONED_BY])
    return mark is not None and mark.before.get("unschedulable") == "true"


def departures(node: Node, detectors: Iterable[Detector]) -> Iterator[Departure]:
    """Every sign that a node goes, whatever is done about it. A deletion, a shutdown and a cordon stand in the Node's
    own fields, where everyone reads them."""
    for detector in detectors:
        if detector.sign in {Sign.DELETION, Sign.SHUTDOWN, Sign.CORDON}:
            continue
        if detector.sign is Sign.AGENT and AGENT in node.annotations:
            for one in _by_agent(node.annotations[AGENT]) or ():
                if one.kind is not NoticeKind.RECOMMENDATION:
                    yield Departure(one.name, one.at if one.kind is NoticeKind.INTERRUPTION else None)
            continue
        for name, at in _seen(detector, node, False):
            yield Departure(name, at)
        text = node.annotations.get(detector.key) if detector.sign is Sign.ANNOTATION else None
        if text is not None and moment(text) is None:
            yield Departure(f"annotation {detector.key}", unread=(detector.key, text))


def unread(node: Node, detectors: Iterable[Detector]) -> str:
    """A notice that cannot be read, in words; "" when there is none."""
    text = node.annotations.get(AGENT)
    if text is not None and _by_agent(text) is None and any(one.sign is Sign.AGENT for one in detectors):
        return f"annotation {AGENT} is {text[:40]!r}, which no agent of this release writes; remove it"
    wrong = (one.unread for one in departures(node, detectors) if one.unread is not None)
    for key, text in wrong:
        return f"annotation {key} is {text[:40]!r}, which is not a time; write it as 2026-01-31T08:15:00Z"
    return ""
