"""The balance capability: our schedulers drive a PD through the queue.

Two keys per TidbCluster: `tidb/demo` looks at the regions and proposes, `pause/tidb/demo` keeps PD's own schedulers
paused meanwhile. What the queue releases goes to PD's operators API (`driving`); what PD runs besides is a fact
(`foreign`). Nothing is written down by us: PD is where these operators live, so PD is where they are read back from.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from mooring.capabilities.balance import drive, foreign
from mooring.capabilities.balance.book import Book
from mooring.capabilities.balance.influence import Influence
from mooring.capabilities.balance.pause import Pauses, is_released
from mooring.capabilities.balance.policy import BalancePolicy
from mooring.capabilities.balance.schedulers import operator_of, propose_all
from mooring.core.model.cluster import Key
from mooring.core.model.decision import Evaluation, NextStep, PdRefresh, Recovered, Running, Verdict, Withdrawal
from mooring.core.model.events import Change, OperatorEnded, PdLost, PdSeen, RegionsSeen, Trigger
from mooring.core.model.instructions import Instruction, ReadRegions
from mooring.core.model.kinds import Kind
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import PdOperator, PdView, TidbCluster
from mooring.core.queue import Queue, Settings, live_settings, region_claims, region_operator
from mooring.core.queue.config import REGION_SCHEDULERS
from mooring.core.world.index import Index
from mooring.core.world.read import WorldRead

PAUSE = "pause/"
#: A scheduler without a cap still proposes only so many at a time.
AT_ONCE = 10
#: After proposals that may have passed at once, the next look.
SOON_S = 0.05


class Balance:
    name = "balance"
    sources = frozenset(REGION_SCHEDULERS)

    def __init__(
        self, policy: BalancePolicy | None = None, *, settings: Settings | None = None, on: bool = True
    ) -> None:
        self.policy = policy or BalancePolicy()
        self._settings = settings or live_settings()
        #: Switched off, it neither waits for a PD nor takes anybody's operators for its own.
        self._on = on
        self._books: dict[Key, Book] = {}
        self._pauses = Pauses(self.policy)
        #: In which life of PD it was last looked at, standing aside, and everything it ran by itself was charged.
        self._aside: dict[Key, int] = {}

    # ── Which keys ────────────────────────────────────────────────────────────────────────────────────────────

    def affected_keys(self, trigger: Trigger, world: WorldRead) -> Iterable[str]:
        match trigger:
            case Change(kind=Kind.TIDB_CLUSTER, key=key) | PdSeen(cluster=key) | PdLost(cluster=key):
                yield from (str(key), f"{PAUSE}{key}")
            case RegionsSeen(cluster=key):
                self._book(key).take(trigger)
                yield str(key)
            case OperatorEnded(operator=operator):
                yield operator.args["cluster"]

    def keys(self, world: WorldRead) -> Iterable[str]:
        for tc in sorted(world.tidb_clusters(), key=lambda tc: str(tc.key)):
            yield from (f"{PAUSE}{tc.key}", str(tc.key))

    def _book(self, cluster: Key) -> Book:
        return self._books.setdefault(cluster, Book(self.policy))

    # ── Is there something to do? ─────────────────────────────────────────────────────────────────────────────

    def indexes(self) -> tuple[Index, ...]:
        return ()

    def evaluate(self, key: str, world: WorldRead, queue: Queue, notes: object, now: float) -> Evaluation:
        namespace, _, name = key.removeprefix(PAUSE).partition("/")
        cluster = Key(namespace, name)
        tc, lost = world.tidb_cluster(cluster), world.pd_lost(cluster)
        view = None if lost else world.pd(cluster)
        if tc is None:
            self._books.pop(cluster, None)
            return Evaluation(
                withdrawals=tuple(_waiting(queue, cluster, Reason.CLUSTER_GONE, "the TidbCluster is gone"))
            )
        if key.startswith(PAUSE):
            return self._pauses.evaluate(tc, view, world.pd_observed_at(cluster) or now, now)
        if is_released(tc):
            return Evaluation(withdrawals=tuple(_waiting(queue, cluster, Reason.WITHDRAWN, "released to PD")))
        if view is None:
            waiting_on = Verdict(State.WAITING, Reason.PD_UNREACHABLE, lost or "PD has not been looked at yet")
            return Evaluation(
                verdict=waiting_on, refreshes=(PdRefresh(cluster, now + (self.policy.recheck_s if lost else 0.0)),)
            )
        return self._look(tc, view, world.pd_observed_at(cluster) or now, queue, now)

    def _look(self, tc: TidbCluster, view: PdView, seen_at: float, queue: Queue, now: float) -> Evaluation:
        cluster, book = tc.key, self._book(tc.key)
        book.see(view)
        more = book.advance()
        strangers = [op for op in view.operators if not self._is_ours(op, cluster, queue)]
        facts = tuple(foreign.facts(strangers, queue.settings, book.summary, cluster))
        unfit = tuple(self._unfit(book, cluster, queue))
        reads: tuple[Instruction, ...] = (ReadRegions(cluster=cluster),) if book.due(view, now) else ()
        doubt = book.doubt(view)
        busy = bool(view.operators) or bool(doubt)
        refreshes = (PdRefresh(cluster, seen_at + (self.policy.recheck_s if busy else self.policy.idle_s)),)
        if doubt or not self._pauses.hold(cluster, view, seen_at, now):
            self._aside.pop(cluster, None)
            waiting_on = Verdict(State.WAITING, Reason.PD_UNSURE, doubt or "PD's own schedulers are not paused yet")
            again_at = now + (0.0 if more else self.policy.recheck_s)
            return Evaluation(
                facts=facts,
                withdrawals=unfit,
                instructions=reads,
                refreshes=refreshes,
                verdict=waiting_on,
                again_at=again_at,
            )
        self._aside[cluster] = view.start_timestamp
        proposals = tuple(self._propose(book, strangers, cluster, queue, now))
        return Evaluation(
            proposals=proposals,
            withdrawals=unfit,
            facts=facts,
            instructions=reads,
            refreshes=refreshes,
            again_at=now if more else now + (SOON_S if proposals else self.policy.idle_s),
        )

    def _unfit(self, book: Book, cluster: Key, queue: Queue) -> Iterator[Withdrawal]:
        """What waits for a store that no longer takes it: it would wait there for those that run to end first."""
        for operator in _waiting_of(queue, cluster):
            why = drive.unfit(operator, book.summary)
            if why:
                yield Withdrawal(operator.id, Reason.WITHDRAWN, why)

    def _propose(
        self, book: Book, strangers: Iterable[PdOperator], cluster: Key, queue: Queue, now: float
    ) -> Iterator[Operator]:
        rooms = self._rooms(queue)
        if not any(rooms.values()):
            return
        picture, repair_at = book.picture(), now if self.policy.repairs_first else None
        _foresee(picture.influence, strangers, cluster, queue)
        for wish in propose_all(picture, rooms):
            operator = operator_of(wish, queue.settings, str(cluster), repair_at=repair_at)
            region = book.summary.regions[wish.move.regions[0]]
            args = {"cluster": str(cluster), "version": str(region.version), "leader": str(region.leader_store)}
            # Its time is kept by `driving`: only PD's list says when its room is free.
            yield msgspec.structs.replace(operator, args=args, timeout_s=None)

    def _rooms(self, queue: Queue) -> Mapping[str, int]:
        """How many more each scheduler may have waiting."""
        rooms = {}
        for source in self.policy.sources:
            cap = queue.settings.cap(source)
            rooms[source] = max(0, (AT_ONCE if cap is None else cap) - queue.waiting_of(source))
        return rooms

    def _is_ours(self, operator: PdOperator, cluster: Key, queue: Queue) -> bool:
        """Charged already as an operator. One that was read back without its region is charged as a fact as well: of
        the two the larger counts, and the fact knows who leads it."""
        holder = queue.holder(region_claims((operator.region_id,), str(cluster))[0])
        return holder is not None and queue.is_running(holder.id) and "resumed" not in holder.args

    # ── What is released ──────────────────────────────────────────────────────────────────────────────────────

    def next_step(self, running: Running, world: WorldRead, queue: Queue, now: float) -> NextStep:
        cluster = drive.cluster_of(running.operator)
        return drive.next_step(
            running, world, self._book(cluster), self.policy, now, self._obstacle(cluster, world, now)
        )

    def _obstacle(self, cluster: Key, world: WorldRead, now: float) -> str:
        """Why nothing may begin now, in words. What waited while PD restarted must not begin beside what PD has begun
        by itself meanwhile: it is proposed again when that is charged."""
        tc, view, seen_at = world.tidb_cluster(cluster), world.pd(cluster), world.pd_observed_at(cluster)
        if tc is None or view is None or seen_at is None:
            return "the TidbCluster is gone" if tc is None else "PD has not been looked at yet"
        if is_released(tc):
            return "released to PD"
        aside = self._pauses.hold(cluster, view, seen_at, now) and self._aside.get(cluster) == view.start_timestamp
        return "" if aside else "PD's own schedulers are not paused"

    # ── After a crash ─────────────────────────────────────────────────────────────────────────────────────────

    def recover(self, world: WorldRead, now: float) -> Iterator[Recovered]:
        self._books.clear()
        self._pauses.forget()
        self._aside.clear()
        if not self._on:
            return
        for tc in sorted(world.tidb_clusters(), key=lambda tc: str(tc.key)):
            view = world.pd(tc.key)
            for found in view.operators if view is not None else ():
                if found.desc in foreign.OURS and foreign.steps_of(found):
                    yield Recovered(self._read_back(found, tc.key), 0, 0, now)

    def _read_back(self, found: PdOperator, cluster: Key) -> Operator:
        operator = region_operator(
            id=f"pd/{cluster}/{found.region_id}",
            source=foreign.OURS[found.desc],
            move=foreign.move_of(found),
            settings=self._settings,
            cluster=str(cluster),
            reason=Reason.RESUMED,
            detail=found.brief,
        )
        # Who leads it is not known before the regions are read: store 0 stands for that, and is nobody's.
        cost = foreign.costs(found, self._settings)
        phases = ({f"store/{cluster}/{store}": amount for store, amount in cost.items()},)
        args = {"cluster": str(cluster), "resumed": "true"}
        return msgspec.structs.replace(operator, phases=phases, args=args, timeout_s=None)

    def recovery_needs(self, world: WorldRead) -> Iterator[str]:
        for tc in world.tidb_clusters() if self._on else ():
            if world.pd(tc.key) is None and not world.pd_lost(tc.key):
                yield f"a look at the PD of {tc.key}"


def _foresee(influence: Influence, strangers: Iterable[PdOperator], cluster: Key, queue: Queue) -> None:
    """Everything under way on this cluster's regions, ours and others'."""
    influence.add_operators(queue.operators(), f"region/{cluster}/")
    for stranger in strangers:
        if stranger.region_id not in influence.busy:
            influence.add((stranger.region_id,), foreign.steps_of(stranger))


def _waiting_of(queue: Queue, cluster: Key) -> Iterator[Operator]:
    for operator in list(queue.operators()):
        ours = operator.source in Balance.sources and operator.args.get("cluster") == str(cluster)
        if ours and not queue.is_running(operator.id):
            yield operator


def _waiting(queue: Queue, cluster: Key, reason: Reason, detail: str) -> Iterator[Withdrawal]:
    for operator in _waiting_of(queue, cluster):
        yield Withdrawal(operator.id, reason, detail)
