"""The scheduler: takes pods one by one, finds the nodes that can take each, asks the extenders, picks the best, binds.

Near enough to kube-scheduler for what we observe: filters, default scores and weights, sampling in large clusters
(`percentageOfNodesToScore`, the start index rotating), profiles by `schedulerName`, preemption, retries on cluster
events with back-off. Where scores tie, the first node in the order of names (from the start index) wins; kube-scheduler
chooses at random there.
"""

import heapq
from collections.abc import Iterable
from typing import Final

from mooring.clients.ports import Json, PortError
from mooring.core.model.kinds import Kind
from mooring.core.model.times import moment
from mooring_lab.cluster.apiserver.labels import selects
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.controllers.podstate import key_of, labels_of, make_condition, node_of, with_condition
from mooring_lab.cluster.controllers.workloads.ownership import controller_of
from mooring_lab.cluster.randomness import SeededRandomness
from mooring_lab.cluster.scheduler import selection
from mooring_lab.cluster.scheduler.classes import ClassTables
from mooring_lab.cluster.scheduler.constraints import Out
from mooring_lab.cluster.scheduler.extenders import ExtenderError, run_preempt
from mooring_lab.cluster.scheduler.needs import NeedsCache, claims_of
from mooring_lab.cluster.scheduler.selection import Profile, Selection, Unfit, Victims
from mooring_lab.cluster.scheduler.snapshot import PodKey, PodUse, SchedulerSnapshot

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The pods that wait for a node: ready to try, backing off, or given up until the cluster changes.


FIRST_BACKOFF_S: Final = 1.0
MAX_BACKOFF_S: Final = 10.0
LEFTOVER_S: Final = 300.0


class SchedulingQueue:
    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._order = 0
        self._active: list[tuple[int, float, int, PodKey]] = []
        self._waiting: dict[PodKey, int] = {}
        #: Key → (attempts, since when it is unschedulable). A key in neither dict is not ours to schedule.
        self.unschedulable: dict[PodKey, float] = {}
        self._attempts: dict[PodKey, int] = {}
        self._priority: dict[PodKey, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: PodKey, priority: int) -> None:
        self.unschedulable.pop(key, None)
        self._priority[key] = priority
        self._order += 1
        self._waiting[key] = self._order
        heapq.heappush(self._active, (-priority, self._timeline.monotonic(), self._order, key))

    def forget(self, key: PodKey) -> None:
        for table in (self._waiting, self.unschedulable, self._attempts, self._priority):
            table.pop(key, None)

    def pop(self) -> PodKey | None:
        while self._active:
            _, _, order, key = heapq.heappop(self._active)
            if self._waiting.get(key) == order:
                del self._waiting[key]
                self._attempts[key] = self._attempts.get(key, 0) + 1
                return key
        return None

    def give_up(self, key: PodKey) -> None:
        self.unschedulable[key] = self._timeline.monotonic()

    def backoff_s(self, key: PodKey) -> float:
        """How long until it may be tried again, measured from when it failed."""
        wait = min(FIRST_BACKOFF_S * 2.0 ** (self._attempts.get(key, 1) - 1), MAX_BACKOFF_S)
        return max(0.0, self.unschedulable.get(key, 0.0) + wait - self._timeline.monotonic())

    def revive(self, key: PodKey) -> None:
        if key in self.unschedulable:
            self.add(key, self._priority.get(key, 0))


SELECTED_NODE = "volume.kubernetes.io/selected-node"
#: Owners whose pods are kept apart by default.
_SPREAD: Final = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})


class Scheduler:
    def draw_ties(self, randomness: SeededRandomness | None) -> None:
        """From now on which of several equal nodes is taken is drawn; None: the first, the same every time."""
        self._selection.ties = randomness

    def __init__(
        self,
        timeline: Timeline,
        store: ObjectStore,
        *,
        profiles: tuple[Profile, ...] = (Profile(),),
        latency_s: float = 0.005,
    ) -> None:
        self._timeline = timeline
        self._store = store
        self._latency_s = latency_s
        self._profiles = {profile.name: profile for profile in profiles}
        self.snapshot = SchedulerSnapshot()
        self._needs = NeedsCache()
        self._queue = SchedulingQueue(timeline)
        self._nominated: dict[str, dict[str, PodUse]] = {}
        self._selection = Selection(store, self.snapshot, ClassTables(self.snapshot), self._nominated)
        self._armed = self._event_pending = False
        self._retrying: set[PodKey] = set()
        self._leftovers: set[PodKey] = set()
        #: While True nothing is scheduled (a scheduler that is down).
        self.stopped = False
        for kind, fn in (
            (Kind.NODE, self._on_node),
            (Kind.POD, self._on_pod),
            (Kind.PV, self._on_volume),
            (Kind.PVC, self._on_volume),
        ):
            for obj in store.list(kind):
                fn("ADDED", None, obj)
            store.subscribe(kind, fn)

    def set_profile(self, profile: Profile) -> None:
        self._profiles[profile.name] = profile
        for pod in self._store.list(Kind.POD):
            self._on_pod("ADDED", None, pod)

    def stop(self) -> None:
        self.stopped = True

    def start(self) -> None:
        self.stopped = False
        self._arm()

    # ── what happens around us ────────────────────────────────────────────────────────────────────────────────

    def _on_node(self, kind: str, old: Json | None, new: Json | None) -> None:
        if kind == "DELETED" and old is not None:
            self.snapshot.drop_node(old["metadata"]["name"])
        elif new is not None and self.snapshot.set_node(new):
            self._cluster_event()

    def _on_volume(self, _kind: str, _old: Json | None, _new: Json | None) -> None:
        self._cluster_event()

    def _on_pod(self, kind: str, old: Json | None, new: Json | None) -> None:
        if kind == "DELETED" or new is None:
            self._gone(old)
            return
        if (
            old is not None
            and kind == "MODIFIED"
            and (node := new["spec"].get("nodeName"))
            and node == old["spec"].get("nodeName")
            and old["metadata"].get("labels") is new["metadata"].get("labels")
            and podstate.terminating(old) == podstate.terminating(new)
            and not podstate.terminal(new)
        ):
            return  # placed before, nothing that placement reads has changed
        key = key_of(new)
        if podstate.terminal(new):
            self._gone(new)
            return
        if node_of(new):
            self._queue.forget(key)
            self._unnominate(new["metadata"]["uid"])
            self.snapshot.place(self._use(new))
            return
        spec = new["spec"]
        if spec.get("schedulerName", "default-scheduler") not in self._profiles or podstate.terminating(new):
            return
        if spec.get("schedulingGates"):
            self._say(new, "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")
            return
        if old is None or old["spec"] != spec:
            self._queue.add(key, int(spec.get("priority") or 0))
            self._arm()

    def _gone(self, pod: Json | None) -> None:
        if pod is None:
            return
        key = key_of(pod)
        self._queue.forget(key)
        self._unnominate(pod["metadata"]["uid"])
        if self.snapshot.take_away(key) is not None:
            self._cluster_event()

    def _use(self, pod: Json, node: str = "") -> PodUse:
        owner = controller_of(pod)
        return PodUse(
            key_of(pod),
            pod["metadata"]["uid"],
            node or node_of(pod),
            self._needs.of(pod["spec"]),
            labels_of(pod),
            "" if owner is None or owner["kind"] not in _SPREAD else owner["uid"],
            moment((pod.get("status") or {}).get("startTime", "")) or 0.0,
            podstate.terminating(pod),
        )

    def feasible(self, pod: Json) -> set[str]:
        """The nodes that the pod could go to now."""
        return self._selection.feasible(pod, self._use(pod))

    def scores(self, pod: Json) -> dict[str, int]:
        """The same nodes, each with its points: it goes to one of those that have the most."""
        use = self._use(pod)
        return self._selection.scores(use, self._selection.feasible(pod, use))

    def victims(self, pod: Json) -> dict[str, Victims]:
        """By node: who would have to leave for it there."""
        use = self._use(pod)
        found = self._selection.choose(Profile(percentage_of_nodes_to_score=100), pod, use)
        hopeless = found.hopeless if isinstance(found, Unfit) else {}
        return {one.node: one for one in self._victims(pod, use, hopeless)}

    def _cluster_event(self) -> None:
        """Something changed that may let an unschedulable pod in: one look for all events of this moment."""
        if self._queue.unschedulable and not self._event_pending:
            self._event_pending = True
            self._timeline.after(self._latency_s, self._revive)

    def _revive(self) -> None:
        self._event_pending = False
        for key in sorted(self._queue.unschedulable):
            wait_s = self._queue.backoff_s(key)
            if wait_s <= 0:
                self._retry(key)
            else:
                self._retry_after(key, wait_s)

    def _retry_after(self, key: PodKey, wait_s: float) -> None:
        if key not in self._retrying:
            self._retrying.add(key)
            self._timeline.after(wait_s, lambda: self._retry(key))

    def _retry(self, key: PodKey) -> None:
        self._retrying.discard(key)
        if key in self._queue.unschedulable:
            self._queue.revive(key)
            self._arm()

    # ── scheduling ────────────────────────────────────────────────────────────────────────────────────────────

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._timeline.after(self._latency_s, self._drain)

    def _drain(self) -> None:
        self._armed = False
        while not self.stopped:
            key = self._queue.pop()
            if key is None:
                return
            pod = self._store.find(Kind.POD, *key)
            if pod is not None and not node_of(pod) and not podstate.terminating(pod):
                self._schedule(key, pod)

    def _schedule(self, key: PodKey, pod: Json) -> None:
        profile = self._profiles[pod["spec"].get("schedulerName", "default-scheduler")]
        use = self._use(pod)
        try:
            found = self._selection.choose(profile, pod, use)
            if isinstance(found, Unfit):
                nominated = self._preempt(profile, pod, use, found)
                self._fail(key, pod, found.message, nominated)
                return
        except ExtenderError as error:
            self._fail(key, pod, str(error), "", reason="SchedulerError")
            self._retry_after(key, self._queue.backoff_s(key))
            return
        self._bind(key, pod, found)

    def _bind(self, key: PodKey, pod: Json, node: str) -> None:
        self._select_volumes(pod, node)
        now = self._timeline.now()

        def bound(current: Json) -> Json:
            status = current.get("status") or {}
            conditions = with_condition(
                list(status.get("conditions") or ()), make_condition("PodScheduled", "True", now)
            )
            kept = {name: value for name, value in status.items() if name != "nominatedNodeName"}
            return {
                **current,
                "spec": {**current["spec"], "nodeName": node},
                "status": {**kept, "conditions": conditions},
            }

        try:
            self._store.mutate(Kind.POD, *key, bound)
        except PortError as error:
            self._fail(key, pod, str(error), "", reason="SchedulerError")

    def _select_volumes(self, pod: Json, node: str) -> None:
        """A claim that waits for its first consumer learns where that is."""
        for name in claims_of(pod["spec"]):
            claim = self._store.find(Kind.PVC, pod["metadata"]["namespace"], name)
            if claim is not None and not claim["spec"].get("volumeName"):
                marks = {**podstate.annotations_of(claim), SELECTED_NODE: node}
                self._store.update(Kind.PVC, podstate.with_meta(claim, annotations=marks))

    def _fail(self, key: PodKey, pod: Json, message: str, nominated: str, reason: str = "Unschedulable") -> None:
        self._queue.give_up(key)
        self._look_again(key, LEFTOVER_S)
        self._say(pod, reason, message, nominated)

    def _look_again(self, key: PodKey, after_s: float) -> None:
        """At the latest then, if nothing happens that could let it in."""
        if key not in self._leftovers:
            self._leftovers.add(key)
            self._timeline.after(after_s, lambda: self._leftover(key))

    def _leftover(self, key: PodKey) -> None:
        self._leftovers.discard(key)
        since = self._queue.unschedulable.get(key)
        if since is None:
            return
        left = since + LEFTOVER_S - self._timeline.monotonic()
        if left > 0:
            self._look_again(key, left)
        else:
            self._retry(key)

    def _say(self, pod: Json, reason: str, message: str, nominated: str = "") -> None:
        item = make_condition("PodScheduled", "False", self._timeline.now(), reason, message)

        def change(current: Json) -> Json | None:
            status = current.get("status") or {}
            fresh = {**status, "conditions": with_condition(list(status.get("conditions") or ()), item)}
            if nominated:
                fresh["nominatedNodeName"] = nominated
            return {**current, "status": fresh} if fresh != status else None

        self._store.mutate(Kind.POD, *key_of(pod), change)

    # ── preemption ────────────────────────────────────────────────────────────────────────────────────────────

    def _preempt(self, profile: Profile, pod: Json, use: PodUse, unfit: Unfit) -> str:
        """The node whose victims are now leaving, or ""."""
        if not use.needs.preempts or self._waits_for_victims(pod, use):
            return ""
        found = {one.node: one for one in self._victims(pod, use, unfit.hopeless)}
        for extender in profile.extenders:
            if not found or extender.preempt is None:
                continue
            objects = {
                name: [o for v in one.pods if (o := self._store.find(Kind.POD, *v.key)) is not None]
                for name, one in found.items()
            }
            try:
                allowed = run_preempt(extender, pod, objects)
            except ExtenderError:
                if extender.ignorable:
                    continue
                return ""
            found = {
                name: selection.Victims(
                    name, tuple(v for v in found[name].pods if v.uid in uids), found[name].pdb_violations
                )
                for name, uids in allowed.items()
            }
        best = selection.least_harm(found.values())
        if best is None:
            return ""
        for victim in best.pods:
            current = self._store.find(Kind.POD, *victim.key)
            if current is not None and not podstate.terminating(current):
                self._store.delete(Kind.POD, *victim.key, uid=victim.uid)
        self._unnominate(use.uid)
        self._nominated.setdefault(best.node, {})[use.uid] = self._use(pod, best.node)
        return best.node

    def _victims(self, pod: Json, use: PodUse, hopeless: Out) -> Iterable[Victims]:
        passes = self._selection.passes_without(pod, use)
        return selection.candidates(self.snapshot, use.needs, hopeless, self._unprotected, passes)

    def _waits_for_victims(self, pod: Json, use: PodUse) -> bool:
        name = (pod.get("status") or {}).get("nominatedNodeName")
        node = self.snapshot.nodes.get(name or "")
        if node is None:
            return False
        return any(
            (current := self._store.find(Kind.POD, *one.key)) is not None and podstate.terminating(current)
            for one in node.pods.values()
            if one.needs.priority < use.needs.priority
        )

    def _unprotected(self, pods: list[PodUse]) -> set[PodKey]:
        """Those that may go without breaking a budget, the most important first."""
        left: dict[tuple[str, str], int] = {}
        free = set()
        for pod in pods:
            broken = False
            for pdb in self._store.list(Kind.PDB, pod.key[0]):
                selector, status = pdb["spec"].get("selector"), pdb.get("status") or {}
                if (
                    not selector
                    or not selects(selector, pod.labels)
                    or pod.key[1] in (status.get("disruptedPods") or ())
                ):
                    continue
                key = key_of(pdb)
                left[key] = left.get(key, int(status.get("disruptionsAllowed", 0))) - 1
                broken = broken or left[key] < 0
            if not broken:
                free.add(pod.key)
        return free

    def _unnominate(self, uid: str) -> None:
        for name in [name for name, pods in self._nominated.items() if uid in pods]:
            del self._nominated[name][uid]
            if not self._nominated[name]:
                del self._nominated[name]
