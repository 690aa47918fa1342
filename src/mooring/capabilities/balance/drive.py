"""One released operator, from PD's operators API to its end.

    asked ──taken──► PD lists it ──no longer──► its region is looked at ──► as wanted: done · otherwise: failed
      │                 └─its store is not Up any more, or its time is over: canceled in PD ─┘
      └─refused twice, the region has changed meanwhile, or PD balances by itself: ended, nothing was begun

Only PD knows when it has ended, and only the region shows how: an operator that PD lost in a restart may have been
carried out or not. Its cost stays charged until that is observed, so that the schedulers never decide without it, and
no second operator runs beside one that was canceled here and still runs in PD.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from mooring.capabilities.balance import foreign
from mooring.capabilities.balance.book import Book
from mooring.capabilities.balance.policy import BalancePolicy
from mooring.capabilities.balance.summary import Summary
from mooring.core.model.cluster import Key
from mooring.core.model.decision import PD_NOT_SEEN, End, NextStep, OperatorRecord, PdRefresh, Verdict
from mooring.core.model.instructions import AddPdOperator, CancelPdOperator, ReadRegions
from mooring.core.model.operator import Operator, Payload, Step, StepKind
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import PdOperator, Region
from mooring.core.queue.costs import timeout_s
from mooring.core.world.read import WorldRead

TRIES: Final = 2
_RECEIVES: Final = frozenset({StepKind.ADD_LEARNER, StepKind.ADD_PEER})


class RegionPayload(Payload, frozen=True, gc=False, kw_only=True):
    """A move of a region, as it was when it was proposed."""

    version: int = 0
    #: The store that led it; None: not known.
    leader: int | None = None
    proposed_at: float = 0.0
    #: What PD calls it, where it was read back from PD.
    resumed: str = ""


def region_payload(operator: Operator) -> RegionPayload:
    """An operator that names no more than its cluster knows nothing of the region."""
    payload = operator.payload
    return payload if isinstance(payload, RegionPayload) else RegionPayload(cluster=payload.cluster)


class _Drive:
    """One question about one operator; `notes` is a copy that goes back with the answer."""

    def __init__(self, running: OperatorRecord, book: Book, policy: BalancePolicy, now: float) -> None:
        self._running = running
        self._operator = running.operator
        self._cluster = cluster_of(running.operator)
        self._region_id = region_of(running.operator)
        self._book = book
        self._policy = policy
        self._now = now
        self.notes = dict(running.notes)

    def begun_at(self, seen_at: float) -> float:
        """When PD took it, as far as we know; 0: it has not."""
        running, notes = self._running, self.notes
        if running.acted_at or "begun" in notes:
            return running.acted_at or notes["begun"]
        if region_payload(self._operator).resumed:
            notes["begun"] = running.promoted_at
        elif 0.0 < notes.get("asked", 0.0) < seen_at and self._listed() is not None:
            notes["begun"] = notes["asked"]  # asked for without an answer, and now PD lists it
        return notes.get("begun", 0.0)

    def _listed(self) -> PdOperator | None:
        """What PD runs on its region, if it is this operator."""
        listed = self._book.listed(self._region_id)
        return listed if listed is not None and is_it(self._operator, listed) else None

    def ask(self) -> NextStep:
        changed = taken_by_pd(self._operator, self._book) or hindrance(self._operator, self._book.summary)
        if changed:
            return NextStep(step=0, end=End(Reason.WITHDRAWN, changed))
        tries = self.notes["tries"] = self.notes.get("tries", 0.0) + 1
        if tries > TRIES:
            return NextStep(step=0, end=End(Reason.REGION_BUSY, "PD did not take it", failed=True))
        self.notes["asked"] = self._now
        body, why = body_of(self._operator), self._operator.detail
        ask = AddPdOperator(cluster=self._cluster, region_id=self._region_id, body=body, why=why)
        return NextStep(step=0, instructions=(ask,))

    def follow(self, seen_at: float) -> NextStep:
        operator, cluster, step = self._operator, self._cluster, self._running.step
        listed, region = self._listed(), self._book.summary.regions.get(self._region_id)
        if listed is not None and "gone" not in self.notes:
            return NextStep(
                step=_step(operator, region),
                progress=listed.brief,
                instructions=self._give_up(listed),
                refreshes=(PdRefresh(cluster, seen_at + self._policy.recheck_s),),
            )
        gone_at = self.notes.setdefault("gone", self._now)
        if self._book.seen_at(self._region_id) < gone_at:
            if self.notes.get("looked") == self._now:
                # Asked and answered in this very moment, and still not seen: retry once, not in a loop.
                return NextStep(step=step, again_at=self._now + self._policy.recheck_s)
            self.notes["looked"] = self._now
            asked = tuple(int(claim.rpartition("/")[2]) for claim in operator.claims)
            return NextStep(step=step, instructions=(ReadRegions(cluster=cluster, region_ids=asked),))
        if reached(operator, region):
            return NextStep(step=len(operator.steps) - 1, end=End())
        return NextStep(step=step, end=self._given_up())

    def _give_up(self, listed: PdOperator) -> tuple[CancelPdOperator, ...]:
        """Cancel in PD what cannot end well. Never one that was read back (it may be a person's), and not again once PD
        has answered: what it lists under this region afterwards belongs to another client."""
        running, operator, notes = self._running, self._operator, self.notes
        late = self._now - running.promoted_at >= timeout_s(operator.steps)
        # PD chooses the steps: one that had to move a leader may hand it to a store that we never named.
        involved = (*_receivers(operator.steps), *_receivers(foreign.steps_of(listed)))
        dead = next((store for store in involved if not _is_up(self._book.summary, store)), None)
        answered = "canceled" in notes and running.acted_at >= notes["canceled"]
        if not (late or dead) or answered or region_payload(operator).resumed:
            return ()
        notes["canceled"] = self._now
        if dead is not None:
            notes["dead"] = dead
        cluster, why = self._cluster, self._given_up().detail
        desc, brief = listed.desc, listed.brief
        return (CancelPdOperator(cluster=cluster, region_id=self._region_id, desc=desc, brief=brief, why=why),)

    def _given_up(self) -> End:
        """How one ends that did not reach what it wanted."""
        notes = self.notes
        if "dead" in notes:
            return End(Reason.STORE_NOT_UP, f"store {notes['dead']:.0f} is not Up any more: canceled in PD")
        if "canceled" in notes:
            ran = f"not done after {timeout_s(self._operator.steps):g} s: canceled in PD"
            return End(Reason.TIMEOUT, ran, failed=True)
        return End(Reason.FAILED, "PD ended it before it was done", failed=True)


def next_step(
    running: OperatorRecord, world: WorldRead, book: Book, policy: BalancePolicy, now: float, obstacle: str = ""
) -> NextStep:
    """`obstacle`: why nothing may begin now, in words; what has begun is followed all the same."""
    cluster = cluster_of(running.operator)
    lost = world.pd_lost(cluster)
    view, seen_at = (None, None) if lost else (world.pd(cluster), world.pd_observed_at(cluster))
    if lost and world.tidb_cluster(cluster) is None:
        return NextStep(step=running.step, end=End(Reason.CLUSTER_GONE, "the TidbCluster and its PD are gone"))
    if view is None or seen_at is None:
        waiting_on = lost or PD_NOT_SEEN
        return NextStep(
            step=running.step, waiting_on=waiting_on, refreshes=(PdRefresh(cluster, now + policy.recheck_s),)
        )
    drive = _Drive(running, book, policy, now)
    begun_at = drive.begun_at(seen_at)
    if not begun_at and seen_at <= drive.notes.get("asked", 0.0):
        # PD said no, or nothing: only a look tells whether it has it.
        answer = NextStep(step=0, refreshes=(PdRefresh(cluster, now),))
    elif not begun_at:
        answer = NextStep(step=0, end=End(Reason.WITHDRAWN, obstacle)) if obstacle else drive.ask()
    elif seen_at <= begun_at or view.evicting is None:
        unsure = Verdict(State.WAITING, Reason.PD_UNSURE, "PD has just started") if view.evicting is None else None
        refresh = PdRefresh(cluster, now + policy.recheck_s)
        answer = NextStep(step=running.step, waiting_on=unsure, refreshes=(refresh,))
    else:
        answer = drive.follow(seen_at)
    return msgspec.structs.replace(answer, notes=drive.notes)


# ── An operator and its region ────────────────────────────────────────────────────────────────────────────────────


def cluster_of(operator: Operator) -> Key:
    namespace, _, name = operator.payload.cluster.partition("/")
    return Key(namespace, name)


def region_of(operator: Operator) -> int:
    return int(operator.subject.rpartition("/")[2])


def body_of(operator: Operator) -> dict[str, Any]:
    """As PD's operators API wants it. PD chooses the steps itself; ours are its effect, priced."""
    region = region_of(operator)
    added = next((s.store for s in operator.steps if s.kind in _RECEIVES), None)
    removed = next((s.store for s in operator.steps if s.kind is StepKind.REMOVE_PEER), None)
    if added is not None and removed is not None:
        return {"name": "transfer-peer", "region_id": region, "from_store_id": removed, "to_store_id": added}
    if added is not None:
        return {"name": "add-peer", "region_id": region, "store_id": added}
    if removed is not None:
        return {"name": "remove-peer", "region_id": region, "store_id": removed}
    step = operator.steps[0]
    if step.kind is StepKind.MERGE_REGION:
        other = int(operator.claims[1].rpartition("/")[2])
        return {"name": "merge-region", "source_region_id": region, "target_region_id": other}
    if step.kind is StepKind.SPLIT_REGION:
        return {"name": "split-region", "region_id": region, "policy": "approximate", "keys": []}
    return {"name": "transfer-leader", "region_id": region, "to_store_id": step.to_store}


def _receivers(steps: Iterable[Step]) -> Iterator[int]:
    """The stores that get a peer or a leader by these steps."""
    for step in steps:
        to = step.to_store if step.kind is StepKind.TRANSFER_LEADER else step.store
        if to is not None and (step.kind in _RECEIVES or step.kind is StepKind.TRANSFER_LEADER):
            yield to


def _is_up(summary: Summary, store: int) -> bool:
    row = summary.stores.get(store)
    return row is not None and row.up


def is_it(operator: Operator, listed: PdOperator) -> bool:
    """Is what PD lists for its region the one that we asked for? By the API it came in by, and by what it does."""
    if region_payload(operator).resumed:
        return listed.desc == region_payload(operator).resumed
    theirs = foreign.steps_of(listed)
    if listed.desc != foreign.DESC_OF[body_of(operator)["name"]] or not set(_receivers(theirs)).issuperset(
        _receivers(operator.steps)
    ):
        return False
    if operator.steps[0].kind is StepKind.MERGE_REGION:
        into = f"into region {operator.claims[1].rpartition('/')[2]}"
        return any(text.endswith(into) for text in listed.steps)
    return set(_removed(theirs)).issuperset(_removed(operator.steps))


def _removed(steps: Iterable[Step]) -> Iterator[int | None]:
    return (step.store for step in steps if step.kind is StepKind.REMOVE_PEER)


def taken_by_pd(operator: Operator, book: Book) -> str:
    """What PD runs by itself on a region of this operator, which has not begun; "" when nothing."""
    regions = [int(claim.rpartition("/")[2]) for claim in operator.claims]
    listed = next((found for region in regions if (found := book.listed(region)) is not None), None)
    return "" if listed is None else f"PD runs {listed.desc} on region {listed.region_id}"


def unfit(operator: Operator, summary: Summary) -> str:
    """Which store does not take what this operator would bring, in words; "" when all do."""
    for step in operator.steps:
        to = step.to_store if step.kind is StepKind.TRANSFER_LEADER else step.store
        row = summary.stores.get(to) if to is not None else None
        if step.kind in _RECEIVES and (row is None or not row.takes_peers):
            return f"store {to} is {'not Up any more' if row is None or not row.up else 'silent'}"
        if step.kind is StepKind.TRANSFER_LEADER and (row is None or not row.takes_leaders):
            return f"store {to} takes no leaders now"
    return ""


def hindrance(operator: Operator, summary: Summary) -> str:
    """What has made it useless or impossible since it was proposed, in words; "" when nothing has."""
    region = summary.regions.get(region_of(operator))
    if region is None or not region.leader_store:
        return "the region is gone" if region is None else "the region has no leader now"
    if region_payload(operator).leader not in {None, region.leader_store}:
        return f"store {region.leader_store} leads the region now: it would cost another store than was charged"
    away = unfit(operator, summary)
    if away:
        return away
    holders = {p.store_id for p in region.peers}
    transfers = [s for s in operator.steps if s.kind is StepKind.TRANSFER_LEADER]
    for step in operator.steps:
        to = step.to_store if step.kind is StepKind.TRANSFER_LEADER else step.store
        if step.kind in _RECEIVES and to in holders:
            return f"store {to} is in it already"
        if step.kind is StepKind.REMOVE_PEER and (to not in holders or (region.leader_store == to and not transfers)):
            return f"store {to} {'leads it now' if to in holders else 'holds it no longer'}"
        if step.kind is StepKind.TRANSFER_LEADER and (
            region.leader_store != step.from_store or (len(operator.steps) == 1 and to not in holders)
        ):
            return "its leader or its peers have changed"
    return ""


def reached(operator: Operator, region: Region | None) -> bool:
    """Does the region look as the operator wanted it?"""
    if region is None:
        return any(s.kind is StepKind.MERGE_REGION for s in operator.steps)
    return _done(operator, region) == len(operator.steps)


def _step(operator: Operator, region: Region | None) -> int:
    done = 0 if region is None else _done(operator, region)
    return min(done, len(operator.steps) - 1)


def _done(operator: Operator, region: Region) -> int:
    """How many of its first steps the region shows."""
    peers = {p.store_id: p.role for p in region.peers}
    for number, step in enumerate(operator.steps):
        match step.kind:
            case StepKind.ADD_LEARNER | StepKind.ADD_PEER:
                done = step.store in peers
            case StepKind.PROMOTE_LEARNER:
                done = peers.get(step.store or 0) in ("Voter", "IncomingVoter")
            case StepKind.REMOVE_PEER:
                done = step.store not in peers
            case StepKind.TRANSFER_LEADER:
                done = region.leader_store == step.to_store
            case StepKind.SPLIT_REGION:
                done = region.version > region_payload(operator).version
            case _:
                done = False
        if not done:
            return number
    return len(operator.steps)
