"""From a watch event to a released step, at full size: 5,000 nodes, 150,000 pods, every capability switched on.

    python -m bench spine

A stream of 2,500 pod events a second comes in as bytes, is decoded, and goes through the shell and the engine as in
`mooring run`. In between, people annotate TiKV pods of 150 clusters; the time from such an event to its first
write (the mark) being handed to `act` is what they wait for. CPU is this process's, per event, times 2,500.

Beside each figure stands the least it could be, from the same run: the share of a core while the same replica follows
(it decodes and keeps its world, and decides nothing), and the time until the world shows the event.
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
#: So long it follows first.
FOLLOWS_S = 3
CLUSTERS = 150
STEP_S = 0.01


def main() -> None:
    run = subprocess.run([sys.executable, "-m", "bench.spine", "child"], check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(run.stdout.splitlines()[-1])
    leads, follows, step, world = found["leads"], found["follows"], found["step"], found["world"]
    print(f"spine: {found['pods']:,} pods, {found['events']:,} events, {found['features']}")
    print(f"  {found['shown']:.0%} of the events show something new; the others bring a version and nothing else")
    print(f"{'':44}{'measured':>14}{'target':>10}{'baseline':>14}{'ratio':>8}")
    rows = [
        ("CPU at 2,500 events/s, decoding included", leads * RATE, "{:.0%} of a core", "≤ 25 %", follows * RATE),
        ("  an event, CPU", leads * 1e6, "{:.0f} µs", "≤ 100 µs", follows * 1e6),
        ("event to released step, p50, wall clock", step[0], "{:.1f} ms", "", world[0]),
        ("event to released step, p99, wall clock", step[1], "{:.1f} ms", "≤ 50 ms", world[1]),
        ("  the same, longest", step[2], "{:.1f} ms", "", world[2]),
    ]
    for what, measured, form, target, least in rows:
        ratio = f"{measured / least:.1f} ×" if least else ""
        print(f"  {what:42}{form.format(measured):>14}{target:>10}{form.format(least):>14}{ratio:>8}")
    print(f"  {'longest turn of the loop, CPU':42}{found['turn_ms']:>11.1f} ms")
    print(f"  {'steps released':42}{found['released']:>7} of {CLUSTERS}{'all':>10}")
    print("  baseline: the same replica following (CPU), the event in the world (wall clock)")
    print(f"  events came in at {found['rate']:,.0f}/s; other load on the machine shows in the wall-clock figures.")


class Acted:
    """Stands where `act` stands: notes when a cluster's first write arrives, and carries nothing out."""

    def __init__(self):
        self.at = {}

    async def carry_out(self, write):
        from mooring.core.model.instructions import Outcome, Patch
        from mooring.core.model.reasons import Reason

        if isinstance(write, Patch):
            self.at.setdefault(str(write.key), time.perf_counter())
        return Outcome(instruction=write.id, reason=Reason.FAILED, detail="not carried out", retry_after_s=3600.0)


class Pds:
    """A PD per cluster that has been up for long and answers at once."""

    def __init__(self, namespace=""):
        self._namespace = namespace

    def pd(self, cluster):
        return Pds(cluster.namespace)

    async def observe(self):
        return pd_view(namespace=self._namespace)


def pd_view(stores=3, namespace="x"):
    from mooring.core.model.tidb import PdMember, PdView, Store

    now = time.time()
    found = tuple(
        Store(
            i + 1,
            f"demo-tikv-{i}.demo-tikv-peer.{namespace}.svc:20160",
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
    """A replica that is synced with the whole cluster, and follows."""
    from bench.world import _PAD, NODES, PER_OWNER, PODS, node_bytes, pages, pod_bytes, replica_set_bytes
    from mooring.clients.wire.kube import decode_list, project
    from mooring.core.engine.engine import Engine
    from mooring.core.engine.events import Features
    from mooring.core.model.events import Listed
    from mooring.core.model.kinds import Kind
    from mooring.core.queue import Queue, live_settings
    from mooring.core.world.world import World
    from mooring.process.assemble import capabilities
    from mooring.process.clock import WallClock
    from mooring.process.replica import KINDS
    from mooring.process.settings.config import Config
    from mooring.process.shell import Shell

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
    for event in (Features(config.on()),):
        shell.tell(event)
    return shell, acted, namespaces


async def settle(shell):
    """Until there is nothing left to take in or to decide; then what stays is set aside, as the informers do."""
    from mooring.clients.kube.informers import SELDOM

    while shell.backlog or (shell.engine.next_wakeup() or 1e12) <= shell.now():
        await asyncio.sleep(0.05)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SELDOM)
    gc.enable()


async def lead(shell, namespaces):
    from mooring.core.engine.events import LeaseChanged
    from mooring.core.model.cluster import Key
    from mooring.core.model.events import PdSeen

    shell.tell(LeaseChanged(leading=True))
    for ns in namespaces:
        shell.tell(PdSeen(Key(ns, "demo"), pd_view(namespace=ns), shell.now()))
    while not shell.engine.deciding:
        await asyncio.sleep(0.05)
    await settle(shell)


def stream(seed, version, count):
    """Pod events as bytes: readiness as a coin falls, so that about half of them show something new."""
    from bench.world import _PAD, PODS, pod_bytes

    randomness = random.Random(seed)
    return [
        pod_bytes(randomness.randrange(PODS), version + i, ready=randomness.random() < 0.5, template_pad=_PAD)
        for i in range(count)
    ]


async def feed(shell, raws, beside=lambda sent: None):
    """At the rate, decoded as they come, `beside` called in between; answers with CPU and wall time."""
    from mooring.clients.wire.kube import decode
    from mooring.core.model.events import Seen
    from mooring.core.model.kinds import Kind

    began, cpu, sent = time.perf_counter(), time.process_time(), 0
    while sent < len(raws):
        due = min(len(raws), int((time.perf_counter() - began) * RATE))
        for raw in raws[sent:due]:
            shell.tell(Seen(Kind.POD, decode(Kind.POD, raw)))
        sent = max(sent, due)
        beside(sent)
        await asyncio.sleep(STEP_S)
    while shell.backlog:
        await asyncio.sleep(0.01)
    return time.process_time() - cpu, time.perf_counter() - began


class People:
    """They annotate a TiKV pod of each cluster, evenly over the stream; when they ask and when the world shows it is
    noted."""

    from mooring.core.model.kinds import Kind

    observes = frozenset(Kind)

    def __init__(self, shell, namespaces, total):
        self._shell, self._namespaces, self._total = shell, namespaces, total
        self.asked, self.shown, self.changes = {}, {}, 0
        shell.engine.world.register(self)

    def ask(self, sent):
        from mooring.clients.wire.kube import project
        from mooring.core.model.events import Seen
        from mooring.core.model.kinds import Kind

        while len(self.asked) < sent * len(self._namespaces) // self._total:
            ns = self._namespaces[len(self.asked)]
            annotated = project(Kind.POD, tikv_pod(ns, 0, {"tidb.pingcap.com/restart": ""}, version=2))
            self.asked[f"{ns}/demo"] = time.perf_counter()
            self._shell.tell(Seen(Kind.POD, annotated))

    def advance(self):
        return False

    def observe(self, change, world):
        self.changes += 1
        if change.key.name == "demo-tikv-0" and change.new is not None and change.new.annotations:
            self.shown.setdefault(f"{change.key.namespace}/demo", time.perf_counter())

    def waiting_on(self, at):
        """p50, p99 and the longest, in milliseconds, until `at`."""
        waiting_on = sorted((at[key] - asked) * 1000 for key, asked in self.asked.items() if key in at) or [-1.0]
        return waiting_on[len(waiting_on) // 2], waiting_on[int(len(waiting_on) * 0.99)], waiting_on[-1]


async def measure():
    from bench.world import PODS

    shell, acted, namespaces = build()
    pump = asyncio.create_task(shell.run())
    await settle(shell)
    raws = stream(2, 150_000, RATE * FOLLOWS_S)
    followed_s = (await feed(shell, raws))[0] / len(raws)
    await lead(shell, namespaces)
    raws = stream(3, 200_000, RATE * SECONDS)
    people, turns, turn = People(shell, namespaces, len(raws)), [], shell._turn

    def timed():
        at = time.thread_time()
        turn()
        turns.append((time.thread_time() - at) * 1000)

    shell._turn = timed
    people.changes = 0
    cpu_s, wall_s = await feed(shell, raws, people.ask)
    changes = people.changes
    await asyncio.sleep(1.0)
    pump.cancel()
    await asyncio.gather(pump, return_exceptions=True)
    return {
        "pods": PODS + 3 * CLUSTERS,
        "events": len(raws),
        "features": ", ".join(sorted(shell.engine.on)),
        "shown": changes / len(raws),
        "leads": cpu_s / len(raws),
        "follows": followed_s,
        "step": people.waiting_on(acted.at),
        "world": people.waiting_on(people.shown),
        "released": len(acted.at),
        "rate": len(raws) / wall_s,
        "turn_ms": max(turns),
    }


if __name__ == "__main__":
    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    print(json.dumps(asyncio.run(measure())))
