"""The consequences of an event: it is injected, everything is observed until nothing moves any more, and reported."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.capabilities.mix.policy import MixPolicy
from mooring.clients.ports import Json
from mooring.core.engine.engine import Engine
from mooring.core.engine.history import HistoryEntry
from mooring.core.engine.why import explain
from mooring.core.model.kinds import Kind
from mooring.core.queue.audit import audit
from mooring.process.assemble import capacity_rules
from mooring.process.replica import Replica
from mooring_lab.events.catalogue import CATALOGUE
from mooring_lab.events.context import Draw, EventContext, Target
from mooring_lab.judge.findings import Finding
from mooring_lab.judge.lines import Meter, Promise, Wanted, below_line, others, promises, some, workloads
from mooring_lab.judge.observer import ActObserver
from mooring_lab.rehearse.events.catalog import LOSSES, PLANNED, Act, Name
from mooring_lab.rehearse.observer import EndedByUs, Observer
from mooring_lab.rehearse.outcome import Interrupted, NotPlayed, Observed, OutcomeRow
from mooring_lab.rehearse.regions import Members, Regions
from mooring_lab.rehearse.room import more_nodes, unplaced
from mooring_lab.rehearse.snapshot.load import Loaded
from mooring_lab.rehearse.snapshot.schema import Snapshot
from mooring_lab.stage.rig import Rig

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The timeline of a rehearsal: what happened to the cluster, what Mooring did about it and why, in the queue's own
# words.


ENDS: Final = ("finished", "failed", "canceled", "timeout")


class PlayTimeline:
    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self.rows: list[OutcomeRow] = []
        #: Source → how → count, of operators that ended.
        self.ended: dict[str, dict[str, int]] = {}

    def say(self, who: str, words: str, verb: str = "", about: str = "") -> None:
        self.rows.append(OutcomeRow(at_s=round(self._now_s(), 1), who=who, verb=verb, about=about, text=words))

    def follow(self, engine: Engine) -> None:
        engine.history.listeners.append(self._hear)

    def unfollow(self, engine: Engine) -> None:
        engine.history.listeners.remove(self._hear)

    def _hear(self, entry: HistoryEntry) -> None:
        if entry.verb in ENDS:
            of = self.ended.setdefault(entry.source, {})
            of[str(entry.verb)] = of.get(str(entry.verb), 0) + 1
        self.rows.append(
            OutcomeRow(
                at_s=round(self._now_s(), 1),
                who=entry.source or "mooring",
                verb=str(entry.verb),
                op=entry.id,
                about=entry.subjects[1] if len(entry.subjects) > 1 else "",
                reason=str(entry.reason),
                text=entry.text,
            )
        )


# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# From meters to findings: who was short and for how long, which lines were undershot, and what cannot be told.


#: How many of those that wait at the end are explained.
EXPLAINED: Final = 20


def interrupted(wanted: Sequence[Wanted], meters: Iterable[Meter], at: float) -> list[Interrupted]:
    """The longest first. `meters` begin with one for each workload."""
    found = []
    for one, meter in zip(wanted, meters, strict=False):
        spans = meter.close(at)
        if not spans:
            continue
        until = spans[-1].until_s
        found.append(
            Interrupted(
                workload=one.name,
                wanted=one.replicas,
                before=meter.before,
                worst=meter.worst,
                away_s=round(meter.seconds(at), 1),
                from_s=round(spans[0].from_s, 1),
                until_s=None if until is None else round(until, 1),
                at_end=meter.value,
            )
        )
    return sorted(found, key=lambda one: (-one.away_s, one.workload))


def breaches(promises: Sequence[Promise], meters: Sequence[Meter], at: float) -> list[Finding]:
    pairs = zip(promises, meters, strict=True)
    found = (below_line(promise.rule, promise.subject, meter, at) for promise, meter in pairs)
    return [one for one in found if one is not None]


def not_played(wanted: Sequence[Wanted], observer: Observer) -> list[NotPlayed]:
    """Owners that lost pods and whose controller is not played, the greatest loss first."""
    found = []
    for one, meter in zip(wanted, observer.meters, strict=False):
        lost = len({gone.pod for gone in observer.gone if gone.workload == one.name}) or meter.before - meter.worst
        if not one.is_played and lost:
            found.append(NotPlayed(owner=one.name, lost=lost, before=meter.before))
    return sorted(found, key=lambda one: (-one.lost, one.owner))


def still_open(leader: Replica | None) -> tuple[str, ...]:
    """What waits or runs at the end, in the queue's own words."""
    if leader is None:
        return ()
    engine, found = leader.engine, list[str]()
    for operator in (*engine.queue.running, *engine.queue.waiting)[:EXPLAINED]:
        answer = explain(engine, f"operator/{operator}", now=leader.shell.now())
        if answer is not None:
            found.append(answer.answer)
    return tuple(found)


def remarks(wanted: Sequence[Wanted], observer: Observer, cut_s: float | None) -> list[str]:
    """`cut_s`: the limit, when it came before everything had settled."""
    found = []
    away = sum(meter.before < meter.asked for meter in observer.meters[: len(wanted)])
    if away:
        found.append(f"{some(away, 'workload')} short before the event already, held to what there was")
    if cut_s is not None:
        found.append(f"the time was over (--for {cut_s:g}s) before everything had settled")
    return found


LOOK_S: Final = 0.5
#: Nothing is short of replicas, nothing waits, and nothing has moved for this long: it is over.
CALM_S: Final = 80.0
#: Nothing moved for this long: it is over. Kubernetes counts on a node that does not report for 50 s and then waits for
#: 300 s.
QUIET_S: Final = 420.0
#: Another replica leads so long after the leader was lost: the lease, and a moment to come up.
TAKE_OVER_S: Final = 17.0

Progress = Callable[[float, str], None]


#: What the name of a rehearsal is in the catalogue, where it is about nodes.
_OF_NODES: Final = {
    Name.RACK_LOST: "node-lost",
    Name.NODE_LOST: "node-lost",
    Name.ZONE_LOST: "node-lost",
    Name.LEADER_LOST: "node-lost",
    Name.ZONE_CUT_OFF: "node-silent",
    Name.DRAIN: "drain",
    Name.EMPTY: "drain-asked",
}


def strikes(act: Act) -> Iterator[tuple[str, Target, Draw]]:
    """The events of the catalogue that an act is made of, each with whom it hits."""
    match act.name:
        case Name.API_AWAY:
            yield "server-dead", (), Draw(seconds=act.away_s)
            yield "watches-cut", (), Draw()
        case Name.SPOT_GONE:
            for node in act.nodes:
                yield ("spot-vanishes" if act.notice_s is None else "notice"), (node,), Draw(seconds=act.notice_s)
        case Name.ROLLING_UPDATE if act.target is not None:
            yield "rollout", ("/".join(act.target),), Draw()
        case Name.PD_AWAY:
            for key in act.pds:
                yield "pd-dark", ("/".join(key),), Draw(seconds=act.away_s)
        case Name.RETIRE:
            for serial in act.machines:
                yield "machine-retires", (serial,), Draw()
        case Name.RESTART_PODS:
            for pod in act.pods:
                yield "restart-asked", ("/".join(pod),), Draw()
        case Name.RESTART:
            for pod in act.pods:
                yield "restart-tikv", ("/".join(pod),), Draw()
            for pod in act.deleted:
                yield "pod-deleted", ("/".join(pod),), Draw()
        case name:
            for node in act.nodes:
                yield _OF_NODES[name], (node,), Draw(seconds=act.away_s)


class _Before(msgspec.Struct, frozen=True):
    """What there was when the event began: nodes to build more of, and pods without a place."""

    nodes: list[Json]
    waiting: set[str]


class _Audit:
    """The queue's own rules, whenever it has told something new."""

    def __init__(self) -> None:
        self.broken: dict[str, None] = {}
        self._seen = -1

    def look(self, leader: Replica | None) -> None:
        if leader is not None and leader.engine.history.count != self._seen:
            self._seen = leader.engine.history.count
            self.broken.update(dict.fromkeys(audit(leader.engine.queue)))


class Aftermath:
    """The event is under way from the moment this is made; call `follow`, then `finish`."""

    def __init__(self, rig: Rig, loaded: Loaded, acts: list[Act], limit_s: float, progress: Progress) -> None:
        self._rig = rig
        self._context = EventContext(rig)
        self._loaded = loaded
        self._acts = acts
        self._limit_s = limit_s
        self._progress = progress
        self._ended = "limit"
        self._audit = _Audit()
        cluster, config = rig.cluster, rig.config
        known = workloads(cluster.store)
        self._wanted = known + others(cluster.store, known)
        # A machine that fails takes its on-demand replicas along, and so does an eviction by another client: the floor
        # is a promise against spot, and of what Mooring itself moves.
        floor = "mix" in config.on() and not any(act.name in LOSSES | PLANNED - {Name.RETIRE} for act in acts)
        self._promises = promises(cluster.store, config.policy(MixPolicy), mix=floor)
        self._timeline = PlayTimeline(lambda: self._observer.now_s)
        self._observer = Observer(
            cluster,
            self._wanted,
            self._promises,
            capacity_rules(config),
            by_us=EndedByUs(rig.writes),
            say=self._timeline.say,
        )
        self._judge = ActObserver(
            cluster.store,
            now=rig.clock.monotonic,
            epoch=rig.clock.now,
            leaders=cluster.leaders_on,
            retire_timeout_s=config.policy(FleetPolicy).retire_timeout_s,
            excuses=self._context.excuses,
        ).begin()
        self._members = Members(cluster, self._observer)
        self._regions = Regions(cluster, self._observer, loaded.scale)
        leader = rig.leader()
        if leader is not None:
            self._timeline.follow(leader.engine)
        waiting = {one.pod for one in unplaced(cluster, self._observer.workload_of)}
        self._before = _Before(list(cluster.store.list(Kind.NODE)), waiting)
        for act in acts:
            cluster.timeline.after(act.after_s, lambda act=act: self._strike(act))  # type: ignore[misc]

    def _strike(self, act: Act) -> None:
        self._timeline.say("event", act.title)
        if act.notice_s is not None:
            self._observer.noticed.update(act.nodes)
        for event, target, draw in strikes(act):
            CATALOGUE[event](self._context, target, draw)
        if act.name is Name.LEADER_LOST:
            self._rig.kill()
            self._rig.cluster.timeline.after(TAKE_OVER_S, self._take_over)
        if act.away_s:
            words = f"{act.title.partition(' is ')[0]} is back"
            self._rig.cluster.timeline.after(act.away_s, lambda: self._timeline.say("event", words))

    def _take_over(self) -> None:
        """The other replica: the lease of the one that was lost has run out by now."""
        store, namespace = self._rig.cluster.store, self._rig.config.namespace
        for lease in store.list(Kind.LEASE, namespace):
            store.delete(Kind.LEASE, namespace, lease["metadata"]["name"])
        replica = self._rig.start()
        self._timeline.follow(replica.engine)
        self._timeline.say("mooring", f"{replica.identity} takes over")

    async def follow(self) -> None:
        """Until nothing moves any more, or the time is over."""
        rig, observer = self._rig, self._observer
        last = max(act.after_s + (act.notice_s or act.away_s) for act in self._acts)
        shown = -1
        while observer.now_s < self._limit_s:
            await rig.sleep(LOOK_S)
            for words in self._members.look():
                self._timeline.say("pd", words)
            self._regions.look()
            self._audit.look(rig.leader())
            if int(observer.now_s) // 10 != shown:
                shown = int(observer.now_s) // 10
                self._progress(observer.now_s, self._where())
            if observer.now_s > last + 1.0 and self._is_quiet():
                self._ended = "quiet"
                return

    def _is_quiet(self) -> bool:
        """Nothing moves, and nothing that is awaited could still begin to."""
        leader = self._rig.leader()
        if leader is None:
            return False
        patience = QUIET_S if self._waits() else CALM_S
        return self._observer.quiet_s >= patience and self._told_s >= CALM_S

    @property
    def _told_s(self) -> float:
        """Since when nothing was told."""
        rows = self._timeline.rows
        return self._observer.now_s - rows[-1].at_s if rows else self._observer.now_s

    def _waits(self) -> bool:
        """Kubernetes may still have something to do: a silent node, an operator under way, a workload that is short."""
        cluster = self._rig.cluster
        if any(cluster.kubelets.silent_since(name) is not None for _, name in cluster.store.keys(Kind.NODE)):
            return True
        return bool(self._rig.leader() and self._rig.unsettled()) or any(
            meter.is_below for meter in self._observer.meters[: len(self._wanted)]
        )

    def _where(self) -> str:
        leader = self._rig.leader()
        if leader is None:
            return "no replica leads"
        queue = leader.engine.queue
        short = sum(meter.is_below for meter in self._observer.meters[: len(self._wanted)])
        return f"{len(queue.running)} run, {len(queue.waiting)} wait; {short} workloads short"

    def _assumed_starts(self) -> list[str]:
        """Of the workloads that got new pods."""
        loaded = self._loaded
        names = sorted(loaded.assumed_starts & {one.workload for one in self._observer.come})
        if not names:
            return []
        more = f" (and {len(names) - 1} more)" if names[1:] else ""
        words = f"the pods of {names[0]}{more} do not tell how long they took to start"
        return [f"{words}: {loaded.assumed_start_s:g} s is assumed"]

    # ── The end ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def finish(self, snapshot: Snapshot, seed: int, said: tuple[str, ...]) -> Observed:
        """What was seen. The cluster is of no use afterwards: nodes are added to it, to see how many it takes."""
        rig, cluster, observer = self._rig, self._rig.cluster, self._observer
        ended_s = observer.now_s
        observer.stop()
        open_ = still_open(rig.leader())
        waiting = unplaced(cluster, observer.workload_of)
        rows = tuple(self._timeline.rows)
        losses, stuck = self._regions.losses(), tuple(observer.stuck())
        bare = dict.fromkeys(one.pod for one in observer.gone if not one.workload)
        lost_for_good = tuple(pod for pod in bare if not observer.serves_now(pod))
        drained = [node for act in self._acts if act.name in {Name.DRAIN, Name.EMPTY} for node in act.nodes]
        undrained = tuple(observer.undrained(drained))
        cut_s = self._limit_s if self._ended == "limit" else None
        said = (*said, *remarks(self._wanted, observer, cut_s), *self._assumed_starts())
        for name in list(rig.replicas):
            rig.kill(name)
        new = [one for one in waiting if one.pod not in self._before.waiting]
        told, more = await more_nodes(cluster, new, capacity_rules(rig.config), self._before.nodes, rig.sleep)
        told += [msgspec.structs.replace(one, lacks="before") for one in waiting if one.pod in self._before.waiting]
        return Observed(
            source=snapshot.source,
            taken_at=snapshot.taken_at,
            nodes=len(snapshot.of(Kind.NODE)),
            pods=len(snapshot.of(Kind.POD)),
            seed=seed,
            features=tuple(sorted(rig.config.on())),
            events=tuple(act.title for act in self._acts),
            names=tuple(act.name for act in self._acts),
            rack_label=next((act.label for act in self._acts if act.label), ""),
            ended=self._ended,
            played_s=round(ended_s, 1),
            interrupted=tuple(interrupted(self._wanted, observer.meters, ended_s)),
            workloads=len(self._wanted),
            not_played=tuple(not_played(self._wanted, observer)),
            lost_for_good=lost_for_good,
            assumed_pds=tuple(sorted(str(key) for key in self._loaded.assumed_pds)),
            assumed_systems=tuple(sorted(self._loaded.assumed_systems)),
            standing_still=snapshot.not_played,
            breaches=tuple(breaches(self._promises, observer.meters[len(self._wanted) :], ended_s)),
            acts=tuple(self._judge.findings),
            regions=losses,
            gone=tuple(observer.gone),
            come=tuple(observer.come),
            unplaced=tuple(told),
            more=tuple(more),
            stuck=stuck,
            undrained=undrained,
            broken_limits=tuple(self._audit.broken),
            operators={source: dict(sorted(of.items())) for source, of in sorted(self._timeline.ended.items())},
            open=open_,
            timeline=rows,
            remarks=said,
        )
