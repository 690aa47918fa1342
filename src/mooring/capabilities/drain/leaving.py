"""The marks on pods that are about to leave: whose they are, and the write that ends each."""

from collections.abc import Collection, Iterable, Iterator

from mooring.capabilities.drain.detach import attach, drop_mark, is_detached
from mooring.core.model.cluster import Pod
from mooring.core.model.descriptor import Leftover
from mooring.core.model.instructions import DeletePod
from mooring.core.model.marks import LEAVING, read_mark


def marks_of(pods: Iterable[Pod], source: str, replica_sets: Collection[str] = ()) -> Iterator[Leftover]:
    """Marks that a source has left on pods. `replica_sets`: the uids of those that exist: a detached pod goes back to
    its own; where that is gone nothing else would delete it."""
    for pod in pods:
        mark = read_mark(pod.annotations.get(LEAVING, ""))
        if mark is None or mark.source != source:
            continue
        if not is_detached(pod):
            yield Leftover(f"pod {pod.key}: drop the mark {mark.reason}", (drop_mark(pod, "cleanup"),))
        elif mark.before.get("replicaSetUID") in replica_sets:
            yield Leftover(f"pod {pod.key}: give it back to its ReplicaSet", (attach(pod, mark, "cleanup"),))
        else:
            delete = DeletePod(key=pod.key, uid=pod.uid, evict=False, why="cleanup")
            yield Leftover(f"pod {pod.key}: delete it, its ReplicaSet is gone", (delete,))
