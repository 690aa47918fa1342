"""The map is a picture that can be read: nothing crosses a name, nothing jumps, and every view counts alike."""

import asyncio
import sys
from pathlib import Path

import pytest
from aiohttp import web

from mooring.core.model.kinds import Kind
from mooring.process.http.page import Page
from mooring.process.http.past import Past
from mooring.process.http.stream import event, picture
from mooring_lab.control.loopback import free_ports
from tests.process.page import pictures
from tests.process.page.test_as_of import recorded

pytestmark = pytest.mark.e2e
OUTPUT = Path(__file__).parents[3] / "test-output"
DRAWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))"
#: Of every tile: its cells on the screen, and whether a line would be drawn over their middles.
CELLS = """(() => {
  const map = mooring.map, words = map.words(), g = map.top.getContext('2d'), found = [];
  g.setTransform(1, 0, 0, 1, 0, 0);
  for (const n of map.nodes.values()) for (const pod of n.names) {
    const at = map.cellOf(n.id, pod, map.rect(n.id));
    found.push([n.id, at && [at.w, at.h], at && g.isPointInPath(words, at.x + at.w / 2, at.y + at.h / 2, 'evenodd')]);
  }
  return found;
})()"""


async def test_moves_go_from_cell_to_cell_and_cross_no_name(easel):
    """24 nodes: every pod has a cell with its name, all of one size, and lines pass beneath them."""
    tab = await easel.show(pictures.demo())
    await tab.shape(1440, 900)
    await tab.ask(DRAWN)
    cells = await tab.ask(CELLS)
    assert len(cells) == 60
    assert {tuple(size) for _, size, _ in cells} == {tuple(cells[0][1])}, "cells of several sizes"
    assert cells[0][1][0] >= 60 and cells[0][1][1] >= 15, "too small for a name"
    assert not any(crossed for _, _, crossed in cells), "a line would cross a name"
    assert await tab.ask("mooring.map.moves.size") == 12
    # The same at other sizes: names stay, whatever the window.
    for width, height in ((1920, 1080), (1100, 800), (900, 800), (701, 900)):
        await tab.shape(width, height)
        await tab.ask(DRAWN)
        cells = await tab.ask(CELLS)
        assert all(size and size[0] >= 28 for _, size, _ in cells), f"no names at {width} px: {cells[:3]}"


async def test_the_map_keeps_its_shape(easel):
    """A line more in the strip, a longer queue, a node less: tiles stay where they are."""
    tab = await easel.show(pictures.busy())
    shape = "mooring.map.layout.boxes.map((b) => `${b.cols}x${b.lines}`).join()"
    size = "JSON.stringify([mooring.map.width, mooring.map.height])"
    await tab.shape(1440, 900)
    await tab.ask(DRAWN)
    first, room = await tab.ask(shape), await tab.ask(size)
    easel.still.frame = pictures.long_queue()
    await tab.until("mooring.page.shown.head.waiting === 9900")
    await tab.ask(DRAWN)
    assert await tab.ask(size) == room, "what waits took room from the map"
    for height in range(880, 780, -10):
        await tab.shape(1440, height)
        await tab.ask(DRAWN)
        assert await tab.ask(shape) == first, f"another arrangement at {height} px"
    fills = "mooring.map.layout.boxes.reduce((w, b) => Math.max(w, b.x + b.w), 0) / mooring.map.width"
    for width in (1920, 1440, 1100, 900, 701):
        await tab.shape(width, 900)
        await tab.ask(DRAWN)
        assert await tab.ask(fills) > 0.9, f"empty beside the racks at {width} px"


async def test_hundreds_of_nodes_are_tiles_with_their_pods(easel):
    """500 nodes: every pod a cell, every rack its sums; nothing but tiles that can be told apart."""
    tab = await easel.show(pictures.hundreds())
    await tab.shape(1440, 900)
    for dark in (False, True):
        await tab.picture(OUTPUT / f"page-hundreds-{'dark' if dark else 'light'}.png", dark=dark)
    w, h = await tab.ask("[mooring.map.layout.tile.w, mooring.map.layout.tile.h]")
    assert w >= 20 and h >= 20
    assert (
        await tab.ask("document.getElementById('map-sum').innerText")
        == "500 nodes\u2002▲ 6 interrupted\u2002= 6 cordoned"
    )


async def test_reduced_motion_draws_the_same_and_then_rests(easel):
    """With motion the map is drawn on and on while something moves; without, once per change."""
    tab = await easel.show(pictures.demo())
    drawn = []
    for motion in ("no-preference", "reduce"):
        await tab.prefers(reduced_motion=motion)
        await tab.ask(DRAWN)
        before = await tab.ask("mooring.map.frames")
        await asyncio.sleep(1.5)
        drawn.append(await tab.ask("mooring.map.frames") - before)
    assert drawn[0] > 3 * drawn[1] and drawn[1] <= 8, drawn
    assert await tab.ask("mooring.map.moves.size") == 12, "the moves are there all the same"


async def test_the_banner_names_the_act_and_counts_both_days(easel):
    """The act, the command, and the same day without Mooring beside it, in columns that stand under each other."""
    tab = await easel.show(pictures.demo())
    await tab.shape(1440, 900)
    await tab.until("!document.getElementById('banner').hidden")
    words = await tab.ask("document.getElementById('banner').innerText.replace(/\\s+/g, ' ')")
    assert words.startswith("act 3 of 7 all 12 spot nodes get notice $ kubectl annotate node s1")
    assert "with Mooring 0 pods cut off 0 leaders lost 0 quorum losses" in words
    assert "without 12 pods cut off 1,210 leaders lost 1 quorum losses" in words
    rights = await tab.ask(
        "[...document.querySelectorAll('#without b')].map((b) => Math.round(b.getBoundingClientRect().right))"
    )
    assert rights[:3] == rights[3:], "the figures stand under each other"


async def test_columns_that_say_nothing_give_their_room_away(easel):
    """Nothing waits for room: no empty columns, and what moves is read to its end."""
    frame = pictures.busy()
    rows = [{**row, "missing": "", "by": [], "deadline": None} for row in frame.tables["queue"].rows.values()]
    tab = await easel.show(frame)
    shown = "[...document.querySelectorAll('#queue .head .cell')].filter((c) => c.offsetParent).map((c) => c.innerText.toLowerCase())"
    await tab.press("2")
    await tab.until(f"{shown}.includes('missing')")
    frame.tables["queue"] = pictures.table(rows, blocked=1, moving=2, waiting=2)
    await tab.until(f"!{shown}.includes('missing')")
    assert await tab.ask(shown) == ["state", "op", "source", "what", "step", "waiting for", "since"]
    cut = "[...document.querySelectorAll('#queue .body .row:not([hidden]) .cell')].filter((c) => c.offsetParent && c.scrollWidth > c.clientWidth + 1).map((c) => c.innerText)"
    assert await tab.ask(cut) == []


async def test_every_view_counts_nodes_alike(site, tab):
    """Three nodes with notice and one cordoned: the map, the table of nodes and the racks say the same."""
    cluster = site.stage.cluster

    def change():
        for name in ("s1", "s2", "s5"):
            cluster.annotate(Kind.NODE, "", name, {"vacant.io/interrupt-at": "2026-01-01T23:00:00Z"})
        cluster.store.patch(Kind.NODE, "", "n3", {"spec": {"unschedulable": True}})

    site.do(change)
    await tab.until(
        "mooring.page.shown.tables.map.sums.interrupted === 3 && mooring.page.shown.tables.map.sums.cordoned === 1"
    )
    await tab.until("mooring.page.shown.tables.nodes.sums.interrupted === 3")
    await tab.until("document.getElementById('map-sum').innerText.includes('cordoned')")  # drawn with the next frame
    await tab.until("document.getElementById('nodes-sum').innerText.includes('cordoned')")
    said = {view: await tab.ask(f"document.getElementById('{view}-sum').innerText") for view in ("map", "nodes")}
    assert "24 nodes\u2002▲ 3 interrupted\u2002= 1 cordoned" in said["map"]
    assert (
        "on-demand 12 │ spot 12 │ ~ leaving 0 │" in said["nodes"]
        and "▲ 3 interrupted\u2002= 1 cordoned" in said["nodes"]
    )
    await tab.press("5")
    await tab.until("document.querySelectorAll('#racks .body .row:not([hidden])').length === 3")
    racks = await tab.ask(
        "[...document.querySelectorAll('#racks .body .row:not([hidden])')].map((r) => r.innerText.replace(/\\s+/g, ' '))"
    )
    assert sorted(racks) == [
        "1 8 ▲ 2 interrupted = 1 cordoned · 5 ready ··=·▲▲··", "2 8 ▲ 1 interrupted · 7 ready ····▲···", "3 8 · 8 ready",
    ], racks  # fmt: skip


async def test_a_server_may_show_a_recording_and_nothing_else(browser):
    """No stream is opened; it says RECORDING, never LIVE; slider and play go through it from its first frame."""
    page = Page(lambda: None, recording=lambda: "")
    page.hub.past = Past(recording="box/mooring-0.blackbox")
    for seq in range(5):
        frame = pictures.busy()
        frame.as_of += seq
        page.hub.past.add(seq, frame.as_of, event("snapshot", seq, picture(frame)), frame.head)
    app = web.Application()
    page.add_to(app)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        tab = await browser.tab(f"http://127.0.0.1:{runner.addresses[0][1]}/")
        pulse = "document.getElementById('pulse').innerText"
        await tab.until(f"{pulse} === 'RECORDING box/mooring-0.blackbox, 10:03:02'")
        assert await tab.ask("mooring.map.nodes.size") == 24 and await tab.ask("mooring.live") is None
        await tab.press("]")
        await tab.until(f"{pulse}.includes('10:03:03')")
        await tab.press("p")
        await tab.until(f"{pulse}.endsWith('10:03:06, its end')")
        await tab.ask("mooring.map.onOpen('pod/a/b', mooring.map), 0")
        await tab.until("document.getElementById('why-text').innerText.includes('--blackbox DIR')")
    finally:
        await runner.cleanup()


@pytest.mark.timeout(400)
async def test_the_page_of_a_recording_goes_to_any_moment_and_says_why(browser, tmp_path):
    """O6: `mooring replay BOX page`: the map, the queue and `why` as of then, long after it was recorded."""
    at, said = await asyncio.to_thread(recorded, tmp_path)
    (port,) = free_ports(1)
    replay = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "mooring", "replay", str(tmp_path), "page", "--port", str(port), stderr=asyncio.subprocess.PIPE
    )  # fmt: skip
    try:
        async with asyncio.timeout(120):
            while b"Page: " not in await replay.stderr.readline():
                assert replay.returncode is None
        tab = await browser.tab(f"http://127.0.0.1:{port}/")
        await tab.until("mooring.scrubber.recorded && mooring.map.nodes.size === 24")
        pulse = "document.getElementById('pulse').innerText"
        assert (await tab.ask(pulse)).startswith(f"RECORDING {tmp_path.name}, 08:30:0")
        steps = await tab.ask("mooring.scrubber.source.last - mooring.scrubber.source.first")
        for _ in range(steps):
            if await tab.ask(f"mooring.page.shown.asOf >= {at}"):
                break
            before = await tab.ask("mooring.page.shown.asOf")
            await tab.press("]")
            await tab.until(f"mooring.page.shown.asOf > {before}")
        states = await tab.ask("[...mooring.page.shown.tables.queue.rows.values()].map((r) => r.op + r.state)")
        assert "2waiting" in states, states
        await tab.ask("mooring.map.onOpen('pod/tidb/demo-tikv-1', mooring.map), 0")
        await tab.until("document.getElementById('why-text').innerText.includes('to change')", 120)
        assert (await tab.ask("document.getElementById('why-text').innerText")).splitlines()[0] == said[0]
        await tab.picture(OUTPUT / "page-recording.png")
        assert browser.complaints == []
    finally:
        replay.terminate()
        await replay.wait()
