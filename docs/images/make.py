"""The pictures of README and docs, made from a recording of the demo; needs Chromium.

    mooring demo --port 8390 & curl -N http://127.0.0.1:8390/api/v1/stream > day.sse
    PYTHONPATH=src:. python docs/images/make.py day.sse

Writes page.png and page-dark.png (the map in the middle of the notice), page-blocked.png,
page-phone.png, and day.svg: the day on the map as a short animation that needs no script.
"""

import asyncio
import html
import json
import sys
from pathlib import Path
from typing import Any

from aiohttp import web
from tests.process.page.chromium import Chromium

from mooring.process.http.page import Page

HERE = Path(__file__).parent
CLASSES = ("other", "on-demand", "spot", "tikv", "tidb", "pd", "daemon")
COLOURS = {
    "other": "#8996a2", "on-demand": "#68a8ee", "spot": "#e5b04a", "tikv": "#45c1b6", "tidb": "#a898fb",
    "pd": "#e68abf", "daemon": "#66727d",
}  # fmt: skip
BORDERS = {"interrupted": "#ff9b7f", "reserved": "#7ab6f2", "cordoned": "#e1e7ec", "leaving": "#e1e7ec"}
WIDTH, TILE, HIGH = 1040, 118, 88
CHIP, LINE = 50, 15
SIGNS = {"reserved": "□ reserved", "cordoned": "= cordoned", "leaving": "~ leaving", "silent": "! not ready"}
MOST_FRAMES = 110
SECONDS = 26.0


def frames_of(text: str) -> list[dict[str, Any]]:
    """Every frame of the recording, whole."""
    found: list[dict[str, Any]] = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        try:
            data = json.loads(fields.get("data", ""))
        except ValueError:
            continue
        if fields["event"] == "snapshot":
            tables = {name: dict(table["rows"]) for name, table in data["tables"].items()}
            found.append({"at": data["as_of"], "head": data["head"], **tables})
            continue
        before = found[-1]
        frame = {**before, "at": data["as_of"], "head": data.get("head", before["head"])}
        for name, change in data.get("tables", {}).items():
            rows = {**before[name], **change.get("set", {})}
            frame[name] = {i: rows[i] for i in change["order"]} if "order" in change else rows
        found.append(frame)
    return found


# ── The animation ─────────────────────────────────────────────────────────────────────────────────────────────────


def worth_showing(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Frames in which something is different, thinned out evenly."""
    kept = [
        f
        for k, f in enumerate(frames)
        if k == 0 or f["map"] != frames[k - 1]["map"] or f["moves"] != frames[k - 1]["moves"]
    ]
    step = max(1.0, len(kept) / MOST_FRAMES)
    return [kept[int(k * step)] for k in range(int(len(kept) / step))]


def places(names: list[str], racks: dict[str, str]) -> dict[str, tuple[int, int]]:
    at: dict[str, tuple[int, int]] = {}
    for line, rack in enumerate(sorted(set(racks.values()))):
        for k, name in enumerate(n for n in names if racks[n] == rack):
            at[name] = (12 + k * (TILE + 8), 78 + line * (HIGH + 30))
    return at


def animate(attribute: str, values: list[Any]) -> str:
    """A discrete animation; nothing where nothing changes."""
    if len(set(map(str, values))) == 1:
        return ""
    times, shown = [], []
    for k, value in enumerate(values):
        if not shown or str(value) != shown[-1]:
            times.append(f"{k / len(values):.3f}")
            shown.append(str(value))
    return (
        f'<animate attributeName="{attribute}" calcMode="discrete" dur="{SECONDS}s" repeatCount="indefinite" '
        f'keyTimes="{";".join(times)}" values="{";".join(shown)}"/>'
    )


def svg(frames: list[dict[str, Any]]) -> str:
    frames = worth_showing(frames)
    names = sorted({n for f in frames for n in f["map"]}, key=lambda n: (n[0] != "n", int(n[1:])))
    racks = {n: f["map"][n][0] for f in frames for n in f["map"]}
    at = places(names, racks)
    high = max(y for _, y in at.values()) + HIGH + 14
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {high}" font-family="system-ui, sans-serif">',
        f'<rect width="{WIDTH}" height="{high}" rx="8" fill="#0f1317"/>',
    ]
    out += captions(frames) + costs(frames)
    for name in names:
        out.append(tile(name, racks[name], at[name], frames))
    out += arrows(at, frames) + gauges(at, frames) + pods(at, frames)
    return "\n".join([*out, "</svg>\n"])


def text(x: float, y: float, words: str, size: int = 11, fill: str = "#98a5b1", more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{fill}"{more}>{html.escape(words)}</text>'


def shown_when(kept: list[bool], what: str) -> str:
    """Something that is there in some of the frames."""
    words = ["visible" if k else "hidden" for k in kept]
    return f'<g visibility="{words[0]}">{animate("visibility", words)}{what}</g>'


def captions(frames: list[dict[str, Any]]) -> list[str]:
    acts = [f["head"].get("act") or {} for f in frames]
    out = []
    for title in dict.fromkeys(a.get("title", "") for a in acts):
        act = next(a for a in acts if a.get("title", "") == title)
        number = f"act {act['number']} of {act['of']}   " if act.get("number") else ""
        command = f"$ {act['command'][:118]}" if act.get("command") else ""
        what = text(14, 24, number + title, 16, "#e1e7ec", ' font-weight="600"')
        what += text(14, 44, command, 12, more=' font-family="monospace"')
        out.append(shown_when([a.get("title", "") == title for a in acts], what))
    return out


def costs(frames: list[dict[str, Any]]) -> list[str]:
    """What either day has cost by then."""
    said = [cost_words(f["head"].get("act") or {}) for f in frames]
    right = ' text-anchor="end"'
    return [
        shown_when([s == words for s in said], text(WIDTH - 14, 24, words, 12, "#ff9b7f", right))
        for words in dict.fromkeys(said)
        if words
    ]


def cost_words(act: dict[str, Any]) -> str:
    lost = act.get("without") or {}
    said = [f"{lost[k]} {words}" for k, words in (("pods", "pods cut off"), ("leaders", "leaders lost")) if lost.get(k)]
    return f"without Mooring by now: {', '.join(said)} (with: none)" if said else ""


def tile(name: str, rack: str, place: tuple[int, int], frames: list[dict[str, Any]]) -> str:
    x, y = place
    states = [f["map"].get(name, [0, 0, "gone"])[2] for f in frames]
    strokes = [BORDERS.get(s, "#333d47") for s in states]
    fills = ["#38211b" if s == "interrupted" else "#0f1317" if s == "gone" else "#181d23" for s in states]
    radius = 10 if name[0] == "s" else 3
    out = (
        f'<rect x="{x}" y="{y}" width="{TILE}" height="{HIGH}" rx="{radius}" fill="{fills[0]}" stroke="{strokes[0]}" '
        f'stroke-width="1.6">{animate("stroke", strokes)}{animate("fill", fills)}</rect>'
    )
    right = ' text-anchor="end"'
    if "interrupted" in states:
        bar = f'<path d="M{x} {y + 19}v-9a10 10 0 0 1 10-10h{TILE - 20}a10 10 0 0 1 10 10v9z" fill="#ff9b7f"/>'
        bar += text(x + TILE - 8, y + 14, "▲ notice", 11, "#24100a", right)
        out += shown_when([s == "interrupted" for s in states], bar)
    for state in set(states) & set(SIGNS):
        out += shown_when([s == state for s in states], text(x + TILE - 7, y + 14, SIGNS[state], 10, "#e1e7ec", right))
    inks = ["#24100a" if s == "interrupted" else "#e1e7ec" for s in states]
    bold = f'font-size="12" font-weight="600" fill="{inks[0]}"'
    out += f'<text x="{x + 7}" y="{y + 14}" {bold}>{name}{animate("fill", inks)}</text>'
    return out + (text(x, y - 6, f"rack {rack}") if x == 12 else "")


def short(pod: str) -> str:
    words = pod.partition("/")[2].split("-")
    return "-".join(words[1:]) if words[0] == "demo" else words[0]


def pods(at: dict[str, tuple[int, int]], frames: list[dict[str, Any]]) -> list[str]:
    tracks: dict[str, list[tuple[float, float, float] | None]] = {}
    colour: dict[str, str] = {}
    for number, frame in enumerate(frames):
        for node, row in frame["map"].items():
            for k, (letter, pod) in enumerate(zip(row[6], row[7], strict=False)):
                code = ord(letter) - 48
                colour[pod] = COLOURS[CLASSES[code >> 2]]
                spot = (at[node][0] + 7 + k % 2 * (CHIP + 4), at[node][1] + 23 + k // 2 * (LINE + 3))
                tracks.setdefault(pod, [None] * len(frames))[number] = (*spot, (1.0, 0.35, 1.0, 0.25)[code & 3])
    out = []
    for pod, track in tracks.items():
        last = next(t for t in track if t is not None)
        spots, seen = [], []
        for t in track:
            last = t or last
            spots.append(f"{last[0]:g} {last[1]:g}")
            seen.append(0 if t is None else t[2])
        moves = animate("transform", spots).replace("<animate ", '<animateTransform type="translate" ')
        chip = f'<rect width="{CHIP}" height="{LINE}" rx="3" fill="{colour[pod]}"/>'
        chip += text(5, 11, short(pod), 10, "#0c1116")
        out.append(
            f'<g transform="translate({spots[0]})" opacity="{seen[0]}">{moves.replace("/>", " />")}'
            f"{animate('opacity', seen)}{chip}</g>"
        )
    return out


def gauges(at: dict[str, tuple[int, int]], frames: list[dict[str, Any]]) -> list[str]:
    """Leaders on the stores of a node, as a bar that empties and fills."""
    counts: dict[str, list[int]] = {}
    for number, frame in enumerate(frames):
        for node, row in frame["map"].items():
            if row[8]:
                counts.setdefault(node, [0] * len(frames))[number] = sum(store[2] for store in row[8])
    most, out = max((n for each in counts.values() for n in each), default=1), []
    for node, each in counts.items():
        x, y = at[node][0] + 7, at[node][1] + HIGH - 11
        there = [any(store for store in f["map"].get(node, [()] * 9)[8]) for f in frames]
        widths = [round((TILE - 14) * n / most) for n in each]
        bar = f'<rect x="{x}" y="{y}" width="{TILE - 14}" height="5" rx="2" fill="#2b343d"/>'
        fill = 'height="5" rx="2" fill="#45c1b6"'
        bar += f'<rect x="{x}" y="{y}" width="{widths[0]}" {fill}>{animate("width", widths)}</rect>'
        out.append(shown_when(there, bar))
    return out


def arrows(at: dict[str, tuple[int, int]], frames: list[dict[str, Any]]) -> list[str]:
    seen: dict[tuple[str, str, str], list[bool]] = {}
    for number, frame in enumerate(frames):
        for what, _, origin, target, *_ in frame["moves"].values():
            if origin in at and target in at and origin != target:
                seen.setdefault((what, origin, target), [False] * len(frames))[number] = True
    flow = '<animate attributeName="stroke-dashoffset" from="22" to="0" dur="0.9s" repeatCount="indefinite"/>'
    out = []
    for (what, origin, target), kept in seen.items():
        (ax, ay), (bx, by) = at[origin], at[target]
        a, b = (ax + TILE / 2, ay + HIGH * 0.62), (bx + TILE / 2, by + HIGH * 0.62)
        stroke = "#45c1b6" if what == "region" else "#e5b04a"
        line = f"M{a[0]} {a[1]:g}Q{(a[0] + b[0]) / 2} {min(a[1], b[1]) - 26:g} {b[0]} {b[1]:g}"
        look = f'fill="none" stroke="{stroke}" stroke-width="2" stroke-linecap="round" stroke-dasharray="4 7"'
        out.append(shown_when(kept, f'<path d="{line}" {look} opacity=".8">{flow}</path>'))
    return out


# ── The pictures ──────────────────────────────────────────────────────────────────────────────────────────────────


def best(frames: list[dict[str, Any]], act: int, *, needs: bool = False) -> int:
    """Of an act, the frame with most moves, or the one that needs a person."""
    of_act = [k for k, f in enumerate(frames) if (f["head"].get("act") or {}).get("number") == act]
    fit = [k for k in of_act if f_needs(frames[k])] if needs else of_act
    return max(fit or of_act or [len(frames) // 2], key=lambda k: (moving(frames[k]), k))


def moving(frame: dict[str, Any]) -> int:
    return sum(move[4] == "moving" and bool(move[3]) for move in frame["moves"].values())


def f_needs(frame: dict[str, Any]) -> bool:
    return bool(frame["head"].get("needs"))


async def shoot(recording: Path, frames: list[dict[str, Any]]) -> None:
    app = web.Application()
    Page(lambda: None).add_to(app)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with Chromium() as browser:
        tab = await browser.tab(f"http://127.0.0.1:{runner.addresses[0][1]}/")
        document = await tab.call("DOM.getDocument")
        found = await tab.call("DOM.querySelector", nodeId=document["root"]["nodeId"], selector="#file")
        await tab.call("DOM.setFileInputFiles", files=[str(recording)], nodeId=found["nodeId"])
        await tab.until("mooring.scrubber.recorded", limit_s=120)
        await tab.ask("mooring.scrubber.stop(), 0")

        async def picture(name: str, frame: int, *, dark: bool = False, size: tuple[int, int] = (1440, 900)) -> None:
            await tab.shape(*size)
            await tab.ask(f"mooring.scrubber.seek({max(0, frame - 2)})")
            await tab.ask(f"mooring.scrubber.seek({frame})")
            await tab.picture(HERE / name, dark=dark)

        notice, blocked = best(frames, 3), best(frames, 5, needs=True)
        await picture("page.png", notice)
        await picture("page-dark.png", notice, dark=True)
        await picture("page-blocked.png", blocked)
        await picture("page-phone.png", notice, dark=True, size=(390, 844))
    await runner.cleanup()


def main() -> None:
    recording = Path(sys.argv[1]).resolve()
    frames = frames_of(recording.read_text())
    drawn = svg(frames)
    (HERE / "day.svg").write_text(drawn)
    sys.stdout.write(f"day.svg {len(drawn) / 1024:.0f} KiB of {len(frames)} frames\n")
    asyncio.run(shoot(recording, frames))


if __name__ == "__main__":
    main()
