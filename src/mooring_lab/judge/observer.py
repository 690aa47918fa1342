"""The same promises, judged by what a store shows: on the sandbox, on a real control plane, wherever there is a watch.

A pod that goes with our mark on it went by our act: is it a TiKV pod with leaders (E6), is another member away (E7), is
another replica of its workload away (M5, M8)? A node that is cut off: is it empty (O2)? The simulation asks the same
(`acts`) a moment earlier, at the write itself.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import GAVE_UP, HANDOFF, LEAVING, read_marks
from mooring_lab.cluster.cloud import INTERRUPT_AT
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.reading import Reading
from mooring_lab.events.context import Excuses
from mooring_lab.judge.acts import SLACK_S, Promises
from mooring_lab.judge.findings import Finding, at_once

#: After another replica took over, a workload may be one over (worked example 7).
OVERLAP_S: Final = 60.0
#: What must be followed for it.
KINDS: Final = (Kind.NODE, Kind.DEPLOYMENT, Kind.REPLICA_SET, Kind.STATEFUL_SET, Kind.LEASE, Kind.POD)


class ActObserver(Reading):
    """`leaders(namespace, cluster, pod)`: region leaders on its store, by TiKV's truth and not by PD's."""

    def __init__(
        self,
        store: Any,
        *,
        now: Callable[[], float],
        epoch: Callable[[], float],
        leaders: Callable[[str, str, str], int],
        retire_timeout_s: float | None,
        excuses: Excuses | None = None,
    ) -> None:
        self.store = store
        self.retire_timeout_s = retire_timeout_s
        self.epoch, self.leaders = epoch, leaders
        self.findings: list[Finding] = []
        self.seen: Counter[str] = Counter()
        self.promises = Promises(self)
        self._now, self._excuses = now, excuses or Excuses()
        self._began = now()
        self._holder = ""

    def begin(self) -> "ActObserver":
        self.promises.was_ready.update(pod["metadata"]["uid"] for pod in self.store.list(Kind.POD))
        self.store.subscribe(Kind.POD, self._on_pod)
        self.store.subscribe(Kind.NODE, self.promises.on_node)
        self.store.subscribe(Kind.LEASE, self._on_lease)
        return self

    def _on_pod(self, event: str, old: Json | None, new: Json | None) -> None:
        # The last event of a pod without a grace period is its first word of going.
        going = event == "DELETED" or (new is not None and podstate.terminating(new))
        if going and old is not None and podstate.active(old) and self._by_us(new if new is not None else old):
            self.seen["pod-went-by-us"] += 1
            self.promises.pod_goes(f"{old['metadata']['name']} goes", "mooring", old)
        self.promises.on_pod(event, old, new)

    def _by_us(self, pod: Json) -> bool:
        if LEAVING in podstate.annotations_of(pod):
            return True
        texts = [
            podstate.annotations_of(tc).get(HANDOFF, "")
            for kind in (Kind.TIDB_CLUSTER, Kind.TIDB_V2)
            for tc in self.store.list(kind)
        ]
        marks = [mark for text in texts for mark in (read_marks(text) or {}).values()]
        return any(mark.pod_uid == pod["metadata"]["uid"] and mark.step != GAVE_UP for mark in marks)

    def _on_lease(self, _: str, __: Json | None, new: Json | None) -> None:
        holder = str((new or {}).get("spec", {}).get("holderIdentity") or self._holder)
        if self._holder and holder != self._holder:
            self._excuses.leader_changed = self.now
        self._holder = holder

    # ── What the promises ask (`acts.CheckContext`) ───────────────────────────────────────────────────────────────

    @property
    def now(self) -> float:
        return self._now()

    def fail(self, promise: str, words: str) -> None:
        self.findings.append(at_once(promise, words.partition(" ")[0], round(self.now - self._began, 1), words))

    def hit(self, name: str) -> None:
        self.seen[name] += 1

    def noticed(self, node: str) -> bool:
        found = self.store.find(Kind.NODE, "", node)
        return found is None or INTERRUPT_AT in podstate.annotations_of(found)

    def known(self, since: float) -> bool:
        return self.now - since > SLACK_S and self.now > self._excuses.blind_until + SLACK_S

    def stale(self, _: str) -> bool:
        return False

    def overlaps(self) -> bool:
        return self.now - self._excuses.leader_changed < OVERLAP_S
