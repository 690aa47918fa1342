"""The environment for the spine's proofs: a TidbCluster on the real control plane, a PD for it, and `mooring run` behind doors.

Everything that Mooring says to the API server and to PD passes a door of ours, which counts its writes and can end the
process (kill -9) right before a write is forwarded or right after its answer came back: nothing test-only ships.
"""

import asyncio
import json
import re
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web

import mooring_lab.control
from mooring.clients.kube import HttpKubeApi, load
from mooring.clients.ports import AlreadyExistsError, NotFoundError, PortError
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF
from mooring_lab.cluster.clock import Timeline, WallDriver
from mooring_lab.cluster.pd import PdSettings, SandboxPd
from mooring_lab.cluster.pd.http import pd_app
from mooring_lab.control.loopback import free_ports
from mooring_lab.demo.onlab.rig import PATIENT_S
from tests.e2e.observer import Observer
from tests.e2e.waiting import eventually

REGIONS = 24
HOP = {"connection", "transfer-encoding", "content-length", "host", "keep-alive"}

SETTINGS = {
    "lease-s": 5,
    "renew-s": 2.0,
    "retry-s": 0.5,
    "handoff": {
        "recheck-s": 0.7,
        "prove-s": 0.5,
        "idle-s": 2.0,
        "timeout-s": 300.0,
        "young-pd-s": 3.0,
        "election-s": 2.0,
    },
}

#: As the lab ships it, and tests that apply the file: a TidbCluster has a spec.
CRD = yaml.safe_load((Path(mooring_lab.control.__file__).parent / "crds" / "tidbcluster.yaml").read_text())


class Toll:
    """Counts the writes that pass the doors and ends the process that makes an appointed one."""

    def __init__(self):
        self._at = None
        self.writes = []
        self.killed = False

    def kill_at(self, number, side):
        self._at, self.killed = (len(self.writes) + number, side), False

    def number(self, what, side):
        """The place of this write among all. Another may have begun before its answer is back: it is known by its own text."""
        if side == "before":
            return len(self.writes) + 1
        return next(number for number, write in enumerate(self.writes, start=1) if write is what)

    def passes(self, what, side, kill):
        """False: the process is gone, and with it whoever asked."""
        if self._at == (self.number(what, side), side):
            self._at, self.killed = None, True
            kill()
            return False  # before: it was never made
        if side == "before":
            self.writes.append(what)
        return True


class Door:
    """A forwarding server on loopback in front of one target, for one process."""

    def __init__(self, target, toll, kill, tls=None):
        self._target, self._toll, self._kill, self._tls = target, toll, kill, tls

    async def open(self):
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls) if self._tls else None,
            # What is packed passes packed, and only if the other side can unpack it.
            auto_decompress=False,
            skip_auto_headers=("Accept-Encoding",),
        )
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{any:.*}", self._pass)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return site.name

    async def close(self):
        # Those who forward end first: one of them might open a connection that a closed session no longer closes.
        await self._runner.cleanup()
        await self._session.close()

    async def _pass(self, request):
        counted = request.method != "GET" and not re.search(r"/(leases|events|selfsubject)", request.path)
        what = f"{request.method} {request.path}"
        body = await request.read()
        if counted and not self._toll.passes(what, "before", self._kill):
            return _cut(request)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP}
        url = self._target + str(request.rel_url)
        try:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
            async with self._session.request(
                request.method, url, data=body, headers=headers, timeout=timeout
            ) as answer:
                if "watch" in request.query:
                    return await self._stream(request, answer)
                data = await answer.read()
        except aiohttp.ClientError:
            return _cut(request)
        if counted and not self._toll.passes(what, "after", self._kill):
            return _cut(request)
        kept = {k: v for k, v in answer.headers.items() if k.lower() not in HOP}
        return web.Response(status=answer.status, body=data, headers=kept)

    async def _stream(self, request, answer):
        response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
        try:
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
        except (aiohttp.ClientError, ConnectionError):
            return _cut(request)
        return response


def _cut(request):
    if request.transport is not None:
        request.transport.close()
    return web.Response()


class ServedPd:
    """The sandbox's PD over HTTP, on the wall clock."""

    async def serve(self, pd, timeline):
        self.pd = pd
        self._driving = asyncio.ensure_future(WallDriver(timeline).run())
        self._runner = web.AppRunner(pd_app(pd), access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        pd.urls = dict.fromkeys(pd.urls, site.name)
        return site.name

    async def close(self):
        self._driving.cancel()
        await asyncio.gather(self._driving, return_exceptions=True)
        await self._runner.cleanup()


class SandboxPlacement(ServedPd):
    """A hand-over's stores, on the sandbox's PD."""

    def __init__(self, namespace, members=("pd-0",)):
        self._namespace = namespace
        self._settings = PdSettings(
            members=members,
            store_heartbeat_s=1.0,
            reconnect_s=(0.5, 1.0),
            collect_every_s=0.5,
            election_s=(1.0, 2.0),
        )

    async def start(self, names):
        # Its clock must be everybody's: a heartbeat older than the pod says nothing about the pod.
        timeline = Timeline(epoch=time.time())
        pd = SandboxPd(timeline, seed=3, cluster="demo", namespace=self._namespace, settings=self._settings)
        for name in names:
            pd.attach(name)
        pd.load(regions=REGIONS)
        return await self.serve(pd, timeline)

    def runs(self, name):
        self.pd.pod_ready(name)

    def ended(self, name):
        self.pd.pod_gone(name)

    async def lose_region(self):
        """One that store 3 leads is led by nobody any more, and nobody will; PD finds out when it restarts."""
        self.pd.lose_region("demo-tikv-2")
        await self.restart()

    async def leaderless(self):
        """How many regions PD knows no leader of."""
        return sum(not region.leader_store for region in self.pd.server.cache.values())

    async def evicting(self):
        return tuple(self.pd.server.evict_list() or ())

    def leaders(self, ordinal):
        return len(self.pd.server.tikv.led[ordinal + 1])

    def keep_a_leader(self, *names):
        """One of each of these members does not leave until nobody is named: a slow machine must not overtake the test."""
        tikv = self.pd.server.tikv
        tikv.stuck = {region for name in names for region in list(tikv.led[self.pd.store_of(name).id])[:1]}

    def interrupted(self):
        return sum(i.leaders for i in self.pd.interruptions)

    async def restart(self):
        """PD restarts; for a moment it shows no leaders anywhere."""
        self.pd.restart(down_s=1.0)


class RealPlacement:
    """A real pd-server, or several that are one PD, with stores and regions brought in by the fake TiKV."""

    def __init__(self, lab, namespace, members=1):
        self._lab, self._namespace, self._members = lab, namespace, members

    async def start(self, names):
        from mooring.clients.pd import PdClient
        from mooring.process.clock import SystemRandomness, WallClock
        from tests.faketikv import FakeTikv

        before = set(self._lab.pids())
        urls = await asyncio.to_thread(self._lab.start_pd, self._members)
        self._server = next(iter(set(self._lab.pids()) - before))
        addresses = [f"{name}.demo-tikv-peer.{self._namespace}.svc:20160" for name in names]
        self._ids = {name: i for i, name in enumerate(names, 1)}
        self.tikv = FakeTikv(urls, addresses=addresses, regions=REGIONS, transfer_s=0.1)
        await self.tikv.start()
        self._client = PdClient(urls, clock=WallClock(), randomness=SystemRandomness())
        await eventually(self._settled)
        return ",".join(urls)

    async def _settled(self):
        try:
            view = await self._client.observe()
        except PortError:
            return False
        return view.evicting == () and sum(s.leader_count for s in view.stores) >= REGIONS

    def runs(self, name):
        self.tikv.start_store(self._ids[name])

    def ended(self, name):
        self.tikv.stop_store(self._ids[name])

    async def lose_region(self):
        """One that store 3 leads: PD restarts, and nobody ever tells it of that region again."""
        self.tikv.lost = {next(r.id for r in self.tikv.regions.values() if r.leader == 3)}
        await self.restart()

    async def look(self):
        """PD's first answer: on a busy machine it may take more than one question."""
        answers = []

        async def answered():
            answers.append(await self._client.observe())
            return True

        await eventually(answered)
        return answers[-1]

    async def leaderless(self):
        """How many regions PD knows no leader of."""
        view = await self.look()
        return view.region_count - sum(s.leader_count for s in view.stores)

    async def evicting(self):
        return (await self.look()).evicting

    def leaders(self, ordinal):
        return self.tikv.leaders()[ordinal + 1]

    def keep_a_leader(self, *names):
        """PD asks its leaders away, and the fake TiKV obeys: nothing keeps one."""

    def interrupted(self):
        return self.tikv.interrupted

    async def restart(self):
        """As a power cut would, once PD has had the time to store its regions; the stores come back seconds later."""
        await asyncio.sleep(6)
        self.tikv.may_connect.clear()
        await asyncio.to_thread(self._lab.kill, self._server)
        await asyncio.to_thread(self._lab.start, self._server)
        await asyncio.sleep(4)
        self.tikv.may_connect.set()

    async def close(self):
        await self._client.close()
        await self.tikv.close()


class Mooring:
    """One `mooring run`, with doors of its own."""

    def __init__(self, environment, number):
        self._directory = environment.directory / f"mooring-{number}"
        self._directory.mkdir()
        self.log = self._directory / "log"
        self._environment = environment
        self._doors = [
            Door(environment.lab.apiserver, environment.toll, self.kill, environment.tls),
            *(Door(url, environment.toll, self.kill) for url in environment.pd_url.split(",")),
        ]

    async def start(self):
        server, *pd = [await door.open() for door in self._doors]
        self._write_files(server)
        http, extender, webhook = free_ports(3)
        self.url = f"http://127.0.0.1:{http}"
        argv = [
            *(sys.executable, "-m", "mooring", "run"),
            *("--kubeconfig", str(self._directory / "kubeconfig"), "--config", str(self._directory / "mooring.yaml")),
            *("--features", self._environment.features, "--namespace", self._environment.own),
            *("--listen-http", f"127.0.0.1:{http}", "--listen-extender", f"127.0.0.1:{extender}"),
            *("--listen-webhook", f"127.0.0.1:{webhook}"),
            *(("--webhook-url", f"https://127.0.0.1:{webhook}") if self._environment.webhook else ()),
            *("--pd", f"{self._environment.namespace}/demo={','.join(pd)}"),
        ]
        with self.log.open("wb") as log:
            self.popen = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=log)
        return self

    def _write_files(self, server):
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "door",
            "clusters": [{"name": "door", "cluster": {"server": server}}],
            "users": [{"name": "door", "user": {}}],
            "contexts": [{"name": "door", "context": {"cluster": "door", "user": "door"}}],
        }
        (self._directory / "kubeconfig").write_text(yaml.safe_dump(config))
        (self._directory / "mooring.yaml").write_text(yaml.safe_dump(SETTINGS | self._environment.settings))

    def kill(self):
        """kill -9."""
        if self.alive():
            self.popen.send_signal(signal.SIGKILL)
            self.popen.wait(120)

    def alive(self):
        return self.popen.poll() is None

    async def ask(self, path):
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as answer:
            return await answer.json()

    async def leads(self):
        try:
            return self.alive() and (await self.ask("/api/v1/status"))["deciding"]
        except aiohttp.ClientError:
            return False

    async def serves(self):
        try:
            return (await self.ask("/api/v1/status"))["synced"]
        except aiohttp.ClientError:
            assert self.alive(), self.log.read_text()[-3000:]
            return False

    async def close(self):
        self.kill()
        for door in self._doors:
            await door.close()


class Environment:
    features = "handoff=true"
    #: Whether the API server is to ask it: one process at a time, then.
    webhook = False

    def __init__(self, lab, directory, *, real_pd=False, pd_pods=0, tikv=3):
        self.lab, self.directory = lab, directory
        self.namespace, self.own = lab.namespace("tidb"), lab.namespace("mooring")
        #: PD pods, each a member of the sandbox's PD; none: PD is somewhere else.
        self.pd_pods = [f"demo-pd-{i}" for i in range(pd_pods)]
        members = tuple(self.pd_pods) or ("pd-0",)
        self.placement = RealPlacement(lab, self.namespace) if real_pd else SandboxPlacement(self.namespace, members)
        self.toll = Toll()
        self.processes = []
        #: Besides those of every test.
        self.settings = {}
        self.names = [f"demo-tikv-{i}" for i in range(tikv)]
        self.most_away = 0

    # ── Building ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self):
        connection = load(self.lab.kubeconfig)
        self._api = HttpKubeApi(connection, write_timeout_s=PATIENT_S)
        self.api = await self._api.__aenter__()
        await install_crd(self.api)
        self.nodes = await asyncio.to_thread(self.make_nodes)
        await self.api.create(Kind.TIDB_CLUSTER, self._tidb_cluster())
        await self.api.create(Kind.STATEFUL_SET, self._stateful_set("tikv", len(self.names)))
        if self.pd_pods:
            await self.api.create(Kind.STATEFUL_SET, self._stateful_set("pd", len(self.pd_pods)))
        await eventually(self._all_ready)
        self.pd_url = await self.placement.start(self.names)
        self.tls = _tls(connection, self.directory)
        self._following = asyncio.ensure_future(self._follow())
        self.observer = Observer(self.lab, leaders=lambda pod: self.placement.leaders(int(pod.rpartition("-")[2])))
        await asyncio.to_thread(self.observer.__enter__)
        return self

    async def __aexit__(self, kind, *_):
        self.observer.stop()
        for process in self.processes:
            await process.close()
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        await self.placement.close()
        self.lab.clear(self.namespace, self.own, nodes=f"for={self.namespace}")
        await self._api.__aexit__(None, None, None)
        if kind is None:
            self.observer.judge()

    def make_nodes(self):
        """Its own: their label `for` is its namespace."""
        return self.lab.add_nodes(len(self.names) + 1, prefix=f"{self.namespace}-", labels={"for": self.namespace})

    def _labels(self, component):
        return {
            "app.kubernetes.io/component": component,
            "app.kubernetes.io/instance": "demo",
            "app.kubernetes.io/managed-by": "tidb-operator",
        }

    def _tidb_cluster(self):
        return {
            "apiVersion": "pingcap.com/v1alpha1",
            "kind": "TidbCluster",
            "metadata": {"namespace": self.namespace, "name": "demo"},
            "spec": {
                "tikv": {"replicas": len(self.names)},
                **({"pd": {"replicas": len(self.pd_pods)}} if self.pd_pods else {}),
            },
            "status": {"tikv": {"phase": "Normal"}},
        }

    def _stateful_set(self, component, replicas):
        labels = self._labels(component)
        term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
        return {
            "metadata": {"namespace": self.namespace, "name": f"demo-{component}", "labels": labels},
            "spec": {
                "replicas": replicas,
                "serviceName": f"demo-{component}-peer",
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "terminationGracePeriodSeconds": 5,
                        "nodeSelector": {"for": self.namespace},
                        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
                        "containers": [{"name": component, "image": f"example.org/{component}:1"}],
                    },
                },
            },
        }

    # ── What TiKV does when its pods come and go ──────────────────────────────────────────────────────────────────

    async def _follow(self):
        alive = dict.fromkeys(self.names, True)
        uids = {name: await self.uid(name) for name in self.names}
        while True:
            away = 0
            try:
                pods = await self.pods()
            except PortError:
                await asyncio.sleep(0.05)
                continue  # nobody knows just now
            for name in self.names:
                pod = pods.get(name)
                up = pod is not None and pod_ready(pod) and "deletionTimestamp" not in pod["metadata"]
                away += not up
                gone = pod is None or pod["metadata"]["uid"] != uids[name]
                if gone and alive[name]:
                    alive[name] = False
                    self.placement.ended(name)
                if up and not alive[name]:
                    alive[name], uids[name] = True, pod["metadata"]["uid"]
                    self.placement.runs(name)
            self.most_away = max(self.most_away, away)
            await asyncio.sleep(0.1)

    # ── Mooring ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self):
        """One process more; it need not lead."""
        process = await Mooring(self, len(self.processes) + 1).start()
        self.processes.append(process)
        return process

    async def leads(self):
        return await self.leader() is not None

    async def leader(self):
        for process in self.processes:
            if await process.leads():
                return process
        return None

    def logs(self):
        return "\n".join(f"── {p.log}\n{p.log.read_text()[-2500:]}" for p in self.processes[-2:])

    # ── Looking and pulling ───────────────────────────────────────────────────────────────────────────────────────

    def annotate(self, name, *annotations):
        self.lab.kubectl("annotate", "pods", name, *annotations, "-n", self.namespace, "--overwrite")

    async def pods(self):
        """Those of the cluster's namespace by their names, as of one moment."""
        found = await self.api.raw("GET", f"/api/v1/namespaces/{self.namespace}/pods")
        return {pod["metadata"]["name"]: pod for pod in found["items"]}

    async def pod(self, name):
        try:
            return await self.api.get(Kind.POD, self.namespace, name)
        except NotFoundError:
            return None

    async def uid(self, name):
        pod = await self.pod(name)
        return "" if pod is None else pod["metadata"]["uid"]

    async def _all_ready(self):
        pods = await self.pods()
        return all(name in pods and pod_ready(pods[name]) for name in (*self.names, *self.pd_pods))

    async def left_overs(self):
        tc = await self.api.get(Kind.TIDB_CLUSTER, self.namespace, "demo")
        found = []
        if HANDOFF in tc["metadata"].get("annotations", {}):
            found.append(f"mark {tc['metadata']['annotations'][HANDOFF]}")
        evicting = await self.placement.evicting()
        if evicting:
            found.append(f"evict-leader schedulers {evicting}")
        return found

    async def handed_over(self, name, uid):
        """A new pod, Ready, and nothing of ours left."""
        try:
            new = await self.uid(name)
            return new not in {"", uid} and await self._all_ready() and not await self.left_overs()
        except PortError:
            return False

    async def events(self, name):
        page = await asyncio.to_thread(
            self.lab.kubectl,
            "get",
            "events",
            "-n",
            self.namespace,
            "-o",
            "json",
            "--field-selector",
            f"involvedObject.name={name}",
        )
        return [
            (e["type"], e["reason"], e["message"])
            for e in json.loads(page)["items"]
            if e["source"].get("component") == "mooring"
        ]


async def install_crd(api):
    """TidbClusters are known, and served: that is a moment after the definition is established."""
    try:
        await api.create(Kind.CRD, CRD)
    except AlreadyExistsError:
        return

    async def served():
        try:
            await api.list(Kind.TIDB_CLUSTER)
        except PortError:
            return False
        return True

    await eventually(served)


def pod_ready(pod):
    conditions = pod.get("status", {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _tls(connection, directory):
    context = ssl.create_default_context(cadata=connection.ca.read("ca"))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    for name, pem in (("client.crt", connection.user.certificate), ("client.key", connection.user.key)):
        (directory / name).write_text(pem.read(name))
    context.load_cert_chain(directory / "client.crt", directory / "client.key")
    return context
