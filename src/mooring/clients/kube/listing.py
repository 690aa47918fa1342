"""A whole list, page by page, for commands that look once. What is followed for long has an informer."""

from typing import Any

from mooring.clients.ports import KubeApi, NotFoundError
from mooring.core.model.kinds import Kind
from mooring.core.model.tidb import TidbCluster


async def list_all(api: KubeApi, kind: Kind) -> list[Any]:
    found: list[Any] = []
    token = ""
    while True:
        page = await api.list(kind, continue_token=token)
        found += page.items
        token = page.continue_token
        if not token:
            return found


async def tidb_clusters(api: KubeApi) -> list[TidbCluster]:
    """Of tidb-operator v1 and v2, where the kinds are there."""
    found: list[Any] = []
    for kind in (Kind.TIDB_CLUSTER, Kind.TIDB_V2):
        try:
            found += await list_all(api, kind)
        except NotFoundError:
            continue
    return [one for one in found if isinstance(one, TidbCluster)]
