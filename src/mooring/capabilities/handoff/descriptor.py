"""Handoff, described to the rest of the product."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mooring.capabilities.drain.leaving import marks_of
from mooring.capabilities.handoff.capability import Handoff
from mooring.capabilities.handoff.examine import shared_annotations
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.report import report
from mooring.core.model.descriptor import EVENTS, POD_WRITES, Descriptor, Leftover, Marked, Right
from mooring.core.model.instructions import Patch, RemoveEvictLeader
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF, read_marks
from mooring.core.model.tidb import TidbCluster

WHY: Final = "cleanup"


def leftovers(marked: Marked) -> Iterator[Leftover]:
    for tc in marked.clusters:
        yield from _of_cluster(tc)
    yield from marks_of(marked.pods, "handoff")


def _of_cluster(tc: TidbCluster) -> Iterator[Leftover]:
    """Schedulers that we added go first, and only then the marks: what a mark says must be true until it is gone, or
    a scheduler in a PD that does not answer would be lost track of."""
    text = tc.annotations.get(HANDOFF, "")
    marks = read_marks(text)
    if marks is None:
        yield Leftover(f"tidbcluster {tc.key}: {HANDOFF} cannot be read, so it is left alone")
    elif text:
        ours = {n: m for n, m in sorted(marks.items()) if m.store_id and m.evicts}
        removals = [RemoveEvictLeader(cluster=tc.key, store_id=m.store_id, why=WHY) for m in ours.values()]
        entries: dict[str, object] = {"metadata": {"annotations": {HANDOFF: None}}}
        if marks:
            entries["status"] = {"tikv": {"evictLeaderStatus": dict.fromkeys(marks)}}
        drop = Patch(kind=Kind.TIDB_CLUSTER, key=tc.key, uid=tc.uid, patch=entries, why=WHY)
        stores = [f"let store {m.store_id} ({n}) have leaders again" for n, m in ours.items()]
        what = ", ".join([*stores, f"drop {len(marks)} {'mark' if len(marks) == 1 else 'marks'}"])
        yield Leftover(f"tidbcluster {tc.key}: {what}", (*removals, drop))


def report_of(engine: Any, config: Any) -> Mapping[str, Any]:
    found = report(engine.world, engine.queue, engine.running, config.policy(HandoffPolicy), engine.now)
    return {**found, "leading": engine.leading}


DESCRIPTOR = Descriptor(
    name="handoff",
    sources=("handoff",),
    policy=HandoffPolicy,
    make=lambda config: Handoff(config.policy(HandoffPolicy)),
    asks=("pd",),
    limits={
        "evicting": (1, "leaders may leave one store at a time"),
        "tikv": (1, "members of one TiKV cluster away at once"),
    },
    # Marks and requests on pods and TidbClusters; a pod whose store is proven empty is deleted, others are evicted.
    rights=(EVENTS, *POD_WRITES, Right("pingcap.com", "tidbclusters", ("get", "patch"))),
    phrases={
        "evict-leaders": ("{it} handing over", "when {it} is back"),
        "restart-tikv": ("{it} restarting", "when {it} is back"),
    },
    request="a hand-over",
    key_kind="cluster",
    leftovers=leftovers,
    report=report_of,
    examine=shared_annotations,
    codes={"MO603": "Mooring and tidb-operator act on the same annotations"},
)
