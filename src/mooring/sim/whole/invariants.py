"""What must hold at every write of ours and at every second, by the store's own truth.

Mooring decides by what it has seen, and what others did a moment ago it cannot have seen. So what it could not know yet
(younger than `SLACK_S`, or hidden by a fault that is on) is not held against it; what it did itself always is.
"""

import math
from collections import defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from mooring.capabilities.fleet.planner import keys
from mooring.capabilities.mix.labels import AFFINITY, REBALANCE, RELAXED
from mooring.clients.ports import Json
from mooring.core.engine.invariants import broken
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import CORDONED_BY, LEAVING, RESERVED_TAINT, RETIRING, read_mark
from mooring.core.queue.audit import audit
from mooring.process.replica import Replica
from mooring.sandbox.apiserver.server import Write
from mooring.sandbox.controllers import podstate
from mooring.sandbox.controllers.workloads.ownership import controller_of
from mooring.sim.whole.build import RETIRE_TIMEOUT_S, TIDB

if TYPE_CHECKING:
    from mooring.sim.whole.simulation import Simulation

#: What happened longer ago than this, Mooring must have seen.
SLACK_S: Final = 15.0
#: More operators for one subject within a minute are a circle.
OPERATORS_PER_MINUTE: Final = 12
#: After another replica took over, a workload may be one over (worked example 7).
OVERLAP_S: Final = 60.0
_UNGUARDED: Final = frozenset({Kind.LEASE, Kind.EVENT})
COMPONENT: Final = "app.kubernetes.io/component"
INSTANCE: Final = "app.kubernetes.io/instance"
PodKey = tuple[str, str]


class Watch:
    def __init__(self, sim: "Simulation") -> None:
        self.sim = sim
        #: How old what Mooring sees may be.
        self.lag_s = 0.0
        #: Until then the API server is dead or slow.
        self.blind_until = -math.inf
        #: What to do once the replica that is to be killed at a write is dead.
        self.on_death: Callable[[], object] | None = None
        self._resumed: dict[str, float] = {}
        self._leader_changed = -math.inf
        #: Since when a pod by this name is not Ready, or not there.
        self._away: dict[PodKey, float] = {}
        #: UIDs of pods that have been Ready at some time.
        self._was_ready: set[str] = set()
        self._ours: defaultdict[str, list[float]] = defaultdict(list)
        #: TiKV pods that we deleted and that are not back yet.
        self._deleted: set[str] = set()
        self._queued: defaultdict[str, deque[float]] = defaultdict(deque)
        self._seconds = 0

    def begin(self) -> None:
        sim, store = self.sim, self.sim.rig.cluster.store
        sim.rig.on_write = self._on_write
        sim.rig.api.before_write(self._before)
        self._was_ready.update(pod["metadata"]["uid"] for pod in store.list(Kind.POD))
        store.subscribe(Kind.NODE, self._on_node)
        store.subscribe(Kind.POD, self._on_pod)

    # ── What the faults say ───────────────────────────────────────────────────────────────────────────────────────

    def no_lag(self) -> None:
        self.lag_s = 0.0

    def resumed(self, name: str) -> None:
        self._resumed[name] = self.sim.now
        self.change_of_leader()

    def change_of_leader(self) -> None:
        self._leader_changed = self.sim.now

    def _known(self, since: float) -> bool:
        """Must Mooring have seen what is so since then?"""
        now = self.sim.now
        return now - since > SLACK_S + self.lag_s and now > self.blind_until + SLACK_S

    def away_since(self, pod: Json) -> float | None:
        return self._away.get(_key(pod))

    def _stale(self, by: str) -> bool:
        """Does this write come from a process that has just been woken up?"""
        return self.sim.now - self._resumed.get(by, -math.inf) < 10.0

    # ── Every second ──────────────────────────────────────────────────────────────────────────────────────────────

    def each_second(self) -> None:
        sim = self.sim
        self._seconds += 1
        if self.on_death is not None and not sim.rig.killing():
            on_death, self.on_death = self.on_death, None
            on_death()
        for one in sim.rig.replicas.values():
            if one.task.done() and not one.task.cancelled():
                sim.fail("no defect", f"{one.replica.identity} ended: {one.task.exception()!r}")
        if self._seconds % 5 == 0:
            engine = sim.engine()
            if engine is not None:
                found = broken(engine) if self._seconds % 60 == 0 else audit(engine.queue)
                if found:
                    sim.fail("O1 the queue's books are right", "; ".join(found))

    def follow(self, replica: Replica) -> None:
        replica.engine.history.listeners.append(self._on_entry)

    def _on_entry(self, entry: Any) -> None:
        hit = self.sim.coverage.hit
        match entry.verb:
            case "queued":
                source = entry.source if entry.source in {"fleet", "handoff", "home", "mix", "spot"} else "balance"
                hit(f"operator-queued-{source}")
                self._count(entry)
            case "resumed":
                hit("operator-resumed")
            case "canceled" | "failed":
                hit(f"operator-{entry.verb}")
            case "leads":
                hit("leader-changed")
            case "waiting":
                if entry.reason == "fact":
                    hit("operator-waited-on-a-fact")
            case "could-not":
                reasons = {
                    "pdb": "operator-parked-by-budget",
                    "conflict": "write-conflicted",
                    "unknown": "write-unanswered",
                }
                if entry.reason in reasons:
                    hit(reasons[entry.reason])
            case _:
                pass

    def _count(self, entry: Any) -> None:
        subject = entry.subjects[1] if len(entry.subjects) > 1 else entry.id
        times = self._queued[subject]
        times.append(self.sim.now)
        while times[0] < self.sim.now - 60:
            times.popleft()
        if len(times) > OPERATORS_PER_MINUTE:
            words = f"{len(times)} operators for {subject} within a minute; the last: {entry.source} {entry.text}"
            self.sim.fail("operators per subject and minute", words)

    # ── Writes ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_write(self, what: str) -> None:
        sim = self.sim
        if not what.startswith("pd pause_scheduler"):
            sim.note(f"  {what}")
        for start, name in _WRITES.items():
            if what.startswith(start):
                sim.coverage.hit(name)

    def _before(self, write: Write) -> None:
        """Asked when the API server is about to do it; nothing has happened yet."""
        if write.kind in _UNGUARDED or not write.by.startswith("mooring"):
            return
        if self._stale(write.by):
            self.sim.coverage.hit("late-write-of-old-leader")
        if not _guarded(write):
            self.sim.fail("no write without precondition", f"{write.what} {write.body}")
        if write.verb in {"delete", "evict"} and write.kind is Kind.POD:
            pod = self.sim.rig.cluster.store.find(Kind.POD, write.namespace, write.name)
            if pod is not None and pod["metadata"]["uid"] == write.body["uid"] and podstate.active(pod):
                self._pod_goes(write, pod)

    def _pod_goes(self, write: Write, pod: Json) -> None:
        if podstate.labels_of(pod).get(COMPONENT) == "tikv":
            self._tikv_goes(write, pod)
        elif podstate.ready(pod):
            self._replica_goes(write, pod)

    def _tikv_goes(self, write: Write, pod: Json) -> None:
        sim, name, cluster = self.sim, pod["metadata"]["name"], podstate.labels_of(pod)[INSTANCE]
        pd = sim.rig.cluster.pd[TIDB, cluster]
        store = pd.store_of(name)
        leaders = len(pd.server.tikv.led[store.id]) if store is not None else 0
        if write.verb == "delete":
            sim.coverage.hit("tikv-deleted-by-us")
        if leaders and not self._stale(write.by):
            sim.fail("E6 no leader on a TiKV pod that goes", f"{write.what} by {write.by}: {leaders} leaders")
        wanted = sim.rig.cluster.store.get(Kind.STATEFUL_SET, TIDB, f"{cluster}-tikv")["spec"]["replicas"]
        for ordinal in range(wanted):
            other = f"{cluster}-tikv-{ordinal}"
            since = self._away.get((TIDB, other))
            if other == name or since is None:
                continue
            ours = other in self._deleted
            if ours or (self._known(since) and not self._stale(write.by)):
                whose = "by our own act" if ours else f"since {sim.now - since:.0f} s"
                sim.fail("E7 never two members away", f"{write.what} by {write.by}: {other} is away {whose}")
        self._deleted.add(name)

    def _replica_goes(self, write: Write, pod: Json) -> None:
        """A Ready replica goes: is there room for it to be away?"""
        workload = self._workload_of(pod)
        if workload is None:
            return
        sim, meta = self.sim, workload["metadata"]
        noticed = podstate.node_of(pod) in sim.rig.cluster.cloud.notices
        wanted = int(workload["spec"].get("replicas", 1))
        others = [
            p for p in sim.rig.cluster.pods(meta["namespace"], meta["name"]) if p is not pod and podstate.active(p)
        ]
        ready = sum(podstate.ready(p) for p in others)
        missing, allowed = wanted - ready, _allowed(workload, wanted)
        key = f"{workload['kind']}/{meta['name']}"
        recent = self._ours[key] = [at for at in self._ours[key] if sim.now - at < 60]
        waiting = [p for p in others if not podstate.ready(p)]
        known = sum(self._must_be_known(p, recent) for p in waiting)
        counted = 1 + max(0, min(missing - 1 - (len(waiting) - known), known + len(recent)))
        overlap = sim.now - self._leader_changed < OVERLAP_S
        if counted > allowed + overlap and not noticed and not self._stale(write.by):
            words = f"{write.what} by {write.by}: {ready} of {wanted} left Ready, {counted} away where {allowed} may be"
            sim.fail("M5 one by one, only while healthy", words)
        recent.append(sim.now)

    def _must_be_known(self, pod: Json, recent: list[float]) -> bool:
        """A pod that is not Ready: seen for long enough, or the successor of one that we sent away ourselves."""
        since = self._away.get(_key(pod), self.sim.now)
        ours = bool(recent) and since >= recent[0] and pod["metadata"]["uid"] not in self._was_ready
        return ours or self._known(since)

    def _workload_of(self, pod: Json) -> Json | None:
        store, owner = self.sim.rig.cluster.store, controller_of(pod)
        namespace = pod["metadata"]["namespace"]
        if owner is None:
            return None
        if owner["kind"] == "ReplicaSet":
            found = store.find(Kind.REPLICA_SET, namespace, owner["name"])
            owner = controller_of(found) if found is not None else None
        if owner is None or owner["kind"] not in {"Deployment", "StatefulSet"}:
            return None
        return store.find(Kind(owner["kind"]), namespace, owner["name"])

    # ── Objects ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_pod(self, event: str, old: Json | None, new: Json | None) -> None:
        pod = new if new is not None else old
        if pod is None:
            return
        key = _key(pod)
        if event != "DELETED" and podstate.ready(pod) and podstate.active(pod):
            self._away.pop(key, None)
            self._was_ready.add(pod["metadata"]["uid"])
            self._deleted.discard(key[1])
        else:
            self._away.setdefault(key, self.sim.now)
        if event == "ADDED":
            given = podstate.labels_of(pod).get(AFFINITY)
            if given in {"spot", "on-demand"}:
                self.sim.coverage.hit(f"pod-admitted-{given}")
            if RELAXED in podstate.annotations_of(pod):
                self.sim.coverage.hit("pod-relaxed")
        elif LEAVING in podstate.annotations_of(pod) and _owned(old) and not _owned(new):
            self.sim.coverage.hit("pod-detached")

    def _on_node(self, event: str, old: Json | None, new: Json | None) -> None:
        if event != "MODIFIED" or old is None or new is None:
            return
        hit = self.sim.coverage.hit
        was, now = _cut_off(old), _cut_off(new)
        if now and not was:
            hit("no-execute-set")
            self._check_empty(new)
        elif was and not now:
            hit("no-execute-lifted")
        marked = [CORDONED_BY in podstate.annotations_of(one) for one in (old, new)]
        if marked == [False, True]:
            hit("cordoned-by-us")
        elif marked == [True, False]:
            hit("cordon-lifted-by-us")
        if _tainted(new, RESERVED_TAINT) and not _tainted(old, RESERVED_TAINT):
            hit("node-reserved")

    def _check_empty(self, node: Json) -> None:
        """O2: NoExecute only on an empty node, as the store has it; later than the time-out it may cut off."""
        sim, name = self.sim, node["metadata"]["name"]
        marks = [read_mark(podstate.annotations_of(node).get(key, "")) for key in (RETIRING, CORDONED_BY)]
        since = min((mark.since for mark in marks if mark is not None), default=math.inf)
        late = sim.rig.clock.now() - since > RETIRE_TIMEOUT_S - 5.0
        if sim.plan.shape.retire == "immediate" or late:
            return
        pods = [p for p in sim.rig.cluster.store.pods_on(name) if podstate.active(p) and not _stays(p)]
        if pods:
            names = ", ".join(p["metadata"]["name"] for p in pods)
            sim.fail("O2 NoExecute only on an empty node", f"{name} still has {names}")


_WRITES: Final = {
    "evict Pod": "pod-evicted-by-us",
    "pd add_evict_leader": "store-eviction-begun",
    "pd remove_evict_leader": "store-eviction-ended",
    "pd transfer_pd_leader": "pd-leader-transferred",
    "pd add_operator": "pd-operator-added",
    "pd pause_scheduler": "pd-scheduler-paused",
}


def _key(pod: Json) -> PodKey:
    return pod["metadata"].get("namespace", ""), pod["metadata"]["name"]


def _owned(pod: Json | None) -> bool:
    return pod is not None and bool(pod["metadata"].get("ownerReferences"))


def _guarded(write: Write) -> bool:
    """Does this write say which object, or which version of it, it is about?"""
    if write.verb in {"delete", "evict"}:
        return bool(write.body["uid"])
    if write.verb == "create" or not isinstance(write.body, dict):
        return True
    metadata = write.body.get("metadata") or {}
    return bool(metadata.get("uid") or metadata.get("resourceVersion"))


def _allowed(workload: Json, wanted: int) -> int:
    """How many replicas may be away at once."""
    if workload["kind"] != "Deployment" or podstate.annotations_of(workload).get(REBALANCE) != "fast":
        return 1
    return max(1, math.ceil(wanted * 0.25) + math.floor(wanted * 0.25))


def _cut_off(node: Json) -> bool:
    return any(t["key"] == keys.STATE_TAINT and t["effect"] == "NoExecute" for t in node["spec"].get("taints") or ())


def _tainted(node: Json, key: str) -> bool:
    return any(t["key"] == key for t in node["spec"].get("taints") or ())


def _stays(pod: Json) -> bool:
    """A DaemonSet's pod, or one that no taint drives out."""
    owner = controller_of(pod)
    return (owner is not None and owner["kind"] == "DaemonSet") or any(
        t.get("operator") == "Exists" and not t.get("key") for t in pod["spec"].get("tolerations") or ()
    )
