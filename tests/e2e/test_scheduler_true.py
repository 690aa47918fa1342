"""O4: the embedded scheduler agrees with kube-scheduler.

kube-scheduler sends an extender exactly the nodes that passed all its own filters, then the pods that it would preempt
on each node, and asks it to bind. Here one such extender answers that no node will do, that nobody may be preempted, or
that it cannot bind: so a probe is never placed and disturbs no other. What it was sent is compared with what the
embedded scheduler finds in the same cluster, read back from the API server:

    a probe        the nodes that it may go to, and whose pods would have to leave for it where
    a chooser      the node that kube-scheduler chose for it: one of those with the highest score
"""

import json
import os
import threading
from collections import Counter
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
from tests.e2e.scheduling_cases import CHOOSER, MEEK, PRIORITY, PROBES, PROFILE, Case
from tests.e2e.waiting import until

#: The seeds of the clusters: so many, or those of FIRST..LAST.
CLUSTERS = os.environ.get("MOORING_SCHEDULER_CLUSTERS", "20")
READ = {
    Kind.NAMESPACE: "api/v1/namespaces",
    Kind.NODE: "api/v1/nodes",
    Kind.PV: "api/v1/persistentvolumes",
    Kind.PVC: "api/v1/persistentvolumeclaims",
    Kind.PDB: "apis/policy/v1/poddisruptionbudgets",
    Kind.POD: "api/v1/pods",
}
PRIORITIES = "apis/scheduling.k8s.io/v1/priorityclasses"


class Recorder(ThreadingHTTPServer):
    """An extender that lets no pod through and remembers what it was asked of each."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.feasible: dict[str, set[str]] = {}
        #: Pod → node → uids of those that would have to leave.
        self.victims: dict[str, dict[str, set[str]]] = {}
        self.chosen: dict[str, str] = {}

    def answer(self, verb: str, asked: Json) -> Json:
        if verb == "bind":
            self.chosen.setdefault(asked["PodName"], asked["Node"])
            return {"Error": "only looking"}
        name = asked["Pod"]["metadata"]["name"]
        if verb == "preempt":
            found = asked["NodeNameToMetaVictims"]
            victims = {node: {pod["UID"] for pod in of["Pods"]} for node, of in found.items()}
            self.victims.setdefault(name, victims)
            return {"NodeNameToMetaVictims": {}}
        nodes = asked["NodeNames"]
        self.feasible.setdefault(name, set(nodes))
        if CHOOSER in name:
            return {"NodeNames": nodes}
        return {"NodeNames": [], "FailedNodes": dict.fromkeys(nodes, "only looking")}


class _Answers(BaseHTTPRequestHandler):
    server: Recorder

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps(self.server.answer(self.path.strip("/"), asked)).encode()
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
        "preemptVerb": "preempt",
        "bindVerb": "bind",
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


def test_the_embedded_scheduler_decides_alike(lab: Lab, recorder: Recorder) -> None:
    """O4: random clusters and pods: where a pod may go by every filter of kube-scheduler that `docs/rehearse.md` does not
    except, whom it would preempt on each node, and where it goes by score."""
    first, second = lab.namespace("true"), lab.namespace("true")
    differ: list[str] = []
    compared: Counter[str] = Counter()
    with lab.api() as api:
        for name, team in ((first, "one"), (second, "two")):
            known = api.ask("GET", f"api/v1/namespaces/{name}")
            known["metadata"]["labels"]["team"] = team
            api.ask("PUT", f"api/v1/namespaces/{name}", known)
        for name, value in PRIORITY.items():
            policy = "Never" if name == MEEK else "PreemptLowerPriority"
            api.ask("POST", PRIORITIES, {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy})
        try:
            for seed in _seeds():
                case = Case(seed, (first, second))
                _create(api, case)
                try:
                    differ += _compare(api, recorder, case, compared)
                finally:
                    _remove(api, case)
        finally:
            for name in PRIORITY:
                api.ask("DELETE", f"{PRIORITIES}/{name}")
    told = "\n".join(differ[:10])
    print(f"compared: {', '.join(f'{count} {what}' for what, count in sorted(compared.items()))}")
    assert not differ, f"{len(differ)} of {sum(compared.values())} differ:\n{told}"
    assert all(compared[what] for what in ("feasible", "victims", "chosen")), compared


def _seeds() -> range:
    first, _, last = CLUSTERS.rpartition("..")
    return range(int(first or 0), int(last) + bool(first))


def _create(api: ApiConnection, case: Case) -> None:
    for node in case.nodes:
        api.ask("POST", "api/v1/nodes", node)
    for volume in case.volumes:
        api.ask("POST", "api/v1/persistentvolumes", volume)
    for claim in case.claims:
        api.ask("POST", f"api/v1/namespaces/{case.namespaces[0]}/persistentvolumeclaims", claim)
    for budget in case.budgets:
        api.ask("POST", f"apis/policy/v1/namespaces/{budget['metadata']['namespace']}/poddisruptionbudgets", budget)
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
        budgets = api.ask("GET", READ[Kind.PDB])["items"]
        pods = api.ask("GET", READ[Kind.POD])["items"]
        return (
            "node.kubernetes.io/not-ready" not in keys
            and all(c["status"]["phase"] == "Bound" for c in claims)
            and all(b["status"].get("observedGeneration") for b in budgets)
            and all(p["status"].get("startTime") for p in pods if "deletionTimestamp" not in p["metadata"])
        )

    until(settled, "nodes are Ready, pods are started, claims are bound and budgets are counted")
    before: list[Json] = []

    def still() -> bool:
        nonlocal before
        before, now = [one["status"] for one in api.ask("GET", READ[Kind.PDB])["items"]], before
        return before == now

    until(still, "budgets are counted to the end", every_s=0.5)


def _compare(api: ApiConnection, recorder: Recorder, case: Case, compared: Counter[str]) -> Iterator[str]:
    for probe in case.probes():
        _ask(api, probe)
    until(lambda: _judged(api, "-x", PROBES), "kube-scheduler has looked at every probe")
    probes = _taken_back(api, "-x")  # or it would look again while a chooser counts as placed
    for probe in case.choosers():  # one after another, for the same reason
        _ask(api, probe)
        name = probe["metadata"]["name"]
        until(lambda name=name: _judged(api, name, 1), "kube-scheduler has chosen", every_s=0.02)
        probes += _taken_back(api, name)
    store = ObjectStore(Timeline())
    for kind, path in READ.items():
        for one in api.ask("GET", path)["items"]:
            _load(store, kind, one)
    embedded = Scheduler(store.timeline, store)
    for probe in probes:
        name, spec = probe["metadata"]["name"], json.dumps(probe["spec"])
        ours, theirs = embedded.feasible(probe), recorder.feasible.get(name, set())
        compared["feasible"] += 1
        if ours != theirs:
            only, lacks = sorted(ours - theirs), sorted(theirs - ours)
            yield f"{name}: embedded only {only}, kube-scheduler only {lacks}: {spec}"
        elif CHOOSER in name and name in recorder.chosen:
            compared["chosen"] += 1
            scores = embedded.scores(probe)
            if scores[recorder.chosen[name]] < max(scores.values()):
                yield f"{name}: kube-scheduler chose {recorder.chosen[name]}, the points are {scores}: {spec}"
        elif CHOOSER not in name and probe["spec"].get("preemptionPolicy") != "Never":
            mine = {node: {pod.uid for pod in of.pods} for node, of in embedded.victims(probe).items()}
            real = recorder.victims.get(name, {})
            compared["victims"] += len(mine) or 1
            apart = {node: (_rank(store, mine, node), _rank(store, real, node)) for node in mine | real}
            if apart := {node: both for node, both in apart.items() if both[0] != both[1]}:
                yield f"{name}: victims, embedded and kube-scheduler: {apart}: {spec}"


def _rank(store: ObjectStore, victims: dict[str, set[str]], node: str) -> list[tuple[int, str]] | None:
    """Their priorities and when they started: among pods that are equal in both kube-scheduler takes any."""
    if node not in victims:
        return None
    found = [pod for pod in store.list(Kind.POD) if pod["metadata"]["uid"] in victims[node]]
    return sorted((pod["spec"]["priority"], pod["status"].get("startTime", "")) for pod in found)


def _ask(api: ApiConnection, probe: Json) -> None:
    api.ask("POST", f"api/v1/namespaces/{probe['metadata']['namespace']}/pods", probe)


def _taken_back(api: ApiConnection, part: str) -> list[Json]:
    found = [pod for pod in api.ask("GET", READ[Kind.POD])["items"] if part in pod["metadata"]["name"]]
    for pod in found:
        path = f"api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        api.ask("DELETE", path, AT_ONCE)
    return found


def _judged(api: ApiConnection, part: str, count: int) -> bool:
    seen = [p for p in api.ask("GET", READ[Kind.POD])["items"] if part in p["metadata"]["name"]]
    done = [p for p in seen if any(c["type"] == "PodScheduled" for c in p["status"].get("conditions", ()))]
    return len(done) == count


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
        api.delete_all(f"apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets")
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
