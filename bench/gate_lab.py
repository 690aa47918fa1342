"""A real API server evicting pods that nobody guards: where it asks the gate, and where it does not.

    python -m bench gate_lab

The gate leaves Mooring's own namespace out, so the pods of one turn are there and those of the next are not; all else
is the same: bare pods, 16 workers, the same API server in the same run. Needs the lab's programs (`make e2e`).
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.admission_lab import cpu_s, found, median_share

ROUNDS, PODS, WORKERS = 12, 300, 16
NAMESPACE, OWN = "bench", "mooring-bench"


def main() -> None:
    from mooring_lab.control.binaries import find, release
    from mooring_lab.control.cluster import Lab
    from mooring_lab.control.errors import LabError

    with tempfile.TemporaryDirectory(prefix="mooring-bench-") as directory:
        try:
            lab = Lab.up(Path(directory) / "lab", find(release()), foreground=True)
        except LabError as error:
            print(f"gate_lab: the real control plane cannot be started: {error}")
            return
        try:
            rates, spent = asyncio.run(measure(lab))
        finally:
            lab.down()
    asked, not_asked, count = rates[NAMESPACE], rates[OWN], ROUNDS * PODS
    print(f"evictions a second, {ROUNDS} turns of {PODS} each  {'measured':>20}{'target':>12}")
    print(f"  the gate is not asked, fewest / most  {min(not_asked):>14.0f} / {max(not_asked):.0f}")
    print(f"  the gate is asked, fewest / most      {min(asked):>14.0f} / {max(asked):.0f}")
    print(f"  of its rate, median turn              {median_share(asked, not_asked):>20.1%}{'≥ 98 %':>12}")
    for name, by in spent.items():
        words = f"CPU of an eviction, {name}"
        print(f"  {words:40}{by[OWN] / count * 1e3:.2f} ms not asked, {by[NAMESPACE] / count * 1e3:.2f} ms asked")
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores:
        print(f"  Load average {load:.1f} on {cores} cores: others share the machine.")


async def measure(lab) -> tuple[dict, dict]:
    from mooring.clients.kube import HttpKubeApi, load
    from mooring_lab.control.loopback import free_ports

    for namespace in (NAMESPACE, OWN):
        lab.kubectl("create", "namespace", namespace)
    http, hook, extender = free_ports(3)
    command = [sys.executable, "-m", "mooring", "run", "--kubeconfig", str(lab.kubeconfig), "--features", "drain=true"]
    command += ["--namespace", OWN, "--listen-http", f"127.0.0.1:{http}", "--listen-webhook", f"127.0.0.1:{hook}"]
    command += ["--listen-extender", f"127.0.0.1:{extender}", "--webhook-url", f"https://127.0.0.1:{hook}"]
    rates: dict = {NAMESPACE: [], OWN: []}
    spent: dict = {}
    with (lab.dir / "mooring.log").open("wb") as log:
        mooring = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            await found(lambda: "mooring-mix" in lab.kubectl("get", "validatingwebhookconfigurations", "-o", "name"))
            servers = {
                "API server and etcd": [lab.pids()["kube-apiserver"], lab.pids()["etcd"]],
                "Mooring": [mooring.pid],
            }
            async with HttpKubeApi(load(str(lab.kubeconfig))) as api:
                for turn in range(ROUNDS + 1):
                    for namespace in (OWN, NAMESPACE) if turn % 2 else (NAMESPACE, OWN):
                        await each(lambda name, ns=namespace: create(api, ns, name))
                        await asyncio.sleep(1.0)  # what the watch tells is read
                        before = {name: cpu_s(pids) for name, pids in servers.items()}
                        began = time.perf_counter()
                        await each(lambda name, ns=namespace: api.evict(ns, name))
                        rate = PODS / (time.perf_counter() - began)
                        if not turn:
                            continue  # both are warm now
                        rates[namespace].append(rate)
                        for name, pids in servers.items():
                            by = spent.setdefault(name, {NAMESPACE: 0.0, OWN: 0.0})
                            by[namespace] += cpu_s(pids) - before[name]
            return rates, spent
        finally:
            mooring.terminate()
            mooring.wait(20)


async def each(do) -> None:
    numbers = iter(range(PODS))

    async def work() -> None:
        from mooring.clients.ports import UnansweredError

        for number in numbers:
            with contextlib.suppress(UnansweredError):  # too late on a busy machine; most likely done
                await do(f"pod-{number}")

    await asyncio.gather(*[work() for _ in range(WORKERS)])


async def create(api, namespace: str, name: str) -> None:
    from mooring.core.model.kinds import Kind

    meta = {"namespace": namespace, "name": name}
    spec = {"containers": [{"name": "c", "image": "x"}], "schedulerName": "nobody"}
    await api.create(Kind.POD, {"metadata": meta, "spec": spec})
