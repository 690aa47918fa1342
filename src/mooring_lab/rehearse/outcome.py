"""What a rehearsal found: one value, complete and in a fixed order, and the verdict drawn from it. Pure.

The verdict answers one question: would every promise be kept? It is `broken` when something that must not happen did:
a line undershot (`promises`), voters lost, leaders cut off by Mooring itself, pods cut off though there was notice, a
limit of the queue broken, or pods that find no room. A machine that is lost takes its leaders along and pinned pods
wait for it: both are reported, neither is a promise that Mooring or Kubernetes could have kept. An owner whose
controller is not played and that lost a pod makes it `cannot-tell`: what becomes of such pods is not known here.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from mooring.core.model.times import clock
from mooring_lab.judge.findings import Finding
from mooring_lab.judge.lines import some
from mooring_lab.rehearse.observer import Come, GonePod, StuckPod
from mooring_lab.rehearse.plan import Move, moves
from mooring_lab.rehearse.room import More, Unplaced
from mooring_lab.rehearse.sweep.broken import Broken, all_broken

KEPT: Final = "kept"
BROKEN: Final = "broken"
CANNOT_TELL: Final = "cannot-tell"


class Interrupted(msgspec.Struct, frozen=True, kw_only=True):
    """A workload that had fewer replicas than before, for a while."""

    workload: str
    wanted: int
    before: int
    worst: int
    #: Seconds with fewer than before, in all.
    away_s: float
    from_s: float
    #: None: not back by the end.
    until_s: float | None
    at_end: int


class RegionLosses(msgspec.Struct, frozen=True, kw_only=True):
    """What a TiKV cluster went through. Figures are regions; times are seconds."""

    cluster: str
    regions: int
    without_leader: int = 0
    without_leader_s: float = 0.0
    #: When the last of them had one again; None: not by the end.
    leaders_until_s: float | None = 0.0
    without_quorum: int = 0
    without_quorum_s: float = 0.0
    #: At the end.
    left_without_quorum: int = 0
    #: The most members away at once while their machines ran.
    away_at_once: int = 0
    #: "demo-tikv-1 with 100 leaders": ended while its machine ran.
    cut_off: tuple[str, ...] = ()
    #: How many regions one played region stands for.
    scale: float = 1.0


class OutcomeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the timeline. `who`: event, kubernetes, pd, promise, or a source of the queue."""

    at_s: float
    who: str
    verb: str = ""
    op: str = ""
    about: str = ""
    reason: str = ""
    text: str = ""


class NotPlayed(msgspec.Struct, frozen=True, kw_only=True):
    """An owner whose controller the sandbox does not have, and that lost pods."""

    owner: str
    lost: int
    before: int

    @property
    def words(self) -> str:
        return f"{self.owner} loses {self.lost} of {some(self.before, 'pod')}, and its controller is not played"


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was seen, before it is judged."""

    source: str
    taken_at: str
    nodes: int
    pods: int
    seed: int
    features: tuple[str, ...]
    events: tuple[str, ...]
    names: tuple[str, ...]
    #: Of `rack-lost`: the node label that names racks.
    rack_label: str = ""
    #: "quiet": nothing moved any more · "limit": --for was over.
    ended: str
    played_s: float
    interrupted: tuple[Interrupted, ...] = ()
    #: How many workloads were looked at.
    workloads: int = 0
    breaches: tuple[Finding, ...] = ()
    #: What Mooring did that a promise forbids, at the moment it was done.
    acts: tuple[Finding, ...] = ()
    not_played: tuple[NotPlayed, ...] = ()
    #: Pods without an owner that were lost: they are not recreated.
    lost_for_good: tuple[str, ...] = ()
    #: TidbClusters whose PD was not asked.
    assumed_pds: tuple[str, ...] = ()
    #: Drivers of systems with leaders, none of which was asked.
    assumed_systems: tuple[str, ...] = ()
    #: Jobs and autoscalers of the snapshot, which go on by themselves there and not here.
    standing_still: tuple[str, ...] = ()
    regions: tuple[RegionLosses, ...] = ()
    gone: tuple[GonePod, ...] = ()
    come: tuple[Come, ...] = ()
    unplaced: tuple[Unplaced, ...] = ()
    more: tuple[More, ...] = ()
    stuck: tuple[StuckPod, ...] = ()
    undrained: tuple[StuckPod, ...] = ()
    #: Rules of the queue that were broken, in words.
    broken_limits: tuple[str, ...] = ()
    #: Operators that ended, by source: finished, failed, canceled, timeout.
    operators: dict[str, dict[str, int]] = {}
    #: What still waits or runs at the end, in the queue's own words.
    open: tuple[str, ...] = ()
    timeline: tuple[OutcomeRow, ...] = ()
    remarks: tuple[str, ...] = ()


class SlowStarts(msgspec.Struct, frozen=True, kw_only=True):
    """The same event where every pod takes as long to start as the slowest of its workload in the snapshot."""

    verdict: str
    answer: str
    over_s: float | None


class RehearsalOutcome(msgspec.Struct, frozen=True, kw_only=True):
    format: str = "mooring-rehearsal-outcome"
    version: int = 1
    verdict: str
    #: The same in one line.
    answer: str
    broken: tuple[str, ...]
    #: The same, each with whose promise it is, for how long, and what would fix it.
    breaches: tuple[Broken, ...]
    #: Seconds from the event until nothing was interrupted any more; None: something still is.
    over_s: float | None
    #: Each pod that goes: where to, or what blocks it, and for how long it is away.
    plan: tuple[Move, ...]
    played: Observed
    #: None: all starts take alike, or it was not played.
    slowest: SlowStarts | None = None


def with_slowest(usual: RehearsalOutcome, slow: RehearsalOutcome) -> RehearsalOutcome:
    """The verdict with the usual start times, and what the slowest would change about it."""
    found = SlowStarts(verdict=slow.verdict, answer=slow.answer, over_s=slow.over_s)
    return msgspec.structs.replace(usual, answer=f"{usual.answer}{_range(usual, slow)}", slowest=found)


def _range(usual: RehearsalOutcome, slow: RehearsalOutcome) -> str:
    starts = "with the slowest start times of the snapshot"
    if slow.verdict != usual.verdict:
        return f"; {starts}: {slow.answer}"
    if slow.over_s == usual.over_s:
        return ""
    after = "not over by the end" if slow.over_s is None else f"over after {clock(slow.over_s)}"
    return f"; {starts} {after}"


def judge(played: Observed) -> RehearsalOutcome:
    breaches = tuple(all_broken(played))
    broken = tuple(one.words for one in breaches)
    over = _over(played)
    verdict = BROKEN if broken else CANNOT_TELL if played.not_played else KEPT
    answer = _answer(played, broken, over)
    return RehearsalOutcome(
        verdict=verdict,
        answer=answer,
        broken=broken,
        breaches=breaches,
        over_s=over,
        plan=tuple(moves(played)),
        played=played,
    )


def _answer(played: Observed, broken: tuple[str, ...], over: float | None) -> str:
    unasked = (*(["PD"] if played.assumed_pds else []), *played.assumed_systems)
    assumed = f" ({', '.join(unasked)} assumed)" if unasked else ""
    unknown = played.not_played
    bare = _lost_for_good(played.lost_for_good)
    still = (f"; {bare}" if bare else "") + not_played_words(played.standing_still)
    if broken:
        besides = f"; CANNOT TELL for {unknown[0].owner}{and_more(unknown)}" if unknown else ""
        return f"BROKEN{assumed}: {broken[0]}{and_more(broken)}{besides}{still}"
    if unknown:
        return f"CANNOT TELL{assumed}: {unknown[0].words}{and_more(unknown)}{still}"
    kept = _kept(played, over)
    if bare and kept.startswith(": "):  # nothing else is left to be said first
        return f"HOLDS{assumed}, but {bare}{not_played_words(played.standing_still)}"
    return f"HOLDS{assumed}{kept}{still}"


def _lost_for_good(pods: Sequence[str]) -> str:
    verb = "is" if len(pods) == 1 else "are"
    return f"{some(len(pods), 'pod')} without an owner {verb} lost for good: {pods[0]}{and_more(pods)}" if pods else ""


def not_played_words(names: Sequence[str]) -> str:
    """The end of line 1 when a snapshot has Jobs or autoscalers."""
    return f"; not played: {names[0]}{and_more(names)}" if names else ""


def and_more(of: Sequence[object]) -> str:
    return f" (and {len(of) - 1} more)" if len(of) > 1 else ""


def _kept(played: Observed, over: float | None) -> str:
    left = played.undrained
    if left:
        nodes = ", ".join(dict.fromkeys(one.node for one in left))
        verb = "stays" if len(left) == 1 else "stay"
        by = next((f", kept by {one.budgets[0]}" for one in left if one.budgets), "")
        return f", but not drained: {some(len(left), 'pod')} {verb} on {nodes}{by}"
    if not played.interrupted and not any(losses.without_leader for losses in played.regions):
        return ": no pod is interrupted"
    away = [one for one in played.interrupted if one.until_s is None]
    who = some(len(played.interrupted), "workload")
    if away:
        first = away[0]
        more = f" and {len(away) - 1} more" if len(away) > 1 else ""
        return f", but not over: still short at the end: {first.workload} ({first.at_end} of {first.wanted}){more}"
    end = f"over after {clock(over)}" if over is not None else "over"
    if not played.interrupted:
        return f": only leaders are elected again; {end}"
    return f": {who} short for a while, none below its line; {end}"


def _over(played: Observed) -> float | None:
    ends = [one.until_s for one in played.interrupted]
    ends += [breach.until for breach in played.breaches]
    ends += [losses.leaders_until_s for losses in played.regions]
    if any(end is None for end in ends) or any(losses.left_without_quorum for losses in played.regions):
        return None
    return max((end for end in ends if end is not None), default=0.0)
