"""How many pods of each workload, budget and mode serve: one meter for each, stepped pod by pod."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from mooring.capabilities.mix.labels import Managed, management_of
from mooring.capabilities.mix.policy import MixPolicy
from mooring.clients.ports import Json
from mooring.clients.wire.kube import project
from mooring.core.model.capacity import CapacityRules, NodeClass
from mooring.core.model.cluster import Workload
from mooring.core.model.kinds import Kind
from mooring.core.model.tidb import COMPONENT, MANAGED_BY
from mooring.process.terminal.wrap import block
from mooring_lab.cluster.apiserver.labels import selects
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.controllers.podstate import labels_of, node_of
from mooring_lab.cluster.controllers.workloads.ownership import controller_of
from mooring_lab.judge.findings import ONE_REPLICA, Finding

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# How far a figure fell, and for how long: the arithmetic of an interruption. Pure; times are seconds since the event.


class Span(msgspec.Struct, frozen=True):
    """From when to when, and how low. `until_s` None: still, when the rehearsal ended."""

    from_s: float
    until_s: float | None
    worst: int


class Meter:
    def __init__(self, least: int, value: int) -> None:
        #: The line: below it is too low. Never above what there was at the beginning.
        self.least = min(least, value)
        #: What was asked for, whatever there was.
        self.asked = least
        self.before = value
        self.value = value
        self.worst = value
        self.spans: list[Span] = []
        self._since: float | None = None
        self._low = value

    def step(self, at: float, value: int) -> str:
        """The new value; answers "fell" or "back" when it crossed the line, else ""."""
        self.value = value
        self.worst = min(self.worst, value)
        if value < self.least:
            if self._since is None:
                self._since, self._low = at, value
                return "fell"
            self._low = min(self._low, value)
        elif self._since is not None:
            if at > self._since:
                self.spans.append(Span(self._since, at, self._low))
            self._since = None
            return "back"
        return ""

    @property
    def is_below(self) -> bool:
        return self._since is not None

    def close(self, at: float) -> tuple[Span, ...]:
        """Every span until now; one that has not ended has no end."""
        if self._since is None:
            return tuple(self.spans)
        return (*self.spans, Span(self._since, None, self._low))

    def seconds(self, at: float) -> float:
        """How long it was below, in all, until now."""
        return sum((at if span.until_s is None else span.until_s) - span.from_s for span in self.close(at))


def below_line(promise: str, subject: str, meter: Meter, at: float) -> Finding | None:
    spans = meter.close(at)
    if not spans:
        return None
    return Finding(
        promise=promise,
        subject=subject,
        least=meter.least,
        worst=min(span.worst for span in spans),
        since=round(spans[0].from_s, 1),
        until=None if spans[-1].until_s is None else round(spans[-1].until_s, 1),
        seconds=round(meter.seconds(at), 1),
        before=meter.before,
    )


def some(count: int, what: str) -> str:
    """1 pod, 2 pods."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def majority(count: int) -> int:
    return count // 2 + 1


def columns(rows: Sequence[tuple[str, ...]], room: int | None = None) -> list[str]:
    """A table, indented by two; where it has no room in so many columns, each row as a block of lines."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    if room is not None and 2 * len(widths) + sum(widths) > room:
        return [f"  {line}".rstrip() for row in rows[1:] for line in (*block(rows[0], row, room - 2), "")][:-1]
    return ["  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]


# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# What must not be undershot: one line per workload, budget and mode, read from the cluster as it stands before.


#: Pods of these go with their node and need no other place.
PER_NODE: Final = frozenset({"DaemonSet", "Node"})
WORKLOADS: Final = (Kind.DEPLOYMENT, Kind.STATEFUL_SET, Kind.REPLICA_SET)


class Wanted(msgspec.Struct, frozen=True):
    """A workload whose replicas are counted."""

    uid: str
    #: "Deployment shop/web".
    name: str
    replicas: int
    #: Its controller is one of the sandbox's: what becomes of it can be told.
    is_played: bool = True


class Promise(msgspec.Struct, frozen=True):
    rule: str
    subject: str
    least: int
    #: Whose pods count: the workload's uid, or the budget's namespace and selector.
    workload: str = ""
    namespace: str = ""
    selector: Any = None
    #: Only pods on nodes of this class count.
    node_class: NodeClass | None = None


def workloads(store: ObjectStore) -> list[Wanted]:
    """Those that own themselves: a Deployment's ReplicaSets count for it."""
    found = []
    for kind in WORKLOADS:
        for obj in store.list(kind):
            if kind is Kind.REPLICA_SET and controller_of(obj) is not None:
                continue
            found.append(Wanted(obj["metadata"]["uid"], title(obj), int(obj["spec"].get("replicas", 1))))
    return [*found, *_rollouts(store)]


def _rollouts(store: ObjectStore) -> list[Wanted]:
    """Argo Rollouts that stand still: all replicas in one ReplicaSet, whose own controller replaces its pods. What the
    steps of one that is under way would do is not known."""
    found: dict[str, tuple[str, list[int]]] = {}
    for obj in store.list(Kind.REPLICA_SET):
        owner, replicas = controller_of(obj), int(obj["spec"].get("replicas", 1))
        if owner is not None and owner["kind"] == "Rollout" and replicas:
            name = title({"kind": "Rollout", "metadata": {**obj["metadata"], "name": owner["name"]}})
            found.setdefault(owner["uid"], (name, []))[1].append(replicas)
    return [Wanted(uid, name, of[0]) for uid, (name, of) in sorted(found.items(), key=_by_name) if len(of) == 1]


def others(store: ObjectStore, known: Iterable[Wanted]) -> list[Wanted]:
    """Owners of pods whose controller is not played (a Job, a Rollout under way): wanted is what each has now."""
    uids = {one.uid for one in known}
    found: dict[str, tuple[str, int]] = {}
    for pod in store.list(Kind.POD):
        owner = root_of(store, pod)
        if owner is None or owner["uid"] in uids or owner["kind"] in PER_NODE or not podstate.active(pod):
            continue
        name = title({"kind": owner["kind"], "metadata": {**pod["metadata"], "name": owner["name"]}})
        found[owner["uid"]] = name, found.get(owner["uid"], (name, 0))[1] + 1
    return [Wanted(uid, name, count, is_played=False) for uid, (name, count) in sorted(found.items(), key=_by_name)]


def _by_name(item: tuple[str, tuple[str, Any]]) -> tuple[str, str]:
    return item[1][0], item[0]


def root_of(store: ObjectStore, pod: Json) -> Json | None:
    """Who wants this pod, through its ReplicaSet; None: none."""
    reference = controller_of(pod)
    if reference is not None and reference["kind"] == "ReplicaSet":
        one = store.find(Kind.REPLICA_SET, pod["metadata"]["namespace"], reference["name"])
        return (None if one is None else controller_of(one)) or reference
    return reference


def title(obj: Json) -> str:
    return f"{obj['kind']} {obj['metadata']['namespace']}/{obj['metadata']['name']}"


def promises(store: ObjectStore, policy: MixPolicy, *, mix: bool) -> list[Promise]:
    found: list[Promise] = []
    for kind in WORKLOADS:
        for obj in store.list(kind):
            if kind is not Kind.REPLICA_SET or controller_of(obj) is None:
                found.extend(_of_workload(kind, obj, policy, mix=mix))
    found.extend(Promise(ONE_REPLICA, one.name, min(1, one.replicas), one.uid) for one in _rollouts(store))
    for budget in store.list(Kind.PDB):
        found.append(_budget(budget))
    return [promise for promise in found if promise.least > 0]


def _of_workload(kind: Kind, obj: Json, policy: MixPolicy, *, mix: bool) -> Iterable[Promise]:
    uid, name, wanted = obj["metadata"]["uid"], title(obj), int(obj["spec"].get("replicas", 1))
    yield Promise(ONE_REPLICA, name, min(1, wanted), uid)
    if kind is Kind.STATEFUL_SET and wanted >= 3 and not _counts_by_region(obj):
        yield Promise("quorum", name, majority(wanted), uid)
    if mix and kind is not Kind.REPLICA_SET:
        row = project(kind, obj)
        management = management_of(row, policy.deployment_target) if isinstance(row, Workload) else None
        if isinstance(management, Managed):
            least = management.target.on_demand(wanted)
            yield Promise("on-demand floor", name, least, uid, node_class=NodeClass.ON_DEMAND)


def _counts_by_region(obj: Json) -> bool:
    labels = labels_of(obj)
    return labels.get(MANAGED_BY) == "tidb-operator" and labels.get(COMPONENT) != "pd"


def _budget(budget: Json) -> Promise:
    namespace = budget["metadata"]["namespace"]
    subject = f"PodDisruptionBudget {namespace}/{budget['metadata']['name']}"
    least = int((budget.get("status") or {}).get("desiredHealthy", 0))
    return Promise("budget", subject, least, namespace=namespace, selector=budget["spec"].get("selector"))


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
