"""Tenants on the sandbox: whatever one namespace does, a move of another begins as soon as it would without it (line 5).

Time is virtual: each scenario is played with and without the tenant that wants everything, and the two are compared.
"""

import pytest

from mooring.capabilities.mix.labels import AFFINITY, MODE
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.controllers import podstate
from mooring_lab.stage.scenarios.mix import slow_template, switched_on
from tests.capabilities.mix.rebalance.mix_stage import Stage

EVIL, GOOD = "evil", "good"
NAMES = [f"app{n:02d}" for n in range(24)]
#: A replacement that just does not fail.
SLOW_S = 250.0
#: Less than any slow or blocked move takes.
MOMENT_S = 5.0


def relabel(stage: Stage, namespace: str, name: str, mode: str) -> None:
    stage.cluster.store.patch(Kind.DEPLOYMENT, namespace, name, {"metadata": {"labels": {MODE: mode}}})


def leave_open(stage: Stage, *nodes: str) -> None:
    for node in stage.cluster.store.list(Kind.NODE):
        name = node["metadata"]["name"]
        closed = None if name in nodes or not nodes or name.startswith("n") else True
        stage.cluster.store.patch(Kind.NODE, "", name, {"spec": {"unschedulable": closed}})


async def deployed(stage: Stage, replicas: int, labels: dict[str, str], start_s: float, budget: int = 0) -> None:
    for name in NAMES:
        stage.cluster.deployment(EVIL, name, replicas, labels=labels, template=slow_template(name, start_s))
        if budget:
            stage.cluster.pdb(EVIL, name, {"app": name}, min_available=budget)
    await stage.rig.until(lambda: all(stage.cluster.ready(EVIL, n) == replicas for n in NAMES), 600.0)
    await stage.rig.sleep(20.0)


async def slow(stage: Stage) -> None:
    """Moves that are under way for minutes: the replacements take that long to start."""
    await deployed(stage, 1, switched_on("all-in-spot"), SLOW_S)
    for name in NAMES:
        relabel(stage, EVIL, name, "all-in-on-demand")


async def slow_beside_it(stage: Stage) -> None:
    """All of them on the node where the other's pod is."""
    leave_open(stage, "s0")
    await deployed(stage, 1, switched_on("all-in-spot"), SLOW_S)
    leave_open(stage)
    for name in NAMES:
        relabel(stage, EVIL, name, "all-in-on-demand")


async def blocked(stage: Stage) -> None:
    """Moves that a budget blocks, with the replacement Ready beside the pod, too."""
    await deployed(stage, 1, switched_on("all-in-spot"), 2.0, budget=2)
    for name in NAMES:
        relabel(stage, EVIL, name, "all-in-on-demand")


async def blocked_beside_it(stage: Stage) -> None:
    leave_open(stage, "s0")
    await deployed(stage, 1, switched_on("all-in-spot"), 2.0, budget=2)
    leave_open(stage)
    for name in NAMES:
        relabel(stage, EVIL, name, "all-in-on-demand")


async def parked(stage: Stage) -> None:
    """Moves that wait for a broken pod each, and all of these pods become Ready in one moment: the moves came first."""
    await deployed(stage, 3, switched_on("custom", 1), SLOW_S)
    pods = [p for p in stage.cluster.store.list(Kind.POD, EVIL) if podstate.labels_of(p)[AFFINITY] == "on-demand"]
    for pod in pods:
        stage.cluster.annotate(Kind.POD, EVIL, pod["metadata"]["name"], {"lab.mooring.dev/fail": "ready"})
    await stage.rig.until(lambda: all(stage.cluster.ready(EVIL, name) == 2 for name in NAMES))
    for name in NAMES:
        relabel(stage, EVIL, name, "all-in-on-demand")
    await stage.rig.sleep(60.0)
    for pod in pods:
        stage.cluster.annotate(Kind.POD, EVIL, pod["metadata"]["name"], {"lab.mooring.dev/fail": None})


async def emptied(stage: Stage) -> None:
    """A node full of them is to be emptied, without a deadline."""
    leave_open(stage, "s1")
    await deployed(stage, 1, switched_on("all-in-spot"), SLOW_S)
    leave_open(stage)
    taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    stage.cluster.store.patch(Kind.NODE, "", "s1", {"spec": {"taints": [taint]}})


def time_to_move(tenant=None) -> float:
    """From the moment the other namespace asks for it until its pod is evicted."""
    taken = []

    async def scenario(stage: Stage) -> None:
        leave_open(stage, "s0")
        stage.cluster.deployment(GOOD, "web", 1, labels=switched_on("all-in-spot"))
        await stage.rig.until(lambda: stage.cluster.ready(GOOD, "web") == 1)
        leave_open(stage)
        if tenant is not None:
            await tenant(stage)
        await stage.rig.sleep(25.0)
        leader = stage.rig.leader()
        assert leader is not None and (tenant is None or len(leader.engine.running) >= 4)
        relabel(stage, GOOD, "web", "all-in-on-demand")
        asked = stage.rig.clock.monotonic()
        await stage.rig.until(lambda: any(w.startswith(f"evict Pod {GOOD}/") for w in stage.rig.writes), 3600.0)
        taken.append(stage.rig.clock.monotonic() - asked)

    Stage(on_demand=8, spot=8, cpu="64").play(scenario)
    return taken[0]


async def slow_of_three(stage: Stage) -> None:
    """Three namespaces have taken all the places there are, for minutes."""
    leave_open(stage, "s1", "s2")
    names = [(namespace, name) for namespace in (EVIL, "vile", "wicked") for name in NAMES[:8]]
    for namespace, name in names:
        labels = switched_on("all-in-spot")
        stage.cluster.deployment(namespace, name, 1, labels=labels, template=slow_template(name, SLOW_S))
    await stage.rig.until(lambda: all(stage.cluster.ready(*name) == 1 for name in names), 600.0)
    leave_open(stage)
    await stage.rig.sleep(20.0)
    for namespace, name in names:
        relabel(stage, namespace, name, "all-in-on-demand")


TENANTS = (slow_of_three, slow, slow_beside_it, blocked, blocked_beside_it, parked, emptied)


@pytest.mark.parametrize("tenant", TENANTS, ids=lambda tenant: tenant.__name__)
def test_another_namespaces_move_begins_at_once(tenant):
    assert time_to_move(tenant) <= time_to_move() + MOMENT_S
