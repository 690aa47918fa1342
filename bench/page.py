"""What the page costs the loop that decides: one frame at 5,000 nodes and 150,000 pods, and its longest slice."""

import asyncio
import time
from types import SimpleNamespace

from mooring.engine.engine import Engine
from mooring.model.cluster import Node, Owner, Pod, PodShape
from mooring.model.events import Listed
from mooring.model.kinds import Kind
from mooring.serve.frames import Framer
from mooring.serve.stream import difference, event, picture
from mooring.traffic import Queue, live_settings
from mooring.world.world import World

NODES, PODS = 5_000, 150_000


def _world() -> World:
    world = World()
    labels = [{"cke.cybozu.com/rack": str(r), "node.kubernetes.io/capacity": "spot"} for r in range(125)]
    nodes = tuple(
        Node(
            name=f"n{i:04d}",
            uid=f"n{i}",
            resource_version="1",
            ready="True",
            labels=labels[i // 40],
            unschedulable=i % 25 == 0,
        )
        for i in range(NODES)
    )
    shape, owner = PodShape(), Owner("ReplicaSet", "web-1", "rs")
    pods = tuple(
        Pod("shop", f"web-{i}", f"p{i}", "1", shape, owner, node=f"n{i % NODES:04d}", phase="Running")
        for i in range(PODS)
    )
    world.apply(Listed(Kind.NODE, nodes))
    world.apply(Listed(Kind.POD, pods))
    return world


async def _measure() -> None:
    world = _world()
    engine = Engine(world, Queue(live_settings()), [])
    replica = SimpleNamespace(
        engine=engine,
        world=world,
        identity="bench",
        shell=SimpleNamespace(now=time.time, backlog=0),
        elector=SimpleNamespace(holder="bench"),
        informers=SimpleNamespace(informers=()),
        not_ready=list,
    )
    framer = Framer(lambda: replica)  # type: ignore[arg-type]
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
    ticks = 8
    for _ in range(ticks):
        frame = await framer.build()
    took = time.thread_time() - began
    done = True
    await task
    assert first is not None
    assert frame is not None
    whole, delta = event("snapshot", 1, picture(frame)), event("delta", 2, difference(first, frame))
    print(f"page frame            {took / ticks * 1e3:8.1f} ms a tick, walking every 4th   target  50 ms")
    print(f"longest slice         {longest * 1e3:8.1f} ms of CPU at a time               target  20 ms")
    print(f"snapshot {len(whole) / 1024:.0f} KiB, delta of nothing new {len(delta)} bytes")


def main() -> None:
    asyncio.run(_measure())


if __name__ == "__main__":
    main()
