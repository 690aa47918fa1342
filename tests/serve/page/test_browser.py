"""The page in a real headless Chromium: every view, every key, many tabs, a restart, a long day, hostile names."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from chromium import Chromium, NoBrowser, Tab

from mooring.handoff.wishes import RESTART
from mooring.model.kinds import Kind
from mooring.serve.frames import Frame, Table
from mooring.serve.stream import difference, event, picture

pytestmark = pytest.mark.e2e
OUTPUT = Path(__file__).parents[3] / "test-output"
VIEWS = ("queue", "stores", "nodes", "racks", "timeline")
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'


@pytest.fixture
async def browser() -> AsyncIterator[Chromium]:
    try:
        async with Chromium() as running:
            yield running
    except NoBrowser as error:
        pytest.fail(str(error))


@pytest.fixture
async def tab(browser, site) -> Tab:
    found = await browser.tab(site.url)
    await found.until("mooring.page.heard")
    return found


def ask_for_two_restarts(site) -> None:
    for name in ("demo-tikv-0", "demo-tikv-1"):
        site.stage.cluster.annotate(Kind.POD, "tidb", name, {RESTART: ""})


async def recording(tab: Tab, text: bytes, speed: str = "Infinity") -> None:
    """Let the page play these bytes as if a person had opened the file."""
    await tab.ask(f"mooring.play(new File([{json.dumps(text.decode())}], 'day.sse'), {speed})")


async def test_every_view_shows_what_runs_and_pictures_are_kept(site, browser, tab):
    """Queue, stores, nodes, racks and timeline show a restart and the one behind it, without one script error."""
    site.do(lambda: ask_for_two_restarts(site))
    await tab.until("mooring.page.shown.head.waits === 1")
    await tab.until("document.querySelector('#queue .body').innerText.includes('evicting/tidb/demo 1/1')")
    queue = await tab.ask("document.querySelector('#queue .body').innerText")
    assert "● runs" in queue and "○ waits" in queue and "op 1" in queue
    assert "10/20" in await tab.ask("document.querySelector('#stores .body').innerText")
    assert await tab.ask("document.querySelectorAll('#stores .seg.op0').length") >= 1
    assert "on-demand 12 │ spot 12" in await tab.ask("document.getElementById('nodes-sum').innerText")
    assert "24 with no news" in await tab.ask("document.querySelector('#nodes .body').innerText")
    assert "nothing to see" in await tab.ask("document.querySelector('#racks .body').innerText")
    assert "promoted" in await tab.ask("document.querySelector('#timeline .body').innerText")
    await tab.until("document.getElementById('pulse').innerText.startsWith('LIVE ')")
    await tab.picture(OUTPUT / "page-light.png")
    await tab.picture(OUTPUT / "page-dark.png", dark=True)
    for number, view in enumerate(VIEWS, 1):
        await tab.press(str(number))
        await tab.until(f"document.body.dataset.view === '{view}'")
        await tab.picture(OUTPUT / f"page-{number}-{view}.png")
    assert browser.complaints == []


async def test_every_key_does_what_the_help_says(site, tab):
    """1–5, 0, /, ?, Space, arrows, Enter and Esc, all without a mouse."""
    for number, view in enumerate(VIEWS, 1):
        await tab.press(str(number))
        await tab.until(f"document.body.dataset.view === '{view}'")
        await tab.until(f"document.activeElement.closest('section')?.id === '{view}'")
    await tab.press("Escape")
    await tab.until("document.body.dataset.view === 'all'")
    await tab.press("?")
    await tab.until("document.getElementById('keys').open")
    await tab.press("Escape")
    await tab.until("!document.getElementById('keys').open")
    await tab.press(" ")
    await tab.until("document.getElementById('pulse').innerText.startsWith('PAUSED')")
    stood = await tab.ask("mooring.page.shown.seq")
    await tab.until(f"mooring.page.latest.seq > {stood} + 1")
    assert await tab.ask("mooring.page.shown.seq") == stood
    await tab.press(" ")
    await tab.until(f"mooring.page.shown.seq > {stood}")
    # All nodes, fetched by the page; Enter asks why; Esc gives the focus back.
    await tab.press("3")
    await tab.until("document.querySelector('#nodes .body').innerText.includes('on-demand')")
    await tab.until("document.activeElement.closest('#nodes .row')")
    await tab.press("ArrowDown")
    await tab.press("Enter")
    await tab.until("document.getElementById('why-text').innerText.includes('placed')")
    await tab.press("Escape")
    await tab.until("document.getElementById('why').hidden")
    assert await tab.ask("document.activeElement.closest('section')?.id") == "nodes"
    # Find: filters the views, names the filter where nothing is left, and opens what it found.
    await tab.press("/")
    await tab.until("document.activeElement.id === 'find'")
    await tab.type("demo-tikv-2")
    await tab.until("document.getElementById('found').innerText.includes('pod/tidb/demo-tikv-2')")
    assert "nothing here matches" in await tab.ask("document.getElementById('nodes').innerText")
    await tab.press("Enter")
    await tab.until("document.getElementById('why-h').innerText === 'pod/tidb/demo-tikv-2'")
    await tab.press("Escape")
    await tab.press("Escape")
    await tab.until("mooring.page.filter === ''")


async def test_why_has_the_words_of_the_command_line(site, tab):
    """Enter on a row shows what `mooring why` prints, line for line."""
    site.do(lambda: ask_for_two_restarts(site))
    await tab.until("mooring.page.shown.head.waits === 1")
    await tab.press("1")
    await tab.until("document.activeElement.closest('section')?.id === 'queue'")
    await tab.press("ArrowDown")
    await tab.press("Enter")
    await tab.until("document.getElementById('why-text').innerText.includes('asked')")
    shown = (await tab.ask("document.getElementById('why-text').textContent")).splitlines()
    assert (await tab.ask("document.getElementById('why-cmd').innerText")) == "$ mooring why operator/2"
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "mooring", "why", "operator/2", "--server", site.url],
        capture_output=True,
        text=True,
        check=True,
    )
    said = ran.stdout.splitlines()
    assert shown[0] == said[0] and "op 1" in shown[0]
    assert [line[:12] for line in shown] == [line[:12] for line in said]
    await tab.picture(OUTPUT / "page-why.png")


async def test_eight_tabs_share_one_stream(site, browser):
    """A seventh connection would hang: one tab reads for all, and another takes over when it is closed."""
    tabs = [await browser.tab(site.url) for _ in range(8)]
    for tab in tabs:
        await tab.until("mooring.page.heard && mooring.page.shown.tables.stores.order.length === 3")
    assert site.hub.viewers == 1
    leading = [await tab.ask("mooring.live.leading") for tab in tabs]
    assert leading.count(True) == 1
    first = leading.index(True)
    await tabs.pop(first).close()
    seqs = [await tab.ask("mooring.page.shown.seq") for tab in tabs]
    for tab, seq in zip(tabs, seqs, strict=True):
        await tab.until(f"mooring.page.shown.seq > {seq} + 2")
    assert site.hub.viewers == 1
    assert browser.complaints == []


async def test_stale_data_looks_stale_and_a_restarted_server_is_found_again(site, browser, tab):
    """The server goes: what was seen stays, with its age; badge after 5 s, grey after 20 s; back, a fresh snapshot."""
    site.do(site.go_down)
    await tab.ask("mooring.page.heardAt -= 6000, 0")
    await tab.until("document.getElementById('pulse').dataset.state === 'stale'")
    assert await tab.ask("mooring.page.shown.tables.stores.order.length") == 3
    await tab.ask("mooring.page.heardAt -= 20000, 0")
    await tab.until("document.body.classList.contains('grey')")
    assert "demo-tikv-0" in await tab.ask("document.querySelector('#stores .body').innerText")
    await tab.picture(OUTPUT / "page-stale.png")
    site.do(site.come_up)
    await tab.until("document.getElementById('pulse').dataset.state === 'live'")
    assert not await tab.ask("document.body.classList.contains('grey')")


async def test_a_replica_that_is_cut_off_looks_stale(site, tab):
    """Frames still come, and what they show is old: the API server does not answer, and the page says so."""
    site.do(lambda: site.stage.cluster.api.faults.dead_for(3600.0))
    await tab.until("document.body.classList.contains('grey')", limit_s=60)
    seq = await tab.ask("mooring.page.shown.seq")
    await tab.until(f"mooring.page.shown.seq > {seq}", limit_s=60)
    assert "Mooring does not hear the API server" in await tab.ask("document.getElementById('pulse').innerText")
    assert "demo-tikv-0" in await tab.ask("document.querySelector('#stores .body').innerText")


def frame(number: int, rows: int = 12) -> Frame:
    """One moment of a busy day: every row changes."""
    tables = {
        name: Table(
            {f"{k}": {"id": f"{k}", "state": "runs", "what": f"{number}", "at": number} for k in range(rows)}, rows
        )
        for name in ("queue", "stores", "nodes", "racks")
    }
    entries = {
        f"{k}": {"id": f"{k}", "at": number, "verb": "wrote", "text": f"{k}"} for k in range(number + 60, number, -1)
    }
    return Frame(float(number), {"needs": 0, "identity": "recorded"}, {**tables, "timeline": Table(entries, number)})


async def test_an_hour_of_frames_leaves_the_heap_flat(tab):
    """A recorded hour (7,200 frames, every row changing) plays through; memory afterwards is what it was early on."""
    parts = [event("snapshot", 1, picture(frame(1)))]
    sizes = []
    for begin in range(1, 7200, 900):
        # In pieces, so that the bytes of the file itself do not count as growth.
        frames = [frame(n) for n in range(begin, begin + 901)]
        parts = [event("snapshot", begin, picture(frames[0]))]
        parts += [event("delta", begin + k + 1, difference(frames[k], frames[k + 1])) for k in range(900)]
        await recording(tab, b"".join(parts))
        await tab.until("mooring.page.ended", limit_s=60)
        assert await tab.ask("mooring.page.recording.frames") == 901
        await tab.ask("mooring.page.recording = null, 0")
        sizes.append(await tab.heap_bytes())
    assert sizes[-1] < 200_000_000
    assert sizes[-1] < sizes[1] * 1.2 + 2_000_000, sizes
    assert await tab.ask("document.querySelectorAll('.row').length") < 600


async def test_what_objects_are_called_is_never_markup(tab, browser):
    """Names, annotations and reasons full of markup show as the text they are."""
    row = {
        "id": HOSTILE,
        "state": HOSTILE,
        "op": HOSTILE,
        "source": HOSTILE,
        "what": HOSTILE,
        "subject": HOSTILE,
        "waits": HOSTILE,
    }
    row |= {
        "by": [HOSTILE],
        "pods": [[HOSTILE, 1]],
        "news": HOSTILE,
        "held": [[HOSTILE, 1, HOSTILE]],
        "text": HOSTILE,
        "about": HOSTILE,
        "glyphs": HOSTILE,
    }
    head = {
        "identity": HOSTILE,
        "leader": HOSTILE,
        "needs": 1,
        "needs_words": HOSTILE,
        "features": [HOSTILE],
        "not_ready": [HOSTILE],
    }
    tables = {name: Table({HOSTILE: row}, 1, {"lost": {HOSTILE: HOSTILE}, "bars": {HOSTILE: [1, 2]}}) for name in VIEWS}
    await recording(tab, event("snapshot", 1, picture(Frame(1.0, head, tables))))
    await tab.until("mooring.page.ended && document.querySelector('#queue .body').innerText.includes('onerror')")
    await tab.press("1")
    await tab.until("document.activeElement.closest('section')?.id === 'queue'")
    await tab.press("Enter")
    await tab.until("!document.getElementById('why').hidden")
    assert await tab.ask("document.querySelectorAll('img, section script').length") == 0
    assert await tab.ask("typeof window.hacked") == "undefined"
    # And should a script ever get in, the policy does not run it.
    await tab.ask(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.hacked = 2'})), 0"
    )
    assert await tab.ask("typeof window.hacked") == "undefined"


async def test_five_thousand_nodes_are_read_page_by_page(site, tab):
    """The list of all nodes scrolls to its end; only rows in sight exist, and only pages in sight were fetched."""

    def grow():
        for number in range(4976):
            site.stage.cluster.add_node(f"w{number:04d}", capacity="spot", rack=number // 40 + 10)

    site.do(grow)
    await tab.until("mooring.page.shown.tables.nodes.total === 5000", limit_s=60)
    await tab.press("3")
    await tab.until("document.querySelector('#nodes .body').innerText.includes('n1')")
    await tab.press("End")
    await tab.until("document.querySelector('#nodes .body').innerText.includes('w4975')")
    assert await tab.ask("document.querySelectorAll('#nodes .row').length") < 200
    assert await tab.heap_bytes() < 50_000_000


async def test_a_screen_reader_finds_its_way(tab):
    """Tables, rows and buttons have roles and names; one polite region speaks; nothing is told by colour alone."""
    assert await tab.ask("document.querySelectorAll('[aria-live]').length") == 1
    assert await tab.ask("document.documentElement.lang") == "en"
    tree = (await tab.call("Accessibility.getFullAXTree"))["nodes"]
    roles = {}
    for node in tree:
        if not node.get("ignored"):
            roles.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
    assert len(roles["table"]) == 5 and all(roles["table"])
    assert all(roles["button"]) and all(roles.get("searchbox", ["x"]))
    assert len(roles["columnheader"]) >= 25
    assert await tab.ask(
        "[...document.querySelectorAll('.body')].every(b => b.querySelectorAll('[tabindex=\"0\"]').length <= 1)"
    )


def test_a_recording_is_the_stream_itself():
    """What `curl` saves is what the page plays: snapshot first, numbered events, one JSON each."""
    text = event("snapshot", 1, picture(frame(1))).decode()
    name, number, data = text.strip().split("\n")
    assert (name, number) == ("event: snapshot", "id: 1")
    assert msgspec.json.decode(data.removeprefix("data: "))["head"]["identity"] == "recorded"
