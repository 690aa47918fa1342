"""`mooring mix release`: read pods, nodes and ReplicaSets once, and undo what marks say we did."""

from collections.abc import Sequence
from typing import NoReturn

from mooring.capabilities.mix.descriptor import leftovers
from mooring.clients.kube.listing import list_all
from mooring.clients.ports import KubeApi, PlacementDriver
from mooring.core.model.cluster import Key, Node, Pod, ReplicaSet
from mooring.core.model.descriptor import Marked
from mooring.core.model.kinds import Kind
from mooring.core.model.tidb import TidbCluster
from mooring.process.act import Actor


class Unfenced:
    """A person asked: there is no lease to hold."""

    def may_write(self) -> bool:
        return True


class _NoPd:
    def pd(self, cluster: Key) -> PlacementDriver:
        _never(cluster)

    def given(self, cluster: Key) -> bool:
        _never(cluster)

    def sharing(self, cluster: Key) -> Sequence[TidbCluster]:
        _never(cluster)


def _never(cluster: Key) -> NoReturn:
    raise AssertionError(f"releasing pods never calls the PD of {cluster}")


async def released(api: KubeApi, namespace: str = "", *, dry_run: bool) -> tuple[list[str], list[str]]:
    """What was (or would be) undone, and what could not be. `namespace`: only pods there."""
    pods = [o for o in await list_all(api, Kind.POD) if isinstance(o, Pod) and namespace in {"", o.namespace}]
    nodes = [o for o in await list_all(api, Kind.NODE) if isinstance(o, Node) and not namespace]
    sets = {o.uid for o in await list_all(api, Kind.REPLICA_SET) if isinstance(o, ReplicaSet)}
    act = Actor(api, _NoPd(), Unfenced())
    done: list[str] = []
    failed: list[str] = []
    for one in leftovers(Marked(pods=tuple(pods), nodes=tuple(nodes), replica_sets=frozenset(sets))):
        if dry_run:
            done.append(one.what)
            continue
        outcome = await act.carry_out(one.writes[0])
        if outcome.reason is None:
            done.append(one.what)
        else:
            failed.append(f"{one.what}: {outcome.detail or outcome.reason}")
    return done, failed
