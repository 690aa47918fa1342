"""The page's rows as one screen of a terminal (`mooring top`)."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.text import Text

from mooring.core.model.exits import UserError
from mooring.process.terminal.keys import View, keyboard, keys_within, matches
from mooring.process.terminal.queue import COLUMNS, cells, within

CELLS: Final = 20
#: Below this the bars have half as many cells.
NARROW: Final = 80
BARS: Final = "▁▂▃▄▅▆▇█"
STALE_S: Final = 5.0
#: Rows of a screen that is no screen.
ENDLESS: Final = 10_000
MOODS: Final = {"needs-you": "bold red", "unknown": "bold red", "safe": "bold blue", "waiting": "bold"}
#: Into a pipe or a file there is no edge to keep to.
WIDE: Final = 200
#: These give way when a terminal is narrow; the others stay whole.
ELASTIC: Final = frozenset({"WHAT", "STEP", "WAITING FOR", "USED BY", "PODS", "NEWS", "WHAT HAPPENED", ""})


@dataclass(frozen=True)
class Size:
    """How much of a section shows, and which row of it is chosen."""

    rows: int
    width: int
    chosen: str = ""


def narrowed(frame: Mapping[str, Any], namespace: str) -> Mapping[str, Any]:
    """Only operators and stores of this namespace; nodes and racks are in none."""
    if not namespace:
        return frame
    tables = dict(frame["tables"])
    for name in ("queue", "stores"):
        rows = tables[name]["rows"]
        order = [i for i in tables[name]["order"] if within([{"about": i, **rows[i]}], namespace)]
        tables[name] = {**tables[name], "order": order, "total": len(order)}
    return {**frame, "tables": tables}


def subjects(frame: Mapping[str, Any], words: str = "") -> list[str]:
    """What Enter may ask about, in the order of the screen."""
    tables = frame["tables"]
    found = [row.get("subject", "") for row in _rows(tables["queue"], words)]
    found += [f"store/{row['id']}" for row in _rows(tables["stores"], words)]
    found += [f"node/{row['id']}" for row in _rows(tables["nodes"], words)]
    return found + [f"rack/{row['id']}" for row in _rows(tables["racks"], words) if row.get("glyphs")]


def screen(
    frame: Mapping[str, Any],
    *,
    height: int,
    width: int = WIDE,
    age_s: float = 0.0,
    trouble: str = "",
    view: View | None = None,
) -> Group:
    """The whole picture. The timeline takes what room is left below the rest."""
    head = frame["head"]
    if silent := float(head.get("silent_s") or 0.0):
        # The frame is new and what it shows is not.
        age_s, trouble = age_s + silent, trouble or "Mooring gets no answer from the API server"
    first = Text(_first_line(frame, age_s, trouble), style="bold" if age_s < STALE_S else "red")
    if view is not None and view.over:
        room = max(1, height - 3)
        covered = [Text(line) for line in view.over[view.scrolled : view.scrolled + room]]
        return Group(first, Text(""), *covered, Text(view.line(), style="dim"))
    words = view.words if view is not None else ""
    chosen = subjects(frame, words)[view.chosen : view.chosen + 1] if view is not None else []
    verdict = head.get("verdict", {})
    sure = age_s < STALE_S and not trouble
    parts: list[RenderableType] = [first]
    if verdict and sure:
        parts.insert(0, Text(verdict["words"], style=MOODS.get(verdict["state"], "")))
    needs = f"▲ NEEDS YOU {head['needs']}: {head['needs_words']}" if head["needs"] else "NEEDS YOU 0"
    strip = f"{needs}   WAITING {head['waiting']}  RUNNING {head['running']}  moved today {head['moved']}"
    parts.append(Text(strip, style="bold red" if head["needs"] else ""))
    notes = " · ".join(head["not_ready"])
    if notes:
        parts.append(Text(notes, style="yellow"))
    parts += _sections(frame, words, Size(max(4, (height - 14) // 3), width, chosen[0] if chosen else ""), height)
    if view is not None:
        parts.append(Text(view.line(), style="dim", no_wrap=True, overflow="ellipsis"))
    return Group(*parts)


def _sections(frame: Mapping[str, Any], words: str, size: Size, height: int) -> Iterable[RenderableType]:
    tables, now = frame["tables"], frame["as_of"]
    yield from _section(
        "Queue", _rows(tables["queue"], words), size, COLUMNS, lambda r: cells(r, now), "no pending changes"
    )
    stores = tables["stores"]
    yield from _section(
        f"Stores ({stores['total']}, fullest first)   █▓ operators  ▒ fact  ░ free",
        _rows(stores, words),
        size,
        ("STORE", "NODE", "RACK", "", "USED", "LEADERS", "USED BY"),
        lambda r: _store(r, CELLS if size.width >= NARROW else CELLS // 2),
        "no stores are known",
    )
    sums = tables["nodes"]["sums"]
    nodes = " │ ".join(f"{c} {sums.get(c, 0):,}" for c in ("on-demand", "spot", "leaving"))
    yield from _section(
        f"Nodes   {nodes} │ unplaced {sums.get('unplaced', 0):,} pods",
        _rows(tables["nodes"], words),
        size,
        ("NODE", "CLASS", "RACK", "PODS", "NEWS"),
        _node,
        f"{sums.get('quiet', 0):,} with no news",
    )
    loud = [r for r in _rows(tables["racks"], words) if r.get("glyphs")]
    yield from _section(
        f"Racks ({tables['racks']['total']})",
        loud,
        size,
        ("RACK", "NODES", "READY", "INTERRUPTED", "LEAVING", "CORDONED", "NOT READY", ""),
        _rack,
        f"{tables['racks']['sums'].get('quiet', 0):,} with no news",
    )
    bars = "  ".join(f"{s} {sparkline(c)}" for s, c in tables["timeline"]["sums"].get("bars", {}).items())
    yield from _section(
        f"Timeline, newest on top   {'last hour │ ' + bars if bars else ''}",
        _rows(tables["timeline"], words),
        Size(size.rows if height < ENDLESS else 12, size.width),
        ("TIME", "OP", "SOURCE", "WHAT HAPPENED"),
        _entry,
        "nothing has happened yet",
    )


def _first_line(frame: Mapping[str, Any], age_s: float, trouble: str) -> str:
    head, at = frame["head"], time.gmtime(frame["as_of"])
    age = f"{'LIVE' if age_s < STALE_S else 'STALE'} {time.strftime('%H:%M:%S', at)}, {age_s:.1f} s old"
    if recorded := frame.get("recorded"):
        age = f"recorded in {recorded}, as of {time.strftime('%Y-%m-%dT%H:%M:%SZ', at)}"
    said = f" · {trouble}" if trouble else ""
    name = head.get("cluster") or head["identity"]
    return f"Mooring  {name} · {age} · leader {head['leader'] or 'none'}{said}"


def _rows(table: Mapping[str, Any], words: str = "") -> list[dict[str, Any]]:
    rows = (table["rows"][row_id] for row_id in table["order"])
    return [row for row in rows if not words or matches(row, words)]


def _section(
    title: str, rows: Sequence[dict[str, Any]], size: Size, columns: Sequence[str], fill: Any, empty: str
) -> Iterable[RenderableType]:
    room, width = size.rows, size.width
    yield Rule(Text(title, style="bold"), align="left", style="dim")
    if not rows:
        yield Text(empty, style="dim")
        return
    # One bad row shows a question mark; names are text, never markup.
    made = [(row["id"], "?") if row.get("state") == "?" else fill(row) for row in rows[:room]]
    widths = _widths(columns, made, width)
    for number, line in enumerate((columns, *made)):
        cut = (_cut(cell, w) for cell, w in zip(line, widths, strict=False) if w)
        style = "dim" if number == 0 else "reverse" if _subject(rows[number - 1], title) == size.chosen else ""
        yield Text("  ".join(cut).rstrip(), style=style, no_wrap=True, overflow="ellipsis")
    if len(rows) > room:
        yield Text(f"… {len(rows) - room} more (mooring queue, or the page)", style="dim")


def _subject(row: Mapping[str, Any], title: str) -> str:
    kind = {"Stores": "store", "Nodes": "node", "Racks": "rack"}.get(title.partition(" ")[0])
    return f"{kind}/{row['id']}" if kind else str(row.get("subject", "?"))


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """As wide as they need; where that is too much the elastic ones share what is left. A column of dashes goes."""
    natural = []
    for number, column in enumerate(columns):
        cells_ = [row[number] for row in rows if len(row) > number]
        idle = number > 1 and all(cell == "–" for cell in cells_)
        natural.append(0 if idle else max([len(column), *map(len, cells_)]))
    spare = room - sum(w + 2 for c, w in zip(columns, natural, strict=True) if c not in ELASTIC and w)
    elastic = [n for n, c in enumerate(columns) if c in ELASTIC and natural[n]]
    for left, number in enumerate(sorted(elastic, key=lambda n: natural[n])):
        natural[number] = max(8, min(natural[number], spare // (len(elastic) - left) - 2))
        spare -= natural[number] + 2
    return natural


def _cut(cell: str, width: int) -> str:
    return cell.ljust(width) if len(cell) <= width else cell[: width - 1] + "…"


def _store(row: Mapping[str, Any], cells: int) -> tuple[str, ...]:
    used, limit = row.get("used", 0), row.get("limit")
    users = [f"{who}: {amount}" for who, amount, _ in row.get("used_by", ())]
    users += [f"{len(row['waiting'])} waiting (op {', '.join(row['waiting'][:3])})"] if row.get("waiting") else []
    users += ["leaders leave"] if row.get("evicting") else []
    users += [f"store is {row['state']}"] if row.get("state", "Up") != "Up" else []
    leaders = f"{row.get('leaders', 0):,}"
    return (
        row["id"],
        row.get("node") or "–",
        row.get("rack") or "–",
        bar(row, cells),
        f"{used}{f'+{reserved}' if (reserved := row.get('reserved')) else ''}/{'∞' if limit is None else limit}",
        leaders,
        " · ".join(users) or "–",
    )


def bar(row: Mapping[str, Any], cells: int = CELLS) -> str:
    """One shade per holder, facts apart, the rest free."""
    scale = max(row.get("limit") or 0, row.get("used", 0), 1)
    text = ""
    for number, (_, amount, kind) in enumerate(row.get("used_by", ())):
        sign = "▒" if kind == "fact" else "█▓"[number % 2]
        text += sign * round(cells * amount / scale)
    return text[:cells].ljust(cells, "░")


def _node(row: Mapping[str, Any]) -> tuple[str, ...]:
    pods = "  ".join(f"{name} {count}" for name, count in row.get("pods", ()))
    return (row["id"], row["cls"], row.get("rack") or "–", pods or "–", row.get("news") or "–")


def _rack(row: Mapping[str, Any]) -> tuple[str, ...]:
    figures = (str(row.get(k, 0)) for k in ("total", "ok", "interrupted", "leaving", "cordoned", "silent"))
    return (row["id"], *figures, row.get("glyphs", ""))


def _entry(row: Mapping[str, Any]) -> tuple[str, ...]:
    at = time.strftime("%H:%M:%S", time.gmtime(row["at"]))
    return (at, row["op"] or "–", row["source"] or "–", row["words"])


def sparkline(counts: Sequence[int]) -> str:
    most = max(1, *counts)
    return "".join(BARS[min(7, -(-7 * n // most))] if n else BARS[0] for n in counts)


def live(
    console: Console,
    look: Callable[[], Mapping[str, Any]],
    why: Callable[[str], list[str]],
    frame: Mapping[str, Any],
    every: float,
) -> None:
    """`look` asks for the next frame, `why` about a row of it."""
    heard, trouble, view = time.monotonic(), "", View()
    with keyboard() as keys, Live(console=console, screen=True, auto_refresh=False) as shown:
        due = heard + every
        while True:
            age, size = time.monotonic() - heard, console.size
            picture = screen(frame, height=size.height, width=size.width, age_s=age, trouble=trouble, view=view)
            shown.update(picture, refresh=True)
            if keys:
                for key in keys_within(due - time.monotonic()):
                    asked = view.press(key, subjects(frame, view.words))
                    if asked == "quit":
                        return
                    if asked:
                        view.over, view.scrolled = _told(why, asked), 0
            else:
                time.sleep(every)
            if time.monotonic() < due:
                continue
            due = time.monotonic() + every
            try:
                frame, heard, trouble = look(), time.monotonic(), ""
            except UserError as error:
                # What was seen stays on the screen and looks its age.
                trouble = str(error).partition(";")[0]


def _told(why: Callable[[str], list[str]], subject: str) -> list[str]:
    try:
        return why(subject)
    except UserError as error:
        return [str(error)]
