"""The cluster of a shape, on the sandbox, with Mooring's configuration for it."""

from typing import Any

from mooring.capabilities.balance.policy import BalancePolicy
from mooring.capabilities.fleet.live import settings
from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.home.members import RESERVE_NODE
from mooring.capabilities.mix.labels import CUSTOM, ENABLED, MODE, REBALANCE
from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring.process.settings.config import Config
from mooring.sandbox.cluster import Cluster
from mooring.sandbox.controllers import manifests
from mooring.sandbox.controllers.tidb.manifests import tidb_cluster
from mooring.sandbox.kubelet import GRACE, READY, START
from mooring.sandbox.pd import SandboxPd
from mooring.sandbox.pd.settings import PdSettings
from mooring.sandbox.sabakan import SandboxSabakan
from mooring.sandbox.sabakan.ipam import Ipam
from mooring.sim.rig import Rig
from mooring.sim.scenarios.fleet import set_settings
from mooring.sim.scenarios.home import TOLERATION, ask_mooring
from mooring.sim.whole.plan import App, Plan, Shape, Tidb

SHOP, TIDB = "shop", "tidb"
#: A pool that only its own pods may use.
POOL_TAINT = {"key": "example.com/pool", "value": "gpu", "effect": "NoSchedule"}
#: Retirements get this long before what is left on the node is no longer waited for.
RETIRE_TIMEOUT_S = 900.0


def config_of(shape: Shape) -> Config:
    fleet = FleetPolicy(
        query_s=20.0,
        wait_retired_s=120.0,
        settle_timeout_s=300.0,
        retire_timeout_s=RETIRE_TIMEOUT_S,
        retire_hold_s=120.0,
        retire=shape.retire,  # type: ignore[arg-type]
    )
    handoff = HandoffPolicy(recheck_s=5.0, idle_s=20.0, young_pd_s=10.0, timeout_s=600.0)
    policies = (fleet, handoff, BalancePolicy(idle_s=20.0))
    return Config(features=dict.fromkeys(shape.features, True), policies=policies)


def rig_of(plan: Plan) -> Rig:
    cluster = Cluster(seed=plan.seed, log=False)
    cluster.sabakan = SandboxSabakan(cluster.timeline, ipam=Ipam())
    return Rig(seed=plan.seed, config=config_of(plan.shape), cluster=cluster)


async def build(rig: Rig, shape: Shape) -> None:
    """Returns when every workload is there."""
    cluster = rig.cluster
    registry = cluster.sabakan
    for number in range(shape.machines):
        rack = number % shape.racks
        entry = registry.register(f"M{number:03d}", rack=rack, state=MachineState.HEALTHY)
        cluster.add_node(entry.ipv4[0], rack=rack, zone=f"rack{rack}")
    cluster.add_nodes(shape.spots, "s", capacity="spot")
    if shape.tainted:
        cluster.add_nodes(shape.tainted, "gpu", taints=[POOL_TAINT])
    if "fleet" in shape.features:
        limits = f"control-plane-count: {shape.planes}\nminimum-workers: {shape.workers}\n"
        set_settings(rig, **{settings.CONSTRAINTS: limits, settings.URL: "http://sabakan.sandbox:10080"})
    if "home" in shape.features:
        ask_mooring(rig)
    if shape.quota:
        cluster.quota(SHOP, "shop", pods=max(120, _most_pods(shape) + 30))
    for tidb in shape.tidbs:
        add_tidb(rig, tidb)
    for app in shape.apps:
        add_app(rig, app)
    for number in range(shape.bare_pods):
        template = manifests.pod_template({"app": f"bare{number}"})
        cluster.store.create(Kind.POD, {**template, "metadata": {"namespace": SHOP, "name": f"bare{number}"}})
    await rig.sleep(1.0)
    await rig.until(cluster.stable, limit_s=300)
    for tidb in shape.tidbs:
        cluster.pd[TIDB, tidb.name].load(tidb.regions, replenish=True)


def _most_pods(shape: Shape) -> int:
    """What the workloads of the shop ask for: a quota leaves room for all of them, or the cluster never comes up."""
    nodes = shape.machines + shape.spots + shape.tainted
    return shape.bare_pods + sum(nodes if app.kind == "DaemonSet" else app.replicas for app in shape.apps)


def add_app(rig: Rig, app: App) -> None:
    labels: dict[str, str] = {}
    if app.mode:
        labels[ENABLED] = "true"
        if app.mode != "default":
            labels[MODE] = app.mode
        if app.custom:
            labels[CUSTOM] = app.custom
    more: dict[str, Any] = {"terminationGracePeriodSeconds": app.grace_s}
    if app.empty_dir:
        more["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    times = {START: f"{app.start_s - 1:g}", READY: "1", GRACE: f"{min(app.grace_s, 4)}"}
    template = manifests.pod_template({"app": app.name}, cpu=f"{app.cpu_milli}m", annotations=times, **more)
    cluster = rig.cluster
    if app.kind == "DaemonSet":
        cluster.daemon_set(SHOP, app.name, template=template)
        return
    annotations = {REBALANCE: "fast"} if app.fast else {}
    if app.kind == "Deployment":
        cluster.deployment(SHOP, app.name, app.replicas, template=template, labels=labels, annotations=annotations)
    else:
        spec: Json = {}
        if app.local_volume:
            claim = {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "local-ssd",
                "resources": {"requests": {"storage": "1Gi"}},
            }
            spec["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
        cluster.stateful_set(SHOP, app.name, app.replicas, template=template, labels=labels, **spec)
    if app.budget is not None:
        cluster.pdb(SHOP, app.name, {"app": app.name}, max_unavailable=app.budget)


def add_tidb(rig: Rig, tidb: Tidb) -> None:
    cluster = rig.cluster
    members = tuple(f"{tidb.name}-pd-{i}" for i in range(tidb.pd)) or ("pd-0",)
    settings_ = PdSettings(transfer_s=(0.2, 0.8), members=members)
    cluster.pd[TIDB, tidb.name] = SandboxPd(
        cluster.timeline, seed=cluster.seed, cluster=tidb.name, namespace=TIDB, settings=settings_
    )
    parts: dict[str, Json] = {}
    for part, count in (("tidb", tidb.tidb), ("tikv", tidb.tikv), ("pd", tidb.pd)):
        if count:
            parts[part] = {"replicas": count, "tolerations": [TOLERATION], "requests": {"cpu": "1", "memory": "2Gi"}}
            if tidb.storage and part != "tidb":
                parts[part]["storageClassName"] = tidb.storage
    obj = tidb_cluster(TIDB, tidb.name, scheduler="tidb-scheduler", **parts)
    if tidb.reserve:
        obj["metadata"]["labels"] = {RESERVE_NODE: "true"}
    cluster.store.create(Kind.TIDB_CLUSTER, obj)
