"""The drain capability: what is asked of Mooring by people and by other tools.

An eviction at the gate (`gate.py`) is a request for one pod. It stands as a mark on the pod, so that a new leader goes
on, and is alive as long as somebody repeats it. A member of TiKV or PD is handed to handoff, which stops before it
would delete. All other pods get an operator of their own (`prepare.py`), which never deletes either.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec

from mooring.capabilities.drain import nodes, prepare
from mooring.capabilities.drain.gate import (
    SOURCE,
    Asked,
    Evictions,
    Guard,
    answer,
    at_once,
    estimate_of,
    guard_of,
    held_since,
    overdue,
    prepared,
    workload_of,
)
from mooring.capabilities.drain.policy import DrainPolicy
from mooring.capabilities.drain.prepare import next_step, operator
from mooring.capabilities.drain.readiness import active_pods, missing_facts, subject_of
from mooring.capabilities.drain.request import ask_sooner, is_detached, put_mark, request_of, withdraw
from mooring.capabilities.drain.room import NodeRoom
from mooring.capabilities.drain.signals import ends_at
from mooring.core.model.cluster import Key, Node, Pod, PodEviction
from mooring.core.model.decision import (
    Evaluation,
    Fact,
    Line,
    NextStep,
    OperatorRecord,
    ReadBack,
    Recovered,
    Verdict,
    Withdrawal,
)
from mooring.core.model.events import Change, EvictionAsked, OperatorChanged, Trigger
from mooring.core.model.instructions import EmitEvent, HarmlessWrite, Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING, PREPARE, Mark
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.queue import QueueRead
from mooring.core.world.index import Index
from mooring.core.world.read import WorldRead

#: The step of a mark that asks.
REQUEST: Final = "request"
#: How often a request is looked at.
LOOK_S: Final = 5.0
#: A back-off lasts at most so long, and on a node that nobody empties so many times longer.
LONGEST_BACK_OFF_S: Final = 3600.0
UNASKED: Final = 10.0
#: Taints that say that a node is being emptied.
EMPTIED: Final = frozenset(
    {"karpenter.sh/disrupted", "karpenter.sh/disruption", "ToBeDeletedByClusterAutoscaler", "mooring.dev/retiring"}
)


class Held(msgspec.Struct, frozen=True, gc=False):
    """What is remembered of a pod's name: soft memory, for the time that an eviction of it may come again."""

    #: Since when this leader knows of it.
    since: float
    #: How often it was prepared in vain, when last, and until when it is left alone.
    undone: int = 0
    undone_at: float = 0.0
    until: float = 0.0
    #: Its pod was told that it is held for long.
    warned: bool = False


@dataclass(frozen=True)
class Drain:
    name = "drain"
    sources = frozenset({SOURCE, nodes.SOURCE})
    remembered = (Held, nodes.Drained, Asked)

    policy: DrainPolicy = field(default_factory=DrainPolicy)

    def affected_keys(self, trigger: Trigger, world: WorldRead) -> Iterable[str]:
        match trigger:
            case Change(kind=Kind.POD, old=old, new=new):
                pod = new if new is not None else old
                assert isinstance(pod, Pod)
                before = old.annotations if isinstance(old, Pod) else pod.annotations
                if any(key in pod.annotations or key in before for key in (LEAVING, nodes.RESTART)):
                    yield subject_of(pod)
                if pod.node and nodes.is_asked(world.node(pod.node)):
                    yield f"node/{pod.node}"
            case Change(kind=Kind.NODE, key=key, old=old, new=new):
                rows = [row for row in (old, new) if isinstance(row, Node)]
                if any(map(nodes.concerns, rows)):
                    yield f"node/{key.name}"
            case Change(kind=Kind.EVICTION, old=old, new=new):
                row = new if new is not None else old
                assert isinstance(row, PodEviction)
                if row.state:
                    yield f"pod/{row.namespace}/{row.pod}"
            case EvictionAsked(key=key):
                yield f"pod/{key}"
            case OperatorChanged(operator=operator):
                yield operator.subject
                yield from nodes.keys_of(operator)
            case _:
                pass

    def keys(self, world: WorldRead) -> Iterable[str]:
        marked = (p for p in world.pods() if p.annotations and (_mark(p) is not None or nodes.restarts(p)))
        asked = {f"pod/{key}" for key in world.index(Evictions).keys()}  # noqa: SIM118
        return sorted(
            {*map(subject_of, marked), *asked, *(f"node/{n.name}" for n in world.nodes() if nodes.concerns(n))}
        )

    def indexes(self) -> tuple[Index, ...]:
        return Evictions(self.policy), NodeRoom()

    # ── Is there something to do? ─────────────────────────────────────────────────────────────────────────────

    def evaluate(self, key: str, world: WorldRead, queue: QueueRead, notes: object, now: float) -> Evaluation:
        kind, _, name = key.partition("/")
        if kind == "node":
            return nodes.evaluate_node(name, world, queue, notes, now)
        namespace, _, name = name.partition("/")
        held = notes if isinstance(notes, Held) else None
        pod = world.pod(Key(namespace, name))
        asked = None if pod is None else world.index(Evictions).of(pod.uid)
        requested = None if pod is None else world.index(Evictions).requested(pod)
        mark = None if pod is None else _mark(pod)
        if asked is not None and held is not None and asked.last <= held.undone_at:
            asked = None  # what it asked for was undone: it counts again when it is repeated
        if pod is not None and pod.active and nodes.restarts(pod):
            return nodes.restart(pod, world, now)
        if pod is None or not pod.active or (asked is None and mark is None and not prepare.is_turn(requested)):
            return self._rest(pod, held, world, now)
        found = _Request(self.policy, world, queue, now, pod, mark, asked, requested, held or Held(now)).evaluation()
        if requested is None or not prepare.is_turn(requested):
            return found
        said = at_once(pod, pod.uid, world, self.policy) or answer(pod, world, queue, self.policy, found.verdict, now)
        reply = prepare.reply(requested, said, estimate_of(pod, queue, world), now)
        return found if reply is None else msgspec.structs.replace(found, instructions=(*found.instructions, reply))

    def _rest(self, pod: Pod | None, held: Held | None, world: WorldRead, now: float) -> Evaluation:
        """Nothing is asked. Its name is remembered while another eviction of it would have to wait."""
        if held is None:
            return Evaluation()
        owner = pod.owner if pod is not None and pod.terminating and not held.until else None
        if pod is not None and owner is not None and owner.kind == Kind.STATEFUL_SET:
            # It comes back under the same name. Where nobody empties its node it may be asked for again at once.
            wait_s = 0.0 if is_emptied(world.node(pod.node)) else self.policy.back_off_s * UNASKED
            held = msgspec.structs.replace(held, until=now + wait_s)
        # What was undone counts again when it is repeated, and for as long that has to be known.
        until = max(held.until, held.undone_at + self.policy.forget_s if held.undone_at else 0.0)
        return Evaluation(notes=held, again_at=until) if until > now else Evaluation()

    # ── What is next? ─────────────────────────────────────────────────────────────────────────────────────────

    def next_step(self, running: OperatorRecord, world: WorldRead, queue: QueueRead, now: float) -> NextStep:
        if running.operator.source == nodes.SOURCE:
            return nodes.next_step(running, world, queue, now)
        return next_step(running, world, self.policy, now)

    def explain(self, subject: str, world: WorldRead, queue: QueueRead, now: float) -> Iterable[Line]:
        kind, _, rest = subject.partition("/")
        namespace, _, name = rest.partition("/")
        pod = world.pod(Key(namespace, name)) if kind == "pod" else None
        asked = None if pod is None else world.index(Evictions).of(pod.uid)
        if asked is not None:
            yield Line(
                "asked",
                f"{asked.by} asked {now - asked.first:.0f} s ago to evict it, last {now - asked.last:.0f} s ago",
            )
        requested = None if pod is None else world.index(Evictions).requested(pod)
        if requested is not None and requested.state:
            words = f"{requested.by or 'nobody'} requests its eviction; Mooring's part is {requested.state}"
            yield Line("requested", f"{words}: {requested.message}" if requested.message else words)

    # ── After a crash ─────────────────────────────────────────────────────────────────────────────────────────

    def recovery_needs(self, world: WorldRead) -> Iterable[str]:
        return ()

    def recover(self, world: WorldRead, queue: QueueRead, now: float) -> Iterable[ReadBack]:
        marked = (pod for pod in world.pods() if LEAVING in pod.annotations)
        for pod in sorted(marked, key=lambda p: (p.namespace, p.name)):
            yield nodes.read_back(pod, world, now) if nodes.marked(pod) else partial(_resumed, pod, world)


def _resumed(pod: Pod, world: WorldRead) -> Iterator[Recovered]:
    mark, workload = _mark(pod), workload_of(pod, world)
    if mark is not None and mark.operator and workload is not None:
        yield Recovered(operator(pod, workload, mark.detail, id_=mark.operator), 0, 0, mark.since)


def _mark(pod: Pod) -> Mark | None:
    mark = request_of(pod)
    return mark if mark is not None and mark.source == SOURCE else None


def is_emptied(node: Node | None) -> bool:
    """The watch has seen a reason to leave this node: a cordon, a taint for a disruption, a notice, or its end."""
    if node is None or node.unschedulable or node.deletion_at is not None:
        return True
    if "DrainInProgress" in node.conditions:
        return True
    return any(taint.key in EMPTIED for taint in node.taints) or "vacant.io/interrupt-at" in node.annotations


class _Request:
    """One pod that is asked for: what to propose, write and say."""

    def __init__(
        self,
        policy: DrainPolicy,
        world: WorldRead,
        queue: QueueRead,
        now: float,
        pod: Pod,
        mark: Mark | None,
        asked: Asked | None,
        requested: PodEviction | None,
        held: Held,
    ) -> None:
        self._policy, self._world, self._queue, self._now = policy, world, queue, now
        self._pod, self._mark, self._asked, self._requested, self._held = pod, mark, asked, requested, held
        #: The last try that is known of; a new leader waits for the next one.
        self._last = max(held.since if mark is not None else 0.0, asked.last if asked is not None else 0.0)
        if requested is not None:
            # Kubernetes' own is repeated by standing there, and tried next once it is completed.
            self._last = max(self._last, now if prepare.is_turn(requested) else requested.completed or 0.0)
        self._record = queue.record_of(subject_of(pod))

    def evaluation(self) -> Evaluation:
        now, policy, held, pod = self._now, self._policy, self._held, self._pod
        guard = guard_of(pod, self._world, policy)
        if guard is Guard.NONE:
            return self._undone("it is no longer guarded")
        if prepare.is_over(self._requested) and self._asked is None:
            return self._undone("nobody requests its eviction any more")
        if now - self._last > policy.forget_s:
            return self._undone(f"its eviction was not repeated for {policy.forget_s:.0f} s")
        if held.until > now:
            words = (
                f"{pod.name} was prepared {held.undone} times in vain" if held.undone else f"{pod.name} just came back"
            )
            verdict = Verdict(State.WAITING, Reason.BACK_OFF, f"{words}: it is left alone for {held.until - now:.0f} s")
            return Evaluation(notes=held, verdict=verdict, again_at=held.until)
        ready_at = self._ready_at()
        if ready_at is not None and now - max(ready_at, self._last) > policy.prepared_s:
            return self._in_vain()
        if ready_at is None and self._record is not None and self._record.operator.source not in {SOURCE, "handoff"}:
            return self._left_to(self._record)
        return self._wanted(guard)

    def _ready_at(self) -> float | None:
        """Since when it may go."""
        record = self._record
        if record is None or not prepared(self._pod, record, self._world, self._now):
            return None
        return record.notes.get("prepared_at", self._now)

    def _left_to(self, record: OperatorRecord) -> Evaluation:
        """Another capability takes it away: nothing is to be asked of it."""
        verdict = Verdict(State.MOVING, record.operator.reason, record.operator.detail)
        return Evaluation(notes=self._held, verdict=verdict, again_at=self._now + LOOK_S)

    def _wanted(self, guard: Guard) -> Evaluation:
        pod = self._pod
        writes: list[HarmlessWrite] = []
        proposals: list[Operator] = []
        facts: tuple[Fact, ...] = ()
        if request_of(pod) is None:
            writes.append(self._request())
        elif guard is Guard.LEADERS and self._mark is not None and self._mark.value == PREPARE and self._mark.deadline:
            # A notice has reached it meanwhile: handoff takes it away in time, whether its eviction comes or not.
            plain = msgspec.structs.replace(self._mark, value="")
            writes.append(put_mark(pod, plain, "its node is interrupted, so its eviction is not waited for"))
        elif guard is Guard.LEADERS and self._mark is not None:
            sooner = ask_sooner(pod, self._mark, ends_at(self._world.node(pod.node)), "Karpenter ends its node by then")
            writes += [sooner] if sooner is not None else []
        # Once the mark is there, so that what is proposed can be told from what was withdrawn.
        workload = workload_of(pod, self._world)
        if guard is Guard.REPLACEMENT and workload is not None and self._mark is not None:
            proposals.append(operator(pod, workload, f"evicted by {self._by()}"))
            if not is_detached(pod):
                facts = tuple(missing_facts(workload, active_pods(workload, self._world), self._queue, self._now))
        held, warning = self._overdue()
        verdict = warning or Verdict(
            State.MOVING, Reason.EVICTED, f"{pod.name} is prepared for its eviction by {self._by()}"
        )
        if warning is not None and not self._held.warned:
            text = f"{warning.detail}: its eviction by {self._by()} is held for long"
            writes.append(
                EmitEvent(kind=Kind.POD, key=pod.key, uid=pod.uid, reason=warning.reason, message=text, warning=True)
            )
        return Evaluation(
            proposals=tuple(proposals),
            facts=facts,
            instructions=tuple(writes),
            verdict=verdict,
            notes=held,
            again_at=self._now + LOOK_S,
        )

    def _overdue(self) -> tuple[Held, Verdict | None]:
        since = held_since(self._pod, self._asked, self._world, self._now)
        if since is None or self._now - since < self._policy.max_hold_s:
            return self._held, None
        return msgspec.structs.replace(self._held, warned=True), overdue(self._pod, self._world, self._policy)

    def _by(self) -> str:
        if self._asked is not None:
            return self._asked.by
        return (self._requested.by if self._requested is not None else "") or "others"

    def _request(self) -> Patch:
        mark = Mark(
            operator="",
            source=SOURCE,
            reason=Reason.EVICTED.value,
            step=REQUEST,
            since=self._asked.first if self._asked is not None else self._now,
            detail=f"evicted by {self._by()}",
            pod_uid=self._pod.uid,
            node=self._pod.node,
            value=PREPARE,
        )
        return put_mark(self._pod, mark, "marks that its eviction was asked for")

    def _in_vain(self) -> Evaluation:
        """Prepared, and nobody came for it."""
        held, policy = self._held, self._policy
        wait_s = policy.back_off_s * 2**held.undone * (1.0 if is_emptied(self._world.node(self._pod.node)) else UNASKED)
        self._held = msgspec.structs.replace(
            held,
            undone=min(held.undone + 1, 10),
            undone_at=self._last,
            until=self._now + min(wait_s, LONGEST_BACK_OFF_S),
        )
        undone = self._undone(f"nobody came for it within {policy.prepared_s:.0f} s")
        return msgspec.structs.replace(undone, notes=self._held, again_at=self._held.until)

    def _undone(self, why: str) -> Evaluation:
        withdrawals: tuple[Withdrawal, ...] = ()
        record = self._record
        if record is not None and record.operator.source == SOURCE:
            withdrawals = (Withdrawal(record.operator.id, Reason.WITHDRAWN, why),)
        writes: tuple[HarmlessWrite, ...] = ()
        if self._mark is not None:
            back = withdraw(self._pod, why)
            writes = (back,)
        return Evaluation(withdrawals=withdrawals, instructions=writes, notes=None)
