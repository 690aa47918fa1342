"""`mooring sandbox`: the embedded cluster on its own, for kubectl and for `mooring run`."""

import asyncio
import contextlib
import shlex
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

from aiohttp import web
from cyclopts import App, Parameter

from mooring.cli.output import Format, Output, Whole, note, print_data
from mooring.core.model.exits import UserError
from mooring.core.model.kinds import Kind
from mooring.install.scheduler import PROFILE, URL
from mooring.process.settings.config import Config
from mooring_lab.cluster.clock import Timeline, WallDriver
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.http.facade import Facade
from mooring_lab.cluster.pd import SandboxPd
from mooring_lab.cluster.pd.http import pd_app
from mooring_lab.cluster.scheduler.extenders import Extender, over_http
from mooring_lab.cluster.scheduler.selection import Profile

DEMO = ("tidb", "demo")
#: What a newcomer types beside `mooring run`, feature by feature.
TRIES = (
    "kubectl -n tidb annotate pod demo-tikv-0 tidb.pingcap.com/restart=''",
    "mooring handoff status",
    "kubectl -n tidb delete pod demo-tidb-0",
    "mooring home status",
    "kubectl -n tidb annotate tc demo mooring.dev/balance=true",
    """kubectl -n tidb patch tc demo --type merge -p '{"spec":{"tikv":{"replicas":4}}}'""",
    "mooring balance status",
)

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The embedded cluster on its own, behind the API that kubectl speaks.


def standalone(
    nodes: int, spot: int, now: float, speed: float, port: int, *, tidb: bool, extender: str = URL
) -> tuple[Facade, SandboxPd | None]:
    """Not serving yet. `tidb`: with a TidbCluster tidb/demo, its PD, and a scheduler for it that asks `extender`."""
    timeline = Timeline(now)
    cluster = Cluster(seed=1, timeline=timeline, log=False)
    for number in range(nodes):
        cluster.add_node(f"n{number + 1}", capacity="on-demand", rack=number // 2 + 1)
    for number in range(spot):
        cluster.add_node(f"s{number + 1}", capacity="spot", zone="a")
    cluster.store.create(Kind.NAMESPACE, {"metadata": {"name": Config().namespace}})
    if tidb:
        verbs = {verb: over_http(f"{extender}/{verb}") for verb in ("filter", "prioritize", "preempt")}
        asks = Extender("mooring", **verbs, node_cache_capable=True, ignorable=True, weight=10)
        cluster.scheduler.set_profile(Profile(PROFILE, 100, (asks,)))
        cluster.tidb_cluster("tidb", "demo", tidb=3, tikv=3, pd=0, with_pd=True)
        cluster.pd[DEMO].load(regions=90, when_stores=3)
        # A PD that has just started proves nothing for a minute.
        cluster.pd[DEMO].has_run_since(int(now) - 3600)
    return Facade(cluster.api.server, port=port, driver=WallDriver(timeline, speed=speed)), cluster.pd.get(DEMO)


@contextlib.asynccontextmanager
async def served(pd: SandboxPd | None) -> AsyncIterator[str]:
    """PD on a free port of the loopback, as a real one answers; its URL, "" without one."""
    if pd is None:
        yield ""
        return
    runner = web.AppRunner(pd_app(pd), shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        url = f"http://{host}:{port}"
        pd.urls = dict.fromkeys(pd.urls, url)
        yield url
    finally:
        await runner.cleanup()


app = App(name="sandbox", help="An embedded Kubernetes cluster inside one process, to try kubectl and Mooring on.")


@app.command
def up(
    *,
    nodes: Annotated[Whole, Parameter(help="On-demand nodes, two to a rack.")] = 3,
    spot: Annotated[Whole, Parameter(help="Spot nodes.")] = 0,
    tidb: Annotated[bool, Parameter(help="With a TidbCluster tidb/demo: three TiKV, three TiDB and its PD.")] = False,
    extender: Annotated[str, Parameter(help="With --tidb: where the scheduler of its members asks home.")] = URL,
    speed: Annotated[float, Parameter(help="Virtual seconds per second.")] = 1.0,
    port: Annotated[Whole, Parameter(help="Where the API server answers; 0: any free port.")] = 0,
    file: Annotated[Path | None, Parameter(name="--kubeconfig-file", help="Where to write its kubeconfig.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Run an embedded cluster until Ctrl-C; its kubeconfig is a file of its own, never ~/.kube/config.

    Deployments, StatefulSets, DaemonSets, PodDisruptionBudgets, quotas, evictions and a scheduler, all in this process:
    no Docker, no download. What it does not serve (exec, logs, RBAC) is refused with a sentence.

    Example: mooring sandbox up

    Example: mooring sandbox up --nodes 6 --spot 6 --tidb --kubeconfig-file sandbox.kubeconfig
    """
    if not 0 <= nodes <= 1000 or not 0 <= spot <= 1000 or nodes + spot < 1:
        raise UserError(f"--nodes {nodes} --spot {spot}: between 1 and 1000 of each kind, one at least")
    if not 0 < speed <= 1000:
        raise UserError(f"--speed {speed:g}: more than 0, at most 1000")
    path = file or Path(f"mooring-sandbox-{time.strftime('%H%M%S')}.kubeconfig").absolute()
    if not path.parent.is_dir():
        raise UserError(f"--kubeconfig-file {path}: must be a file in a directory that exists")
    try:
        asyncio.run(_up(nodes, spot, speed, port, path, output, tidb=tidb, extender=extender))
    finally:
        path.unlink(missing_ok=True)
    note("stopped; leftovers: none")


async def _up(
    nodes: int, spot: int, speed: float, port: int, path: Path, output: Format, *, tidb: bool, extender: str
) -> None:
    from mooring_lab.cli.sandbox import standalone

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    facade, pd = standalone(nodes, spot, time.time(), speed, port, tidb=tidb, extender=extender)
    try:
        await facade.__aenter__()
    except OSError as error:
        raise UserError(f"--port {port}: {error.strerror or error}; give another, or leave it out") from None
    try:
        async with served(pd) as url:
            facade.write_kubeconfig(path)
            if output.data:
                told = {"kubeconfig": str(path), "apiserver": facade.url, "nodes": nodes + spot}
                print_data(output, told | ({"pd": url} if url else {}))
            else:
                print(f"export KUBECONFIG={shlex.quote(str(path))}", flush=True)
            note(f"sandbox cluster of {nodes + spot} nodes at {facade.url}, {speed:g} times as fast as the clock")
            note("kubectl get nodes")
            if url:
                note(f"mooring run --features handoff=true,home=true,balance=true --pd {'/'.join(DEMO)}={url}")
                for try_ in TRIES:
                    note(try_)
            else:
                note("mooring run --features mix=true --webhook-url https://127.0.0.1:9443")
            note("Ctrl-C ends it; the kubeconfig file goes with it.")
            sys.stdout.flush()
            await stop.wait()
    finally:
        await facade.__aexit__(None, None, None)
