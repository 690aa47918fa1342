"""The cluster of a shape, on the sandbox, with Mooring's configuration for it."""

from typing import TYPE_CHECKING, Any

from mooring.capabilities.balance.policy import BalancePolicy
from mooring.capabilities.drain.policy import DrainPolicy
from mooring.capabilities.fleet.live import settings
from mooring.capabilities.fleet.live.ledger import NAME, StoredCluster
from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.home.members import RESERVE_NODE
from mooring.capabilities.mix.labels import CUSTOM, ENABLED, MODE, REBALANCE
from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.core.model.leaders import LEADERS, LEADERS_ENDPOINT
from mooring.core.model.machine import MachineState
from mooring.process.settings.config import Config
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.controllers import manifests
from mooring_lab.cluster.controllers.tidb.manifests import tidb_cluster
from mooring_lab.cluster.controllers.tidb.operator_v2 import instances
from mooring_lab.cluster.kubelet import GRACE, READY, START
from mooring_lab.cluster.pd import SandboxPd
from mooring_lab.cluster.pd.settings import PdSettings
from mooring_lab.cluster.sabakan import SandboxSabakan
from mooring_lab.cluster.sabakan.registry import Ipam
from mooring_lab.events.context import SHOP, TIDB
from mooring_lab.simulate.plan import App, Plan, Shape, Tidb
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.fleet import set_settings, stored
from mooring_lab.stage.scenarios.home import TOLERATION, ask_mooring

if TYPE_CHECKING:
    from mooring_lab.simulate.simulation import Simulation

#: A pool that only its own pods may use.
POOL_TAINT = {"key": "example.com/pool", "value": "gpu", "effect": "NoSchedule"}
KARPENTER = "karpenter.sh/capacity-type"
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
    policies = (fleet, handoff, BalancePolicy(idle_s=20.0, clusters=("*",)), drain_of(shape))
    return Config(features=dict.fromkeys(shape.features, True), policies=policies)


def drain_of(shape: Shape) -> DrainPolicy:
    return DrainPolicy(max_hold_s=shape.max_hold_s, forget_s=180.0) if shape.max_hold_s else DrainPolicy()


def rig_of(plan: Plan) -> Rig:
    cluster = Cluster(seed=plan.seed, log=False)
    cluster.sabakan = SandboxSabakan(cluster.timeline, ipam=Ipam())
    return Rig(seed=plan.seed, config=config_of(plan.shape), cluster=cluster)


def _told(node_class: str, by_karpenter: bool) -> dict[str, Any]:
    """In some clusters every second node tells its class by another label."""
    return {"capacity": "", "labels": {KARPENTER: node_class}} if by_karpenter else {"capacity": node_class}


async def build(rig: Rig, shape: Shape) -> None:
    """Returns when every workload is there."""
    cluster = rig.cluster
    registry = cluster.sabakan
    second = shape.schemes > 1
    for number in range(shape.machines):
        rack = number % shape.racks
        entry = registry.register(f"M{number:03d}", rack=rack, state=MachineState.HEALTHY)
        cluster.add_node(entry.ipv4[0], rack=rack, zone=f"rack{rack}", **_told("on-demand", second and number % 2 == 1))
    width = len(str(shape.spots - 1))
    for number in range(shape.spots):
        zone = f"rack{number % shape.zones}" if shape.zones else None
        cluster.add_node(f"s{number:0{width}d}", zone=zone, **_told("spot", second and number % 2 == 1))
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
        if not tidb.shares:
            cluster.pd[TIDB, tidb.name].load(tidb.regions, tidb.voters, replenish=True)


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
        if app.leaders:
            annotations[LEADERS] = app.leaders
        if app.leaders == "hook":
            annotations[LEADERS_ENDPOINT] = f"http://hook.{SHOP}.svc:8080/"
        spec |= {"labels": labels, "annotations": annotations}
        cluster.stateful_set(SHOP, app.name, app.replicas, template=template, **spec)
    if app.budget is not None:
        cluster.pdb(SHOP, app.name, {"app": app.name}, max_unavailable=app.budget)


def add_tidb(rig: Rig, tidb: Tidb) -> None:
    cluster = rig.cluster
    if tidb.shares:
        cluster.pd[TIDB, tidb.name] = cluster.pd[TIDB, tidb.shares]
    else:
        names = instances(tidb.name, "pd", tidb.pd) if tidb.v2 else [f"{tidb.name}-pd-{i}" for i in range(tidb.pd)]
        members = tuple(names) or ("pd-0",)
        settings_ = PdSettings(transfer_s=(0.2, 0.8), members=members, graceful_s=20.0 if tidb.graceful else 0.0)
        cluster.pd[TIDB, tidb.name] = SandboxPd(
            cluster.timeline, seed=cluster.seed, cluster=tidb.name, namespace=TIDB, settings=settings_
        )
    if tidb.v2:
        cluster.tidb_v2.pod_spec = {"schedulerName": "tidb-scheduler", "tolerations": [TOLERATION]}
        made = cluster.tidb_cluster_v2(TIDB, tidb.name, group=tidb.name, tikv=tidb.tikv, pd=tidb.pd, tidb=tidb.tidb)
        if tidb.reserve:
            labels = {"metadata": {"labels": {RESERVE_NODE: "true"}}}
            cluster.store.patch(Kind.TIDB_V2, TIDB, made["metadata"]["name"], labels)
        return
    parts: dict[str, Json] = {}
    for part, count in (("tidb", tidb.tidb), ("tikv", tidb.tikv), ("pd", tidb.pd)):
        if count:
            parts[part] = {"replicas": count, "tolerations": [TOLERATION], "requests": {"cpu": "1", "memory": "2Gi"}}
            if tidb.storage and part != "tidb":
                parts[part]["storageClassName"] = tidb.storage
    obj = tidb_cluster(TIDB, tidb.name, scheduler="tidb-scheduler", **parts)
    if tidb.shares:
        obj["spec"]["cluster"] = {"name": tidb.shares, "namespace": TIDB}
    if tidb.reserve:
        obj["metadata"]["labels"] = {RESERVE_NODE: "true"}
    cluster.store.create(Kind.TIDB_CLUSTER, obj)


# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# A stand-in for CKE: it makes the cluster what fleet stored, machine by machine.


EVERY_S = 10.0
#: Less than the hour by what passes between a write and a look.
BACK_OFF_S = 3600.0 - EVERY_S


def follow_fleet(sim: "Simulation") -> None:
    if "fleet" not in sim.plan.shape.features:
        return
    members: set[str] = set()
    last: list[StoredCluster] = []
    replaced: dict[str, float] = {}
    read: Json | None = None

    def look() -> None:
        nonlocal members, read
        store = sim.stage.cluster.store
        found = store.find(Kind.CONFIG_MAP, sim.stage.config.namespace, NAME)
        ledger = last[0] if last and found is read else stored(sim.stage)  # what is stored is never changed in place
        read = found
        inside = {m.address for m in ledger.members}
        for address in sorted(members - inside):
            if store.find(Kind.NODE, "", address) is not None:
                sim.note(f"cke deletes node {address}")
                store.delete(Kind.NODE, "", address)
        for address in sorted(inside - sim.stage.cluster.sabakan.never_boot):
            if store.find(Kind.NODE, "", address) is None:
                sim.note(f"cke adds node {address}")
                sim.stage.cluster.add_node(address)
        if last:
            for words in wrong_between(last[0], ledger):
                sim.fail("F3 one control plane at a time", words)
            for words in replaced_again(last[0], ledger, replaced, sim.now):
                sim.fail("F14 no control plane is replaced twice in an hour", words)
            planes = [{m.address for m in one.members if m.control_plane} for one in (last[0], ledger)]
            if planes[0] != planes[1]:
                sim.hit("control-plane-changed")
        if members - inside:
            sim.hit("worker-removed")
        last[:], members = [ledger], inside
        sim.after(EVERY_S, look)

    look()


def wrong_between(before: StoredCluster, after: StoredCluster) -> list[str]:
    """Of two stored clusters, one revision apart."""
    if after.revision != before.revision + 1:
        return []
    old, new = ({m.address for m in one.members if m.control_plane} for one in (before, after))
    found = [f"control planes {sorted(old)} became {sorted(new)} in one revision"] if _many(old, new) else []
    addresses = [m.address for m in after.members]
    found += ["an address twice"] if len(set(addresses)) < len(addresses) else []
    found += [f"control plane {m.address} leaves" for m in after.members if m.control_plane and m.leaving]
    return found + ([] if new else ["no control plane"])


def replaced_again(before: StoredCluster, after: StoredCluster, replaced: dict[str, float], now: float) -> list[str]:
    """Of two stored clusters; `replaced`: when each was replaced last, which this goes on with."""
    old, new = ({m.address for m in one.members if m.control_plane} for one in (before, after))
    gone = sorted(old - new) if new - old else []
    again = [f"{a} after {now - replaced[a]:.0f} s" for a in gone if now - replaced.get(a, -BACK_OFF_S) < BACK_OFF_S]
    replaced |= dict.fromkeys(gone, now)
    return again


def _many(old: set[str], new: set[str]) -> bool:
    return bool(old) and max(len(old - new), len(new - old)) > 1
