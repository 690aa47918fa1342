"""A reservation as it stands on a node: a taint that keeps others out, and a mark beside it that says whose it is.

The taint is `mooring.dev/reserved=<pod>:NoSchedule`; only pods that tolerate it may come, and members do, by a line
in their pod template. The mark names pod, operator and until when. Both are written and removed in one write.
"""

from typing import Final

from mooring.core.model.cluster import Node, Pod, Taint
from mooring.core.model.marks import RESERVED_TAINT, Mark, read_mark

NO_SCHEDULE: Final = "NoSchedule"
#: What a member's pod template must tolerate, in words.
TOLERATION: Final = f"{{key: {RESERVED_TAINT}, operator: Exists, effect: {NO_SCHEDULE}}}"


#: Said of a reservation whose mark is missing or cannot be read.
UNKNOWN: Final = (
    f"tainted {RESERVED_TAINT} and no mark says for whom: other pods are not scheduled there, and Mooring leaves it"
)


def free_command(node: str) -> str:
    return f"kubectl taint node {node} {RESERVED_TAINT}- && kubectl annotate node {node} {RESERVED_TAINT}-"


def reservation_taint(pod: str) -> Taint:
    """The value is for people; it must be a label's value, so a name that is too long is left out."""
    return Taint(RESERVED_TAINT, NO_SCHEDULE, pod if len(pod) <= 63 else "")


def tolerates_reservation(pod: Pod) -> bool:
    taint = reservation_taint(pod.name)
    return any(t.tolerates(taint) for t in pod.shape.tolerations)


def reservation_on(node: Node) -> Mark | None:
    """For whom this node is reserved, or None: for no member, or a mark that cannot be read and is left alone."""
    text = node.annotations.get(RESERVED_TAINT)
    mark = read_mark(text) if text else None
    return mark if mark is not None and mark.pod else None


def has_reservation_taint(node: Node) -> bool:
    return any(t.key == RESERVED_TAINT and t.effect == NO_SCHEDULE for t in node.taints)
