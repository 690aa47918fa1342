"""Undo everything of ours that outlives a process: for an uninstall, or when no replica leads any more.

Only what a mark says we did. A detached pod goes back to its ReplicaSet; where that is gone, or its node is, the pod is
deleted: nothing else would. A mark on an attached pod is dropped. A cordon is lifted if it was ours.
"""

from collections.abc import Collection, Iterable

import msgspec

from mooring.capabilities.drain.cordon import is_ours, lift_cordon
from mooring.capabilities.drain.detach import attach, drop_mark, is_detached, mark_on
from mooring.capabilities.mix.interruption.notices import SOURCE, mark_of
from mooring.capabilities.mix.policy import SOURCES
from mooring.core.model.cluster import Node, Pod
from mooring.core.model.instructions import DeletePod, Patch


class Undo(msgspec.Struct, frozen=True):
    """One thing to undo, in words and as a write."""

    what: str
    write: Patch | DeletePod


def undo(pods: Iterable[Pod], nodes: Iterable[Node], replica_sets: Collection[str]) -> list[Undo]:
    """`replica_sets`: the uids of those that exist."""
    by_name = {node.name: node for node in nodes}
    found: list[Undo] = []
    for pod in sorted(pods, key=lambda p: (p.namespace, p.name)):
        mark = mark_on(pod)
        if mark is None or mark.source not in SOURCES or pod.terminating:
            continue
        name = f"pod {pod.namespace}/{pod.name}"
        if not is_detached(pod):
            found.append(Undo(f"{name}: drop the mark {mark.reason}", drop_mark(pod, "released")))
        elif mark.before.get("replicaSetUID") in replica_sets and pod.node in by_name:
            owner = mark.before.get("replicaSet", "its ReplicaSet")
            found.append(Undo(f"{name}: give it back to {owner}", attach(pod, mark, "released")))
        else:
            delete = DeletePod(key=pod.key, uid=pod.uid, evict=False, why="released: its ReplicaSet or node is gone")
            found.append(Undo(f"{name}: delete it, its ReplicaSet or node is gone", delete))
    for node in sorted(by_name.values(), key=lambda n: n.name):
        mark = mark_of(node)
        if mark is None:
            continue
        words = "lift our cordon" if is_ours(mark) else "drop the mark; the cordon was there before us"
        found.append(Undo(f"node {node.name}: {words}", lift_cordon(node, SOURCE, "released")))
    return found
