"""Handoff, described to the rest of the product."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mooring.capabilities.drain import request
from mooring.capabilities.handoff import led, outlived
from mooring.capabilities.handoff.capability import Handoff
from mooring.capabilities.handoff.facts import lock_id
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.report import report
from mooring.core.model.cluster import Key
from mooring.core.model.descriptor import (
    EVENTS,
    MEMORY,
    POD_WRITES,
    About,
    Descriptor,
    Examined,
    Leftover,
    Marked,
    Right,
)
from mooring.core.model.finding import Finding, ill, well
from mooring.core.model.instructions import Patch, ReleasePdLock, RemoveEvictLeader
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF, read_marks
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason
from mooring.core.model.tidb import TidbCluster

# ── Examine ─────────────────────────────────────────────────────────────────────────────────────────────────────────
#
# What `mooring doctor` says of handoff: who acts on annotations of tidb-operator, and whose store a limit is.

#: How much of a long list a finding shows.
SHOWN: Final = 3


def examine(seen: Examined) -> Iterator[Finding]:
    yield from shared_annotations(seen)
    yield from bare_stores(seen)
    yield from namesakes(seen)


def bare_stores(seen: Examined) -> Iterator[Finding]:
    """Every PD counts its stores from 1: a bare id is a store of each cluster."""
    bare = sorted(filter(str.isdecimal, map(str, seen.config.queue.get("StoreMaxScheduleCost") or ())))
    if not bare or len(seen.clusters) < 2:
        return
    where = f"queue.StoreMaxScheduleCost is a store of each of {len(seen.clusters)} TidbClusters"
    told = f"{', '.join(bare[:SHOWN])} in {where}"
    first = min(tc.key for tc in seen.clusters)
    fix = f'queue: {{StoreMaxScheduleCost: {{"{first}/{bare[0]}": …}}}} in the settings'
    yield ill("settings", "MO604", "limits of stores name their cluster", told, fix, warning=True)


def namesakes(seen: Examined) -> Iterator[Finding]:
    """A TidbCluster and a Cluster of one name: labels tell no difference, so the pods of v2 are nobody's."""
    for key in sorted({tc.key for tc in seen.clusters if tc.v2} & {tc.key for tc in seen.clusters if not tc.v2}):
        told = f"TidbCluster and Cluster {key} have one name: pods of tidb-operator v2 there are not guarded"
        fix = f"kubectl -n {key.namespace} get tidbclusters.pingcap.com,clusters.core.pingcap.com {key.name}"
        yield ill("handoff", "MO606", "a name means one cluster", told, fix, warning=True)


def shared_annotations(seen: Examined) -> Iterator[Finding]:
    """Who acts on what tidb-operator knows, too. It writes a phase; we never do."""
    policy = seen.config.policy(HandoffPolicy)
    kept = sorted(str(tc.key) for tc in seen.clusters if tc.tikv_phase or tc.pd_phase or tc.tidb_phase)
    if not kept or not seen.on:
        return
    who = ", ".join(kept[:SHOWN]) + (f" and {len(kept) - SHOWN} more" if len(kept) > SHOWN else "")
    what = "evict-leader, pd-transfer-leader and tidb-graceful-shutdown"
    if policy.leave_to_tidb_operator is False:
        told = f"a tidb-operator keeps {who}, and handoff.leave-to-tidb-operator is false: both act on {what}"
        fix = "handoff: {leave-to-tidb-operator: auto} in the settings"
        yield ill("handoff", "MO603", "one acts on an annotation", told, fix, warning=True)
        return
    then = "" if policy.leaves_all else f"; what it has not begun within {policy.yield_s:.0f} s, Mooring does"
    yield well("handoff", f"{what} are left to the tidb-operator that keeps {who}{then}")


WHY: Final = "cleanup"
#: Marks of systems with leaders stand on their StatefulSets.
SETS: Final = Right("apps", "statefulsets", ("get", "patch"))
#: Stores that three replicas of a region need.
ENOUGH: Final = 3


def leftovers(marked: Marked) -> Iterator[Leftover]:
    for tc in marked.clusters:
        yield from _of_cluster(tc)
    yield from outlived.leftovers(marked)
    yield from request.leftovers(marked.pods, ("handoff",), ())


def _of_cluster(tc: TidbCluster) -> Iterator[Leftover]:
    """Schedulers that we added go first, and only then the marks: what a mark says must be true until it is gone, or
    a scheduler in a PD that does not answer would be lost track of."""
    text = tc.annotations.get(HANDOFF, "")
    marks = read_marks(text)
    if marks is None:
        yield Leftover(f"tidbcluster {tc.key}: {HANDOFF} cannot be read, so it is left alone")
    elif text:
        ours = {n: m for n, m in sorted(marks.items()) if m.store_id and m.evicts and not tc.v2}
        removals: list[RemoveEvictLeader | ReleasePdLock] = [
            RemoveEvictLeader(cluster=tc.key, store_id=m.store_id, why=WHY) for m in ours.values()
        ]
        entries: dict[str, object] = {"metadata": {"annotations": {HANDOFF: None}}}
        if marks and not tc.v2:
            entries["status"] = {"tikv": {"evictLeaderStatus": dict.fromkeys(marks)}}
        if tc.v2:
            locks = {lock_id(Key(tc.namespace, n), m.pod_uid) for n, m in marks.items()}
            removals += [ReleasePdLock(cluster=tc.key, lock_id=one, why=WHY) for one in sorted(locks)]
        drop = Patch(kind=tc.kind, key=tc.key, uid=tc.uid, patch=entries, why=WHY)
        stores = [f"let store {m.store_id} ({n}) have leaders again" for n, m in ours.items()]
        what = ", ".join([*stores, f"drop {len(marks)} {'mark' if len(marks) == 1 else 'marks'}"])
        yield Leftover(f"tidbcluster {tc.key}: {what}", (*removals, drop))


def report_of(engine: Any, config: Any) -> Mapping[str, Any]:
    refused = {verdict.subject: verdict for verdicts in engine.refused.values() for verdict in verdicts}
    found = report(engine.world, engine.queue, engine.running, config.policy(HandoffPolicy), engine.now, refused)
    return {**found, "leading": engine.leading}


def ends(operator: Operator) -> tuple[str, str] | None:
    """An eviction without an end: someone asked for an empty store and says themselves when it is over."""
    value = getattr(operator.payload, "value", "")
    if operator.kind != "evict-leaders" or value != "none":
        return None
    return "when its annotation is removed", "when the leaders of {it} are gone"


def commands(reason: Reason, about: About) -> Iterator[tuple[str, str]]:
    """Leaders that have nowhere to go: a cluster that is too small needs stores, a larger one those that it has."""
    tc = about.cluster
    if reason is not Reason.ONE_STORE or tc is None:
        return
    if (tc.tikv_replicas or 0) < ENOUGH and tc.v2:
        yield "look at", f"kubectl -n {tc.namespace} get tikvgroups.core.pingcap.com"
    elif (tc.tikv_replicas or 0) < ENOUGH:
        patch = f"""'{{"spec":{{"tikv":{{"replicas":{ENOUGH}}}}}}}'"""
        yield "add stores", f"kubectl -n {tc.namespace} patch tc {tc.name} --type merge -p {patch}"
    else:
        labels = f"app.kubernetes.io/instance={tc.name},app.kubernetes.io/component=tikv"
        yield "look at", f"kubectl -n {tc.namespace} get pods -l {labels}"


DESCRIPTOR = Descriptor(
    name="handoff",
    sources=("handoff",),
    policy=HandoffPolicy,
    make=lambda config: Handoff(config.policy(HandoffPolicy), config.namespace),
    asks=("pd",),
    limits={
        "evicting": (1, "leaders may leave one store at a time"),
        "tikv": (1, "members of one TiKV cluster away at once"),
        "leaders": (1, "members of one system with leaders away at once"),
    },
    # Marks and requests on pods and TidbClusters; a pod whose store is proven empty is deleted, others are evicted.
    rights=(
        EVENTS,
        *POD_WRITES,
        Right("pingcap.com", "tidbclusters", ("get", "patch")),
        Right("core.pingcap.com", "clusters", ("get", "patch")),
        SETS,
        MEMORY,
    ),
    phrases={
        "evict-leaders": ("{it} handing over", "when {it} is back"),
        "restart-tikv": ("{it} restarting", "when {it} is back"),
        led.KIND: ("{it} restarting", "when {it} is back and in sync"),
    },
    ends=ends,
    commands=commands,
    request="a hand-over",
    key_kind="cluster",
    leftovers=leftovers,
    objects=((Kind.CONFIG_MAP, outlived.NAME),),
    records={HANDOFF: "a hand-over"},
    report=report_of,
    examine=examine,
    codes={
        "MO603": "Mooring and tidb-operator act on the same annotations",
        "MO604": "A store's limit holds in every cluster",
        "MO606": "Two clusters of one name",
    },
)
