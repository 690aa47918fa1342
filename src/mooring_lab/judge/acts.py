"""What must hold whenever a pod is deleted or a node is cut off, by the objects as they are in the store.

The simulation asks at every write, before it is done; an observer of a real control plane at every event of its watch.
"""

import math
from collections import defaultdict
from typing import Final, Protocol

from mooring.capabilities.fleet.live.release import SOURCE as FLEET
from mooring.capabilities.fleet.planner import keys
from mooring.capabilities.mix.labels import AFFINITY, REBALANCE, RELAXED
from mooring.capabilities.mix.policy import InterruptionPolicy
from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import CORDONED_BY, LEAVING, RESERVED_TAINT, RETIRING, read_mark
from mooring.core.model.tidb import COMPONENT, INSTANCE, V2_CLUSTER
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.controllers.workloads.ownership import controller_of
from mooring_lab.stage.environment import Reader

#: What happened longer ago than this, Mooring must have seen.
SLACK_S: Final = 15.0
#: How long before its last moment a pod is no longer waited for, and a second for the clocks.
MARGIN_S: Final = InterruptionPolicy().margin_s + 1.0
PodKey = tuple[str, str]


class CheckContext(Protocol):
    """Where the promises are watched."""

    #: A node that retires may be cut off with pods on it after so many seconds; None: at once.
    retire_timeout_s: float | None

    @property
    def store(self) -> Reader: ...

    @property
    def now(self) -> float: ...

    def epoch(self) -> float: ...

    def fail(self, promise: str, words: str) -> None: ...

    def hit(self, name: str) -> None:
        """Something worth counting has happened."""
        ...

    def pods(self, namespace: str, workload: str) -> list[Json]: ...

    def leaders(self, namespace: str, cluster: str, pod: str) -> int: ...

    def noticed(self, node: str) -> bool: ...

    def known(self, since: float) -> bool:
        """Must Mooring have seen what is so since then?"""
        ...

    def stale(self, by: str) -> bool:
        """Does this come from a process that has just been woken up?"""
        ...

    def overlaps(self) -> bool:
        """Has another replica just taken over? Then a workload may be one over (worked example 7)."""
        ...


class Promises:
    def __init__(self, context: CheckContext) -> None:
        self.context = context
        #: Since when a pod by this name is not Ready, or not there.
        self.away: dict[PodKey, float] = {}
        #: UIDs of pods that have been Ready at some time.
        self.was_ready: set[str] = set()
        #: When we sent replicas of a workload away, by uid, whose successors are not Ready yet.
        self._ours: defaultdict[PodKey, dict[str, float]] = defaultdict(dict)
        #: TiKV pods that we deleted and that are not back yet.
        self._deleted: set[PodKey] = set()

    # ── A pod goes, by our act ────────────────────────────────────────────────────────────────────────────────────

    def pod_goes(self, what: str, by: str, pod: Json) -> None:
        """`what` is the write, `pod` as it was before."""
        if podstate.labels_of(pod).get(COMPONENT) == "tikv":
            self._tikv_goes(what, by, pod)
        elif podstate.ready(pod):
            self._replica_goes(what, by, pod)

    def _tikv_goes(self, what: str, by: str, pod: Json) -> None:
        context, (namespace, name), cluster = self.context, key_of_pod(pod), podstate.labels_of(pod)[INSTANCE]
        v2 = V2_CLUSTER in podstate.labels_of(pod)
        # The operator of v2 takes them off after the deletion.
        leaders = 0 if v2 else context.leaders(namespace, cluster, name)
        if leaders and not context.stale(by):
            context.fail("E6 no leader on a TiKV pod that goes", f"{what} by {by}: {leaders} leaders")
        begin = name.rpartition("-")[0]
        names = [n for ns, n in self.away if ns == namespace and n.rpartition("-")[0] == begin]
        if not v2:
            wanted = context.store.get(Kind.STATEFUL_SET, namespace, f"{cluster}-tikv")["spec"]["replicas"]
            names = [f"{begin}-{ordinal}" for ordinal in range(wanted)]
        for other in ((namespace, one) for one in names):
            since = self.away.get(other)
            if other[1] == name or since is None:
                continue
            ours = other in self._deleted
            if ours or (context.known(since) and not context.stale(by)):
                whose = "by our own act" if ours else f"since {context.now - since:.0f} s"
                context.fail("E7 never two members away", f"{what} by {by}: {other[1]} is away {whose}")
        self._deleted.add((namespace, name))

    def _replica_goes(self, what: str, by: str, pod: Json) -> None:
        """A Ready replica goes: is there room for it to be away?"""
        workload = workload_of(pod, self.context.store)
        if workload is None:
            return
        context, meta = self.context, workload["metadata"]
        wanted = int(workload["spec"].get("replicas", 1))
        others = [
            p
            for p in context.pods(meta["namespace"], meta["name"])
            if p["metadata"]["uid"] != pod["metadata"]["uid"] and podstate.active(p)
        ]
        ready = sum(podstate.ready(p) for p in others)
        missing, allowed = wanted - ready, _allowed(workload, wanted)
        key = _key_of_workload(workload)
        sent = self._ours[key] = {uid: at for uid, at in self._ours[key].items() if context.now - at < 60}
        sent.pop(pod["metadata"]["uid"], None)  # a second try
        recent = list(sent.values())
        waiting = [p for p in others if not podstate.ready(p)]
        known = sum(self._must_be_known(p, recent) for p in waiting)
        counted = 1 + max(0, min(missing - 1 - (len(waiting) - known), known + len(recent)))
        noticed, promise = context.noticed(podstate.node_of(pod)), "M5 one by one, only while healthy"
        if noticed and workload["kind"] == "StatefulSet":
            promise, allowed = "M8 quorum under a notice", max(1, math.ceil(wanted / 2) - 1)
            noticed = self._is_last_call(pod)
            context.hit("quorum-kept-under-notice")
        excused = noticed or self._retires_overdue(podstate.node_of(pod))
        if counted > allowed + context.overlaps() and not excused and not context.stale(by):
            words = f"{what} by {by}: {ready} of {wanted} left Ready, {counted} away where {allowed} may be"
            context.fail(promise, words)
        sent[pod["metadata"]["uid"]] = context.now

    def excused(self, pod: Json) -> bool:
        """It is lost anyway, or nothing of its node is waited for any more."""
        node = podstate.node_of(pod)
        return (self.context.noticed(node) and self._is_last_call(pod)) or self._retires_overdue(node)

    def _retires_overdue(self, name: str) -> bool:
        """Worked example 3: after `retire-timeout` what is left on the node goes as far as its budgets allow."""
        node = self.context.store.find(Kind.NODE, "", name)
        return node is not None and self._is_overdue(node)

    def _is_overdue(self, node: Json) -> bool:
        timeout_s = self.context.retire_timeout_s
        return timeout_s is not None and self.context.epoch() - _retires_since(node) > timeout_s - 5.0

    def _is_last_call(self, pod: Json) -> bool:
        """Its node goes so soon that only its grace is left: it is lost anyway."""
        node = self.context.store.find(Kind.NODE, "", podstate.node_of(pod))
        mark = read_mark(podstate.annotations_of(node).get(CORDONED_BY, "")) if node is not None else None
        if mark is None or mark.deadline is None:
            return node is None
        grace_s = float(pod["spec"].get("terminationGracePeriodSeconds", 30))
        return self.context.epoch() >= mark.deadline - grace_s - MARGIN_S

    def _must_be_known(self, pod: Json, recent: list[float]) -> bool:
        """A pod that is not Ready: seen for long enough, or the successor of one that we sent away ourselves."""
        since = self.away.get(key_of_pod(pod), self.context.now)
        ours = bool(recent) and since >= recent[0] and pod["metadata"]["uid"] not in self.was_ready
        return ours or self.context.known(since)

    # ── Objects change ────────────────────────────────────────────────────────────────────────────────────────────

    def on_pod(self, event: str, old: Json | None, new: Json | None) -> None:
        pod = new if new is not None else old
        if pod is None:
            return
        key = key_of_pod(pod)
        if event != "DELETED" and podstate.ready(pod) and podstate.active(pod):
            self.away.pop(key, None)
            self._note_ready(pod)
            self._deleted.discard(key)
        else:
            self.away.setdefault(key, self.context.now)
        if event == "ADDED":
            given = podstate.labels_of(pod).get(AFFINITY)
            if given in {"spot", "on-demand"}:
                self.context.hit(f"pod-admitted-{given}")
            if RELAXED in podstate.annotations_of(pod):
                self.context.hit("pod-relaxed")
        elif LEAVING in podstate.annotations_of(pod) and _owned(old) and not _owned(new):
            self.context.hit("pod-detached")

    def _note_ready(self, pod: Json) -> None:
        if pod["metadata"]["uid"] in self.was_ready:
            return
        self.was_ready.add(pod["metadata"]["uid"])
        workload = workload_of(pod, self.context.store) if self._ours else None
        if workload is not None and (sent := self._ours.get(_key_of_workload(workload))):
            del sent[next(iter(sent))]

    def on_node(self, event: str, old: Json | None, new: Json | None) -> None:
        if event != "MODIFIED" or old is None or new is None:
            return
        hit = self.context.hit
        was, now = _cut_off(old), _cut_off(new)
        if now and not was:
            hit("no-execute-set")
            self._check_empty(old, new)
        elif was and not now:
            hit("no-execute-lifted")
        marked = [CORDONED_BY in podstate.annotations_of(one) for one in (old, new)]
        if marked == [False, True]:
            hit("cordoned-by-us")
        elif marked == [True, False]:
            hit("cordon-lifted-by-us")
        if _tainted(new, RESERVED_TAINT) and not _tainted(old, RESERVED_TAINT):
            hit("node-reserved")

    def _check_empty(self, old: Json, new: Json) -> None:
        """O2: NoExecute only on an empty node, as the store has it; later than the time-out it may cut off. The write
        that cuts it off takes the mark away that says since when it retires."""
        context, name = self.context, new["metadata"]["name"]
        if context.retire_timeout_s is None or self._is_overdue(old) or self._is_overdue(new):
            return
        on_it = (p for p in context.store.list(Kind.POD) if podstate.node_of(p) == name)
        if pods := [p["metadata"]["name"] for p in on_it if podstate.active(p) and not _stays(p)]:
            context.fail("O2 NoExecute only on an empty node", f"{name} still has {', '.join(pods)}")


def workload_of(pod: Json, store: Reader) -> Json | None:
    """The Deployment or StatefulSet of a pod."""
    owner = controller_of(pod)
    namespace = pod["metadata"]["namespace"]
    if owner is None:
        return None
    if owner["kind"] == "ReplicaSet":
        found = store.find(Kind.REPLICA_SET, namespace, owner["name"])
        owner = controller_of(found) if found is not None else None
    if owner is None or owner["kind"] not in {"Deployment", "StatefulSet"}:
        return None
    return store.find(Kind(owner["kind"]), namespace, owner["name"])


def key_of_pod(pod: Json) -> PodKey:
    return pod["metadata"].get("namespace", ""), pod["metadata"]["name"]


def _key_of_workload(workload: Json) -> PodKey:
    return workload["metadata"]["namespace"], f"{workload['kind']}/{workload['metadata']['name']}"


def _owned(pod: Json | None) -> bool:
    return pod is not None and bool(pod["metadata"].get("ownerReferences"))


def _allowed(workload: Json, wanted: int) -> int:
    """How many replicas may be away at once."""
    if workload["kind"] != "Deployment" or podstate.annotations_of(workload).get(REBALANCE) != "fast":
        return 1
    return max(1, math.ceil(wanted * 0.25) + math.floor(wanted * 0.25))


def _retires_since(node: Json) -> float:
    """By the first of fleet's marks: its time-out counts from the cordon, not from the last try."""
    marks = [read_mark(podstate.annotations_of(node).get(key, "")) for key in (RETIRING, CORDONED_BY)]
    return min((mark.since for mark in marks if mark is not None and mark.source == FLEET), default=math.inf)


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
