"""Cordon a node with a mark, and lift what the mark says we did.

The mark (`mooring.dev/cordoned-by`) names who cordoned and what was there before: a cordon that a person set stays.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from mooring.core.model.cluster import Node, Pod
from mooring.core.model.decision import Verdict
from mooring.core.model.instructions import Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import CORDONED_BY, Mark, read_mark, write_mark
from mooring.core.model.reasons import Reason, State

#: So long after the cordon a pod may still come that kube-scheduler had placed before it saw the cordon.
_IN_FLIGHT_S: Final = 5.0
_NOTHING: Mapping[str, str | None] = MappingProxyType({})


def cordon_mark(node: Node, source: str) -> Mark | None:
    """The mark of this source; one of another, or one that cannot be read, is not ours."""
    text = node.annotations.get(CORDONED_BY)
    mark = read_mark(text) if text else None
    return mark if mark is not None and mark.source == source else None


def cordon(node: Node, mark: Mark | None, why: str, annotations: Mapping[str, str | None] = _NOTHING) -> Patch:
    """Mark and cordon in one write. What was there before the first mark of ours stays what was there before.

    `mark` None leaves the mark that is there.
    """
    written = dict(annotations)
    if mark is not None:
        earlier = read_mark(node.annotations.get(CORDONED_BY, ""))
        before = earlier.before if earlier is not None else {"unschedulable": "true" if node.unschedulable else "false"}
        written[CORDONED_BY] = write_mark(msgspec.structs.replace(mark, before=before))
    patch = {"metadata": {"annotations": written}, "spec": {"unschedulable": True}}
    return Patch(
        kind=Kind.NODE, key=node.key, uid=node.uid, resource_version=node.resource_version, patch=patch, why=why
    )


def is_ours(mark: Mark | None) -> bool:
    """Whether the cordon is ours to lift: it was not there before the mark."""
    return mark is not None and mark.before.get("unschedulable") == "false"


def lift_cordon(node: Node, source: str, why: str, also: Iterable[str] = ()) -> Patch:
    """Our mark goes, the annotations `also` with it, and the cordon when it was ours."""
    mark = cordon_mark(node, source)
    gone = [*also, *((CORDONED_BY,) if mark is not None else ())]
    patch: dict[str, object] = {"metadata": {"annotations": dict.fromkeys(gone)}}
    if is_ours(mark) and node.unschedulable:
        patch["spec"] = {"unschedulable": None}
    return Patch(
        kind=Kind.NODE, key=node.key, uid=node.uid, resource_version=node.resource_version, patch=patch, why=why
    )


def came_past(pod: Pod, cordoned_at: float) -> Verdict | None:
    """A pod that was created after the cordon and still runs there: its template names the node, or tolerates the
    cordon.
    If it were evicted, it would come back again and again, so it stays and is reported. None for all other pods."""
    if pod.created_at <= cordoned_at + _IN_FLIGHT_S:
        return None
    words = f"{pod.name} came to {pod.node} past its cordon, and would come back if it were evicted"
    remedy = "let its pod template neither name the node nor tolerate node.kubernetes.io/unschedulable"
    return Verdict(State.BLOCKED, Reason.CONFLICT, words, remedy)
