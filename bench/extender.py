"""The extender under load: calls a second, latency by size, beside a plain handler built on `json` in the same run.

The server is this process, with a real world behind it; the load comes from a second process over loopback, on kept
connections, as kube-scheduler's does. Both share the machine's cores, so the times are what a busy host would see;
"cpu ms" is what a call costs the server's process, and does not depend on who else is running.
"""

import asyncio
import json
import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection

from aiohttp import web

from mooring.capabilities.home import Home
from mooring.capabilities.home.policy import HomePolicy
from mooring.capabilities.home.verbs import Verbs
from mooring.core.model.cluster import Key, Owner, Pod, PodShape
from mooring.core.model.events import Listed
from mooring.core.model.kinds import Kind
from mooring.core.model.tidb import TidbCluster
from mooring.core.world.world import World
from mooring.process.extender import app_of

LABELS = {"app.kubernetes.io/component": "tidb", "app.kubernetes.io/instance": "demo"}
POD = {"metadata": {"name": "demo-tidb-0", "namespace": "tidb", "labels": LABELS, "uid": "u"}, "spec": {}}
OTHER = {"metadata": {"name": "web-1", "namespace": "shop", "labels": {"app": "web"}, "uid": "w"}, "spec": {}}
HOME = "node-00042"


def name(i: int) -> str:
    return f"node-{i:05d}"


def full_node(i: int) -> dict:
    """About 7 KB, most of it images, as in the field."""
    images = [
        {"names": [f"registry.example/team/image-{n}@sha256:{n:064x}"], "sizeBytes": 10**8 + n} for n in range(52)
    ]
    return {
        "metadata": {"name": name(i), "uid": f"{i:036d}", "labels": {"kubernetes.io/hostname": name(i)}},
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {"capacity": {"cpu": "8", "memory": "32Gi"}, "images": images},
    }


def names_body(count: int, pod: dict = POD) -> bytes:
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": [name(i) for i in range(count)]}).encode()


def nodes_body(count: int, pod: dict = POD) -> bytes:
    items = [full_node(i) for i in range(count)]
    text = json.dumps({"Pod": pod, "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}, separators=(",", ":"))
    return text.encode()


def world() -> World:
    known = World()
    for index in Home().indexes():
        known.register(index)
    members = {f"demo-tidb-{i}": name(42 + i) for i in range(3)}
    tc = TidbCluster("tidb", "demo", "tc", "1", tidb_replicas=3, tidb_member_nodes=members, tidb_members=tuple(members))
    known.apply(Listed(Kind.TIDB_CLUSTER, (tc,)))
    shape, owner = PodShape(), Owner("ReplicaSet", "web", "rs")
    pods = [Pod("shop", f"web-{i}", f"p{i}", "1", shape, owner, node=name(i % 5000)) for i in range(10_000)]
    known.apply(Listed(Kind.POD, tuple(pods)))
    assert known.tidb_cluster(Key("tidb", "demo")) is not None
    return known


async def baseline(request: web.Request) -> web.Response:
    """What one would write first: the whole body as Python objects, and back."""
    args = json.loads(await request.read())
    home = HOME if args["Pod"]["metadata"]["labels"].get("app.kubernetes.io/component") == "tidb" else ""
    if args["NodeNames"] is not None:
        names = args["NodeNames"]
        kept = [home] if home in names else names
        answer = {"Nodes": None, "NodeNames": kept, "FailedNodes": {n: "not home" for n in names if n not in kept}}
    else:
        items = args["Nodes"]["items"]
        kept = [n for n in items if n["metadata"]["name"] == home] or items
        failed = {n["metadata"]["name"]: "not home" for n in items if n not in kept}
        answer = {"Nodes": {"items": kept}, "NodeNames": None, "FailedNodes": failed}
    return web.Response(body=json.dumps(answer).encode(), content_type="application/json")


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> int:
    writer.write(request)
    await writer.drain()
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head[:80]
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n", 1)[0])
    await reader.readexactly(length)
    return length


async def _client(port: int, path: str, body: bytes, calls: int, took: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    request = head.encode() + body
    for _ in range(calls):
        began = time.perf_counter()
        await _exchange(reader, writer, request)
        took.append(time.perf_counter() - began)
    writer.close()


def _load(pipe: Connection) -> None:
    """The second process: plays what it is told and sends the times back."""
    while (job := pipe.recv()) is not None:
        port, path, body, clients, calls = job
        took: list[float] = []

        async def play(port=port, path=path, body=body, clients=clients, calls=calls, took=took) -> float:
            await _client(port, path, body, max(2, calls // 20), [])  # warm
            began = time.perf_counter()
            await asyncio.gather(*(_client(port, path, body, calls, took) for _ in range(clients)))
            return time.perf_counter() - began

        pipe.send((asyncio.run(play()), took))


CASES = (
    ("100 names, member, 8 clients", lambda: names_body(100), 8, 600, "≥ 3,000 calls/s"),
    ("100 names, unrelated, 8 clients", lambda: names_body(100, OTHER), 8, 600, "≥ 3,000 calls/s"),
    ("5,000 names, member", lambda: names_body(5000), 1, 300, "p50 ≤ 3 ms, p99 ≤ 6 ms"),
    ("1,000 full Nodes, member", lambda: nodes_body(1000), 1, 60, "p50 ≤ 20 ms"),
    ("1,000 full Nodes, unrelated", lambda: nodes_body(1000, OTHER), 1, 60, "p50 ≤ 20 ms"),
)


async def measure(pipe: Connection) -> None:
    verbs = Verbs(world(), HomePolicy, lambda: True)
    ours = web.AppRunner(app_of(verbs, HomePolicy, lambda *_: None), access_log=None, read_bufsize=1 << 18)
    plain_app = web.Application(client_max_size=0)
    plain_app.router.add_post("/scheduler/filter", baseline)
    plain = web.AppRunner(plain_app, access_log=None, read_bufsize=1 << 18)
    ports = []
    for runner in (ours, plain):
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        ports.append(runner.addresses[0][1])
    loop = asyncio.get_running_loop()
    print(f"{'case':34} {'handler':9} {'MB in':>6} {'calls/s':>8} {'p50 ms':>7} {'p99 ms':>7} {'cpu ms':>7}  target")
    for label, make, clients, calls, target in CASES:
        body = make()
        for who, port in (("mooring", ports[0]), ("json", ports[1])):
            cpu = time.process_time()
            calls = calls if who == "mooring" else calls // 4
            pipe.send((port, "/scheduler/filter", body, clients, calls))
            whole, took = await loop.run_in_executor(None, pipe.recv)
            cpu = (time.process_time() - cpu) / (len(took) + max(2, calls // 20))
            took.sort()
            p50, p99 = statistics.median(took), took[int(len(took) * 0.99)]
            rate = len(took) / whole
            print(
                f"{label:34} {who:9} {len(body) / 1e6:6.2f} {rate:8.0f} {1000 * p50:7.2f} {1000 * p99:7.2f} "
                f"{1000 * cpu:7.2f}  " + (target if who == "mooring" else "")
            )
    for runner in (ours, plain):
        await runner.cleanup()


def main() -> None:
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    load = context.Process(target=_load, args=(there,), daemon=True)
    load.start()
    try:
        import uvloop

        run = uvloop.run
    except ImportError:
        run = asyncio.run
    try:
        run(measure(here))
    finally:
        here.send(None)
        load.join(10)


if __name__ == "__main__":
    main()
