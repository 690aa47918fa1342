"""A real API server creating pods: with our webhook, and with one that answers at once and does nothing.

    python -m bench admission_lab

Both webhooks are asked over TLS by the same API server in the same run, turn by turn; pods are created by 32 workers.
A third answers at once with one patch, as long as ours: what the API server itself spends on being told something.
The controller-manager is stopped, so that only this bench creates pods. Needs the lab's programs (`make e2e`).
"""

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS, PODS, WORKERS = 8, 400, 32
NAMESPACE, OWN = "bench", "mooring-bench"


def main() -> None:
    from mooring_lab.control.binaries import find, release
    from mooring_lab.control.cluster import Lab
    from mooring_lab.control.errors import LabError

    with tempfile.TemporaryDirectory(prefix="mooring-bench-") as directory:
        try:
            lab = Lab.up(Path(directory) / "lab", find(release()), foreground=True)
        except LabError as error:
            print(f"admission_lab: the real control plane cannot be started: {error}")
            return
        try:
            rates = asyncio.run(measure(lab))
        finally:
            lab.down()
    ours, nothing, same = rates["ours"], rates["nothing"], rates["patch"]
    print(f"pods a second, {ROUNDS} turns of {PODS} each  {'measured':>26}{'target':>12}")
    print(f"  a webhook that answers at once    {'  '.join(f'{r:6.0f}' for r in nothing):>32}")
    print(f"  one that answers at once, patched {'  '.join(f'{r:6.0f}' for r in same):>32}")
    print(f"  ours                              {'  '.join(f'{r:6.0f}' for r in ours):>32}")
    # Each turn against the one right before it: what else the machine does changes more slowly than that.
    print(f"  ours of its rate, median turn     {median_share(ours, nothing):>32.0%}{'≥ 90 %':>12}")
    print(f"  ours of the patched one's         {median_share(ours, same):>32.0%}")
    for which, words in (
        ("nothing", "CPU of a pod, answered at once"),
        ("patch", "CPU of a pod, patched at once"),
        ("ours", "CPU of a pod, ours"),
    ):
        spent = {name: seconds / (ROUNDS * PODS) * 1e3 for name, seconds in rates["cpu"][which].items()}
        hook = spent[which]
        print(f"  {words:34}API server and etcd {spent['API server and etcd']:.1f} ms, webhook {hook:.2f} ms")
    print(f"  pods placed by us                 {rates['placed']:>32,}{ROUNDS * PODS:>12,}")
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores:
        print(f"  Load average {load:.1f} on {cores} cores: others share the machine.")


def median_share(ours: list[float], others: list[float]) -> float:
    return statistics.median(o / n for o, n in zip(ours, others, strict=True))


async def measure(lab) -> dict:
    from mooring.clients.kube import HttpKubeApi, load
    from mooring.process.admission.certificates import advance
    from mooring.process.admission.configurations import OWNED_PODS
    from mooring_lab.control.loopback import free_ports

    lab.kubectl("create", "namespace", NAMESPACE)
    lab.kubectl("create", "namespace", OWN)
    for name in ("ours", "nothing"):
        lab.kubectl("apply", "-f", "-", input=json.dumps(deployment(name)))
    sets = await found(lambda: owners(lab))
    lab.stop("kube-controller-manager")
    many = json.dumps({"spec": {"replicas": ROUNDS * PODS + PODS}})
    for name, owner in sets.items():
        lab.kubectl("patch", "replicaset", owner["metadata"]["name"], "-n", NAMESPACE, "-p", many)
        lab.kubectl("patch", "deployment", name, "-n", NAMESPACE, "-p", many)
    http, hook, extender, other = free_ports(4)
    command = [sys.executable, "-m", "mooring", "run", "--kubeconfig", str(lab.kubeconfig), "--features", "mix=true"]
    command += ["--namespace", OWN, "--listen-http", f"127.0.0.1:{http}", "--listen-webhook", f"127.0.0.1:{hook}"]
    command += ["--listen-extender", f"127.0.0.1:{extender}", "--webhook-url", f"https://127.0.0.1:{hook}"]
    material = advance(None, ["127.0.0.1"], time.time())
    with (lab.dir / "mooring.log").open("wb") as log:
        mooring = subprocess.Popen(command, stdout=log, stderr=log)
        idle = subprocess.Popen([sys.executable, "-m", "bench.admission_lab", str(other)], stdin=subprocess.PIPE)
        idle.stdin.write(json.dumps([material.certificate.decode(), material.key.decode()]).encode())
        idle.stdin.close()
        try:
            for which in ("nothing", "patch"):
                body = idle_configuration(which, other, material.bundle, OWNED_PODS)
                lab.kubectl("apply", "-f", "-", input=json.dumps(body))
            await found(lambda: "mooring-mix" in lab.kubectl("get", "mutatingwebhookconfigurations", "-o", "name"))
            await asyncio.sleep(2.0)
            async with HttpKubeApi(load(str(lab.kubeconfig))) as api:
                kinds = ("nothing", "patch", "ours")
                rates: dict = {which: [] for which in kinds} | {"cpu": {which: {} for which in kinds}}
                sets["patch"] = sets["nothing"]
                servers = {"API server and etcd": [lab.pids()["kube-apiserver"], lab.pids()["etcd"]]}
                servers["ours"], servers["nothing"], servers["patch"] = [mooring.pid], [idle.pid], [idle.pid]
                for which in kinds:
                    await create(api, sets[which], which, f"warm-{which}", PODS // 3)
                for turn in range(ROUNDS):
                    for which in kinds:
                        before = {name: cpu_s(pids) for name, pids in servers.items()}
                        rates[which].append(await create(api, sets[which], which, f"{which}-{turn}", PODS))
                        await asyncio.sleep(0.5)
                        spent = rates["cpu"][which]
                        for name, pids in servers.items():
                            spent[name] = spent.get(name, 0.0) + cpu_s(pids) - before[name]
            listed = json.loads(lab.kubectl("get", "pods", "-n", NAMESPACE, "-l", "vacant.io/affinity", "-o", "json"))
            placed = [p for p in listed["items"] if p["metadata"]["name"].startswith("ours-")]
            return rates | {"placed": len(placed)}
        finally:
            for process in (mooring, idle):
                process.terminate()
                process.wait(20)


def cpu_s(pids: list[int]) -> float:
    """User and system time of these processes so far."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


async def found(look, limit_s: float = 60.0):
    end = time.monotonic() + limit_s
    while not (answer := look()):
        assert time.monotonic() < end
        await asyncio.sleep(0.3)
    return answer


def owners(lab) -> dict | None:
    """Deployment → its ReplicaSet, once there are both."""
    items = json.loads(lab.kubectl("get", "replicasets", "-n", NAMESPACE, "-o", "json"))["items"]
    return {one["metadata"]["labels"]["app"]: one for one in items} if len(items) == 2 else None


def deployment(name: str) -> dict:
    labels = {"vacant.io/optimize-scheduling": "true", "vacant.io/optimize-scheduling-mode": "majority-in-on-demand"}
    labels = labels if name == "ours" else {}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


def idle_configuration(which: str, port: int, bundle: bytes, condition: str) -> dict:
    """As ours, for pods that carry the label `bench`."""
    import base64

    hook = {
        "name": f"{which}.mooring.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "timeoutSeconds": 2,
        "reinvocationPolicy": "IfNeeded",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/{which}", "caBundle": base64.b64encode(bundle).decode()},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
        "objectSelector": {"matchLabels": {"bench": which}},
        "matchConditions": [{"name": "as-ours", "expression": condition.replace("pod-template-hash", "bench")}],
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
    return kind | {"metadata": {"name": f"bench-{which}"}, "webhooks": [hook]}


async def create(api, owner: dict, which: str, prefix: str, count: int) -> float:
    from mooring.clients.ports import UnansweredError
    from mooring.core.model.kinds import Kind

    numbers = iter(range(count))
    label = {"pod-template-hash": "1"} if which == "ours" else {"bench": which}
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True}
    reference |= {key: owner["metadata"][key] for key in ("name", "uid")}

    async def work() -> None:
        for number in numbers:
            meta = {"namespace": NAMESPACE, "name": f"{prefix}-{number}", "labels": {"app": which} | label}
            spec = {"containers": [{"name": "c", "image": "x"}], "schedulerName": "nobody"}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta | {"ownerReferences": [reference]}}
            # An answer that came too late on a busy machine: the pod is most likely there.
            with contextlib.suppress(UnansweredError):
                await api.create(Kind.POD, body | {"spec": spec})

    began = time.perf_counter()
    await asyncio.gather(*[work() for _ in range(WORKERS)])
    return count / (time.perf_counter() - began)


# ── the webhook that does nothing ─────────────────────────────────────────────────────────────────────────────────


#: As long as ours is.
PATCH = [
    {
        "op": "add",
        "path": "/spec/affinity",
        "value": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "node.kubernetes.io/capacity", "operator": "In", "values": ["on-demand"]}
                            ]
                        }
                    ]
                }
            }
        },
    },
    {"op": "add", "path": "/metadata/labels/example.com~1affinity", "value": "on-demand"},
    {
        "op": "add",
        "path": "/metadata/annotations",
        "value": {
            "example.com/slot": "17",
            "example.com/reservation": "0123456789abcdef",
            "controller.kubernetes.io/pod-deletion-cost": "9983",
        },
    },
]


async def answer_at_once(port: int, certificate: str, key: str) -> None:
    from aiohttp import web

    from mooring.capabilities.mix.admission.reviews import allowed, pod_request
    from mooring.process.admission.certificates import Material
    from mooring.process.admission.reloading_tls import ReloadingTls

    async def answer(request: web.Request) -> web.Response:
        uid = pod_request(await request.read()).uid
        operations = PATCH if request.path == "/patch" else None
        return web.Response(body=allowed(uid, operations), content_type="application/json")

    front = ReloadingTls()
    front.swap(Material((), certificate.encode(), key.encode()))
    app = web.Application()
    app.add_routes([web.post("/nothing", answer), web.post("/patch", answer)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=front.context, backlog=1024).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop_runner:
        loop_runner.run(answer_at_once(int(sys.argv[1]), *json.load(sys.stdin)))
