"""A real Karpenter with its kwok provider and a real descheduler take pods away by themselves, beside everything.

Nodes drift, are consolidated and expire, spot nodes are interrupted, and the descheduler evicts whatever has run for a
minute. Two minutes; as long as MOORING_NEIGHBOURS_S says otherwise, with figures at the end (`pytest -rP`).
"""

import asyncio
import json
import os
import time
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
import yaml

from mooring.capabilities.drain.policy import REPLACE_FIRST
from mooring.clients.ports import PortError
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING
from mooring_lab.control.build import NEIGHBOURS, find_neighbour
from mooring_lab.control.errors import LabError
from mooring_lab.control.loopback import free_ports
from mooring_lab.control.processes import Server
from tests.e2e.spine_environment import Environment, pod_ready
from tests.e2e.test_mix_rebalance import CUSTOM, ENABLED, INTERRUPT_AT, MODE
from tests.e2e.waiting import eventually, stands


def _found():
    try:
        return {name: find_neighbour(name) for name in NEIGHBOURS}
    except LabError:
        return {}


PROGRAMS = _found()
LASTS_S = float(os.environ.get("MOORING_NEIGHBOURS_S", "120"))
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(LASTS_S + 1800),
    pytest.mark.skipif(
        not PROGRAMS,
        reason="Karpenter and the descheduler are not here: mooring lab build --with karpenter,descheduler",
    ),
]
CAPACITY_TYPE = "karpenter.sh/capacity-type"
#: Replicas of the workloads, and how many of each are to be Ready at every moment: the only replica, a quorum of three,
#: and the floor of mix on on-demand nodes.
REPLICAS = {"api": 1, "db": 3, "web": 5}
LEAST = {"api": 1, "db": 2, "web": 2}
#: A node is ended by force so long after Karpenter began with it.
GRACE_S = 240
DESCHEDULER = {
    "apiVersion": "descheduler/v1alpha2",
    "kind": "DeschedulerPolicy",
    "profiles": [
        {
            "name": "old",
            "pluginConfig": [
                {"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 60}},
                {"name": "RemoveDuplicates", "args": {}},
            ],
            "plugins": {
                "deschedule": {"enabled": ["PodLifeTime"]},
                "balance": {"enabled": ["RemoveDuplicates"]},
            },
        }
    ],
}


def instance_types():
    """Two sizes, spot and on demand, in two zones."""
    found = []
    for cpu in (4, 8):
        offerings = [
            {
                "Price": 0.02 * cpu * (0.4 if capacity == "spot" else 1),
                "Available": True,
                "Requirements": [
                    {"key": CAPACITY_TYPE, "operator": "In", "values": [capacity]},
                    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]},
                ],
            }
            for capacity in ("spot", "on-demand")
            for zone in ("a", "b")
        ]
        resources = {"cpu": str(cpu), "memory": f"{cpu * 4}Gi", "ephemeral-storage": "100Gi", "pods": "30"}
        machine = {"architecture": "amd64", "operatingSystems": ["linux"], "resources": resources}
        found.append({"name": f"m-{cpu}x-amd64-linux", "offerings": offerings, **machine})
    return found


class Neighbours(Environment):
    """Every node is Karpenter's."""

    features = "mix=true,handoff=true,drain=true,home=true"
    webhook = True

    def __init__(self, lab, directory):
        super().__init__(lab, directory)
        self.settings = {
            "mix": {
                "capacity": {
                    "labels": [{"key": CAPACITY_TYPE, "spot_values": ["spot"], "ondemand_values": ["on-demand"]}]
                },
                "rebalance": {"settle-s": 5.0, "pause-s": 5.0},
            },
            "drain": {"keep": [self.namespace]},
        }
        self.least, self.generation, self.dips = dict(REPLICAS), 0, []
        #: Subject → operators that were seen for it; subject, workload → pods that it had.
        self.operators, self.had = defaultdict(set), defaultdict(set)

    # ── Karpenter and the descheduler ─────────────────────────────────────────────────────────────────────────────

    def make_nodes(self):
        self.crds = PROGRAMS["karpenter"].parent / "crds"
        self.lab.kubectl("apply", "--server-side", "-f", str(self.crds))
        stands(self.lab, "wait", "--for=condition=Established", "crd", "nodepools.karpenter.sh")
        self.lab.kubectl(
            "apply",
            "-f",
            "-",
            input=json.dumps(
                {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "lab"}}
            ),
        )
        self.pool()
        types = self.directory / "types.json"
        types.write_text(json.dumps(instance_types()))
        metrics, health = free_ports(2)
        argv = ("/usr/bin/env", f"KUBECONFIG={self.lab.kubeconfig}", "SYSTEM_NAMESPACE=kube-system")
        argv += (str(PROGRAMS["karpenter"]), "--disable-leader-election", "--karpenter-service=karpenter")
        argv += (f"--instance-types-file-path={types}", "--batch-idle-duration=1s", "--batch-max-duration=3s")
        argv += (f"--metrics-port={metrics}", f"--health-probe-port={health}")
        self.run("karpenter", argv, f"http://127.0.0.1:{health}/readyz")
        return []

    def run(self, name, argv, ready_url):
        server = Server(name=name, argv=argv, ready_url=ready_url)
        self.lab.processes.start(server)
        self.lab.processes.wait_ready([server])

    def pool(self, **disruption):
        """Another generation of nodes: those that are there have drifted."""
        self.generation += 1
        how = {
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "consolidateAfter": "20s",
            "budgets": [{"nodes": "25%"}],
        }
        template = {
            "metadata": {"labels": {"for": self.namespace, "generation": f"g{self.generation}"}},
            "spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "lab"},
                "requirements": [{"key": CAPACITY_TYPE, "operator": "In", "values": ["spot", "on-demand"]}],
                "expireAfter": "300s",
                "terminationGracePeriod": f"{GRACE_S}s",
            },
        }
        made = {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": "lab"},
            "spec": {"template": template, "disruption": how | disruption},
        }
        self.lab.kubectl("apply", "-f", "-", input=json.dumps(made))

    def descheduler(self):
        policy = self.directory / "descheduler.yaml"
        DESCHEDULER["profiles"][0]["pluginConfig"][0]["args"]["namespaces"] = {"include": [self.namespace]}
        policy.write_text(yaml.safe_dump(DESCHEDULER))
        (port,) = free_ports(1)
        argv = (str(PROGRAMS["descheduler"]), f"--kubeconfig={self.lab.kubeconfig}", f"--policy-config-file={policy}")
        argv += ("--descheduling-interval=20s", "--bind-address=127.0.0.1", f"--secure-port={port}", "--v=2")
        argv += (f"--cert-dir={self.directory}",)
        self.run("descheduler", argv, f"https://127.0.0.1:{port}/healthz")

    async def __aexit__(self, kind, *rest):
        for name in ("descheduler", "karpenter"):
            self.lab.processes.stop(name)
        await asyncio.to_thread(self._forget)
        await super().__aexit__(kind, *rest)

    def _forget(self):
        """Karpenter, which would end its nodes, is gone."""
        free = ("--type=merge", "-p", json.dumps({"metadata": {"finalizers": None}}))
        for one in ("nodepools", "nodeclaims", "kwoknodeclasses", "nodes"):
            found = self.lab.kubectl(
                "get", one, "-o", "name", *(("-l", f"for={self.namespace}") if one == "nodes" else ())
            )
            for name in found.split():
                self.lab.kubectl("patch", name, *free)
                if one != "nodes":
                    self.lab.kubectl("delete", name, "--wait=false", "--ignore-not-found")
        self.lab.kubectl("delete", "-f", str(self.crds), "--wait=false")

    # ── Workloads ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def deploy(self):
        first, mode = {REPLACE_FIRST: "true"}, {ENABLED: "true", MODE: "custom", CUSTOM: str(LEAST["web"])}
        await self.api.create(Kind.DEPLOYMENT, self.workload("api", annotations=first))
        await self.api.create(Kind.STATEFUL_SET, self.workload("db", annotations=first, serviceName="db"))
        await self.api.create(Kind.DEPLOYMENT, self.workload("web", labels=mode))
        await self.api.create(Kind.DEPLOYMENT, self.workload("filler", replicas=0))
        for name in ("api", "db"):
            budget = {"minAvailable": LEAST[name], "selector": {"matchLabels": {"app": name}}}
            await self.api.create(Kind.PDB, {"metadata": {"namespace": self.namespace, "name": name}, "spec": budget})

    def workload(self, name, replicas=None, annotations=None, labels=None, **more):
        apart = {"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": "kubernetes.io/hostname"}
        prefer = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": apart}]}
        times = {"lab.mooring.dev/start-seconds": "3", "lab.mooring.dev/ready-seconds": "2"}
        spec = {
            "terminationGracePeriodSeconds": 2,
            "nodeSelector": {"for": self.namespace},
            "affinity": {"podAntiAffinity": prefer},
            "containers": [
                {"name": name, "image": f"example.org/{name}:1", "resources": {"requests": {"cpu": "900m"}}}
            ],
        }
        template = {"metadata": {"labels": {"app": name}, "annotations": times}, "spec": spec}
        selector = {"matchLabels": {"app": name}}
        made = {"selector": selector, "template": template, "replicas": REPLICAS.get(name, replicas), **more}
        meta = {"namespace": self.namespace, "name": name, "annotations": annotations or {}, "labels": labels or {}}
        return {"metadata": meta, "spec": made}

    # ── What is seen ──────────────────────────────────────────────────────────────────────────────────────────────

    async def look(self):
        pods = (await self.pods()).values()
        nodes = {
            one["metadata"]["name"]: one["metadata"]["labels"]
            for one in (await self.api.raw("GET", "/api/v1/nodes"))["items"]
        }
        ready = Counter()
        for pod in pods:
            meta = pod["metadata"]
            name = meta["labels"].get("app") or meta["labels"].get("app.kubernetes.io/component", "")
            for one in (name, f"pod/{self.namespace}/{meta['name']}"):
                self.had[one].add(meta["uid"])
            node = nodes.get(pod["spec"].get("nodeName"), {})
            counts = name != "web" or node.get(CAPACITY_TYPE) == "on-demand"
            ready[name] += counts and pod_ready(pod) and "deletionTimestamp" not in meta
            ready[f"all of {name}"] += pod_ready(pod) and "deletionTimestamp" not in meta
        leader = await self.leader()
        if leader is not None:
            told = await leader.ask("/api/v1/queue")
            for one in (*told["running"], *told["waiting"]):
                self.operators[one["subject"]].add(one["id"])
        return ready, pods, nodes

    async def asked(self):
        """The API server asks about new pods and about evictions."""
        for kind, count in ((Kind.MUTATING_WEBHOOK, 1), (Kind.VALIDATING_WEBHOOK, 2)):
            found = await self.api.get(kind, "", "mooring-mix")
            if sum(bool(one["clientConfig"].get("caBundle")) for one in found["webhooks"]) < count:
                return False
        return True

    async def answers(self):
        """How evictions were answered."""
        leader = await self.leader()
        async with aiohttp.ClientSession() as session, session.get(f"{leader.url}/metrics") as answer:
            lines = (await answer.text()).splitlines()
        return [line for line in lines if line.startswith("mooring_evictions_total{")]

    async def stands(self):
        ready, _, _ = await self.look()
        return ready["tikv"] == 3 and all(ready[f"all of {name}"] >= count for name, count in REPLICAS.items())

    async def floor(self):
        ready, _, _ = await self.look()
        return ready["web"] >= LEAST["web"]

    async def rests(self):
        """Nothing of ours is left, and everything is Ready."""
        _, pods, _ = await self.look()
        leader = await self.leader()
        if leader is None or not await self.stands() or await self.left_overs():
            return False
        told = await leader.ask("/api/v1/queue")
        return not (
            told["running"] or told["waiting"] or any(LEAVING in p["metadata"].get("annotations", {}) for p in pods)
        )

    async def scene(self, name, pods, nodes):
        """What is there where too few are Ready, for whoever reads the failure."""
        lines = [f"── {name} at {datetime.now(UTC):%H:%M:%S}"]
        for pod in pods:
            meta = pod["metadata"]
            if meta["labels"].get("app") == name:
                node = nodes.get(pod["spec"].get("nodeName"), {}).get(CAPACITY_TYPE)
                state = "Ready" if pod_ready(pod) else pod["status"]["phase"]
                marks = {key: value[:200] for key, value in meta["annotations"].items() if "mooring" in key}
                lines.append(
                    f"{meta['name']} {node} {state} {meta['labels']} {marks} {meta.get('deletionTimestamp', '')}"
                )
        leader = await self.leader()
        log = leader.log.read_text().splitlines() if leader is not None else []
        return "\n".join([*lines, *[line for line in log if f"/{name}-" in line][-30:]])

    async def interrupt(self):
        """A spot node, as a cloud does: a moment, and Karpenter is told."""
        _, pods, nodes = await self.look()
        busy = Counter(pod["spec"].get("nodeName") for pod in pods)
        spots = [name for name, labels in nodes.items() if labels.get(CAPACITY_TYPE) == "spot" and busy[name]]
        claims = json.loads(await asyncio.to_thread(self.lab.kubectl, "get", "nodeclaims", "-o", "json"))["items"]
        for claim in claims:
            if claim.get("status", {}).get("nodeName") in spots and "deletionTimestamp" not in claim["metadata"]:
                at = (datetime.now(UTC) + timedelta(seconds=120)).strftime("%Y-%m-%dT%H:%M:%SZ")
                await asyncio.to_thread(
                    self.lab.kubectl, "annotate", "node", claim["status"]["nodeName"], f"{INTERRUPT_AT}={at}"
                )
                await asyncio.to_thread(
                    self.lab.kubectl, "delete", "nodeclaim", claim["metadata"]["name"], "--wait=false"
                )
                return True
        return False

    async def trouble(self, lasts_s):
        """Returns how often each was done."""
        done, end = Counter(), time.monotonic() + lasts_s
        every = {"drift": 150.0, "scale": 60.0, "interrupt": 90.0}
        due = {name: time.monotonic() + seconds / 4 for name, seconds in every.items()}
        while time.monotonic() < end:
            try:
                ready, pods, nodes = await self.look()
            except PortError:
                continue
            for name in LEAST:
                if ready[name] < min(LEAST[name], self.least[name]):
                    self.dips.append(await self.scene(name, pods, nodes))
                self.least[name] = min(self.least[name], ready[name])
            for name, at in due.items():
                if time.monotonic() < at:
                    continue
                due[name] = time.monotonic() + every[name]
                if name == "drift":
                    await asyncio.to_thread(self.pool)
                elif name == "scale":
                    count = 0 if done["scale"] % 2 else 12
                    await self.api.patch(Kind.DEPLOYMENT, self.namespace, "filler", {"spec": {"replicas": count}})
                elif not await self.interrupt():
                    continue
                done[name] += 1
            await asyncio.sleep(0.3)
        return done


async def test_karpenter_and_the_descheduler_beside_everything(lab, tmp_path):
    """D1-D3, E6, M5: no leader is cut off, the only replica, the quorum and the floor on on-demand hold at every moment,
    nobody is moved in circles, and when they stop all comes to rest."""
    async with Neighbours(lab, tmp_path) as all_:
        await all_.start()
        await eventually(all_.leads, tell=all_.logs)
        await eventually(all_.asked, "the webhooks are installed", tell=all_.logs)
        await all_.deploy()
        await eventually(all_.stands, "all of them are Ready", tell=all_.logs)
        await eventually(all_.floor, "the floor is reached", tell=all_.logs)
        all_.operators.clear()
        all_.descheduler()
        began = time.monotonic()
        done = await all_.trouble(LASTS_S)
        assert all(map(lab.processes.pid, PROGRAMS)), "one of them has ended"
        lab.processes.stop("descheduler")
        await asyncio.to_thread(all_.pool, budgets=[{"nodes": "0"}], consolidateAfter="Never")
        hours = (time.monotonic() - began) / 3600
        most = Counter({subject: len(ids) for subject, ids in all_.operators.items()}).most_common(3)
        figures = {
            "seconds": round(hours * 3600),
            "done": dict(done),
            "generations of nodes": all_.generation,
            "least Ready": all_.least,
            "TiKV members away at once": all_.most_away,
            "leaders cut off": all_.placement.interrupted(),
            "pods had": {name: len(uids) for name, uids in all_.had.items() if not name.startswith("pod/")},
            "operators": sum(map(len, all_.operators.values())),
            "most operators of a subject, and an hour": [(subject, n, round(n / hours)) for subject, n in most],
            "evictions": await all_.answers(),
        }
        print(json.dumps(figures, indent=1))
        assert all_.placement.interrupted() == 0
        assert all_.most_away <= 1
        assert not all_.dips, "\n".join(all_.dips)
        # One to prepare a pod, and one more where that was in vain: more for one pod is a circle.
        went = {s: len(all_.had[s if s.startswith("pod/") else "tikv"]) for s in all_.operators}
        assert {s: len(ids) for s, ids in all_.operators.items() if len(ids) > 2 * went[s] + 2} == {}
        await eventually(all_.rests, "all comes to rest", tell=all_.logs)
