"""The gate: what an eviction costs inside us, and a thousand guarded ones at once.

    python -m bench gate

`unguarded`: answers to reviews of pods that nobody guards, in a world of 20,000 pods, from bytes to bytes, beside a
function that only decodes the review and allows it. `guarded`: twenty nodes of an embedded cluster are drained at
once, with fifty pods each that get their replacement first, until all are empty; memory as Python allocates it.
"""

import asyncio
import gc
import json
import time
import tracemalloc
from statistics import quantiles

import structlog

from mooring.capabilities.drain.policy import REPLACE_FIRST, DrainPolicy
from mooring.capabilities.mix.admission.reviews import allowed, eviction_request
from mooring.core.model.cluster import Owner, Pod, PodShape, ReplicaSet, Workload
from mooring.core.model.events import Listed
from mooring.core.model.kinds import Kind
from mooring.process.settings.config import Config
from mooring_lab.cluster.controllers import manifests
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.drain import Drain

PODS, REVIEWS = 20_000, 20_000
NODES, DRAINED, PER_NODE = 45, 20, 50
SHOP = "shop"


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    ours, nothing = asyncio.run(_unguarded())
    print(f"{'':46}{'measured':>18}{'target':>14}")
    _row("an unguarded eviction, p50 / p99", f"{ours[0]:.0f} / {ours[1]:.0f} µs", "p99 ≤ 2 ms")
    _row("  decoded and allowed", f"{nothing[0]:.0f} / {nothing[1]:.0f} µs", "the floor")
    _guarded()


def _row(what: str, figure: str, target: str) -> None:
    print(f"  {what:44}{figure:>18}{target:>14}")


async def _unguarded() -> tuple[tuple[float, float], tuple[float, float]]:
    rig = Rig(config=Config(features={"drain": True, "handoff": True, "mix": True}))
    replica = rig.start()
    replica.engine._switch(frozenset({"drain", "handoff", "mix"}), frozenset())
    shape, deployment = PodShape(), Owner("Deployment", "web", "d")
    owner = Owner("ReplicaSet", "web-1", "rs")
    rows = [
        (Kind.DEPLOYMENT, [Workload("Deployment", SHOP, "web", "d", "1", replicas=PODS)]),
        (Kind.REPLICA_SET, [ReplicaSet(SHOP, "web-1", "rs", "1", deployment, replicas=PODS)]),
        (
            Kind.POD,
            [
                Pod(SHOP, f"web-{i}", f"u{i}", "1", shape, owner, node="n", phase="Running", ready=True)
                for i in range(PODS)
            ],
        ),
    ]
    for kind in Kind:
        found = next((tuple(objects) for k, objects in rows if k is kind), ())
        if kind in replica.world._rows.by_kind:
            replica.world.apply(Listed(kind, found))
    assert replica.engine.synced
    bodies = [_review(f"web-{i % PODS}") for i in range(REVIEWS)]
    for body in bodies[:200]:
        assert b'"allowed":true' in await replica.webhook.reviewer.evictions(body)
    ours = [await _timed(replica.webhook.reviewer.evictions(body)) for body in bodies]
    floor = [await _timed(_nothing(body)) for body in bodies]
    rig.kill()
    return _figures(ours), _figures(floor)


async def _nothing(body: bytes) -> bytes:
    return allowed(eviction_request(body).uid)


async def _timed(answering) -> float:  # type: ignore[no-untyped-def]
    began = time.perf_counter()
    await answering
    return (time.perf_counter() - began) * 1e6


def _figures(found: list[float]) -> tuple[float, float]:
    cuts = quantiles(found, n=100)
    return cuts[49], cuts[98]


def _review(name: str) -> bytes:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": SHOP, "name": name}}
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "subResource": "eviction",
        "operation": "CREATE",
        "namespace": SHOP,
        "name": name,
        "userInfo": {"username": "kubernetes-admin", "groups": ["system:masters"]},
        "object": eviction,
        "dryRun": False,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def _guarded() -> None:
    policy = DrainPolicy(most_per_namespace=2000)
    rig = Rig(seed=1, config=Config(features={"drain": True}, policies=(policy,)))
    before, most, refusals = [0], [0], [0]

    async def scenario(rig: Rig) -> None:
        names = rig.cluster.add_nodes(NODES, "n", cpu="64")
        for name in names[DRAINED:]:
            rig.cluster.cordon(name)
        rig.start()
        await rig.until(lambda: bool(rig.cluster.store.list(Kind.VALIDATING_WEBHOOK)))
        for i in range(PER_NODE):
            template = manifests.pod_template({"app": f"web-{i}"})
            rig.cluster.deployment(SHOP, f"web-{i}", DRAINED, template=template, annotations={REPLACE_FIRST: "true"})
        await rig.until(lambda: sum(rig.cluster.ready(SHOP, f"web-{i}") for i in range(PER_NODE)) == PER_NODE * DRAINED)
        for name in names[DRAINED:]:
            rig.cluster.cordon(name, on=False)
        await rig.sleep(60.0)
        gc.collect()
        tracemalloc.start()
        drains = [Drain(rig, name) for name in names[:DRAINED]]
        tasks = [asyncio.ensure_future(one.run()) for one in drains]
        while not all(task.done() for task in tasks):
            await rig.sleep(20.0)
            most[0] = max(most[0], tracemalloc.get_traced_memory()[0])
        for task in tasks:
            task.result()
        refusals[0] = sum(len(one.refusals) for one in drains)
        await rig.until(lambda: not rig.unsettled())
        drains.clear()
        rig.cluster.api.writes.clear()
        gc.collect()
        before[0] = tracemalloc.get_traced_memory()[0]

    began = time.perf_counter()
    rig.play(scenario)
    tracemalloc.stop()
    count = DRAINED * PER_NODE
    _row(f"{count:,} guarded evictions at once: ended", f"{count:,}", "all")
    _row("  tries that were refused meanwhile", f"{refusals[0]:,}", "")
    _row("  memory at the most, and afterwards", f"{most[0] / 2**20:.0f} / {before[0] / 2**20:.0f} MB", "flat")
    _row("  wall-clock", f"{time.perf_counter() - began:.0f} s", "")
