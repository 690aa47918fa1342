"""Put the sandbox into the state of a snapshot: every pod on its node, and nothing to do for any controller.

Objects keep their uid, age, generation and status, so that neither Mooring nor a controller sees anything happen when
time begins. What the sandbox's controllers would disagree about is settled here: the names of revisions are the
sandbox's own (it hashes templates in its way), a node that was not Ready stays silent, and a pod that was not Ready for
long stays so. tidb-operator does not reconcile: its templates are not the stand-in's.
"""

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any, Final

import msgspec

from mooring.capabilities.fleet.live import settings
from mooring.clients.ports import Json, PortError
from mooring.core.model.cluster import Key
from mooring.core.model.kinds import Kind
from mooring.core.model.leaders import DRIVERS, LEADERS
from mooring.core.model.times import rfc3339
from mooring_lab.cluster.apiserver.defaults import set_defaults
from mooring_lab.cluster.clock import Timeline, parse_rfc3339
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.controllers.podstate import annotations_of, labels_of, with_meta
from mooring_lab.cluster.controllers.workloads.ownership import controller_of
from mooring_lab.cluster.controllers.workloads.rollout import REVISION_LABEL, template_hash
from mooring_lab.cluster.kubelet import FAIL, READY, SLOWEST, START, KubeletPace
from mooring_lab.cluster.sabakan import SandboxSabakan
from mooring_lab.cluster.sabakan.registry import RegisteredMachine
from mooring_lab.cluster.scheduler.selection import Profile
from mooring_lab.demo.acts.stores import LIMITS
from mooring_lab.demo.sandbox_stage import SandboxStage
from mooring_lab.judge.lines import title
from mooring_lab.rehearse.snapshot.capture import gather, shot
from mooring_lab.rehearse.snapshot.schema import KINDS, VERSION, BadSnapshotError, PdShot, Snapshot
from mooring_lab.rehearse.snapshot.stores import assumed, build_pd, component_pods, tikv_pods
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.fleet import stored

#: Not Ready for this long: it is broken, not starting.
BROKEN_S: Final = 300.0
DEFAULT_SCHEDULER: Final = "default-scheduler"
#: A stream of ids of its own: those of a snapshot that was taken of a sandbox must not come again.
_OTHER_IDS: Final = 0x72656865_00000000


class Loaded:
    """The cluster, and what has to be said about how it was made."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        #: Real regions that one played region stands for, by cluster.
        self.scale: dict[tuple[str, str], float] = {}
        #: Clusters whose PD was not read.
        self.assumed_pds: set[Key] = set()
        #: Drivers of systems with leaders (`mooring.dev/leaders`): a snapshot asks none of them.
        self.assumed_systems: set[str] = set()
        self.remarks: list[str] = []
        #: Workloads of whose pods none tells how long it took to start, and how long is assumed instead.
        self.assumed_starts: set[str] = set()
        self.assumed_start_s = 0.0
        #: Starts differ, or some are assumed: slow ones are worth a second look.
        self.starts_vary = False


def load(snapshot: Snapshot, seed: int, pace: KubeletPace | None = None) -> Loaded:
    """Raises BadSnapshotError, naming the object, when something in it cannot stand."""
    taken_at = parse_rfc3339(snapshot.taken_at)
    schedulers = sorted({*_schedulers(snapshot), DEFAULT_SCHEDULER, "tidb-scheduler"})
    pace = _usual_pace(snapshot, pace or KubeletPace())
    profiles = tuple(Profile(name, 100) if name == "tidb-scheduler" else Profile(name) for name in schedulers)
    cluster = Cluster(seed ^ _OTHER_IDS, Timeline(taken_at), profiles=profiles, pace=pace, log=False)
    cluster.tidb_operator.stopped = True
    loaded = Loaded(cluster)
    _say_of_starts(snapshot, loaded, pace)
    if snapshot.version < VERSION:
        loaded.remarks.append("an earlier Mooring took the snapshot: host ports and labels of namespaces are not in it")
    pods = snapshot.of(Kind.POD)
    _place_pds(snapshot, loaded, pods)
    revisions = _revisions(snapshot, pods)
    for kind in (Kind.REPLICA_SET, Kind.POD):
        for obj in snapshot.of(kind):
            for owner in obj["metadata"].get("ownerReferences") or ():
                if owner.get("kind") in (Kind.ROLLOUT, Kind.CLONE_SET):  # an earlier snapshot does not have them
                    cluster.store.vouch(owner["uid"], Kind(owner["kind"]))
    for kind in KINDS:
        for obj in snapshot.of(kind):
            name = obj["metadata"]["name"]
            if kind is Kind.NAMESPACE and cluster.store.find(kind, "", name) is not None:
                cluster.store.remove(kind, "", name)  # the sandbox's own
            if kind is Kind.NAMESPACE and name == snapshot.namespace and podstate.terminating(obj):
                loaded.remarks.append(f"namespace {name} was being deleted: Mooring runs there as if it were not")
                continue
            try:
                cluster.store.create(kind, _restored(kind, obj, taken_at, revisions), prepared=True)
            except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, PortError) as error:
                where = "/".join(filter(None, (obj["metadata"].get("namespace"), name)))
                words = f"{kind} {where} cannot be loaded ({type(error).__name__}: {error})"
                raise BadSnapshotError(f"damaged: {words}; take it again") from error
    for node in snapshot.of(Kind.NODE):
        ready = podstate.condition(node, "Ready")
        if ready is not None and ready["status"] != "True":
            cluster.kubelets.silence(node["metadata"]["name"])
    if snapshot.machines is not None:
        _register(cluster, snapshot)
    return loaded


def _starts(snapshot: Snapshot) -> Iterator[tuple[str, float | None, float | None]]:
    """Of each workload how long a start takes, usually and at the most; None: not known."""
    for kind in (Kind.DEPLOYMENT, Kind.STATEFUL_SET, Kind.REPLICA_SET):
        for obj in snapshot.of(kind):
            if not obj["spec"].get("replicas", 1) or (kind is Kind.REPLICA_SET and controller_of(obj) is not None):
                continue
            said = (obj["spec"]["template"].get("metadata") or {}).get("annotations") or {}
            known = START in said or READY in said
            yield (
                title(obj),
                float(said.get(START, 0)) if known else None,
                float(said[SLOWEST]) if SLOWEST in said else None,
            )


def _usual_pace(snapshot: Snapshot, pace: KubeletPace) -> KubeletPace:
    """A pod of which nothing is known starts as one in the middle of those of which something is."""
    usual = [start for _, start, _ in _starts(snapshot) if start is not None]
    if not usual:
        return pace
    slowest = max(usual + [one for _, _, one in _starts(snapshot) if one is not None])
    return msgspec.structs.replace(pace, start_s=float(median(usual)), ready_s=0.0, slowest_s=slowest)


def _say_of_starts(snapshot: Snapshot, loaded: Loaded, pace: KubeletPace) -> None:
    starts = list(_starts(snapshot))
    loaded.assumed_starts = {name for name, usual, _ in starts if usual is None}
    loaded.assumed_start_s = pace.start_s + pace.ready_s
    loaded.starts_vary = bool(loaded.assumed_starts) or any(slowest is not None for _, _, slowest in starts)


def _restored(kind: Kind, obj: Json, taken_at: float, revisions: Mapping[str, Any]) -> Json:
    """An object of our own, as the store would have it: with defaults, and in agreement with the controllers."""
    made = set_defaults(kind, {**obj, "metadata": dict(obj["metadata"])})
    made["metadata"].setdefault("creationTimestamp", rfc3339(taken_at))
    if kind is Kind.POD:
        return _pod(made, taken_at, revisions)
    if kind is Kind.STATEFUL_SET and made["metadata"]["uid"] in revisions:
        was, now = revisions[made["metadata"]["uid"]]
        status = made.get("status") or {}
        renamed = {f: now for f in ("currentRevision", "updateRevision") if status.get(f) == was}
        return podstate.with_status(made, **renamed)
    return made


def _pod(pod: Json, taken_at: float, revisions: Mapping[str, Any]) -> Json:
    owner = controller_of(pod)
    was, now = revisions.get(owner["uid"] if owner is not None else "", ("", ""))
    if was and labels_of(pod).get(REVISION_LABEL) == was:
        pod = with_meta(pod, labels={**labels_of(pod), REVISION_LABEL: now})
    if _is_broken(pod, taken_at):
        pod = with_meta(pod, annotations={**annotations_of(pod), FAIL: "ready"})
    return pod


def _is_broken(pod: Json, taken_at: float) -> bool:
    if podstate.phase_of(pod) != "Running" or podstate.ready(pod) or podstate.terminating(pod):
        return False
    ready = podstate.condition(pod, "Ready")
    since = (ready or {}).get("lastTransitionTime") or pod["metadata"].get("creationTimestamp")
    return since is not None and taken_at - parse_rfc3339(since) > BROKEN_S


def _revisions(snapshot: Snapshot, pods: list[Json]) -> dict[str, tuple[str, str]]:
    """Owner → (the current revision's name in the real cluster, its name in the sandbox)."""
    found: dict[str, tuple[str, str]] = {}
    for obj in snapshot.of(Kind.STATEFUL_SET):
        was = (obj.get("status") or {}).get("updateRevision")
        if was:
            template = set_defaults(Kind.STATEFUL_SET, obj)["spec"]["template"]
            found[obj["metadata"]["uid"]] = (was, f"{obj['metadata']['name']}-{template_hash(template)}")
    newest: dict[str, tuple[str, str]] = {}
    for pod in pods:
        owner, revision = controller_of(pod), labels_of(pod).get(REVISION_LABEL)
        if owner is not None and owner["kind"] == "DaemonSet" and revision:
            born = (str(pod["metadata"].get("creationTimestamp", "")), revision)
            newest[owner["uid"]] = max(newest.get(owner["uid"], ("", "")), born)
    for obj in snapshot.of(Kind.DAEMON_SET):
        uid = obj["metadata"]["uid"]
        if uid in newest:
            template = set_defaults(Kind.DAEMON_SET, obj)["spec"]["template"]
            found[uid] = (newest[uid][1], template_hash(template))
    return found


def _place_pds(snapshot: Snapshot, loaded: Loaded, pods: list[Json]) -> None:
    """Before the pods: a TiKV pod that appears tells its PD, and a member with leaders its system."""
    for obj in snapshot.of(Kind.STATEFUL_SET):
        driver = (obj["metadata"].get("annotations") or {}).get(LEADERS, "")
        if driver in DRIVERS:
            loaded.assumed_systems.add(driver)
            where = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
            loaded.remarks.append(
                f"the {driver} of {where} is not asked: its members in sync, the first one leading, are assumed"
            )
    shots = {Key(shot.namespace, shot.cluster): shot for shot in snapshot.pds}
    for obj in snapshot.of(Kind.TIDB_CLUSTER):
        key = Key(obj["metadata"]["namespace"], obj["metadata"]["name"])
        if key not in shots:
            if not tikv_pods(pods, key):
                continue
            shots[key] = assumed(key, pods)
            loaded.assumed_pds.add(key)
            loaded.remarks.append(
                f"the PD of {key} is not in the snapshot: 3 voters per region, spread evenly, are assumed"
            )
        members = tuple(sorted(pod["metadata"]["name"] for pod in component_pods(pods, key, "pd")))
        if members and not set(members) & set(shots[key].members):
            shots[key] = msgspec.structs.replace(shots[key], members=members, leader=members[0])
        loaded.scale[key.namespace, key.name] = build_pd(loaded.cluster, shots[key])


def _register(cluster: Cluster, snapshot: Snapshot) -> None:
    registry = cluster.sabakan = SandboxSabakan(cluster.timeline)
    for one in snapshot.machines or ():
        registry.entries[one.serial] = RegisteredMachine(
            serial=one.serial,
            rack=one.rack,
            index_in_rack=one.index_in_rack,
            role=one.role,
            ipv4=(one.address,) if one.address else (),
            bmc_ipv4=one.bmc_address,
            bmc_type="",
            labels=one.labels,
            registered_at=one.registered_at,
            retire_at=one.retire_at,
            state=one.state,
            state_since=one.state_since,
        )


def _schedulers(snapshot: Snapshot) -> set[str]:
    """Everything that a pod or a template refers to."""
    specs = [pod["spec"] for pod in snapshot.of(Kind.POD)]
    for kind in (Kind.DEPLOYMENT, Kind.REPLICA_SET, Kind.STATEFUL_SET, Kind.DAEMON_SET):
        specs.extend(obj["spec"]["template"]["spec"] for obj in snapshot.of(kind))
    return {str(spec["schedulerName"]) for spec in specs if spec.get("schedulerName")}


def schedulers_of_members(snapshot: Snapshot) -> list[str]:
    """Who places TiDB members: the schedulers that would ask Mooring."""
    found = {
        str(pod["spec"].get("schedulerName") or "default-scheduler")
        for pod in snapshot.of(Kind.POD)
        if labels_of(pod).get("app.kubernetes.io/managed-by") == "tidb-operator"
    }
    return sorted(found)


# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# A snapshot without a cluster: the demo's, at the moment its day begins. For trying out, and for tests.


#: Eleven of the twelve machines have a place; one is spare.
_SEATED = 11


def demo_snapshot(seed: int = 1) -> Snapshot:
    stage = SandboxStage(seed)
    taken: list[Snapshot] = []

    async def whole() -> None:
        try:
            await stage.build()
            stage.switch_on("fleet")
            await stage.set_fleet(**{settings.CONSTRAINTS: LIMITS})
            await stage.rig.until(lambda: len(stored(stage.rig).members) == _SEATED, limit_s=120)
            await stage.rig.until(lambda: not stage.rig.unsettled())
            await stage.rig.sleep(30.0)
            taken.append(await of_rig(stage.rig, "demo"))
        finally:
            await stage.close()

    stage.run(whole)
    return taken[0]


async def of_rig(rig: Rig, source: str) -> Snapshot:
    """A sandbox cluster as it stands now."""
    cluster = rig.cluster
    pds: list[PdShot] = []
    for (namespace, name), pd in sorted(cluster.pd.items()):
        pds.append(shot(Key(namespace, name), await pd.observe(), await pd.regions()))
    return gather(
        {kind: cluster.store.list(kind) for kind in KINDS},
        taken_at=rfc3339(cluster.timeline.now()),
        source=source,
        namespace=rig.config.namespace,
        pds=pds,
        machines=await cluster.sabakan.machines() if cluster.sabakan is not None else None,
    )
