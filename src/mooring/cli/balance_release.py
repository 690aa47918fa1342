"""`mooring balance release`: a cluster's regions are PD's own again, at once."""

import asyncio
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from mooring.cli.connect import Context, Kubeconfig, connect
from mooring.cli.output import note
from mooring.core.model.exits import Exit, UserError

if TYPE_CHECKING:
    from mooring.core.model.tidb import TidbCluster


def release(
    cluster: Annotated[str, Parameter(help="NAMESPACE/NAME of the TidbCluster.")] = "",
    *,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    pd: Annotated[str, Parameter(help="URL[,URL…] of PD; found by the TidbCluster when left out.")] = "",
    take_back: Annotated[bool, Parameter(help="The other way: Mooring balances it again.")] = False,
) -> None:
    """Give a cluster's regions back to PD: its own schedulers resume at once, and Mooring stops balancing it.

    Writes `mooring.dev/balance: released` on the TidbCluster, which a running Mooring obeys within seconds, and asks PD
    itself, which also works when no Mooring runs. What PD already carries out ends as it would. With `--pd` alone only
    PD is asked: a Mooring that runs would pause it again.

    Example: mooring balance release tidb/demo

    Example: mooring balance release tidb/demo --take-back
    """
    if not cluster and (take_back or not pd):
        raise UserError("name the TidbCluster, e.g. mooring balance release tidb/demo, or a PD with --pd URL")
    if cluster and cluster.count("/") != 1:
        raise UserError(f"{cluster}: must be NAMESPACE/NAME of a TidbCluster, e.g. tidb/demo")
    urls = tuple(url.strip() for url in pd.split(",") if url.strip())
    if any(not url.startswith(("http://", "https://")) for url in urls):
        raise UserError(f"--pd {pd}: http:// or https:// addresses are required, e.g. http://127.0.0.1:2379")
    asyncio.run(_release(cluster, kubeconfig, context, urls, take_back=take_back))


async def _release(cluster: str, kubeconfig: str, context: str, urls: tuple[str, ...], *, take_back: bool) -> None:
    if cluster:
        tc = await _annotate(cluster, kubeconfig, context, take_back=take_back)
        word = "balanced by Mooring again" if take_back else "released: a running Mooring stops balancing it"
        note(f"{cluster} is {word}")
        if take_back:
            return
        if not urls:
            from mooring.clients.ports import PortError
            from mooring.process.pd_directory import endpoints

            try:
                urls = endpoints(tc, {})
            except PortError as error:
                raise UserError(f"{error}; or name it here with --pd") from None
    await _resume(urls, told=bool(cluster))


async def _annotate(cluster: str, kubeconfig: str, context: str, *, take_back: bool) -> "TidbCluster":
    from mooring.capabilities.balance.pause import BALANCE_ANNOTATION, RELEASED
    from mooring.clients.ports import NotFoundError
    from mooring.clients.wire.kube import project
    from mooring.core.model.kinds import Kind

    namespace, _, name = cluster.partition("/")
    patch = {"metadata": {"annotations": {BALANCE_ANNOTATION: None if take_back else RELEASED}}}
    async with connect(kubeconfig, context) as api:
        try:
            obj = await api.patch(Kind.TIDB_CLUSTER, namespace, name, patch)
        except NotFoundError:
            raise UserError(f"there is no TidbCluster {cluster}", Exit.NOT_AS_IT_SHOULD_BE) from None
    tc: TidbCluster = project(Kind.TIDB_CLUSTER, obj)  # type: ignore[assignment]
    return tc


async def _resume(urls: tuple[str, ...], *, told: bool) -> None:
    from mooring.capabilities.balance.pause import PD_SCHEDULERS
    from mooring.clients.pd import PdClient
    from mooring.clients.ports import NotFoundError, PortError
    from mooring.process.clock import WallClock

    client = PdClient(urls, clock=WallClock())
    try:
        for name in sorted(PD_SCHEDULERS.values()):
            try:
                await client.pause_scheduler(name, 0)
            except NotFoundError:
                continue  # it was removed: there is nothing to resume
            print(f"{name} resumed")
    except PortError as error:
        also = "a running Mooring resumes it; without one it resumes by itself within a minute" if told else "try again"
        raise UserError(f"PD cannot be reached at {', '.join(urls)}: {error}; {also}", Exit.COULD_NOT_LOOK) from None
    finally:
        await client.close()
