"""Which PD belongs to a TidbCluster, and one client for each.

Settings (`--pd`) beat the annotation `mooring.dev/pd-endpoints` beat the service name of tidb-operator. A client
is made anew when the endpoints change, and is kept when the TidbCluster disappears: its PD may outlive it, and what we
began there must end.
"""

from collections.abc import Callable, Mapping

from mooring.clients.ports import NotFound, PlacementDriver
from mooring.core.model.cluster import Key
from mooring.core.model.marks import PD_ENDPOINTS
from mooring.core.model.tidb import TidbCluster
from mooring.core.world.read import WorldRead

Make = Callable[[Key, tuple[str, ...]], PlacementDriver]


class PdDirectory:
    def __init__(self, world: WorldRead, make: Make, overrides: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self._world = world
        self._make = make
        self._overrides = dict(overrides or {})
        self._known: dict[Key, tuple[tuple[str, ...], PlacementDriver]] = {}
        self._retired: list[PlacementDriver] = []

    def pd(self, cluster: Key) -> PlacementDriver:
        known = self._known.get(cluster)
        tc = self._world.tidb_cluster(cluster)
        if tc is None:
            if known is None:
                raise NotFound(f"no TidbCluster {cluster}, so no PD to ask")
            return known[1]
        urls = endpoints(tc, self._overrides)
        if known is None or known[0] != urls:
            if known is not None:
                self._retired.append(known[1])
            known = self._known[cluster] = (urls, self._make(cluster, urls))
        return known[1]

    async def close(self) -> None:
        for driver in [*self._retired, *(driver for _, driver in self._known.values())]:
            await driver.close()


def endpoints(tc: TidbCluster, overrides: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    given = overrides.get(str(tc.key))
    if given:
        return given
    annotated = tuple(filter(None, (u.strip() for u in tc.annotations.get(PD_ENDPOINTS, "").split(","))))
    if annotated:
        return annotated
    scheme = "https" if tc.tls else "http"
    return (f"{scheme}://{tc.name}-pd.{tc.namespace}.svc:2379",)
