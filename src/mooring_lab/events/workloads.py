"""Events of every day: what users, the cloud and the machine registry ask for.

Each answers with what it did, in words, or "" when there was nothing to do it to.
"""

import json

from mooring.capabilities.drain.nodes import RESTART as RESTART_POD
from mooring.capabilities.handoff.member_operators import PD_TRANSFER_LEADER
from mooring.capabilities.handoff.requests import EVICT_LEADER, RESTART
from mooring.capabilities.mix.labels import CUSTOM, ENABLED, MODE, REBALANCE
from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.core.model.tidb import COMPONENT
from mooring.core.model.times import rfc3339
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.kubelet import FAIL
from mooring_lab.cluster.leaders import LedSystem
from mooring_lab.events.context import SHOP, TIDB, Apply, Draw, EventContext, Target

MODES = ("all-in-on-demand", "all-in-spot", "majority-in-on-demand", "custom")


def _workloads(on: EventContext) -> list[Json]:
    return [*on.objects(Kind.DEPLOYMENT, namespace=SHOP), *on.objects(Kind.STATEFUL_SET, namespace=SHOP)]


def _workload(on: EventContext, target: Target, draw: Draw) -> tuple[Kind, str] | None:
    obj = on.pick(_workloads(on), target, draw)
    return (Kind(obj["kind"]), obj["metadata"]["name"]) if obj is not None else None


def rollout(on: EventContext, target: Target, draw: Draw) -> str:
    """A new image for every container; a partition that held revisions apart is lifted, as tidb-operator does."""
    everywhere = None if target else SHOP
    found = on.pick(
        [o for kind in (Kind.DEPLOYMENT, Kind.STATEFUL_SET) for o in on.objects(kind, namespace=everywhere)],
        target,
        draw,
    )
    if found is None:
        return ""
    kind, (namespace, name) = Kind(found["kind"]), podstate.key_of(found)
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    if kind is Kind.STATEFUL_SET and target and found["spec"].get("updateStrategy") != strategy:
        on.stage.cluster.store.patch(kind, namespace, name, {"spec": {"updateStrategy": strategy}})
    on.stage.cluster.set_image(kind, namespace, name, f"registry.example/app:{int(draw.b * 1000)}")
    return f"{kind} {name}"


def scale(on: EventContext, target: Target, draw: Draw) -> str:
    found = _workload(on, target, draw)
    if found is None:
        return ""
    on.stage.cluster.scale(*((found[0], SHOP, found[1], 1 + int(draw.b * 7))))
    return f"{found[0]} {found[1]} to {1 + int(draw.b * 7)}"


def mode_change(on: EventContext, target: Target, draw: Draw) -> str:
    found = _workload(on, target, draw)
    if found is None:
        return ""
    mode = MODES[int(draw.b * 4)]
    custom = str(1 + int(draw.b * 97) % 3) if mode == "custom" else None
    labels = {ENABLED: "true", MODE: mode, CUSTOM: custom}
    on.stage.cluster.store.patch(found[0], SHOP, found[1], {"metadata": {"labels": labels}})
    return f"{found[1]} {mode} {custom or ''}"


def mix_off(on: EventContext, target: Target, draw: Draw) -> str:
    found = _workload(on, target, draw)
    if found is None:
        return ""
    on.stage.cluster.store.patch(found[0], SHOP, found[1], {"metadata": {"labels": {ENABLED: None}}})
    return found[1]


def fast(on: EventContext, target: Target, draw: Draw) -> str:
    found = _workload(on, target, draw)
    if found is None or found[0] is not Kind.DEPLOYMENT:
        return ""
    on.stage.cluster.annotate(*found[:1], SHOP, found[1], {REBALANCE: "fast" if draw.b < 0.7 else None})
    return found[1]


# ── TiDB ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _members(on: EventContext, part: str, target: Target) -> list[Json]:
    if target:
        return on.objects(Kind.POD)
    return [p for p in on.objects(Kind.POD, namespace=TIDB) if podstate.labels_of(p).get(COMPONENT) == part]


def _annotate_member(
    on: EventContext, part: str, target: Target, draw: Draw, annotations: dict[str, str | None]
) -> str:
    pod = on.pick([p for p in _members(on, part, target) if podstate.active(p)], target, draw)
    if pod is None:
        return ""
    on.stage.cluster.annotate(Kind.POD, *podstate.key_of(pod), annotations)
    return str(pod["metadata"]["name"])


def restart_tikv(on: EventContext, target: Target, draw: Draw) -> str:
    return _annotate_member(on, "tikv", target, draw, {RESTART: ""})


def evict_leaders(on: EventContext, target: Target, draw: Draw) -> str:
    return _annotate_member(on, "tikv", target, draw, {EVICT_LEADER: ("none", "delete-pod", "odd")[int(draw.b * 3)]})


def forget_tikv(on: EventContext, target: Target, draw: Draw) -> str:
    return _annotate_member(on, "tikv", target, draw, {RESTART: None, EVICT_LEADER: None})


def restart_pd(on: EventContext, target: Target, draw: Draw) -> str:
    return _annotate_member(on, "pd", target, draw, {PD_TRANSFER_LEADER: "delete-pod"})


def tidb_rollout(on: EventContext, target: Target, draw: Draw) -> str:
    tc = on.pick(on.objects(Kind.TIDB_CLUSTER), target, draw)
    if tc is None or "tidb" not in tc["spec"]:
        return ""
    tidb = {**tc["spec"]["tidb"], "version": f"v8.5.{int(draw.b * 100)}"}
    on.stage.cluster.change(Kind.TIDB_CLUSTER, TIDB, tc["metadata"]["name"], lambda o: podstate.with_spec(o, tidb=tidb))
    return str(tc["metadata"]["name"])


def tikv_added(on: EventContext, target: Target, draw: Draw) -> str:
    tc = on.pick(on.objects(Kind.TIDB_CLUSTER), target, draw)
    if tc is None or tc["spec"]["tikv"]["replicas"] >= 6:
        return ""
    tikv = {**tc["spec"]["tikv"], "replicas": tc["spec"]["tikv"]["replicas"] + 1}
    on.stage.cluster.change(Kind.TIDB_CLUSTER, TIDB, tc["metadata"]["name"], lambda o: podstate.with_spec(o, tikv=tikv))
    return f"{tc['metadata']['name']} to {tikv['replicas']}"


# ── Workloads come and go, pods fail ──────────────────────────────────────────────────────────────────────────────


def app_added(on: EventContext, target: Target, draw: Draw) -> str:
    name = f"new{int(draw.a * 10000)}"
    if on.stage.cluster.store.find(Kind.DEPLOYMENT, SHOP, name) is not None or len(_workloads(on)) > 8:
        return ""
    mode = ("", "default", *MODES[:3])[int(draw.b * 5)]
    on.add_app(name, 1 + int(draw.a * 5), mode)
    return name


def app_deleted(on: EventContext, target: Target, draw: Draw) -> str:
    found = _workload(on, target, draw)
    if found is None or draw.b < 0.3:
        return ""
    on.stage.cluster.store.delete(found[0], SHOP, found[1])
    return found[1]


def _shop_pod(on: EventContext, target: Target, draw: Draw) -> Json | None:
    if target:
        return on.pick(on.objects(Kind.POD), target, draw)
    pods = on.objects(Kind.POD, namespace=SHOP)
    return on.pick([p for p in pods if podstate.active(p) and p["metadata"].get("ownerReferences")], target, draw)


def pod_deleted(on: EventContext, target: Target, draw: Draw) -> str:
    pod = _shop_pod(on, target, draw)
    if pod is None:
        return ""
    on.stage.cluster.store.delete(Kind.POD, *podstate.key_of(pod))
    return str(pod["metadata"]["name"])


def pod_crashes(on: EventContext, target: Target, draw: Draw) -> str:
    pod = _shop_pod(on, target, draw)
    if pod is None:
        return ""
    on.stage.cluster.annotate(Kind.POD, SHOP, pod["metadata"]["name"], {FAIL: "crash" if draw.b < 0.6 else "ready"})
    return str(pod["metadata"]["name"])


def pod_heals(on: EventContext, target: Target, draw: Draw) -> str:
    pod = on.pick(on.objects(Kind.POD, FAIL), target, draw)
    if pod is None:
        return ""
    on.stage.cluster.annotate(Kind.POD, pod["metadata"]["namespace"], pod["metadata"]["name"], {FAIL: None})
    return str(pod["metadata"]["name"])


# ── Mooring itself ────────────────────────────────────────────────────────────────────────────────────────────────


def feature_off(on: EventContext, target: Target, draw: Draw) -> str:
    name = on.pick(sorted(on.stage.config.on()), target, draw)
    if name is None:
        return ""
    engine = on.engine()
    if engine is not None and any(
        r.operator.source in engine.capabilities[name].sources for r in engine.running.values()
    ):
        on.hit("feature-off-with-operator-running")
    on.switch(name, on=False)
    return name


def feature_on(on: EventContext, target: Target, draw: Draw) -> str:
    name = on.pick(sorted(set(on.features) - on.stage.config.on()), target, draw)
    if name is None:
        return ""
    on.switch(name, on=True)
    return name


def operator_restarts(on: EventContext, target: Target, draw: Draw) -> str:
    on.stage.cluster.tidb_operator.stopped = on.stage.cluster.tidb_v2.stopped = True
    on.after(20 + 60 * draw.b, lambda: _operator_back(on))
    return f"for {20 + 60 * draw.b:.0f} s"


def _operator_back(on: EventContext) -> None:
    on.stage.cluster.tidb_operator.stopped = on.stage.cluster.tidb_v2.stopped = False
    for key in on.stage.cluster.tidb_v2.groups:
        on.stage.cluster.tidb_v2.queue.add(key)
    for tc in on.objects(Kind.TIDB_CLUSTER):  # it lists everything when it starts
        on.stage.cluster.annotate(Kind.TIDB_CLUSTER, TIDB, tc["metadata"]["name"], {"sim/looked-at": f"{on.now:.0f}"})


def _led_members(on: EventContext) -> list[tuple[LedSystem, str]]:
    return [(system, name) for _, system in sorted(on.stage.cluster.led.systems.items()) for name in system.running]


def member_restarts(on: EventContext, target: Target, draw: Draw) -> str:
    """`mooring restart` of a member of a system with leaders, or of all of them."""
    found = on.pick(_led_members(on), target, draw)
    if found is None:
        return ""
    system, name = found
    names, since = system.running if draw.b < 0.5 else [name], rfc3339(on.stage.clock.now() + 1.0)
    for one in names:
        on.stage.cluster.annotate(Kind.POD, system.key[0], one, {RESTART_POD: json.dumps({"since": since})})
    return ", ".join(names)


def member_silent(on: EventContext, target: Target, draw: Draw) -> str:
    """It does not answer Mooring; it goes on for its own."""
    found = on.pick(_led_members(on), target, draw)
    if found is None:
        return ""
    system, name = found
    system.silent.add(name)
    on.after(10 + draw.b * 120, lambda: system.silent.discard(name))
    return f"{name} for {10 + draw.b * 120:.0f} s"


def leadership_moves(on: EventContext, target: Target, draw: Draw) -> str:
    """A person's switchover."""
    able = [(s, name) for s, name in _led_members(on) if s.lag(name) == 0 and s.leader not in {"", name}]
    found = on.pick(able, target, draw)
    if found is None:
        return ""
    found[0].move(found[1])
    return f"to {found[1]}"


EVENTS: dict[str, Apply] = {
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
    "member-restarts": member_restarts,
    "member-silent": member_silent,
    "leadership-moves": leadership_moves,
}
