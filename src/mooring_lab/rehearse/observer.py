"""Counts which pods serve, moment by moment, while an event is played.

Kubernetes counts on a node for 50 s after its machine has failed; the observer does not. A pod serves when it is Ready,
not leaving, and its machine runs. So TiKV and PD too end with their machine here, whatever the API server still says of
their pods: stores stop, and a PD without a majority of its members does not answer.

Nothing here touches the cluster but for that; it only counts.
"""

from collections.abc import Callable, Iterable

import msgspec

from mooring.clients.ports import Json
from mooring.clients.wire.annotations import MIRROR
from mooring.core.model.capacity import CapacityRules
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.apiserver.eviction import budgets_of
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.controllers.podstate import labels_of, node_of
from mooring_lab.cluster.controllers.workloads.ownership import controller_of
from mooring_lab.judge.lines import PER_NODE, Meter, Promise, Tally, Wanted, title


class GonePod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that ended, or lost its machine, since the event began."""

    at_s: float
    pod: str
    workload: str
    node: str
    #: "lost": with its machine · "moved": by Mooring · "ended": by another client.
    how: str
    #: Its node had been given notice.
    noticed: bool = False


class Come(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that became Ready since the event began."""

    at_s: float
    pod: str
    workload: str
    node: str


class StuckPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod on a machine that does not run, and whose Node is still there: it is not started elsewhere. Or one that a
    drain leaves on its node, with the budgets that keep it."""

    pod: str
    workload: str
    node: str
    budgets: tuple[str, ...] = ()


class Observer:
    def __init__(
        self,
        cluster: Cluster,
        wanted: list[Wanted],
        promises: list[Promise],
        rules: CapacityRules,
        *,
        by_us: Callable[[str], bool],
        say: Callable[[str, str, str, str], None],
    ) -> None:
        """`by_us("shop/web-1")`: did Mooring end it? `say(who, words, verb, about)`: a line of the timeline."""
        self._cluster = cluster
        self._by_us = by_us
        self._say = say
        self._began = cluster.timeline.monotonic()
        self._titles = {one.uid: one.name for one in wanted}
        self.gone: list[GonePod] = []
        self.come: list[Come] = []
        self.noticed: set[str] = set()
        self._dead: set[str] = set()
        self._changed_at = self._began
        self._stopped = False
        self._tally = Tally(cluster.store, wanted, promises, rules)
        for pod in cluster.store.list(Kind.POD):
            self._tally.count(pod, up=self.serves(pod))
        self._tally.begin(lambda: self.now_s, self._tell)
        cluster.store.subscribe(Kind.POD, self._on_pod)
        cluster.store.subscribe(Kind.NODE, self._on_node)
        cluster.kubelets.on_health(self._on_health)

    @property
    def meters(self) -> list[Meter]:
        """One for each workload, then one for each promise."""
        return self._tally.meters

    @property
    def now_s(self) -> float:
        return self._cluster.timeline.monotonic() - self._began

    @property
    def quiet_s(self) -> float:
        """Since when no pod and no node has changed."""
        return self._cluster.timeline.monotonic() - self._changed_at

    def stop(self) -> None:
        """What happens from now on is not counted any more."""
        self._stopped = True

    def serves(self, pod: Json) -> bool:
        return podstate.ready(pod) and podstate.active(pod) and self.runs(node_of(pod))

    def serves_now(self, pod: str) -> bool:
        """By "namespace/name"."""
        found = self._cluster.store.find(Kind.POD, *pod.split("/", 1))
        return found is not None and self.serves(found)

    def runs(self, node: str) -> bool:
        return node not in self._dead and self._cluster.store.find(Kind.NODE, "", node) is not None

    def workload_of(self, pod: Json) -> str:
        return self._titles.get(self._tally.owner_of(pod), "") or _owner_words(pod)

    def stuck(self) -> list[StuckPod]:
        return [
            StuckPod(pod=_key(pod), workload=self.workload_of(pod), node=node_of(pod))
            for node in sorted(self._dead)
            if self._cluster.store.find(Kind.NODE, "", node) is not None
            for pod in self._cluster.store.pods_on(node)
            if not _per_node(pod) and not podstate.terminal(pod) and self._is_missed(pod)
        ]

    def undrained(self, nodes: Iterable[str]) -> list[StuckPod]:
        """Pods that are still on nodes that were drained."""
        store = self._cluster.store
        return [
            StuckPod(pod=_key(pod), workload=self.workload_of(pod), node=node, budgets=tuple(budgets))
            for node in nodes
            for pod in store.pods_on(node)
            if not _per_node(pod) and podstate.active(pod)
            for budgets in [[title({"kind": Kind.PDB, **one}) for one in budgets_of(store, pod)]]
        ]

    def _is_missed(self, pod: Json) -> bool:
        """It is missed: its workload is short now, or is not counted here."""
        owner = self._tally.owner_of(pod)
        return bool(owner) and self._tally.is_short(owner)

    # ── Changes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_pod(self, event: str, old: Json | None, new: Json | None) -> None:
        if self._stopped:
            return
        self._changed_at = self._cluster.timeline.monotonic()
        pod = new or old
        if pod is None:
            return
        was_up, up = self._tally.is_up(pod), event != "DELETED" and self.serves(pod)
        if event == "DELETED":
            if was_up:
                self._note_gone(pod, "moved" if self._by_us(_key(pod)) else "ended")
            self._tally.forget(pod)
            return
        self._tally.count(pod, up=up)
        if not was_up and up:
            at, workload = round(self.now_s, 1), self.workload_of(pod)
            self.come.append(Come(at_s=at, pod=_key(pod), workload=workload, node=node_of(pod)))
        if old is not None and podstate.active(old) and not podstate.active(pod) and was_up:
            self._note_gone(pod, "moved" if self._by_us(_key(pod)) else "ended")

    def _on_node(self, _event: str, old: Json | None, new: Json | None) -> None:
        if self._stopped:
            return
        self._changed_at = self._cluster.timeline.monotonic()
        if new is not None and old is not None and _ready(old) and not _ready(new):
            name = new["metadata"]["name"]
            self._say("kubernetes", f"Ready is {_word(new)}: Kubernetes notices", "away", f"node/{name}")

    def _on_health(self, node: str) -> None:
        if self._stopped:
            return
        silent = self._cluster.kubelets.silent_since(node) is not None
        self._changed_at = self._cluster.timeline.monotonic()
        pods = self._cluster.store.pods_on(node)
        if silent:
            for pod in pods:
                if self.serves(pod) and not _per_node(pod):
                    self._note_gone(pod, "lost")
            self._dead.add(node)
        else:
            self._dead.discard(node)
        for pod in pods:
            self._tally.count(pod, up=self.serves(pod))
        self._databases(pods, silent=silent)

    def _note_gone(self, pod: Json, how: str) -> None:
        node = node_of(pod)
        if _per_node(pod):
            return
        self.gone.append(
            GonePod(
                at_s=round(self.now_s, 1),
                pod=_key(pod),
                workload=self.workload_of(pod),
                node=node,
                how=how,
                noticed=node in self.noticed,
            )
        )

    def _tell(self, promise: Promise, meter: Meter, crossed: str) -> None:
        if crossed == "fell":
            words = f"{promise.rule}: {meter.value} instead of at least {meter.least}"
        else:
            words = f"{promise.rule}: {meter.value} again, at least {meter.least} wanted"
        self._say("promise", words, crossed, promise.subject)

    # ── TiKV and PD end with their machine ────────────────────────────────────────────────────────────────────────

    def _databases(self, pods: list[Json], *, silent: bool) -> None:
        for pod in pods:
            labels = labels_of(pod)
            pd = self._cluster.pd.get((pod["metadata"]["namespace"], labels.get("app.kubernetes.io/instance", "")))
            if pd is None or labels.get("app.kubernetes.io/component") != "tikv":
                continue
            if silent:
                pd.pod_gone(pod["metadata"]["name"])
            elif self.serves(pod):
                pd.pod_ready(pod["metadata"]["name"])


class EndedByUs:
    """Which pods Mooring evicted or deleted from now on, by what it writes."""

    def __init__(self, writes: list[str]) -> None:
        self._writes = writes
        self._read = len(writes)
        self._pods: set[str] = set()

    def __call__(self, pod: str) -> bool:
        for write in self._writes[self._read :]:
            if write.startswith(("evict Pod ", "delete Pod ")):
                self._pods.add(write.split(" ", 2)[2])
        self._read = len(self._writes)
        return pod in self._pods


def _key(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _per_node(pod: Json) -> bool:
    reference = controller_of(pod)
    if MIRROR in podstate.annotations_of(pod):
        return True
    return reference is not None and reference["kind"] in PER_NODE


def _owner_words(pod: Json) -> str:
    reference = controller_of(pod)
    if reference is None:
        return ""
    return title({"kind": reference["kind"], "metadata": {**pod["metadata"], "name": reference["name"]}})


def _ready(node: Json) -> bool:
    return _word(node) == "True"


def _word(node: Json) -> str:
    return str((podstate.condition(node, "Ready") or {}).get("status", "Unknown"))
