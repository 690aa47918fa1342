"""Workloads of Mix on the sandbox or the lab: how they are labelled, and what can be seen of them."""

from typing import Any

from mooring.capabilities.mix.labels import AFFINITY, CUSTOM, ENABLED, MODE
from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import CORDONED_BY, LEAVING
from mooring_lab.cluster.controllers import manifests, podstate
from mooring_lab.cluster.kubelet import READY, START
from mooring_lab.stage.environment import Environment

NAMESPACE = "shop"


def switched_on(mode: str = "", custom: int | str | None = None) -> dict[str, str]:
    """The labels of a workload that wants this mode."""
    labels = {ENABLED: "true"}
    if mode:
        labels[MODE] = mode
    if custom is not None:
        labels[CUSTOM] = str(custom)
    return labels


def slow_template(name: str, start_s: float, *, grace_s: int = 30, **how: Any) -> Json:
    """Pods that need this long from their node to Ready."""
    times = {START: f"{start_s - 1:g}", READY: "1"}
    return manifests.pod_template({"app": name}, annotations=times, terminationGracePeriodSeconds=grace_s, **how)


def given(rig: Environment, name: str) -> list[str]:
    """The classes that the active pods of a workload were given, sorted."""
    pods = [p for p in rig.cluster.pods(NAMESPACE, name) if podstate.active(p)]
    return sorted(p["metadata"]["labels"].get(AFFINITY, "-") for p in pods)


def physical(rig: Environment, name: str) -> list[str]:
    """The classes of the nodes they are on, sorted; by the names of the scenario's nodes."""
    return sorted(
        "spot" if node.startswith("s") else "on-demand" for node in rig.cluster.nodes_of(NAMESPACE, name).values()
    )


def uids(rig: Environment, name: str) -> set[str]:
    return {p["metadata"]["uid"] for p in rig.cluster.pods(NAMESPACE, name) if podstate.active(p)}


def left_behind(rig: Environment) -> list[str]:
    """Marks of ours on pods and nodes."""
    store = rig.cluster.store
    found = [
        f"a mark on pod {p['metadata']['name']}" for p in store.list(Kind.POD) if LEAVING in podstate.annotations_of(p)
    ]
    found += [
        f"a cordon on {n['metadata']['name']}"
        for n in store.list(Kind.NODE)
        if CORDONED_BY in podstate.annotations_of(n)
    ]
    return found


async def admitting(rig: Environment) -> None:
    """Until a replica leads and the API server asks it about new pods."""
    await rig.until(rig.leads)
    await rig.until(lambda: bool(rig.cluster.store.list(Kind.MUTATING_WEBHOOK)))


def serving(rig: Environment, name: str) -> int:
    """Ready pods behind the application's own label, attached or not: what a Service sends to."""
    pods = rig.cluster.store.list(Kind.POD, NAMESPACE)
    return sum(podstate.ready(p) and podstate.active(p) and podstate.labels_of(p).get("app") == name for p in pods)
