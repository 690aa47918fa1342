"""The annotations that placement reads, in one table; all others are dropped at the edge.

Annotations are where clusters keep their bulk (`last-applied-configuration` alone is often larger than everything we
read of a pod), so this is a list of what stays, not of what goes. A key ending in `/` or `.` is a prefix.
"""

from collections.abc import Mapping
from typing import Final

from mooring.core.model.kinds import Kind

MIRROR: Final = "kubernetes.io/config.mirror"
REVISION: Final = "deployment.kubernetes.io/revision"

_OURS: Final = ("mooring.dev/", "vacant.io/", "tidb.pingcap.com/")

KEPT: Final[dict[Kind, tuple[str, ...]]] = {
    Kind.POD: (*_OURS, "controller.kubernetes.io/pod-deletion-cost"),
    Kind.NODE: (*_OURS, "cke.cybozu.com/", "sabakan.cke.cybozu.com/"),
    Kind.DEPLOYMENT: _OURS,
    Kind.STATEFUL_SET: _OURS,
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


def kept(kind: Kind, annotations: Mapping[str, str] | None) -> dict[str, str]:
    """Those of `annotations` that placement reads on this kind."""
    if not annotations:
        return {}
    prefixes = KEPT.get(kind, _OURS)
    return {k: v for k, v in annotations.items() if k.startswith(prefixes) and k != _NEVER}
