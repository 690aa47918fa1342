"""Look at a live cluster and write down what a rehearsal needs. It lists and gets; it never writes.

Lists of different kinds are made one after the other, and the cluster goes on meanwhile: so all of them are asked for
as of the first one's resourceVersion. An API server that does not have that revision any more is listed as it is now,
and a remark says how far apart that is; pods come first then, what owns them next, nodes last, so that nothing seems to
stand on what does not exist. A kind that may not be listed ends it, since a verdict without the budgets or the volumes
would be a guess; PD and the registry are asked where they can be reached, and a remark says where they could not.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Final

import msgspec

import mooring
from mooring.capabilities.fleet.live import settings
from mooring.clients.kube.config import Connection
from mooring.clients.kube.transport import ApiRequest, Transport
from mooring.clients.ports import (
    ExpiredError,
    Json,
    MachineRegistry,
    NotFoundError,
    PlacementDriver,
    PortError,
    RefusedError,
    UnansweredError,
)
from mooring.clients.registry.netbox import NetboxSettings
from mooring.clients.wire.kube import project
from mooring.core.model.cluster import Key
from mooring.core.model.kinds import RESOURCES, Kind
from mooring.core.model.machine import Machine
from mooring.core.model.tidb import PdView, Region
from mooring.core.model.times import rfc3339
from mooring.process.pd_directory import endpoints
from mooring.process.settings.config import Config
from mooring_lab.cluster.clock import parse_rfc3339
from mooring_lab.cluster.controllers.workloads.ownership import controller_of
from mooring_lab.cluster.kubelet import READY, SLOWEST, START
from mooring_lab.rehearse.snapshot.redact import redact
from mooring_lab.rehearse.snapshot.schema import KINDS, PdShot, PlacementShot, Snapshot, StoreShot

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# From whole objects to a snapshot: cut down, pruned, and with what the objects tell about themselves written down.


#: A pod that took longer became unready and ready again, or waited for another pod.
LONGEST_START_S: Final = 900.0
_TEMPLATED: Final = (Kind.DEPLOYMENT, Kind.REPLICA_SET, Kind.STATEFUL_SET, Kind.DAEMON_SET)
#: Our own ConfigMaps: settings, the stored cluster, memories.
OUR_PREFIX: Final = "mooring-"

Whole = Mapping[Kind, Iterable[Json]]


def gather(
    whole: Whole,
    *,
    taken_at: str,
    source: str,
    namespace: str,
    pds: Iterable[PdShot] = (),
    machines: Iterable[Machine] | None = None,
    autoscalers: Iterable[str] = (),
    remarks: Iterable[str] = (),
) -> Snapshot:
    """`whole`: every object of every kind, as the API server has it."""
    found = {kind: sorted(whole.get(kind, ()), key=_place) for kind in KINDS}
    found[Kind.CONFIG_MAP] = [one for one in found[Kind.CONFIG_MAP] if _is_ours(one, namespace)]
    found[Kind.REPLICA_SET] = _in_use(found[Kind.REPLICA_SET], found[Kind.POD])
    roots = _roots(found[Kind.REPLICA_SET])
    times = _start_times(found[Kind.POD], roots)
    priorities = _priorities(found[Kind.POD])
    objects: dict[str, list[Json]] = {}
    for kind, these in found.items():
        made = [redact(kind, one) for one in these]
        if kind in _TEMPLATED:
            for one, was in zip(made, these, strict=True):
                uid = was["metadata"]["uid"]
                _tell(one["spec"]["template"], was["spec"]["template"], times.get(roots.get(uid, uid)), priorities)
        if made:
            objects[kind.value] = made
    return Snapshot(
        mooring=mooring.__version__,
        taken_at=taken_at,
        source=source,
        namespace=namespace,
        objects=objects,
        pds=tuple(sorted(pds, key=lambda pd: (pd.namespace, pd.cluster))),
        machines=None if machines is None else _in_order(machines),
        autoscalers=tuple(sorted(autoscalers)),
        remarks=tuple(remarks),
    )


def _in_order(machines: Iterable[Machine]) -> tuple[Machine, ...]:
    """In order, each with labels of its own kind: a client's may be a view that cannot be written down."""
    plain = (msgspec.structs.replace(one, labels=dict(one.labels)) for one in machines)
    return tuple(sorted(plain, key=lambda one: one.serial))


def _place(obj: Json) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _is_ours(obj: Json, namespace: str) -> bool:
    meta = obj["metadata"]
    return bool(meta.get("namespace") == namespace and str(meta["name"]).startswith(OUR_PREFIX))


def _in_use(sets: list[Json], pods: list[Json]) -> list[Json]:
    """Old revisions with no pod and none wanted are history; nothing in a rehearsal goes back to them."""
    owners = {reference["uid"] for reference in map(controller_of, pods) if reference is not None}
    return [one for one in sets if one["spec"].get("replicas", 1) or one["metadata"]["uid"] in owners]


def _roots(sets: list[Json]) -> dict[str, str]:
    """ReplicaSet → its Deployment, by uid."""
    owners = {one["metadata"]["uid"]: controller_of(one) for one in sets}
    return {uid: owner["uid"] for uid, owner in owners.items() if owner is not None}


def _start_times(pods: list[Json], roots: Mapping[str, str]) -> dict[str, tuple[float, float]]:
    """Seconds from its node to Ready, by the uid of the owner of such pods: usually, and of the slowest."""
    seen: dict[str, list[float]] = {}
    for pod in pods:
        owner, took = controller_of(pod), start_time(pod)
        if owner is not None and took is not None:
            seen.setdefault(roots.get(owner["uid"], owner["uid"]), []).append(took)
    return {uid: (float(median(times)), max(times)) for uid, times in seen.items()}


def start_time(pod: Json) -> float | None:
    """How long this pod took from its node to Ready; None when that cannot be told any more."""
    status = pod.get("status") or {}
    if any(one.get("restartCount") for one in status.get("containerStatuses") or ()):
        return None
    at = {c["type"]: c.get("lastTransitionTime") for c in status.get("conditions") or () if c.get("status") == "True"}
    bound, ready = at.get("PodScheduled"), at.get("Ready")
    if not bound or not ready:
        return None
    took = parse_rfc3339(ready) - parse_rfc3339(bound)
    return took if 0.0 <= took <= LONGEST_START_S else None


def _priorities(pods: list[Json]) -> dict[str, int]:
    named = ((pod["spec"].get("priorityClassName"), pod["spec"].get("priority")) for pod in pods if pod.get("spec"))
    return {name: number for name, number in named if name and isinstance(number, int)}


def _tell(template: Json, was: Any, start: tuple[float, float] | None, priorities: Mapping[str, int]) -> None:
    """Write what was learnt onto a template of ours (it is a fresh object)."""
    annotations = template["metadata"].get("annotations") or {}
    if start is not None and START not in annotations and READY not in annotations:
        usual, slowest = start
        learnt = {START: f"{usual:g}", READY: "0", **({SLOWEST: f"{slowest:g}"} if slowest > usual else {})}
        template["metadata"]["annotations"] = {**annotations, **learnt}
    name = ((was or {}).get("spec") or {}).get("priorityClassName")
    number = priorities.get(str(name))
    if number is not None and "priority" not in template["spec"]:
        template["spec"]["priority"] = number


PAGE: Final = 500
PAGE_S: Final = 60.0
#: A long list whose beginning was compacted away while we read is begun again this often.
TRIES: Final = 3
_LAST_FIRST: Final = tuple(reversed(KINDS))
#: Not kinds that Mooring reads: a rehearsal only says that they are there.
AUTOSCALERS: Final = "/apis/autoscaling/v2/horizontalpodautoscalers"
CRON_JOBS: Final = "/apis/batch/v1/cronjobs"

MakePd = Callable[[Key, tuple[str, ...]], PlacementDriver]
MakeRegistry = Callable[[str, NetboxSettings], MachineRegistry]
Progress = Callable[[str], None]


async def take(
    connection: Connection,
    config: Config,
    *,
    now: float,
    make_pd: MakePd | None,
    make_registry: MakeRegistry | None,
    progress: Progress = lambda _: None,
) -> Snapshot:
    """Raises PortError when the cluster could not be looked at. `make_pd` None: PD is not asked."""
    transport = Transport(connection)
    lists = _Lists(transport)
    try:
        whole: dict[Kind, list[Json]] = {}
        for kind in _LAST_FIRST:
            path = RESOURCES[kind].path(config.namespace if kind is Kind.CONFIG_MAP else "")
            whole[kind] = await lists.of(path, RESOURCES[kind].plural)
            progress(f"{len(whole[kind])} {RESOURCES[kind].plural}")
        autoscalers = await _not_played(lists, AUTOSCALERS, "HorizontalPodAutoscaler")
        cron_jobs = await _not_played(lists, CRON_JOBS, "CronJob")
    finally:
        await transport.close()
    calm = [one for one in autoscalers if not isinstance(one, str) and _is_calm(one)]
    remarks = [*lists.remarks(), *_same_load(calm)]
    acting = [one for one in (*autoscalers, *cron_jobs) if one not in calm]
    pds = await _pds(whole[Kind.TIDB_CLUSTER], config, make_pd, remarks)
    return gather(
        whole,
        taken_at=rfc3339(now),
        source=connection.server,
        namespace=config.namespace,
        pds=pds,
        machines=await _machines(whole[Kind.CONFIG_MAP], config, make_registry, remarks),
        autoscalers=[one if isinstance(one, str) else _named(one) for one in acting if not _is_suspended(one)],
        remarks=remarks,
    )


class _Lists:
    """Every list as of the revision of the first, where the API server still has it."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._revision = ""
        self._began = asyncio.get_running_loop().time()
        #: Listed as it was later: what, at which revision, how many seconds after the first.
        self._later: list[tuple[str, str, float]] = []

    async def of(self, path: str, what: str) -> list[Json]:
        if self._revision:
            exact = {"resourceVersion": self._revision, "resourceVersionMatch": "Exact"}
            try:
                return (await self._pages(path, what, exact))[0]
            except NotFoundError:
                return []  # no such kind in this cluster: no TidbClusters, then
            except (ExpiredError, RefusedError, UnansweredError):
                pass  # compacted away, of another etcd, or never kept: as it is now
        for attempt in range(1, TRIES + 1):
            try:
                found, revision = await self._pages(path, what, {})
                break
            except NotFoundError:
                return []
            except ExpiredError:
                if attempt == TRIES:
                    raise
        if not self._revision:
            self._revision = revision
        elif revision != self._revision:
            self._later.append((what, revision, asyncio.get_running_loop().time() - self._began))
        return found

    async def _pages(self, path: str, what: str, params: dict[str, str]) -> tuple[list[Json], str]:
        """Everything, and as of which revision."""
        found: list[Json] = []
        params = {"limit": str(PAGE), **params}
        while True:
            request = ApiRequest("GET", path, f"list {what}", params)
            page: Json = msgspec.json.decode(await self._transport.send(request, PAGE_S))
            found.extend(page.get("items") or ())
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return found, str(metadata.get("resourceVersion", ""))
            params = {"limit": str(PAGE), "continue": metadata["continue"]}

    def remarks(self) -> list[str]:
        if not self._later:
            return []
        _, revision, after_s = self._later[-1]
        both = revision.isdigit() and self._revision.isdigit()
        changes = f" and {int(revision) - int(self._revision)} changes" if both else ""
        names = ", ".join(name for name, _, _ in self._later)
        apart = f"not of one moment: {names} are of up to {after_s:.1f} s{changes} after the first list"
        return [f"{apart} (the API server does not have revision {self._revision} any more)"]


async def _not_played(lists: _Lists, path: str, kind: str) -> list[Json | str]:
    """Each with its kind, which a list leaves out; words where they may not be listed."""
    try:
        found = await lists.of(path, path.rpartition("/")[2])
    except RefusedError:
        return [f"{kind}s (not allowed to list them)"]
    return [{**one, "kind": kind} for one in found]


def _named(one: Json) -> str:
    return f"{one['kind']} {one['metadata']['namespace']}/{one['metadata']['name']}"


def _is_suspended(one: Json | str) -> bool:
    return not isinstance(one, str) and bool((one.get("spec") or {}).get("suspend"))


def _is_calm(one: Json) -> bool:
    """An autoscaler that is where it wants to be. With the same load it stays there whoever is away: a pod that is not
    Ready counts as idle, and what it would have carried is on the others."""
    status = one.get("status") or {}
    return bool(status.get("desiredReplicas")) and status["desiredReplicas"] == status.get("currentReplicas")


def _same_load(calm: Sequence[Json]) -> list[str]:
    if not calm:
        return []
    more = f" (and {len(calm) - 1} more)" if calm[1:] else ""
    return [f"{_named(calm[0])}{more}: the same load is assumed, with which it keeps the replicas that it asked for"]


# ── PD ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _pds(clusters: Sequence[Json], config: Config, make_pd: MakePd | None, remarks: list[str]) -> list[PdShot]:
    found = []
    for obj in clusters:
        tc = project(Kind.TIDB_CLUSTER, obj)
        key = Key(obj["metadata"]["namespace"], obj["metadata"]["name"])
        if make_pd is None:
            remarks.append(f"PD of {key} was not asked (--without-pd)")
            continue
        try:
            urls = endpoints(tc, config.pd, config.pd_hosts)  # type: ignore[arg-type]
        except PortError as error:
            remarks.append(f"PD of {key} was not asked: {error}")
            continue
        driver = make_pd(key, urls)
        try:
            found.append(shot(key, await driver.observe(), await driver.regions()))
        except PortError as error:
            remarks.append(f"PD of {key} could not be looked at: {error}")
        finally:
            await driver.close()
    return found


def shot(key: Key, view: PdView, regions: Sequence[Region]) -> PdShot:
    """Stores, and the regions counted by where they stand: a hundred thousand regions are a few hundred lines."""
    counted: Counter[tuple[tuple[int, ...], int]] = Counter()
    for region in regions:
        voters = tuple(sorted(peer.store_id for peer in region.peers if peer.role != "Learner"))
        if voters:
            counted[voters, region.leader_store] += 1
    return PdShot(
        namespace=key.namespace,
        cluster=key.name,
        leader=view.leader,
        members=tuple(member.name for member in view.members),
        started_at=view.start_timestamp,
        stores=tuple(
            StoreShot(id=store.id, address=store.address, state=store.state, labels=dict(store.labels))
            for store in sorted(view.stores, key=lambda one: one.id)
        ),
        evicting=tuple(sorted(view.evicting or ())),
        placements=tuple(
            PlacementShot(peers=peers, leader=leader, regions=count)
            for (peers, leader), count in sorted(counted.items())
        ),
    )


# ── Machines ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def _machines(
    config_maps: Sequence[Json], config: Config, make: MakeRegistry | None, remarks: list[str]
) -> Sequence[Machine] | None:
    """Of the registry that the configuration names, or else the fleet's settings in the cluster, by their query."""
    data: dict[str, str] = next(
        (one.get("data") or {} for one in config_maps if one["metadata"]["name"] == settings.NAME), {}
    )
    url = config.registry_settings().url or data.get(settings.URL, "")
    if make is None or not url:
        return None
    variables = None
    try:
        if data.get(settings.VARIABLES):
            variables = msgspec.json.decode(data[settings.VARIABLES], type=dict)
        registry = make(url, config.registry.netbox)
        try:
            return await registry.machines(variables)
        finally:
            await registry.close()
    except (PortError, ValueError) as error:
        remarks.append(f"the machine registry {url} could not be looked at: {error}")
        return None
