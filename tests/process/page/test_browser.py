"""The page in a real headless Chromium: every view, every key, many tabs, a restart, a long day, hostile names."""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from mooring.capabilities.handoff.requests import RESTART
from mooring.core.model.kinds import Kind
from mooring.process.http.frames import Frame, FrameTable
from mooring.process.http.stream import difference, event, picture
from tests.process.page.chromium import Tab

pytestmark = pytest.mark.e2e
OUTPUT = Path(__file__).parents[3] / "test-output"
VIEWS = ("map", "queue", "stores", "nodes", "racks", "timeline")
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'


def ask_for_two_restarts(site) -> None:
    """The second waits for the first however long it is looked at: one leader of that does not leave."""
    site.stage.cluster.pd["tidb", "demo"].stick("demo-tikv-0")
    for name in ("demo-tikv-0", "demo-tikv-1"):
        site.stage.cluster.annotate(Kind.POD, "tidb", name, {RESTART: ""})


async def recording(tab: Tab, text: bytes, speed: str = "Infinity") -> None:
    """Let the page play these bytes as if a person had opened the file."""
    await tab.ask(f"mooring.play(new File([{json.dumps(text.decode())}], 'day.sse'), {speed})")


async def test_every_view_shows_what_runs_and_pictures_are_kept(site, browser, tab):
    """Queue, stores, nodes, racks and timeline show a restart and the one behind it, without one script error."""
    site.do(lambda: ask_for_two_restarts(site))
    # One frame is looked at, however slow the machine is: the page is paused as soon as it shows both.
    await tab.until(
        "mooring.page.shown.head.waiting === 1"
        " && document.querySelector('#queue .body').innerText.includes('evicting/tidb/demo 1/1')"
        " && document.querySelector('#stores .body').innerText.includes('10/20') && (mooring.page.paused = true)"
    )
    queue = await tab.ask("document.querySelector('#queue .body').innerText")
    assert "● moving" in queue and "○ waiting" in queue
    assert await tab.ask("document.querySelectorAll('#stores .seg.op0').length") >= 1
    assert "on-demand 12 │ spot 12" in await tab.ask("document.getElementById('nodes-sum').innerText")
    assert await tab.ask("document.querySelector('#timeline .body').innerText.includes('hands over its leaders')")
    assert await tab.ask("mooring.map.nodes.size") == 24
    assert "24 nodes" in await tab.ask("document.getElementById('map-sum').innerText")
    await tab.ask("(mooring.page.paused = false)")
    await tab.until("document.getElementById('pulse').innerText.startsWith('LIVE ')")
    await tab.picture(OUTPUT / "page-light.png")
    await tab.picture(OUTPUT / "page-dark.png", dark=True)
    for number, view in enumerate(VIEWS, 1):
        await tab.press(str(number))
        await tab.until(f"document.body.dataset.view === '{view}'")
        await tab.picture(OUTPUT / f"page-{number}-{view}.png")
        if view == "racks":
            assert "8 ready" in await tab.ask("document.querySelector('#racks .body').innerText")
    assert browser.complaints == []
    fetched = await tab.ask("performance.getEntriesByType('resource').map((r) => new URL(r.name).origin)")
    assert set(fetched) == {site.url} and len(fetched) > 8, "something came from elsewhere"


async def test_back_closes_the_panel_and_goes_to_the_view_before(site, browser, tab):
    """The browser's Back undoes a step on the page; what is not found is asked for once, not for ever."""
    await tab.press("2")
    await tab.until("document.body.dataset.view === 'queue'")
    await tab.ask(
        "(window.asked = 0, window.fetch = ((f) => (...a) => { asked += String(a[0]).includes('/say/'); return f(...a); })(fetch))"
    )
    await tab.ask("(location.hash = '#why/pod/tidb/nobody')")
    await tab.until("document.getElementById('why-text').innerText.includes('not found')")
    frame = await tab.ask("mooring.page.shown.asOf")
    await tab.until(f"mooring.page.shown.asOf > {frame} + 5")
    assert await tab.ask("asked") == 1
    await tab.ask("history.back()")
    await tab.until("document.getElementById('why').hidden && document.body.dataset.view === 'queue'")
    await tab.ask("history.back()")
    await tab.until("document.body.dataset.view === 'all'")
    assert browser.complaints in ([], [one for one in browser.complaints if "404" in str(one)])


# As the help names them → as the browser does.
NAMES = {"Esc": "Escape", "↑": "ArrowUp", "↓": "ArrowDown", "←": "ArrowLeft", "→": "ArrowRight", "Space": " "}


async def test_every_key_does_what_the_help_says(site, browser, tab):
    """Each key that the help names is pressed, and does what it says there; none needs a mouse."""
    await tab.ask("window.pressed = [], addEventListener('keydown', (e) => pressed.push(e.key), true)")
    for number, view in enumerate(VIEWS, 1):
        await tab.press(str(number))
        await tab.until(f"document.body.dataset.view === '{view}'")
        await tab.until(f"document.activeElement.closest('section')?.id === '{view}'")
    await tab.press("Escape")
    await tab.until("document.body.dataset.view === 'all'")
    await tab.press("5")
    await tab.press("0")
    await tab.until("document.body.dataset.view === 'all'")
    await tab.press("?")
    await tab.until("document.getElementById('keys').open")
    await tab.picture(OUTPUT / "page-keys.png")
    named = await tab.ask("[...document.querySelectorAll('#keys dt')].flatMap((dt) => dt.innerText.split(/\\s+/))")
    await tab.press("Escape")
    await tab.until("!document.getElementById('keys').open && !document.activeElement.closest('dialog')")
    await tab.press(" ")
    await tab.until("document.getElementById('pulse').innerText.startsWith('PAUSED')")
    stood = await tab.ask("mooring.page.shown.seq")
    await tab.until(f"mooring.page.latest.seq > {stood} + 1")
    assert await tab.ask("mooring.page.shown.seq") == stood
    assert await tab.ask("document.getElementById('pause').getAttribute('aria-pressed')") == "true"
    await tab.press(" ")
    await tab.until(f"mooring.page.shown.seq > {stood}")
    await map_keys(tab)
    await scrubber_keys(tab)
    # All nodes, fetched by the page: up and down, far and near.
    await tab.press("4")
    await tab.until("document.querySelector('#nodes .body').innerText.includes('on-demand')")
    await tab.until("document.activeElement.closest('#nodes .row')")
    for key, where in (
        ("ArrowDown", 1), ("j", 2), ("k", 1), ("ArrowUp", 0), ("PageDown", 20), ("PageUp", 0), ("End", 23), ("Home", 0),
    ):  # fmt: skip
        await tab.press(key)
        await tab.until(f"document.activeElement.index === {where}")
    # Enter asks why; Esc gives the focus back.
    await tab.press("j")
    await tab.press("Enter")
    await tab.until("document.getElementById('why-text').innerText.includes('stable')")
    # What it is about stands out, in its row and on the map.
    await tab.until("document.querySelector('#nodes .row.lit')?.index === 1")
    assert await tab.ask("`node/${mooring.map.lit}` === document.getElementById('why-h').textContent")
    await tab.press("Escape")
    await tab.until("document.getElementById('why').hidden && document.activeElement.index === 1")
    await tab.until("!document.querySelector('.row.lit') && mooring.map.lit === ''")
    # Find: filters the views, names the filter where nothing is left, and opens what it found.
    await tab.press("/")
    await tab.until("document.activeElement.id === 'find'")
    await tab.type("demo-tikv-2")
    await tab.until("document.getElementById('found').innerText.includes('pod/tidb/demo-tikv-2')")
    assert "store/tidb/demo/" in await tab.ask("document.getElementById('found').innerText")
    # A node is found by a pod on it; where nothing is left, the view names the filter.
    await tab.until("document.querySelector('#nodes .table').getAttribute('aria-rowcount') === '2'")
    await tab.until("document.querySelector('#racks .nothing').textContent.includes('nothing here matches')")
    await tab.press("ArrowDown")
    await tab.press("ArrowDown")
    assert await tab.ask("document.activeElement.innerText.startsWith('store/')")
    await tab.press("ArrowUp")
    await tab.press("ArrowUp")
    assert await tab.ask("document.activeElement.id") == "find"
    await tab.press("Enter")
    await tab.until("document.getElementById('why-h').innerText === 'pod/tidb/demo-tikv-2'")
    await tab.press("Escape")
    await tab.press("Escape")
    await tab.until("mooring.page.filter === ''")
    # A recording is chosen as any file is.
    await tab.call("Page.setInterceptFileChooserDialog", enabled=True)
    await tab.press("o")
    async with asyncio.timeout(60):
        while not browser.choosers:
            await asyncio.sleep(0.05)
    pressed = set(await tab.ask("pressed"))
    assert {NAMES.get(key, key) for key in named} <= pressed, "the help names a key that nobody has tried"


async def map_keys(tab: Tab) -> None:
    """On the map: to the neighbours and back, closer, why, and the focus is where it was."""
    await tab.press("1")
    await tab.until("document.activeElement.classList.contains('stage') && mooring.map.selected === 'n1'")
    for key, where in (
        ("ArrowRight", "n2"),
        ("ArrowLeft", "n1"),
        ("ArrowDown", "n5"),
        ("ArrowUp", "n1"),
        ("End", "s12"),
    ):
        await tab.press(key)
        await tab.until(f"mooring.map.selected === '{where}'")
    assert (await tab.ask("document.getElementById('map-now').textContent")).startswith("s12, rack 3, spot, ready, ")
    await tab.press("Home")
    await tab.press("+")
    await tab.until("mooring.map.view.k > 1.5")
    await tab.press("-")
    await tab.until("mooring.map.view.k === 1")
    await tab.press("Enter")
    await tab.until("document.getElementById('why-h').innerText === 'node/n1'")
    await tab.press("Escape")
    await tab.until("document.activeElement.classList.contains('stage')")


async def scrubber_keys(tab: Tab) -> None:
    """Back and forth through what was, played, and live again; never LIVE while it is not."""
    await tab.press("[")
    await tab.until("document.getElementById('pulse').innerText.startsWith('AS OF ')")
    then = await tab.ask("mooring.page.shown.seq")
    await tab.press("[")
    await tab.until(f"mooring.page.shown.seq === {then} - 1")
    await tab.press("]")
    await tab.until(f"mooring.page.shown.seq === {then}")
    assert "LIVE" not in await tab.ask("document.getElementById('pulse').innerText")
    await tab.press("p")
    await tab.until(f"mooring.page.shown.seq > {then} + 1")
    await tab.press(".")
    await tab.until("document.getElementById('pulse').innerText.startsWith('LIVE ')")


async def test_why_has_the_words_of_the_command_line(site, tab):
    """Enter on a row of any view shows what `mooring why` prints, line for line; a rack lists its machines."""
    site.do(lambda: ask_for_two_restarts(site))
    await tab.until("mooring.page.shown.head.waiting === 1")
    for key, steps in (("2", 1), ("3", 0), ("4", 3), ("6", 0)):
        await tab.press(key)
        await tab.until(f"document.activeElement.closest('section')?.id === '{VIEWS[int(key) - 1]}'")
        await tab.until("document.activeElement.closest('.row')?.innerText.length > 5")
        for _ in range(steps):
            await tab.press("ArrowDown")
        await tab.press("Enter")
        await tab.until("document.getElementById('why-text').innerText.includes('as of')")
        command = (await tab.ask("document.getElementById('why-cmd').innerText")).split()
        assert command[:3] == ["$", "mooring", "why"]
        shown = await same_words(site, tab, command[2:])
        if key == "2":
            assert command[3] == "operator/2" and "op 1" in shown[0]
            await tab.picture(OUTPUT / "page-why.png")
            # What it names can be asked in turn.
            await tab.ask("document.querySelector('#why-more button').click(), 0")
            await tab.until("document.getElementById('why-h').innerText === 'operator/1'")
        await tab.press("Escape")
    await tab.press("5")
    await tab.until("document.activeElement.closest('section')?.id === 'racks'")
    await tab.press("Enter")
    await tab.until("document.getElementById('why-text').innerText.startsWith('rack 1: 8 nodes: 8 ready.')")
    await tab.ask("document.querySelector('#why-more button').click(), 0")
    await tab.until("document.getElementById('why-text').innerText.includes('as of')")
    assert (await tab.ask("document.getElementById('why-h').innerText")).startswith("node/")


async def same_words(site, tab: Tab, command: list[str]) -> list[str]:
    """What the panel shows, once the command line has said the same. Work goes on between two looks: so a few are taken."""
    for _ in range(12):
        ran = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "mooring", *command, "--server", site.url],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "COLUMNS": "1000"},  # the page folds lines by itself
        )
        shown = await tab.ask("document.getElementById('why-text').textContent")
        # Seconds and counts differ from look to look; every other character is the same.
        if re.sub(r"\d+(\.\d+)?", "N", shown) == re.sub(r"\d+(\.\d+)?", "N", ran.stdout):
            return shown.splitlines()
    raise AssertionError(f"the page says\n{shown}\nand the command line\n{ran.stdout}")


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


async def test_a_tab_that_nobody_sees_asks_for_nothing(site, browser, tab):
    """Hidden behind another, a tab gives its stream back; seen again, it begins with a snapshot."""
    seq = await tab.ask("mooring.page.shown.seq")
    await tab.until(f"mooring.page.shown.seq > {seq}")
    front = await browser.tab("about:blank", on_top=True, ours=False)
    await tab.until("document.hidden")
    async with asyncio.timeout(60):
        while site.hub.viewers:
            await asyncio.sleep(0.05)
    built = site.hub.built
    await front.close()
    await tab.call("Page.bringToFront")  # which one comes next is the browser's to choose
    await tab.until("!document.hidden")
    await tab.until(f"mooring.page.shown.seq > {built}")
    await tab.until("document.getElementById('pulse').dataset.state === 'live'")
    assert site.hub.viewers == 1


async def test_stale_data_looks_stale_and_a_restarted_server_is_found_again(site, browser, tab):
    """The server goes: what was seen stays, with its age; badge after 5 s, grey after 20 s; back, a fresh snapshot."""
    site.do(site.go_down)
    await tab.ask("mooring.page.heardAt -= 6000, 0")
    await tab.until("document.getElementById('pulse').dataset.state === 'stale'")
    assert await tab.ask("mooring.page.shown.tables.stores.order.length") == 3
    await tab.ask("mooring.page.heardAt -= 20000, 0")
    await tab.until("document.body.classList.contains('grey')")
    await tab.until("document.getElementById('pulse').innerText.endsWith(' s old: Mooring does not answer')")
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
    assert "Mooring gets no answer from the API server" in await tab.ask("document.getElementById('pulse').innerText")
    assert "demo-tikv-0" in await tab.ask("document.querySelector('#stores .body').innerText")


def frame(number: int, rows: int = 12) -> Frame:
    """One moment of a busy day: every row changes."""
    tables = {
        name: FrameTable(
            {f"{k}": {"id": f"{k}", "state": "moving", "what": f"{number}", "at": number} for k in range(rows)}, rows
        )
        for name in ("queue", "stores", "nodes", "racks")
    }
    entries = {
        f"{k}": {"id": f"{k}", "at": number, "op": f"{k}", "state": "finished", "words": f"{k}", "steps": []}
        for k in range(number + 60, number, -1)
    }
    return Frame(
        float(number), {"needs": 0, "identity": "recorded"}, {**tables, "timeline": FrameTable(entries, number)}
    )


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
        "waiting_on": HOSTILE,
    }
    row |= {
        "by": [HOSTILE],
        "pods": [[HOSTILE, 1]],
        "news": HOSTILE,
        "used_by": [[HOSTILE, 1, HOSTILE]],
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
    map_row = [HOSTILE, HOSTILE, HOSTILE, HOSTILE, 1.0, 50, "0", [HOSTILE], [[HOSTILE, HOSTILE, 1, HOSTILE]]]
    act = {"number": 1, "of": 2, "title": HOSTILE, "command": HOSTILE, "said": HOSTILE}
    head |= {"cluster": HOSTILE, "needs_do": HOSTILE, "act": act}
    row |= {"words": HOSTILE, "steps": [[1.0, HOSTILE, HOSTILE]]}
    tables = {
        name: FrameTable({HOSTILE: row}, 1, {"lost": {HOSTILE: HOSTILE}, "bars": {HOSTILE: [1, 2]}}) for name in VIEWS
    }
    tables |= {
        "map": FrameTable({HOSTILE: map_row}, 1, {HOSTILE: 1}),
        "moves": FrameTable({HOSTILE: [HOSTILE] * 6, "2": ["pod", HOSTILE, HOSTILE, HOSTILE, "moving", HOSTILE]}, 2),
    }
    await recording(tab, event("snapshot", 1, picture(Frame(1.0, head, tables))))
    await tab.until("mooring.page.ended && document.querySelector('#queue .body').innerText.includes('onerror')")
    await tab.press("2")
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


async def test_a_recording_is_the_stream_itself(site, tab, browser, tmp_path):
    """What `curl` saves, opened as a file while no server answers, shows the same queue, stores and timeline."""
    site.do(lambda: ask_for_two_restarts(site))
    await tab.until("mooring.page.shown.head.waiting === 1")
    saved = b""
    async with aiohttp.ClientSession() as session, session.get(f"{site.url}/api/v1/stream") as stream:
        async for chunk in stream.content.iter_any():
            saved += chunk
            if saved.count(b"event: delta") >= 3:
                break
    assert saved.startswith(b"event: snapshot\nid: ")
    file = tmp_path / "day.sse"
    # Cut off in the middle of a line, as a recording that was stopped is.
    file.write_bytes(saved[: saved.rindex(b"\n\n") + 2] + b"event: delta\nid: 9")
    await tab.call("Page.setInterceptFileChooserDialog", enabled=True)
    await tab.press("o")
    async with asyncio.timeout(60):
        while not browser.choosers:
            await asyncio.sleep(0.05)
    site.do(site.go_down)
    node = browser.choosers[0]["backendNodeId"]
    await tab.call("DOM.setFileInputFiles", files=[str(file)], backendNodeId=node)
    await tab.until("mooring.page.ended && mooring.page.recording.frames >= 4")
    assert (await tab.ask("document.getElementById('pulse').innerText")).startswith("RECORDING day.sse, ")
    assert "○ waiting" in await tab.ask("document.querySelector('#queue .body').innerText")
    assert "10/20" in await tab.ask("document.querySelector('#stores .body').innerText")
    assert "hands over" in await tab.ask("document.querySelector('#timeline .body').innerText")
    assert await tab.ask("mooring.map.nodes.size") == 24
    # Any frame of it, by the scrubber.
    await tab.ask("mooring.scrubber.seek(0), 0")
    await tab.until("!mooring.page.ended")
    await tab.ask("mooring.scrubber.seek(99), 0")
    await tab.until("mooring.page.ended")
    await tab.press("2")
    await tab.until("document.activeElement.closest('#queue .row')")
    await tab.press("Enter")
    await tab.until("document.getElementById('why-text').innerText.includes('what was shown then')")
    await tab.press("Escape")
    site.do(site.come_up)
    await tab.press("o")
    await tab.until("document.getElementById('pulse').dataset.state === 'live'")


async def test_off_loopback_the_page_asks_for_the_token(site, browser):
    """No frame without it; a wrong one is asked for again; with it everything works, and other tabs are asked too."""
    site.do(site.go_down)
    site.do(lambda: site.come_up("hush"))
    tab = await browser.tab(site.url)
    await tab.until("document.getElementById('token').open && document.activeElement.id === 'token-value'")
    assert not await tab.ask("mooring.page.heard")
    await tab.picture(OUTPUT / "page-token.png")
    for given in ("wrong", "hush"):
        await tab.type(given)
        await tab.press("Enter")
        # After a wrong one it is closed for a moment only.
        state = "" if given == "wrong" else "!"
        await tab.until(
            f"sessionStorage.getItem('mooring-token') === '{given}' && {state}document.getElementById('token').open"
        )
    await tab.until("document.getElementById('pulse').dataset.state === 'live'")
    # Another tab gets its frames from the first; what it asks itself wants the token too.
    other = await browser.tab(site.url)
    await other.until("mooring.page.heard")
    await other.press("/")
    await other.type("demo")
    await other.until("document.getElementById('token').open")


async def test_what_one_stands_on_stays_under_the_finger(tab, browser):
    """The order changes while somebody reads: the focus goes with its row, and Enter opens what was read."""

    def moment(number: int, order: str) -> bytes:
        rows = {
            k: {"id": k, "state": "waiting", "op": k, "what": f"work {k}", "subject": f"operator/{k}"} for k in order
        }
        tables = {name: FrameTable() for name in VIEWS} | {"queue": FrameTable(rows, len(rows))}
        return event("snapshot", number, picture(Frame(float(number), {"needs": 0}, tables)))

    await recording(tab, moment(1, "123456"), "1")
    await tab.press("2")
    await tab.until("document.activeElement.index === 0 && document.activeElement.innerText.includes('work 1')")
    await tab.press("j")
    for order, index in (("213456", 0), ("345612", 5), ("56", 1)):
        await recording(tab, moment(2, order), "1")
        await tab.until(f"document.activeElement.index === {index}")
    assert "work 6" in await tab.ask("document.activeElement.innerText"), "it has gone: the nearest is next"
    await tab.press("Enter")
    await tab.until("document.getElementById('why-h').innerText === 'operator/6'")
    assert (await tab.ask("location.hash")) == "#why/operator/6"
    assert browser.complaints == []
