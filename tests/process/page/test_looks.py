"""How the page looks: every moment, light and dark, wide and narrow, for eyes of every kind. Pictures are kept."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from mooring.process.http.frames import Frame
from tests.process.page import pictures

pytestmark = pytest.mark.e2e
OUTPUT = Path(__file__).parents[3] / "test-output"
SIZES = {
    "wide": (1440, 900), "laptop": (1280, 800), "narrow": (1100, 800), "half": (900, 800), "tablet": (701, 900),
    "phone": (390, 844),
}  # fmt: skip
MOMENTS = [pictures.busy, pictures.demo, pictures.long_queue, pictures.nothing]


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda m: m.__name__)
async def test_every_moment_fits_every_screen(easel, browser, moment: Callable[[], Frame]):
    """A desk, a laptop, a phone; day and night: nothing sticks out sideways, nothing is drawn for rows out of sight."""
    tab = await easel.show(moment())
    for name, (width, height) in SIZES.items():
        await tab.shape(width, height)
        for dark in (False, True):
            shade = "dark" if dark else "light"
            await tab.picture(OUTPUT / f"page-{moment.__name__}-{name}-{shade}.png", dark=dark)
        assert await tab.ask("document.documentElement.scrollWidth") <= width
        outside = await tab.ask(
            "[...document.querySelectorAll('header > *, #strip > *, #banner > *, #scrub > *, section')]"
            ".filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.id || e.className)"
        )
        assert outside == [], f"{outside} at {width} px"
        hidden = await tab.ask("['#map .legend', 'nav'].filter((q) => !document.querySelector(q).offsetParent)")
        assert hidden == [], f"{hidden} at {width} px: what colours mean, and the way to every view"
        assert await tab.ask("document.querySelectorAll('.row').length") < 200
    assert browser.complaints == []


async def test_states_and_moves_are_drawn_and_told_without_colour(easel):
    """Each state of a node has a word of its own where there is room; a move has two ends; a click opens what it hits."""
    tab = await easel.show(pictures.busy())
    said = "document.getElementById('map-now').textContent"
    for node, words in {
        "s6": "interruption notice, 1:12 left", "n7": "cordoned, by Mooring", "n11": "not Ready", "n12": "retiring",
        "n4": "reserved for a member", "n2": "demo-tikv-0 37 leaders, evicting", "n1": "ready, 3 pods",
    }.items():  # fmt: skip
        await tab.ask(f"mooring.map.select('{node}'), 0")
        assert words in await tab.ask(said), node
    assert await tab.ask("[...mooring.map.moves.keys()].sort().join()") == "40,41,57"
    for x, y, subject in (("r.w / 2", "8", "node/s6"), ("20", "28", "pod/shop/web-6f7b9c00d4-x0000")):
        await tab.ask(
            "(() => { const r = mooring.map.rect('s6'), c = mooring.map.top.getBoundingClientRect();"
            f"const at = {{ clientX: c.x + r.x + {x}, clientY: c.y + r.y + {y}, bubbles: true, pointerId: 1 }};"
            "mooring.map.top.setPointerCapture = () => {};"
            "for (const kind of ['pointerdown', 'pointerup']) mooring.map.top.dispatchEvent(new PointerEvent(kind, at)); })(), 0"
        )
        await tab.until(f"document.getElementById('why-h').innerText === '{subject}'")
        await tab.press("Escape")
    # What is looked for stands out; the rest steps back.
    await tab.press("/")
    await tab.type("demo-tikv-1")
    await tab.until("mooring.map.filter === 'demo-tikv-1'")


async def test_a_busy_day_shows_what_the_sketch_shows(easel):
    """Held on top with its times; bars with holders, hatched facts, outlined reserves, a ticked limit; one bad row."""
    frame = pictures.busy()
    frame.tables["queue"].rows["45"] = {"id": "45", "state": "?", "by": 5, "since": "never", "waiting_on": {}}
    frame.tables["racks"].total = len(frame.tables["racks"].rows)
    tab = await easel.show(frame)
    strip = await tab.ask("document.getElementById('strip').innerText.replace(/\\s+/g, ' ')")
    assert "▲ NEEDS YOU 1: pay/pay-0 blocked: pdb/pay allows 0, for 41:10, deadline in 19:00" in strip
    assert "kubectl -n pay get pdb pay WAITING 2 RUNNING 2" in strip, "the command to type stands beside it"
    assert await tab.ask("document.querySelector('header').innerText.includes('prod-tokyo')")
    assert await tab.ask("document.title") == "▲ 1 · Mooring"
    first = await tab.ask("document.querySelector('#queue .body .row').innerText.split('\\n')")
    assert first[0] == "▲ blocked" and "41:10" in first
    assert await tab.ask("document.querySelectorAll('#queue .row[data-state=\"?\"]').length") == 1
    bars = "[...document.querySelectorAll('#stores .bar-line')]"
    assert await tab.ask(f"{bars}[0].querySelectorAll('.seg.op0, .seg.op1').length") == 2
    assert await tab.ask(f"{bars}[1].querySelectorAll('.seg.fact').length") == 1
    assert await tab.ask(f"{bars}[1].querySelectorAll('.tick').length") == 1, "24 of 20: the limit is marked"
    assert await tab.ask(f"{bars}[2].querySelectorAll('.seg.reserved').length") == 1
    stores = await tab.ask("document.querySelector('#stores .body').innerText")
    timeline = await tab.ask("document.querySelector('#timeline .body').innerText.replace(/\\s+/g, ' ')")
    assert "▲ blocked ▸ pay/pay-0 goes on-demand n7" in timeline, "the timeline and the queue agree"
    assert "18/20" in stores and "0/20 +10 reserved" in stores, "numbers beside the picture, used and reserved apart"
    await tab.press("5")
    await tab.until("document.body.dataset.view === 'racks'")
    assert "! 1 not ready\u2002~ 1 leaving\u2002· 38 ready" in await tab.ask(
        "document.querySelector('#racks .body').innerText"
    )
    await tab.press("2")
    await tab.until("document.body.dataset.view === 'queue'")
    assert "handoff 6" in await tab.ask("document.getElementById('bars-words').textContent")
    # The one in the way is a link to its own why.
    await tab.ask("document.querySelector('#queue [data-about]').click(), 0")
    await tab.until("document.getElementById('why-h').innerText === 'operator/41'")
    # Of a region the command line knows nothing: its operator is asked. A move opens to its steps, and closes again.
    await tab.press("6")
    await tab.until("document.activeElement.closest('#timeline .row')")
    shown = "[...document.querySelectorAll('#timeline .body .row:not([hidden])')].length"
    before = await tab.ask(shown)
    await tab.press("ArrowRight")
    await tab.until(f"{shown} === {before} + 2")
    await tab.press("ArrowLeft")
    await tab.until(f"{shown} === {before}")
    await tab.ask("document.querySelector('#timeline .body .row').click(), 0")
    await tab.until("document.getElementById('why-h').innerText === 'operator/39'")


# What a text is drawn on: the first environment that is not clear, through every filter above it.
CONTRAST = """
(() => {
  const parse = (c) => (c.match(/[\\d.]+/g) ?? []).map(Number);
  const rgba = (c) => { const p = parse(c); return c.startsWith('color(') ? [...p.slice(0, 3).map((v) => v * 255), p[3] ?? 1] : [...p.slice(0, 3), p[3] ?? 1]; };
  const over = (top, below) => top.slice(0, 3).map((v, i) => v * top[3] + below[i] * (1 - top[3]));
  const environment = (e) => {
    const layers = [];
    for (let at = e; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => { const s = v / 255; return s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const grey = (rgb) => Array(3).fill(0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]);
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    const box = e.getBoundingClientRect();
    if (!walk.currentNode.data.trim() || !e.checkVisibility() || box.width < 2 || e.closest('.sr, noscript')) continue;
    let filtered = false;
    let see = 1;
    for (let at = e; at; at = at.parentElement) {
      filtered ||= getComputedStyle(at).filter.includes('grayscale');
      see *= Number(getComputedStyle(at).opacity);
    }
    let below = environment(e);
    let ink = over([...rgba(getComputedStyle(e).color).slice(0, 3), rgba(getComputedStyle(e).color)[3] * see], below);
    if (filtered) { below = grey(below); ink = grey(ink); }
    const [a, b] = [light(ink), light(below)].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), walk.currentNode.data.trim().slice(0, 30), e.className || e.id || e.tagName]);
  }
  return found.sort((x, y) => x[0] - y[0]);
})()
"""


async def test_every_word_can_be_read(easel):
    """At least 4.5 : 1 between every text and its environment: day and night, live, stale and grey, with why and help open."""
    tab = await easel.show(pictures.busy())
    for scheme in ("light", "dark"):
        await tab.prefers(color_scheme=scheme, reduced_motion="reduce")
        for state in ("live", "focused", "paused", "stale", "grey", "why", "keys"):
            if state == "focused":
                await tab.press("2")
                await tab.until("document.activeElement.closest('#queue .row')")
            if state == "paused":
                await tab.press("0")
                await tab.press(" ")
            if state in {"stale", "grey"}:
                # Time stands still but for us: nothing more is heard.
                await tab.ask("mooring.live.close(), mooring.page.heardAt = performance.now() - "
                              f"{7_000 if state == 'stale' else 25_000}, 0")  # fmt: skip
                await tab.until(f"document.getElementById('pulse').dataset.state === '{state}'")
                await tab.picture(OUTPUT / f"page-{state}-{scheme}.png", dark=scheme == "dark")
            if state == "why":
                await tab.ask("document.querySelector('#queue .body .row').click(), 0")
                await tab.until("!document.getElementById('why').hidden")
            if state == "keys":
                await tab.press("Escape")
                await tab.press("?")
                await tab.until("document.getElementById('keys').open")
            found = await tab.ask(CONTRAST)
            assert len(found) > 60, "too little was looked at"
            weak = [entry for entry in found if entry[0] < 4.5]
            assert weak == [], f"{scheme}, {state}: {weak[:5]}"
            if state == "paused":
                await tab.press(" ")
        tab = await easel.show(pictures.busy())


async def test_day_and_night_follow_the_system_and_nothing_moves_for_those_who_ask(easel):
    """prefers-color-scheme changes the environment; prefers-reduced-motion ends every transition and animation."""
    tab = await easel.show(pictures.busy())
    await tab.until("document.querySelector('.seg')")  # drawn: it is what moves
    environments, moving = [], []
    for scheme, motion in (("light", "no-preference"), ("dark", "reduce")):
        await tab.prefers(color_scheme=scheme, reduced_motion=motion)
        environments.append(await tab.ask("getComputedStyle(document.body).backgroundColor"))
        moving.append(await tab.ask(
            "[...document.querySelectorAll('*')].map((e) => getComputedStyle(e))"
            ".filter((s) => s.transitionDuration !== '0s' || s.animationName !== 'none').length"
        ))  # fmt: skip
    assert environments[0] != environments[1]
    assert moving[0] > 0 and moving[1] == 0


async def test_tab_goes_from_top_to_bottom_and_never_gets_caught(easel):
    """The views, the find box, the buttons, the strip; then the map, one row of each list, and the scrubber."""
    tab = await easel.show(pictures.busy())
    where = (
        "((e) => e.id || e.dataset.go || (e.classList.contains('stage') ? 'the map' : '') || (e.closest('.row') ? `row of ${e.closest('section').id}` : e.tagName))"
        "(document.activeElement)"
    )
    passed = []
    for _ in range(23):
        await tab.press("Tab")
        passed.append(await tab.ask(where))
        shown = await tab.ask("getComputedStyle(document.activeElement).outlineStyle")
        assert shown != "none" or passed[-1] == "BODY", f"no ring around {passed[-1]}"
    views = ["map", "queue", "stores", "nodes", "racks", "timeline"]
    expected = ["home", "all", *views, "find", "pause", "open", "help", "needs", "needs-copy", "the map"]
    expected += [f"row of {v}" for v in ("queue", "stores", "timeline")] + ["play", "speed", "INPUT", "go-live"]
    assert passed[: len(expected)] == expected


async def test_a_screen_reader_is_told_once_and_not_again(easel):
    """However often what needs a person changes, one polite region says one sentence in ten seconds."""
    tab = await easel.show(pictures.nothing())
    assert await tab.ask("document.querySelectorAll('[aria-live]').length") == 1
    assert await tab.ask("document.getElementById('live').getAttribute('aria-live')") == "polite"
    await tab.ask(
        "window.said = [], new MutationObserver(() => said.push([performance.now(), live.textContent]))"
        ".observe(live, { childList: true, characterData: true, subtree: true })"
    )
    for number in range(1, 7):
        frame = pictures.busy()
        frame.head |= {"needs": number, "needs_words": f"op {number} blocked: pdb/pay allows 0"}
        easel.still.frame = frame
        await tab.until(f"mooring.page.shown.head.needs === {number}")
    said = await tab.ask("said")
    assert said[0][1] == "1 needs you: op 1 blocked: pdb/pay allows 0"
    assert all(later[0] - earlier[0] >= 9_900 for earlier, later in itertools.pairwise(said)), said
    # Ten seconds later it says how things stand by then, once.
    await tab.ask("mooring.page.said.at -= 10_000, 0")
    last = "6 need you: op 6 blocked: pdb/pay allows 0"
    await tab.until(f"said.at(-1)[1] === '{last}'")
    seq = await tab.ask("mooring.page.shown.seq")
    await tab.until(f"mooring.page.shown.seq > {seq} + 1")
    assert [words for _, words in await tab.ask("said")].count(last) == 1


async def test_a_screen_reader_finds_its_way(easel):
    """Tables, rows, cells, buttons, boxes have roles and names; pictures have numbers beside them; one row per tab stop."""
    tab = await easel.show(pictures.busy())
    assert await tab.ask("document.documentElement.lang") == "en"
    tree = (await tab.call("Accessibility.getFullAXTree"))["nodes"]
    roles: dict[str, list[str]] = {}
    for node in tree:
        if not node.get("ignored"):
            roles.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
    assert len(roles["table"]) == 3 and all(roles["table"])
    assert len(roles["listbox"]) == 1 and roles["listbox"][0].startswith("Map of nodes.")
    assert roles["slider"] == ["Moment shown"]
    assert all(roles["button"]) and all(roles["searchbox"]) and all(roles["columnheader"])
    assert len(roles["columnheader"]) > 12 and len(roles["main"]) == len(roles["banner"]) == 1
    assert any("begun in the last hour: handoff 6" in text for text in roles["StaticText"])
    assert not any(set(text) & set("▁▂▃▄▅▆▇█") for text in roles["StaticText"]), "bars are for eyes"
    assert await tab.ask("document.querySelector('#queue .table').getAttribute('aria-rowcount')") == "6"
    assert await tab.ask(
        "[...document.querySelectorAll('.body')].filter(b => b.offsetParent).every(b => b.querySelectorAll('[tabindex=\"0\"]').length === 1)"
    )
    await tab.press("?")
    await tab.until("document.getElementById('keys').open")
    tree = (await tab.call("Accessibility.getFullAXTree"))["nodes"]
    dialogs = [n["name"]["value"] for n in tree if not n.get("ignored") and n["role"]["value"] == "dialog"]
    assert dialogs == ["Keys"]
