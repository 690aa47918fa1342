"""Every promise that an event broke: whose, which, for how long, and what would fix it. Pure.

What would fix it is advice from the rule and the event, but for room: how many nodes more it would take was tried.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from mooring.core.model.times import clock
from mooring_lab.judge.findings import Finding
from mooring_lab.judge.lines import some
from mooring_lab.rehearse.events.catalog import PLANNED, Name

if TYPE_CHECKING:
    from mooring_lab.rehearse.observer import GonePod
    from mooring_lab.rehearse.outcome import Observed, RegionLosses

_SPOT_MODE: Final = "label it vacant.io/optimize-scheduling=true, mode majority-in-on-demand"
#: What Mix can spread.
_SPREAD: Final = ("Deployment ", "StatefulSet ")
_EVICT: Final = "the setting mix.interruption.everybody: evict, which moves pods of other owners too"


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    #: "StatefulSet tidb/demo-pd".
    object: str
    #: "quorum".
    promise: str
    #: The whole of it, in words.
    words: str
    #: In all; None: it is not a matter of time.
    seconds: float | None = None
    #: It still was so when the rehearsal ended.
    to_the_end: bool = False
    fix: str = ""


def all_broken(played: "Observed") -> list[Broken]:
    """Lines undershot first, those that last to the end before the others, the longest first."""
    lines = sorted(played.breaches, key=lambda one: (one.until is not None, -one.seconds))
    found = [_line(one, played) for one in lines]
    for losses in played.regions:
        found.extend(_regions(losses, played))
    cut_off = [one for one in played.gone if one.how == "lost" and one.noticed]
    if cut_off:
        found.append(_cut_off(cut_off))
    crowd = [one for one in played.unplaced if one.lacks == "room"]
    if crowd:
        nodes = [
            f"{some(more.nodes, 'node')} more like {more.like} ({more.node_class}, cpu {more.cpu}, {more.memory})"
            for more in played.more
        ]
        whose = ", ".join(sorted({one.workload or one.pod for one in crowd})[:3])
        words = f"{some(len(crowd), 'pod')} find no room"
        fix = " and ".join(nodes)
        found.append(Broken(object=whose, promise="room", words=words, to_the_end=True, fix=fix))
    for one in played.acts:
        found.append(Broken(object=one.subject, promise=one.promise.partition(" ")[0], words=one.words))
    for words in played.broken_limits:
        found.append(Broken(object="the queue", promise="limit", words=f"the queue: {words}"))
    return found


def _line(one: Finding, played: "Observed") -> Broken:
    return Broken(
        object=one.subject,
        promise=one.promise,
        words=one.words,
        seconds=one.seconds,
        to_the_end=one.until is None,
        fix=_fix(one, played),
    )


def _fix(one: Finding, played: "Observed") -> str:
    names = played.names
    if one.promise == "on-demand floor":
        return "room for its replicas on on-demand nodes, or a mode that asks for fewer there"
    if set(names) <= PLANNED:
        return f"a PodDisruptionBudget for it with minAvailable {one.least}, and one replica more than that"
    key = _domain(played)
    spread = f"a topologySpreadConstraint on {key} (maxSkew 1, DoNotSchedule)"
    if one.promise == "budget":
        return f"{spread} for its pods, or more replicas than the budget needs"
    if one.promise == "one replica" and one.before <= 1:
        return f"two replicas or more, with {spread}"
    return f"{_SPOT_MODE}, or {spread}" if Name.SPOT_GONE in names and one.subject.startswith(_SPREAD) else spread


def _domain(played: "Observed") -> str:
    """The label of a node that tells apart what was lost at once."""
    names = played.names
    if Name.ZONE_LOST in names or Name.ZONE_CUT_OFF in names:
        return "topology.kubernetes.io/zone"
    return played.rack_label if Name.RACK_LOST in names else "kubernetes.io/hostname"


def _regions(losses: "RegionLosses", played: "Observed") -> Iterator[Broken]:
    names = played.names
    where = f"TiKV {losses.cluster}"
    if losses.without_quorum:
        words = f"{losses.without_quorum} of {losses.regions} regions lose their voters' majority"
        lasting = bool(losses.left_without_quorum)
        yield Broken(
            object=where,
            promise="voters",
            words=f"{where}: {words}, {'to the end' if lasting else f'for {clock(losses.without_quorum_s)}'}",
            seconds=losses.without_quorum_s,
            to_the_end=lasting,
            fix=f"TiKV over three domains or more by {_domain(played)}, which PD's location-labels name",
        )
    for words in losses.cut_off:
        fix = "the feature handoff, which moves leaders away first"
        yield Broken(object=where, promise="leaders", words=f"{where}: {words} when it went", fix=fix)
    if losses.away_at_once > 1:
        words = f"{where}: {losses.away_at_once} members away at once, 1 may be"
        yield Broken(object=where, promise="one away", words=words, fix="a PodDisruptionBudget with maxUnavailable 1")
    if set(names) <= PLANNED and losses.without_leader and not losses.cut_off:
        span = clock(losses.without_leader_s)
        words = f"{where}: {losses.without_leader} regions without a leader for {span}"
        fix = "the feature handoff, which moves leaders away first"
        yield Broken(object=where, promise="leaders", words=words, seconds=losses.without_leader_s, fix=fix)


def _cut_off(gone: "Sequence[GonePod]") -> Broken:
    nodes = sorted({one.node for one in gone})
    where = nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes"
    whose = ", ".join(sorted({one.workload or one.pod for one in gone})[:3])
    words = f"{some(len(gone), 'pod')} cut off when {where} went, in spite of the notice: {whose}"
    fix = _SPOT_MODE if any(one.workload.startswith(_SPREAD) for one in gone) else _EVICT
    return Broken(object=whose, promise="notice", words=words, fix=fix)
