"""The walk through a real sabakan, recorded, walked again: the sandbox says the same, word for word."""

import contextlib
import json
import re
import socket
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.sabakan import SandboxSabakan
from mooring_lab.control.binaries import find, optional, release
from mooring_lab.control.pki import Authority
from mooring_lab.control.processes import Processes, Server
from mooring_lab.control.servers import NO_SABAKAN, sabakan, sabakan_url
from tests.sandbox.sabakan.rest import rest_app

RECORDING = Path(__file__).parent / "recordings" / "sabakan-3.1.9.txt"
REQUEST = re.compile(r"^--- (?:-X(\w+) )?(?:-H Content-Type: application/json )?(?:-d (.*) )?\$U(/\S*)$")
ANSWER = re.compile(r"^\[(\d+) ([^\]]*)\]$")
#: What differs from one walk to the next.
FLEETING = {"request_id", "timestamp", "duration", "register-date", "registerDate", "locations"}


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
    runner = web.AppRunner(rest_app(registry))
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
    program = optional("sabakan")
    if program is None:
        pytest.skip(NO_SABAKAN)
    etcd = find(release())["etcd"]
    with running(program, etcd, tmp_path) as url:
        await compare(url)


@contextlib.contextmanager
def running(program, etcd, directory):
    """A sabakan with an etcd of its own, on loopback."""
    ports = free_ports(6)
    store = f"http://127.0.0.1:{ports[0]}"
    flags = {"data-dir": directory / "etcd", "listen-client-urls": store, "advertise-client-urls": store}
    peer = f"http://127.0.0.1:{ports[1]}"
    flags |= {"listen-peer-urls": peer, "initial-advertise-peer-urls": peer, "initial-cluster": f"default={peer}"}
    below = Server("etcd", (str(etcd), *(f"--{k}={v}" for k, v in flags.items())), ready_url=store + "/health")
    tls = Authority().server("sabakan", ["127.0.0.1"]).write(directory, "sabakan")
    above = sabakan(program, directory, ports[2:], etcd=store, tls=tls)
    processes = Processes(directory, foreground=True)
    try:
        for server in (below, above):
            processes.start(server)
            processes.wait_ready([server])
        yield sabakan_url(ports[2])
    finally:
        processes.stop("sabakan")
        processes.stop("etcd")


def free_ports(count):
    held = [socket.socket() for _ in range(count)]
    try:
        for s in held:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in held]
    finally:
        for s in held:
            s.close()
