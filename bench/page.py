"""What the page costs the loop that decides, its viewers and its tabs, at 5,000 nodes and 150,000 pods."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, NamedTuple

import aiohttp
from aiohttp import web

from mooring.core.engine.engine import Engine
from mooring.core.model.operator import Operator, Step, StepKind
from mooring.core.queue import Queue, live_settings
from mooring.core.world.world import World
from mooring.process.http.frames import Framer
from mooring.process.http.page import Page
from mooring.process.http.stream import difference, event, picture
from mooring.process.settings.config import Config

TICKS = 12
VIEWERS = 8


def _replica(nodes: int, pods: int, waiting: int = 0) -> Any:
    from tests.process.page import big

    world = World()
    big.fill(world, nodes, pods)
    engine = Engine(world, Queue(live_settings()), [])
    for number in range(waiting):
        operator = Operator(
            id=str(number + 1),
            source="spot",
            kind="replace-pod",
            subject=f"pod/shop/web-{number}",
            claims=(f"pod/shop/web-{number}",),
            steps=(Step(StepKind.ADD_REPLACEMENT),),
            phases=({f"workload/shop/web-{number % 400}": 1},),
            deadline=1e10,
        )
        engine.queue.submit(operator)
        engine.waiting[operator.id] = operator
    return SimpleNamespace(
        engine=engine,
        world=world,
        identity="bench",
        shell=SimpleNamespace(now=time.time, backlog=0),
        elector=SimpleNamespace(holder="bench"),
        config=Config(context="bench"),
        informers=SimpleNamespace(informers=()),
        not_ready=list,
    )


async def _frames(replica: Any, name: str) -> None:
    framer = Framer(lambda: replica)
    longest, done = 0.0, False

    async def probe() -> None:
        nonlocal longest
        while not done:
            began = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - began)

    task = asyncio.create_task(probe())
    first = await framer.build()
    longest = 0.0
    began = time.thread_time()
    for _ in range(TICKS):
        frame = await framer.build()
    took = time.thread_time() - began
    done = True
    await task
    assert first is not None
    assert frame is not None
    whole, delta = event("snapshot", 1, picture(frame)), event("delta", 2, difference(first, frame))
    print(f"{name:<22}{took / TICKS * 1e3:8.1f} ms a tick, walking every 4th   target  50 ms")
    print(f"  longest slice       {longest * 1e3:8.1f} ms of CPU at a time               target  20 ms")
    print(f"  snapshot {len(whole) / 1024:.0f} KiB, delta of nothing new {len(delta)} bytes")


# ── Viewers ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def _serve(replica: Any) -> tuple[Page, web.AppRunner, str]:
    page = Page(lambda: replica)
    app = web.Application()
    page.add_to(app)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return page, runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


def _elsewhere(work: Callable[[], Coroutine[Any, Any, Any]]) -> threading.Thread:
    """Readers live in a thread of their own: their cost is not the server's."""
    thread = threading.Thread(target=lambda: asyncio.run(work()), daemon=True)
    thread.start()
    return thread


async def _viewers(replica: Any) -> None:
    from tests.process.page import big

    churn, costs = big.Churn(replica.world), []
    for viewers in (1, VIEWERS):
        page, runner, url = await _serve(replica)
        heard = [0] * viewers

        async def read(number: int, url: str = url, heard: list[int] = heard) -> None:
            async with aiohttp.ClientSession() as session, session.get(f"{url}/api/v1/stream") as stream:
                last = b""
                async for chunk in stream.content.iter_any():
                    heard[number] += (last + chunk).count(b"\n\n") - last.count(b"\n\n")
                    last = chunk[-1:]
                    if heard[number] >= TICKS:
                        return

        async def all_of_them(viewers: int = viewers) -> None:
            await asyncio.gather(*(read(number) for number in range(viewers)))

        thread = _elsewhere(all_of_them)
        while page.hub.viewers < viewers:
            await asyncio.sleep(0.05)
        began, built, changing = time.thread_time(), page.hub.built, 0.0
        while thread.is_alive():
            before = time.thread_time()
            churn.beat()
            changing += time.thread_time() - before
            await asyncio.sleep(0.25)
        frames = page.hub.built - built
        costs.append((time.thread_time() - began - changing) / max(1, frames))
        print(f"{viewers} viewer{'s' if viewers > 1 else ' '} {costs[-1] * 1e3:19.1f} ms of the loop a frame, sockets "
              f"included; {frames} frames built, {sum(heard)} sent")  # fmt: skip
        await runner.cleanup()
    print(f"  {VIEWERS} viewers : 1       {costs[1] / costs[0]:8.2f} times the cost of one")


# ── A tab ─────────────────────────────────────────────────────────────────────────────────────────────────────────


#: A hundred arrows between tiles, kept moving; resolves to frames drawn and the seconds it took.
FRAMES = """new Promise((done) => {
  const ids = [...mooring.map.nodes.keys()], arrows = () => {
    for (let k = 0; k < 100; k++) mooring.map.moves.set(`b${k}`, { since: performance.now(), row:
      ["pod", "a/b", ids[(k * 37) % ids.length], ids[(k * 91 + 7) % ids.length], "moving", ""] });
    mooring.map._later();
  };
  const timer = setInterval(arrows, 100), began = performance.now(), before = mooring.map.frames;
  arrows();
  const end = () => done([mooring.map.frames - before, (performance.now() - began) / 1000]);
  setTimeout(() => { clearInterval(timer); end(); }, 5000);
})"""


class TabCost(NamedTuple):
    #: First frame drawn after so many ms; MB after every view was open.
    first_ms: float
    heap_mb: float
    renderer_mb: float
    #: Of the map, with arrows: as it was, and what one costs.
    frames_per_s: float
    cpu_ms: float


async def _tab(address: str, replica: Any) -> TabCost:
    from tests.process.page import big
    from tests.process.page.chromium import Chromium

    _, runner, url = await _serve(replica)
    churn = big.Churn(replica.world, changes=50)
    changing = asyncio.create_task(churn.run(0.5))
    async with Chromium(address) as browser:
        tab = await browser.tab(url)
        await tab.until("performance.getEntriesByName('first frame').length", limit_s=60)
        first = await tab.ask("performance.getEntriesByName('first frame')[0].startTime")
        heap = 0
        for key in "234561":
            await tab.press(key)
            await asyncio.sleep(0.6)
            heap = max(heap, await tab.heap_bytes())
        before = await browser.cpu_s()
        drawn, took = await tab.ask(FRAMES)
        cpu_ms = 1e3 * (await browser.cpu_s() - before) / max(1, drawn)
        heap = max(heap, await tab.heap_bytes())
        renderer = await browser.renderer_bytes()
    changing.cancel()
    await runner.cleanup()
    return TabCost(float(first), heap / 1e6, renderer / 1e6, drawn / took, cpu_ms)


async def _tabs(large: Any) -> None:
    from tests.process.page.chromium import NoBrowser, Program

    try:
        program = Program()
    except NoBrowser as error:
        print(f"tab                   not measured: {error}")
        return
    small = _replica(24, 100)
    await _tab(program.address, small)  # the first tab of a browser pays for all
    few = await _tab(program.address, small)
    many = await _tab(program.address, large)
    program.close()
    rate, load = f"{many.frames_per_s:8.0f}", os.getloadavg()[0]
    slower = many.first_ms / few.first_ms
    print(f"the map               {rate} frames a second, 100 arrows, 100 changes a second; load {load:.1f}")
    print(f"  CPU a frame         {many.cpu_ms:8.1f} ms, changes included                 target  33 ms: 30 a second")
    print(
        f"a tab                 {many.heap_mb:8.1f} MB heap, {many.renderer_mb:.0f} MB in all           target 200 MB"
    )
    print(f"  first frame drawn   {many.first_ms:8.0f} ms after opening, {slower:.1f} times that of 24 nodes")


def main() -> None:
    from tests.process.page import big

    large = _replica(big.NODES, big.PODS)
    asyncio.run(_frames(large, "page frame"))
    asyncio.run(_frames(_replica(24, 100, waiting=10_000), "10,000 in the queue"))
    asyncio.run(_viewers(large))
    asyncio.run(_tabs(large))


if __name__ == "__main__":
    main()
