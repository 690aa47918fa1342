"""The annotations that placement reads, in one table; all others are dropped at the edge.

Annotations are where clusters keep their bulk (`last-applied-configuration` alone is often larger than everything we
read of a pod), so this is a list of what stays, not of what goes. A key ending in `/` or `.` is a prefix.

A tenant writes any key under these prefixes, as long as it likes: a mark counts up to 64 KiB, any other value up to
1 KiB, and of those other values 16 KiB an object.
"""

from collections.abc import Mapping
from typing import Final

from mooring.core.model import marks
from mooring.core.model.kinds import Kind
from mooring.core.model.limits import KIB, LONGEST_MARK, LONGEST_VALUE

MIRROR: Final = "kubernetes.io/config.mirror"
REVISION: Final = "deployment.kubernetes.io/revision"

_OURS: Final = ("mooring.dev/", "vacant.io/", "tidb.pingcap.com/")

KEPT: Final[dict[Kind, tuple[str, ...]]] = {
    Kind.POD: (*_OURS, "controller.kubernetes.io/pod-deletion-cost"),
    Kind.NODE: (*_OURS, "cke.cybozu.com/", "sabakan.cke.cybozu.com/"),
    Kind.DEPLOYMENT: _OURS,
    Kind.STATEFUL_SET: _OURS,
    Kind.ROLLOUT: _OURS,
    Kind.CLONE_SET: _OURS,
    # The middle three for `delete-slots`: which members an advanced StatefulSet leaves out.
    Kind.TIDB_CLUSTER: (
        *_OURS,
        "tikv.tidb.pingcap.com/",
        "tidb.tidb.pingcap.com/",
        "pd.tidb.pingcap.com/",
        "pingcap.com/",
    ),
    # Ours, kept whole but for kubectl's copy of the object.
    Kind.CONFIG_MAP: ("",),
}

_NEVER: Final = "kubectl.kubernetes.io/last-applied-configuration"


#: Values that are documents; any other is a word, a number or a time.
_MARKS: Final = frozenset(
    {
        marks.HANDOFF,
        marks.LEAVING,
        marks.CORDONED_BY,
        marks.RETIRING,
        marks.HOME,
        marks.RESERVED_TAINT,
        marks.PD_ENDPOINTS,
        "mooring.dev/balance",
        "mooring.dev/fleet",
    }
)
#: Which members of a TidbCluster are left out.
_DELETE_SLOTS: Final = "/delete-slots"
#: Characters of keys and values of an object's other annotations together.
MOST_OTHERS: Final = 16 * KIB


def kept(kind: Kind, annotations: Mapping[str, str] | None) -> dict[str, str]:
    """Those of `annotations` that placement reads on this kind, cut to size."""
    if not annotations:
        return {}
    prefixes = KEPT.get(kind, _OURS)
    few = {k: v for k, v in annotations.items() if k.startswith(prefixes) and k != _NEVER}
    return few if sum(map(len, few.values())) <= LONGEST_VALUE else _cut(few)


def _cut(annotations: dict[str, str]) -> dict[str, str]:
    """By the order of their keys, so that the same ones stay whatever order they come in."""
    left, cut = MOST_OTHERS, dict[str, str]()
    for key, value in sorted(annotations.items()):
        if key in _MARKS or key.endswith(_DELETE_SLOTS):
            cut[key] = value[:LONGEST_MARK]
        elif (left := left - len(key) - min(len(value), LONGEST_VALUE)) >= 0:
            cut[key] = value[:LONGEST_VALUE]
    return cut
