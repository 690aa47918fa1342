"""Which PD belongs to a TidbCluster, and one client for each.

Settings (`--pd`) beat the annotation `mooring.dev/pd-endpoints` beat the service name of tidb-operator (with v2 its own
`status.pd`). A client
is recreated when the endpoints change, and is kept when the TidbCluster disappears: its PD may outlive it, and what we
began there must end.

Any user who may edit a TidbCluster can write the annotation, so it may name the cluster's own Service, and beyond that
only what an administrator has allowed (`pd-hosts`): else a user could make Mooring connect to any address. Before
anything is changed in a PD it must be this cluster's: `proven` asks it for its stores, and their addresses name the
cluster they belong to.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from fnmatch import fnmatchcase
from typing import Final, Protocol
from urllib.parse import urlsplit

from mooring.clients.pd.client import PdClient
from mooring.clients.pd.transport import host_of, in_cluster
from mooring.clients.ports import NotFoundError, PlacementDriver, RefusedError
from mooring.clients.texts import printable, without_credentials
from mooring.core.model.cluster import Key
from mooring.core.model.marks import PD_ENDPOINTS
from mooring.core.model.tidb import Store, TidbCluster
from mooring.core.world.members import sharing_pd
from mooring.core.world.read import WorldRead

#: So many clients of clusters that are gone are kept: the latest.
GONE: Final = 16
Make = Callable[[Key, tuple[str, ...]], PlacementDriver]


class PdOf(Protocol):
    """The placement driver of a TidbCluster, by key."""

    def pd(self, cluster: Key) -> PlacementDriver: ...

    def given(self, cluster: Key) -> bool:
        """Named by an administrator, so its stores may have any address."""
        ...

    def sharing(self, cluster: Key) -> Sequence[TidbCluster]:
        """The TidbClusters that use this one's PD, with itself; none once it is gone."""
        ...


class PdDirectory:
    def __init__(
        self,
        world: WorldRead,
        make: Make,
        overrides: Mapping[str, tuple[str, ...]] | None = None,
        hosts: Sequence[str] = (),
    ) -> None:
        """`hosts`: what the annotation may name besides the cluster's own Service."""
        self._world = world
        self._make = make
        self._hosts = tuple(hosts)
        self._overrides = dict(overrides or {})
        self._known: dict[Key, tuple[tuple[str, ...], PlacementDriver]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def given(self, cluster: Key) -> bool:
        """An administrator has named this cluster's PD."""
        return str(cluster) in self._overrides

    def sharing(self, cluster: Key) -> Sequence[TidbCluster]:
        return sharing_pd(self._world, cluster)

    def pd(self, cluster: Key) -> PlacementDriver:
        """NotFoundError: no such cluster. RefusedError: its annotation names an address that is not allowed."""
        known = self._known.get(cluster)
        tc = self._world.tidb_cluster(cluster)
        if tc is None:
            if known is None:
                raise NotFoundError(f"no TidbCluster {cluster}, so no PD to ask")
            return known[1]
        urls = endpoints(tc, self._overrides, self._hosts)
        if known is None or known[0] != urls:
            if known is not None:
                self._retire(known[1])
            known = self._known[cluster] = (urls, self._make(cluster, urls))
            gone = [key for key in self._known if self._world.tidb_cluster(key) is None]
            for key in gone[: max(0, len(gone) - GONE)]:
                self._retire(self._known.pop(key)[1])
        return known[1]

    def _retire(self, driver: PlacementDriver) -> None:
        """Closed at once: so that clients do not pile up when the annotation changes, or clusters come and go."""
        task = asyncio.get_running_loop().create_task(driver.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        await asyncio.gather(*self._closing, *(driver.close() for _, driver in self._known.values()))


def endpoints(tc: TidbCluster, overrides: Mapping[str, tuple[str, ...]], hosts: Iterable[str] = ()) -> tuple[str, ...]:
    """Where its PD is. RefusedError: the annotation names an address that is not allowed."""
    given = overrides.get(str(tc.key))
    if given:
        return given
    annotated = tuple(filter(None, (u.strip() for u in tc.annotations.get(PD_ENDPOINTS, "").split(","))))
    for url in annotated:
        if not may_ask(url, tc.key, hosts):
            shown = without_credentials(url)
            raise RefusedError(
                f"{PD_ENDPOINTS} of TidbCluster {tc.key} names {shown}, which is not its own Service; an administrator "
                "allows an address with pd-hosts: [HOST:PORT], or names the PD with --pd",
                403,
            )
    if annotated:
        return annotated
    if tc.v2:
        return (_of_v2(tc, hosts),)
    scheme = "https" if tc.tls else "http"
    # Without a PD of its own it uses that of the TidbCluster that `spec.cluster` names.
    owner = tc.pd_of if tc.pd_of is not None and not tc.pd_replicas else tc.key
    return (f"{scheme}://{owner.name}-pd.{owner.namespace}.svc:2379",)


def _of_v2(tc: TidbCluster, hosts: Iterable[str]) -> str:
    """What tidb-operator v2 says in the status, which who may edit the status could write, too."""
    service = pd_service(tc.pd_url)
    own = service is not None and service.namespace == tc.namespace
    if not tc.pd_url:
        raise RefusedError(
            f"status.pd of Cluster {tc.key} is empty: tidb-operator has not said yet where its PD is", 403
        )
    if not may_ask(in_cluster(tc.pd_url), service if own and service is not None else tc.key, hosts):
        shown = printable(without_credentials(tc.pd_url))
        raise RefusedError(
            f"status.pd of Cluster {tc.key} is {shown}, which is no PD Service of its namespace; an administrator "
            "allows an address with pd-hosts: [HOST:PORT], or names the PD with --pd",
            403,
        )
    return tc.pd_url


def pd_service(url: str) -> Key | None:
    """The Service in `<name>-pd.<namespace>[.svc…]`, by its namespace and `<name>`: of v2 the first group of PD."""
    name, _, rest = host_of(url).partition(".")
    namespace, _, zone = rest.partition(".")
    told = name.endswith("-pd") and zone.partition(".")[0] in {"", "svc"}
    return Key(namespace, name.removesuffix("-pd")) if told else None


def owner_of(urls: Sequence[str]) -> Key | None:
    """The TidbCluster whose PD Service this is: `spec.cluster` may have named another one's."""
    name, _, rest = (urlsplit(urls[0]).hostname or "").partition(".")
    namespace, _, zone = rest.partition(".")
    return Key(namespace, name.removesuffix("-pd")) if name.endswith("-pd") and zone == "svc" else None


def may_ask(url: str, cluster: Key, hosts: Iterable[str] = ()) -> bool:
    """A bare address of the cluster's own PD Service or of a member behind it, or one that matches a pattern."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return False
    bare = not parts.path.strip("/") and "@" not in parts.netloc and not any(c in url for c in "?#;\\")
    if parts.scheme not in {"http", "https"} or not host or not bare or not url.isprintable():
        return False
    inside = host.removesuffix(".").removesuffix(".cluster.local")
    if inside.endswith(".svc") and port in {2379, 2380, None}:
        inside = inside.removesuffix(".svc")
        member, _, rest = inside.partition(".")
        own, peers = (f"{cluster.name}-{service}.{cluster.namespace}" for service in ("pd", "pd-peer"))
        if inside in {own, peers} or (rest == peers and member.startswith(f"{cluster.name}-pd-")):
            return True
    address = f"{host}:{port or (443 if parts.scheme == 'https' else 80)}"
    return any(fnmatchcase(address, pattern.lower()) for pattern in hosts)


def one_connection(pds: PdOf, cluster: Key) -> AbstractAsyncContextManager[None]:
    """What `proven` asks and the write after it reach the same server. A PD in this process has no connections."""
    pd = pds.pd(cluster)
    return pd.one_connection() if isinstance(pd, PdClient) else nullcontext()


async def proven(
    pds: PdOf, cluster: Key, *store_ids: int, shared: bool = False, via: Key | None = None
) -> PlacementDriver:
    """The cluster's PD, right before a write, once it has shown that it, and every store that is named, belong to this
    cluster (`shared`: or to another TidbCluster on the same PD); NotFoundError if not. `via`: another TidbCluster on
    that PD, where this one is gone.

    tidb-operator's stores say so themselves (`demo-tikv-0.demo-tikv-peer.tidb.svc:20160`). Stores with other addresses
    are trusted only of a PD that an administrator has named."""
    known_by = via or cluster
    pd, given, sharing = pds.pd(known_by), pds.given(known_by), pds.sharing(known_by)
    own = sharing if shared else tuple(tc for tc in sharing if tc.key == cluster)
    named = await pd.stores(*store_ids) if store_ids else ()
    for store in named:
        if not _belongs(store, cluster, own, given=given):
            raise NotFoundError(f"store {store.id} at {printable(store.address)} is not one of {cluster}: left alone")
    stores = named if named and via is None else await pd.stores()
    if stores and not any(_belongs(store, known_by, sharing, given=given) for store in stores):
        seen = printable(stores[0].address)
        raise NotFoundError(f"this is the PD of another cluster than {known_by} (it has a store at {seen}): left alone")
    return pd


def _belongs(store: Store, cluster: Key, clusters: Sequence[TidbCluster], *, given: bool) -> bool:
    """By the whole address, or by tidb-operator's own status. Of a cluster that is gone only its names are left."""
    if not store.namespace:
        return given
    known = [tc for tc in clusters if _is_member(store, tc)]
    if not known:
        return not clusters and _is_member(store, TidbCluster(cluster.namespace, cluster.name, "", ""))
    return any(store.domain == tc.cluster_domain or store.id in tc.tikv_store_ids.values() for tc in known)


def _is_member(store: Store, tc: TidbCluster) -> bool:
    return store.namespace == tc.namespace and any(tc.may_have(store.pod_name, part) for part in ("tikv", "tiflash"))
