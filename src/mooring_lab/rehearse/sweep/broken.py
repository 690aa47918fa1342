"""Every promise that an event broke: whose, which, for how long, and what would fix it. Pure.

What would fix it is said for room alone: how many nodes more it would take was tried. For the rest a sweep tries
changes (`advice.py`).
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from mooring.core.model.times import clock
from mooring_lab.judge.findings import Finding
from mooring_lab.judge.lines import some
from mooring_lab.rehearse.events.catalog import PLANNED

if TYPE_CHECKING:
    from mooring_lab.rehearse.observer import GonePod
    from mooring_lab.rehearse.outcome import Observed, RegionLosses


#: Before the name of a cluster.
TIKV: Final = "TiKV "


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
    found = [_line(one) for one in lines]
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


def _line(one: Finding) -> Broken:
    return Broken(
        object=one.subject,
        promise=one.promise,
        words=one.words,
        seconds=one.seconds,
        to_the_end=one.until is None,
    )


def _regions(losses: "RegionLosses", played: "Observed") -> Iterator[Broken]:
    names = played.names
    where = f"{TIKV}{losses.cluster}"
    if losses.without_quorum:
        words = f"{losses.without_quorum} of {losses.regions} regions lose their voters' majority"
        lasting = bool(losses.left_without_quorum)
        yield Broken(
            object=where,
            promise="voters",
            words=f"{where}: {words}, {'to the end' if lasting else f'for {clock(losses.without_quorum_s)}'}",
            seconds=losses.without_quorum_s,
            to_the_end=lasting,
        )
    for words in losses.cut_off:
        yield Broken(object=where, promise="leaders", words=f"{where}: {words} when it went")
    if losses.away_at_once > 1:
        words = f"{where}: {losses.away_at_once} members away at once, 1 may be"
        yield Broken(object=where, promise="one away", words=words)
    if set(names) <= PLANNED and losses.without_leader and not losses.cut_off:
        span = clock(losses.without_leader_s)
        words = f"{where}: {losses.without_leader} regions without a leader for {span}"
        yield Broken(object=where, promise="leaders", words=words, seconds=losses.without_leader_s)


def _cut_off(gone: "Sequence[GonePod]") -> Broken:
    nodes = sorted({one.node for one in gone})
    where = nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes"
    whose = ", ".join(sorted({one.workload or one.pod for one in gone})[:3])
    words = f"{some(len(gone), 'pod')} cut off when {where} went, in spite of the notice: {whose}"
    return Broken(object=whose, promise="notice", words=words)
