"""What a day comes to: every promise that was checked, the acts that were not played, the figures."""

from typing import Any, Final

from mooring.demo.day import Day
from mooring.demo.losses import Losses
from mooring.demo.page import server_flag
from mooring.process.http.served import PORT

COLUMNS: Final = ("PROMISE", "", "ACT", "SEEN")


def not_played(day: Day) -> list[str]:
    return [act.title for act in day.acts[sum(act.ended for act in day.played) :]]


def day_json(day: Day, without: Losses | None) -> dict[str, Any]:
    acts = [
        {"at": a.at, "title": a.title, "kept": a.kept, "failed": a.failed, "why": a.why, "checks": a.checks}
        for a in day.played
    ]
    tally = day.tally
    figures = {"moves": tally.moves, "peak": tally.peak, "longest_wait_s": tally.longest_wait_s}
    lost = {"losses": day.losses.look(), "losses_without": without}
    return {"kept": day.kept, "acts": acts, "not_played": not_played(day), **figures, **lost}


def check_rows(day: Day, *, titles: bool = True) -> list[tuple[str, ...]]:
    """Without titles an act is its number: the narration has named it."""
    names = [act.title if titles else str(number) for number, act in enumerate(day.acts, 1)]
    played = list(zip(names, day.played, strict=False))
    rows: list[tuple[str, ...]] = [
        (c.promise, "kept" if c.kept else "BROKEN", name, c.seen) for name, a in played for c in a.checks
    ]
    for name, act in played:
        if act.failed:
            rows.append(("–", "BROKEN", name, act.failed))
        if not act.kept and act.why:
            rows.append(("", "why", name, act.why))
    missing = not_played(day)
    return rows + [("–", "not played", name, "stopped before") for name in names[len(names) - len(missing) :]]


def totals(day: Day, without: Losses | None) -> list[str]:
    checks = [check for act in day.played for check in act.checks]
    kept = sum(check.kept for check in checks)
    lines = [f"PROMISES   {len(checks)} shown, {kept} kept · {day.tally.line()}"]
    if without is not None:
        lines += [f"LOST       with Mooring: {day.losses.look()}", f"           the same day without: {without}"]
    return lines


# ── First and last words ──────────────────────────────────────────────────────────────────────────────────────────


def opening(where: str, page: str, written: str, *, keep: bool) -> list[str]:
    """Three lines: what this is, where, how to stop and what is kept."""
    kept = "--keep: it goes on after the day" if keep else "--keep keeps it running"
    return [f"Mooring demo: {where}", page, f"Ctrl-C stops. {written}; leftovers: none ({kept}).\n"]


def page_line(port: int, *, asked: bool, when: str = "") -> str:
    taken = f" ({PORT} is taken)" if port != PORT and not asked else ""
    at = server_flag(port)
    return f"page http://127.0.0.1:{port}{taken}{when}   ask it: mooring why pod/demo-tikv-1 -n tidb{at}"


def closing(day: Day, took: float, *, stopped: bool, on_lab: bool = False) -> str:
    early = stopped and len([a for a in day.played if a.ended]) < len(day.acts)
    first = f"stopped after {took:.0f} s" if early else f"{took:.0f} s"
    if on_lab:
        return f"{first}. Leftovers: none.  Play: mooring demo --on lab --keep   On your cluster: mooring doctor --pre"
    return f"{first}. Leftovers: none.  Play: mooring demo --keep   On a real control plane: mooring demo --on lab"
