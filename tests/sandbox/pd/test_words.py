"""The sandbox's PD speaks as the real one does: one walk of requests, recorded on a real 8.5.7, walked again."""

import asyncio
import json
import re
from pathlib import Path

import aiohttp
from aiohttp import web

from mooring_lab.cluster.clock import Timeline, WallDriver
from mooring_lab.cluster.pd import PdSettings, SandboxPd
from mooring_lab.cluster.pd.http import pd_app

RECORDING = Path(__file__).parent / "recordings" / "pd-8.5.7-walk.jsonl"
#: Of an operator's print: when, and the region's epoch.
FLEETING = re.compile(r"(createAt|startAt):[^,]*|region:\d+\(\d+, \d+\)")


def lasting(said):
    """The words without what differs each time: moments, epochs, the order of names."""
    try:
        value = json.loads(said)
    except ValueError:
        return said.strip()
    if isinstance(value, str):
        return FLEETING.sub("…", value)
    if isinstance(value, list) and all(isinstance(v, str) for v in value):
        return sorted(FLEETING.sub("…", v) for v in value if not v.startswith("labeler-split"))
    if isinstance(value, dict) and value.get("code") == "input":
        return "malformed"
    if isinstance(value, list):
        return [sorted(v) if isinstance(v, dict) else v for v in value]
    return value


async def walk(url, steps, region, to):
    """Each step asked in turn: status and lasting words."""
    found = []
    async with aiohttp.ClientSession() as session:
        for step in steps:
            path = step["path"].replace("$REGION", str(region))
            body = step["body"] and step["body"].replace("$REGION", str(region)).replace("$TO", str(to))
            async with session.request(step["method"], url + "/pd/api/v1" + path, data=body) as response:
                found.append((step["method"], step["path"], step["body"], response.status, await response.text()))
    return found


async def test_sandbox_speaks_as_recorded():
    """Schedulers, evictions, pauses, operators and stores: the recorded status and words for every request, errors above all."""
    steps = [json.loads(line) for line in RECORDING.read_text().splitlines()]
    assert len(steps) > 50
    timeline = Timeline()
    pd = SandboxPd(timeline, seed=1, settings=PdSettings(transfer_s=(60.0, 60.0)))
    for i in range(3):
        pd.attach(f"demo-tikv-{i}")
    pd.load(regions=30)
    runner = web.AppRunner(pd_app(pd))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    driving = asyncio.ensure_future(WallDriver(timeline, speed=0.01).run())
    try:
        region = next(r for r in pd.server.cache.values() if r.leader_store == 2)
        for (method, path, body, status, said), step in zip(
            await walk(site.name, steps, region.id, 3), steps, strict=True
        ):
            assert (status, lasting(said)) == (step["status"], lasting(step["said"])), f"{method} {path} {body}"
    finally:
        driving.cancel()
        await asyncio.gather(driving, return_exceptions=True)
        await runner.cleanup()
