"""Least privilege, proved: each feature runs with its rights alone, the API server refuses nothing, and all are used."""

import base64
import json
import time
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from aiohttp import web

from mooring.core.model.kinds import Kind
from mooring.core.model.leaders import LEADERS, LEADERS_ENDPOINT
from mooring.core.model.marks import HANDOFF
from mooring.process.admission.certificates import advance
from mooring.process.admission.configurations import WebhookAddress, configurations
from mooring_lab.cluster.controllers.tidb.operator_v2 import API, KINDS, instances, pod_of
from mooring_lab.control.errors import LabError
from mooring_lab.control.loopback import free_ports
from tests.e2e.definitions import define
from tests.e2e.home_environment import TOLERATION
from tests.e2e.rights_environment import Installation, granted
from tests.e2e.spine_environment import Environment
from tests.e2e.test_fleet import Environment as Registry

pytestmark = pytest.mark.e2e
CAPACITY = "node.kubernetes.io/capacity"
ENABLED = "vacant.io/optimize-scheduling"


class HookSystem:
    """Three members behind one hook; the first leads, until it is asked to leave."""

    def __init__(self):
        self.leader = "led-0"

    async def answer(self, request):
        asked = await request.json()
        if asked["ask"] == "leave" and asked["member"] == self.leader:
            self.leader = "led-1"
        leads = int(asked["member"] == self.leader)
        said = {"leaders": leads, "healthy": True, "in_sync": True, "may_go": True, "message": ""}
        return web.json_response(said)

    async def open(self):
        app = web.Application()
        app.router.add_post("/", self.answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        (self.port,) = free_ports(1)
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def close(self):
        await self._runner.cleanup()


@pytest.fixture
async def installation(lab, tmp_path, request):
    define(lab, Kind.TIDB_CLUSTER, Kind.TIDB_V2, Kind.NODE_CLAIM, Kind.ROLLOUT, Kind.CLONE_SET)
    async with Installation(lab, tmp_path, request.param) as made:
        yield made


def only(*features):
    return pytest.mark.parametrize("installation", [features], indirect=True, ids=[",".join(features) or "core"])


def all_used(installation: Installation) -> None:
    """What the core brings is used up in its own test; here it is what the feature adds."""
    on, used = installation.features, installation.used()
    assert installation.refused() == []
    added = granted(on) - granted(()) if on else granted(())
    # The API server of 1.36 has no Evictions; test_responder.py uses them on 1.37.
    added = {use for use in added if use[1] != "lifecycle.k8s.io"}
    assert sorted(added - used) == [], "granted and never used"
    assert sorted(used - granted(on)) == [], "used, and not in the table"


def leave_hooks(installation: Installation) -> None:
    """Webhook configurations of an earlier life, with another address in them."""
    for found in configurations(WebhookAddress(installation.own, "https://127.0.0.1:9"), b"").values():
        installation.lab.kubectl("delete", found["kind"], found["metadata"]["name"], "--ignore-not-found")
        # Created, not applied: an applied one would carry the other address along in an annotation.
        installation.lab.kubectl("create", "-f", "-", input=json.dumps(found))


@only()
async def test_core(installation):
    """With nothing switched on it reads, leads, and takes away the webhooks that mix has left."""
    leave_hooks(installation)
    await installation.start()

    async def gone():
        hooks = await installation.kubectl("get", "mutatingwebhookconfigurations,validatingwebhookconfigurations")
        return "mooring-mix" not in hooks

    await installation.until(gone)
    await installation.stop()
    all_used(installation)


@only("balance")
async def test_balance(installation):
    """Balancing needs no right in Kubernetes beyond the core's."""
    leave_hooks(installation)
    await installation.start()
    await installation.stop()
    all_used(installation)


@only("handoff")
async def test_handoff(installation, tmp_path):
    """A TiKV pod is handed over and deleted, a PD pod evicted, a wish that cannot be read told about; and a member of a
    system with leaders, behind a hook (L1). What begins in a PD that outlives its TidbCluster is noted (E5)."""
    lab = installation.lab
    system, led = HookSystem(), lab.namespace("led")
    await system.open()
    lab.add_nodes(3, prefix=f"{led}-", labels={"test": led})
    made = stateful_set("led", {"app": "led"}, {}, led, [])
    made["metadata"]["annotations"] = {LEADERS: "hook", LEADERS_ENDPOINT: f"http://127.0.0.1:{system.port}"}
    made["spec"] |= {"replicas": 3, "podManagementPolicy": "Parallel"}
    lab.kubectl("apply", "-n", led, "-f", "-", input=json.dumps(made))
    lab.kubectl("rollout", "status", "sts/led", "-n", led, "--timeout=120s")
    settings = installation.directory / "settings.yaml"
    allowed = {"leader-hosts": [f"127.0.0.1:{system.port}"]}
    settings.write_text(yaml.safe_dump(yaml.safe_load(settings.read_text()) | allowed))
    (tmp_path / "environment").mkdir()
    async with Environment(lab, tmp_path / "environment", pd_pods=3) as environment:
        at = [
            word
            for name in ("demo", "next")
            for word in ("--pd", f"{environment.namespace}/{name}={environment.pd_url}")
        ]
        await installation.start(*at)
        tikv, pd = await environment.uid("demo-tikv-0"), await environment.uid("demo-pd-1")
        addresses = json.dumps({"spec": {"pdAddresses": [environment.pd_url]}})
        lab.kubectl("patch", "tc", "demo", "--type=merge", "-p", addresses, "-n", environment.namespace)
        lab.kubectl("annotate", "pod", "demo-tikv-0", "tidb.pingcap.com/restart=", "-n", environment.namespace)
        lab.kubectl("annotate", "pod", "demo-tikv-2", "tidb.pingcap.com/evict-leader=huh", "-n", environment.namespace)
        await installation.until(installation.told)
        lab.kubectl("annotate", "pod", "demo-tikv-2", "tidb.pingcap.com/evict-leader-", "-n", environment.namespace)
        await installation.until(lambda: environment.handed_over("demo-tikv-0", tikv))
        wish = "tidb.pingcap.com/pd-transfer-leader=delete-pod"
        lab.kubectl("annotate", "pod", "demo-pd-1", wish, "-n", environment.namespace)
        await installation.until(lambda: environment.handed_over("demo-pd-1", pd))
        uid = lab.kubectl("get", "pod", "led-0", "-n", led, "-o", "jsonpath={.metadata.uid}")
        asked = json.dumps({"by": "test", "since": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")})
        lab.kubectl("annotate", "pod", "led-0", f"mooring.dev/restart={asked}", "-n", led)

        async def replaced():
            found = json.loads(await installation.kubectl("get", "pods,sts", "-n", led, "-o", "json"))["items"]
            marked = any("led-0" in one["metadata"].get("annotations", {}).get(HANDOFF, "") for one in found)
            uids = {one["metadata"]["uid"] for one in found if one["metadata"]["name"] == "led-0"}
            return not marked and len(uids - {uid}) == 1

        await installation.until(replaced)
        assert system.leader == "led-1"
        of_v2 = members_of_v2(
            lab, environment.namespace, {"for": environment.namespace}, "tikv", environment.placement.pd
        )
        lab.kubectl("annotate", "pod", of_v2[0], "tidb.pingcap.com/restart=", "-n", environment.namespace)

        async def marked():
            cluster = await installation.get("clusters/next", "-n", environment.namespace)
            return of_v2[0] in cluster["metadata"].get("annotations", {}).get(HANDOFF, "")

        await installation.until(marked)
        await installation.stop()
    await system.close()
    all_used(installation)


@only("home")
async def test_home(installation):
    """Members are written down, a reservation is held and given back, a pod that will not have its node reserved is told about."""
    lab, namespace = installation.lab, installation.lab.namespace("home")
    lab.add_nodes(1, prefix=f"{namespace}-", labels={"test": namespace})
    labels = {
        "app.kubernetes.io/managed-by": "tidb-operator",
        "app.kubernetes.io/instance": "demo",
        "app.kubernetes.io/component": "tidb",
    }
    cluster = {
        "apiVersion": "pingcap.com/v1alpha1",
        "kind": "TidbCluster",
        "metadata": {"name": "demo", "labels": {"mooring.dev/reserve-node": "true"}},
        "spec": {"tidb": {"replicas": 1}},
    }
    opted = {"mooring.dev/home": "true", "mooring.dev/reserve-node": "true"}
    sets = [
        stateful_set("demo-tidb", labels, labels, namespace, [TOLERATION]),
        stateful_set("web", {"app": "web"}, opted, namespace, []),
    ]
    lab.kubectl("apply", "-n", namespace, "-f", "-", input=yaml.safe_dump_all([cluster, *sets]))
    members_of_v2(lab, namespace, {"test": namespace})
    try:
        await installation.start()

        async def recorded():
            of_v2 = await installation.get("clusters/next", "-n", namespace)
            tc = await installation.get("tc/demo", "-n", namespace)
            web = await installation.get("statefulset/web", "-n", namespace)
            members = tc.get("status", {}).get("tidb", {}).get("members", {})
            return members and all("mooring.dev/home" in o["metadata"].get("annotations", {}) for o in (web, of_v2))

        async def held():
            (node,) = (await installation.get("nodes", "-l", f"test={namespace}"))["items"]
            return "mooring.dev/reserved" in node["metadata"].get("annotations", {})

        async def free():
            return not await held()

        await installation.until(recorded)
        # In a thread: what Mooring hears passes a door in this loop.
        await installation.kubectl("delete", "pod", "demo-tidb-0", "web-0", "-n", namespace, "--wait=false")
        await installation.until(held)
        await installation.until(free)
        await installation.until(installation.told)
        await installation.stop()
    finally:
        lab.clear(namespace, nodes=f"test={namespace}")
    all_used(installation)


def members_of_v2(lab, namespace, nodes, component="tidb", pd=None):
    """Two pods of tidb-operator v2, whose instances are no kind that is defined here, and their stores; their names."""
    status = {"components": [{"kind": KINDS[component], "replicas": 2}]}
    cluster = {"apiVersion": API, "kind": "Cluster", "metadata": {"namespace": namespace, "name": "next"}, "spec": {}}
    pods = [pod_of(cluster, component, one) for one in instances("base", component, 2)]
    for pod in pods:
        image = [{"name": component, "image": f"example.org/{component}:1"}]
        pod |= {"apiVersion": "v1", "kind": "Pod"}
        pod["spec"] = {"nodeSelector": nodes, "tolerations": [TOLERATION], "containers": image}
    lab.kubectl("apply", "-f", "-", input=yaml.safe_dump_all([cluster | {"status": status}, *pods]))
    names = [pod["metadata"]["name"] for pod in pods]
    for name in names:
        lab.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "-n", namespace, "--timeout=120s")
        if pd is not None:
            pd.attach(name, address=f"{name}.base-tikv-peer.{namespace}:20160")
            pd.pod_ready(name)
    return names


def stateful_set(name, pods, labels, namespace, tolerations):
    spec = {
        "nodeSelector": {"test": namespace},
        "tolerations": tolerations,
        "containers": [{"name": "c", "image": "example.org/c:1"}],
    }
    meta = {"labels": pods, "annotations": {"lab.mooring.dev/grace-seconds": "6"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": 1,
            "serviceName": name,
            "selector": {"matchLabels": pods},
            "template": {"metadata": meta, "spec": spec},
        },
    }


@only("mix")
async def test_mix(installation):
    """Webhooks and certificates made, renewed and removed; a pod moved; one detached on notice, then swept up."""
    lab, namespace = installation.lab, installation.lab.namespace("shop")
    for label in ("on-demand", "spot"):
        lab.add_nodes(1, prefix=f"{namespace}-{label}-", labels={CAPACITY: label, "test": namespace})
    try:
        await installation.start()
        wrong = deployment("wrong", namespace) | {"metadata": {"name": "wrong", "labels": {ENABLED: "huh"}}}

        async def asked():
            try:
                dry = ("--dry-run=server", "-n", namespace, "-f", "-")
                await installation.kubectl("create", *dry, input=yaml.safe_dump(wrong))
            except LabError as error:
                return "workloads.mooring.dev" in str(error)
            return False

        await installation.until(asked)
        lab.kubectl("apply", "-n", namespace, "-f", "-", input=yaml.safe_dump(deployment("web", namespace)))

        async def stand(name="web", count=1):
            pods = (await installation.get("pods", "-n", namespace, "-l", f"app={name}"))["items"]
            found = [p for p in pods if "deletionTimestamp" not in p["metadata"] and p["spec"].get("nodeName")]
            return len(found) == count and [p["spec"]["nodeName"].split("-")[-2] for p in found]

        async def on_spot():
            return await stand() == ["spot"]

        await installation.until(on_spot)
        where = ("-n", namespace, "--overwrite")
        lab.kubectl("label", "deployment", "web", f"{ENABLED}-mode=all-in-on-demand", *where)

        async def moved():
            return await stand() == ["demand"]

        await installation.until(moved)
        # Its replacement takes a while: it is detached and still there when its workload goes.
        lab.kubectl("apply", "-n", namespace, "-f", "-", input=yaml.safe_dump(deployment("one", namespace, "10")))

        async def serves():
            return (await installation.get("deployment/one", "-n", namespace))["status"].get("readyReplicas") == 1

        await installation.until(serves)
        at = (datetime.now(UTC) + timedelta(seconds=300)).isoformat().replace("+00:00", "Z")
        lab.kubectl("annotate", "nodes", "-l", f"test={namespace},{CAPACITY}=spot", f"vacant.io/interrupt-at={at}")
        await installation.until(lambda: stand("one", 2))
        await installation.until(installation.told)
        await installation.stop()
        # A later life: the workload is gone, the certificate old, and the configurations name another address.
        lab.kubectl("delete", "deployment", "one", "-n", namespace, "--wait=false")
        leave_hooks(installation)
        age_certificates(installation)
        await installation.start()

        async def swept():
            return await stand("one", 0) == []

        await installation.until(swept)
        await installation.until(lambda: renewed(installation))
        await installation.stop()
    finally:
        lab.clear(namespace, nodes=f"test={namespace}")
    all_used(installation)


def deployment(name, namespace, ready_seconds="0"):
    spec = {
        "nodeSelector": {"test": namespace},
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": "example.org/c:1"}],
    }
    meta = {"labels": {"app": name}, "annotations": {"lab.mooring.dev/ready-seconds": ready_seconds}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": {ENABLED: "true"}},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": meta, "spec": spec},
        },
    }


def age_certificates(installation):
    """The Secret as it looks when two thirds of the leaf's life are over."""
    old = advance(None, ["127.0.0.1"], time.time() - 70 * 86400)
    parts = {"ca.crt": old.bundle, "ca.key": old.authority_key, "tls.crt": old.certificate, "tls.key": old.key}
    data = {name: base64.b64encode(text).decode() for name, text in parts.items()}
    patch = json.dumps({"data": data})
    installation.lab.kubectl("patch", "secret", "mooring-webhook-tls", "-n", installation.own, "-p", patch)
    installation.aged = data["tls.crt"]


async def renewed(installation):
    secret = await installation.get("secret/mooring-webhook-tls", "-n", installation.own)
    hooks = await installation.kubectl("get", "validatingwebhookconfiguration", "mooring-mix", "-o", "json")
    return secret["data"]["tls.crt"] != installation.aged and "127.0.0.1:9/" not in hooks


@only("fleet")
async def test_fleet(installation, tmp_path):
    """Nodes are labelled; a retiring machine is cordoned, emptied and tainted; healthy again, that is told."""
    registry = Registry(installation.lab, tmp_path)
    installation.lab.kubectl("delete", "namespace", registry.own, "--wait=false")
    registry.own = installation.own
    try:
        await registry.build([0, 1, 2, 3], real=False)
        await registry.set_up(planes=1, minimum=2)
        await installation.start()

        async def assigned():
            found = (await installation.get("nodes", "-l", f"for={installation.own},tier=gold"))["items"]
            return [n["metadata"]["name"] for n in found if "topology.kubernetes.io/zone" in n["metadata"]["labels"]]

        await installation.until(assigned)
        web = deployment("web", "", "0")
        web["spec"]["template"]["spec"]["nodeSelector"] = {"for": installation.own, "tier": "gold"}
        await installation.kubectl("apply", "-n", registry.shop, "-f", "-", input=yaml.safe_dump(web))

        async def runs():
            pods = (await installation.get("pods", "-n", registry.shop))["items"]
            return [p["spec"]["nodeName"] for p in pods if p["spec"].get("nodeName")]

        await installation.until(runs)
        address = (await runs())[0]
        serial = next(s for s, a in registry.addresses.items() if a == address)
        await registry.state(serial, "retiring")

        async def tainted():
            node = await installation.get("node", address)
            return any(t["key"] == "cke.cybozu.com/state" for t in node["spec"].get("taints") or ())

        await installation.until(tainted)
        # A second one comes back while it is being emptied: what stays is told.
        other = next(name for name in await assigned() if name != address)
        spec = {"nodeName": other, "containers": [{"name": "c", "image": "example.org/c:1"}]}
        keep = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"}, "spec": spec}
        await installation.kubectl("apply", "-n", registry.shop, "-f", "-", input=yaml.safe_dump(keep))
        serial = next(s for s, a in registry.addresses.items() if a == other)
        await registry.state(serial, "retiring")

        async def cordoned():
            return (await installation.get("node", other))["spec"].get("unschedulable")

        await installation.until(cordoned)
        await registry.state(serial, "retired", "uninitialized", "healthy")
        await installation.until(installation.told)

        async def exported():
            return "mooring-fleet-cluster" in await installation.kubectl("get", "secrets", "-n", installation.own)

        await installation.until(exported)
        await installation.stop()
    finally:
        await registry.close()
    all_used(installation)
