"""`mooring sandbox`: the embedded cluster on its own, for kubectl and for `mooring run`."""

import asyncio
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from mooring.cli.numbers import Whole
from mooring.cli.output import Format, Output, note, print_json
from mooring.core.model.exits import UserError

app = App(name="sandbox", help="An embedded Kubernetes cluster inside one process, to try kubectl and Mooring on.")


@app.command
def up(
    *,
    nodes: Annotated[Whole, Parameter(help="On-demand nodes, two to a rack.")] = 3,
    spot: Annotated[Whole, Parameter(help="Spot nodes.")] = 0,
    tidb: Annotated[bool, Parameter(help="With a TidbCluster tidb/demo: three TiKV, three TiDB and its PD.")] = False,
    speed: Annotated[float, Parameter(help="Virtual seconds per second.")] = 1.0,
    port: Annotated[Whole, Parameter(help="Where the API server answers; 0: any free port.")] = 0,
    file: Annotated[
        Path | None, Parameter(name=["--kubeconfig-file", "-f"], help="Where to write its kubeconfig.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Run an embedded cluster until Ctrl-C; its kubeconfig is a file of its own, never ~/.kube/config.

    Deployments, StatefulSets, DaemonSets, PodDisruptionBudgets, quotas, evictions and a scheduler, all in this process:
    no Docker, no download. What it does not serve (exec, logs, RBAC) is refused with a sentence.

    Example: mooring sandbox up

    Example: mooring sandbox up --nodes 6 --spot 6 --tidb -f sandbox.kubeconfig
    """
    if not 0 <= nodes <= 1000 or not 0 <= spot <= 1000 or nodes + spot < 1:
        raise UserError(f"--nodes {nodes} --spot {spot}: between 1 and 1000 of each kind, one at least")
    if not 0 < speed <= 1000:
        raise UserError(f"--speed {speed:g}: more than 0, at most 1000")
    path = file or Path(f"mooring-sandbox-{time.strftime('%H%M%S')}.kubeconfig").absolute()
    if not path.parent.is_dir():
        raise UserError(f"--kubeconfig-file {path}: must be a file in a directory that exists")
    try:
        asyncio.run(_up(nodes, spot, speed, port, path, output, tidb=tidb))
    finally:
        path.unlink(missing_ok=True)
    note("stopped; leftovers: none")


async def _up(nodes: int, spot: int, speed: float, port: int, path: Path, output: Format, *, tidb: bool) -> None:
    from mooring.sandbox.standalone import standalone

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    facade = standalone(nodes, spot, time.time(), speed, port, tidb=tidb)
    try:
        await facade.__aenter__()
    except OSError as error:
        raise UserError(f"--port {port}: {error.strerror or error}; give another, or leave it out") from None
    try:
        facade.write_kubeconfig(path)
        if output is Format.JSON:
            print_json({"kubeconfig": str(path), "apiserver": facade.url, "nodes": nodes + spot})
        else:
            print(f"export KUBECONFIG={shlex.quote(str(path))}", flush=True)
        note(f"sandbox cluster of {nodes + spot} nodes at {facade.url}, {speed:g} times as fast as the clock")
        note("kubectl get nodes")
        note("mooring run --features handoff=true,home=true --webhook-url https://127.0.0.1:9443")
        note("Ctrl-C ends it; the kubeconfig file goes with it.")
        sys.stdout.flush()
        await stop.wait()
    finally:
        await facade.__aexit__(None, None, None)
