"""What is broken in a TiKV cluster already: facts that take room on `tikv/…` and `evicting/…` without asking."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from mooring.core.model.cluster import Key, Pod
from mooring.core.model.decision import Fact
from mooring.core.model.tidb import PdView, Store, TidbCluster
from mooring.core.model.times import rfc3339

#: Members away that are named one by one.
MOST_NAMED: Final = 100


def pd_name(cluster: Key, view: PdView | None) -> str:
    """What "one at a time" is counted by: PD's cluster id, whichever TidbClusters use it; until PD has said it, the
    cluster's own name."""
    return str(view.cluster_id) if view is not None and view.cluster_id else str(cluster)


def tikv_target(pd: str) -> str:
    return f"tikv/{pd}"


def evicting_target(pd: str) -> str:
    return f"evicting/{pd}"


def lock_id(pod: Key, uid: str) -> str:
    """PD's maintenance lock while this very pod restarts: the mark, which outlives us, says that it is ours."""
    return f"mooring.{pod.namespace}.{pod.name}.{uid}"


def store_target(cluster: Key, store_id: int) -> str:
    return f"store/{cluster}/{store_id}"


def pod_subject(key: Key) -> str:
    return f"pod/{key}"


def member_name(cluster: Key, ordinal: int) -> str:
    return f"{cluster.name}-tikv-{ordinal}"


def wanted_members(tc: TidbCluster, pods: Iterable[Pod], stores: Mapping[str, Store] | None = None) -> list[str]:
    """The members that should be there. tidb-operator's own count where it is given, else those that are; with v2 also
    those that PD counts on, since nothing tells their names in advance."""
    ordinals = tc.ordinals("tikv")
    if tc.v2:
        counted_on = {n: s for n, s in (stores or {}).items() if s.leads and (s.region_count or s.state == "Up")}
        return sorted({*(p.name for p in pods), *(n for n in counted_on if tc.may_have(n, "tikv"))})
    if ordinals is None:
        return sorted(p.name for p in pods)
    return [member_name(tc.key, i) for i in ordinals]


def counted(target: str, facts: Iterable[Fact]) -> Iterator[Fact]:
    """A spec may ask for any number of members: beyond the first ones, those that are missing are one fact."""
    each = iter(facts)
    yield from islice(each, MOST_NAMED)
    if more := sum(fact.amount for fact in each):
        yield Fact(target, "", more, f"{more} more members are missing")


def members_away(
    tc: TidbCluster,
    pods: Mapping[str, Pod],
    view: PdView | None,
    now: float,
    heartbeat_s: float,
    sharing: Sequence[TidbCluster] = (),
) -> Iterator[Fact]:
    """Whatever a cluster misses already: members that are not there, and silent stores with regions on them. Of the
    clusters that share a PD the first tells of the stores that are nobody's."""
    stores = view.stores_by_pod(tc) if view is not None else None
    if tc.v2 and stores is not None:
        # The names of v2's members tell no cluster; those of tidb-operator v1 do.
        of_v1 = [other for other in sharing if not other.v2 and other.namespace == tc.namespace]
        stores = {name: one for name, one in stores.items() if not any(v1.may_have(name, "tikv") for v1 in of_v1)}
    wanted = wanted_members(tc, pods.values(), stores)
    yield from missing_members(tc, wanted, pods, stores, pd_name(tc.key, view))
    if view is not None and stores is not None and tc.key == first_of(tc, sharing):
        mine = {store.id for name in wanted if (store := stores.get(name)) is not None}
        for other in sharing:
            known = view.stores_by_pod(other)
            mine |= {known[name].id for name in wanted_members(other, (), known) if name in known}
        yield from silent_stores(tc, view, mine, now, heartbeat_s)


def first_of(tc: TidbCluster, sharing: Sequence[TidbCluster]) -> Key:
    return min((other.key for other in sharing), default=tc.key)


def missing_members(
    tc: TidbCluster, wanted: Collection[str], pods: Mapping[str, Pod], stores: Mapping[str, Store] | None, pd: str
) -> Iterator[Fact]:
    """Wanted members minus those Ready whose store is Up, one fact each, named by pod. `stores` None: unknown."""
    return counted(tikv_target(pd), _missing(tc, wanted, pods, stores, tikv_target(pd)))


def _missing(
    tc: TidbCluster, wanted: Collection[str], pods: Mapping[str, Pod], stores: Mapping[str, Store] | None, target: str
) -> Iterator[Fact]:
    known = stores or {}
    # tidb-operator's failover adds a member for one that is lost: it stands in for it once that one's regions are gone.
    spare = sum(_well(pods[name], known.get(name)) for name in pods.keys() - set(wanted))
    for name in wanted:
        subject = pod_subject(Key(tc.namespace, name))
        pod = pods.get(name)
        store = known.get(name)
        if pod is not None and not pod.terminating and pod.ready:
            if store is not None and store.state != "Up" and store.region_count:
                yield Fact(target, subject, 1, f"store {store.id} of {name} is {store.state}")
        elif spare and stores is not None and (store is None or not store.region_count):
            spare -= 1
        elif pod is None:
            yield Fact(target, subject, 1, f"{name} is missing")
        else:
            yield Fact(target, subject, 1, f"{name} is {'leaving' if pod.terminating else 'not Ready'}")


def _well(pod: Pod, store: Store | None) -> bool:
    return pod.ready and not pod.terminating and store is not None and store.state == "Up"


def silent_stores(
    tc: TidbCluster, view: PdView, mine: Collection[int], now: float, heartbeat_s: float
) -> Iterator[Fact]:
    """Stores with regions on them that do not report and that are no wanted member's: lost with a disk, scaled in
    without waiting, or of another cluster in the same PD. If a second store goes away, their regions lose quorum."""
    for store in view.stores:
        if store.id in mine or not store.region_count or not store.leads or _heard_from(store, now, heartbeat_s):
            continue
        text = f"store {store.id} ({store.pod_name}) is {store.state} with {store.region_count} regions on it"
        yield Fact(
            tikv_target(pd_name(tc.key, view)),
            store_target(tc.key, store.id),
            1,
            f"{text}; if it never comes back: pd-ctl store delete {store.id}",
        )


def _heard_from(store: Store, now: float, heartbeat_s: float) -> bool:
    """A store that is being emptied (Offline) serves on as long as it is there."""
    if store.state != "Offline":
        return store.state in {"Up", "Tombstone"}
    return store.last_heartbeat_at is not None and now - store.last_heartbeat_at <= heartbeat_s


def foreign_evictions(
    cluster: Key, view: PdView | None, ours: Iterable[int], now: float, young_s: float
) -> Iterator[Fact]:
    """Evict-leader schedulers in PD that are not ours: another client takes leaders off a store.

    An empty store that is kept evicted is no disruption. A PD that has just started may show any store empty.
    """
    if view is None or not view.evicting:
        return
    mine, known = set(ours), now - view.start_timestamp >= young_s
    leaders = {store.id: store.leader_count for store in view.stores}
    for store_id in view.evicting:
        if store_id not in mine and (leaders.get(store_id, 0) or not known):
            yield Fact(
                evicting_target(pd_name(cluster, view)),
                store_target(cluster, store_id),
                1,
                f"PD already evicts leaders from store {store_id}, not asked by Mooring; if nobody needs it any more: "
                f"pd-ctl scheduler remove evict-leader-scheduler-{store_id}",
            )


def held_lock(cluster: Key, view: PdView | None, ours: Collection[str]) -> Iterator[Fact]:
    """Somebody else works on this PD's stores and holds its maintenance lock: no member goes meanwhile."""
    lock = view.lock if view is not None else None
    if lock is None or lock.id in ours:
        return
    said = f" ({lock.description})" if lock.description else ""
    free = f"if nobody works there any more: DELETE /pd/api/v2/maintenance/{lock} on PD"
    text = f"PD's maintenance lock is held by {lock}{said} since {rfc3339(lock.since)}; {free}"
    pd = pd_name(cluster, view)
    yield Fact(tikv_target(pd), f"lock/{pd}", 1, text)
