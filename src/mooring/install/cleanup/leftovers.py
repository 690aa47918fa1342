"""What marks say was begun and is still there (the leftovers of each feature), and the write that ends each.

A running Mooring ends by itself what it began, also of a feature that was switched off, while it has the rights. Once
the rights are gone with the feature, a person must run `mooring cleanup --feature` with their own rights; `mooring
doctor` says so. Both read the same list. Only what a mark says we did is here; what was there before us stays.
"""

from collections.abc import Collection, Iterable

from mooring.capabilities.registry import descriptors
from mooring.core.model.cluster import ConfigMap, Node, Pod
from mooring.core.model.descriptor import Leftover, Marked
from mooring.core.model.marks import Mark
from mooring.core.model.tidb import TidbCluster


class FeatureLeftover(Leftover, frozen=True, kw_only=True):
    feature: str


def feature_of(mark: Mark) -> str:
    """The feature that wrote a mark: the one that owns its source."""
    return next((one.name for one in descriptors() if mark.source in one.sources), mark.source)


def leftovers(
    pods: Iterable[Pod],
    nodes: Iterable[Node],
    clusters: Iterable[TidbCluster],
    replica_sets: Collection[str],
    memories: Iterable[ConfigMap] = (),
) -> list[FeatureLeftover]:
    """What each capability left behind. `replica_sets`: the uids of those that exist."""
    marked = Marked(tuple(pods), tuple(nodes), tuple(clusters), frozenset(replica_sets), tuple(memories))
    found = ((one.name, left) for one in descriptors() for left in one.leftovers(marked))
    return [FeatureLeftover(left.what, left.writes, feature=name) for name, left in found]
