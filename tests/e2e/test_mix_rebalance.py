"""The rebalancer and the two minutes on a real API server, with the real controller-manager and scheduler."""

import contextlib
import json
import signal
import subprocess
import sys
import time
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from bench.admission_restart import given_up

from mooring.capabilities.drain.request import HASH
from mooring.core.model.marks import LEAVING, write_mark
from mooring_lab.control.errors import LabError
from mooring_lab.control.loopback import free_ports
from tests.e2e.looking import get
from tests.e2e.observer import Observer
from tests.e2e.waiting import until
from tests.security.test_marks import mark

pytestmark = pytest.mark.e2e

CAPACITY = "node.kubernetes.io/capacity"
ENABLED = "vacant.io/optimize-scheduling"
MODE = f"{ENABLED}-mode"
CUSTOM = f"{ENABLED}-mode-custom-on-demand"
INTERRUPT_AT = "vacant.io/interrupt-at"

SETTINGS = {
    "lease-s": 5,
    "renew-s": 2.0,
    "retry-s": 0.5,
    "mix": {"rebalance": {"settle-s": 2.0, "pause-s": 2.0}},
}


class Mooring:
    def __init__(self, lab, namespace, config, url_port, features="mix=true"):
        self.http, self.extender = free_ports(2)
        self.log = (lab.dir / "logs" / f"mooring-mix-{self.http}.log").open("ab")
        command = [
            sys.executable,
            "-m",
            "mooring",
            "run",
            "--kubeconfig",
            str(lab.kubeconfig),
            "--features",
            features,
        ]
        command += ["--config", str(config), "--namespace", namespace]
        command += ["--listen-http", f"127.0.0.1:{self.http}", "--listen-extender", f"127.0.0.1:{self.extender}"]
        command += [
            "--listen-webhook",
            f"127.0.0.1:{url_port}",
            "--webhook-url",
            f"https://127.0.0.1:{url_port}",
        ]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=30) as answer:
            return json.load(answer)

    def deciding(self):
        assert self.process.poll() is None, "mooring ended by itself"
        with contextlib.suppress(OSError):
            return self.get("/api/v1/status")["deciding"]
        return False

    def command(self, *args):
        """What a person types, asking this process."""
        command = [sys.executable, "-m", "mooring", *args, "--server", f"http://127.0.0.1:{self.http}"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=180).stdout

    def end(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(120)
        self.log.close()


class Environment:
    """Two on-demand and three spot nodes of our own, one namespace, one process at a time."""

    def __init__(self, lab, directory):
        self.lab = lab
        self.own, self.namespace = lab.namespace("mooring"), lab.namespace("shop")
        ours = {"for": self.namespace}
        self.safe = lab.add_nodes(
            2, prefix=f"{self.namespace}-n", labels=ours | {CAPACITY: "on-demand"}, cpu="64", memory="256Gi"
        )
        self.spot = lab.add_nodes(
            3, prefix=f"{self.namespace}-s", labels=ours | {CAPACITY: "spot"}, cpu="64", memory="256Gi"
        )
        self.config = directory / "config.json"
        self.config.write_text(json.dumps(SETTINGS))
        (self.port,) = free_ports(1)
        self.mooring = None
        self.answer = ""
        self.seen, self.tenants = {}, []

    def start(self, features="mix=true"):
        self.mooring = Mooring(self.lab, self.own, self.config, self.port, features)
        until(self.mooring.deciding, "deciding", tell=self.scenario)
        until(self._asked, "the API server asks us", tell=self.scenario)

    def settle(self, **mix):
        """Other settings of mix, while it runs."""
        told = Path(self.mooring.log.name)
        before = told.read_text().count("config.reloaded")
        self.config.write_text(json.dumps({**SETTINGS, "mix": {**SETTINGS["mix"], **mix}}))
        until(lambda: told.read_text().count("config.reloaded") > before, "settings taken over", tell=self.scenario)

    def scenario(self):
        """For whoever reads a failure: what we said, whom the API server would ask, and what it says about it."""
        told = Path(self.mooring.log.name).read_text()[-6000:]
        return f"\n── mooring ──\n{told}\n── webhooks ──\n{hooks(self.lab)}\n── the probe ──\n{self.answer}"

    def _asked(self):
        try:
            self.answer = self.lab.kubectl(
                "apply", "--dry-run=server", "-f", "-", input=self.manifest("probe", 1, {ENABLED: "x"})
            )
        except LabError as error:
            self.answer = str(error)
        return "exactly true or false" in self.answer

    def deploy(self, name, replicas, labels, **how):
        self.lab.kubectl("apply", "-f", "-", input=self.manifest(name, replicas, labels, **how))
        until(lambda: len(self.ready(name)) == replicas, f"{replicas} of {name} Ready", tell=self.scenario)

    def manifest(self, name, replicas, labels, start_s=0, grace_s=1):
        # Only on this environment's nodes: other tests have theirs in the same lab.
        ours = {"key": "kubernetes.io/hostname", "operator": "In", "values": [*self.safe, *self.spot]}
        affinity = {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [ours]}]}
        }
        return json.dumps(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"namespace": self.namespace, "name": name, "labels": labels},
                "spec": {
                    "replicas": replicas,
                    "selector": {"matchLabels": {"app": name}},
                    "template": {
                        "metadata": {
                            "labels": {"app": name},
                            "annotations": {"lab.mooring.dev/ready-seconds": str(start_s)},
                        },
                        "spec": {
                            "affinity": {"nodeAffinity": affinity},
                            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "10m"}}}],
                            "terminationGracePeriodSeconds": grace_s,
                        },
                    },
                },
            }
        )

    def pods(self, name):
        """Those that are not on their way out; every uid that was ever seen is kept."""
        found = get(self.lab, "pods", "-n", self.namespace, "-l", f"app={name}")
        alive = [p for p in found["items"] if not p["metadata"].get("deletionTimestamp")]
        self.seen.setdefault(name, set()).update(p["metadata"]["uid"] for p in found["items"])
        return alive

    def ready(self, name):
        return [p for p in self.pods(name) if _is_ready(p)]

    def on_demand(self, name):
        return sum(p["spec"].get("nodeName") in self.safe for p in self.ready(name))

    def label(self, name, **labels):
        pairs = [f"{key}={value}" for key, value in labels.items()]
        self.lab.kubectl("label", "deployment", name, "-n", self.namespace, "--overwrite", *pairs)

    def notice(self, nodes, seconds):
        at = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
        self.lab.kubectl("annotate", "node", *nodes, f"{INTERRUPT_AT}={at}", "--overwrite")

    def endpoints(self, name):
        of = f"kubernetes.io/service-name={name}"
        found = get(self.lab, "endpointslices", "-n", self.namespace, "-l", of)
        return sum(e["conditions"].get("ready", False) for s in found["items"] for e in s.get("endpoints") or ())

    def close(self):
        if self.mooring is not None:
            self.mooring.end()
        # One that was killed leaves its configurations: whoever creates a pod next must not ask a dead port.
        ours = f"https://127.0.0.1:{self.port}/"
        left = [name for name, urls in hooks(self.lab).items() if any(url.startswith(ours) for url in urls)]
        if left:
            self.lab.kubectl("delete", *left, "--ignore-not-found")
        self.lab.clear(self.namespace, self.own, *self.tenants, nodes=f"for={self.namespace}")


def _is_ready(pod):
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions", ()))


def hooks(lab):
    """Every webhook configuration, and the URLs it leads to."""
    kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
    found = json.loads(lab.kubectl("get", kinds, "-o", "json"))["items"]
    return {
        f"{one['kind'].lower()}/{one['metadata']['name']}": [
            w["clientConfig"].get("url", "") for w in one.get("webhooks", ())
        ]
        for one in found
    }


@pytest.fixture
def environment(lab, tmp_path):
    made = Environment(lab, tmp_path)
    try:
        made.start()
        with Observer(lab) as made.observer:
            yield made
    finally:
        made.close()


def test_a_mode_change_moves_exactly_the_difference(environment):
    """M5, M9: three spot and two on-demand, wanted two and three: one pod goes; the workload itself is not written."""
    environment.deploy("web", 5, {ENABLED: "true", MODE: "custom", CUSTOM: "2"})
    until(lambda: environment.on_demand("web") == 2 and len(environment.ready("web")) == 5, "two on on-demand")
    environment.seen.clear()
    late = given_up(environment.lab)
    before = {p["metadata"]["uid"] for p in environment.pods("web")}
    generation = _generation(environment, "web")
    environment.label("web", **{CUSTOM: "3"})
    until(lambda: environment.on_demand("web") == 3 and len(environment.ready("web")) == 5, "three on on-demand")
    time.sleep(4.0)
    after = {p["metadata"]["uid"] for p in environment.pods("web")}
    # One, and one more for each that the API server created without asking us, after its 2 s on a busy machine.
    extra = given_up(environment.lab) - late
    assert 0 <= len(before - after) - 1 <= extra
    assert 0 <= len(environment.seen["web"]) - 6 <= extra
    assert _generation(environment, "web") == generation

    def told():
        found = environment.mooring.get(f"/api/v1/mix/Deployment/{environment.namespace}/web")
        return found["state"], found["have"], found["safe"]

    until(lambda: told() == ("stable", 3, 3), "it says so", tell=told)
    said = environment.mooring.command("mix", "explain", "web", "-n", environment.namespace)
    assert said.startswith("Deployment/web is stable: 3 of 5 on on-demand, as custom 3 wants\n")
    assert "slots OOOss" in said
    rows = json.loads(environment.mooring.command("mix", "status", "-o", "json"))["workloads"]
    assert [r["name"] for r in rows if r["namespace"] == environment.namespace] == ["web"]


def test_labels_that_became_invalid_after_admission_are_told_and_nothing_is_moved(environment):
    """M1: changed while nobody could refuse it; the owner finds a Warning Event in admission's words, no pod goes; and
    a process that stops leaves no webhook behind that would lead to nobody."""
    environment.deploy("web", 2, {ENABLED: "true", MODE: "all-in-spot"})
    before = {p["metadata"]["uid"] for p in environment.pods("web")}
    environment.mooring.end()
    assert not any(
        url.startswith(f"https://127.0.0.1:{environment.port}/")
        for urls in hooks(environment.lab).values()
        for url in urls
    )
    environment.label("web", **{MODE: "mostly"})
    environment.start()
    until(
        lambda: any("it must be one of all-in-on-demand" in e["message"] for e in _warnings(environment, "web")),
        "a word",
    )
    assert {p["metadata"]["uid"] for p in environment.pods("web")} == before


def _warnings(environment, name):
    chosen = f"involvedObject.kind=Deployment,involvedObject.name={name},type=Warning"
    return get(environment.lab, "events", "-n", environment.namespace, "--field-selector", chosen)["items"]


def test_a_single_replica_on_an_interrupted_spot_node_is_never_without_an_endpoint(environment):
    """M8: 120 s of notice, 20 s to become Ready; the Service always has a ready endpoint, and nothing of ours stays. A
    Ready pod of another namespace with a forged mark, that it replaces this one, changes nothing (issue 21.4)."""
    decoy = _decoy(environment)
    environment.deploy("one", 1, {ENABLED: "true"}, start_s=20)
    environment.lab.kubectl("create", "service", "clusterip", "one", "--tcp=80:80", "-n", environment.namespace)
    until(lambda: environment.endpoints("one") == 1, "an endpoint")
    (pod,) = environment.pods("one")
    node = pod["spec"]["nodeName"]
    assert node in environment.spot
    environment.notice(environment.spot, 120)
    until(lambda: len(environment.pods("one")) == 2, "it is detached", every_s=0.1, tell=environment.scenario)
    decoy("one")
    fewest = 1

    def replaced():
        nonlocal fewest
        fewest = min(fewest, environment.endpoints("one"))
        alive = environment.pods("one")
        return len(alive) == 1 and alive[0]["metadata"]["uid"] != pod["metadata"]["uid"] and _is_ready(alive[0])

    until(replaced, "another in its place", every_s=0.1, tell=environment.scenario)
    assert fewest >= 1
    assert environment.on_demand("one") == 1
    environment.lab.kubectl("annotate", "node", *environment.spot, f"{INTERRUPT_AT}-")
    until(lambda: not _cordoned(environment), "our cordons are lifted when the notice is taken back")


def _decoy(environment):
    """A Ready pod in a namespace of its own; called, it says of itself that it replaces a pod of that Deployment."""
    kubectl, tenant = environment.lab.kubectl, environment.lab.namespace("tenant")
    environment.tenants.append(tenant)
    meta = {"namespace": tenant, "name": "decoy", "labels": {"app": "decoy"}}
    spec = {
        "containers": [{"name": "c", "image": "x"}],
        "nodeSelector": {"kubernetes.io/hostname": environment.safe[0]},
    }
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    uid = json.loads(kubectl("create", "-f", "-", "-o", "json", input=json.dumps(made)))["metadata"]["uid"]

    def forge(name):
        victim = json.loads(kubectl("get", "deployment", name, "-n", environment.namespace, "-o", "json"))["metadata"]
        before = {"workload": f"Deployment/{environment.namespace}/{name}", "workloadUID": victim["uid"], HASH: "x"}
        patch = {"labels": {HASH: "x-leaving"}, "annotations": {LEAVING: write_mark(mark(uid, **before))}}
        kubectl("patch", "pod", "decoy", "-n", tenant, "-p", json.dumps({"metadata": patch}))

    return forge


def test_release_gives_back_what_a_stopped_process_had_taken(environment):
    """M8: stopped for good with a pod detached; `mooring mix release` gives the very pod back and lifts our cordon."""
    environment.deploy("one", 1, {ENABLED: "true"}, start_s=15)
    (pod,) = environment.pods("one")
    environment.notice([pod["spec"]["nodeName"]], 300)
    until(lambda: len(environment.pods("one")) == 2, "a replacement beside the detached pod")
    environment.mooring.end()
    environment.lab.kubectl("annotate", "node", pod["spec"]["nodeName"], f"{INTERRUPT_AT}-")
    command = [
        sys.executable,
        "-m",
        "mooring",
        "mix",
        "release",
        "--kubeconfig",
        str(environment.lab.kubeconfig),
        "-o",
        "json",
    ]
    would = subprocess.run([*command, "--dry-run"], capture_output=True, text=True, check=True, timeout=180).stdout
    assert len(_cordoned(environment)) == 1
    did = subprocess.run(command, capture_output=True, text=True, check=True, timeout=180).stdout
    assert json.loads(did)["undone"] == json.loads(would)["undone"]
    until(
        lambda: [p["metadata"]["uid"] for p in environment.pods("one")] == [pod["metadata"]["uid"]], "the pod is back"
    )
    assert _cordoned(environment) == []


def test_a_quota_without_room_for_a_surge_lets_the_pod_go_in_time(environment):
    """M8: the replacement is refused by quota while the old pod is there; it goes at the last call, then it is replaced."""
    environment.lab.kubectl("create", "quota", "tight", "--hard=pods=1", "-n", environment.namespace)
    environment.deploy("one", 1, {ENABLED: "true"}, grace_s=1)
    (pod,) = environment.pods("one")
    assert pod["spec"]["nodeName"] in environment.spot
    # Half a minute at the end is kept free: a busy machine is late, and still in time.
    environment.settle(interruption={"margin-s": 30})
    began = time.monotonic()
    # Last call: 75 − 1 − 30 = 44 s from now; "no time to wait for its workload" 20 s before.
    environment.notice(environment.spot, 75)
    until(lambda: pod["metadata"]["uid"] not in {p["metadata"]["uid"] for p in environment.pods("one")}, "it goes")
    gone_at = time.monotonic() - began
    assert 35 < gone_at < 75
    until(lambda: environment.on_demand("one") == 1, "replaced on on-demand")


def test_killed_in_the_middle_the_next_one_finishes(environment):
    """M5: kill -9 after the first eviction; the next process ends in the same state and leaves no mark."""
    late = given_up(environment.lab)
    environment.deploy("web", 4, {ENABLED: "true", MODE: "all-in-spot"})
    first = {p["metadata"]["uid"] for p in environment.pods("web")}
    environment.label("web", **{MODE: "all-in-on-demand"})
    until(lambda: {p["metadata"]["uid"] for p in environment.pods("web")} != first, "the first has gone")
    environment.mooring.end(signal.SIGKILL)
    environment.start()
    until(lambda: environment.on_demand("web") == 4 and len(environment.pods("web")) == 4, "all four on on-demand")
    time.sleep(2.0)
    # A pod that was created while nobody answered may have had to move once more.
    assert 8 <= len(environment.seen["web"]) <= 9 + given_up(environment.lab) - late
    # One that is on its way out carries its mark until it is gone.
    pods = ("get", "pods", "-n", environment.namespace, "-o", "jsonpath={.items[*].metadata.annotations}")
    until(lambda: "mooring.dev/leaving" not in environment.lab.kubectl(*pods), "no mark is left")


def _generation(environment, name):
    return environment.lab.kubectl(
        "get", "deployment", name, "-n", environment.namespace, "-o", "jsonpath={.metadata.generation}"
    )


def _cordoned(environment):
    found = (get(environment.lab, "node", name) for name in environment.spot)
    return [n["metadata"]["name"] for n in found if n["spec"].get("unschedulable")]
