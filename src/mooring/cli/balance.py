"""`mooring balance release`: a cluster's regions are PD's own again, at once."""

import asyncio
from typing import Annotated

from cyclopts import App, Parameter

from mooring.cli.connect import Context, Kubeconfig, ObjectNamespace, connect
from mooring.cli.output import note, print_text
from mooring.core.model.exits import UserError


def release(
    cluster: Annotated[str, Parameter(help="NAMESPACE/NAME of the TidbCluster, or NAME with -n.")] = "",
    *,
    namespace: ObjectNamespace = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    pd: Annotated[str, Parameter(help="URL[,URL…] of PD; found by the TidbCluster when left out.")] = "",
    take_back: Annotated[bool, Parameter(help="The other way: Mooring balances it.")] = False,
) -> None:
    """Give a cluster's regions back to PD: its own schedulers resume at once, and Mooring stops balancing it.

    Writes `mooring.dev/balance: released` on the TidbCluster, which a running Mooring obeys within seconds, and asks PD
    itself, which also works when no Mooring runs. What PD already carries out ends as it would. With `--pd` alone only
    PD is asked: a Mooring that runs would pause it again.

    Example: mooring balance release tidb/demo

    Example: mooring balance release demo -n tidb --take-back
    """
    if not cluster and (take_back or not pd):
        raise UserError("name the TidbCluster, e.g. mooring balance release tidb/demo, or a PD with --pd URL")
    if cluster and namespace and "/" not in cluster:
        cluster = f"{namespace}/{cluster}"
    if cluster and cluster.count("/") != 1:
        raise UserError(f"{cluster}: must be NAMESPACE/NAME of a TidbCluster, e.g. tidb/demo")
    urls = tuple(url.strip() for url in pd.split(",") if url.strip())
    if any(not url.startswith(("http://", "https://")) for url in urls):
        raise UserError(f"--pd {pd}: http:// or https:// addresses are required, e.g. http://127.0.0.1:2379")
    asyncio.run(_release(cluster, kubeconfig, context, urls, take_back=take_back))


async def _release(cluster: str, kubeconfig: str, context: str, urls: tuple[str, ...], *, take_back: bool) -> None:
    from mooring.install.cleanup.balance import annotate, endpoints_of, resume

    if cluster:
        async with connect(kubeconfig, context) as api:
            tc = await annotate(api, cluster, take_back=take_back)
        word = "balanced by Mooring again" if take_back else "released: a running Mooring stops balancing it"
        note(f"{cluster} is {word}")
        if take_back:
            return
        urls = urls or endpoints_of(tc)
    async for name in resume(urls, told=bool(cluster)):
        print_text(f"{name} resumed")


app = App(name="balance", help="Balance regions and leaders of TiKV stores through the queue.")
app.command(release)
