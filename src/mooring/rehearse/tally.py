"""How many pods of each workload, budget and mode serve: one meter for each, stepped pod by pod."""

from collections.abc import Callable, Sequence

import msgspec

from mooring.clients.ports import Json
from mooring.core.model.capacity import CapacityRules, NodeClass
from mooring.core.model.kinds import Kind
from mooring.rehearse.losses import Meter
from mooring.rehearse.promises import Promise, Wanted, root_of
from mooring.sandbox.apiserver.labels import selects
from mooring.sandbox.apiserver.store import ObjectStore
from mooring.sandbox.controllers.podstate import labels_of, node_of


class _Counted(msgspec.Struct):
    up: bool
    lines: tuple[int, ...]


class Tally:
    """`count` what there is, `begin`, and from then on each change steps the meters."""

    def __init__(
        self, store: ObjectStore, wanted: Sequence[Wanted], promises: Sequence[Promise], rules: CapacityRules
    ) -> None:
        self._store = store
        self._rules = rules
        self._wanted = wanted
        self._promises = promises
        self._rows = {one.uid: at for at, one in enumerate(wanted)}
        self._lines: dict[str, list[int]] = {}
        for at, promise in enumerate(promises):
            self._lines.setdefault(promise.workload or f"budget/{promise.namespace}", []).append(at)
        #: Pod → the workload it belongs to, kept when it is detached.
        self._owners: dict[str, str] = {}
        self._pods: dict[str, _Counted] = {}
        self._values = [0] * (len(wanted) + len(promises))
        #: One for each workload, then one for each promise.
        self.meters: list[Meter] = []

    def begin(self, now_s: Callable[[], float], crossed: Callable[[Promise, Meter, str], None]) -> None:
        """`crossed(promise, meter, "fell" or "back")`."""
        self._now_s = now_s
        self._crossed = crossed
        least = [one.replicas for one in self._wanted] + [promise.least for promise in self._promises]
        self.meters = [Meter(line, value) for line, value in zip(least, self._values, strict=True)]

    def owner_of(self, pod: Json) -> str:
        """The uid of the workload that it belongs or belonged to."""
        return self._owners.get(pod["metadata"]["uid"], "")

    def is_short(self, owner: str) -> bool:
        """Or is none that is counted."""
        return owner not in self._rows or self.meters[self._rows[owner]].is_below

    def is_up(self, pod: Json) -> bool:
        """When it was counted last."""
        before = self._pods.get(pod["metadata"]["uid"])
        return before is not None and before.up

    def count(self, pod: Json, *, up: bool) -> None:
        uid = pod["metadata"]["uid"]
        lines, before = self._lines_of(pod), self._pods.get(uid)
        if before is not None and before.up == up and before.lines == lines:
            return
        if before is not None and before.up:
            self._add(before.lines, -1, but=lines if up else ())
        if up:
            self._add(lines, 1, but=before.lines if before is not None and before.up else ())
        self._pods[uid] = _Counted(up, lines)

    def forget(self, pod: Json) -> None:
        before = self._pods.pop(pod["metadata"]["uid"], None)
        if before is not None and before.up:
            self._add(before.lines, -1)

    def _add(self, lines: tuple[int, ...], by: int, but: tuple[int, ...] = ()) -> None:
        for line in lines:
            if line in but:
                continue
            self._values[line] += by
            if self.meters:
                crossed = self.meters[line].step(self._now_s(), self._values[line])
                promise = line - len(self._wanted)
                if crossed and promise >= 0:
                    self._crossed(self._promises[promise], self.meters[line], crossed)

    def _lines_of(self, pod: Json) -> tuple[int, ...]:
        uid, first = pod["metadata"]["uid"], len(self._wanted)
        root = root_of(self._store, pod)
        owner = self._owners.get(uid, "") if root is None else str(root["uid"])
        self._owners[uid] = owner
        lines: list[int] = []
        if owner in self._rows:
            lines.append(self._rows[owner])
            for at in self._lines.get(owner, ()):
                promise = self._promises[at]
                if promise.node_class is None or self._class_of(node_of(pod)) is promise.node_class:
                    lines.append(first + at)
        for at in self._lines.get(f"budget/{pod['metadata']['namespace']}", ()):
            if selects(self._promises[at].selector, labels_of(pod)):
                lines.append(first + at)
        return tuple(lines)

    def _class_of(self, node: str) -> NodeClass:
        obj = self._store.find(Kind.NODE, "", node)
        return NodeClass.UNKNOWN if obj is None else self._rules.class_of(labels_of(obj))
