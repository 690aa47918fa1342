"""M4, M5: the on-demand floor of a workload, throughout a run.

Housekeeping takes no on-demand replica of a workload that has no more of them than it asks for; and Mooring reports a
workload that is below its floor for minutes.
"""

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from mooring.capabilities.mix.labels import AFFINITY, ENABLED, Managed, Management, management_of
from mooring.clients.ports import Json
from mooring.clients.wire.kube import project
from mooring.core.engine.engine import Engine
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING, read_mark
from mooring.core.model.reasons import State
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.nodes import CAPACITY_LABEL
from mooring_lab.events.context import SHOP
from mooring_lab.judge.acts import SLACK_S, workload_of
from mooring_lab.simulate.build import KARPENTER

if TYPE_CHECKING:
    from mooring_lab.simulate.invariants import Watch

#: Below the floor for longer than this, Mooring must know it.
SILENT_S: Final = 120.0
WORKLOADS: Final = (Kind.DEPLOYMENT, Kind.STATEFUL_SET)


class Floor:
    def __init__(self, watch: "Watch") -> None:
        self._watch = watch
        #: When a workload was last changed, and when on-demand pods of it went.
        self._changed: dict[str, float] = {}
        self._went: defaultdict[str, list[float]] = defaultdict(list)
        #: UIDs of pods whose class a person edited: they are where they are.
        self._relabelled: set[str] = set()
        #: How a workload that is below its floor stands, and since when.
        self._below: dict[str, tuple[tuple[int, ...], float]] = {}
        self._managements: dict[str, tuple[Json, Management]] = {}

    def begin(self) -> None:
        store = self._watch.store
        for kind in WORKLOADS:
            store.subscribe(kind, self._on_workload)
        store.subscribe(Kind.POD, self._on_pod)

    def _on_workload(self, _: str, old: Json | None, new: Json | None) -> None:
        if (
            old is None
            or new is None
            or old["spec"] != new["spec"]
            or podstate.labels_of(old) != podstate.labels_of(new)
        ):
            obj = new or old
            assert obj is not None
            self._changed[obj["metadata"]["name"]] = self._watch.now

    def _on_pod(self, event: str, old: Json | None, new: Json | None) -> None:
        """One fewer is on-demand: it goes, or it was relabelled."""
        if old is None or not _counts(old) or (event != "DELETED" and new is not None and _counts(new)):
            return
        if event != "DELETED" and new is not None and podstate.active(new):
            self._relabelled.add(new["metadata"]["uid"])
        workload = workload_of(old, self._watch.store)
        if workload is not None:
            self._went[workload["metadata"]["name"]].append(self._watch.now)

    def _standing(self, workload: Json) -> tuple[int, int, int] | None:
        """What it asks for on on-demand, what it has, and how many replicas are missing; None: it is not managed."""
        if ENABLED not in podstate.labels_of(workload):
            return None
        management = self._management(workload)
        if not isinstance(management, Managed):
            return None
        replicas = int(workload["spec"].get("replicas", 1))
        pods = [p for p in self._watch.pods(SHOP, workload["metadata"]["name"]) if podstate.active(p)]
        return management.target.on_demand(replicas), sum(map(self._has, pods)), max(0, replicas - len(pods))

    def _has(self, pod: Json) -> bool:
        """Is it on on-demand, for all that Mooring can see?"""
        if pod["metadata"]["uid"] not in self._relabelled:
            return _counts(pod)
        node = self._watch.store.find(Kind.NODE, "", podstate.node_of(pod))
        return node is not None and not _is_spot(node)

    def _management(self, workload: Json) -> Management:
        """What is stored is never changed in place: the same object asks for the same."""
        uid = workload["metadata"]["uid"]
        known = self._managements.get(uid)
        if known is None or known[0] is not workload:
            row = project(Kind(workload["kind"]), workload)
            known = self._managements[uid] = (workload, management_of(row))  # type: ignore[arg-type]
        return known[1]

    def pod_goes(self, what: str, by: str, pod: Json) -> None:
        watch, mark = self._watch, read_mark(podstate.annotations_of(pod).get(LEAVING, ""))
        node = watch.store.find(Kind.NODE, "", podstate.node_of(pod))
        if mark is None or mark.source != "mix" or not _counts(pod) or not podstate.ready(pod) or watch.stale(by):
            return
        workload = workload_of(pod, watch.store)
        standing = self._standing(workload) if workload is not None else None
        on_spot = node is None or _is_spot(node)
        if workload is None or standing is None or on_spot:
            return
        name, (wanted, have, _) = workload["metadata"]["name"], standing
        unseen = sum(not watch.known(at) for at in self._went[name])
        if have + unseen <= wanted and watch.known(self._changed.get(name, -SLACK_S)):
            words = f"{what} by {by}: {name} has {have} on on-demand and asks for {wanted}"
            watch.fail("M5 no on-demand replica goes at the floor", words)

    def look(self) -> None:
        """Every ten seconds."""
        watch, engine = self._watch, self._watch.sim.engine()
        if engine is None or "mix" not in engine.on or watch.overlaps() or not watch.known(watch.now - SLACK_S - 60.0):
            self._below.clear()
            return
        for kind in WORKLOADS:
            for workload in watch.store.list(kind, SHOP):
                name, standing = workload["metadata"]["name"], self._standing(workload)
                if standing is None or standing[1] + standing[2] >= standing[0]:
                    self._below.pop(name, None)
                    continue
                if self._below.get(name, ((), 0.0))[0] != standing:  # something moves
                    self._below[name] = (standing, watch.now)
                since = max(self._below[name][1], self._changed.get(name, 0.0))
                watch.hit("below-the-on-demand-floor")
                verdict = engine.verdicts.get(("mix", f"workload/{kind}/{SHOP}/{name}"))
                said = verdict is not None and verdict.state is not State.STABLE
                if watch.now - since > SILENT_S and not said and name not in _moving(engine):
                    words = (
                        f"{kind} {name} has {standing[1]} of {standing[0]} on on-demand, and nothing is said about it"
                    )
                    watch.fail("M4 nothing is below its on-demand floor unnoticed", words)


def _moving(engine: Engine) -> set[str]:
    """Workloads with a move that waits or runs."""
    return {operator.payload.workload.rpartition("/")[2] for operator in engine.queue.operators()}


def _counts(pod: Json) -> bool:
    return podstate.active(pod) and podstate.labels_of(pod).get(AFFINITY) == "on-demand"


def _is_spot(node: Json) -> bool:
    """By either label: in some clusters every second node tells its class by Karpenter's."""
    return "spot" in {podstate.labels_of(node).get(CAPACITY_LABEL), podstate.labels_of(node).get(KARPENTER)}
