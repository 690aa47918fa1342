"""What Home's tests on the real control plane stand on: `mooring run`, a TidbCluster's TiDB, and nodes of a test's own."""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import yaml

from mooring_lab.control import loopback
from mooring_lab.control.cluster import Lab
from tests.e2e.looking import get
from tests.e2e.waiting import until

SCHEDULER = "tidb-scheduler"
TOLERATION = {"key": "mooring.dev/reserved", "operator": "Exists", "effect": "NoSchedule"}


class Process:
    """`mooring run` as a user starts it."""

    def __init__(self, lab: Lab, log: Path) -> None:
        self.lab = lab
        self.log = log
        # A name of its own: what another file left may still be ending.
        self.namespace = lab.namespace("mooring-system")
        self.extender, self.http = loopback.free_ports(2)
        self.process: subprocess.Popen | None = None

    def start(self, features: str = "StableScheduling=true", *, leads: bool = True) -> None:
        assert self.process is None
        argv = [sys.executable, "-c", "from mooring.cli import main; main()", "run"]
        argv += ["--kubeconfig", str(self.lab.kubeconfig), "--namespace", self.namespace, "--features", features]
        argv += ["--listen-extender", f"127.0.0.1:{self.extender}", "--listen-http", f"127.0.0.1:{self.http}"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                argv, stdout=log, stderr=log, env={**os.environ, "MOORING_LOG_LEVEL": "info"}
            )
        until(lambda: self.is_("deciding" if leads else "synced"), tell=lambda: self.log.read_text()[-2000:])

    def decides(self) -> bool:
        return self.is_("deciding")

    def is_(self, state: str) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/api/v1/status", timeout=30) as answer:
                return json.load(answer)[state]
        except OSError:
            return False

    def home(self) -> dict:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/api/v1/home", timeout=30) as answer:
            return json.load(answer)

    def command(self, *args: str) -> str:
        argv = [sys.executable, "-c", "from mooring.cli import main; main()", *args]
        argv += ["--server", f"http://127.0.0.1:{self.http}"]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/metrics", timeout=30) as answer:
            return answer.read().decode()

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            assert self.process.wait(120) == 0, self.log.read_text()[-2000:]
            self.process = None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process = None


class Tidb:
    """A TidbCluster `demo` of TiDB members, with the StatefulSet and Service that tidb-operator would make.

    `release`: the `app.kubernetes.io/instance` label that a release tool gave the TidbCluster; its members carry it.
    """

    def __init__(
        self,
        lab: Lab,
        namespace: str,
        nodes: str,
        *,
        replicas: int = 3,
        cpu: str = "3",
        release: str = "",
        **how: object,
    ) -> None:
        self.lab, self.namespace, self.replicas = lab, namespace, replicas
        labels = {
            "app.kubernetes.io/name": "tidb-cluster",
            "app.kubernetes.io/managed-by": "tidb-operator",
            "app.kubernetes.io/instance": release or "demo",
            "app.kubernetes.io/component": "tidb",
        }
        own = {"app.kubernetes.io/instance": release} if release else {}
        self.apply(
            {
                "apiVersion": "pingcap.com/v1alpha1",
                "kind": "TidbCluster",
                "metadata": {"name": "demo", "labels": {**own, **how.pop("labels", {})}},
                "spec": {"tidb": {"replicas": replicas}, "version": "v8.5.0"},
                "status": {"clusterID": "7", "pd": {"members": {"demo-pd-0": {"health": True}}}},
            }
        )
        template = {
            "metadata": {"labels": labels, "annotations": how.pop("annotations", {})},
            "spec": {
                "schedulerName": SCHEDULER,
                "nodeSelector": {"test": nodes},
                "tolerations": [TOLERATION],
                "containers": [{"name": "tidb", "image": "tidb:1", "resources": {"requests": {"cpu": cpu}}}],
                **how,
            },
        }
        self.apply(
            {
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "metadata": {"name": "demo-tidb", "labels": labels, "ownerReferences": [self._owner()]},
                "spec": {
                    "replicas": replicas,
                    "serviceName": "demo-tidb-peer",
                    "podManagementPolicy": "Parallel",
                    "selector": {"matchLabels": labels},
                    "template": template,
                },
            }
        )
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "demo-tidb"},
                "spec": {
                    "type": "NodePort",
                    "externalTrafficPolicy": "Local",
                    "selector": labels,
                    "ports": [{"port": 4000}],
                },
            }
        )

    def _owner(self) -> dict:
        uid = self.get("tc/demo")["metadata"]["uid"]
        return {
            "apiVersion": "pingcap.com/v1alpha1",
            "kind": "TidbCluster",
            "name": "demo",
            "uid": uid,
            "controller": True,
        }

    def apply(self, obj: dict) -> None:
        self.lab.kubectl("apply", "-n", self.namespace, "-f", "-", input=yaml.safe_dump(obj))

    def get(self, what: str) -> dict:
        return get(self.lab, what, "-n", self.namespace)

    def pods(self) -> dict[str, dict]:
        found = self.get("pods")["items"]
        return {p["metadata"]["name"]: p for p in found if p["metadata"]["name"].startswith("demo-tidb-")}

    def nodes(self) -> dict[str, str]:
        return {name: p["spec"].get("nodeName", "") for name, p in self.pods().items()}

    def uids(self) -> dict[str, str]:
        return {name: p["metadata"]["uid"] for name, p in self.pods().items()}

    def settled(self) -> bool:
        pods = self.pods().values()
        return len(pods) == self.replicas and all(
            "deletionTimestamp" not in p["metadata"] and ready(p) and p["spec"].get("nodeName") for p in pods
        )

    def recorded(self) -> dict[str, str]:
        members = self.get("tc/demo").get("status", {}).get("tidb", {}).get("members", {})
        return {name: member.get("node", "") for name, member in members.items()}

    def settle(self) -> dict[str, str]:
        """Until all are Ready and written down; where they are."""
        until(self.settled, f"members are Ready: {self.nodes()}")
        until(lambda: self.recorded() == self.nodes(), "members are written down")
        return self.nodes()

    def recreate(self, name: str) -> str:
        """Delete one pod and wait for its successor; where that is."""
        before = self.uids()[name]
        self.lab.kubectl("delete", "pod", name, "-n", self.namespace, "--wait=false")
        until(lambda: self.uids().get(name, before) != before and self.settled(), f"{name} is back")
        return self.nodes()[name]

    def story(self, running: Process) -> str:
        """What happened, for a failure that has to be understood afterwards."""
        events = self.lab.kubectl("get", "events", "-n", self.namespace, "--sort-by=.metadata.creationTimestamp")
        asked = [line for line in running.metrics().splitlines() if line.startswith("mooring_extender")]
        return "\n".join([events, *asked])

    def endpoints(self) -> set[str]:
        """Nodes with a ready local endpoint: what a load balancer points at."""
        slices = self.get("endpointslices")["items"]
        return {
            e["nodeName"]
            for s in slices
            if s["metadata"]["labels"]["kubernetes.io/service-name"] == "demo-tidb"
            for e in s.get("endpoints") or ()
            if e["conditions"]["ready"]
        }


def ready(pod: dict) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))


class Place:
    """Nodes of one test: `small` ones that members start on, then roomier ones that a scheduler would rather take."""

    def __init__(self, lab: Lab, label: str) -> None:
        self.lab, self.label = lab, label
        # Room for two members: a pod that is deleted right after it was bound must not shut its successor out.
        self.small = lab.add_nodes(3, prefix=f"{label}-", labels={"test": label}, cpu="7")
        self.namespace = lab.namespace("home")

    def add_roomy(self, count: int = 2, cpu: str = "64") -> list[str]:
        return self.lab.add_nodes(count, prefix=f"{self.label}-roomy-", labels={"test": self.label}, cpu=cpu)

    def filler(self, name: str, cpu: str = "5", **spec: object) -> None:
        """A pod of somebody else's, too large to sit beside a member."""
        containers = [{"name": "c", "image": "c", "resources": {"requests": {"cpu": cpu}}}]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
        pod["spec"] = {"nodeSelector": {"test": self.label}, "containers": containers, **spec}
        self.lab.kubectl("apply", "-n", self.namespace, "-f", "-", input=yaml.safe_dump(pod))

    def gone(self) -> None:
        self.lab.clear(self.namespace, nodes=f"test={self.label}")
