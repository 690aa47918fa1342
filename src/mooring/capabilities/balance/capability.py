"""The balance capability: our schedulers drive a PD through the queue.

Two keys per TidbCluster: `tidb/demo` looks at the regions and proposes, `pause/tidb/demo` keeps PD's own schedulers
paused meanwhile. What the queue releases goes to PD's operators API (`driving`); what PD runs besides is a fact
(`foreign`). There are no marks: PD keeps these operators, so they are recovered from PD.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from mooring.capabilities.balance import drive, foreign, pause
from mooring.capabilities.balance.book import RANGE, Book, RegionBooks
from mooring.capabilities.balance.drive import RegionPayload, region_payload
from mooring.capabilities.balance.picture import Influence, Picture
from mooring.capabilities.balance.policy import BALANCE_REGION, REPLICA, BalancePolicy
from mooring.capabilities.balance.schedulers import operator_of, propose_all
from mooring.core.model.cluster import Key
from mooring.core.model.decision import (
    PD_NOT_SEEN,
    Evaluation,
    Line,
    NextStep,
    OperatorRecord,
    PdRefresh,
    ReadBack,
    Recovered,
    Verdict,
    Withdrawal,
)
from mooring.core.model.events import Change, OperatorChanged, PdLost, PdSeen, RegionsSeen, Trigger
from mooring.core.model.instructions import HarmlessWrite, ReadRegions
from mooring.core.model.kinds import Kind
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import PdOperator, PdView, TidbCluster
from mooring.core.queue import QueueRead, Settings, region_claims, region_operator
from mooring.core.queue.config import REGION_SCHEDULERS
from mooring.core.world.index import Index
from mooring.core.world.members import sharing_pd
from mooring.core.world.read import WorldRead

PAUSE = "pause/"
HALTED = "PD's halt-scheduling is on: nothing is moved in this cluster"
#: A scheduler without a cap still proposes only so many at a time.
AT_ONCE = 10
#: After proposals that may have passed at once, the next look.
SOON_S = 0.05


class Notes(msgspec.Struct, frozen=True):
    """What is remembered of a cluster between two evaluations."""

    #: The first evaluation: regions that were read before do not count.
    since: float
    #: Counts searches: each one begins somewhere else.
    turn: int = 0


@dataclass(frozen=True)
class Balance:
    name = "balance"
    sources = frozenset(REGION_SCHEDULERS)
    remembered = (Notes,)

    policy: BalancePolicy = field(default_factory=BalancePolicy)

    # ── Which keys ────────────────────────────────────────────────────────────────────────────────────────────

    def affected_keys(self, trigger: Trigger, world: WorldRead) -> Iterable[str]:
        match trigger:
            case Change(kind=Kind.TIDB_CLUSTER, key=key) | PdSeen(cluster=key) | PdLost(cluster=key):
                yield from (str(key), f"{PAUSE}{key}")
            case RegionsSeen(cluster=key):
                yield str(key)
            case OperatorChanged(operator=operator):
                yield operator.payload.cluster

    def keys(self, world: WorldRead) -> Iterable[str]:
        for tc in sorted(world.tidb_clusters(), key=lambda tc: str(tc.key)):
            yield from (f"{PAUSE}{tc.key}", str(tc.key))

    # ── Is there something to do? ─────────────────────────────────────────────────────────────────────────────

    def indexes(self) -> tuple[Index, ...]:
        return (RegionBooks(self.policy),)

    def evaluate(self, key: str, world: WorldRead, queue: QueueRead, notes: Any, now: float) -> Evaluation:
        namespace, _, name = key.removeprefix(PAUSE).partition("/")
        cluster = Key(namespace, name)
        tc, lost = world.tidb_cluster(cluster), world.pd_lost(cluster)
        view, seen_at = None if lost else world.pd(cluster), world.pd_observed_at(cluster) or now
        if tc is None:
            return Evaluation(
                withdrawals=tuple(_waiting(queue, cluster, Reason.CLUSTER_GONE, "the TidbCluster is gone"))
            )
        too_many, sharing = self._too_many(cluster, world, now), sharing_pd(world, cluster)
        left = None if view is None else _left_to_others(tc, view, sharing)
        left_to_pd = pause.left_to_pd(tc, self.policy, sharing)
        if key.startswith(PAUSE):
            released = left_to_pd or ("too many regions" if too_many else "")
            released = released or (left.detail if left is not None else "")
            return pause.evaluate(self.policy, tc, view, seen_at, notes, now, released)
        if left_to_pd:
            return Evaluation(withdrawals=tuple(_waiting(queue, cluster, Reason.WITHDRAWN, left_to_pd)))
        if view is None:
            waiting_on = lost or PD_NOT_SEEN
            return Evaluation(
                verdict=waiting_on,
                refreshes=(PdRefresh(cluster, now + (self.policy.recheck_s if lost else 0.0)),),
                notes=notes,
            )
        if left is not None:
            return Evaluation(
                withdrawals=tuple(_waiting(queue, cluster, Reason.WITHDRAWN, left.detail)),
                refreshes=(PdRefresh(cluster, seen_at + self.policy.idle_s),),
                verdict=left if left.state is State.REFUSED else None,
            )
        book = world.index(RegionBooks).of(cluster)
        if too_many is not None:
            other_operators = [op for op in view.operators if not self._is_ours(op, cluster, queue)]
            return Evaluation(
                withdrawals=tuple(_waiting(queue, cluster, Reason.WITHDRAWN, too_many.detail)),
                facts=tuple(foreign.facts(other_operators, queue.settings, book.summary, cluster)),
                refreshes=(PdRefresh(cluster, seen_at + self.policy.idle_s),),
                verdict=too_many,
            )
        return self._evaluate(cluster, book, view, seen_at, queue, notes, now)

    def _evaluate(
        self, cluster: Key, book: Book, view: PdView, seen_at: float, queue: QueueRead, notes: Notes | None, now: float
    ) -> Evaluation:
        notes = notes or Notes(now)
        other_operators = [op for op in view.operators if not self._is_ours(op, cluster, queue)]
        reads, read_at = self._reads(book, cluster, view, notes.since, now)
        doubt = book.doubt(view, notes.since, now)
        obstacle = Verdict(State.WAITING, Reason.PD_UNSURE, doubt) if doubt else self._not_aside(book, view, now)
        proposals: tuple[Operator, ...] = ()
        again_s = self.policy.recheck_s
        if obstacle is None:
            proposals = tuple(self._propose(book, other_operators, cluster, queue, notes.turn, now))
            again_s = SOON_S if proposals else self.policy.idle_s
            notes = Notes(notes.since, notes.turn + 1)
        busy = bool(view.operators) or bool(doubt)
        return Evaluation(
            proposals=proposals,
            withdrawals=tuple(self._unfit(book, cluster, queue, now)),
            facts=tuple(foreign.facts(other_operators, queue.settings, book.summary, cluster)),
            instructions=reads,
            refreshes=(PdRefresh(cluster, seen_at + (self.policy.recheck_s if busy else self.policy.idle_s)),),
            verdict=obstacle,
            again_at=min(now + again_s, max(read_at, now + SOON_S)),
            notes=notes,
        )

    def _reads(
        self, book: Book, cluster: Key, view: PdView, since: float, now: float
    ) -> tuple[tuple[HarmlessWrite, ...], float]:
        """Which regions to read now, and when the next range is due."""
        reads: list[HarmlessWrite] = []
        due = book.read_at(view, since)
        if due <= now:
            reads.append(ReadRegions(cluster=cluster, start_key=book.cursor, limit=RANGE))
        leaderless = book.leaderless(now)
        if leaderless:
            reads.append(ReadRegions(cluster=cluster, region_ids=leaderless))
        return tuple(reads), due

    def _too_many(self, cluster: Key, world: WorldRead, now: float) -> Verdict | None:
        """Why its regions are not kept; None: they are."""
        view, most = world.pd(cluster), self.policy.most_regions
        if view is not None and view.region_count > most:
            said = f"PD has {view.region_count:,} regions"
        elif world.index(RegionBooks).has_given_way(cluster, now):
            said = "PD lists more regions than there is room for"
        else:
            return None
        return Verdict(
            State.BLOCKED,
            Reason.TOO_MANY_REGIONS,
            f"{said}: {most:,} of all clusters are kept, so PD balances by itself. Where they are real, raise "
            "balance.most-regions and the memory of Mooring's pods by 800 MiB a million; otherwise leave it to PD",
            remedy=f"mooring balance release {cluster}",
        )

    def _not_aside(self, book: Book, view: PdView, now: float) -> Verdict | None:
        """Why nothing may be moved now: PD is told to move nothing, or its own schedulers are not paused."""
        if view.placement is not None and view.placement.halted:
            return Verdict(State.BLOCKED, Reason.PD_HALTED, HALTED, remedy="pd-ctl config set halt-scheduling false")
        theirs = pause.others_pause(view, self.policy)
        if theirs is not None:
            said = f"{theirs.name} was paused for {theirs.length_s:.0f} s, not by Mooring (BR, TiDB Lightning, pd-ctl)"
            return Verdict(State.WAITING, Reason.PAUSED_BY_OTHERS, said, remedy="waits until that pause ends")
        if book.aside_since is not None and now < book.aside_until:
            return None
        return Verdict(State.WAITING, Reason.PD_UNSURE, "PD's own schedulers are not paused yet")

    def _unfit(self, book: Book, cluster: Key, queue: QueueRead, now: float) -> Iterator[Withdrawal]:
        """Waiting operators to a store that no longer takes them, which would first wait for running ones to end; and
        those on a region that PD works on by itself: they are evaluated again anyway."""
        for operator in _waiting_of(queue, cluster):
            why = drive.taken_by_pd(operator, book) or drive.unfit(operator, book.summary)
            why = why or (self._pd_repairs(book, now) if operator.source == BALANCE_REGION else "")
            if why:
                yield Withdrawal(operator.id, Reason.WITHDRAWN, why)

    def _pd_repairs(self, book: Book, now: float) -> str:
        """Repairs first, also those of PD, which begins them between two looks; "": there are none."""
        return book.repairs(now) if self.policy.repairs_first and REPLICA not in self.policy.sources else ""

    def _propose(
        self, book: Book, other_operators: Iterable[PdOperator], cluster: Key, queue: QueueRead, turn: int, now: float
    ) -> Iterator[Operator]:
        rooms = self._rooms(book, queue, cluster, now)
        if not any(rooms.values()):
            return
        picture = Picture(book.summary, Influence(book.summary), turn)
        repair_at = now if self.policy.repairs_first else None
        _foresee(picture.influence, other_operators, cluster, queue)
        for proposal in propose_all(picture, rooms):
            operator = operator_of(proposal, queue.settings, str(cluster), repair_at=repair_at)
            region = book.summary.regions[proposal.move.regions[0]]
            payload = RegionPayload(
                cluster=str(cluster), version=region.version, leader=region.leader_store, proposed_at=now
            )
            # Its time is kept by `drive`: only PD's list says when its room is free.
            yield msgspec.structs.replace(operator, payload=payload, quota=str(cluster), timeout_s=None)

    def _rooms(self, book: Book, queue: QueueRead, cluster: Key, now: float) -> Mapping[str, int]:
        """How many more of this cluster each scheduler may have waiting: clusters do not share caps."""
        rooms = {}
        repairing = self._pd_repairs(book, now)
        for source in self.policy.sources:
            cap = queue.settings.cap(source)
            rooms[source] = (
                0
                if repairing and source == BALANCE_REGION
                else max(0, (AT_ONCE if cap is None else cap) - queue.waiting_of(source, str(cluster)))
            )
        return rooms

    def _is_ours(self, operator: PdOperator, cluster: Key, queue: QueueRead) -> bool:
        """Charged already as an operator. One that was read back without its region is charged as a fact as well: of
        the two the larger counts, and the fact knows who leads it."""
        holder = queue.holder(region_claims((operator.region_id,), str(cluster))[0])
        return holder is not None and queue.is_running(holder.id) and not region_payload(holder).resumed

    # ── What is released ──────────────────────────────────────────────────────────────────────────────────────

    def next_step(self, running: OperatorRecord, world: WorldRead, queue: QueueRead, now: float) -> NextStep:
        operator = running.operator
        book = world.index(RegionBooks).of(drive.cluster_of(operator))
        return drive.next_step(running, world, book, self.policy, now, self._obstacle(operator, book, world, now))

    def _obstacle(self, operator: Operator, book: Book, world: WorldRead, now: float) -> str:
        """Why it may not begin now, in words. What waited while PD restarted must not begin beside what PD has begun by
        itself meanwhile: it is proposed again when that is charged."""
        cluster = drive.cluster_of(operator)
        tc, view = world.tidb_cluster(cluster), world.pd(cluster)
        if tc is None or view is None:
            return "the TidbCluster is gone" if tc is None else "PD has not been looked at yet"
        left_to_pd = pause.left_to_pd(tc, self.policy, sharing_pd(world, cluster))
        if left_to_pd:
            return left_to_pd
        obstacle = self._too_many(cluster, world, now) or self._not_aside(book, view, now)
        if obstacle is not None:
            return obstacle.detail
        if operator.source == BALANCE_REGION and (repairs := self._pd_repairs(book, now)):
            return repairs
        since = book.aside_since or 0.0
        return "" if region_payload(operator).proposed_at >= since else "PD balanced by itself since it was proposed"

    def explain(self, subject: str, world: WorldRead, queue: QueueRead, now: float) -> Iterator[Line]:
        """What PD was told to leave alone: regions that must not move; and what is waited for."""
        kind, _, rest = subject.partition("/")
        namespace, _, name = rest.partition("/")
        if kind != "cluster" or not world.is_on(self.name):
            return
        cluster = Key(namespace, name)
        view, tc = world.pd(cluster), world.tidb_cluster(cluster)
        if tc is not None and pause.left_to_pd(tc, self.policy, sharing_pd(world, cluster)) == pause.NOT_NAMED:
            yield Line("now", pause.NOT_NAMED)
            command = f"kubectl -n {namespace} annotate tc {name} {pause.BALANCE_ANNOTATION}={pause.TAKEN}"
            yield Line("to change", f"name it   {command}")
            return
        if repairs := self._pd_repairs(world.index(RegionBooks).of(cluster), now):
            yield Line("now", f"{repairs}: no region is balanced meanwhile")
        denied = view.placement.denied if view is not None and view.placement is not None else ()
        if denied:
            ranges = "1 range" if len(denied) == 1 else f"{len(denied)} ranges"
            yield Line("now", f"{ranges} of keys with the label schedule=deny: those regions are left where they are")

    # ── After a crash ─────────────────────────────────────────────────────────────────────────────────────────

    def recover(self, world: WorldRead, queue: QueueRead, now: float) -> Iterator[ReadBack]:
        if not world.is_on(self.name):
            return  # switched off, it treats no operator as its own
        for tc in sorted(world.tidb_clusters(), key=lambda tc: str(tc.key)):
            view = world.pd(tc.key)
            sharing = sharing_pd(world, tc.key)
            if min((one.key for one in sharing), default=tc.key) != tc.key:
                continue  # read back once, by the first of those that share this PD
            if pause.left_to_pd(tc, self.policy, sharing) == pause.NOT_NAMED:
                continue  # none of its operators is ours
            for found in view.operators if view is not None else ():
                yield partial(_read_back, found, tc.key, queue.settings, now)

    def recovery_needs(self, world: WorldRead) -> Iterator[str]:
        for tc in world.tidb_clusters() if world.is_on(self.name) else ():
            if world.pd(tc.key) is None and not world.pd_lost(tc.key):
                yield f"a look at the PD of {tc.key}"


def _read_back(found: PdOperator, cluster: Key, settings: Settings, now: float) -> Iterator[Recovered]:
    if found.desc not in foreign.OURS or not foreign.steps_of(found):
        return
    operator = region_operator(
        id=f"pd/{cluster}/{found.region_id}",
        source=foreign.OURS[found.desc],
        move=foreign.move_of(found),
        settings=settings,
        cluster=str(cluster),
        reason=Reason.RESUMED,
        detail=found.brief,
    )
    # Who leads it is not known before the regions are read: store 0 is written for that.
    cost = foreign.costs(found, settings)
    phases = ({f"store/{cluster}/{store}": amount for store, amount in cost.items()},)
    payload = RegionPayload(cluster=str(cluster), resumed=found.desc)
    operator = msgspec.structs.replace(operator, phases=phases, payload=payload, quota=str(cluster), timeout_s=None)
    yield Recovered(operator, 0, 0, now)


def _foresee(influence: Influence, other_operators: Iterable[PdOperator], cluster: Key, queue: QueueRead) -> None:
    """Everything under way on this cluster's regions, ours and others'."""
    influence.add_operators(queue.operators(), f"region/{cluster}/")
    for other in other_operators:
        if other.region_id not in influence.busy:
            influence.add((other.region_id,), foreign.steps_of(other))


def _waiting_of(queue: QueueRead, cluster: Key) -> Iterator[Operator]:
    for operator in list(queue.operators()):
        ours = operator.source in Balance.sources and operator.payload.cluster == str(cluster)
        if ours and not queue.is_running(operator.id):
            yield operator


def _waiting(queue: QueueRead, cluster: Key, reason: Reason, detail: str) -> Iterator[Withdrawal]:
    for operator in _waiting_of(queue, cluster):
        yield Withdrawal(operator.id, reason, detail)


def _left_to_others(tc: TidbCluster, view: PdView, sharing: Sequence[TidbCluster]) -> Verdict | None:
    """One PD is balanced once: of the TidbClusters that share it by the first, and not at all where it has stores of
    another Kubernetes cluster, whose members and balancer cannot be seen from here. None: by this one."""
    first = min((one.key for one in sharing), default=tc.key)
    if first != tc.key:
        return Verdict(State.WAITING, Reason.BALANCE, f"its PD is balanced as that of {first}")
    known = {(one.namespace, one.name) for one in sharing or (tc,)}
    domains = {one.cluster_domain for one in sharing or (tc,)}
    for store in view.stores:
        cluster = store.pod_name.rpartition("-")[0].removesuffix("-tikv").removesuffix("-tiflash")
        if store.namespace and ((store.namespace, cluster) not in known or store.domain not in domains):
            detail = f"PD has store {store.id} at {store.address}, of no TidbCluster here: PD balances by itself"
            return Verdict(State.REFUSED, Reason.NOT_MANAGED, detail)
    return None
