"""`mooring balance`: which clusters are balanced, and how a cluster's regions are PD's own again, at once."""

import asyncio
from typing import Annotated, Any

from cyclopts import App, Parameter

from mooring.cli.connect import AllNamespaces, Context, Kubeconfig, ObjectNamespace, OnlyNamespace, connect
from mooring.cli.output import Listed, Listing, note, print_data, print_table, print_text
from mooring.cli.server import HERE, Reach, Watch, ask, following, only_in
from mooring.core.model.exits import UserError


def status(
    *,
    namespace: OnlyNamespace = "",
    everywhere: AllNamespaces = False,
    watch: Watch = False,
    reach: Reach = HERE,
    output: Listed = Listing.TABLE,
) -> None:
    """List the TidbClusters whose stores are known: how full the fullest store is, what moves, and how each is.

    Example: mooring balance status

    Example: mooring balance status -n tidb -w
    """

    def show(found: list[dict[str, Any]]) -> None:
        only_in(reach, namespace, everywhere=everywhere, found=bool(found))
        _show(found, output)

    following(
        lambda: clusters(reach, namespace),
        lambda found: [(one["cluster"], one["state"], one["running"], one["waiting"]) for one in found],
        show,
        watch=watch,
    )


def clusters(reach: Reach, namespace: str) -> list[dict[str, Any]]:
    """From the stores' rows, the queue's, and what `why` says of the cluster."""
    from mooring.core.queue.config import REGION_SCHEDULERS

    frame, queue = ask(reach, "/api/v1/frame"), ask(reach, "/api/v1/queue")["rows"]
    stores: dict[str, list[dict[str, Any]]] = {}
    for row in frame["tables"]["stores"]["rows"].values():
        if namespace in {"", row["cluster"].partition("/")[0]}:
            stores.setdefault(row["cluster"], []).append(row)
    moves = [row for row in queue if row["source"] in REGION_SCHEDULERS]
    found = []
    for name, rows in sorted(stores.items()):
        ours = [row["state"] for row in moves if row["subject"].startswith(f"region/{name}/")]
        fullest = max(rows, key=lambda row: row.get("used", 0) / (row.get("limit") or 1))
        full = {"fullest": fullest["id"], "used": fullest.get("used", 0), "limit": fullest.get("limit")}
        leaders = [row.get("leaders", 0) for row in rows]
        spread = {"fewest_leaders": min(leaders), "most_leaders": max(leaders)}
        running = ours.count("moving")
        why = ask(reach, f"/api/v1/why/cluster/{name}", missing=f"{name} not found")
        told = {"state": why["state"], "says": why["answer"]}
        counts = {"running": running, "waiting": len(ours) - running}
        found.append({"cluster": name, "stores": len(rows), **spread, **full, **counts, **told})
    return found


def _show(found: list[dict[str, Any]], output: Listing) -> None:
    if output.data:
        print_data(output, {"clusters": found})
    elif output is Listing.NAME:
        print_text("".join(f"cluster/{one['cluster']}\n" for one in found), end="")
    elif not found:
        note("no TidbCluster whose stores are known")
    else:
        columns = ("CLUSTER", "STORES", "LEADERS", "FULLEST", "RUNNING", "WAITING", "STATE")
        print_table(columns, [_row(one) for one in found])


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    limit = "no limit" if one["limit"] is None else str(one["limit"])
    full = f"store {one['fullest'].rpartition('/')[2]}: {one['used']}/{limit}"
    leaders = f"{one['fewest_leaders']} to {one['most_leaders']}"
    counts = (str(one["stores"]), leaders, full, str(one["running"]), str(one["waiting"]))
    return (one["cluster"], *counts, one["says"])


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
app.command(status)
app.command(release)
