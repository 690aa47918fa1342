"""Admission at full size: one process with TLS, 150,000 pods and 5,000 nodes in its world, load from another process.

    python -m bench admission

The server is a replica's inside: the world, the engine with the rebalancer deciding, the shell, the reviewer, aiohttp
with TLS. `still`: as fast as sixteen warm connections go. `busy`: 1,000 pods a second, evenly spaced, latency counted
from the moment a request was due; every admitted pod comes back as the three watch events that it causes (created,
bound, ready), decoded from JSON as the informer does. Beside it, in the same run: a webhook that answers at once.
"""

import asyncio
import functools
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

NODES, PODS, WORKLOADS = 5_000, 150_000, 2_000
CONNECTIONS, STILL_S, BUSY_S, RATE = 16, 4.0, 5.0, 1_000
#: Busy turns. Half a second of somebody else on the machine is the 99th percentile of one: the median of them counts.
TURNS = 3


def main() -> None:
    with Server() as server:
        print(f"admission: {PODS:,} pods, {NODES:,} nodes, {WORKLOADS:,} Deployments; {server.rss_mb:.0f} MB resident")
        nothing = measured(server, closed_loop(server, "/nothing", STILL_S))
        asyncio.run(warm_up(server, "/still"))
        still = measured(server, closed_loop(server, "/still", STILL_S))
        turns = [measured(server, open_loop(server, "/admit/pods", RATE, BUSY_S)) for _ in range(TURNS)]
        after = server.ask("report")
    busy = sorted(turns, key=lambda turn: turn["p99"])[TURNS // 2]
    print(f"{'':46}{'measured':>16}{'target':>20}")
    rows = [
        ("still world: admissions a second", f"{still['rate']:,.0f}", "≥ 2,000"),
        ("  p50 / p99", f"{still['p50']:.1f} / {still['p99']:.1f} ms", ""),
        ("  a webhook that answers at once", f"{nothing['rate']:,.0f}", "the ceiling"),
        (f"busy world, {RATE:,}/s asked: answered a second", f"{busy['rate']:,.0f}", f"≥ {RATE:,}"),
        ("  p50 / p99", f"{busy['p50']:.1f} / {busy['p99']:.1f} ms", "p99 ≤ 10 ms"),
        ("  p99 of each turn", " / ".join(f"{turn['p99']:.1f}" for turn in turns), "the median counts"),
        ("  worst of all", f"{max(turn['worst'] for turn in turns):.1f} ms", ""),
        ("  watch events taken in", f"{after['events']:,}", "3 a pod"),
        ("  slots given twice", f"{after['twice']:,}", "0"),
        ("CPU of an admission: answered at once", f"{nothing['cpu_us']:.0f} µs", ""),
        ("  still world", f"{still['cpu_us']:.0f} µs", "≤ 500 µs"),
        ("  busy world, with its events and deciding", f"{busy['cpu_us']:.0f} µs", "≤ 1,000 µs"),
    ]
    for what, figure, target in rows:
        print(f"  {what:44}{figure:>16}{target:>20}")
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores:
        print(f"  Load average {load:.1f} on {cores} cores: wall-clock figures are others' too; CPU figures are not.")


def measured(server: "Server", load: Coroutine[Any, Any, dict[str, float]]) -> dict[str, float]:
    """The figures, and what each request cost the server: CPU time does not depend on who else is running."""
    import uvloop

    before = server.ask("cpu")["cpu_s"]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(load)
    time.sleep(1.0)  # the last events come in
    return found | {"cpu_us": (server.ask("cpu")["cpu_s"] - before) / found["count"] * 1e6}


class Server:
    """The serving process."""

    def __enter__(self) -> "Server":
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.admission", "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        first = self._process.stdout.readline()
        if not first:
            sys.exit(f"admission: the serving process ended with {self._process.wait()}; its traceback is above")
        said = json.loads(first)
        self.port, self.rss_mb = said["port"], said["rss_mb"]
        self.trust = ssl.create_default_context(cadata=said["ca"])
        return self

    def ask(self, what: str) -> dict:
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(10)
        self._process.stdin.close()
        self._process.stdout.close()


# ── load ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def review(number: int) -> bytes:
    name = f"web-{number % WORKLOADS}-1"
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": f"rs-{number % WORKLOADS}"}
    pod = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "generateName": f"{name}-",
            "namespace": "default",
            "labels": {"app": "web", "pod-template-hash": "1"},
            "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
            "managedFields": [{"manager": "kube-controller-manager", "fieldsV1": {f"f:{i}": {} for i in range(60)}}],
        },
        "spec": {
            "containers": [{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "500m"}}}],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
            "schedulerName": "default-scheduler",
        },
    }
    request = {
        "uid": f"r{number}",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "namespace": "default",
        "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"},
        "object": pod,
        "dryRun": False,
    }
    return json.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}).encode()


class Connection:
    """One warm connection; as little client as possible."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def post(self, path: str, body: bytes) -> None:
        head = f"POST {path}?timeout=2s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
        length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await self._reader.readexactly(length)


async def connections(server: Server) -> list[Connection]:
    made = [await asyncio.open_connection("127.0.0.1", server.port, ssl=server.trust) for _ in range(CONNECTIONS)]
    return [Connection(*one) for one in made]


def figures(latencies: list[float], seconds: float) -> dict[str, float]:
    ordered = sorted(latencies)
    return {
        "count": len(ordered),
        "rate": len(ordered) / seconds,
        "p50": ordered[len(ordered) // 2] * 1e3,
        "p99": ordered[int(len(ordered) * 0.99)] * 1e3,
        "worst": ordered[-1] * 1e3,
    }


async def warm_up(server: Server, path: str) -> None:
    """An owner's slots are counted when it is first asked for, and kept from then on."""
    warm = await connections(server)
    for number in range(WORKLOADS):
        await warm[number % CONNECTIONS].post(path, review(number))


async def closed_loop(server: Server, path: str, seconds: float) -> dict[str, float]:
    bodies = [review(n) for n in range(WORKLOADS)]
    latencies: list[float] = []
    end = 0.0

    async def ask(one: Connection, start: int) -> None:
        number = start
        while (began := time.perf_counter()) < end:
            await one.post(path, bodies[number % WORKLOADS])
            latencies.append(time.perf_counter() - began)
            number += CONNECTIONS

    warm = await connections(server)
    for one in warm:
        await one.post("/nothing", bodies[0])
    began = time.perf_counter()
    end = began + seconds
    await asyncio.gather(*[ask(one, i) for i, one in enumerate(warm)])
    return figures(latencies, time.perf_counter() - began)


async def open_loop(server: Server, path: str, rate: int, seconds: float) -> dict[str, float]:
    bodies = [review(n) for n in range(WORKLOADS)]
    latencies: list[float] = []
    warm = await connections(server)
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for one in warm:
        await one.post("/nothing", bodies[0])
        free.put_nowait(one)

    async def ask(number: int, due: float) -> None:
        one = await free.get()
        await one.post(path, bodies[number % WORKLOADS])
        latencies.append(time.perf_counter() - due)
        free.put_nowait(one)

    tasks = set()
    began = time.perf_counter()
    for number in range(int(rate * seconds)):
        due = began + number / rate
        if (ahead := due - time.perf_counter()) > 0.0005:
            await asyncio.sleep(ahead)
        if len(tasks) > rate:
            break  # a second behind: it cannot keep up, and the rate below says so
        task = asyncio.ensure_future(ask(number, due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    return figures(latencies, time.perf_counter() - began)


# ── the server ────────────────────────────────────────────────────────────────────────────────────────────────────


def full_world():
    from mooring.capabilities.mix.labels import AFFINITY, ENABLED, MODE, SLOT
    from mooring.capabilities.mix.targets import Mode, Target
    from mooring.core.model.capacity import NodeClass
    from mooring.core.model.cluster import Node, Owner, Pod, PodShape, ReplicaSet, Workload
    from mooring.core.model.events import Listed
    from mooring.core.model.kinds import Kind
    from mooring.core.world.world import World

    world, per_owner = World(), PODS // WORKLOADS
    target = Target(Mode.MAJORITY_IN_ON_DEMAND)
    classes = ("on-demand", "spot")
    nodes = [
        Node(f"n{i}", f"n{i}", "1", {"node.kubernetes.io/capacity": classes[i % 2]}, ready="True", cpu_milli=64_000)
        for i in range(NODES)
    ]
    labels = {ENABLED: "true", MODE: target.mode.value}
    deployments, sets, pods = [], [], []
    for w in range(WORKLOADS):
        # Room for many more: what is measured is admission, not a ReplicaSet that asks for too much.
        more = {"replicas": 10_000, "ready_replicas": per_owner, "available_replicas": per_owner}
        deployments.append(Workload("Deployment", "default", f"web-{w}", f"d-{w}", "1", labels, **more))
        of = Owner("Deployment", f"web-{w}", f"d-{w}")
        sets.append(ReplicaSet("default", f"web-{w}-1", f"rs-{w}", "1", of, replicas=10_000))
        owner = Owner("ReplicaSet", f"web-{w}-1", f"rs-{w}")
        shapes = {c: PodShape(labels={AFFINITY: c.value}) for c in (NodeClass.ON_DEMAND, NodeClass.SPOT)}
        for slot in range(per_owner):
            node_class = target.class_of(slot)
            place = (w * per_owner + slot) // 2 * 2 % NODES + (node_class is NodeClass.SPOT)
            pods.append(
                Pod(
                    "default",
                    f"web-{w}-1-{slot}",
                    f"p-{w}-{slot}",
                    "1",
                    shapes[node_class],
                    owner=owner,
                    node=f"n{place}",
                    phase="Running",
                    ready=True,
                    annotations={SLOT: str(slot)},
                )
            )
    rows = {Kind.NODE: nodes, Kind.DEPLOYMENT: deployments, Kind.REPLICA_SET: sets, Kind.POD: pods}
    for kind in (*rows, Kind.STATEFUL_SET):
        world.apply(Listed(kind, tuple(rows.get(kind, ()))))
    return world


#: A pod as the API server shows it.
EVENT: dict[str, Any] = {
    "metadata": {
        "name": "@NAME@",
        "namespace": "default",
        "uid": "@UID@",
        "resourceVersion": "@VERSION@",
        "labels": {"app": "web", "pod-template-hash": "1", "vacant.io/affinity": "@CLASS@"},
        "annotations": {"vacant.io/slot": "@SLOT@", "vacant.io/reservation": "@TOKEN@"},
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "@OWNER@", "uid": "@OF@", "controller": True}
        ],
        "managedFields": [{"fieldsV1": {f"f:{i}": {} for i in range(120)}}],
    },
    "spec": {
        "nodeName": "@NODE@",
        "containers": [{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "500m"}}}],
    },
    "status": {"phase": "@PHASE@", "conditions": [{"type": "Ready", "status": "@READY@"}]},
}


#: Created, bound, ready: how long after the admission, whether it has a node, and what its status says.
#: What comes within so short a time is read together, as it is from a socket.
READ_S = 0.001
STAGES = ((0.01, False, "Pending", "False"), (0.05, True, "Pending", "False"), (0.3, True, "Running", "True"))


class Echo:
    """What the API server, the scheduler and a kubelet make of an admitted pod: three watch events, as bytes.

    Making them is the API server's work, not ours: they are put together from a template that was cut once, so that
    little of it is counted."""

    def __init__(self, tell) -> None:
        self._tell = tell
        #: One queue per stage: within each, what comes first is due first.
        self._stages = [asyncio.Queue() for _ in STAGES]
        #: Text and names of what goes between, in turn.
        self._template = json.dumps(EVENT).split("@")
        self.made = self.told = 0

    def admitted(self, request, decision) -> None:
        if decision.slot is None:
            return
        self.made += 1
        meta = request.object.metadata
        owner = meta.owner_references[0]
        token = next(o["value"] for o in decision.operations if o["path"] == "/metadata/annotations")
        node_class = decision.node_class.value
        values = {
            "NAME": f"{meta.generate_name}x{self.made}",
            "UID": f"new-{self.made}",
            "CLASS": node_class,
            "SLOT": token["vacant.io/slot"],
            "TOKEN": token["vacant.io/reservation"],
            "OWNER": owner.name,
            "OF": owner.uid,
        }
        node = f"n{self.made * 2 % NODES + (node_class == 'spot')}"
        now = time.monotonic()
        for number, (stage, (delay_s, bound, phase, ready)) in enumerate(zip(self._stages, STAGES, strict=True)):
            values |= {"NODE": node if bound else "", "PHASE": phase, "READY": ready}
            values["VERSION"] = str(self.made * 3 + number)
            parts = [values[part] if place % 2 else part for place, part in enumerate(self._template)]
            stage.put_nowait((now + delay_s, "".join(parts).encode()))

    async def run(self) -> None:
        await asyncio.gather(*map(self._tell_all, self._stages))

    async def _tell_all(self, stage) -> None:
        """As the informer does it: what came in since it last read is decoded and handed on, with a pause after so many
        lines in one go."""
        from mooring.clients.kube.api import LINES_PER_TURN
        from mooring.clients.wire import kube
        from mooring.core.model.events import Seen
        from mooring.core.model.kinds import Kind

        in_one_go = 0
        while True:
            due, raw = await stage.get()
            if (ahead := due - time.monotonic()) > 0:
                await asyncio.sleep(max(ahead, READ_S))
                in_one_go = 0
            self._tell(Seen(Kind.POD, kube.decode(Kind.POD, raw)))
            self.told += 1
            in_one_go += 1
            if in_one_go % LINES_PER_TURN == 0:
                await asyncio.sleep(0)


async def serve() -> None:
    import resource

    from aiohttp import web

    from mooring.capabilities.drain.policy import DrainPolicy
    from mooring.capabilities.mix.admission.book import SlotBook
    from mooring.capabilities.mix.admission.decide import MixAdmission
    from mooring.capabilities.mix.admission.reviews import allowed, pod_request
    from mooring.capabilities.mix.capability import Mix
    from mooring.capabilities.mix.policy import MixPolicy
    from mooring.clients.kube.informers import QuietCollector
    from mooring.core.engine.engine import Engine
    from mooring.core.queue import Queue, live_settings
    from mooring.process.admission.certificates import advance
    from mooring.process.admission.gatekeeper import Gatekeeper
    from mooring.process.admission.reloading_tls import ReloadingTls
    from mooring.process.admission.reviewer import Reviewer
    from mooring.process.admission.server import WebhookPages
    from mooring.process.clock import SystemRandomness, WallClock
    from mooring.process.http.intake import BodyIntake
    from mooring.process.shell import Shell

    clock = WallClock()
    world = full_world()
    mix = Mix(MixPolicy())
    engine = Engine(world, Queue(live_settings()), [mix])
    admission = MixAdmission(mix.policy, world.index(SlotBook))
    recorder = Silence()
    # Nothing is written in this bench: deciding is what may get in admission's way.
    shell = Shell(engine, Nobody(), None, clock, recorder)
    shell.switch(frozenset({"mix"}))
    shell.lead(leading=True)
    reviewer = Reviewer(
        admission,
        world,
        shell.now,
        SystemRandomness(),
        recorder,
        Gatekeeper(engine, DrainPolicy(), shell.tell, shell.now, tuple, recorder),
        leads=lambda: True,
        ready=lambda: True,
    )
    shell._on_turn = reviewer.world_moved
    shell.in_a_rush = reviewer.rush.is_on
    echo = Echo(shell.tell)
    decide = admission.decide

    async def nothing(request: web.Request) -> web.Response:
        uid = pod_request(await request.read()).uid
        return web.Response(body=allowed(uid), content_type="application/json")

    front = ReloadingTls()
    pages = WebhookPages(reviewer, BodyIntake(), front)

    def decide_and_echo(request, *args, **kwargs):
        decision = decide(request, *args, **kwargs)
        echo.admitted(request, decision)
        return decision

    async def busy(request: web.Request) -> web.Response:
        admission.decide = decide_and_echo
        return await pages.pods(request)

    app = web.Application()
    app.add_routes([web.post("/nothing", nothing), web.post("/still", pages.pods), web.post("/admit/pods", busy)])
    material = advance(None, ["127.0.0.1"], time.time())
    front.swap(material)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=front.context).start()
    pump, telling = asyncio.ensure_future(shell.run()), asyncio.ensure_future(echo.run())
    while engine._term.worklist.pending or not engine.deciding:
        await asyncio.sleep(0.1)
    with QuietCollector():
        pass
    rss_mb = int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20
    print(json.dumps({"port": runner.addresses[0][1], "ca": material.bundle.decode(), "rss_mb": rss_mb}), flush=True)
    read = functools.partial(asyncio.get_running_loop().run_in_executor, None, sys.stdin.readline)
    while (await read()).strip() == "cpu":
        spent = resource.getrusage(resource.RUSAGE_SELF)
        print(json.dumps({"cpu_s": spent.ru_utime + spent.ru_stime}), flush=True)
    twice = sum(
        len(holders) - 1
        for w in range(WORKLOADS)
        if (ledger := admission.book.ledger(f"rs-{w}")) is not None
        for holders in ledger.held().values()
    )
    print(json.dumps({"events": echo.told, "twice": twice}), flush=True)
    pump.cancel()
    telling.cancel()
    await runner.cleanup()


class Silence:
    def event(self, *_, **__) -> None: ...

    def count(self, *_, **__) -> None: ...

    def gauge(self, *_, **__) -> None: ...

    def observe(self, *_, **__) -> None: ...


class Nobody:
    """Carries nothing out, and says so."""

    async def carry_out(self, instruction):
        from mooring.core.model.instructions import Outcome
        from mooring.core.model.reasons import Reason

        return Outcome(instruction=instruction.id, reason=Reason.NOT_LEADER, detail="a bench writes nothing")


if __name__ == "__main__":
    import uvloop

    assert sys.argv[1:] == ["serve"]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop_runner:
        loop_runner.run(serve())
