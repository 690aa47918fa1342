"""The mark on a pod that is about to leave: whose it is, and the write that drops it."""

from collections.abc import Iterable, Iterator

from mooring.core.model.cluster import Pod
from mooring.core.model.descriptor import Leftover
from mooring.core.model.instructions import Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING, read_mark


def marks_of(pods: Iterable[Pod], source: str) -> Iterator[Leftover]:
    """Marks that a source has left on pods."""
    for pod in pods:
        mark = read_mark(pod.annotations.get(LEAVING, ""))
        if mark is not None and mark.source == source:
            patch = {"metadata": {"annotations": {LEAVING: None}}}
            drop = Patch(kind=Kind.POD, key=pod.key, uid=pod.uid, patch=patch, why="cleanup")
            yield Leftover(f"pod {pod.key}: drop the mark {mark.reason}", (drop,))
