"""O4: the sandbox's controllers do as Kubernetes' own: Deployment, StatefulSet, DaemonSet, node lifecycle with its zone
states, taint eviction, disruption budgets, endpoints.

The same random histories are played on the lab, in real time, and in the sandbox, in virtual time, and what was noted
of each step is compared (`controller_histories`). Times of nodes may differ by `TOLERANCE_S`: a kubelet renews its
lease every ten seconds, and the lab's machine may be busy.
"""

import asyncio
import os
import time
from typing import Any

import pytest

from mooring.clients.kube import HttpKubeApi, load
from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.clock import Timeline, TimelineClock, run_virtual
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.controllers import podstate
from mooring_lab.control.cluster import Lab
from mooring_lab.control.servers import SILENT
from mooring_lab.demo.onlab.mirror import Mirror
from tests.e2e.controller_histories import WATCHED, History, World, ZoneHistory, play_all

pytestmark = pytest.mark.e2e
#: Of each kind of history, all at once: more of them, on a machine that does nothing else.
HISTORIES = int(os.environ.get("MOORING_CONTROLLER_HISTORIES", "2"))
FIRST = int(os.environ.get("MOORING_CONTROLLER_FIRST", "1"))
TOLERANCE_S = 16.0
#: Longer than anything in a history takes by itself, and than the lab's servers are ever busy beside three other labs.
QUIET_S = 12.0

Told = list[tuple[str, dict[str, Any]]]


def _histories() -> list[History]:
    seeds = range(FIRST, FIRST + HISTORIES)
    return [*(History(seed) for seed in seeds), *(ZoneHistory(seed) for seed in seeds)]


def in_the_sandbox() -> dict[str, Told]:
    cluster = Cluster(seed=1, log=False)
    clock, found = TimelineClock(cluster.timeline), dict[str, Told]()
    kubelets = cluster.kubelets
    world = World(cluster.api, cluster.store, clock.monotonic, clock.sleep, kubelets.silence, kubelets.resume, QUIET_S)

    async def whole() -> None:
        cluster.add_node("elsewhere", zone="elsewhere")
        found.update(await play_all(world, _histories()))

    run_virtual(whole, cluster.timeline)
    return found


async def on_the_lab(lab: Lab) -> dict[str, Told]:
    connection = load(str(lab.kubeconfig))
    async with HttpKubeApi(connection, write_timeout_s=10) as api:
        mirror = Mirror(Timeline(time.time()), connection, api)
        mirror.follow(WATCHED)
        await mirror.synced(WATCHED)

        def mark(node: str, *, silent: bool) -> None:
            def changed(one: Json) -> Json:
                rest = {key: value for key, value in podstate.labels_of(one).items() if key != SILENT}
                return podstate.with_meta(one, labels={**rest, SILENT: "true"} if silent else rest)

            mirror.mutate(Kind.NODE, "", node, changed)

        world = World(
            api,
            mirror,
            time.monotonic,
            asyncio.sleep,
            lambda node: mark(node, silent=True),
            lambda node: mark(node, silent=False),
            QUIET_S,
        )
        try:
            await asyncio.to_thread(
                lab.add_nodes, 1, prefix="elsewhere", labels={"topology.kubernetes.io/zone": "elsewhere"}
            )
            return await play_all(world, _histories())
        finally:
            await mirror.close()


async def test_the_sandboxs_controllers_do_as_kubernetes_does(lab: Lab) -> None:
    """O4: random histories on both, step by step."""
    real = await on_the_lab(lab)
    mine = await asyncio.to_thread(in_the_sandbox)
    wrong = [words for name in real for words in _differences(name, mine[name], real[name])]
    steps = sum(len(told) for told in real.values())
    print(f"{len(real)} histories, {steps} steps, {len(wrong)} differences")
    assert not wrong, "\n".join(wrong)


def _differences(name: str, mine: Told, real: Told) -> list[str]:
    """Up to the first step that differs: what follows may differ for that alone."""
    for number, ((step, ours), (said, theirs)) in enumerate(zip(mine, real, strict=True)):
        if step != said:
            return [f"{name} step {number}: the sandbox was asked to {step}, the lab to {said}"]
        found = [
            f"{name} step {number}, {step}: {what}:\n    sandbox    {ours.get(what)}\n    Kubernetes {theirs.get(what)}"
            for what in sorted(ours | theirs)
            if not _alike(ours.get(what), theirs.get(what), times=what.startswith("at: "))
        ]
        if found:
            return found
    return []


def _alike(ours: Any, theirs: Any, *, times: bool) -> bool:
    if not times or ours is None or theirs is None:
        return bool(ours == theirs)
    pairs = zip(sorted(ours), sorted(theirs), strict=False)
    return len(ours) == len(theirs) and all(abs(a - b) <= TOLERANCE_S for a, b in pairs)
