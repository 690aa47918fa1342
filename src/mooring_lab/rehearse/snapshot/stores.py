"""A PD of the snapshot in the sandbox, and the same the other way round: how many regions stand on which stores.

A cluster may have a million regions; a rehearsal does not get more exact by moving each. Above `MAX_REGIONS` every
placement is represented by its share, at least one region each, and figures in the report are scaled back.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from mooring.clients.ports import Json
from mooring.core.model.cluster import Key
from mooring.core.model.tidb import COMPONENT, MANAGED_BY
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.controllers.podstate import labels_of
from mooring_lab.cluster.controllers.tidb.operator import cluster_of
from mooring_lab.cluster.pd import SandboxPd
from mooring_lab.cluster.pd.settings import PdSettings
from mooring_lab.cluster.pd.tikv import Tikv
from mooring_lab.rehearse.snapshot.schema import PdShot, PlacementShot, StoreShot

#: At most so many regions are played one by one.
MAX_REGIONS: Final = 2_000
#: What a PD that was not read is assumed to hold.
ASSUMED_REGIONS: Final = 300
_REPLICAS: Final = 3


def build_pd(cluster: Cluster, shot: PdShot) -> float:
    """The PD under `cluster.pd`; answers with how many real regions one played region stands for."""
    settings = PdSettings(members=shot.members) if shot.members else PdSettings()
    pd = SandboxPd(
        cluster.timeline, seed=cluster.seed, cluster=shot.cluster, namespace=shot.namespace, settings=settings
    )
    cluster.pd[shot.namespace, shot.cluster] = pd
    for store in shot.stores:
        pd.attach(_pod_of(store), store.id, address=store.address, labels=dict(store.labels), ready=_runs(store))
        if store.state in {"Offline", "Tombstone"}:
            pd.server.asked_state[store.id] = store.state
    known = {store.id for store in shot.stores if store.state != "Tombstone"}
    placements = [p for p in shot.placements if p.regions > 0 and set(p.peers) <= known]
    total = sum(p.regions for p in placements)
    played = thinned(placements)
    pd.place([(p.peers, _leader(p, pd.server.tikv)) for p in played for _ in range(p.regions)])
    if shot.leader in settings.members:
        pd.leader = shot.leader
    pd.has_run_since(shot.started_at or int(_long_ago(cluster.timeline)))
    for store_id in shot.evicting:
        if store_id in known:
            pd.server.evicting[store_id] = None
    return total / max(1, sum(p.regions for p in played))


def thinned(placements: Sequence[PlacementShot], most: int = MAX_REGIONS) -> list[PlacementShot]:
    """Each placement's share of `most`, rounded, and never none; all of them when they are no more than that."""
    total = sum(p.regions for p in placements)
    if total <= most:
        return list(placements)
    return [
        PlacementShot(peers=p.peers, leader=p.leader, regions=max(1, round(p.regions * most / total)))
        for p in placements
    ]


def assumed(key: Key, pods: Sequence[Json]) -> PdShot:
    """A PD that was not read: one store per TiKV pod, regions spread evenly over them."""
    names = sorted(p["metadata"]["name"] for p in tikv_pods(pods, key))
    ids = range(1, len(names) + 1)
    address = f".{key.name}-tikv-peer.{key.namespace}.svc:20160"
    stores = tuple(StoreShot(id=i, address=name + address) for i, name in zip(ids, names, strict=True))
    placements = []
    if names:
        width = min(_REPLICAS, len(names))
        around = [tuple(sorted((at + k) % len(names) + 1 for k in range(width))) for at in range(len(names))]
        share = max(1, ASSUMED_REGIONS // len(names))
        placements = [PlacementShot(peers=peers, leader=at + 1, regions=share) for at, peers in enumerate(around)]
    members = tuple(sorted(p["metadata"]["name"] for p in component_pods(pods, key, "pd")))
    return PdShot(
        namespace=key.namespace, cluster=key.name, members=members, stores=stores, placements=tuple(placements)
    )


def tikv_pods(pods: Sequence[Json], key: Key) -> list[Json]:
    return component_pods(pods, key, "tikv")


def component_pods(pods: Sequence[Json], key: Key, component: str) -> list[Json]:
    wanted = {MANAGED_BY: "tidb-operator", COMPONENT: component}
    return [
        pod for pod in pods if wanted.items() <= labels_of(pod).items() and cluster_of(pod) == (key.namespace, key.name)
    ]


# ── Looking at a PD while it is played ────────────────────────────────────────────────────────────────────────────


def without_leader(tikv: Tikv) -> int:
    return len(tikv.groups) - sum(len(led) for led in tikv.led.values())


def without_quorum(tikv: Tikv) -> int:
    """Regions of which a majority of voters is on stores that do not run: nothing is written to them."""
    alive: Mapping[int, bool] = {store_id: store.alive for store_id, store in tikv.stores.items()}
    if all(alive.values()):
        return 0
    lost = 0
    for group in tikv.groups.values():
        voters = [peer.store_id for peer in group.peers if peer.role != "Learner"]
        lost += 2 * sum(alive[store] for store in voters) <= len(voters)
    return lost


def _leader(placement: PlacementShot, tikv: Tikv) -> int:
    """Its own when that store runs, else the first voter's that does; none without a majority."""
    alive = [store for store in placement.peers if tikv.stores[store].alive]
    if 2 * len(alive) <= len(placement.peers):
        return 0
    return placement.leader if placement.leader in alive else alive[0]


def _pod_of(store: StoreShot) -> str:
    return store.address.split(":", 1)[0].split(".", 1)[0]


def _runs(store: StoreShot) -> bool:
    return store.state in {"Up", "Offline"}


def _long_ago(timeline: Timeline) -> float:
    return timeline.now() - 86_400.0
