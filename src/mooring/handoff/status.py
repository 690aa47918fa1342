"""What is broken in a TiKV cluster already: facts that take room on `tikv/…` and `evicting/…` without asking."""

from collections.abc import Iterable, Iterator

from mooring.model.cluster import Key, Pod
from mooring.model.decision import Fact
from mooring.model.tidb import PdView, TidbCluster


def tikv_target(cluster: Key) -> str:
    return f"tikv/{cluster}"


def evicting_target(cluster: Key) -> str:
    return f"evicting/{cluster}"


def store_target(cluster: Key, store_id: int) -> str:
    return f"store/{cluster}/{store_id}"


def pod_subject(key: Key) -> str:
    return f"pod/{key}"


def member_name(cluster: Key, ordinal: int) -> str:
    return f"{cluster.name}-tikv-{ordinal}"


def wanted_members(tc: TidbCluster, pods: Iterable[Pod]) -> list[str]:
    """The members that should be there. tidb-operator's own count where it is given, else those that are."""
    if tc.tikv_replicas is None:
        return sorted(p.name for p in pods)
    return [member_name(tc.key, i) for i in range(tc.tikv_replicas)]


def missing_members(tc: TidbCluster, pods: dict[str, Pod], view: PdView | None) -> Iterator[Fact]:
    """Wanted members minus those Ready whose store is Up, one fact each, named by pod."""
    target = tikv_target(tc.key)
    for name in wanted_members(tc, pods.values()):
        subject = pod_subject(Key(tc.namespace, name))
        pod = pods.get(name)
        if pod is None:
            yield Fact(target, subject, 1, f"{name} is missing")
        elif pod.terminating or not pod.ready:
            yield Fact(target, subject, 1, f"{name} is {'leaving' if pod.terminating else 'not Ready'}")
        elif view is not None:
            store = view.store_of(name)
            if store is not None and store.state != "Up" and store.region_count:
                yield Fact(target, subject, 1, f"store {store.id} of {name} is {store.state}")


def foreign_evictions(cluster: Key, view: PdView | None, ours: Iterable[int]) -> Iterator[Fact]:
    """Evict-leader schedulers in PD that are not ours: somebody else takes leaders off a store."""
    if view is None or not view.evicting:
        return
    mine = set(ours)
    for store_id in view.evicting:
        if store_id not in mine:
            yield Fact(
                evicting_target(cluster),
                store_target(cluster, store_id),
                1,
                f"PD already evicts leaders from store {store_id}, not asked by Mooring",
            )
