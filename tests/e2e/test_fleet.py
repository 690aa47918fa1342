"""Fleet on the real control plane, with sabakan over HTTP: the plan follows the machines' lives, and so do the Nodes."""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import pytest
import yaml
from aiohttp import web

from mooring.clients.registry.sabakan.client import QUERY
from mooring_lab.cluster.clock import Timeline, WallDriver
from mooring_lab.cluster.sabakan import SandboxSabakan
from mooring_lab.control import servers
from mooring_lab.control.errors import LabError
from mooring_lab.control.loopback import free_ports
from tests.e2e.looking import get
from tests.e2e.observer import Observer
from tests.e2e.waiting import eventually, stands
from tests.sandbox.sabakan.rest import rest_app

pytestmark = pytest.mark.e2e

STATE = "cke.cybozu.com/state"
TEMPLATE = {
    "name": "e2e",
    "nodes": [{"user": "cybozu", "control_plane": True}, {"user": "cybozu", "labels": {"tier": "gold"}}],
    "service_subnet": "10.68.0.0/16",
}
IPAM = {
    "max-nodes-in-rack": 28,
    "node-ipv4-pool": "10.69.0.0/20",
    "node-ipv4-range-size": 6,
    "node-ipv4-range-mask": 26,
    "node-ip-per-node": 3,
    "node-index-offset": 3,
    "node-gateway-offset": 1,
    "bmc-ipv4-pool": "10.72.16.0/20",
    "bmc-ipv4-offset": "0.0.1.0",
    "bmc-ipv4-range-size": 5,
    "bmc-ipv4-range-mask": 20,
    "bmc-ipv4-gateway-offset": 1,
}
SETTINGS = {"lease-s": 5, "renew-s": 2.0, "retry-s": 0.5, "fleet": {"query-s": 1.0, "recheck-s": 0.5}}


@pytest.fixture(params=["sandbox's sabakan", "real sabakan"])
def real_sabakan(request, lab):
    if request.param == "real sabakan" and lab.sabakan is None:
        pytest.skip(servers.NO_SABAKAN)
    return request.param == "real sabakan"


class Environment:
    """Machines in a registry, a Node for each, settings by the command line, and one `mooring run`."""

    def __init__(self, lab, directory):
        self.lab, self.directory = lab, directory
        self.own, self.shop = lab.namespace("mooring"), lab.namespace("shop")
        self.addresses = {}
        self._stack = contextlib.AsyncExitStack()

    async def build(self, racks, *, real):
        """A machine for each of these racks."""
        self.url = await asyncio.to_thread(self.lab.start_sabakan) if real else await self._serve_sandbox()
        self.http = await self._stack.enter_async_context(aiohttp.ClientSession(self.url))
        await self.call("PUT", "/api/v1/config/ipam", json.dumps(IPAM))
        specs = [
            {"serial": f"m{n}", "rack": rack, "role": "cs", "labels": {"product": "R640"}, "bmc": {"type": "iDRAC-9"}}
            for n, rack in enumerate(racks)
        ]
        await self.call("POST", "/api/v1/machines", json.dumps(specs))
        for found in json.loads(await self.call("GET", "/api/v1/machines")):
            self.addresses[found["spec"]["serial"]] = found["spec"]["ipv4"][0]
        for serial in self.addresses:
            await self.state(serial, "healthy")
        self.add_nodes(*self.addresses.values())

    def add_nodes(self, *addresses):
        with self.lab.api() as api:
            for address in addresses:
                api.ask("POST", "api/v1/nodes", servers.node(address, {"for": self.own}, "8", "32Gi"))

    async def _serve_sandbox(self):
        timeline = Timeline(epoch=time.time())
        driving = asyncio.ensure_future(WallDriver(timeline).run())
        self._stack.callback(driving.cancel)
        runner = web.AppRunner(rest_app(SandboxSabakan(timeline)), access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return site.name

    async def call(self, method, path, body=None):
        async with self.http.request(method, path, data=body) as answer:
            said = await answer.text()
            assert answer.status < 300, f"{method} {path}: {answer.status} {said}"
            return said

    async def state(self, serial, *states):
        for state in states:
            await self.call("PUT", f"/api/v1/state/{serial}", state)

    async def fleet(self, *args, code=0):
        """`mooring fleet …`, as a user types it; answers with what it printed."""
        where = ("--kubeconfig", str(self.lab.kubeconfig), "--namespace", self.own)
        argv = [sys.executable, "-m", "mooring", "fleet", *args, *where]
        done = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, check=False, timeout=180)
        assert done.returncode == code, f"{args}: {done.returncode} {done.stderr}"
        return done.stdout

    async def set_up(self, planes, minimum):
        await self._set("template", yaml.safe_dump(TEMPLATE))
        await self.constrain(planes, minimum)
        await self.fleet("set", "url", self.url)
        await self.fleet("enable")

    async def constrain(self, planes, minimum):
        await self._set("constraints", f"control-plane-count: {planes}\nminimum-workers: {minimum}\n")

    async def _set(self, name, text):
        (self.directory / f"{name}.yml").write_text(text)
        await self.fleet(f"set-{name}", str(self.directory / f"{name}.yml"))

    async def run(self, **fleet):
        settings = {**SETTINGS, "fleet": {**SETTINGS["fleet"], **fleet}}
        (self.directory / "mooring.yaml").write_text(yaml.safe_dump(settings))
        http, extender, webhook = free_ports(3)
        argv = [
            *(sys.executable, "-m", "mooring", "run", "--kubeconfig", str(self.lab.kubeconfig)),
            *("--config", str(self.directory / "mooring.yaml"), "--features", "fleet=true", "--namespace", self.own),
            *("--listen-http", f"127.0.0.1:{http}", "--listen-extender", f"127.0.0.1:{extender}"),
            *("--listen-webhook", f"127.0.0.1:{webhook}"),
        ]
        self.log = self.directory / "log"
        with self.log.open("wb") as log:
            self.popen = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=log)
        self.metrics = f"http://127.0.0.1:{http}/metrics"

    def apply(self, document):
        path = self.directory / "apply.json"
        path.write_text(json.dumps(document))
        self.lab.kubectl("apply", "-f", str(path))

    async def close(self):
        if hasattr(self, "popen"):
            self.popen.kill()
            self.popen.wait(120)
        self.lab.clear(self.own, self.shop, nodes=f"for={self.own}")
        await self._stack.aclose()

    # ── Looking ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def get(self, *what):
        return await asyncio.to_thread(get, self.lab, *what)

    async def node(self, address):
        return await self.get("node", address)

    async def members(self):
        """Address → is it a control plane, from the exported cluster.yml."""
        document = json.loads(await self.fleet("get", "cluster", "-o", "json"))
        return {n["address"]: n["control_plane"] for n in document["nodes"]}

    async def plan(self):
        """`mooring fleet plan` from what the registry answers and from the cluster that was stored before anything changed."""
        asked = json.dumps({"query": QUERY, "operationName": "ckeSearch"})
        (self.directory / "machines.json").write_text(await self.call("POST", "/graphql", asked))
        (self.directory / "cluster.yml").write_text(self.cluster)
        files = [
            f"--{name}={self.directory / name}.{end}"
            for name, end in (("template", "yml"), ("constraints", "yml"), ("cluster", "yml"), ("machines", "json"))
        ]
        argv = [sys.executable, "-m", "mooring", "fleet", "plan", *files, "-o", "json"]
        done = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, check=False, timeout=180)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    async def stored(self, planes, workers):
        found = json.loads(await self.fleet("status", "-o", "json"))
        return (found["control_planes"], found["workers"]) == (planes, workers)

    async def until(self, holds):
        async def alive_and_holds():
            assert self.popen.poll() is None, self.log.read_text()[-3000:]
            return await holds()

        await eventually(alive_and_holds, every_s=0.5, tell=lambda: self.log.read_text()[-4000:])


@pytest.fixture
async def environment(lab, tmp_path):
    made = Environment(lab, tmp_path)
    try:
        with Observer(lab) as made.observer:
            yield made
    finally:
        await made.close()


def taints(node):
    return {t["key"]: f"{t.get('value', '')}:{t['effect']}" for t in node["spec"].get("taints") or ()}


async def test_a_machines_life_is_followed(environment, real_sabakan):
    """F1, F8, F9, O2: assigned and labelled; retiring: cordoned, emptied, stored, tainted; gone from the list: out."""
    await environment.build([0, 1, 2, 3, 0, 1], real=real_sabakan)
    await environment.set_up(planes=1, minimum=3)
    await environment.run()

    async def labelled():
        nodes = (await environment.get("nodes", "-l", f"for={environment.own}"))["items"]
        return sum("topology.kubernetes.io/zone" in n["metadata"]["labels"] for n in nodes) == 4

    await environment.until(labelled)
    members = await environment.members()
    workers = [a for a, plane in members.items() if not plane]
    assert len(workers) == 3
    worker = await environment.node(workers[0])
    assert worker["metadata"]["labels"]["tier"] == "gold"
    assert worker["metadata"]["labels"]["sabakan.cke.cybozu.com/product"] == "R640"
    assert worker["metadata"]["annotations"]["cke.cybozu.com/serial"] in environment.addresses
    labels, gold = {"app": "web"}, {"tier": "gold", "for": environment.own}
    pod = {"nodeSelector": gold, "containers": [{"name": "web", "image": "example.org/web:1"}]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    shop = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": environment.shop}}
    shop["spec"] = {"replicas": 4, "selector": {"matchLabels": labels}, "template": template}
    environment.lab.kubectl("create", "-f", "-", input=json.dumps(shop))
    await asyncio.to_thread(stands, environment.lab, "rollout", "status", "deployment/web", "-n", environment.shop)
    pods = (await environment.get("pods", "-n", environment.shop))["items"]
    chosen = pods[0]["spec"]["nodeName"]
    serial = next(s for s, a in environment.addresses.items() if a == chosen)
    await environment.state(serial, "retiring")
    fewest, early = 4, []

    async def tainted():
        nonlocal fewest
        node = await environment.node(chosen)
        if STATE in taints(node):
            return True
        ready = (await environment.get("deployment", "web", "-n", environment.shop))["status"].get("readyReplicas", 0)
        fewest = min(fewest, ready)
        return False

    await environment.until(tainted)
    node = await environment.node(chosen)
    early = [
        p["metadata"]["name"]
        for p in (await environment.get("pods", "-n", environment.shop))["items"]
        if p["spec"].get("nodeName") == chosen and "deletionTimestamp" not in p["metadata"]
    ]
    assert taints(node)[STATE] == "retiring:NoExecute"
    assert node["spec"]["unschedulable"] is True
    assert not early, "empty before the taint"
    assert fewest >= 3, "one replica at a time"
    exported = json.loads(await environment.fleet("get", "cluster", "-o", "json"))
    assert next(n for n in exported["nodes"] if n["address"] == chosen)["taints"][0]["value"] == "retiring"
    await environment.state(serial, "retired")  # by the query's default it is listed no more

    async def out():
        return chosen not in await environment.members()

    await environment.until(out)
    environment.lab.kubectl("delete", "node", chosen)  # what CKE does next
    actions = [e["action"] for e in json.loads(await environment.fleet("history", "-o", "json"))]
    assert actions[0] == "generate"
    assert {"increase-workers", "remove-non-existent"} <= set(actions)


async def test_a_list_of_machines_is_followed_and_handed_on(environment):
    """F12, F13: without a registry: the list is set, cluster.yml is in a ConfigMap; set again without one of them, that
    one is in neither."""
    machines = {f"10.99.0.{n}": {"serial": f"m{n}", "role": "cs", "rack": n % 3} for n in range(1, 7)}
    environment.add_nodes(*machines)
    where = environment.directory / "machines.yml"

    async def listed():
        rows = [{"address": address, **row} for address, row in machines.items()]
        where.write_text(yaml.safe_dump({"machines": rows}))
        await environment.fleet("set", "machines", str(where))

    await environment._set("template", yaml.safe_dump(TEMPLATE))
    await environment.constrain(1, 3)
    await listed()
    await environment.fleet("enable")
    await environment.run(export={"to": "configmap/handed-on/cluster.yml"})

    async def handed_on():
        found = (await environment.get("configmaps", "-n", environment.own))["items"]
        told = [one["data"]["cluster.yml"] for one in found if one["metadata"]["name"] == "handed-on"]
        return {n["address"]: n["control_plane"] for n in yaml.safe_load(told[0])["nodes"]} if told else {}

    async def first():
        return len(await handed_on()) == 4

    await environment.until(first)
    before = await handed_on()
    assert before == await environment.members() and sum(before.values()) == 1
    gone = next(address for address, plane in before.items() if not plane)
    del machines[gone]
    await listed()

    async def out():
        now = await handed_on()
        return gone not in now and len(now) == 4

    await environment.until(out)
    assert await handed_on() == await environment.members()


GUARDED = "node-restriction.kubernetes.io/pci"


def compromised(environment, posing, serial, address):
    """All that the kubelet of one node may write, and tries to (issue 21.9): that its machine is another's, which is
    empty; and that a template of ours brought a label and a taint that only an administrator may take away."""
    lab = environment.lab
    lab.kubectl("label", "node", posing, f"{GUARDED}=yes")
    lab.kubectl("taint", "node", posing, "dedicated=pci:NoSchedule")
    kubelet = (f"--as=system:node:{posing}", "--as-group=system:nodes")
    for forbidden in (
        ("label", "node", posing, "node-restriction.kubernetes.io/mooring-fleet=0", "--overwrite"),
        ("taint", "node", posing, "dedicated-"),
        ("annotate", "node", address, "mooring.dev/retiring-"),
    ):
        with pytest.raises(LabError, match=r"forbidden|not allowed"):
            lab.kubectl(*kubelet, *forbidden)
    told = {"operator": "7", "source": "fleet", "reason": "retiring", "step": "emptied", "since": time.time()}
    told |= {"node": address, "machine": serial}
    record = {"labels": [GUARDED], "taints": ["dedicated:NoSchedule"]}
    marks = (f"mooring.dev/retiring={json.dumps(told)}", f"mooring.dev/fleet={json.dumps(record)}")
    lab.kubectl(*kubelet, "annotate", "node", posing, *marks, "--overwrite")
    claimed = json.dumps({"status": {"addresses": [{"type": "InternalIP", "address": address}]}})
    # A kubelet may do that too; kubectl would also read what only a kubelet's own client need not.
    lab.kubectl("patch", "node", posing, "--subresource=status", "--type=merge", "-p", claimed)


async def test_killed_while_a_machine_retires_the_next_one_ends_it(environment):
    """O2, worked example 6: kill -9 once the node is marked; another process empties, stores and taints, marks gone;
    whatever the kubelet of another node says meanwhile."""
    await environment.build([0, 1, 2, 3, 0], real=False)
    await environment.set_up(planes=1, minimum=3)
    await environment.run()

    async def stored():
        nodes = (await environment.get("nodes", "-l", f"for={environment.own},tier=gold"))["items"]
        return len(nodes) == 3

    await environment.until(stored)
    chosen = next(a for a, plane in (await environment.members()).items() if not plane)
    serial = next(s for s, a in environment.addresses.items() if a == chosen)
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "pay"}}}
    meta = {"name": "pay", "namespace": environment.shop}
    environment.apply({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": budget})
    pod = {
        "metadata": {"labels": {"app": "pay"}},
        "spec": {"nodeName": chosen, "containers": [{"name": "pay", "image": "example.org/pay:1"}]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "pay"}}, "template": pod}
    environment.apply({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": spec})

    async def standing():
        return (await environment.get("replicaset", "pay", "-n", environment.shop))["status"].get("readyReplicas") == 1

    await environment.until(standing)
    await environment.state(serial, "retiring")

    async def marked():
        return "mooring.dev/retiring" in (await environment.node(chosen))["metadata"]["annotations"]

    await environment.until(marked)
    environment.popen.kill()
    environment.popen.wait(120)
    node = await environment.node(chosen)
    assert node["spec"]["unschedulable"] is True
    assert STATE not in taints(node), "its pod is held by a budget: no taint yet"
    posing = next(a for a, plane in (await environment.members()).items() if not plane and a != chosen)
    await asyncio.to_thread(compromised, environment, posing, serial, chosen)
    await environment.run()

    async def read_back():
        return "read back from its mark" in environment.log.read_text()

    await environment.until(read_back)
    await asyncio.sleep(5.0)
    node = await environment.node(posing)
    assert GUARDED in node["metadata"]["labels"] and "dedicated" in taints(node)
    exported = json.loads(await environment.fleet("get", "cluster", "-o", "json"))
    assert not any(n.get("taints") for n in exported["nodes"]), "a pod is still there"
    assert STATE not in taints(await environment.node(chosen))
    environment.lab.kubectl("delete", "pdb", "pay", "-n", environment.shop)
    environment.lab.kubectl("delete", "replicaset", "pay", "-n", environment.shop)

    async def tainted():
        return STATE in taints(await environment.node(chosen)) and not await marked()

    await environment.until(tainted)
    assert taints(await environment.node(chosen))[STATE] == "retiring:NoExecute"
    exported = json.loads(await environment.fleet("get", "cluster", "-o", "json"))
    assert next(n for n in exported["nodes"] if n["address"] == chosen)["taints"][0]["value"] == "retiring"


async def test_fewer_control_planes_healthy_again_and_a_registry_that_dies(environment):
    """F5, O2, F1: two control planes too many go one after the other and leave the rest in three racks (issue 20.13: CKE's
    count would take both from rack 2). Taint and cordon go when a machine is healthy again; a registry that is gone
    changes nothing."""
    racks = [1, 1, 2, 2, 3]
    await environment.build(racks, real=False)
    await environment.set_up(planes=5, minimum=0)
    await environment.run()
    await environment.until(lambda: environment.stored(5, 0))
    environment.cluster = await environment.fleet("get", "cluster")
    in_rack = {address: racks[int(serial[1:])] for serial, address in environment.addresses.items()}
    await environment.constrain(planes=3, minimum=1)
    planned = [c["address"] for c in (await environment.plan())["changes"] if c["change"] == "demote"]
    assert sorted(in_rack[address] for address in planned) == [1, 2]
    await environment.until(lambda: environment.stored(3, 2))
    left = [in_rack[address] for address, plane in (await environment.members()).items() if plane]
    assert sorted(left) == [1, 2, 3]
    chosen = next(a for a, plane in (await environment.members()).items() if not plane)
    serial = next(s for s, a in environment.addresses.items() if a == chosen)
    await environment.state(serial, "retiring")

    async def has_taint():
        return STATE in taints(await environment.node(chosen))

    await environment.until(has_taint)
    await environment.state(serial, "retired", "uninitialized", "healthy")

    async def lifted():
        node = await environment.node(chosen)
        return STATE not in taints(node) and not node["spec"].get("unschedulable")

    await environment.until(lifted)
    before = await environment.members()
    await environment.fleet("set", "url", "http://127.0.0.1:9")
    await asyncio.sleep(3)
    await environment.fleet("set", "url", environment.url)
    assert await environment.members() == before
    async with aiohttp.ClientSession() as session, session.get(environment.metrics) as answer:
        text = await answer.text()
    assert "cke_sabakan_workers" in text


async def test_the_command_line_refuses_what_is_wrong(environment):
    """F2, F9: bad files are refused before anything is written, and so is an export while CKE generates itself."""
    await environment.build([0, 1, 2, 3], real=False)
    bad = Path(environment.directory / "bad.yml")
    bad.write_text("nodes: []\nname: x\nservice_subnet: 10.0.0.0/16\n")
    await environment.fleet("set", "template", str(bad), code=2)
    await environment.fleet("get", "template", code=1)
    await environment.fleet("enable", code=3)
    await environment.set_up(planes=1, minimum=2)
    cluster = {**TEMPLATE, "nodes": [{"address": a, "user": "x"} for a in environment.addresses.values()]}
    bad.write_text(yaml.safe_dump(cluster))
    await environment.fleet("set", "cluster", str(bad), code=3)
    cluster["nodes"][0]["control_plane"] = True
    bad.write_text(yaml.safe_dump(cluster))
    await environment.fleet("set", "cluster", str(bad))
    assert list(await environment.members()) == list(environment.addresses.values())
    cluster["nodes"][0]["control_plane"], cluster["nodes"][1]["control_plane"] = False, True
    bad.write_text(yaml.safe_dump(cluster))
    await environment.fleet("set", "cluster", str(bad), code=3)
    await environment.fleet("cke-integration", "on")
    await environment.fleet("get", "cluster", code=3)
    await environment.fleet("status", code=1)
