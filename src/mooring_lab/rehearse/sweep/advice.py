"""What would fix what a sweep found: changes that somebody could make, each made in the sandbox and tried.

A change is made on the cluster as it stands before the event, in a fork of its own: the controllers carry it out,
Mooring settles, and the event is played again. What ends the breach and breaks nothing new is advised; what shortens it
is said with the figures; what does neither is named as tried. Nothing is advised that was not tried.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from mooring.capabilities.mix.labels import ENABLED, MODE
from mooring.clients.ports import Json
from mooring.core.model.capacity import NodeClass
from mooring.core.model.kinds import Kind
from mooring.core.model.times import clock
from mooring.process.assemble import capacity_rules
from mooring_lab.cluster.apiserver.labels import selects
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.controllers import manifests
from mooring_lab.cluster.controllers.podstate import labels_of
from mooring_lab.cluster.controllers.workloads.ownership import controller_of
from mooring_lab.judge.findings import ONE_REPLICA
from mooring_lab.judge.lines import WORKLOADS, title
from mooring_lab.rehearse.events.catalog import PLANNED, ZONE, Name, acts, rack_key
from mooring_lab.rehearse.outcome import RehearsalOutcome
from mooring_lab.rehearse.play import Play
from mooring_lab.rehearse.room import like
from mooring_lab.rehearse.snapshot.schema import Snapshot
from mooring_lab.rehearse.sweep.broken import TIKV
from mooring_lab.rehearse.sweep.forks import Failed, Task, play_each
from mooring_lab.rehearse.sweep.sweep import Sweep, SweepPlan, Weakness
from mooring_lab.stage.rig import Rig

#: So many of the weakest points are tried: as many as the report shows.
TRIED: Final = 15
#: How long a change may take until all replicas are Ready with it, in virtual time.
CHANGE_S: Final = 900.0
_NODES: Final = (1, 2, 4)
_SPOT_MODE: Final = "majority-in-on-demand"


class Change(msgspec.Struct, frozen=True):
    words: str
    make: Callable[[Cluster], None]
    #: The workload whose replicas must all be Ready with it before the event.
    kind: Kind | None = None
    namespace: str = ""
    name: str = ""

    async def made(self, rig: Rig) -> None:
        """Raises AssertionError where its replicas do not become Ready."""
        self.make(rig.cluster)
        await rig.sleep(5.0)
        await rig.until(lambda: self._is_whole(rig.cluster), CHANGE_S, 5.0)

    def _is_whole(self, cluster: Cluster) -> bool:
        if self.kind is None:
            return True
        obj = cluster.store.get(self.kind, self.namespace, self.name)
        status, wanted = obj.get("status") or {}, int(obj["spec"].get("replicas", 1))
        if status.get("observedGeneration", 0) < obj["metadata"].get("generation", 0):
            return False
        counts = ("readyReplicas",) if self.kind is Kind.REPLICA_SET else ("readyReplicas", "updatedReplicas")
        return all(status.get(count, 0) == wanted for count in counts)


class Trial(msgspec.Struct, frozen=True, tag=True):
    """What is broken when the event is played again: object, promise, seconds, to the end."""

    broken: tuple[tuple[str, str, float | None, bool], ...]


def advised(sweep: Sweep, snapshot: Snapshot, plan: SweepPlan, jobs: int, rack_label: str = "") -> Sweep:
    """The same with what was tried for its weakest points."""
    rules = capacity_rules(plan.config)
    todo: list[tuple[int, Change]] = []
    for at, weak in enumerate(sweep.weakest[:TRIED]):
        if not weak.fix:  # room is tried where it is found
            todo += [(at, one) for one in changes(weak, snapshot, plan, rack_label)]
    results: dict[int, Trial | Failed] = {}
    if todo:
        play = Play(snapshot, [], plan.config, seed=plan.seed, limit_s=plan.options.limit_s, pace=plan.pace)
        tasks = [
            Task(
                acts(sweep.weakest[at].events[0].split(), snapshot, rules, plan.options), plan.seed, _trial, change.made
            )
            for at, change in todo
        ]
        play_each(play, tasks, Trial, jobs, results.__setitem__)
    known = {(one.object, one.promise) for one in sweep.weakest}
    weakest = list(sweep.weakest)
    for at, weak in enumerate(weakest[:TRIED]):
        of = [(change, results.get(n)) for n, (which, change) in enumerate(todo) if which == at]
        weakest[at] = _told(weak, of, known)
    return msgspec.structs.replace(sweep, weakest=tuple(weakest))


def _trial(outcome: RehearsalOutcome) -> Trial:
    return Trial(tuple((one.object, one.promise, one.seconds, one.to_the_end) for one in outcome.breaches))


def _told(
    weak: Weakness, tried: Sequence[tuple[Change, Trial | Failed | None]], known: set[tuple[str, str]]
) -> Weakness:
    helps, useless = "", list[str]()
    for change, trial in tried:
        if trial is None:
            continue  # interrupted
        left = trial.broken if isinstance(trial, Trial) else ((weak.object, weak.promise, None, True),)
        own = next((one for one in left if one[:2] == (weak.object, weak.promise)), None)
        is_new = any(one[:2] not in known for one in left)
        if own is None and not is_new:
            return msgspec.structs.replace(weak, fix=f"{change.words} (tried)")
        if own is not None and not is_new and not helps and _is_less(own[2], weak, to_the_end=own[3]):
            helps = f"{change.words} (tried: {clock(own[2] or 0.0)} instead of {_long(weak)})"
        useless.append(change.words)
    return msgspec.structs.replace(weak, helps=helps, tried=() if helps else tuple(useless))


def _is_less(seconds: float | None, weak: Weakness, *, to_the_end: bool) -> bool:
    if seconds is None or to_the_end:
        return False
    return weak.to_the_end or seconds < 0.9 * (weak.seconds or 0.0)


def _long(weak: Weakness) -> str:
    return "to the end" if weak.to_the_end else clock(weak.seconds or 0.0)


# ── What could be changed ─────────────────────────────────────────────────────────────────────────────────────────


def changes(weak: Weakness, snapshot: Snapshot, plan: SweepPlan, rack_label: str = "") -> list[Change]:
    """The most useful first."""
    name = weak.events[0].split()[0]
    if weak.promise == "on-demand floor":
        return list(_more_nodes(snapshot, plan))
    found = _workload(weak, snapshot)
    if found is None:
        return []
    kind, obj = found
    if name in PLANNED:
        return [*_budgets(kind, obj, snapshot, weak)]
    key = _domain(name, snapshot, rack_label)
    spreads = [] if _is_spread(obj, key) else [_spread(kind, obj, key, 0)]
    more = _spread(kind, obj, key, 1)
    if weak.promise == "notice":
        return list(_mix(kind, obj))
    if weak.promise == ONE_REPLICA and int(obj["spec"].get("replicas", 1)) <= 1:
        return [more]
    return [*(_mix(kind, obj) if name == Name.SPOT_GONE else ()), *spreads, more]


def _workload(weak: Weakness, snapshot: Snapshot) -> tuple[Kind, Json] | None:
    """Whose pods it is about: the workload itself, the first that the budget selects, or the TiKV of a cluster."""
    wanted = weak.object.partition(",")[0]
    if wanted.startswith(TIKV):
        wanted = f"StatefulSet {wanted.removeprefix(TIKV)}-tikv"
    budget = next((one for one in snapshot.of(Kind.PDB) if title(one) == weak.object), None)
    for kind in WORKLOADS:
        for obj in snapshot.of(kind):
            if kind is Kind.REPLICA_SET and controller_of(obj) is not None:
                continue
            labels = obj["spec"]["template"].get("metadata", {}).get("labels") or {}
            alike = budget is not None and budget["metadata"]["namespace"] == obj["metadata"]["namespace"]
            if title(obj) == wanted:
                return kind, obj
            if budget is not None and alike and selects(budget["spec"].get("selector"), labels):
                return kind, obj
    return None


def _domain(event: str, snapshot: Snapshot, rack_label: str) -> str:
    """The label of a node that tells apart what is lost at once."""
    if event in {Name.ZONE_LOST, Name.ZONE_CUT_OFF}:
        return ZONE
    return rack_key(snapshot, rack_label) if event == Name.RACK_LOST else "kubernetes.io/hostname"


def _rules(obj: Json) -> list[Json]:
    return list(obj["spec"]["template"]["spec"].get("topologySpreadConstraints") or ())


def _is_spread(obj: Json, key: str) -> bool:
    labels = obj["spec"]["template"].get("metadata", {}).get("labels") or {}
    return any(
        one["topologyKey"] == key
        and one.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
        and one.get("maxSkew", 1) == 1
        and selects(one.get("labelSelector"), labels)
        for one in _rules(obj)
    )


def _spread(kind: Kind, obj: Json, key: str, more: int) -> Change:
    replicas = int(obj["spec"].get("replicas", 1)) + more
    rule = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    spec: dict[str, Any] = {"replicas": replicas}
    words = f"{replicas} replicas" if more else ""
    if not _is_spread(obj, key):
        rules = [*_rules(obj), {**rule, "labelSelector": obj["spec"]["selector"]}]
        spec["template"] = {"spec": {"topologySpreadConstraints": rules}}
        words += f"{' with ' if more else ''}a topologySpreadConstraint on {key} (maxSkew 1, DoNotSchedule)"
    return _patch(kind, obj, words, {"spec": spec})


def _patch(kind: Kind, obj: Json, words: str, patch: Json) -> Change:
    namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
    owner = controller_of(obj)
    if owner is not None:  # who would undo a change of the object itself
        words += f", by way of {owner['kind']} {namespace}/{owner['name']}"

    def make(cluster: Cluster) -> None:
        cluster.store.patch(kind, namespace, name, patch)

    return Change(words, make, kind, namespace, name)


def _mix(kind: Kind, obj: Json) -> Iterator[Change]:
    """What mix can spread and does not yet."""
    if kind in {Kind.DEPLOYMENT, Kind.STATEFUL_SET} and labels_of(obj).get(ENABLED) != "true":
        words = f"the labels {ENABLED}=true and {MODE}={_SPOT_MODE}"
        yield _patch(kind, obj, words, {"metadata": {"labels": {ENABLED: "true", MODE: _SPOT_MODE}}})


def _budgets(kind: Kind, obj: Json, snapshot: Snapshot, weak: Weakness) -> Iterator[Change]:
    namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
    labels = obj["spec"]["template"].get("metadata", {}).get("labels") or {}
    replicas = int(obj["spec"].get("replicas", 1))
    least = 1 if weak.promise == ONE_REPLICA else replicas // 2 + 1
    budgets = [one for one in snapshot.of(Kind.PDB) if one["metadata"]["namespace"] == namespace]
    has_one = any(selects(one["spec"].get("selector"), labels) for one in budgets)

    def change(more: int) -> Change:
        def make(cluster: Cluster) -> None:
            if more:
                cluster.scale(kind, namespace, name, replicas + more)
            if not has_one:
                made = manifests.pdb(namespace, f"{name}-rehearsed", {}, min_available=least)
                made["spec"]["selector"] = obj["spec"]["selector"]
                cluster.store.create(Kind.PDB, made)

        words = [f"{replicas + more} replicas"] if more else []
        words += [] if has_one else [f"a PodDisruptionBudget with minAvailable {least}"]
        return Change(" and ".join(words), make, kind, namespace, name)

    if not has_one and replicas > least:
        yield change(0)
    yield change(1)


def _more_nodes(snapshot: Snapshot, plan: SweepPlan) -> Iterable[Change]:
    """Nodes like an on-demand one that is there: room for the replicas that have to be on such nodes."""
    rules = capacity_rules(plan.config)
    shape = next((n for n in snapshot.of(Kind.NODE) if rules.class_of(labels_of(n)) is NodeClass.ON_DEMAND), None)
    if shape is None:
        return
    for count in _NODES:

        def make(cluster: Cluster, count: int = count) -> None:
            for at in range(count):
                cluster.store.create(Kind.NODE, like(shape, f"advised-{at}", cluster))

        some = "one on-demand node" if count == 1 else f"{count} on-demand nodes"
        yield Change(f"{some} more like {shape['metadata']['name']}", make)
