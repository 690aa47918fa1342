"""The gate: what an eviction of a pod is answered. Pure; the webhook asks it for every eviction in the cluster.

Others take pods away: `kubectl drain`, Karpenter, the autoscaler, the descheduler. They ask `pods/eviction`, and know
nothing of leaders, nor of a Deployment with one replica. So an eviction of a guarded pod is refused with 429, which
all of them take as "try again", and makes us prepare: leaders off and proven gone, the replacement Ready. Then the next
try passes, and the real eviction, with its budget check, takes the pod.

    asked ──429──► prepared ──the next try passes──► gone
      │               └── no try for `prepared-s`: undone, with a back-off
      ├── not repeated for `forget-s`: undone
      └── `max-hold-s`: passes, with a Warning (a TiKV pod with leaders is kept where `keep` names its namespace)

A review is not always authenticated, so nothing is ever deleted on its word. It fails open: whatever is not known lets
the eviction pass. Who is guarded is said by the owner or an administrator, never by a mark.
"""

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

from mooring.capabilities.drain.leaders import (
    HANDED_OVER,
    component_of,
    is_handed_over,
    kept,
    kept_leaders,
    led_set,
    may_be_lost,
)
from mooring.capabilities.drain.policy import REPLACE_FIRST, DrainPolicy
from mooring.capabilities.drain.readiness import active_pods, closed_budget, is_ready, subject_of, target_of
from mooring.capabilities.drain.request import AFFINITY, can_detach, is_detached, request_of
from mooring.capabilities.drain.signals import ends_at
from mooring.core.model.cluster import Key, Pod, PodEviction, Workload
from mooring.core.model.decision import RUNNING, OperatorRecord, Verdict
from mooring.core.model.events import Change, EvictionAsked, Trigger
from mooring.core.model.kinds import POD_OWNERS, Kind
from mooring.core.model.marks import LEAVING
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import Store, pd_member_name, v2_component
from mooring.core.queue import QueueRead
from mooring.core.world.leaders import look_at
from mooring.core.world.read import WorldRead

#: The source of operators and marks for evictions by others.
SOURCE: Final = "eviction"
#: On a workload that Mix places (`mooring.capabilities.mix.labels`).
MIX_PLACES: Final = "vacant.io/optimize-scheduling"
#: A look at PD that is older proves nothing.
FRESH_S: Final = 6.0
#: So long before Karpenter deletes a pod by force its eviction passes.
LAST_CALL_S: Final = 30.0
#: What the descheduler looks for in a refusal, to count the eviction as in progress.
IN_PROGRESS: Final = "Eviction triggered evacuation"


class Guard(StrEnum):
    NONE = "none"
    #: A member of TiKV, PD or another system with leaders: handoff takes its leaders off and proves it.
    LEADERS = "leaders"
    #: Its replacement is Ready before it goes; a member of a StatefulSet goes when all others are Ready.
    REPLACEMENT = "replacement"


class Answer(msgspec.Struct, frozen=True, gc=False):
    """`reason` is a label of a metric; `message` is for the person who drains or, where it passes all the same, a
    Warning on the pod."""

    allowed: bool
    reason: Reason
    message: str = ""
    #: The engine is to be told: a pod that is guarded was asked for.
    asked: bool = False


class Asked(msgspec.Struct, frozen=True, gc=False):
    """An eviction that was asked for."""

    key: Key
    node: str
    system: str
    by: str
    first: float
    last: float


class Evictions:
    """Who was asked for, since when, and when last: an index of the world, one entry per pod.

    The first time is kept here by the pod's uid, where no tenant can move it; so is what the mark said first. Every
    replica has seen that, so that a new leader goes by it, whatever was written into the mark meanwhile.
    """

    observes: frozenset[object] = frozenset({EvictionAsked, Kind.POD, Kind.EVICTION})

    def __init__(self, policy: DrainPolicy) -> None:
        self.policy = policy
        #: By uid, the one that was asked for longest ago first.
        self._asked: dict[str, Asked] = {}
        #: By uid, since when its mark says that it is held, at the earliest that was seen.
        self._marked: dict[str, float] = {}
        self._counts: Counter[str] = Counter()
        #: By namespace and uid, what is requested with Kubernetes' own Eviction API (`responder.py`).
        self._requested: dict[tuple[str, str], PodEviction] = {}

    def adopt(self, other: "Evictions") -> None:
        self.policy = other.policy

    def advance(self) -> bool:
        return False

    def observe(self, trigger: Trigger, world: WorldRead) -> None:
        match trigger:
            case EvictionAsked(key=key, uid=uid, by=by, at=at):
                self._forget_old(at)
                pod = world.pod(key)
                if pod is not None and pod.uid == uid:
                    before = self._drop(uid)
                    workload = workload_of(pod, world)
                    system = "" if workload is None else target_of(workload)
                    self._put(uid, Asked(key, pod.node, system, by, at if before is None else before.first, at))
            case Change(kind=Kind.EVICTION, old=old, new=new):
                self._request(old if isinstance(old, PodEviction) else None, new, world)
            case Change(old=Pod() as old, new=None):
                self._drop(old.uid)
                self._requested.pop((old.namespace, old.uid), None)
                self._marked.pop(old.uid, None)
            case Change(new=Pod() as new):
                mark = request_of(new) if LEAVING in new.annotations else None
                if mark is not None and mark.source == SOURCE:
                    self._marked[new.uid] = min(mark.since, self._marked.get(new.uid, mark.since))
                elif self._marked:
                    self._marked.pop(new.uid, None)  # undone: asked for anew it begins anew
            case _:
                pass

    def of(self, uid: str) -> Asked | None:
        return self._asked.get(uid)

    def requested(self, pod: Pod) -> PodEviction | None:
        """With Kubernetes' own Eviction API, in its own namespace."""
        return self._requested.get((pod.namespace, pod.uid))

    def keys(self) -> Iterator[Key]:
        yield from (asked.key for asked in self._asked.values())
        yield from (Key(one.namespace, one.pod) for one in self._requested.values())

    def is_full(self, pod: Pod, system: str) -> bool:
        """One more would be beyond what is held at once."""
        policy, counts = self.policy, self._counts
        return (
            len(self._asked) >= policy.most
            or counts[f"namespace/{pod.namespace}"] >= policy.most_per_namespace
            or counts[f"node/{pod.node}"] >= policy.most_per_node
            or counts[system] >= policy.most_per_workload
        )

    def marked_since(self, uid: str) -> float | None:
        return self._marked.get(uid)

    def kept(self) -> list[tuple[str, Asked | float]]:
        return [*self._asked.items(), *self._marked.items()]

    def restore(self, kept: list[tuple[str, Asked | float]]) -> None:
        for uid, one in kept:
            if isinstance(one, Asked):
                self._put(uid, one)
            else:
                self._marked[uid] = one

    def _request(self, old: PodEviction | None, new: object, world: WorldRead) -> None:
        if isinstance(new, PodEviction):
            if new.state:
                self._requested[new.namespace, new.pod_uid] = new
            return
        if old is None or self._requested.pop((old.namespace, old.pod_uid), None) is None:
            return
        pod = world.pod(Key(old.namespace, old.pod))
        if pod is not None and pod.uid == old.pod_uid:  # what was prepared for it is to be undone
            self._requested[old.namespace, old.pod_uid] = msgspec.structs.replace(old, state="Canceled")

    def _put(self, uid: str, asked: Asked) -> None:
        self._asked[uid] = asked
        self._counts.update(_counted(asked))

    def _drop(self, uid: str) -> Asked | None:
        asked = self._asked.pop(uid, None)
        for name in _counted(asked) if asked is not None else ():
            self._counts[name] -= 1
            if not self._counts[name]:
                del self._counts[name]
        return asked

    def _forget_old(self, now: float) -> None:
        """Long after the last try; not sooner, or one that asks seldom would be held anew each time."""
        long_ago = now - self.policy.max_hold_s - self.policy.forget_s
        for uid, asked in list(self._asked.items())[:2]:
            if asked.last < long_ago:
                self._drop(uid)


def _counted(asked: Asked) -> tuple[str, ...]:
    return f"namespace/{asked.key.namespace}", f"node/{asked.node}", asked.system


# ── Who is guarded ────────────────────────────────────────────────────────────────────────────────────────────────


def workload_of(pod: Pod, world: WorldRead) -> Workload | None:
    """Its workload; that of a pod which we detached, as its mark says, in its own namespace."""
    found = world.workload_of(pod)
    if found is not None or pod.owner is not None or not is_detached(pod):
        return found
    mark = request_of(pod)
    assert mark is not None
    found = world.workload_by_uid(mark.before.get("workloadUID", ""))
    return found if found is not None and found.namespace == pod.namespace else None


def guard_of(pod: Pod, world: WorldRead, policy: DrainPolicy) -> Guard:
    if v2_component(pod.owner) is not None:
        return Guard.LEADERS if is_handed_over(pod, world) and world.is_on("handoff") else Guard.NONE
    if pod.is_mirror or (pod.owner is not None and pod.owner.kind not in {Kind.REPLICA_SET, *POD_OWNERS}):
        return Guard.NONE
    if led_set(pod, world) is not None and world.is_on("handoff"):
        return Guard.LEADERS
    member = component_of(pod, world)
    if member is not None and world.is_on("handoff"):
        return Guard.LEADERS if member.name in HANDED_OVER else Guard.REPLACEMENT
    workload = workload_of(pod, world)
    if workload is None:
        return Guard.NONE
    said = workload.annotations.get(REPLACE_FIRST)
    if said == "true" or (said is None and policy.replace_first.covers(workload)):
        return Guard.REPLACEMENT
    by_policy = "true" if AFFINITY in pod.labels else ""
    placed = workload.labels.get(MIX_PLACES, by_policy) == "true" and world.is_on("mix")
    return Guard.REPLACEMENT if placed else Guard.NONE


def nothing_to_protect(pod: Pod, world: WorldRead) -> bool:
    """It serves nobody: not Ready, not running, on its way out. A store that leads does, Ready or not."""
    if pod.terminating or pod.phase != "Running":
        return True
    system, store = led_set(pod, world), store_of(pod, world)
    if not pod.ready and system is not None:
        return kept(pod, system, world) is None
    return not pod.ready and (store is None or store.state != "Up" or not store.leader_count)


def store_of(pod: Pod, world: WorldRead) -> Store | None:
    member = component_of(pod, world)
    if member is None or member.name != "tikv":
        return None
    view, tc = world.pd(member.cluster), world.tidb_cluster(member.cluster)
    return None if view is None or tc is None else view.store_of(tc, pod.name)


# ── May it go? ────────────────────────────────────────────────────────────────────────────────────────────────────


def others_ready(pod: Pod, workload: Workload, world: WorldRead, now: float) -> tuple[int, int]:
    """How many others are Ready, and how many there have to be: all that are wanted beside a pod that we detached, all
    but itself beside one that has to go first."""
    others = sum(p.uid != pod.uid and is_ready(p, workload, now) for p in active_pods(workload, world))
    return others, workload.replicas if pod.owner is None else workload.replicas - 1


def prepared(pod: Pod, record: OperatorRecord | None, world: WorldRead, now: float) -> bool:
    """Its operator says so, and what is known now still shows it."""
    if record is None or record.state != RUNNING or record.operator.payload.uid != pod.uid:
        return False
    if record.waiting_on is None or record.waiting_on.reason is not Reason.PREPARED:
        return False
    system = led_set(pod, world)
    if system is not None:
        look = look_at(system, world)
        return look.view is not None and not look.lost and now - look.at <= FRESH_S and kept(pod, system, world) is None
    member = component_of(pod, world)
    if member is None or member.name not in HANDED_OVER:
        workload = workload_of(pod, world)
        if workload is None:
            return True
        ready, wanted = others_ready(pod, workload, world, now)
        return ready >= wanted
    view, at = world.pd(member.cluster), world.pd_observed_at(member.cluster)
    if view is None or at is None or world.pd_lost(member.cluster) or now - at > FRESH_S:
        return False
    if member.name == "pd":
        return view.leader.partition(".")[0] != pd_member_name(pod) or may_be_lost(view, pod)
    store = store_of(pod, world)
    if v2_component(pod.owner) is not None:
        return store is not None and store.state == "Up"
    return store is not None and not store.leader_count and store.id in (view.evicting or ())


def overdue(pod: Pod, world: WorldRead, policy: DrainPolicy) -> Verdict:
    """Of a pod that was held for `max-hold-s`: `blocked`, and it is kept; else the next try of its eviction passes.

    What would be lost is said by PD and the pods, which are the tenant's and could say so for ever: it keeps a pod only
    where an administrator trusts its namespace (`drain.keep`)."""
    loss = _would_lose(pod, world)
    if loss is not None and policy.keeps(pod.namespace):
        return loss
    words = f"{pod.name} could not be prepared within {policy.max_hold_s:.0f} s"
    if loss is not None:
        words += f": {loss.detail}, and drain.keep does not name the namespace {pod.namespace}"
    return Verdict(State.WAITING, Reason.HELD_LONG, words)


def _would_lose(pod: Pod, world: WorldRead) -> Verdict | None:
    """What is lost if it goes now, by what PD and the pods say; None: nothing."""
    system = led_set(pod, world)
    if system is not None:
        return kept(pod, system, world)
    member = component_of(pod, world)
    if member is None or world.pd_lost(member.cluster):
        return None
    # The operator of v2 takes the leaders off a pod that is being deleted.
    store = None if v2_component(pod.owner) is not None else store_of(pod, world)
    if store is not None and store.state == "Up" and store.leader_count:
        return Verdict(State.BLOCKED, Reason.LEADERS_LEFT, f"{pod.name} has {store.leader_count} leaders")
    if member.name == "pd":
        members = world.tidb_pods(member.cluster, "pd")
        ready = sum(p.ready and not p.terminating and p.uid != pod.uid for p in members)
        if len(members) > 1 and ready <= len(members) // 2:
            return Verdict(State.BLOCKED, Reason.QUORUM, f"without {pod.name} PD has {ready} of {len(members)} members")
    return None


# ── The answer ────────────────────────────────────────────────────────────────────────────────────────────────────


def at_once(pod: Pod | None, uid: str, world: WorldRead, policy: DrainPolicy) -> Answer | None:
    """What every replica may answer, from what it sees; None: the one that leads has to. `uid`: a precondition."""
    if pod is None or (uid and uid != pod.uid):
        return Answer(True, Reason.UNKNOWN)  # the API server says so itself
    if guard_of(pod, world, policy) is Guard.NONE:
        return Answer(True, Reason.NOT_MANAGED)
    if nothing_to_protect(pod, world):
        return Answer(True, Reason.LEAVING)
    return None


def answer(
    pod: Pod, world: WorldRead, queue: QueueRead, policy: DrainPolicy, says: Verdict | None, now: float
) -> Answer:
    """What the leader answers for a guarded pod. `says`: the verdict about it, from the last evaluation."""
    asked, record = world.index(Evictions).of(pod.uid), queue.record_of(subject_of(pod))
    if prepared(pod, record, world, now):
        return Answer(True, Reason.PREPARED, asked=True)
    since = held_since(pod, asked, world, now)
    if is_last_call(pod, world, now) or (since is not None and now - since >= policy.max_hold_s):
        says = overdue(pod, world, policy)
        if says.state is State.BLOCKED:
            return Answer(False, says.reason, _sentence(f"{says.detail}; it is kept until a person acts"), asked=True)
        words = f"its eviction passes: {says.detail}"
        if is_last_call(pod, world, now):
            words = "its eviction passes, unprepared: Karpenter is about to delete it by force"
        return Answer(True, Reason.HELD_LONG, words, asked=True)
    workload = workload_of(pod, world)
    if guard_of(pod, world, policy) is Guard.REPLACEMENT and _goes_first(pod, workload) and closed_budget(pod, world):
        return Answer(True, Reason.PDB)  # no replacement comes before it goes, so none can open its budget
    if asked is None and world.index(Evictions).is_full(pod, "" if workload is None else target_of(workload)):
        return Answer(True, Reason.TOO_MANY_WAITING)
    return Answer(False, Reason.EVICTED, _sentence(_words(pod, record, queue, world, says)), asked=True)


def is_last_call(pod: Pod, world: WorldRead, now: float) -> bool:
    """Karpenter deletes by force, without an eviction, at the end of its node less the pod's grace period. A pod that
    cannot be prepared until then had better be evicted, with its budget asked."""
    ends = ends_at(world.node(pod.node))
    return ends is not None and now >= ends - pod.shape.grace_s - LAST_CALL_S


def _goes_first(pod: Pod, workload: Workload | None) -> bool:
    """Its replacement cannot run beside it."""
    return workload is not None and not is_detached(pod) and not can_detach(pod, workload)


def held_since(pod: Pod, asked: Asked | None, world: WorldRead, now: float) -> float | None:
    """Since when its eviction is held: as this leader saw it or, by the mark, a leader before it."""
    mark, first = request_of(pod), world.index(Evictions).marked_since(pod.uid)
    marked = first if mark is not None and mark.source == SOURCE and first is not None and first <= now else None
    found = [at for at in (marked, asked.first if asked is not None else None) if at is not None]
    return min(found, default=None)


def _sentence(words: str) -> str:
    line = "".join(c if c.isprintable() else " " for c in words)
    return f"mooring: {line[:400]} ({IN_PROGRESS})"


def _words(pod: Pod, record: OperatorRecord | None, queue: QueueRead, world: WorldRead, says: Verdict | None) -> str:
    """What is being done, and about how long; and that it ends by itself, unless a person must act."""
    doing, blocked = doing_of(pod, record, queue, world)
    stays = kept_leaders(pod, world, None) if not doing and v2_component(pod.owner) is not None else None
    if stays is not None:
        return f"{pod.name}: {stays.detail}"
    if not doing:
        doing = f"{pod.name}: {says.detail}" if says is not None and says.detail else f"{pod.name} waits"
    return doing if blocked else f"{doing}; this eviction will succeed by itself"


def doing_of(pod: Pod, record: OperatorRecord | None, queue: QueueRead, world: WorldRead) -> tuple[str, bool]:
    """What its operator does now, in words, and whether that waits for a person; "" for none."""
    evicting = _taken_off(pod, queue, world)
    record = evicting if evicting is not None and (record is None or not record.progress) else record
    if record is None:
        return "", False
    number = f" (op {record.operator.id})"
    if record.state != RUNNING:
        return f"{pod.name} waits for its turn{number}", False
    said = record.progress or (record.waiting_on.detail if record.waiting_on is not None else "")
    if record.waiting_on is not None and record.waiting_on.state is State.BLOCKED:
        return f"{pod.name}: {record.waiting_on.detail}{number}", True
    return f"{pod.name}: {said or record.operator.detail}{number}", False


def estimate_of(pod: Pod, queue: QueueRead, world: WorldRead) -> float | None:
    """Seconds until its leaders are off, at their pace so far."""
    record = _taken_off(pod, queue, world)
    return record.notes.get("estimate_s") if record is not None else None


def _taken_off(pod: Pod, queue: QueueRead, world: WorldRead) -> OperatorRecord | None:
    """The operator that takes the leaders off its store."""
    store, member = store_of(pod, world), component_of(pod, world)
    return None if store is None or member is None else queue.record_of(f"store/{member.cluster}/{store.id}")
