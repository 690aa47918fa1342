"""The walk through a real sabakan, recorded, walked again: the sandbox says the same, word for word."""

import json
import os
import re
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from mooring.sandbox.clock import Timeline
from mooring.sandbox.sabakan import SandboxSabakan
from mooring.sandbox.sabakan.http import sabakan_app

RECORDING = Path(__file__).parent / "recordings" / "sabakan-3.1.9.txt"
REQUEST = re.compile(r"^--- (?:-X(\w+) )?(?:-H Content-Type: application/json )?(?:-d (.*) )?\$U(/\S*)$")
ANSWER = re.compile(r"^\[(\d+) ([^\]]*)\]$")
#: What differs from one walk to the next.
FLEETING = {"timestamp", "duration", "register-date", "registerDate", "locations"}


def walk():
    asked, said = None, []
    for line in RECORDING.read_text().splitlines():
        if line.startswith("#"):
            continue
        if match := REQUEST.match(line):
            asked, said = (match[1] or "GET", match[3], match[2]), []
        elif match := ANSWER.match(line):
            yield *asked, int(match[1]), "\n".join(said)
        else:
            said.append(line)


def lasting(text):
    """The answer without what is different each time."""
    try:
        return strip(json.loads(text))
    except ValueError:
        return text


def strip(value):
    if isinstance(value, dict):
        kept = {k: strip(v) for k, v in value.items() if k not in FLEETING}
        registered = value.get("registerDate", value.get("register-date"))
        for key in ("retireDate", "retire-date"):
            if key in value and value[key] == registered:
                kept[key] = "as registered"
        if str(value.get("message", "")).startswith("json request body could not be decoded"):
            kept["message"] = "json request body could not be decoded"
        return kept
    return [strip(v) for v in value] if isinstance(value, list) else value


async def serve_sandbox():
    timeline = Timeline()
    registry = SandboxSabakan(timeline)
    runner = web.AppRunner(sabakan_app(registry))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return site.name, runner


async def compare(url):
    steps = list(walk())
    assert len(steps) > 35
    async with aiohttp.ClientSession() as session:
        for method, path, body, status, said in steps:
            headers = {"Content-Type": "application/json"} if path == "/graphql" else {}
            data = None if body is None else body.encode()
            async with session.request(method, url + path, data=data, headers=headers) as response:
                found = response.status, lasting((await response.text()).strip())
            assert found == (status, lasting(said)), f"{method} {path} {body}"


async def test_sandbox_speaks_as_recorded():
    """Every request of the recorded walk gets the recorded status and words, dates and durations aside."""
    url, runner = await serve_sandbox()
    try:
        await compare(url)
    finally:
        await runner.cleanup()


@pytest.mark.e2e
async def test_real_sabakan_still_speaks_as_recorded(tmp_path):
    """The recording itself is true: a real sabakan answers the same walk the same way."""
    bin_dir = Path(os.environ.get("MOORING_BIN_DIR", "/nowhere"))
    if not (bin_dir / "sabakan").is_file() or not (bin_dir / "etcd").is_file():
        pytest.skip("sabakan and etcd are not in MOORING_BIN_DIR: the sandbox's sabakan was asked instead")
    from real_sabakan import running

    with running(bin_dir, tmp_path) as url:
        await compare(url)
