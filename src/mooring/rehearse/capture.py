"""Look at a live cluster and write down what a rehearsal needs. It lists and gets; it never writes.

Lists of different kinds are made one after the other, and the cluster goes on meanwhile: pods first, then what owns
them, nodes last, so that nothing seems to stand on what does not exist. A kind that may not be listed ends it, since a
verdict without the budgets or the volumes would be a guess; PD and the registry are asked where they can be reached,
and a remark says where they could not.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from mooring.capabilities.fleet.live import settings
from mooring.clients.kube.config import Connection
from mooring.clients.kube.transport import Request, Transport
from mooring.clients.ports import Expired, Json, MachineRegistry, NotFound, PlacementDriver, PortError
from mooring.clients.wire.kube import project
from mooring.core.model.cluster import Key
from mooring.core.model.kinds import RESOURCES, Kind
from mooring.core.model.machine import Machine
from mooring.core.model.tidb import PdView, Region
from mooring.process.config import Config
from mooring.process.pd_directory import endpoints
from mooring.rehearse.gather import gather
from mooring.rehearse.schema import KINDS, PdShot, Placement, Snapshot, StoreShot
from mooring.sandbox.clock import rfc3339

PAGE: Final = 500
PAGE_S: Final = 60.0
#: A long list whose beginning was compacted away while we read is begun again this often.
TRIES: Final = 3
_LAST_FIRST: Final = tuple(reversed(KINDS))

MakePd = Callable[[Key, tuple[str, ...]], PlacementDriver]
MakeRegistry = Callable[[str], MachineRegistry]
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
    remarks: list[str] = []
    transport = Transport(connection)
    try:
        whole: dict[Kind, list[Json]] = {}
        for kind in _LAST_FIRST:
            whole[kind] = await _list(transport, kind, config.namespace if kind is Kind.CONFIG_MAP else "")
            progress(f"{len(whole[kind])} {RESOURCES[kind].plural}")
    finally:
        await transport.close()
    pds = await _pds(whole[Kind.TIDB_CLUSTER], config, make_pd, remarks)
    return gather(
        whole,
        taken_at=rfc3339(now),
        source=connection.server,
        namespace=config.namespace,
        pds=pds,
        machines=await _machines(whole[Kind.CONFIG_MAP], config, make_registry, remarks),
        remarks=remarks,
    )


async def _list(transport: Transport, kind: Kind, namespace: str) -> list[Json]:
    for attempt in range(1, TRIES + 1):
        try:
            return await _pages(transport, kind, namespace)
        except NotFound:
            return []  # no such kind in this cluster: no TidbClusters, then
        except Expired:
            if attempt == TRIES:
                raise
    raise AssertionError("unreachable")


async def _pages(transport: Transport, kind: Kind, namespace: str) -> list[Json]:
    found: list[Json] = []
    params = {"limit": str(PAGE)}
    while True:
        request = Request("GET", RESOURCES[kind].path(namespace), f"list {RESOURCES[kind].plural}", params)
        page: Json = msgspec.json.decode(await transport.send(request, PAGE_S))
        found.extend(page.get("items") or ())
        token = (page.get("metadata") or {}).get("continue")
        if not token:
            return found
        params = {"limit": str(PAGE), "continue": token}


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
            Placement(peers=peers, leader=leader, regions=count) for (peers, leader), count in sorted(counted.items())
        ),
    )


# ── Machines ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def _machines(
    config_maps: Sequence[Json], config: Config, make: MakeRegistry | None, remarks: list[str]
) -> Sequence[Machine] | None:
    """Of the registry that `--sabakan-url` names, or else the fleet's settings in the cluster, by their query."""
    data: dict[str, str] = next(
        (one.get("data") or {} for one in config_maps if one["metadata"]["name"] == settings.NAME), {}
    )
    url = config.sabakan_url or data.get(settings.URL, "")
    if make is None or not url:
        return None
    variables = None
    try:
        if data.get(settings.VARIABLES):
            variables = msgspec.json.decode(data[settings.VARIABLES], type=dict)
        registry = make(url)
        try:
            return await registry.machines(variables)
        finally:
            await registry.close()
    except (PortError, ValueError) as error:
        remarks.append(f"the machine registry {url} could not be looked at: {error}")
        return None
