"""One scheduling attempt: which node, or why none."""

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

import msgspec

from mooring.clients.ports import Json
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.randomness import SeededRandomness
from mooring_lab.cluster.scheduler import constraints
from mooring_lab.cluster.scheduler.classes import (
    NEVER,
    ClassTables,
    faces,
    lacks,
    liking,
    load_score,
    refuses,
    shunning,
)
from mooring_lab.cluster.scheduler.constraints import Out
from mooring_lab.cluster.scheduler.extenders import Extender, ExtenderError, run_filter, run_prioritize
from mooring_lab.cluster.scheduler.needs import Needs, pinned_to
from mooring_lab.cluster.scheduler.snapshot import NodeState, PodKey, PodUse, SchedulerSnapshot

MIN_NODES: Final = 100
MIN_PERCENT: Final = 5

#: Do the rules about other pods let a pod in on this node once these are gone?
Passes = Callable[[NodeState, list[PodUse]], bool]


class Profile(msgspec.Struct, frozen=True):
    """One `schedulerName`. `percentage_of_nodes_to_score` 0: as kube-scheduler computes it, 100: all."""

    name: str = "default-scheduler"
    percentage_of_nodes_to_score: int = 0
    extenders: tuple[Extender, ...] = ()


class Unfit(msgspec.Struct, frozen=True):
    message: str
    #: Nodes where preemption cannot help.
    hopeless: Out


def nodes_to_find(nodes: int, percentage: int) -> int:
    """How many feasible nodes are enough: 50 % − nodes/125, at least 5 %, at least 100 nodes."""
    if nodes < MIN_NODES or percentage >= 100:
        return nodes
    share = percentage or max(MIN_PERCENT, 50 - nodes // 125)
    return max(MIN_NODES, nodes * share // 100)


class Selection:
    def __init__(
        self,
        store: ObjectStore,
        snapshot: SchedulerSnapshot,
        tables: ClassTables,
        nominated: dict[str, dict[str, PodUse]],
    ) -> None:
        self._store = store
        self._snapshot = snapshot
        self._tables = tables
        self._nominated = nominated
        self._start = 0
        #: Draws among nodes of equal score, as kube-scheduler does; None: the first is taken, the same every time.
        self.ties: SeededRandomness | None = None

    def choose(self, profile: Profile, pod: Json, use: PodUse) -> str | Unfit:
        snapshot, needs = self._snapshot, use.needs
        snapshot.number()
        out = self._out(pod, use)
        if isinstance(out, str):
            return Unfit(out, {})
        pinned = pinned_to(needs)
        if pinned is not None:
            named = sorted(snapshot.nodes[name].index for name in pinned if name in snapshot.nodes)
            feasible = [i for i in named if i not in out and self._is_free(snapshot.order[i], needs)]
            return self._finish(profile, pod, use, feasible, None, out)
        known = self._tables.of(needs)
        table = known.catch_up()
        promised_here = (pod.get("status") or {}).get("nominatedNodeName")
        if promised_here in snapshot.nodes:
            index = snapshot.nodes[promised_here].index
            if table[index] != NEVER and index not in out:
                return self._finish(profile, pod, use, [index], None, out)
        if out:
            table = table.copy()
            for index in out:
                table[index] = NEVER
        return self._sampled(profile, pod, use, table, out, exact=known.is_exact)

    def feasible(self, pod: Json, use: PodUse) -> set[str]:
        """The nodes that pass every filter."""
        self._snapshot.number()
        out = self._out(pod, use)
        if isinstance(out, str):
            return set()
        nodes = (node for node in self._snapshot.order if node.index not in out)
        return {node.name for node in nodes if self._is_free(node, use.needs)}

    def scores(self, use: PodUse, feasible: Iterable[str]) -> dict[str, int]:
        indexes = sorted(self._snapshot.nodes[name].index for name in feasible)
        return {self._snapshot.order[i].name: score for i, score in self._totals(use, indexes, None).items()}

    def passes_without(self, pod: Json, use: PodUse) -> Passes | None:
        """Whether rules about other pods, ports and volumes let it in on a node once some pods there are gone. None: it
        meets no such rule."""
        needs, snapshot = use.needs, self._snapshot
        volumes = pod["spec"].get("volumes")
        if not (needs.anti or needs.affine or needs.spread or needs.host_ports or snapshot.anti or volumes):
            return None

        def passes(node: NodeState, without: list[PodUse]) -> bool:
            for one in without:
                snapshot.take_away(one.key)
                snapshot.discount(one, -1)
            try:
                out = self._out(pod, use, [one.key for one in without])
                return not isinstance(out, str) and node.index not in out and not lacks(node, needs)
            finally:
                for one in without:
                    snapshot.discount(one, 1)
                    snapshot.place(one)

        return passes

    def _out(self, pod: Json, use: PodUse, gone: Iterable[PodKey] = ()) -> Out | str:
        namespace, labels, needs = use.key[0], use.labels, use.needs
        out: Out = {}
        if pod["spec"].get("volumes"):
            found = constraints.volumes(self._store, self._snapshot, pod, gone)
            if isinstance(found, str):
                return found
            out.update(found)
        if needs.anti or needs.affine or self._snapshot.anti:
            out.update(constraints.PodRules(self._store, self._snapshot, use).out())
        if needs.spread:
            out.update(constraints.spread(self._snapshot, namespace, labels, needs))
        if self._nominated:
            out.update(constraints.promised(self._snapshot, self._nominated, use.uid, needs))
        return out

    @staticmethod
    def _is_free(node: NodeState, needs: Needs) -> bool:
        return not (refuses(node, needs) or lacks(node, needs))

    def _sampled(
        self, profile: Profile, pod: Json, use: PodUse, table: list[int], out: Out, *, exact: bool
    ) -> str | Unfit:
        count = len(table)
        if not count:
            return Unfit("no nodes available to schedule pods", {})
        wanted = nodes_to_find(count, profile.percentage_of_nodes_to_score)
        start = self._start % count
        near = table[start:] + table[:start] if start else table.copy()
        taken = wanted
        while taken < count:
            found = taken - near[:taken].count(NEVER)
            if found >= wanted:
                break
            taken = min(count, taken + wanted - found)
        taken = min(taken, count)
        del near[taken:]
        self._start = (start + taken) % count
        needs = use.needs
        drawn = needs.anti_preferred or needs.affine_preferred or self._snapshot.drawing
        if exact and not (profile.extenders or needs.spread or drawn) and max(near) != NEVER:
            best = self._quick(near, start, count, use)
            if best is not None:
                return self._snapshot.order[best].name
        feasible = sorted((start + at) % count for at, score in enumerate(near) if score != NEVER)
        return self._finish(profile, pod, use, feasible, table if exact else None, out)

    def _quick(self, near: list[int], start: int, count: int, use: PodUse) -> int | None:
        """The best of the sample when only siblings have to be weighed besides the table."""
        nodes = self._snapshot.order
        if self._snapshot.zoned and use.owner_uid:
            return None
        on = self._snapshot.by_owner.get(use.owner_uid)
        if not on:
            return (start + self._best(near)) % count
        feasible = len(near) - near.count(NEVER)
        if len(on) >= feasible:
            return None
        penalties = constraints.sibling_penalties(on, feasible)
        weighed: set[int] = set()
        while True:  # penalties only lower: the first best that needs none any more is the best of all
            at = self._best(near)
            index = (start + at) % count
            siblings = on.get(nodes[index].name, 0)
            if not siblings or index in weighed:
                return index
            weighed.add(index)
            near[at] = max(0, near[at] - penalties[siblings])

    def _finish(
        self,
        profile: Profile,
        pod: Json,
        use: PodUse,
        feasible: list[int],
        scores: list[int] | None,
        out: Out,
    ) -> str | Unfit:
        """Extenders, then points, for a list of candidates in the order of their names."""
        nodes = self._snapshot.order
        refused: dict[str, str] = {}
        hopeless: Out = {i: why for i, why in out.items() if "volume" in why}
        for extender in profile.extenders:
            if not feasible:
                break
            names = [nodes[i].name for i in feasible]
            try:
                left, failed, failed_for_good = run_filter(extender, pod, names, self._snapshot)
            except ExtenderError:
                if extender.ignorable:
                    continue
                raise
            refused.update(failed)
            refused.update(failed_for_good)
            kept = set(left)
            hopeless.update({i: failed_for_good[nodes[i].name] for i in feasible if nodes[i].name in failed_for_good})
            feasible = [i for i in feasible if nodes[i].name in kept]
        if not feasible:
            return Unfit(self._explain(use.needs, out, refused), hopeless)
        if len(feasible) == 1:
            return nodes[feasible[0]].name
        total = self._totals(use, feasible, scores)
        names = [nodes[i].name for i in feasible]
        for extender in profile.extenders:
            for name, more in run_prioritize(extender, pod, names, self._snapshot).items():
                if name in self._snapshot.nodes and self._snapshot.nodes[name].index in total:
                    total[self._snapshot.nodes[name].index] += more
        scored = [total[i] for i in feasible]
        return nodes[feasible[self._best(scored)]].name

    def _totals(self, use: PodUse, feasible: list[int], scores: list[int] | None) -> dict[int, int]:
        """The points of all plugins. `scores`: what a table says of load and face, where it is exact."""
        if scores is None:
            nodes, needs = [self._snapshot.order[i] for i in feasible], use.needs
            face = faces([liking(node, needs) for node in nodes], [shunning(node, needs) for node in nodes])
            loads = [load_score(node, needs) for node in nodes]
            total = {i: load + shown for i, load, shown in zip(feasible, loads, face, strict=True)}
        else:
            total = {i: scores[i] for i in feasible}
        for index, more in constraints.points(self._store, self._snapshot, use, feasible).items():
            total[index] += more
        return total

    def _best(self, scores: list[int]) -> int:
        """Where the highest is: the first, or one of several at random."""
        best = max(scores)
        if self.ties is None:
            return scores.index(best)
        equal = [at for at, score in enumerate(scores) if score == best]
        return equal[int(self.ties.uniform(0, len(equal)))] if len(equal) > 1 else equal[0]

    def _explain(self, needs: Needs, out: Out, refused: dict[str, str]) -> str:
        """kube-scheduler's sentence: "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable."""
        reasons: Counter[str] = Counter()
        for node in self._snapshot.order:
            why = (
                refuses(node, needs)
                or lacks(node, needs)
                or out.get(node.index)
                or refused.get(node.name)
                or "node(s) were refused by an extender"
            )
            reasons[why] += 1
        listed = ", ".join(f"{n} {why}" for why, n in sorted(reasons.items(), key=lambda item: item[0]))
        return f"0/{len(self._snapshot.order)} nodes are available: {listed}."


# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Preemption: a pod that fits nowhere may take the place of pods with lower priority.


class Victims(msgspec.Struct, frozen=True):
    node: str
    pods: tuple[PodUse, ...]
    pdb_violations: int


def _importance(pod: PodUse) -> tuple[int, float, str]:
    """Most important first: priority, then who has run longest."""
    return (-pod.needs.priority, pod.started_at, pod.uid)


#: Of pods, the most important first, those that may go without breaking a budget.
Unprotected = Callable[[list[PodUse]], set[PodKey]]


def victims_on(node: NodeState, needs: Needs, unprotected: Unprotected, passes: Passes | None = None) -> Victims | None:
    """`passes` None: the pod meets no rule about other pods, and only room counts."""
    lower = [pod for pod in node.pods.values() if pod.needs.priority < needs.priority]

    def fits(without: list[PodUse]) -> bool:
        return node.fits(needs, without=without) and (passes is None or passes(node, without))

    if not lower or not fits(lower):
        return None
    lower.sort(key=_importance)
    free = unprotected(lower)
    lower.sort(key=lambda pod: pod.key in free)
    going = list(lower)
    for pod in lower:  # keep those that need not go
        without = [one for one in going if one.key != pod.key]
        if fits(without):
            going = without
    going.sort(key=_importance)
    return Victims(node.name, tuple(going), sum(pod.key not in free for pod in going))


def candidates(
    snapshot: SchedulerSnapshot,
    needs: Needs,
    hopeless: Out,
    unprotected: Unprotected,
    passes: Passes | None = None,
) -> Iterable[Victims]:
    """Nodes where preemption helps: not those whose face refuses the pod, nor those out for good. As many as
    kube-scheduler would look for."""
    nodes = list(snapshot.order)
    likely = (node for node in nodes if node.index not in hopeless and not refuses(node, needs))
    found = (victims_on(node, needs, unprotected, passes) for node in likely)
    return islice((one for one in found if one is not None and one.pods), max(MIN_NODES, len(nodes) // 10))


def least_harm(found: Iterable[Victims]) -> Victims | None:
    """Fewest budgets broken, then the lowest highest priority, then the lowest sum, then fewest pods, then those that
    started last, then name."""
    return min(found, key=lambda one: (*harm(one), one.node), default=None)


def harm(of: Victims) -> tuple[float, ...]:
    highest = max(pod.needs.priority for pod in of.pods)
    return (
        of.pdb_violations,
        highest,
        sum(pod.needs.priority + 2**31 for pod in of.pods),
        len(of.pods),
        -min(pod.started_at for pod in of.pods if pod.needs.priority == highest),
    )
