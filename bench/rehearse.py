"""A rehearsal at size: 500 nodes and 5,000 pods, from the snapshot's file to the verdict.

Half of the nodes are spot, in 25 racks; 40 Deployments are spread by Mix, 10 StatefulSets are not. Played: every spot
node gone, and one rack lost. Mooring finds 700 pods out of order first, which is a third of the time. Then the sweep of
all nodes and racks, with the CPU time it takes, since a machine is rarely idle; the same sweep on a Dask cluster with
one worker and with two, each of which brings Mooring up once (that is part of the time); and without Dask by one
process and by two, which is the most that this machine can give.

    python -m bench.rehearse                 all of it
    python -m bench.rehearse dask            one part: plays, sweep, dask, jobs or dry-run
    python -m bench.rehearse large           2,000 nodes and 60,000 pods that Mooring placed: a node and a rack lost
    python -m bench.rehearse large-sweep     the same, each of its racks and zones lost
"""

import asyncio
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import dask
from distributed import Client, LocalCluster

from mooring.capabilities.mix.labels import CUSTOM, ENABLED, MODE
from mooring.core.model.kinds import Kind
from mooring.core.model.times import rfc3339
from mooring.process import logs
from mooring.process.assemble import capacity_rules
from mooring.process.settings.config import Config
from mooring_lab.cluster.clock import quiet_collector
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.controllers import manifests
from mooring_lab.cluster.http.facade import Facade
from mooring_lab.rehearse.events.catalog import Options, acts
from mooring_lab.rehearse.events.failures import Failure, failures, longest_first
from mooring_lab.rehearse.play import LOAD_SEED, everything_on, rehearse
from mooring_lab.rehearse.snapshot import schema
from mooring_lab.rehearse.snapshot.capture import gather
from mooring_lab.rehearse.snapshot.load import load, of_rig
from mooring_lab.rehearse.snapshot.schema import KINDS, Snapshot
from mooring_lab.rehearse.sweep.forks import Failed, cores
from mooring_lab.rehearse.sweep.remote import run_on_dask
from mooring_lab.rehearse.sweep.report import last_line
from mooring_lab.rehearse.sweep.sweep import Found, SweepPlan, collect, run
from mooring_lab.stage.rig import Rig

NODES, RACKS, DEPLOYMENTS, REPLICAS, SETS, MEMBERS = 500, 25, 40, 110, 10, 60
#: Seconds for each play, on one core.
TARGET_S = 60.0
#: Seconds for all nodes and racks, on two cores.
SWEEP_S = 300.0
#: From a command to its answer.
DRY_RUN_S = 10.0
#: Two workers over one, on two idle cores.
DASK_GAIN = 1.7
#: At its default settings a worker of Dask takes 4 % of a core beside its work, and here two have none to spare.
QUIET_DASK = {
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.monitor-interval": "1s",
    "distributed.admin.tick.interval": "500ms",
}

T = TypeVar("T")


def main(*parts: str) -> None:
    logs.configure("critical", "auto")
    if parts[:1] in {("large",), ("large-sweep",)}:
        large(parts[0])
        return
    snapshot, built_s = _timed(_snapshot)
    pods = len(snapshot.of(Kind.POD))
    print(f"built        {len(snapshot.of(Kind.NODE))} nodes, {pods} pods in {built_s:.1f} s")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "snapshot.json"
        size, wrote_s = _timed(lambda: schema.write(snapshot, path))
        read, read_s = _timed(lambda: schema.read(path))
    print(f"snapshot     {size / 2**20:.1f} MiB; written in {wrote_s:.2f} s, read in {read_s:.2f} s")
    for part in parts or PARTS:
        PARTS[part](read)


def large(what: str) -> None:
    """Twelve times the pods, in workloads of the same size, on nodes that Mooring chose; and what memory it takes."""
    snapshot, built_s = _timed(lambda: _placed(2000, 100, 480, 120))
    print(f"built        {len(snapshot.of(Kind.NODE))} nodes, {len(snapshot.of(Kind.POD))} pods in {built_s:.0f} s")
    if what == "large":
        plays(snapshot, ["node-lost", "n100"], ["rack-lost", "3"])
    else:
        sweep(snapshot, ("rack", "zone"))
    mine, theirs = (
        resource.getrusage(who).ru_maxrss / 2**20 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    print(f"memory       {mine:.1f} GiB at most, {theirs:.1f} in a process that plays")


def plays(snapshot: Snapshot, *events: list[str]) -> None:
    """Every spot node gone, and one rack lost."""
    config = everything_on(Config())
    for words in events or (["spot-gone"], ["rack-lost", "3"]):
        planned, before_s = acts(words, snapshot, capacity_rules(config), Options()), _cpu_s()
        outcome, took_s = _timed(lambda planned=planned: rehearse(snapshot, planned, config))  # type: ignore[misc]
        played, cpu_s = outcome.played, _cpu_s() - before_s
        print(
            f"{' '.join(words):<12} {took_s:.1f} s (target {TARGET_S:g}) for {played.played_s:.0f} virtual s,"
            f" {cpu_s:.1f} s of CPU"
        )
        print(f"             {len(played.gone)} pods went, {len(played.come)} came; {outcome.answer[:90]}")


def sweep(snapshot: Snapshot, of: tuple[str, ...] = ("node", "rack")) -> None:
    """Every one of these."""
    todo, plan = _all(snapshot, of)
    results: list[tuple[Failure, Found | Failed]] = []
    before_s = _cpu_s()
    _, took_s = _timed(lambda: run(snapshot, todo, plan, cores(), lambda *told: results.append(told)))
    found, cpu_s = collect(snapshot, todo, results), _cpu_s() - before_s
    print(f"sweep        {took_s:.1f} s (target {SWEEP_S:g}) for {found.stands_for} failures, {cores()} at a time")
    print(f"             {cpu_s:.0f} s of CPU: {cpu_s / 2:.0f} s on two idle cores; {last_line(found)}")


def on_workers(snapshot: Snapshot) -> None:
    """By one worker and by two, each from a cold start: by the clock, and by the CPU time of the busiest worker."""
    dask.config.set(QUIET_DASK)
    todo, plan = _all(snapshot)
    clock, busiest = list[float](), list[float]()
    for workers in (1, 2):
        with LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
            _, took_s = _timed(lambda: run_on_dask(snapshot, todo, plan, cluster.scheduler_address, _nobody))
            with Client(cluster.scheduler_address, set_as_default=False) as client:
                cpu = client.run(_cpu_s)
        clock.append(took_s)
        busiest.append(max(cpu.values()))
        words = f"{took_s:.1f} s for {len(todo)} events; {busiest[-1]:.1f} s of CPU at most"
        print(f"dask         {workers} workers: {words}", flush=True)
    gain, load = clock[0] / clock[1], os.getloadavg()[0]
    print(f"             two are {gain:.2f} times one by the clock (target {DASK_GAIN:g}), at a load of {load:.1f};")
    print(f"             {busiest[0] / busiest[1]:.2f} times by CPU time, which is what two idle cores give")


def jobs(snapshot: Snapshot) -> None:
    """Without Dask, by one process and by two."""
    todo, plan = _all(snapshot)
    here = [_timed(lambda jobs=jobs: run(snapshot, todo, plan, jobs, _nobody))[1] for jobs in (1, 2)]  # type: ignore[misc]
    print(f"jobs         --jobs 1 {here[0]:.1f} s, --jobs 2 {here[1]:.1f} s: {here[0] / here[1]:.2f} times")


def dry_run(_: Snapshot) -> None:
    """`mooring drain` and `restart` with `--dry-run`, as typed, against an API server that has as many nodes and
    pods, which Mooring placed: it runs there, since it is asked."""
    cluster = load(_placed(NODES, RACKS, DEPLOYMENTS, SETS), LOAD_SEED, None).cluster

    async def served() -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "kubeconfig"
            async with Facade(cluster.api.server) as facade:
                facade.write_kubeconfig(path)
                for words in (["drain", "n100"], ["restart", "statefulset/db-0", "-n", "data"]):
                    before_s, began = _cpu_s(), time.perf_counter()
                    command = [sys.executable, "-m", "mooring", *words, "--dry-run", "--kubeconfig", str(path)]
                    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
                    out, _ = await process.communicate()
                    took_s, cpu_s = time.perf_counter() - began, _cpu_s() - before_s
                    print(
                        f"dry run      {' '.join(words)}: {took_s:.1f} s (target {DRY_RUN_S:g}), {cpu_s:.1f} s of CPU"
                    )
                    print(f"             {out.decode().splitlines()[0][:110]}")

    asyncio.run(served())


def _all(snapshot: Snapshot, of: tuple[str, ...] = ("node", "rack")) -> tuple[list[Failure], SweepPlan]:
    plan = SweepPlan(config=everything_on(Config()))
    return longest_first(failures(snapshot, capacity_rules(plan.config), of)), plan


PARTS: Final[dict[str, Callable[[Snapshot], None]]] = {
    "plays": plays,
    "sweep": sweep,
    "dask": on_workers,
    "jobs": jobs,
    "dry-run": dry_run,
}


def _nobody(*_: object) -> None:
    """Listens."""


def _cpu_s() -> float:
    """Of this process and its children that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def _snapshot() -> Snapshot:
    cluster = Cluster(seed=7, log=False)
    _fill(cluster, NODES, RACKS, DEPLOYMENTS, SETS)
    cluster.run_until_stable()
    now = rfc3339(cluster.timeline.now())
    whole = {kind: cluster.store.list(kind) for kind in KINDS}
    return gather(whole, taken_at=now, source="bench", namespace="mooring-system")


def _placed(nodes: int, racks: int, deployments: int, sets: int) -> Snapshot:
    """As it stands where Mooring has run from the beginning."""
    cluster = Cluster(seed=7, log=False)
    rig = Rig(seed=1, config=everything_on(Config()), cluster=cluster)
    taken: list[Snapshot] = []

    async def whole(rig: Rig) -> None:
        rig.start()
        await rig.until(lambda: bool(cluster.store.list(Kind.MUTATING_WEBHOOK)))
        _fill(cluster, nodes, racks, deployments, sets)
        await rig.sleep(60.0)
        await rig.until(lambda: not rig.unsettled(), limit_s=7200.0, every_s=5.0)
        await rig.sleep(120.0)
        taken.append(await of_rig(rig, "bench"))

    with quiet_collector():
        rig.play(whole)
    return taken[0]


def _fill(cluster: Cluster, nodes: int, racks: int, deployments: int, sets: int) -> None:
    for at in range(nodes):
        capacity, rack = "spot" if at % 2 else "on-demand", at // (nodes // racks)
        zone = {"zone": f"z{rack % 3}"} if nodes > NODES else {}
        cluster.add_node(f"n{at:03d}", capacity=capacity, rack=rack, cpu="32", memory="128Gi", **zone)
    for at in range(deployments):
        mode = {MODE: "custom", CUSTOM: "30pct"} if at % 2 else {MODE: "majority-in-on-demand"}
        template = manifests.pod_template({"app": f"web-{at}"}, cpu="500m", memory="512Mi")
        cluster.deployment("shop", f"web-{at}", REPLICAS, template=template, labels={ENABLED: "true", **mode})
    for at in range(sets):
        template = manifests.pod_template({"app": f"db-{at}"}, cpu="500m", memory="512Mi")
        cluster.stateful_set("data", f"db-{at}", MEMBERS, template=template, podManagementPolicy="Parallel")
        cluster.pdb("data", f"db-{at}", {"app": f"db-{at}"}, maxUnavailable=1)


def _timed(call: Callable[[], T]) -> tuple[T, float]:
    began = time.perf_counter()
    result = call()
    return result, time.perf_counter() - began


if __name__ == "__main__":
    main(*sys.argv[1:])
