"""The lab itself: a control plane that behaves like one, on a machine that has none."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from mooring.clients.kube import HttpKubeApi, load
from mooring.core.model.kinds import Kind
from mooring_lab.control import servers
from mooring_lab.control.cluster import Lab
from mooring_lab.control.errors import LabError
from mooring_lab.control.loopback import answers
from mooring_lab.demo.onlab.rig import PATIENT_S
from tests.e2e import looking
from tests.e2e.spine_environment import install_crd
from tests.e2e.waiting import Stopwatch, stands, until

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def nodes(lab: Lab) -> list[str]:
    return lab.add_nodes(3, prefix="lab-", labels={"test": "lab"})


def workload(kind: str, name: str, replicas: int, annotations: dict | None = None, grace: int = 30) -> str:
    """A Deployment or StatefulSet on the nodes of these tests."""
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": {"app": name}, "annotations": annotations or {}},
            "spec": pod_spec(grace),
        },
    }
    if kind == "StatefulSet":
        spec["serviceName"] = name
    return yaml.safe_dump({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})


def pod(name: str, annotations: dict, grace: int = 30) -> str:
    meta = {"name": name, "annotations": annotations}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod_spec(grace)})


def pod_spec(grace: int) -> dict:
    return {
        "nodeSelector": {"test": "lab"},
        "terminationGracePeriodSeconds": grace,
        "containers": [{"name": "main", "image": "example.org/main:1"}],
    }


def get(lab: Lab, namespace: str, what: str) -> dict:
    return json.loads(lab.kubectl("get", what, "-n", namespace, "-o", "json"))


def condition(pod: dict, kind: str) -> dict:
    return next(c for c in pod["status"]["conditions"] if c["type"] == kind)


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_server_knows_its_version_and_rbac_is_on(lab: Lab) -> None:
    """Clients see the version that was asked for, and somebody without rights is refused."""
    assert json.loads(lab.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"] == lab.state.release.version
    with pytest.raises(LabError, match="forbidden"):
        lab.kubectl("get", "pods", "--as", "nobody")


def test_nodes_are_ready_and_keep_their_leases(lab: Lab, nodes: list[str]) -> None:
    """Created nodes become Ready without kubelets and each holds a lease, as the node controller expects."""
    for name in nodes:
        node = json.loads(lab.kubectl("get", "node", name, "-o", "json"))
        assert condition(node, "Ready")["status"] == "True"
        assert node["status"]["allocatable"]["cpu"] == "8"
        assert "taints" not in node["spec"]
        lease = json.loads(lab.kubectl("get", "lease", name, "-n", "kube-node-lease", "-o", "json"))
        assert lease["spec"]["leaseDurationSeconds"] == 40


def test_deployment_of_five_comes_up(lab: Lab, nodes: list[str]) -> None:
    """Five replicas are scheduled, run, and are Ready with an address and a time of transition each."""
    namespace = lab.namespace()
    lab.kubectl("apply", "-n", namespace, "-f", "-", input=workload("Deployment", "web", 5))
    stands(lab, "rollout", "status", "deployment/web", "-n", namespace)
    pods = get(lab, namespace, "pods")["items"]
    assert len(pods) == 5
    assert {p["spec"]["nodeName"] for p in pods} <= set(nodes)
    assert len({p["status"]["podIP"] for p in pods}) == 5
    for p in pods:
        assert condition(p, "Ready")["status"] == "True"
        assert condition(p, "Ready")["lastTransitionTime"] >= p["metadata"]["creationTimestamp"]


def test_start_and_readiness_take_as_long_as_the_pod_asks(lab: Lab, nodes: list[str]) -> None:
    """A pod with start and ready seconds is Running and Ready that much later, however often it is changed meanwhile."""
    namespace = lab.namespace()
    slow = {"lab.mooring.dev/start-seconds": "2", "lab.mooring.dev/ready-seconds": "2"}
    lab.kubectl("apply", "-n", namespace, "-f", "-", input=pod("slow", slow))
    touches = 0
    while get(lab, namespace, "pod/slow")["status"]["phase"] == "Pending":
        touches += 1
        assert touches < 400, "every change of the pod put its start off"
        lab.kubectl("label", "pod/slow", "-n", namespace, "--overwrite", f"touched={touches}")
    stands(lab, "wait", "pod/slow", "-n", namespace, "--for=condition=Ready")
    seen = get(lab, namespace, "pod/slow")
    accepted = instant(condition(seen, "Initialized")["lastTransitionTime"])
    running = instant(seen["status"]["containerStatuses"][0]["state"]["running"]["startedAt"])
    ready = instant(condition(seen, "Ready")["lastTransitionTime"])
    # Whole seconds are written down, rounded down: 2 may look like 1.
    assert (running - accepted).total_seconds() >= 1
    assert (ready - running).total_seconds() >= 1
    assert (ready - accepted).total_seconds() >= 3


def test_grace_is_honoured_up_to_the_pods_own(lab: Lab, nodes: list[str]) -> None:
    """A deleted pod lingers for its grace seconds; its own grace period is the upper bound; by default it goes at once."""
    namespace = lab.namespace()
    for name, seconds, period in (("lingers", "10", 30), ("bounded", "600", 2), ("quick", "0", 30)):
        annotations = {"lab.mooring.dev/grace-seconds": seconds}
        lab.kubectl("apply", "-n", namespace, "-f", "-", input=pod(name, annotations, grace=period))
    stands(lab, "wait", "pod", "--all", "-n", namespace, "--for=condition=Ready")
    began = time.monotonic()
    lab.kubectl("delete", "pods", "--all", "-n", namespace, "--wait=false")
    left = {"quick"}

    def without_quick() -> bool:
        left.clear()
        left.update(p["metadata"]["name"] for p in looking.get(lab, "pods", "-n", namespace)["items"])
        return "quick" not in left

    until(without_quick, "pod/quick is gone")
    assert {"lingers"} <= left <= {"lingers", "bounded"}
    stands(lab, "wait", "pod/bounded", "-n", namespace, "--for=delete")
    stands(lab, "wait", "pod/lingers", "-n", namespace, "--for=delete")
    assert time.monotonic() - began >= 10


@pytest.mark.parametrize(
    ("how", "phase", "state"),
    [
        ("start", "Pending", {"waiting": "ImagePullBackOff"}),
        ("ready", "Running", {"running": None}),
        ("crash", "Running", {"waiting": "CrashLoopBackOff"}),
        ("exit", "Failed", {"terminated": "Error"}),
    ],
)
def test_pod_fails_as_asked(lab: Lab, nodes: list[str], how: str, phase: str, state: dict) -> None:
    """Each kind of failure leaves the status a real kubelet would, and never Ready."""
    namespace = lab.namespace()
    lab.kubectl("apply", "-n", namespace, "-f", "-", input=pod("bad", {"lab.mooring.dev/fail": how}))
    (kind, reason), *_ = state.items()

    def failed() -> dict | None:
        """All of it in one look: kwok may start a pod a second time, which then fails again."""
        found = get(lab, namespace, "pod/bad")
        now = next(iter(found["status"].get("containerStatuses", ())), {}).get("state", {})
        there = kind in now and (not reason or now[kind].get("reason") == reason)
        return found if there and found["status"]["phase"] == phase else None

    seen = until(failed, f"{phase}, {kind} {reason or ''}")
    assert condition(seen, "Ready")["status"] == "False"


def test_failure_can_be_healed(lab: Lab, nodes: list[str]) -> None:
    """A Ready pod stops being Ready when told to, and is Ready again when the annotation goes."""
    namespace = lab.namespace()
    lab.kubectl("apply", "-n", namespace, "-f", "-", input=pod("moody", {}))
    stands(lab, "wait", "pod/moody", "-n", namespace, "--for=condition=Ready")
    lab.kubectl("annotate", "pod/moody", "-n", namespace, "lab.mooring.dev/fail=ready")
    stands(lab, "wait", "pod/moody", "-n", namespace, "--for=condition=Ready=false")
    lab.kubectl("annotate", "pod/moody", "-n", namespace, "lab.mooring.dev/fail-")
    stands(lab, "wait", "pod/moody", "-n", namespace, "--for=condition=Ready")


def test_node_fails_and_recovers(lab: Lab) -> None:
    """A node told to fail is NotReady and tainted by the node controller, until it is told otherwise."""
    (node,) = lab.add_nodes(1, prefix="moody-")
    lab.kubectl("annotate", "node", node, "lab.mooring.dev/fail=true")
    stands(lab, "wait", f"node/{node}", "--for=condition=Ready=false")
    taint = "--for=jsonpath={.spec.taints[?(@.effect=='NoExecute')].key}=node.kubernetes.io/not-ready"
    stands(lab, "wait", f"node/{node}", taint)
    lab.kubectl("annotate", "node", node, "lab.mooring.dev/fail-")
    stands(lab, "wait", f"node/{node}", "--for=condition=Ready")
    lab.kubectl("delete", "node", node)


def test_job_completes(lab: Lab, nodes: list[str]) -> None:
    """A Job's pod runs to success by itself."""
    namespace = lab.namespace()
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "once"},
        "spec": {"template": {"spec": pod_spec(30) | {"restartPolicy": "Never"}}},
    }
    lab.kubectl("apply", "-n", namespace, "-f", "-", input=yaml.safe_dump(job))
    stands(lab, "wait", "job/once", "-n", namespace, "--for=condition=Complete")


def test_statefulset_rolls_one_by_one(lab: Lab, nodes: list[str]) -> None:
    """A rolling update replaces every pod, highest ordinal first."""
    namespace = lab.namespace()
    lab.kubectl("apply", "-n", namespace, "-f", "-", input=workload("StatefulSet", "db", 3))
    stands(lab, "rollout", "status", "statefulset/db", "-n", namespace)
    before = {p["metadata"]["name"]: p for p in get(lab, namespace, "pods")["items"]}
    changed = workload("StatefulSet", "db", 3, {"version": "2"})
    lab.kubectl("apply", "-n", namespace, "-f", "-", input=changed)
    stands(lab, "rollout", "status", "statefulset/db", "-n", namespace)
    after = {p["metadata"]["name"]: p for p in get(lab, namespace, "pods")["items"]}
    assert set(after) == {"db-0", "db-1", "db-2"}
    assert all(after[name]["metadata"]["uid"] != before[name]["metadata"]["uid"] for name in after)
    born = [after[name]["metadata"]["creationTimestamp"] for name in ("db-2", "db-1", "db-0")]
    assert born == sorted(born)


def test_api_server_survives_a_kill_and_a_compaction(lab: Lab, nodes: list[str]) -> None:
    """Killed and started again on the same port with its etcd compacted, the API server still has everything."""
    namespace = lab.namespace()
    lab.kubectl("create", "configmap", "kept", "-n", namespace)
    before = lab.pids()["kube-apiserver"]
    lab.kill("kube-apiserver")
    assert lab.pids().get("kube-apiserver") is None
    revision = lab.etcd_compact()
    lab.start("kube-apiserver")
    assert lab.pids()["kube-apiserver"] != before
    assert get(lab, namespace, "configmap/kept")["metadata"]["name"] == "kept"
    stale = lab.kubectl(
        "get", "--raw", f"/api/v1/namespaces/{namespace}/configmaps?watch=1&resourceVersion=1&timeoutSeconds=2"
    )
    assert json.loads(stale.splitlines()[0])["object"]["code"] == 410, f"compacted at {revision}"
    lab.kubectl("apply", "-n", namespace, "-f", "-", input=workload("Deployment", "after", 1))
    stands(lab, "rollout", "status", "deployment/after", "-n", namespace)


async def test_what_is_cleared_is_gone_at_once(lab: Lab) -> None:
    """A namespace that ends while the API server is started again may be let go with a TidbCluster in it: later tests
    would find that one."""
    namespace = lab.namespace("cleared")
    async with HttpKubeApi(load(lab.kubeconfig), write_timeout_s=PATIENT_S) as api:
        await install_crd(api)
        await api.create(Kind.TIDB_CLUSTER, {"metadata": {"namespace": namespace, "name": "demo"}, "spec": {}})
        lab.clear(namespace)
        assert (await api.list(Kind.TIDB_CLUSTER)).items == ()


def test_restarted_kwok_takes_its_nodes_back(lab: Lab, nodes: list[str]) -> None:
    """A restarted kwok serves pods at once, without waiting for its predecessor's leases to run out, and gives them
    addresses that no other pod has."""
    namespace, made = lab.namespace(), []

    def served() -> float:
        made.append(f"web-{len(made)}")
        lab.restart("kwok")
        watch = Stopwatch(*lab.pids().values())
        lab.kubectl("apply", "-n", namespace, "-f", "-", input=workload("Deployment", made[-1], 6))
        stands(lab, "rollout", "status", f"deployment/{made[-1]}", "-n", namespace)
        return watch.took_s()

    for _ in range(2):
        assert served() < servers.LEASE_S - 5
    assert len({p["status"]["podIP"] for p in get(lab, namespace, "pods")["items"]}) == 6 * len(made)


def test_scheduler_takes_another_configuration(lab: Lab, nodes: list[str], tmp_path: Path) -> None:
    """kube-scheduler restarts with a configuration of ours, whose profile then places pods; and goes back."""
    namespace = lab.namespace()
    config = tmp_path / "scheduler.yaml"
    profiles = [{"schedulerName": "default-scheduler"}, {"schedulerName": "ours"}]
    config.write_text(
        yaml.safe_dump(
            {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": profiles}
        )
    )
    document = yaml.safe_load(pod("placed", {}))
    document["spec"]["schedulerName"] = "ours"
    lab.scheduler_config(config)
    try:
        lab.kubectl("apply", "-n", namespace, "-f", "-", input=yaml.safe_dump(document))
        stands(lab, "wait", "pod/placed", "-n", namespace, "--for=condition=Ready")
    finally:
        lab.scheduler_config(None)


def test_second_scheduler_places_its_own_pods(lab: Lab, nodes: list[str], tmp_path: Path) -> None:
    """Another kube-scheduler beside the first serves the pods that name it."""
    namespace = lab.namespace()
    config = tmp_path / "second.yaml"
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    config.write_text(yaml.safe_dump(kind | {"profiles": [{"schedulerName": "second"}]}))
    document = yaml.safe_load(pod("placed", {}))
    document["spec"]["schedulerName"] = "second"
    lab.second_scheduler(config)
    try:
        lab.kubectl("apply", "-n", namespace, "-f", "-", input=yaml.safe_dump(document))
        stands(lab, "wait", "pod/placed", "-n", namespace, "--for=condition=Ready")
    finally:
        lab.stop("second-scheduler")


def mooring(*args: str, home: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """The command as a stranger runs it, with a home directory of its own; the built programs are found as usual."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    env = os.environ | {"HOME": str(home), "XDG_CACHE_HOME": cache, "XDG_STATE_HOME": str(home / "state")} | more
    command = [sys.executable, "-c", "from mooring.cli import main; main()", "lab", *args]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=180, check=False)


def test_up_and_down_as_a_user_would(tmp_path: Path) -> None:
    """`lab up` prints where things are, kubectl works with it, `lab down` leaves no process and no file behind."""
    started = mooring("up", "--nodes", "2", "-o", "json", home=tmp_path)
    assert started.returncode == 0, started.stderr
    facts = json.loads(started.stdout)
    try:
        assert {"kubeconfig", "apiserver", "etcd", "pd", "sabakan", "pids", "bin_dir"} <= set(facts)
        kubectl = [f"{facts['bin_dir']}/kubectl", "get", "nodes", "-o", "name"]
        env = {"KUBECONFIG": facts["kubeconfig"], "HOME": str(tmp_path)}
        seen = subprocess.run(kubectl, env=env, capture_output=True, text=True, check=True).stdout.split()
        assert seen == ["node/node-0", "node/node-1"]

        again = mooring("up", home=tmp_path)
        assert again.returncode == 0
        assert "already up" in again.stderr
        assert f"export KUBECONFIG={facts['kubeconfig']}" in again.stderr
        assert mooring("status", home=tmp_path).returncode == 0

        os.kill(facts["pids"]["kube-scheduler"], signal.SIGKILL)
        assert mooring("status", home=tmp_path).returncode == 1
        revived = mooring("up", "-o", "json", home=tmp_path)
        assert "had lost kube-scheduler: started again" in revived.stderr
        facts["pids"]["new kube-scheduler"] = json.loads(revived.stdout)["pids"]["kube-scheduler"]
        assert not (tmp_path / ".kube" / "config").exists()
    finally:
        ended = mooring("down", home=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert not any(alive(pid) for pid in facts["pids"].values())
    assert not Path(facts["kubeconfig"]).parent.exists()
    assert mooring("status", home=tmp_path).returncode == 1
    assert mooring("down", home=tmp_path).returncode == 0


STAND_IN = """#!{python} -S
import http.server, re, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
port = re.search(r"(?:--client-urls=http://|-http )127.0.0.1:(\\d+)", " ".join(sys.argv)).group(1)
http.server.HTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()
"""


def test_neighbours_come_from_bin_dir(tmp_path: Path) -> None:
    """`--with pd,sabakan` starts what MOORING_BIN_DIR holds, says where it listens, and `down` ends it too.

    Programs that only answer a health check stand in for the real ones, which are in no package registry.
    """
    for name in ("pd-server", "sabakan"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(STAND_IN.format(python=sys.executable))
        program.chmod(0o755)
    where = {"MOORING_BIN_DIR": str(tmp_path / "bin")}
    started = mooring("up", "--nodes", "0", "--with", "pd,sabakan", "-o", "json", home=tmp_path, **where)
    try:
        assert started.returncode == 0, started.stderr
        facts = json.loads(started.stdout)
        assert {"pd1", "sabakan"} <= set(facts["pids"])
        for url in (*facts["pd"], facts["sabakan"]):
            assert answers(f"{url}/health")
    finally:
        ended = mooring("down", home=tmp_path)
    assert "pd1, sabakan" in ended.stderr
    assert not any(alive(pid) for pid in facts["pids"].values())


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_nothing_outlives_a_killed_owner(tmp_path: Path) -> None:
    """A foreground lab whose owner is killed with -9 takes its servers with it."""
    script = (
        "import sys, time, pathlib\n"
        "from mooring_lab.control.binaries import find, release\n"
        "from mooring_lab.control.cluster import Lab\n"
        "lab = Lab.up(pathlib.Path(sys.argv[1]), find(release()), foreground=True)\n"
        "print(*lab.pids().values(), flush=True)\n"
        "time.sleep(600)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "lab")], stdout=subprocess.PIPE, text=True)
    with owner:
        assert owner.stdout is not None
        pids = [int(pid) for pid in owner.stdout.readline().split()]
        assert len(pids) == 5
        owner.kill()
    until(lambda: not any(alive(pid) for pid in pids), "every server has ended")
