"""A move in words: one line of the timeline."""

import msgspec


class MoveRow(msgspec.Struct, kw_only=True):
    """One operator, from its promotion (or its place in the queue) to its end."""

    id: str
    at: float
    source: str = ""
    #: The object as `why` takes it.
    about: str = ""
    #: What moves: "pod", "leaders", "region", "node" or "".
    what: str = ""
    name: str = ""
    origin: str = ""
    origin_class: str = ""
    target: str = ""
    target_class: str = ""
    #: The pod that is there in its place.
    came: str = ""
    #: Of the pod, and of the Deployment that makes its replacement.
    uid: str = ""
    workload_uid: str = ""
    #: The stores a region leaves and comes to.
    stores: tuple[str, str] = ("", "")
    detail: str = ""
    verb: str = "queued"
    text: str = ""
    promoted_at: float | None = None
    away_since: float | None = None
    ended_at: float | None = None
    steps: list[tuple[float, str, str]] = msgspec.field(default_factory=list)
    #: Region moves told in one line with this one.
    count: int = 1

    @property
    def open(self) -> bool:
        return self.ended_at is None


def words(move: MoveRow) -> str:
    """As in: shop/pay-fdvs6 went spot s6 → on-demand n10, away 8 s: majority-in-on-demand wants 6, had 4."""
    # What it had when it was decided; by the end that is past.
    because = f": {move.detail if move.open else move.detail.replace(', has ', ', had ')}" if move.detail else ""
    if move.verb in {"canceled", "failed", "timeout"}:
        how = {"canceled": "was canceled", "failed": "failed", "timeout": "took too long"}[move.verb]
        return f"{_subject(move)} {how}{f', {move.text}' if move.text else because}"
    if move.promoted_at is None:
        return f"{_subject(move)} is waiting in the queue{because}"
    done = not move.open
    match move.what:
        case "pod":
            return f"{_pod_words(move, done=done)}{because}"
        case "leaders":
            took = f" in {_took(move)}" if done else ""
            return f"{move.name} {'handed over' if done else 'hands over'} its leaders{took}{because}"
        case "reserve":
            held = f", {_took(move)}" if done else ""
            return f"{move.origin} {'was' if done else 'is'} reserved for {move.name}{held}"
        case "node":
            took = f" in {_took(move)}" if done else ""
            return f"{move.origin} {'was emptied' if done else 'is being emptied'}{took} (machine {move.name}){because}"
        case "region":
            many = f"{move.count} regions" if move.count > 1 else f"region {move.name.rpartition('/')[2]}"
            left, came = move.stores
            way = f"store {left} → {came}" if left and came else f"to store {came}" if came else f"off store {left}"
            return f"{many} {'went' if done else 'goes'} {way}{because if move.count == 1 else ''}"
    return f"{_subject(move)}{because or (f': {move.text}' if move.text else '')}"


def _subject(move: MoveRow) -> str:
    match move.what:
        case "node" | "reserve":
            return move.origin
        case "region":
            return f"region {move.name.rpartition('/')[2]}"
    return move.name


def _pod_words(move: MoveRow, *, done: bool) -> str:
    away = f", away {_seconds(move.ended_at - move.away_since)}" if move.ended_at and move.away_since else ""
    if move.origin and move.target == move.origin:
        return f"{move.name} {'restarted' if done else 'restarts'} on {move.origin}{away}"
    left = f"{_class(move.origin_class)}{move.origin or '–'}"
    if not move.target:
        return f"{move.name} {'left' if done else 'leaves'} {left}"
    return f"{move.name} {'went' if done else 'goes'} {left} → {_class(move.target_class)}{move.target}{away}"


def _class(word: str) -> str:
    return f"{word} " if word not in {"", "unknown"} else ""


def _took(move: MoveRow) -> str:
    return _seconds((move.ended_at or 0.0) - (move.promoted_at or move.at))


def _seconds(seconds: float) -> str:
    whole = max(0, round(seconds))
    return (
        f"{whole} s"
        if whole < 120
        else f"{whole // 60} min {whole % 60} s"
        if whole < 3600
        else f"{whole / 3600:.1f} h"
    )
