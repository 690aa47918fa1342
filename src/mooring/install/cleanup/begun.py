"""What marks say was begun and still stands, feature by feature, and the write that ends each.

A running Mooring ends by itself what it began, also of a feature that was switched off, while it has the rights. Once
they are gone with the feature, somebody else must: `mooring cleanup --feature` with a person's rights, told by `mooring
doctor`. Both read the same list. Only what a mark says we did is here; what was there before us stays.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec

from mooring.capabilities.drain.cordon import cordon_mark, is_ours, lift_cordon
from mooring.capabilities.home.reservation import has_reservation_taint, reservation_on, reservation_taint
from mooring.capabilities.mix.policy import SOURCES as MIX_SOURCES
from mooring.capabilities.mix.release import undo
from mooring.core.model.cluster import Node, Pod
from mooring.core.model.instructions import EditTaints, Patch, RemoveEvictLeader, Write
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import (
    CORDONED_BY,
    HANDOFF,
    LEAVING,
    RESERVED_TAINT,
    RETIRING,
    Mark,
    read_mark,
    read_marks,
)
from mooring.core.model.tidb import TidbCluster

WHY: Final = "cleanup"


class Begun(msgspec.Struct, frozen=True):
    feature: str
    #: The object, and how it ends: "node n3: end the reservation".
    what: str
    #: One after the other, and none after one that failed. Empty: not ours to touch, for the reason in the words.
    writes: tuple[Write, ...] = ()


def feature_of(mark: Mark) -> str:
    """The feature that wrote a mark: its source, but for mix, which works under two names."""
    return "mix" if mark.source in MIX_SOURCES else mark.source


def begun(
    pods: Iterable[Pod], nodes: Iterable[Node], clusters: Iterable[TidbCluster], replica_sets: Collection[str]
) -> list[Begun]:
    """In the order in which they must go. `replica_sets`: the uids of those that exist."""
    pods, nodes = list(pods), list(nodes)
    found = [Begun("mix", one.what, (one.write,)) for one in undo(pods, nodes, replica_sets)]
    for tc in clusters:
        found += _of_cluster(tc)
    for pod in pods:
        mark = read_mark(pod.annotations.get(LEAVING, ""))
        if mark is not None and mark.source not in MIX_SOURCES:
            drop = Patch(kind=Kind.POD, key=pod.key, uid=pod.uid, patch=_without(LEAVING), why=WHY)
            found.append(Begun(feature_of(mark), f"pod {pod.key}: drop the mark {mark.reason}", (drop,)))
    for node in nodes:
        found += _of_node(node)
    return found


def _of_cluster(tc: TidbCluster) -> Iterator[Begun]:
    """Schedulers that we added go first, and only then the marks: what a mark says must be true until it is gone, or
    nobody would know of a scheduler that a silent PD has kept."""
    text = tc.annotations.get(HANDOFF, "")
    marks = read_marks(text)
    if marks is None:
        yield Begun("handoff", f"tidbcluster {tc.key}: {HANDOFF} cannot be read, so it is not ours to touch")
    elif text:
        ours = {n: m for n, m in sorted(marks.items()) if m.store_id and m.before.get("evicting") != "true"}
        removals = [RemoveEvictLeader(cluster=tc.key, store_id=m.store_id, why=WHY) for m in ours.values()]
        entries = {"status": {"tikv": {"evictLeaderStatus": dict.fromkeys(marks)}}} if marks else {}
        drop = Patch(kind=Kind.TIDB_CLUSTER, key=tc.key, uid=tc.uid, patch=_without(HANDOFF) | entries, why=WHY)
        stores = [f"let store {m.store_id} ({n}) have leaders again" for n, m in ours.items()]
        what = ", ".join([*stores, f"drop {len(marks)} {'mark' if len(marks) == 1 else 'marks'}"])
        yield Begun("handoff", f"tidbcluster {tc.key}: {what}", (*removals, drop))


def _of_node(node: Node) -> Iterator[Begun]:
    reservation = reservation_on(node)
    if reservation is not None or has_reservation_taint(node):
        taint = reservation_taint(reservation.pod.rpartition("/")[2] if reservation is not None else "")
        edit = EditTaints(node=node.name, uid=node.uid, remove=(taint,), annotations={RESERVED_TAINT: None}, why=WHY)
        yield Begun("home", f"node {node.name}: end the reservation", (edit,))
    mark = cordon_mark(node, "fleet")
    gone = [RETIRING] if RETIRING in node.annotations else []
    if gone or mark is not None:
        words = f"drop {', '.join(gone + [CORDONED_BY] * (mark is not None))}"
        words += " and lift our cordon" if is_ours(mark) else ""
        yield Begun("fleet", f"node {node.name}: {words}", (lift_cordon(node, "fleet", WHY, gone),))


def _without(*annotations: str) -> dict[str, object]:
    return {"metadata": {"annotations": dict.fromkeys(annotations)}}
