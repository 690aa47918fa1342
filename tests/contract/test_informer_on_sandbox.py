"""Our informer on the sandbox, with everything going wrong: what it knows in the end is what is there."""

import asyncio

import pytest

from mooring.clients.kube import Informer
from mooring.clients.wire.kube import project
from mooring.core.model.events import Gone, Listed
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.clock import TimelineClock, run_virtual
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.randomness import SeededRandomness


class Mirror:
    """The simplest world: what the events say."""

    def __init__(self) -> None:
        self.known: dict = {}
        self.relists = 0

    def hear(self, event) -> None:
        match event:
            case Listed():
                self.relists += 1
                self.known = {o.key: o for o in event.objects}
            case Gone():
                self.known.pop(event.key, None)
            case _:
                self.known[event.object.key] = event.object


@pytest.mark.parametrize("seed", range(6))
def test_losing_events_costs_time_never_truth(seed: int):
    """Watches cut and compacted, a server dead and slow, a clock that jumps, 410 both ways: after half a quiet minute the
    mirror equals the store (M7)."""
    cluster, mirror = Cluster(seed=seed, log=False), Mirror()
    cluster.add_nodes(3)
    cluster.deployment("default", "web", 8)
    faults = cluster.api.faults
    faults.expired_as_status = bool(seed % 2)
    randomness = SeededRandomness(seed).fork("test")

    async def main() -> None:
        clock = TimelineClock(cluster.timeline)
        informer = Informer(cluster.api, Kind.POD, mirror.hear, clock, randomness)
        following = asyncio.create_task(informer.run())
        faults.schedule(300, 25)
        for _ in range(60):
            await clock.sleep(5)
            pods = cluster.store.list(Kind.POD)
            if pods:
                victim = pods[int(randomness.uniform(0, len(pods)))]["metadata"]
                cluster.store.delete(Kind.POD, victim["namespace"], victim["name"], grace_s=1)
        await clock.sleep(60)
        following.cancel()

    run_virtual(main, cluster.timeline)
    truth = {o.key: o for o in (project(Kind.POD, pod) for pod in cluster.store.list(Kind.POD))}
    assert mirror.known == truth
    assert mirror.relists > 1, "no fault made it list again: the test shows nothing"
