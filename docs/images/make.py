"""The pictures of README and docs, made from a recording of the demo; needs Chromium.

    mooring demo --port 8390 & curl -N http://127.0.0.1:8390/api/v1/stream > day.sse
    PYTHONPATH=src:. python docs/images/make.py day.sse

Writes page.png and page-dark.png (the map in the middle of the notice), page-blocked.png, page-why.png,
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
WIDTH, TILE, HIGH, CELL = 1040, 118, 78, 15
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
            at[name] = (12 + k * (TILE + 8), 64 + line * (HIGH + 30))
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
    out += captions(frames)
    for name in names:
        out.append(tile(name, racks[name], at[name], frames))
    out += pods(at, frames)
    out += arrows(at, frames)
    return "\n".join([*out, "</svg>\n"])


def captions(frames: list[dict[str, Any]]) -> list[str]:
    acts = [f["head"].get("act") or {} for f in frames]
    out = []
    for title in dict.fromkeys(a.get("title", "") for a in acts):
        act = next(a for a in acts if a.get("title", "") == title)
        number = f"act {act['number']} of {act['of']}   " if act.get("number") else ""
        shown = animate("visibility", ["visible" if a.get("title", "") == title else "hidden" for a in acts])
        first = "visible" if acts[0].get("title", "") == title else "hidden"
        command = f"$ {act['command'][:118]}" if act.get("command") else ""
        out.append(
            f'<g visibility="{first}">{shown}<text x="14" y="24" font-size="16" font-weight="600" fill="#e1e7ec">'
            f'{html.escape(number + title)}</text><text x="14" y="44" font-size="12" font-family="monospace" '
            f'fill="#98a5b1">{html.escape(command)}</text></g>'
        )
    return out


def tile(name: str, rack: str, place: tuple[int, int], frames: list[dict[str, Any]]) -> str:
    x, y = place
    states = [f["map"].get(name, [0, 0, "gone"])[2] for f in frames]
    strokes = [BORDERS.get(s, "#333d47") for s in states]
    fills = ["#38211b" if s == "interrupted" else "#0f1317" if s == "gone" else "#181d23" for s in states]
    radius = 10 if name[0] == "s" else 3
    return (
        f'<rect x="{x}" y="{y}" width="{TILE}" height="{HIGH}" rx="{radius}" fill="{fills[0]}" stroke="{strokes[0]}" '
        f'stroke-width="1.6">{animate("stroke", strokes)}{animate("fill", fills)}</rect>'
        f'<text x="{x + 7}" y="{y + 14}" font-size="11" font-weight="600" fill="#e1e7ec">{name}</text>'
        + (f'<text x="{x}" y="{y - 6}" font-size="11" fill="#98a5b1">rack {rack}</text>' if x == 12 else "")
    )


def pods(at: dict[str, tuple[int, int]], frames: list[dict[str, Any]]) -> list[str]:
    tracks: dict[str, list[tuple[float, float, float] | None]] = {}
    colour: dict[str, str] = {}
    for number, frame in enumerate(frames):
        for node, row in frame["map"].items():
            for k, (letter, pod) in enumerate(zip(row[6], row[7], strict=False)):
                code = ord(letter) - 48
                colour[pod] = COLOURS[CLASSES[code >> 2]]
                spot = (at[node][0] + 7 + k % 6 * (CELL + 2), at[node][1] + 22 + k // 6 * (CELL + 3))
                tracks.setdefault(pod, [None] * len(frames))[number] = (*spot, (1.0, 0.35, 1.0, 0.25)[code & 3])
    out = []
    for pod, track in tracks.items():
        known = [t for t in track if t is not None]
        xs, ys, seen = [], [], []
        last = known[0]
        for t in track:
            last = t or last
            xs.append(last[0])
            ys.append(last[1])
            seen.append(0 if t is None else t[2])
        moves = animate("x", xs) + animate("y", ys) + animate("opacity", seen)
        shape = f'width="{CELL}" height="{CELL}" rx="3" fill="{colour[pod]}"'
        out.append(f'<rect x="{xs[0]}" y="{ys[0]}" {shape} opacity="{seen[0]}">{moves}</rect>')
    return out


def arrows(at: dict[str, tuple[int, int]], frames: list[dict[str, Any]]) -> list[str]:
    seen: dict[tuple[str, str, str], list[int]] = {}
    for number, frame in enumerate(frames):
        for what, _, origin, target, *_ in frame["moves"].values():
            if origin in at and target in at and origin != target:
                seen.setdefault((what, origin, target), [0] * len(frames))[number] = 1
    out = []
    for (what, origin, target), shown in seen.items():
        (ax, ay), (bx, by) = at[origin], at[target]
        a, b = (ax + TILE / 2, ay + HIGH / 2), (bx + TILE / 2, by + HIGH / 2)
        stroke = "#45c1b6" if what == "region" else "#7ab6f2"
        line = f"M{a[0]} {a[1]} Q{(a[0] + b[0]) / 2} {min(a[1], b[1]) - 26} {b[0]} {b[1]}"
        look = f'fill="none" stroke="{stroke}" stroke-width="1.8" stroke-linecap="round"'
        out.append(f'<path d="{line}" {look} opacity="{shown[0]}">{animate("opacity", shown)}</path>')
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
