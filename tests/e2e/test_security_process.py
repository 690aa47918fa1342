"""Attacks of anonymous callers and tenants on a running Mooring, on the real control plane."""

import asyncio
import gzip
import http.server
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF, Mark, read_mark, write_marks
from mooring_lab.control.cluster import Lab
from tests.e2e.definitions import define
from tests.e2e.home_environment import Process
from tests.e2e.spine_environment import Environment
from tests.e2e.waiting import eventually, stands, until

pytestmark = pytest.mark.e2e


@pytest.fixture
def running(lab: Lab, tmp_path: Path) -> Iterator[Process]:
    define(lab, Kind.TIDB_CLUSTER)
    process = Process(lab, tmp_path / "log")
    yield process
    process.stop()


def _object(api: str, kind: str, name: str, namespace: str = "", **rest: object) -> dict:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})} | rest.pop("metadata", {})
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **rest}


def _resident_mib(process: Process) -> int:
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def test_one_anonymous_request_does_not_kill_the_leader(running: Process):
    """65 KB of gzip took 5.2 GB and the lease: it is refused unread, and so are 30 MiB of plain names."""
    running.start("home=true")
    names = b'{"NodeNames":["",' + b'"",' * (10 << 20) + b'""]}'
    before = _resident_mib(running)
    for body, headers, status in ((gzip.compress(names), {"Content-Encoding": "gzip"}, 415), (names, {}, 413)):
        url = f"http://127.0.0.1:{running.extender}/scheduler/prioritize"
        request = urllib.request.Request(url, body, headers)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=30)
        with refused.value as answer:
            assert answer.code == status
    assert _resident_mib(running) - before < 200
    assert running.decides()


def test_the_extender_listens_only_while_home_is_on(running: Process):
    """Nothing to ask, nobody to answer."""
    running.start("handoff=true")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", running.extender), timeout=180)


def test_a_tenants_annotation_sends_us_nowhere(lab: Lab, running: Process):
    """mooring.dev/pd-endpoints with any address and a trailing #: nobody is asked, and the answer is in no `why`."""
    asked: list[str] = []

    class Secret(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        do_POST = do_GET

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Secret)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    tenant = lab.namespace("tenant")
    told = {"mooring.dev/pd-endpoints": f"http://127.0.0.1:{server.server_port}/secret#"}
    spec = {"tikv": {"replicas": 1}, "version": "v8.5.0"}
    cluster = _object("pingcap.com/v1alpha1", "TidbCluster", "demo", tenant, metadata={"annotations": told}, spec=spec)
    try:
        lab.kubectl("apply", "-f", "-", input=json.dumps(cluster))
        running.start("handoff=true")
        until(lambda: "pd-hosts" in running.command("why", f"cluster/{tenant}/demo"), "why names the setting")
        assert asked == []
    finally:
        server.shutdown()
        server.server_close()
        lab.kubectl("delete", "namespace", tenant, "--wait=false")


def test_a_namespace_user_taints_no_node(lab: Lab, running: Process):
    """mooring.dev/home on a StatefulSet whose pods nobody schedules: no node becomes NoSchedule."""
    nodes = lab.add_nodes(3, prefix="reservation-")
    tenant = lab.namespace("tenant")
    homes = json.dumps({f"db-{i}": {"node": node} for i, node in enumerate(nodes)})
    metadata = {
        "labels": {"mooring.dev/home": "true", "mooring.dev/reserve-node": "true"},
        "annotations": {"mooring.dev/home": homes},
    }
    pod = {
        "schedulerName": "nobody",
        "tolerations": [{"key": "mooring.dev/reserved", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [{"name": "c", "image": "x"}],
    }
    template = {"metadata": {"labels": {"app": "db"}}, "spec": pod}
    spec = {"replicas": 3, "podManagementPolicy": "Parallel", "selector": {"matchLabels": {"app": "db"}}}
    spec |= {"template": template, "serviceName": "db"}
    try:
        running.start("home=true")
        lab.kubectl(
            "apply",
            "-f",
            "-",
            input=json.dumps(_object("apps/v1", "StatefulSet", "db", tenant, metadata=metadata, spec=spec)),
        )
        until(lambda: lab.kubectl("-n", tenant, "get", "pods", "-o", "name").count("pod/db-") == 3, "three pods")
        time.sleep(5.0)
        taints = lab.kubectl("get", "nodes", "-o", "jsonpath={.items[*].spec.taints[*].key}")
        assert "mooring.dev/reserved" not in taints
    finally:
        lab.kubectl("delete", "namespace", tenant, "--wait=false")
        lab.kubectl("delete", "node", *nodes, "--wait=false")


def test_members_that_really_ran_keep_few_nodes_from_others_and_not_for_long(lab: Lab, running: Process):
    """An editor of one namespace, whose six members ran on all six nodes and take weeks to end: three nodes are reserved
    for them, as many stay free, and each for an hour at most."""
    lab.add_nodes(6, prefix="taken-", labels={"test": "taken"})
    tenant = lab.namespace("tenant")
    lab.kubectl("create", "rolebinding", "tenant", "--clusterrole=edit", "--user=tenant", "-n", tenant)
    labels, mine = {"mooring.dev/home": "true", "mooring.dev/reserve-node": "true"}, {"app": "db"}
    apart = [{"labelSelector": {"matchLabels": mine}, "topologyKey": "kubernetes.io/hostname"}]
    pod = {
        "nodeSelector": {"test": "taken"},
        "terminationGracePeriodSeconds": 3_000_000,
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}},
        "tolerations": [{"key": "mooring.dev/reserved", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [{"name": "c", "image": "x"}],
    }
    template = {"metadata": {"labels": mine, "finalizers": ["tenant.example/never"]}, "spec": pod}
    spec = {"replicas": 6, "podManagementPolicy": "Parallel", "selector": {"matchLabels": mine}, "serviceName": "db"}
    made = _object(
        "apps/v1", "StatefulSet", "db", tenant, metadata={"labels": labels}, spec=spec | {"template": template}
    )
    as_tenant = ("--as=tenant", "-n", tenant)

    def marks() -> list[Mark]:
        found = json.loads(lab.kubectl("get", "nodes", "-l", "test=taken", "-o", "json"))["items"]
        texts = [node["metadata"].get("annotations", {}).get("mooring.dev/reserved") for node in found]
        tainted = [n for n in found if any(t["key"] == "mooring.dev/reserved" for t in n["spec"].get("taints", ()))]
        assert len(tainted) <= 3
        return [mark for text in texts if text and (mark := read_mark(text)) is not None]

    def homes() -> dict:
        found = json.loads(lab.kubectl("get", "statefulset/db", "-n", tenant, "-o", "json"))
        return json.loads(found["metadata"].get("annotations", {}).get("mooring.dev/home", "{}"))

    try:
        running.start("home=true")
        lab.kubectl(*as_tenant, "apply", "-f", "-", input=json.dumps(made))
        stands(lab, "rollout", "status", "statefulset/db", "-n", tenant)
        until(lambda: len(homes()) == 6, "all six are written down", tell=lambda: running.log.read_text()[-2000:])
        lab.kubectl(*as_tenant, "delete", "pods", "--all", "--wait=false")
        until(
            lambda: len(marks()) == 3, "three are reserved", every_s=0.1, tell=lambda: running.log.read_text()[-2000:]
        )
        for _ in range(10):
            time.sleep(0.5)
            assert all(mark.deadline - mark.since <= 3600.0 + 120.0 for mark in marks())
    finally:
        lab.kubectl("delete", "statefulset", "db", "-n", tenant, "--cascade=orphan", "--ignore-not-found")
        for name in lab.kubectl("get", "pods", "-n", tenant, "-o", "name").split():
            lab.kubectl("patch", name, "-n", tenant, "-p", '{"metadata":{"finalizers":null}}', "--type=merge")
        lab.clear(tenant, nodes="test=taken")


async def test_a_forged_handoff_mark_reaches_no_cluster_of_another_namespace(lab: Lab, tmp_path: Path):
    """A tenant's TidbCluster of the victim's name, its PD's address (which pd-hosts allows), and a mark that says that
    store 1 is being emptied: the mark is read, PD is seen to be another cluster's, and no write reaches it."""
    tenant = lab.namespace("tenant")
    async with Environment(lab, tmp_path) as environment:
        environment.settings = {"pd-hosts": ["127.0.0.1:*"]}
        ours = {"app.kubernetes.io/component": "tikv", "app.kubernetes.io/instance": "demo"}
        asks = {"tidb.pingcap.com/evict-leader": "delete-pod"}
        pod = _object("v1", "Pod", "demo-tikv-0", tenant, metadata={"labels": ours, "annotations": asks})
        pod["spec"] = {"containers": [{"name": "c", "image": "x"}], "nodeSelector": {"for": environment.namespace}}
        try:
            uid = (await environment.api.create(Kind.POD, pod))["metadata"]["uid"]
            mark = Mark(
                operator="7",
                source="handoff",
                reason="asked",
                step="evict",
                since=time.time(),
                pod_uid=uid,
                store_id=1,
            )
            told = {"mooring.dev/pd-endpoints": environment.pd_url, HANDOFF: write_marks({"demo-tikv-0": mark})}
            forged = environment._tidb_cluster()
            forged["metadata"] |= {"namespace": tenant, "annotations": told}
            await environment.api.create(Kind.TIDB_CLUSTER, forged)
            victims = {name: await environment.uid(name) for name in environment.names}
            process = await environment.start()
            await eventually(lambda: "from its mark" in process.log.read_text(), "it is read", tell=environment.logs)
            for _ in range(30):
                await asyncio.sleep(0.3)
                assert await environment.placement.evicting() == (), environment.logs()
            assert {name: await environment.uid(name) for name in environment.names} == victims
        finally:
            lab.kubectl("delete", "namespace", tenant, "--wait=false")
