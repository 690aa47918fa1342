"""The plan, object by object: each pod that goes, where it moves to or what blocks it, and how long it is away. Pure.

A pod of a StatefulSet comes back by its name. Others have new names: of a workload, the first that goes is replaced by
the first that becomes Ready.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from mooring.core.model.times import clock
from mooring_lab.judge.lines import some

if TYPE_CHECKING:
    from mooring_lab.rehearse.observer import Come
    from mooring_lab.rehearse.outcome import Observed

MOVES: Final = "moves"
WAITS: Final = "waits-for-machine"
NO_ROOM: Final = "no-room"
PINNED: Final = "pinned"
LOST: Final = "lost-for-good"
NOT_REPLACED: Final = "not-replaced"
STAYS: Final = "stays"
_WORDS: Final = {
    MOVES: "move",
    WAITS: "wait for their machine",
    NO_ROOM: "find no room",
    PINNED: "have no node that would do",
    LOST: "are lost for good",
    NOT_REPLACED: "are not replaced",
}
SHOWN: Final = 15


class Move(msgspec.Struct, frozen=True, kw_only=True):
    pod: str
    workload: str
    from_node: str
    #: "moves", "waits-for-machine", "no-room", "pinned", "lost-for-good", "not-replaced"; "stays": not drained.
    reason: str
    #: Where its replacement stands, when it moves.
    to_node: str = ""
    #: What blocks it: a machine, or kube-scheduler's words.
    blocked_by: str = ""
    #: Seconds without it; None: to the end.
    away_s: float | None = None


def moves(played: "Observed") -> list[Move]:
    """In the order in which they go; a pod that goes twice is there twice."""
    come: dict[str, list[Come]] = defaultdict(list)
    names = {one.pod for one in played.gone}
    for one in played.come:
        come[one.pod if one.pod in names else one.workload].append(one)
    stuck = {one.pod: one.node for one in played.stuck}
    waiting: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for lacking in played.unplaced:
        if lacking.lacks != "before":
            waiting[lacking.workload].append((lacking.lacks, lacking.why))
    found = []
    for gone in played.gone:
        back = come[gone.pod] or come[gone.workload] if gone.workload else []
        move = partial(Move, pod=gone.pod, workload=gone.workload, from_node=gone.node)
        if gone.pod in stuck:
            found.append(move(reason=WAITS, blocked_by=f"node/{stuck[gone.pod]}"))
        elif back:
            one = back.pop(0)
            away = round(max(0.0, one.at_s - gone.at_s), 1)
            found.append(move(reason=MOVES, to_node=one.node, away_s=away))
        elif waiting[gone.workload]:
            lacks, why = waiting[gone.workload].pop(0)
            found.append(move(reason=NO_ROOM if lacks == "room" else PINNED, blocked_by=why))
        else:
            found.append(move(reason=NOT_REPLACED if gone.workload else LOST))
    for kept in played.undrained:
        by = ", ".join(kept.budgets)
        found.append(Move(pod=kept.pod, workload=kept.workload, from_node=kept.node, reason=STAYS, blocked_by=by))
    return found


def render(plan: Sequence[Move], *, everything: bool = False) -> Iterator[str]:
    """Alike is one row: of one workload, with one fate, blocked by the same."""
    if not plan:
        return
    yield from ("", f"PLAN  {some(len(plan), 'pod')}")
    groups: dict[tuple[str, str, str], list[Move]] = defaultdict(list)
    for one in plan:
        alone = one.pod if everything else ""
        groups[one.workload or one.pod, one.reason, one.blocked_by + alone].append(one)
    rows = [_row(name, reason, group) for (name, reason, _), group in groups.items()]
    shown = rows if everything else rows[:SHOWN]
    yield from shown
    if len(shown) < len(rows):
        yield f"  {len(shown)} of {len(rows)}, --all"


def _row(name: str, reason: str, group: Sequence[Move]) -> str:
    first = group[0]
    pods = first.pod.partition("/")[2] if len(group) == 1 else f"{len(group)} pods"
    left = _nodes(one.from_node for one in group)
    by = f", blocked by {first.blocked_by}" if first.blocked_by else ""
    if reason == MOVES:
        away = [one.away_s or 0.0 for one in group]
        span = " to ".join(dict.fromkeys((clock(min(away)), clock(max(away)))))
        return f"  {name}: {pods} from {left} to {_nodes(one.to_node for one in group)}, away {span}"
    return f"  {name}: {pods} {'on' if reason == STAYS else 'from'} {left}: {reason}{by}"


def _nodes(names: Iterator[str]) -> str:
    counted = list(Counter(names))
    return " ".join(counted[:4]) + (f" and {len(counted) - 4} more" if len(counted) > 4 else "")


def last_line(plan: Sequence[Move], interrupted: int, broken: int) -> str:
    """Counts, the same as in the JSON: they equal what then happens."""
    counts = Counter(one.reason for one in plan)
    fates = [f"{counts[reason]} {_WORDS[reason]}" for reason in _WORDS if counts[reason]]
    go = sum(counts[reason] for reason in _WORDS)
    pods = f"{some(go, 'pod')} {'goes' if go == 1 else 'go'}" + (f": {', '.join(fates)}" if fates else "")
    pods += f" · {some(counts[STAYS], 'pod')} not drained" if counts[STAYS] else ""
    return f"{pods} · {some(interrupted, 'workload')} short · {some(broken, 'promise')} broken"
