"""Where each pod of a StatefulSet was last seen bound, on every replica: what counts while it is not recorded.

The record on the TidbCluster or StatefulSet is the leader's to write, a moment after the binding. A member that is
recreated before that (at the start, in a fail-over, beside a tidb-operator that is slow) still goes home, since every
replica saw where it was (H3). It is forgotten with the member: scaled in, moved off by one of our operators, or its
StatefulSet gone.
"""

from collections.abc import Mapping
from typing import Any

from mooring.core.model.cluster import Key, Pod, Workload
from mooring.core.model.events import Change, Trigger
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import leaving
from mooring.core.world.read import WorldRead


def moved_off(pod: Pod) -> bool:
    """One of our operators sends this pod away (a hand-over restarts it in place and is none of these)."""
    mark = leaving(pod)
    return mark is not None and mark.source != "handoff"


class LastBindings:
    """An `Index` of the world. The last binding of a name wins, so it says more than the rows that are there now."""

    observes: frozenset[object] = frozenset({Kind.POD, Kind.STATEFUL_SET})

    def __init__(self) -> None:
        #: StatefulSet → pod's name → node
        self._nodes: dict[Key, dict[str, str]] = {}

    def kept(self) -> dict[str, object]:
        """What a checkpoint keeps."""
        return vars(self)

    def restore(self, kept: Mapping[str, Any]) -> None:
        vars(self).update(kept)

    def node_of(self, pod: Key, stateful_set: str) -> str:
        """Where the pod of this name was last seen; "" when it was not."""
        return self._nodes.get(Key(pod.namespace, stateful_set), {}).get(pod.name, "")

    def observe(self, trigger: Trigger, world: WorldRead) -> None:
        if not isinstance(trigger, Change):
            return
        row = trigger.new if trigger.new is not None else trigger.old
        if isinstance(row, Pod) and row.owner is not None and row.owner.kind == Kind.STATEFUL_SET:
            self._see(row, gone=trigger.new is None, world=world)
        elif isinstance(row, Workload) and trigger.key in self._nodes:
            for name in list(self._nodes[trigger.key]) if trigger.new is not None else ():
                self._forget_unwanted(Key(trigger.key.namespace, name), row, world)
            if trigger.new is None and world.workload(Kind.STATEFUL_SET, trigger.key) is None:
                del self._nodes[trigger.key]

    def advance(self) -> bool:
        return False

    def _see(self, pod: Pod, *, gone: bool, world: WorldRead) -> None:
        assert pod.owner is not None
        of = Key(pod.namespace, pod.owner.name)
        if pod.node and moved_off(pod):
            self._forget(of, pod.name)
        elif pod.node and not gone and not pod.terminal:
            self._nodes.setdefault(of, {})[pod.name] = pod.node
        if gone:
            part = world.workload(Kind.STATEFUL_SET, of)
            if part is None:
                self._forget(of, pod.name)
            else:
                self._forget_unwanted(pod.key, part, world)

    def _forget_unwanted(self, pod: Key, part: Workload, world: WorldRead) -> None:
        """It will not be created again, and it is not there any more."""
        ordinal = pod.name.rpartition("-")[2]
        wanted = ordinal.isdecimal() and 0 <= int(ordinal) - part.ordinals_start < part.replicas
        if not wanted and world.pod(pod) is None:
            self._forget(part.key, pod.name)

    def _forget(self, of: Key, name: str) -> None:
        names = self._nodes.get(of, {})
        names.pop(name, None)
        if not names:
            self._nodes.pop(of, None)
