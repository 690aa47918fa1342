"""A small scenario with everything that could be different twice: prints every write, whole, and every fault.

Run as a program: `python scenario.py SEED`.
"""

import asyncio
import hashlib
import sys

import msgspec

from mooring.clients.ports import PortError
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.apiserver.faults import FaultRates
from mooring_lab.cluster.clock import run_virtual
from mooring_lab.cluster.cluster import Cluster


def play(seed: int) -> list[str]:
    cluster = Cluster(seed=seed)
    api, lines = cluster.api, []
    cluster.store.listen(
        lambda kind, event, old, new: lines.append(
            f"{cluster.timeline.monotonic():.6f} {event} {kind} {msgspec.json.encode(new or old).decode()}"
        )
    )
    api.faults.rates = FaultRates(lost_request=0.1, lost_answer=0.1, conflict=0.1, slow=0.1)

    async def watcher() -> None:
        position = ""
        while True:
            try:
                async for event in api.watch(Kind.POD, resource_version=position, initial_events=not position):
                    lines.append(f"seen {event.type} {event.object.name if event.object else event.code}")
                    position = event.resource_version if event.code != 410 else ""
            except PortError as error:
                lines.append(f"watch: {type(error).__name__}")
            await asyncio.sleep(0.5)

    async def main() -> None:
        watching = asyncio.create_task(watcher())
        cluster.add_nodes(4)
        cluster.deployment("default", "web", 6)
        cluster.stateful_set("default", "db", 3)
        api.faults.schedule(200, 8)
        for i in range(40):
            await asyncio.sleep(5)
            pods = cluster.store.list(Kind.POD)
            try:
                if i % 4 == 3 and pods:
                    await api.evict("default", pods[i % len(pods)]["metadata"]["name"])
                else:
                    labels = {"metadata": {"labels": {f"turn-{i % 7}": str(i)}}}
                    await api.patch(Kind.DEPLOYMENT, "default", "web", labels)
            except PortError as error:
                lines.append(f"{i}: {type(error).__name__}")
        watching.cancel()

    run_virtual(main, cluster.timeline)
    return [*lines, *(f"{at:.6f} {words}" for at, words in api.faults.log)]


if __name__ == "__main__":
    told = play(int(sys.argv[1]))
    print(len(told), hashlib.sha256("\n".join(told).encode()).hexdigest())
