"""Deeds of every day: what users, the cloud and the machine registry ask for.

Each answers with what it did, in words, or "" when there was nothing to do it to.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from mooring.capabilities.handoff.members.operators import PD_TRANSFER_LEADER
from mooring.capabilities.handoff.requests import EVICT_LEADER, RESTART
from mooring.capabilities.mix.labels import CUSTOM, ENABLED, MODE, REBALANCE
from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.core.model.tidb import COMPONENT
from mooring.sandbox.controllers import podstate
from mooring.sandbox.kubelet import FAIL
from mooring.sim.whole.build import SHOP, TIDB, add_app
from mooring.sim.whole.plan import App

if TYPE_CHECKING:
    from mooring.sim.whole.simulation import Simulation

MODES = ("all-in-on-demand", "all-in-spot", "majority-in-on-demand", "custom")


def _workloads(sim: "Simulation") -> list[Json]:
    return [*sim.objects(Kind.DEPLOYMENT, namespace=SHOP), *sim.objects(Kind.STATEFUL_SET, namespace=SHOP)]


def _workload(sim: "Simulation", draw: float) -> tuple[Kind, str] | None:
    obj = sim.pick(_workloads(sim), draw)
    return (Kind(obj["kind"]), obj["metadata"]["name"]) if obj is not None else None


def rollout(sim: "Simulation", a: float, b: float) -> str:
    found = _workload(sim, a)
    if found is None:
        return ""
    sim.rig.cluster.set_image(found[0], SHOP, found[1], f"registry.example/app:{int(b * 1000)}")
    return f"{found[0]} {found[1]}"


def scale(sim: "Simulation", a: float, b: float) -> str:
    found = _workload(sim, a)
    if found is None:
        return ""
    sim.rig.cluster.scale(*((found[0], SHOP, found[1], 1 + int(b * 7))))
    return f"{found[0]} {found[1]} to {1 + int(b * 7)}"


def mode_change(sim: "Simulation", a: float, b: float) -> str:
    found = _workload(sim, a)
    if found is None:
        return ""
    mode = MODES[int(b * 4)]
    custom = str(1 + int(b * 97) % 3) if mode == "custom" else None
    labels = {ENABLED: "true", MODE: mode, CUSTOM: custom}
    sim.rig.cluster.store.patch(found[0], SHOP, found[1], {"metadata": {"labels": labels}})
    return f"{found[1]} {mode} {custom or ''}"


def mix_off(sim: "Simulation", a: float, _: float) -> str:
    found = _workload(sim, a)
    if found is None:
        return ""
    sim.rig.cluster.store.patch(found[0], SHOP, found[1], {"metadata": {"labels": {ENABLED: None}}})
    return found[1]


def fast(sim: "Simulation", a: float, b: float) -> str:
    found = _workload(sim, a)
    if found is None or found[0] is not Kind.DEPLOYMENT:
        return ""
    sim.rig.cluster.annotate(*found[:1], SHOP, found[1], {REBALANCE: "fast" if b < 0.7 else None})
    return found[1]


# ── TiDB ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _members(sim: "Simulation", part: str) -> list[Json]:
    return [p for p in sim.objects(Kind.POD, namespace=TIDB) if podstate.labels_of(p).get(COMPONENT) == part]


def _annotate_member(sim: "Simulation", part: str, draw: float, annotations: dict[str, str | None]) -> str:
    pod = sim.pick([p for p in _members(sim, part) if podstate.active(p)], draw)
    if pod is None:
        return ""
    sim.rig.cluster.annotate(Kind.POD, TIDB, pod["metadata"]["name"], annotations)
    return str(pod["metadata"]["name"])


def restart_tikv(sim: "Simulation", a: float, _: float) -> str:
    return _annotate_member(sim, "tikv", a, {RESTART: ""})


def evict_leaders(sim: "Simulation", a: float, b: float) -> str:
    return _annotate_member(sim, "tikv", a, {EVICT_LEADER: ("none", "delete-pod", "odd")[int(b * 3)]})


def forget_tikv(sim: "Simulation", a: float, _: float) -> str:
    return _annotate_member(sim, "tikv", a, {RESTART: None, EVICT_LEADER: None})


def restart_pd(sim: "Simulation", a: float, _: float) -> str:
    return _annotate_member(sim, "pd", a, {PD_TRANSFER_LEADER: "delete-pod"})


def tidb_rollout(sim: "Simulation", a: float, b: float) -> str:
    tc = sim.pick(sim.objects(Kind.TIDB_CLUSTER), a)
    if tc is None or "tidb" not in tc["spec"]:
        return ""
    tidb = {**tc["spec"]["tidb"], "version": f"v8.5.{int(b * 100)}"}
    sim.rig.cluster.change(Kind.TIDB_CLUSTER, TIDB, tc["metadata"]["name"], lambda o: podstate.with_spec(o, tidb=tidb))
    return str(tc["metadata"]["name"])


def tikv_added(sim: "Simulation", a: float, _: float) -> str:
    tc = sim.pick(sim.objects(Kind.TIDB_CLUSTER), a)
    if tc is None or tc["spec"]["tikv"]["replicas"] >= 6:
        return ""
    tikv = {**tc["spec"]["tikv"], "replicas": tc["spec"]["tikv"]["replicas"] + 1}
    sim.rig.cluster.change(Kind.TIDB_CLUSTER, TIDB, tc["metadata"]["name"], lambda o: podstate.with_spec(o, tikv=tikv))
    return f"{tc['metadata']['name']} to {tikv['replicas']}"


# ── Workloads come and go, pods fail ──────────────────────────────────────────────────────────────────────────────


def app_added(sim: "Simulation", a: float, b: float) -> str:
    name = f"new{int(a * 10000)}"
    if sim.rig.cluster.store.find(Kind.DEPLOYMENT, SHOP, name) is not None or len(_workloads(sim)) > 8:
        return ""
    mode = ("", "default", *MODES[:3])[int(b * 5)]
    add_app(sim.rig, App(name=name, kind="Deployment", replicas=1 + int(a * 5), mode=mode))
    return name


def app_deleted(sim: "Simulation", a: float, b: float) -> str:
    found = _workload(sim, a)
    if found is None or b < 0.3:
        return ""
    sim.rig.cluster.store.delete(found[0], SHOP, found[1])
    return found[1]


def _shop_pod(sim: "Simulation", draw: float) -> Json | None:
    pods = sim.objects(Kind.POD, namespace=SHOP)
    return sim.pick([p for p in pods if podstate.active(p) and p["metadata"].get("ownerReferences")], draw)


def pod_deleted(sim: "Simulation", a: float, _: float) -> str:
    pod = _shop_pod(sim, a)
    if pod is None:
        return ""
    sim.rig.cluster.store.delete(Kind.POD, SHOP, pod["metadata"]["name"])
    return str(pod["metadata"]["name"])


def pod_crashes(sim: "Simulation", a: float, b: float) -> str:
    pod = _shop_pod(sim, a)
    if pod is None:
        return ""
    sim.rig.cluster.annotate(Kind.POD, SHOP, pod["metadata"]["name"], {FAIL: "crash" if b < 0.6 else "ready"})
    return str(pod["metadata"]["name"])


def pod_heals(sim: "Simulation", a: float, _: float) -> str:
    pod = sim.pick(sim.objects(Kind.POD, FAIL), a)
    if pod is None:
        return ""
    sim.rig.cluster.annotate(Kind.POD, pod["metadata"]["namespace"], pod["metadata"]["name"], {FAIL: None})
    return str(pod["metadata"]["name"])


# ── Mooring itself ────────────────────────────────────────────────────────────────────────────────────────────────


def switch(sim: "Simulation", name: str, *, on: bool) -> None:
    """In the configuration that every replica, now and later, follows."""
    features = {**sim.rig.config.features, name: on}
    sim.rig.config = msgspec.structs.replace(sim.rig.config, features=features)
    for replica in sim.replicas():
        replica.apply(sim.rig.config)


def feature_off(sim: "Simulation", a: float, _: float) -> str:
    name = sim.pick(sorted(sim.rig.config.on()), a)
    if name is None:
        return ""
    engine = sim.engine()
    if engine is not None and any(
        r.operator.source in engine.capabilities[name].sources for r in engine.running.values()
    ):
        sim.coverage.hit("feature-off-with-operator-running")
    switch(sim, name, on=False)
    return name


def feature_on(sim: "Simulation", a: float, _: float) -> str:
    name = sim.pick(sorted(set(sim.plan.shape.features) - sim.rig.config.on()), a)
    if name is None:
        return ""
    switch(sim, name, on=True)
    return name


def operator_restarts(sim: "Simulation", _: float, b: float) -> str:
    sim.rig.cluster.tidb_operator.stopped = True
    sim.after(20 + 60 * b, lambda: _operator_back(sim))
    return f"for {20 + 60 * b:.0f} s"


def _operator_back(sim: "Simulation") -> None:
    sim.rig.cluster.tidb_operator.stopped = False
    for tc in sim.objects(Kind.TIDB_CLUSTER):  # it lists everything when it starts
        sim.rig.cluster.annotate(Kind.TIDB_CLUSTER, TIDB, tc["metadata"]["name"], {"sim/looked-at": f"{sim.now:.0f}"})


DEEDS: dict[str, Callable[["Simulation", float, float], str]] = {
    "rollout": rollout,
    "scale": scale,
    "mode-change": mode_change,
    "mix-off": mix_off,
    "fast": fast,
    "restart-tikv": restart_tikv,
    "evict-leaders": evict_leaders,
    "forget-tikv": forget_tikv,
    "restart-pd": restart_pd,
    "tidb-rollout": tidb_rollout,
    "tikv-added": tikv_added,
    "app-added": app_added,
    "app-deleted": app_deleted,
    "pod-deleted": pod_deleted,
    "pod-crashes": pod_crashes,
    "pod-heals": pod_heals,
    "feature-off": feature_off,
    "feature-on": feature_on,
    "operator-restarts": operator_restarts,
}
