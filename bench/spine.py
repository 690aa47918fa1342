"""From a watch event to a released step, at full size: 5,000 nodes, 150,000 pods, every capability switched on.

    python -m bench spine

A stream of 2,500 pod events a second comes in as bytes, is decoded, and goes through the shell and the engine as in
`mooring run`. In between, people annotate TiKV pods of 150 clusters; the time from such an event to its first
write (the mark) being handed to `act` is what they wait for. CPU is this process's, per event, times 2,500.
"""

import asyncio
import gc
import json
import logging
import random
import subprocess
import sys
import time

RATE = 2_500
SECONDS = 8
CLUSTERS = 150
STEP_S = 0.01


def main() -> None:
    run = subprocess.run([sys.executable, "-m", "bench.spine", "child"], check=True, capture_output=True, text=True)
    found = json.loads(run.stdout.splitlines()[-1])
    print(f"spine: {found['pods']:,} pods, {found['events']:,} events, {found['features']}")
    print(f"{'':44}{'measured':>12}{'target':>12}")
    rows = [
        ("CPU at 2,500 events/s, decoding included", f"{found['share']:.0%} of a core", "≤ 25 %"),
        ("  an event, CPU", f"{found['event_us']:.0f} µs", "≤ 100 µs"),
        ("event to released step, p50, wall clock", f"{found['p50_ms']:.1f} ms", ""),
        ("event to released step, p99, wall clock", f"{found['p99_ms']:.1f} ms", "≤ 50 ms"),
        ("  the same, longest", f"{found['worst_ms']:.1f} ms", ""),
        ("longest turn of the loop, CPU", f"{found['turn_ms']:.1f} ms", ""),
        ("  steps released", f"{found['released']} of {CLUSTERS}", "all"),
    ]
    for what, measured, target in rows:
        print(f"  {what:42}{measured:>14}{target:>12}")
    print(f"  events came in at {found['rate']:,.0f}/s; other load on the machine shows in the wall-clock figures.")


class Acted:
    """Stands where `act` stands: notes when a cluster's first write arrives, and carries nothing out."""

    def __init__(self):
        self.at = {}

    async def carry_out(self, write):
        from mooring.model.instructions import Outcome, Patch
        from mooring.model.reasons import Reason

        if isinstance(write, Patch):
            self.at.setdefault(str(write.key), time.perf_counter())
        return Outcome(instruction=write.id, reason=Reason.FAILED, detail="not carried out", retry_after_s=3600.0)


class Pds:
    """A PD per cluster that has been up for long and answers at once."""

    def pd(self, cluster):
        return self

    async def observe(self):
        return pd_view()


def pd_view(stores=3):
    from mooring.model.tidb import PdMember, PdView, Store

    now = time.time()
    found = tuple(
        Store(
            i + 1,
            f"demo-tikv-{i}.demo-tikv-peer.x.svc:20160",
            leader_count=100,
            region_count=300,
            last_heartbeat_at=now,
        )
        for i in range(stores)
    )
    return PdView(found, (), 100 * stores, int(now) - 86_400, "pd-0", (PdMember("pd-0", 1),))


class Silent:
    def event(self, *_, **__):
        pass

    def count(self, *_, **__):
        pass


def tikv_pod(namespace, ordinal, annotations=None, version=1):
    labels = {
        "app.kubernetes.io/component": "tikv",
        "app.kubernetes.io/instance": "demo",
        "app.kubernetes.io/managed-by": "tidb-operator",
    }
    return {
        "metadata": {
            "namespace": namespace,
            "name": f"demo-tikv-{ordinal}",
            "uid": f"{namespace}-{ordinal}",
            "resourceVersion": str(version),
            "labels": labels,
            "annotations": annotations or {},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"nodeName": f"node-{ordinal:05d}.pool-a.internal", "containers": []},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def tidb_cluster(namespace):
    return {
        "metadata": {"namespace": namespace, "name": "demo", "uid": f"tc-{namespace}", "resourceVersion": "1"},
        "spec": {"tikv": {"replicas": 3}},
        "status": {"tikv": {"phase": "Normal"}},
    }


def build():
    """An engine that leads, synced with the whole cluster."""
    from bench.world import _PAD, NODES, PER_OWNER, PODS, node_bytes, pages, pod_bytes, replica_set_bytes
    from mooring.engine.engine import Engine
    from mooring.engine.events import Features, Led, Synced
    from mooring.model.cluster import Key
    from mooring.model.events import Listed, PdSeen
    from mooring.model.kinds import Kind
    from mooring.run.assemble import capabilities
    from mooring.run.config import Config
    from mooring.run.replica import KINDS
    from mooring.run.shell import Shell
    from mooring.run.wall import WallClock
    from mooring.traffic import Queue, live_settings
    from mooring.wire.kube import decode_list, project
    from mooring.world.world import World

    config = Config(features=dict.fromkeys(("home", "handoff", "mix", "fleet"), True))
    engine = Engine(World(), Queue(live_settings()), capabilities(config))
    acted = Acted()
    shell = Shell(engine, acted, Pds(), WallClock(), Silent())
    namespaces = [f"tidb-{i}" for i in range(CLUSTERS)]
    makes = {
        Kind.NODE: (node_bytes, NODES),
        Kind.REPLICA_SET: (replica_set_bytes, PODS // PER_OWNER),
        Kind.POD: (lambda n: pod_bytes(n, 100_000, template_pad=_PAD), PODS),
    }
    gc.disable()
    for kind in KINDS:
        objects = []
        make, count = makes.get(kind, (None, 0))
        for page in pages(make, count) if make else ():
            objects.extend(decode_list(kind, page)[0])
        if kind is Kind.POD:
            objects.extend(project(kind, tikv_pod(ns, i)) for ns in namespaces for i in range(3))
        if kind is Kind.TIDB_CLUSTER:
            objects.extend(project(kind, tidb_cluster(ns)) for ns in namespaces)
        shell.tell(Listed(kind, tuple(objects)))
    now = shell.now()
    for event in (Synced(), Features(config.on()), Led(leading=True)):
        shell.tell(event)
    for ns in namespaces:
        shell.tell(PdSeen(Key(ns, "demo"), pd_view(), now))
    return shell, acted, namespaces


async def measure():
    from bench.world import _PAD, PODS, pod_bytes
    from mooring.model.events import Seen
    from mooring.model.kinds import Kind
    from mooring.wire.kube import decode, project

    shell, acted, namespaces = build()
    pump = asyncio.create_task(shell.run())
    while not shell.engine.deciding or shell.backlog or (shell.engine.next_wakeup() or 1e12) <= shell.now():
        await asyncio.sleep(0.05)
    gc.collect()
    gc.freeze()
    gc.enable()
    chance = random.Random(3)
    total = RATE * SECONDS
    raws = [
        pod_bytes(chance.randrange(PODS), 200_000 + i, ready=chance.random() < 0.5, template_pad=_PAD)
        for i in range(total)
    ]
    asked, sent, turns = {}, 0, []
    turn = shell._turn

    def timed():
        at = time.thread_time()
        turn()
        turns.append((time.thread_time() - at) * 1000)

    shell._turn = timed
    began, cpu = time.perf_counter(), time.process_time()
    while sent < total:
        due = min(total, int((time.perf_counter() - began) * RATE))
        for raw in raws[sent:due]:
            shell.tell(Seen(Kind.POD, decode(Kind.POD, raw)))
        sent = max(sent, due)
        wanted = sent * len(namespaces) // total
        while len(asked) < wanted:
            ns = namespaces[len(asked)]
            annotated = project(Kind.POD, tikv_pod(ns, 0, {"tidb.pingcap.com/restart": ""}, version=2))
            asked[f"{ns}/demo"] = time.perf_counter()
            shell.tell(Seen(Kind.POD, annotated))
        await asyncio.sleep(STEP_S)
    while shell.backlog:
        await asyncio.sleep(0.01)
    wall, spent = time.perf_counter() - began, time.process_time() - cpu
    await asyncio.sleep(1.0)
    pump.cancel()
    await asyncio.gather(pump, return_exceptions=True)
    waits = sorted((acted.at[key] - at) * 1000 for key, at in asked.items() if key in acted.at)
    share = spent / total * RATE
    return {
        "pods": PODS + 3 * CLUSTERS,
        "events": total,
        "features": ", ".join(sorted(shell.engine.on)),
        "share": share,
        "event_us": spent / total * 1e6,
        "p50_ms": waits[len(waits) // 2] if waits else -1.0,
        "p99_ms": waits[int(len(waits) * 0.99)] if waits else -1.0,
        "worst_ms": waits[-1] if waits else -1.0,
        "released": len(waits),
        "rate": total / wall,
        "turn_ms": max(turns),
    }


if __name__ == "__main__":
    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    print(json.dumps(asyncio.run(measure())))
