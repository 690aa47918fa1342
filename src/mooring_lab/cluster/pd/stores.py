"""A store as PD reports it, from what TiKV said last."""

from typing import TYPE_CHECKING

from mooring.core.model.tidb import Store
from mooring_lab.cluster.pd.tikv import TikvStore

if TYPE_CHECKING:
    from mooring_lab.cluster.pd.server import PdServer


def row(pd: "PdServer", store: TikvStore) -> Store:
    size, capacity = pd.settings.region_size_mib, pd.settings.capacity_gib << 30
    leaders, regions = pd.heard.leader_counts.get(store.id, 0), pd.heard.region_counts.get(store.id, 0)
    free = max(0, capacity - (regions * size << 20))
    if store.free_share is not None:
        free = int(store.free_share * capacity)
    return Store(
        id=store.id,
        address=store.address,
        state=pd.state_of(store),
        leader_count=leaders,
        region_count=regions,
        leader_size_mib=leaders * size,
        region_size_mib=regions * size,
        capacity_bytes=capacity,
        available_bytes=free,
        last_heartbeat_at=pd.timeline.now() - (pd.timeline.monotonic() - pd.last_heartbeat(store)),
        started_at=store.started_at,
        labels=store.labels,
    )
