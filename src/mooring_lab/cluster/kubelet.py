"""The kubelets: what becomes of a pod once it has a node.

    bound ──start-seconds──▶ Running ──ready-seconds──▶ Ready ──deleted──▶ ends within its grace ──▶ gone
      └ fail=start: stays Pending   └ fail=ready, crash: never Ready   └ fail=exit: Failed; removed: it recovers

Times come from the pod's annotations (the same keys as in the lab) or from the defaults. A node may go silent: then
nothing on it is reported any more, neither readiness nor an end, until it speaks again or is gone. Heartbeats are not
written one by one: a node beats until it is silent, and the node lifecycle controller asks since when.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.core.model.times import moment, rfc3339
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline, Timer
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.controllers.podstate import annotations_of, key_of, make_condition, node_of, with_condition
from mooring_lab.cluster.nodes import healthy_conditions

START: Final = "lab.mooring.dev/start-seconds"
READY: Final = "lab.mooring.dev/ready-seconds"
#: To Ready at the most, where slow starts are played.
SLOWEST: Final = "lab.mooring.dev/slowest-start-seconds"
GRACE: Final = "lab.mooring.dev/grace-seconds"
FAIL: Final = "lab.mooring.dev/fail"
#: What a crash loop shows when it is first looked at.
CRASH_RESTARTS: Final = 3

_READINESS: Final = ("ContainersReady", "Ready")

PodKey = tuple[str, str]


class KubeletPace(msgspec.Struct, frozen=True):
    """How long things take where a pod does not say: start to Running, Running to Ready, ending, and a slow start."""

    start_s: float = 2.0
    ready_s: float = 1.0
    end_s: float = 1.0
    slowest_s: float = 60.0


#: A process that needs more time is asked so often.
ASK_S: Final = 0.5


class _Stage(msgspec.Struct):
    uid: str
    node: str
    name: str
    timer: Timer


class Kubelets:
    def __init__(self, timeline: Timeline, store: ObjectStore, pace: KubeletPace | None = None) -> None:
        self._timeline = timeline
        self._store = store
        self.pace = pace or KubeletPace()
        #: From now on every pod takes as long to start as the slowest of its kind did.
        self.slowest = False
        self._stages: dict[PodKey, _Stage] = {}
        self._silent: dict[str, float] = {}
        #: Nodes in graceful shutdown: they start nothing any more.
        self._closing: set[str] = set()
        self._addresses: dict[str, int] = {}
        self._listeners: list[Callable[[str], None]] = []
        #: Does this pod's process, which was told to end, need more time?
        self.needs_time: Callable[[Json], bool] = lambda _: False
        for pod in store.list(Kind.POD):
            self._on_pod("ADDED", None, pod)
        store.subscribe(Kind.POD, self._on_pod)
        store.subscribe(Kind.NODE, self._on_node)

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────

    def on_health(self, listener: Callable[[str], None]) -> None:
        """Called with the node's name when its heartbeats stop or resume."""
        self._listeners.append(listener)

    def silent_since(self, node: str) -> float | None:
        """Monotonic time of the last heartbeat of a silent node; None while it beats."""
        return self._silent.get(node)

    def silence(self, node: str) -> None:
        """No heartbeat, no status, no end of a pod from this node any more."""
        if node not in self._silent:
            self._silent[node] = self._timeline.monotonic()
            for listener in self._listeners:
                listener(node)

    def resume(self, node: str) -> None:
        """It speaks again: the node is Ready, ended pods are reported, the others carry on."""
        if self._silent.pop(node, None) is None:
            return
        self._closing.discard(node)
        now = self._timeline.now()

        def healthy(current: Json) -> Json:
            conditions = list((current.get("status") or {}).get("conditions") or ())
            for item in healthy_conditions(now):
                conditions = with_condition(conditions, item)
            return podstate.with_status(current, conditions=conditions)

        self._store.mutate(Kind.NODE, "", node, healthy)
        for pod in self._store.pods_on(node):
            self._stop(key_of(pod))
            self._look(pod)
        for listener in self._listeners:
            listener(node)

    def shut_down(self, node: str, grace_s: float = 30.0) -> None:
        """Graceful node shutdown: Ready=False at once, pods ended within the grace, then silence."""
        now = self._timeline.now()
        self._closing.add(node)
        item = make_condition("Ready", "False", now, "KubeletNotReady", "node is shutting down")
        self._store.mutate(
            Kind.NODE,
            "",
            node,
            lambda current: podstate.with_status(
                current, conditions=with_condition(list(current["status"]["conditions"]), item)
            ),
        )
        for pod in self._store.pods_on(node):
            key, uid = key_of(pod), pod["metadata"]["uid"]
            self._stop(key)
            wait_s = min(self._end_s(pod), grace_s)
            self._timeline.after(wait_s, lambda key=key, uid=uid: self._cut_off(key, uid))  # type: ignore[misc]
        self._timeline.after(grace_s, lambda: self.silence(node))

    def _cut_off(self, key: PodKey, uid: str) -> None:
        now = self._timeline.now()

        def failed(current: Json) -> Json | None:
            if current["metadata"]["uid"] != uid or podstate.terminal(current):
                return None
            conditions = list(current["status"].get("conditions") or ())
            for kind in ("Ready", "ContainersReady"):
                conditions = with_condition(conditions, make_condition(kind, "False", now, "PodFailed"))
            return podstate.with_status(
                current,
                phase="Failed",
                reason="Terminated",
                message="Pod was terminated in response to imminent node shutdown.",
                conditions=conditions,
            )

        self._store.mutate(Kind.POD, *key, failed)

    def _on_node(self, kind: str, old: Json | None, new: Json | None) -> None:
        if kind == "ADDED" and new is not None:
            for pod in self._store.pods_on(new["metadata"]["name"]):  # bound before the machine registered
                self._stop(key_of(pod))
                self._look(pod)
        elif kind == "DELETED" and old is not None:
            name = old["metadata"]["name"]
            self._silent.pop(name, None)
            self._closing.discard(name)
            for pod in self._store.pods_on(name):
                self._stop(key_of(pod))

    def _alive(self, node: str) -> bool:
        return node not in self._silent and self._store.find(Kind.NODE, "", node) is not None

    # ── pods ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_pod(self, kind: str, old: Json | None, new: Json | None) -> None:
        if kind == "DELETED" or new is None:
            if old is not None:
                self._stop(key_of(old))
        elif new["spec"].get("nodeName"):
            self._look(new)

    def _look(self, pod: Json) -> None:
        """Begin the stage that is due for this pod, unless it is under way."""
        node = node_of(pod)
        stage = self._stages.get(key_of(pod))
        if podstate.terminating(pod):
            if stage is None or stage.name != "ending" or stage.uid != pod["metadata"]["uid"]:
                self._begin(pod, node, "ending", self._end_s(pod), self._end)
            elif pod["metadata"].get("deletionGracePeriodSeconds") == 0:
                self._begin(pod, node, "ending", 0.0, self._end)
            return
        fail = annotations_of(pod).get(FAIL, "")
        if stage is not None and stage.uid == pod["metadata"]["uid"]:
            if fail == "start" and stage.name == "starting":
                self._stop(key_of(pod))
            return
        if podstate.terminal(pod) or node in self._closing:
            return
        if podstate.phase_of(pod) == "Pending":
            if fail != "start":
                self._begin(pod, node, "starting", self._start_s(pod), self._run)
        elif fail in {"ready", "crash", "exit"}:
            if podstate.ready(pod) or fail == "exit":
                self._begin(pod, node, "failing", 0.0, self._run)
        elif not podstate.ready(pod):
            self._begin(pod, node, "readying", self._seconds(pod, READY, self.pace.ready_s), self._ready)

    def _begin(self, pod: Json, node: str, name: str, delay_s: float, then: Callable[[PodKey, str], None]) -> None:
        key, uid = key_of(pod), pod["metadata"]["uid"]
        self._stop(key)
        self._stages[key] = _Stage(uid, node, name, self._timeline.after(delay_s, lambda: then(key, uid)))

    def _stop(self, key: PodKey) -> None:
        stage = self._stages.pop(key, None)
        if stage is not None:
            stage.timer.cancel()

    def _due(self, key: PodKey, uid: str) -> Json | None:
        """The pod, if its stage still applies and its kubelet can act."""
        pod = self._store.find(Kind.POD, *key)
        if pod is None or pod["metadata"]["uid"] != uid or not self._alive(node_of(pod)):
            return None  # a node that speaks again begins its stages again
        self._stages.pop(key, None)
        return pod

    def _run(self, key: PodKey, uid: str) -> None:
        pod = self._due(key, uid)
        if pod is None:
            return
        fail = annotations_of(pod).get(FAIL, "")
        if fail == "exit":
            self._write(pod, "Failed", ready=False, reason="Error")
        elif fail in {"ready", "crash"}:
            self._write(pod, "Running", ready=False, restarts=CRASH_RESTARTS if fail == "crash" else 0)
        elif self._seconds(pod, READY, self.pace.ready_s) <= 0:
            self._write(pod, "Running", ready=True)
        else:
            self._write(pod, "Running", ready=False)

    def _ready(self, key: PodKey, uid: str) -> None:
        pod = self._due(key, uid)
        if pod is not None and not podstate.terminating(pod):
            self._write(pod, "Running", ready=True)

    def _end(self, key: PodKey, uid: str) -> None:
        pod = self._due(key, uid)
        if pod is None:
            return
        if pod["metadata"].get("deletionGracePeriodSeconds") and self._in_grace(pod) and self.needs_time(pod):
            self._begin(pod, node_of(pod), "ending", ASK_S, self._end)
        else:
            self._store.remove(Kind.POD, *key)

    def _in_grace(self, pod: Json) -> bool:
        """Its deletionTimestamp is when it is killed."""
        killed_at = moment(pod["metadata"].get("deletionTimestamp") or "")
        return killed_at is not None and self._timeline.now() + ASK_S < killed_at

    def _write(self, pod: Json, phase: str, *, ready: bool, reason: str = "", restarts: int = 0) -> None:
        now = self._timeline.now()
        status = pod.get("status") or {}
        word = "True" if ready else "False"
        why = "" if ready else reason or "ContainersNotReady"
        conditions = [c for c in status.get("conditions") or () if c["type"] not in _READINESS]
        if not status.get("startTime"):
            conditions.append(make_condition("Initialized", "True", now))
        for kind in _READINESS:
            was, item = podstate.condition(pod, kind), make_condition(kind, word, now, why)
            if was is not None and was["status"] == word:
                item = {**item, "lastTransitionTime": was["lastTransitionTime"]}
            conditions.append(item)
        fresh: Json = {**status, "phase": phase, "conditions": conditions}
        if not status.get("podIP"):
            fresh["startTime"] = rfc3339(now)
            fresh["podIP"] = self._address(node_of(pod))
            fresh["podIPs"] = [{"ip": fresh["podIP"]}]
            node = self._store.find(Kind.NODE, "", node_of(pod))
            addresses = ((node or {}).get("status") or {}).get("addresses") or [{"address": ""}]
            fresh["hostIP"] = addresses[0]["address"]
        if reason:
            fresh["reason"] = reason
        fresh["containerStatuses"] = [
            {"name": one["name"], "ready": ready, "started": phase == "Running", "restartCount": restarts}
            for one in pod["spec"].get("containers") or ()
        ]
        self._store.mutate(Kind.POD, *key_of(pod), lambda current: {**current, "status": fresh})

    def _address(self, node: str) -> str:
        found = self._store.find(Kind.NODE, "", node)
        cidr = ((found or {}).get("spec") or {}).get("podCIDR", "10.255.0.0/24")
        last = self._addresses[node] = self._addresses.get(node, 1) % 253 + 1
        return str(cidr.rsplit(".", 1)[0]) + f".{last + 1}"

    def _seconds(self, pod: Json, key: str, default: float) -> float:
        try:
            return max(0.0, float(annotations_of(pod).get(key, default)))
        except ValueError:
            return default

    def _start_s(self, pod: Json) -> float:
        if self.slowest:
            return self._seconds(pod, SLOWEST, self._seconds(pod, START, self.pace.slowest_s))
        return self._seconds(pod, START, self.pace.start_s)

    def _end_s(self, pod: Json) -> float:
        """It ends by itself, or is killed when its grace is over."""
        grace = pod["metadata"].get("deletionGracePeriodSeconds", pod["spec"].get("terminationGracePeriodSeconds", 30))
        return min(self._seconds(pod, GRACE, self.pace.end_s), float(grace))
