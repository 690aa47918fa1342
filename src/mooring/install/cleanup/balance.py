"""A cluster's regions given back to PD: the mark that a running Mooring obeys, and PD's own schedulers."""

from collections.abc import AsyncIterator

from mooring.capabilities.balance.pause import BALANCE_ANNOTATION, PD_SCHEDULERS, RELEASED, TAKEN
from mooring.clients.pd import PdClient
from mooring.clients.ports import KubeApi, NotFoundError, PortError
from mooring.clients.wire.kube import project
from mooring.core.model.exits import Exit, UserError
from mooring.core.model.kinds import Kind
from mooring.core.model.tidb import TidbCluster
from mooring.process.clock import WallClock
from mooring.process.pd_directory import endpoints


async def annotate(api: KubeApi, cluster: str, *, take_back: bool) -> TidbCluster:
    namespace, _, name = cluster.partition("/")
    patch = {"metadata": {"annotations": {BALANCE_ANNOTATION: TAKEN if take_back else RELEASED}}}
    try:
        obj = await api.patch(Kind.TIDB_CLUSTER, namespace, name, patch)
    except NotFoundError:
        raise UserError(f"there is no TidbCluster {cluster}", Exit.CHECK_FAILED) from None
    tc: TidbCluster = project(Kind.TIDB_CLUSTER, obj)  # type: ignore[assignment]
    return tc


def endpoints_of(tc: TidbCluster) -> tuple[str, ...]:
    try:
        return endpoints(tc, {})
    except PortError as error:
        raise UserError(f"{error}; or name it here with --pd") from None


async def resume(urls: tuple[str, ...], *, told: bool) -> AsyncIterator[str]:
    """The schedulers that PD takes up again, one by one. `told`: a running Mooring obeys a mark."""
    client = PdClient(urls, clock=WallClock())
    try:
        for name in sorted(PD_SCHEDULERS.values()):
            try:
                await client.pause_scheduler(name, 0)
            except NotFoundError:
                continue  # it was removed: there is nothing to resume
            yield name
    except PortError as error:
        also = "a running Mooring resumes it; without one it resumes by itself within a minute" if told else "try again"
        raise UserError(f"PD cannot be reached at {', '.join(urls)}: {error}; {also}", Exit.UNREACHABLE) from None
    finally:
        await client.close()
