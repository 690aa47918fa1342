"""The page at the size we promise: 5,000 nodes, 150,000 pods, changing all the while, in a real tab."""

import asyncio
from collections import Counter
from pathlib import Path

import aiohttp
import pytest

from mooring.capabilities.handoff.requests import RESTART
from mooring.core.model.kinds import Kind
from tests.process.page import big

TAB_BYTES = 200_000_000
OUTPUT = Path(__file__).parents[3] / "test-output"


@pytest.fixture
def large(site):
    """The site, grown to full size, with pods and nodes that never stand still."""
    world = site.stage.rig.leader().world
    site.do(lambda: big.fill(world))
    churn = site.do(lambda: big.Churn(world))
    task = site.do(lambda: asyncio.get_running_loop().create_task(churn.run(every_s=1.0)))
    for name in ("demo-tikv-0", "demo-tikv-1"):
        site.do(lambda n=name: site.stage.cluster.annotate(Kind.POD, "tidb", n, {RESTART: ""}))
    site.churn = churn
    yield site
    site.do(task.cancel)


async def listen(url: str, events: int) -> dict[bytes, bytes]:
    """What one viewer is sent: id → the bytes of the event."""
    got: dict[bytes, bytes] = {}
    async with aiohttp.ClientSession() as session, session.get(f"{url}/api/v1/stream") as stream:
        rest = b""
        async for chunk in stream.content.iter_any():
            *whole, rest = (rest + chunk).split(b"\n\n")
            got.update({event.split(b"\n")[1]: event for event in whole})
            if len(got) >= events:
                break
    return got


@pytest.mark.e2e
async def test_a_tab_stays_small_through_every_view(large, browser):
    """150,000 pods on 5,000 nodes with live changes: five views, all nodes scrolled, find and why, in 200 MB."""
    tab = await browser.tab(large.url)
    await tab.until("mooring.page.shown.tables.nodes.total === 5000", limit_s=60)
    began = large.churn.beats
    heaps, drawn = [], []

    async def look() -> None:
        heaps.append(await tab.heap_bytes())
        drawn.append(await tab.ask("document.querySelectorAll('.row').length"))

    await look()
    await tab.picture(OUTPUT / "page-large.png")
    for number, view in enumerate(("map", "queue", "stores", "nodes", "racks", "timeline"), 1):
        await tab.press(str(number))
        await tab.until(f"document.activeElement.closest('section')?.id === '{view}'")
        await look()
    # Every page of the whole list comes into sight once; only a few are kept.
    await tab.press("4")
    for page in range(25):
        await tab.ask(f"document.querySelector('#nodes .body').scrollTop = {page} * 200 * 26, 0")
        await tab.until(
            "![...document.querySelectorAll('#nodes .row:not([hidden]) .cell:first-child')]"
            ".some((c) => c.innerText === '…')"
        )
    await tab.picture(OUTPUT / "page-large-nodes.png")
    await look()
    # What is looked for is looked for in all of them, not in the rows of a frame.
    await tab.press("/")
    await tab.type("rack 217")
    await tab.until("document.querySelector('#nodes .table').getAttribute('aria-rowcount') === '41'")
    await tab.press("Escape")
    for words, expected in (("checkout-service-123", "pod/team-23/"), ("ip-10-3-14-7", "node/ip-10-3-14-7")):
        await tab.press("/")
        await tab.type(words)
        await tab.until(f"document.getElementById('found').innerText.includes('{expected}')")
        await tab.press("Enter")
        await tab.until("document.getElementById('why-text').innerText.includes('as of')")
        await look()
        await tab.press("Escape")
        await tab.press("Escape")
        await tab.until("mooring.page.filter === ''")
    # Seven more viewers: each tick is built once, and all are sent the very same bytes.
    built, seq = large.hub.built, large.hub.seq
    heard = await asyncio.gather(*(listen(large.url, 4) for _ in range(7)))
    assert large.hub.built - built == large.hub.seq - seq, "a frame was built for somebody alone"
    sent = Counter(event for got in heard for event in got.values())
    kinds = [(event.split(b"\n")[0], event.split(b"\n")[1]) for event in sent]
    assert len(kinds) == len(set(kinds)), "one frame was sent to two viewers in different words"
    assert max(sent.values()) > 1, "they did not watch at the same time"
    await look()
    assert large.churn.beats > began + 3, "the world stood still"
    # The map moves while it is looked at: frames come, and what is drawn is what has changed.
    await tab.press("1")
    await tab.until("document.activeElement.classList.contains('stage')")
    assert await tab.ask("mooring.map.nodes.size") == 5000
    await tab.ask("mooring.map.zoom(8, 200, 200), 0")
    await look()
    await tab.picture(OUTPUT / "page-large-closer.png")
    assert max(heaps) < TAB_BYTES / 4, heaps
    assert await browser.renderer_bytes() < TAB_BYTES
    assert max(drawn) < 400, drawn
    assert browser.complaints == []
