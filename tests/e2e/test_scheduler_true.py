"""O4: the embedded scheduler agrees with kube-scheduler.

kube-scheduler sends an extender exactly the nodes that passed all its own filters. Here one such extender answers that
none will do, so a probe is never placed and disturbs no other; what it was sent is compared with the nodes that the
embedded scheduler finds feasible in the same cluster, read back from the API server.
"""

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.scheduler.scheduler import Scheduler
from mooring_lab.control.api import AT_ONCE, ApiConnection
from mooring_lab.control.cluster import Lab
from tests.e2e.scheduling_cases import PROBES, PROFILE, Case
from tests.e2e.waiting import until

CLUSTERS = int(os.environ.get("MOORING_SCHEDULER_CLUSTERS", "20"))
READ = {
    Kind.NAMESPACE: "api/v1/namespaces",
    Kind.NODE: "api/v1/nodes",
    Kind.PV: "api/v1/persistentvolumes",
    Kind.PVC: "api/v1/persistentvolumeclaims",
    Kind.POD: "api/v1/pods",
}


class Recorder(ThreadingHTTPServer):
    """An extender that lets no pod through and remembers which nodes each could have had."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.feasible: dict[str, set[str]] = {}


class _Answers(BaseHTTPRequestHandler):
    server: Recorder

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        names = asked.get("NodeNames") or asked.get("nodenames") or []
        pod = asked.get("Pod") or asked.get("pod")
        self.server.feasible[pod["metadata"]["name"]] = set(names)
        body = json.dumps({"NodeNames": [], "FailedNodes": dict.fromkeys(names, "only looking")}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def recorder(lab: Lab, tmp_path: Path) -> Iterator[Recorder]:
    server = Recorder()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    extender = {
        "urlPrefix": f"http://127.0.0.1:{server.server_port}",
        "filterVerb": "filter",
        "nodeCacheCapable": True,
    }
    config = tmp_path / "probe.yaml"
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    document |= {"leaderElection": {"leaderElect": False}, "podInitialBackoffSeconds": 60, "podMaxBackoffSeconds": 60}
    document |= {
        "profiles": [{"schedulerName": PROFILE, "percentageOfNodesToScore": 100}],
        "extenders": [extender],
    }
    config.write_text(yaml.safe_dump(document))
    lab.second_scheduler(config, PROFILE)
    try:
        yield server
    finally:
        lab.stop(PROFILE)
        server.shutdown()
        server.server_close()


def test_the_embedded_scheduler_finds_the_same_nodes_feasible(lab: Lab, recorder: Recorder) -> None:
    """O4: random clusters and pods; every filter of kube-scheduler that `docs/rehearse.md` does not except."""
    first, second = lab.namespace("true"), lab.namespace("true")
    differ: list[str] = []
    with lab.api() as api:
        for name, team in ((first, "one"), (second, "two")):
            known = api.ask("GET", f"api/v1/namespaces/{name}")
            known["metadata"]["labels"]["team"] = team
            api.ask("PUT", f"api/v1/namespaces/{name}", known)
        for seed in range(CLUSTERS):
            case = Case(seed, (first, second))
            _create(api, case)
            try:
                differ += _compare(api, recorder, case)
            finally:
                _remove(api, case)
    told = "\n".join(differ[:10])
    assert not differ, f"{len(differ)} of {CLUSTERS * PROBES} differ:\n{told}"


def _create(api: ApiConnection, case: Case) -> None:
    for node in case.nodes:
        api.ask("POST", "api/v1/nodes", node)
    for volume in case.volumes:
        api.ask("POST", "api/v1/persistentvolumes", volume)
    for claim in case.claims:
        api.ask("POST", f"api/v1/namespaces/{case.namespaces[0]}/persistentvolumeclaims", claim)
    for pod in case.pods:
        path = f"api/v1/namespaces/{pod['metadata']['namespace']}/pods"
        api.ask("POST", path, pod)
        if pod["metadata"]["name"] in case.leaving:
            api.ask("DELETE", f"{path}/{pod['metadata']['name']}", AT_ONCE)

    def settled() -> bool:
        mine = [
            n for n in api.ask("GET", READ[Kind.NODE])["items"] if n["metadata"]["name"].startswith(f"{case.name}-")
        ]
        keys = {taint["key"] for node in mine for taint in node["spec"].get("taints", ())}
        claims = api.ask("GET", READ[Kind.PVC])["items"]
        return "node.kubernetes.io/not-ready" not in keys and all(c["status"]["phase"] == "Bound" for c in claims)

    until(settled, "nodes are Ready and claims are bound")


def _compare(api: ApiConnection, recorder: Recorder, case: Case) -> Iterator[str]:
    store = ObjectStore(Timeline())
    for kind, path in READ.items():
        for one in api.ask("GET", path)["items"]:
            _load(store, kind, one)
    embedded = Scheduler(store.timeline, store)
    probes = {}
    for probe in case.probes():
        made = api.ask("POST", f"api/v1/namespaces/{probe['metadata']['namespace']}/pods", probe)
        probes[made["metadata"]["name"]] = made

    def judged() -> bool:
        seen = [p for p in api.ask("GET", READ[Kind.POD])["items"] if p["metadata"]["name"] in probes]
        done = [p for p in seen if any(c["type"] == "PodScheduled" for c in p["status"].get("conditions", ()))]
        return len(done) == len(probes)

    until(judged, "kube-scheduler has looked at every probe")
    for name, probe in probes.items():
        ours, theirs = embedded.feasible(probe), recorder.feasible.get(name, set())
        if ours != theirs:
            only, lacks = sorted(ours - theirs), sorted(theirs - ours)
            yield f"{name}: embedded only {only}, kube-scheduler only {lacks}: {json.dumps(probe['spec'])}"


def _load(store: ObjectStore, kind: Kind, one: Json) -> None:
    metadata = one["metadata"]
    leaves = kind is Kind.POD and "deletionTimestamp" in metadata
    del metadata["resourceVersion"]
    store.create(kind, one)
    if leaves:
        store.delete(kind, metadata["namespace"], metadata["name"], grace_s=30)


def _remove(api: ApiConnection, case: Case) -> None:
    for namespace in case.namespaces:
        for pod in api.ask("GET", f"api/v1/namespaces/{namespace}/pods")["items"]:
            path = f"api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
            if pod["metadata"].pop("finalizers", None):
                api.ask("PUT", path, pod, absent_ok=True)
        api.empty(namespace)
        api.delete_all(f"api/v1/namespaces/{namespace}/persistentvolumeclaims")
    for volume in case.volumes:
        api.ask("DELETE", f"api/v1/persistentvolumes/{volume['metadata']['name']}", absent_ok=True)
    for node in case.nodes:
        api.ask("DELETE", f"api/v1/nodes/{node['metadata']['name']}", absent_ok=True)
    until(
        lambda: (
            not [
                p for p in api.ask("GET", READ[Kind.POD])["items"] if p["metadata"]["name"].startswith(f"{case.name}-")
            ]
        )
    )
