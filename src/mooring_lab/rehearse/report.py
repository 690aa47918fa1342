"""An outcome for people: the verdict first, then what was interrupted, what was done about it, and what is missing.
Pure.

Short by default, and it says what is left out: rows of the timeline that are alike and fall together are one row,
region moves are only counted, and `--all` shows every row.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from mooring.core.model.times import clock
from mooring_lab.judge.lines import columns, some
from mooring_lab.rehearse import plan
from mooring_lab.rehearse.outcome import Interrupted, Observed, OutcomeRow, RegionLosses, RehearsalOutcome

#: Rows of the timeline, pods and workloads that are shown unless everything is asked for.
SHOWN: Final = 40
SHOWN_WORKLOADS: Final = 15
_TOLD: Final = frozenset(
    {"", "queued", "waiting", "finished", "failed", "canceled", "timeout", "away", "fell", "back", "follows", "leads"}
)
_QUIET_SOURCES: Final = ("balance-", "replica", "merge", "split", "hot")
_LACKS: Final = {"room": "no room", "pinned": "no such node would help", "before": "had none before either"}
_HOW: Final = {"lost": "lost with their machine", "moved": "moved by Mooring", "ended": "ended by Kubernetes"}


def render(outcome: RehearsalOutcome, *, everything: bool = False, room: int | None = None) -> list[str]:
    """`room`: columns that there are; None: any number."""
    played = outcome.played
    return [
        outcome.answer,
        "",
        *_head(outcome),
        *_broken(outcome),
        *_not_played(played),
        *_interrupted(played, room, everything=everything),
        *_tikv(played),
        *_pods(played),
        *_room(played, everything=everything),
        *_stuck(played),
        *plan.render(outcome.plan, everything=everything),
        *_open(played),
        *_timeline(played, everything=everything),
        *_remarks(played),
        "",
        plan.last_line(outcome.plan, len(played.interrupted), len(outcome.broken)),
    ]


def _head(outcome: RehearsalOutcome) -> Iterator[str]:
    played = outcome.played
    for at, title in enumerate(played.events):
        yield f"{'rehearsed' if at == 0 else '':<10}  {title}"
    where = f"{played.source}, {played.nodes} nodes, {played.pods} pods, as of {played.taken_at}"
    yield f"on          {where} · seed {played.seed}"
    yield f"with        {' '.join(played.features) or 'every feature off'}"
    end = "until nothing moved any more" if played.ended == "quiet" else "then the time was over"
    yield f"played      {clock(played.played_s)} of virtual time, {end}"
    if outcome.over_s is None:
        yield "over        not by then: see AT THE END"
    else:
        yield f"over        after {clock(outcome.over_s)}" if outcome.over_s else "over        nothing to get over"


def _broken(outcome: RehearsalOutcome) -> Iterator[str]:
    if len(outcome.broken) > 1:
        yield from ("", f"BROKEN  {len(outcome.broken)}")
        yield from (f"  {words}" for words in outcome.broken)


def _not_played(played: Observed) -> Iterator[str]:
    if played.not_played:
        yield from ("", f"CANNOT TELL  {len(played.not_played)}")
        yield from (f"  {one.words}" for one in played.not_played)


def _interrupted(played: Observed, room: int | None, *, everything: bool) -> Iterator[str]:
    if not played.interrupted:
        yield from ("", f"INTERRUPTED  none of {played.workloads} workloads")
        return
    yield from ("", f"INTERRUPTED  {len(played.interrupted)} of {played.workloads} workloads; the others lost none")
    shown = played.interrupted if everything else played.interrupted[:SHOWN_WORKLOADS]
    rows: list[tuple[str, ...]] = [
        ("WORKLOAD", "WANTED", "BEFORE", "WORST", "SHORT FOR", "FROM", "UNTIL", "AT THE END")
    ]
    rows += [_row(one) for one in shown]
    yield from columns(rows, room)
    if len(shown) < len(played.interrupted):
        yield f"  {len(shown)} of {len(played.interrupted)}, --all"


def _row(one: Interrupted) -> tuple[str, ...]:
    until = "–" if one.until_s is None else clock(one.until_s)
    figures = (str(one.wanted), str(one.before), str(one.worst), clock(one.away_s), clock(one.from_s), until)
    return (one.workload, *figures, str(one.at_end))


def _tikv(played: Observed) -> Iterator[str]:
    if not played.regions:
        return
    yield from ("", "TIKV")
    for losses in played.regions:
        assumed = losses.cluster in played.assumed_pds
        words = "; ".join(_region_words(losses, assumed=assumed))
        unasked = "PD was not asked; assumed: " if assumed else ""
        yield f"  {losses.cluster}: {unasked}{losses.regions} regions; {words}"


def _region_words(losses: RegionLosses, *, assumed: bool) -> Iterator[str]:
    if losses.without_leader:
        yield f"{losses.without_leader} without a leader, {clock(losses.without_leader_s)} in all"
    else:
        yield "none seen without a leader" if assumed else "each with a leader throughout"
    if losses.left_without_quorum:
        yield f"{losses.left_without_quorum} without a majority of voters at the end"
    elif losses.without_quorum:
        yield f"{losses.without_quorum} without a majority of voters, for {clock(losses.without_quorum_s)}"
    else:
        yield "none seen without a majority" if assumed else "each with a majority of its voters"
    if losses.scale > 1:
        yield f"one region played stands for {losses.scale:.1f}"


def _pods(played: Observed) -> Iterator[str]:
    counts = [(how, sum(one.how == how for one in played.gone)) for how in _HOW]
    words = [f"{count} {_HOW[how]}" for how, count in counts if count]
    words += [f"{some(len(played.come), 'new one')} Ready"] if words or played.come else ["none goes, none comes"]
    yield from ("", f"PODS  {' · '.join(words)}")
    ends = [f"{source}: {_ends(of)}" for source, of in played.operators.items()]
    yield f"      operators  {' · '.join(ends) or 'none'}"


def _ends(of: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {how}" for how, count in of.items())


def _room(played: Observed, *, everything: bool) -> Iterator[str]:
    if not played.unplaced:
        return
    yield from ("", f"WITHOUT A PLACE  {len(played.unplaced)}")
    groups: dict[tuple[str, str, str], list[str]] = {}
    for one in played.unplaced:
        groups.setdefault((one.workload or "no workload", one.lacks, one.why), []).append(one.pod)
    for (workload, lacks, why), pods in list(groups.items())[: None if everything else SHOWN_WORKLOADS]:
        yield f"  {len(pods)} of {workload}, {_LACKS[lacks]}: {why}"
    for more in played.more:
        size = f"{more.node_class}, cpu {more.cpu}, memory {more.memory}"
        nodes = f"{more.nodes} node{'s' if more.nodes != 1 else ''} more like {more.like} ({size})"
        yield f"  it would take {nodes} for {more.places} of them: tried"


def _stuck(played: Observed) -> Iterator[str]:
    if not played.stuck:
        return
    yield from ("", f"WAIT FOR THEIR MACHINE  {len(played.stuck)}")
    groups: dict[str, list[str]] = {}
    for one in played.stuck:
        groups.setdefault(one.workload or "no workload", []).append(f"{one.pod.partition('/')[2]} on {one.node}")
    for workload, pods in groups.items():
        yield f"  {workload}: {_some(pods)}"
    nodes = sorted({one.node for one in played.stuck})
    yield "  Kubernetes starts them nowhere else while their machines may still run. Once they are known to be off:"
    yield f"  kubectl delete node {' '.join(nodes[:SHOWN_WORKLOADS])}{' …' if len(nodes) > SHOWN_WORKLOADS else ''}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _open(played: Observed) -> Iterator[str]:
    if played.open:
        yield from ("", f"STILL IN THE QUEUE  {len(played.open)}")
        yield from (f"  {words}" for words in played.open)


def _remarks(played: Observed) -> Iterator[str]:
    if played.remarks:
        yield ""
        yield from (f"note: {words}" for words in played.remarks)


# ── The timeline ──────────────────────────────────────────────────────────────────────────────────────────────────


def _timeline(played: Observed, *, everything: bool) -> Iterator[str]:
    if everything:
        rows = [_told(row) for row in played.timeline]
    else:
        rows = digest(played.timeline)
    shown = rows if everything else rows[:SHOWN]
    yield from ("", "TIMELINE  since the event")
    for at, who, words in shown:
        yield f"  {clock(at):>7}  {who:<10}  {words}"
    hidden = len(played.timeline) - len(shown)
    if not everything and hidden > 0:
        yield f"  {some(len(shown), 'row')} of {len(played.timeline)}, --all"


Told = tuple[float, str, str]


def digest(rows: Sequence[OutcomeRow]) -> list[Told]:
    """What matters, in order: rows that say the same in the same second are one."""
    kept = [row for row in rows if row.verb in _TOLD and not row.who.startswith(_QUIET_SOURCES)]
    made: list[Told] = []
    for _, second in groupby(kept, key=lambda row: int(row.at_s)):
        alike: dict[tuple[str, str, str], list[OutcomeRow]] = {}
        for row in second:
            key = (row.who, row.verb, row.reason) if row.about else (row.who, row.verb, row.text)
            alike.setdefault(key, []).append(row)
        made.extend(_together(group) for group in alike.values())
    return made


def _together(group: list[OutcomeRow]) -> Told:
    first = group[0]
    if len(group) == 1:
        return _told(first)
    names = [row.about for row in group if row.about]
    reason = f", {first.reason}" if first.reason else ""
    return first.at_s, first.who, f"{len(group)} × {first.verb or 'seen'}{reason}: {_some(names)}; first: {first.text}"


def _told(row: OutcomeRow) -> Told:
    op = f"op {row.op} " if row.op and row.who not in {"event", "kubernetes", "mooring", "pd", "promise"} else ""
    verb = f"{row.verb}" if row.verb and row.who != "promise" else ""
    reason = f" ({row.reason})" if row.reason and row.reason not in {"done", row.verb} else ""
    head = " ".join(part for part in (f"{op}{verb}".strip(), row.about) if part)
    return row.at_s, row.who, f"{head}{reason}{': ' if head and row.text else ''}{row.text}"
