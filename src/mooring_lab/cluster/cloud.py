"""A cloud that lends spot nodes and takes them back.

A notice says when a node goes, in the form of the tool that brings it (a dialect); at that moment the machine stops
and, a little later, its Node object disappears. Notices are best effort: one may be taken back, and a node may vanish
with none. Capacity may come back later, as a new machine: a new name or a new uid, an empty node.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Final

import msgspec

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.core.model.times import rfc3339
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline, Timer
from mooring_lab.cluster.controllers.podstate import annotations_of, labels_of, with_meta
from mooring_lab.cluster.kubelet import Kubelets
from mooring_lab.cluster.nodes import CAPACITY_LABEL, healthy_conditions

INTERRUPT_AT: Final = "vacant.io/interrupt-at"
NOTICE_S: Final = 120.0


class Dialect(StrEnum):
    """How a notice reaches the Node object."""

    ANNOTATION = "annotation"
    TAINT = "taint"
    NODE_TERMINATION_HANDLER = "nth"
    KARPENTER = "karpenter"
    AKS = "aks"
    SHUTDOWN = "shutdown"
    SILENT = "silent"


_TAINTS: Final[dict[Dialect, Json]] = {
    Dialect.TAINT: {"key": "vacant.io/interrupting", "effect": "NoSchedule"},
    Dialect.NODE_TERMINATION_HANDLER: {
        "key": "aws-node-termination-handler/spot-itn",
        "value": "spot-itn-event",
        "effect": "NoSchedule",
    },
    Dialect.KARPENTER: {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"},
    Dialect.AKS: {"key": "remediator.kubernetes.azure.com/unschedulable", "effect": "NoSchedule"},
}
_TAINT_KEYS: Final = frozenset(taint["key"] for taint in _TAINTS.values())


class CloudNotice(msgspec.Struct, frozen=True):
    node: str
    uid: str
    #: Epoch seconds.
    deadline: float
    dialect: Dialect
    timer: Timer


class Cloud:
    def __init__(
        self,
        timeline: Timeline,
        store: ObjectStore,
        kubelets: Kubelets,
        *,
        delete_after_s: float = 15.0,
        note: Callable[[str], None] | None = None,
    ) -> None:
        self._timeline = timeline
        self._store = store
        self._kubelets = kubelets
        self._delete_after_s = delete_after_s
        self._note = note or (lambda _words: None)
        self.notices: dict[str, CloudNotice] = {}
        self._taken: dict[str, Json] = {}

    def spot_nodes(self) -> list[str]:
        return [
            node["metadata"]["name"]
            for node in self._store.list(Kind.NODE)
            if labels_of(node).get(CAPACITY_LABEL) == "spot"
        ]

    def taken(self) -> list[str]:
        """Nodes that were taken and have not been given back."""
        return sorted(self._taken)

    def notice(self, node: str, *, after_s: float = NOTICE_S, dialect: Dialect = Dialect.ANNOTATION) -> CloudNotice:
        """This node goes in `after_s` seconds. A second notice replaces the first."""
        self._stop(node)
        obj = self._store.get(Kind.NODE, "", node)
        deadline = self._timeline.now() + after_s
        timer = self._timeline.after(after_s, lambda: self.take(node))
        notice = CloudNotice(node, obj["metadata"]["uid"], deadline, dialect, timer)
        self.notices[node] = notice
        self._note(f"notice {node} {dialect} in {after_s:g} s")
        self._signal(notice, after_s)
        return notice

    def notice_all_spot(self, *, after_s: float = NOTICE_S, dialect: Dialect = Dialect.ANNOTATION) -> list[CloudNotice]:
        return [self.notice(node, after_s=after_s, dialect=dialect) for node in self.spot_nodes()]

    def withdraw(self, node: str) -> None:
        """The notice is taken back: its signal goes, with that of the notice it replaced, and the node stays."""
        if node not in self.notices:
            return
        self._stop(node)
        self._note(f"notice {node} withdrawn")

        def cleared(current: Json) -> Json:
            marks = {k: v for k, v in annotations_of(current).items() if k != INTERRUPT_AT}
            kept = [t for t in current["spec"].get("taints") or () if t["key"] not in _TAINT_KEYS]
            spec = {k: v for k, v in current["spec"].items() if k != "taints"}
            return {**with_meta(current, annotations=marks), "spec": {**spec, "taints": kept} if kept else spec}

        self._store.mutate(Kind.NODE, "", node, cleared)

    def take(self, node: str) -> None:
        """The machine is gone now, with or without a notice before; its Node object follows."""
        self._stop(node)
        obj = self._store.find(Kind.NODE, "", node)
        if obj is None:
            return
        self._note(f"taken {node}")
        self._taken[node] = obj
        self._kubelets.silence(node)
        uid = obj["metadata"]["uid"]
        self._timeline.after(self._delete_after_s, lambda: self._delete(node, uid))

    def give_back(self, node: str, *, name: str | None = None) -> Json:
        """Capacity returns: a machine like the one taken, under its name or another."""
        was = self._taken.pop(node)
        self._stop(node)
        now = self._timeline.now()
        new = name or node
        if self._store.find(Kind.NODE, "", new) is not None:
            self._store.remove(Kind.NODE, "", new)  # the old object had not been cleaned up yet
        labels = {**labels_of(was), "kubernetes.io/hostname": new}
        spec = {"podCIDR": was["spec"].get("podCIDR", "")}
        status = {**was["status"], "conditions": healthy_conditions(now)}
        self._note(f"returned {new}")
        return self._store.create(
            Kind.NODE, {"metadata": {"name": new, "labels": labels}, "spec": spec, "status": status}
        )

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────

    def _stop(self, node: str) -> None:
        notice = self.notices.pop(node, None)
        if notice is not None:
            notice.timer.cancel()

    def _delete(self, node: str, uid: str) -> None:
        obj = self._store.find(Kind.NODE, "", node)
        if obj is not None and obj["metadata"]["uid"] == uid:
            self._stop(node)  # told of while it was gone already
            self._store.remove(Kind.NODE, "", node)

    def _signal(self, notice: CloudNotice, after_s: float) -> None:
        if notice.dialect is Dialect.SHUTDOWN:
            self._kubelets.shut_down(notice.node, grace_s=after_s)
            return
        if notice.dialect is Dialect.ANNOTATION:
            at = rfc3339(notice.deadline)
            self._store.mutate(
                Kind.NODE,
                "",
                notice.node,
                lambda one: with_meta(one, annotations={**annotations_of(one), INTERRUPT_AT: at}),
            )
            return
        taint = _TAINTS.get(notice.dialect)
        if taint is not None:
            added = {**taint, "timeAdded": rfc3339(self._timeline.now())}
            self._store.mutate(
                Kind.NODE,
                "",
                notice.node,
                lambda one: {**one, "spec": {**one["spec"], "taints": [*(one["spec"].get("taints") or ()), added]}},
            )
