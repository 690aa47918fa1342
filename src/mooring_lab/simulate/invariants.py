"""What must hold at every write of ours and at every second, by the objects in the store.

Mooring decides by what it has seen, and what others did a moment ago it cannot have seen. So what it could not know yet
(younger than `SLACK_S`, or hidden by a fault that is on) is not held against it; what it did itself always is.
"""

import math
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any, Final

from mooring.capabilities.drain.gate import IN_PROGRESS, LAST_CALL_S, MIX_PLACES
from mooring.capabilities.drain.gate import SOURCE as EVICTION
from mooring.capabilities.drain.nodes import DRAIN, RESTART
from mooring.capabilities.handoff.requests import EVICT_LEADER
from mooring.capabilities.handoff.requests import RESTART as TIDB_RESTART
from mooring.capabilities.mix.interruption.notices import SOURCE as NOTICE
from mooring.clients.ports import Json
from mooring.core.engine.invariants import broken
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import CORDONED_BY, LEAVING, RETIRING, TERMINATES_AT, read_mark
from mooring.core.model.tidb import COMPONENT, V2_CLUSTER
from mooring.core.model.times import moment
from mooring.core.queue.audit import audit
from mooring.process.replica import Replica
from mooring_lab.cluster.apiserver.server import Write
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.controllers.workloads.ownership import controller_of
from mooring_lab.cluster.leaders import LedSystem
from mooring_lab.cluster.nodes import ZONE
from mooring_lab.events.context import TIDB
from mooring_lab.judge.acts import SLACK_S, Promises, key_of_pod
from mooring_lab.judge.observer import OVERLAP_S
from mooring_lab.simulate.build import RETIRE_TIMEOUT_S, drain_of
from mooring_lab.simulate.floor import Floor
from mooring_lab.stage.scenarios.home import ask_mooring

if TYPE_CHECKING:
    from mooring_lab.simulate.simulation import Simulation

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# H1, H3: a TiDB member that is recreated is bound to the node it had, whenever the scheduler offers that node.


class Homes:
    def __init__(self, watch: "Watch") -> None:
        self._watch = watch
        #: Member → its last node, and since when it had it.
        self._last: dict[str, tuple[str, float]] = {}
        #: Nodes that were offered for a pod, by its UID, to a replica that can tell.
        self._offered: dict[str, frozenset[str]] = {}

    def begin(self) -> None:
        sim = self._watch.sim
        if "home" in sim.plan.shape.features:
            for pod in sim.stage.cluster.store.list(Kind.POD, TIDB):
                self.on_pod("ADDED", None, pod)
            sim.stage.cluster.store.subscribe(Kind.POD, self.on_pod)
            ask_mooring(sim.stage, heard=self.heard)

    def heard(self, replica: Replica, request: Json) -> None:
        """A scheduler has asked this replica about a pod."""
        engine = replica.engine
        answers = engine.synced and "home" in engine.on
        self._offered[request["Pod"]["metadata"]["uid"]] = frozenset(request["NodeNames"] if answers else ())

    def on_pod(self, _: str, old: Json | None, new: Json | None) -> None:
        if new is None or podstate.labels_of(new).get(COMPONENT) != "tidb":
            return
        name, node = new["metadata"]["name"], podstate.node_of(new)
        mark = podstate.annotations_of(new).get(LEAVING)
        if mark is not None and getattr(read_mark(mark), "source", "") != "handoff":
            self._last.pop(name, None)
        elif node and (old is None or not podstate.node_of(old)):
            self._bound(name, new["metadata"]["uid"], node)

    def _bound(self, name: str, uid: str, node: str) -> None:
        watch, offered = self._watch, self._offered.pop(uid, frozenset())
        home, since = self._last.get(name, ("", 0.0))
        if home in offered:
            if node == home:
                watch.hit("member-came-home")
            elif watch.known(since):
                watch.fail("H1 a member goes home", f"{name} is bound to {node}; {home}, its last node, was offered")
        self._last[name] = (node, watch.now)


#: More operators for one subject within a minute are a circle.
OPERATORS_PER_MINUTE: Final = 12
#: And so is one eviction of a store that is begun again and again.
EVICTIONS_PER_MINUTE: Final = 6
_UNGUARDED: Final = frozenset({Kind.LEASE, Kind.EVENT})


# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# D1-D3: what the gate holds and lets go, and that nothing of ours goes on the word of a review.

#: What a person or another of our features may ask of the same pod.
_ASKS: Final = (TIDB_RESTART, EVICT_LEADER, RESTART)


class Gate:
    def __init__(self, watch: "Watch") -> None:
        self._watch = watch
        self._max_hold_s = drain_of(watch.sim.plan.shape).max_hold_s
        #: By uid, when its eviction was held first, since when without a gap, and when last.
        self._held: dict[str, tuple[float, float, float]] = {}

    def _decides(self) -> bool:
        """A replica that can know leads; else it fails open."""
        watch, engine = self._watch, self._watch.sim.engine()
        on = engine is not None and engine.deciding and "drain" in engine.on
        return bool(on) and not watch.overlaps() and watch.known(-60.0)

    def on_held(self, pod: Json, words: str) -> None:
        """D3: what protects nothing passes at once, and no eviction is held for longer than `max-hold-s`."""
        watch, uid = self._watch, pod["metadata"]["uid"]
        if IN_PROGRESS not in words:
            return
        first, since, last = self._held.get(uid, (watch.now, watch.now, watch.now))
        if watch.now - last > 60.0 or watch.sim.excuses.leader_changed > last:
            since = watch.now  # asked for anew; or by a new leader that may not have seen it yet
        self._held[uid] = (first, since, watch.now)
        name = podstate.key_of(pod)[1]
        if watch.now - since > self._max_hold_s + 60.0 + watch.sim.excuses.lag_s:
            watch.fail("D3 no eviction is held for ever", f"{name}, for {watch.now - since:.0f} s: {words}")
        serves = podstate.ready(pod) or podstate.labels_of(pod).get(COMPONENT) == "tikv"
        away = watch.away_since(pod)
        if not serves and self._decides() and away is not None and watch.known(away):
            watch.fail("D3 what serves nobody passes at once", f"{name}: {words}")

    def _may_pass(self, pod: Json) -> bool:
        """Its time is over, or Karpenter is about to delete it by force."""
        watch = self._watch
        first, _, _ = self._held.get(pod["metadata"]["uid"], (watch.now, 0.0, 0.0))
        if watch.now - first > self._max_hold_s - 15.0:
            watch.hit("eviction-held-to-the-end")
            return True
        ends = watch.ends_at(podstate.node_of(pod))
        grace_s = pod["spec"].get("terminationGracePeriodSeconds", 30)
        if ends is not None and watch.epoch() >= ends - grace_s - LAST_CALL_S - 1.0:
            watch.hit("eviction-passed-before-the-end-of-a-node")
            return True
        return False

    def on_eviction(self, pod: Json, by: str) -> None:
        """D1, D2: the gate has answered, and a pod that serves went. Its leaders were off before; the only replica of a
        Deployment had its replacement."""
        watch, engine = self._watch, self._watch.sim.engine()
        if not self._decides() or self._may_pass(pod):
            return
        ready_at = podstate.ready_since(pod)
        if ready_at is None or not watch.known(watch.now - (watch.epoch() - ready_at)):
            return  # it serves nobody, as far as Mooring can know
        namespace, name = podstate.key_of(pod)
        labels = podstate.labels_of(pod)
        if labels.get(COMPONENT) == "tikv" and "handoff" in engine.on:
            cluster = labels.get("app.kubernetes.io/instance", "")
            leaders = watch.leaders(namespace, cluster, name)
            watch.hit("eviction-judged")
            if leaders and V2_CLUSTER not in labels:
                watch.fail("D1 the gate keeps a pod until its leaders are off", f"{name}: {leaders}, taken by {by}")
        app = labels.get("app", "")
        deployment = watch.store.find(Kind.DEPLOYMENT, namespace, app) if "mix" in engine.on and app else None
        if deployment is not None and podstate.labels_of(deployment).get(MIX_PLACES) == "true":
            others = [p for p in watch.pods(namespace, app) if p["metadata"]["uid"] != pod["metadata"]["uid"]]
            watch.hit("eviction-judged")
            if deployment["spec"].get("replicas", 1) and not any(map(podstate.ready, others)):
                watch.fail("D2 its replacement is Ready before it goes", f"{namespace}/{name}, taken by {by}")

    def on_write(self, what: str, by: str, pod: Json) -> None:
        """D1: an eviction that was asked for only prepares; who else may have asked is not judged here."""
        watch, have = self._watch, podstate.annotations_of(pod)
        mark, node = read_mark(have.get(LEAVING, "")), podstate.node_of(pod)
        if mark is None or mark.source != EVICTION or any(key in have for key in _ASKS) or watch.stale(by):
            return
        found = watch.store.find(Kind.NODE, "", node)
        asked = found is not None and {DRAIN, CORDONED_BY, RETIRING} & podstate.annotations_of(found).keys()
        if not asked and not watch.noticed(node):
            watch.fail("D1 nothing is deleted on the word of a review", f"{what}, asked for by an eviction alone")


class Watch:
    def __init__(self, sim: "Simulation") -> None:
        self.sim = sim
        self._queued: defaultdict[str, deque[float]] = defaultdict(deque)
        #: Stores that each cluster's PD evicted at the last look.
        self._evicting: dict[str, frozenset[int]] = {}
        self._seconds = 0
        self.retire_timeout_s = None if sim.plan.shape.retire == "immediate" else RETIRE_TIMEOUT_S
        self.fail, self.hit, self.promises = sim.fail, sim.hit, Promises(self)
        self.homes, self.floor, self.gate = Homes(self), Floor(self), Gate(self)

    def begin(self) -> None:
        sim, store = self.sim, self.sim.stage.cluster.store
        sim.stage.on_write = self._on_write
        sim.stage.api.before_write(self._before)
        self.promises.was_ready.update(pod["metadata"]["uid"] for pod in store.list(Kind.POD))
        store.subscribe(Kind.NODE, self.promises.on_node)
        store.subscribe(Kind.POD, self.promises.on_pod)
        self.homes.begin()
        self.floor.begin()

    # ── What the faults say ───────────────────────────────────────────────────────────────────────────────────────

    def known(self, since: float) -> bool:
        now = self.sim.now
        excuses = self.sim.excuses
        return now - since > SLACK_S + excuses.lag_s and now > excuses.blind_until + SLACK_S

    def away_since(self, pod: Json) -> float | None:
        return self.promises.away.get(key_of_pod(pod))

    def stale(self, by: str) -> bool:
        return self.sim.now - self.sim.excuses.resumed.get(by, -math.inf) < 10.0

    def overlaps(self) -> bool:
        return self.sim.now - self.sim.excuses.leader_changed < OVERLAP_S

    # ── What the promises ask ─────────────────────────────────────────────────────────────────────────────────────

    @property
    def store(self) -> ObjectStore:
        return self.sim.stage.cluster.store

    @property
    def now(self) -> float:
        return self.sim.now

    def epoch(self) -> float:
        return self.sim.stage.clock.now()

    def pods(self, namespace: str, workload: str) -> list[Json]:
        return self.sim.stage.cluster.pods(namespace, workload)

    def leaders(self, namespace: str, cluster: str, pod: str) -> int:
        return self.sim.stage.cluster.leaders_on(namespace, cluster, pod)

    def noticed(self, node: str) -> bool:
        """Also while Mooring cannot know that it was taken back. And after its end, where Mooring saw it late and
        counts from then on: the machine has stopped, and the Node is still there under our cordon with a later
        deadline."""
        withdrawn_at = self.sim.excuses.withdrawn.get(node)
        if withdrawn_at is not None and not self.known(withdrawn_at):
            return True
        cloud, obj = self.sim.stage.cluster.cloud, self.store.find(Kind.NODE, "", node)
        if node in cloud.notices or obj is None or self.ends_at(node) is not None:
            return True  # without its Node a pod serves no client
        if node not in cloud.taken():
            return False
        mark = read_mark(podstate.annotations_of(obj).get(CORDONED_BY, ""))
        return mark is not None and mark.source == NOTICE and mark.deadline is not None

    def ends_at(self, node: str) -> float | None:
        """When Karpenter ends it, as its NodeClaim says."""
        claim = self.store.find(Kind.NODE_CLAIM, "", f"claim-{node}")
        return None if claim is None else moment(podstate.annotations_of(claim)[TERMINATES_AT])

    # ── Every second ──────────────────────────────────────────────────────────────────────────────────────────────

    def each_second(self) -> None:
        sim = self.sim
        self._seconds += 1
        if sim.on_death is not None and not sim.stage.killing():
            on_death, sim.on_death = sim.on_death, None
            on_death()
        for one in sim.stage.replicas.values():
            if one.task.done() and not one.task.cancelled():
                sim.fail("no defect", f"{one.replica.identity} ended: {one.task.exception()!r}")
        if self._seconds % 10 == 0:
            self.floor.look()
        if self._seconds % 5 == 0:
            engine = sim.engine()
            if engine is not None:
                found = broken(engine) if self._seconds % 60 == 0 else audit(engine.queue)
                if found:
                    sim.fail("O1 the queue's books are right", "; ".join(found))

    def follow(self, replica: Replica) -> None:
        replica.engine.history.listeners.append(self._on_entry)

    def _on_entry(self, entry: Any) -> None:
        hit = self.sim.hit
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
        times = self._within_a_minute(subject)
        if times > OPERATORS_PER_MINUTE:
            words = f"{times} operators for {subject} within a minute; the last: {entry.source} {entry.text}"
            self.sim.fail("operators per subject and minute", words)

    def _within_a_minute(self, what: str) -> int:
        times = self._queued[what]
        times.append(self.sim.now)
        while times[0] < self.sim.now - 60:
            times.popleft()
        return len(times)

    # ── Writes ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_write(self, what: str) -> None:
        sim = self.sim
        if not what.startswith("pd pause_scheduler"):
            sim.note(f"  {what}")
        for start, name in _WRITES.items():
            if what.startswith(start):
                sim.hit(name)
        if "_evict_leader " in what:
            self._count_evictions()

    def _count_evictions(self) -> None:
        """By what stands in PD before each write: one that never arrived has begun nothing."""
        sim = self.sim
        for (_, name), pd in sim.stage.cluster.pd.items():
            stores, before = frozenset(pd.server.evicting), self._evicting.get(name, frozenset())
            self._evicting[name] = stores
            for store in sorted(stores - before):
                times = self._within_a_minute(f"eviction of {name} store {store}")
                if times > EVICTIONS_PER_MINUTE and (name, store) not in sim.edits.evicts:
                    sim.fail("evictions per store and minute", f"{times} of {name} store {store} within a minute")

    def _before(self, write: Write) -> None:
        """Asked when the API server is about to do it; nothing has happened yet."""
        if write.kind in _UNGUARDED or not write.by.startswith("mooring"):
            return
        if self.stale(write.by):
            self.sim.hit("late-write-of-old-leader")
        if not _guarded(write):
            self.sim.fail("no write without precondition", f"{write.what} {write.body}")
        if write.verb in {"delete", "evict"} and write.kind is Kind.POD:
            pod = self.sim.stage.cluster.store.find(Kind.POD, write.namespace, write.name)
            if pod is not None and pod["metadata"]["uid"] == write.body["uid"] and podstate.active(pod):
                if write.verb == "delete" and podstate.labels_of(pod).get(COMPONENT) == "tikv":
                    v2 = V2_CLUSTER in podstate.labels_of(pod)
                    self.sim.hit("v2-tikv-deleted-by-us" if v2 else "tikv-deleted-by-us")
                self.gate.on_write(write.what, write.by, pod)
                self.promises.pod_goes(write.what, write.by, pod)
                self._member_goes(write, pod)
                self.floor.pod_goes(write.what, write.by, pod)
                self._goes_for_silence(write, pod)

    def _member_goes(self, write: Write, pod: Json) -> None:
        """L1: a member that leads goes only once its leadership was handed on; past a last call it is lost anyway."""
        name, system = pod["metadata"]["name"], self._system_of(pod)
        engine = self.sim.engine()
        if system is None or engine is None or "handoff" not in engine.on or self.stale(write.by):
            return
        self.hit("led-member-deleted-by-us")
        since = system.led_since - (self.sim.stage.cluster.timeline.monotonic() - self.sim.now)
        if system.leader == name and self.known(since) and not self.promises.excused(pod):
            self.fail("L1 no leader on a member that goes", f"{write.what} by {write.by}: it leads {system.driver}")

    def _system_of(self, pod: Json) -> LedSystem | None:
        owner, namespace = controller_of(pod), pod["metadata"]["namespace"]
        return None if owner is None else self.sim.stage.cluster.led.systems.get((namespace, owner["name"]))

    def _goes_for_silence(self, write: Write, pod: Json) -> None:
        """M8: while no node of a zone reports, the way to the API server is the likelier cause."""
        mark, cluster = read_mark(podstate.annotations_of(pod).get(LEAVING, "")), self.sim.stage.cluster
        node = cluster.store.find(Kind.NODE, "", podstate.node_of(pod))
        if mark is None or mark.source != NOTICE or node is None or self.stale(write.by):
            return
        if node["metadata"]["name"] in cluster.cloud.notices or CORDONED_BY in podstate.annotations_of(node):
            return  # it had notice: it was to fall silent
        zone, start = podstate.labels_of(node).get(ZONE), cluster.timeline.now() - self.sim.now
        nodes = [n for n in cluster.store.list(Kind.NODE) if podstate.labels_of(n).get(ZONE) == zone]
        silent = [_silent_since(n) for n in nodes if CORDONED_BY not in podstate.annotations_of(n)]
        if zone and len(silent) > _FEW and all(at is not None and self.known(at - start) for at in silent):
            self.fail("M8 nothing goes for the silence of a whole zone", f"{write.what}: no node of {zone} reports")


#: One or two silent nodes tell little about a zone.
_FEW: Final = 2


def _silent_since(node: Json) -> float | None:
    """None: it reports."""
    condition = podstate.condition(node, "Ready")
    if condition is None or condition["status"] != "Unknown":
        return None
    return moment(condition.get("lastTransitionTime", "")) or 0.0


_WRITES: Final = {
    "evict Pod": "pod-evicted-by-us",
    "pd add_evict_leader": "store-eviction-begun",
    "pd remove_evict_leader": "store-eviction-ended",
    "pd transfer_pd_leader": "pd-leader-transferred",
    "pd add_operator": "pd-operator-added",
    "pd pause_scheduler": "pd-scheduler-paused",
    "leaders move_off": "leadership-moved-by-us",
}


def _guarded(write: Write) -> bool:
    """Does this write say which object, or which version of it, it is about?"""
    if write.verb in {"delete", "evict"}:
        return bool(write.body["uid"])
    if write.verb == "create" or not isinstance(write.body, dict):
        return True
    metadata = write.body.get("metadata") or {}
    return bool(metadata.get("uid") or metadata.get("resourceVersion"))
