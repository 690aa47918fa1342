"""A hostile tenant on the real control plane, for a minute, or for MOORING_SOAK_S seconds: it has `edit` and TidbClusters in
one namespace, reaches the webhook's port and the page, and does all at once what attacks did one by one. Memory stays, the
leader decides, a new leader begins, and the moves of others take as long as before."""

import contextlib
import json
import os
import random
import signal
import socket
import ssl
import statistics
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF, Mark, write_marks
from mooring_lab.control.api import ApiConnection
from mooring_lab.control.cluster import Lab
from mooring_lab.control.errors import LabError
from tests.e2e.definitions import define
from tests.e2e.test_mix_rebalance import ENABLED, MODE, SETTINGS, Environment
from tests.e2e.test_tenants import ELEVEN, kept_by_budgets
from tests.e2e.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

SOAK_S = float(os.environ.get("MOORING_SOAK_S", "60"))
MOST_MIB, MOST_DELAY_S = 300, 1.0
#: A lease of five seconds that nobody gave back, the start of a process, and the 10 s that marks may hold a new leader up.
LEADS_AGAIN_S = 45.0
CALM = 4
TIDB_CLUSTERS = "apis/pingcap.com/v1alpha1/namespaces/{}/tidbclusters"


class Tenant:
    """Threads that each repeat one attack, about so many times a second; `done`: how often each was answered."""

    def __init__(self, environment: Environment, namespace: str) -> None:
        self.environment, self.namespace = environment, namespace
        self.tried, self.done, self._over = Counter[str](), Counter[str](), threading.Event()
        self.said: dict[str, str] = {}
        self._number = 0
        self._silent = socket.create_server(("127.0.0.1", 0), backlog=512)
        attacks = (
            (self.annotations, 4.0),
            (self.pods, 2.0),
            (self.clusters, 1.0),
            (self.dry_runs, 2.0),
            (self.reviews, 1.0),
            (self.page, 5.0),
        )
        self._threads = [threading.Thread(target=self._repeat, args=one, daemon=True) for one in attacks]

    def __enter__(self) -> "Tenant":
        kept_by_budgets(self.environment, self.namespace, ELEVEN)
        label = ("label", "statefulsets", "--all", "-n", self.namespace, "--overwrite", f"{MODE}=all-in-on-demand")
        self.environment.lab.kubectl(*label)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)
        self._silent.close()

    def _repeat(self, attack: Callable[[ApiConnection, str], None], a_second: float) -> None:
        while not self._over.is_set():
            try:
                with self.environment.lab.api() as api:
                    while not self._over.wait(1 / a_second):
                        self._number += 1
                        self.tried[attack.__name__] += 1
                        attack(api, f"evil-{self._number}")
                        self.done[attack.__name__] += 1
            except (LabError, OSError) as error:
                self.said[attack.__name__] = str(error)[:500]

    def annotations(self, api: ApiConnection, name: str) -> None:
        """200 KB under a key of ours, another text each time."""
        told = {"metadata": {"annotations": {"mooring.dev/x": name * 20_000, "mooring.dev/home": name * 5_000}}}
        path = f"apis/apps/v1/namespaces/{self.namespace}/statefulsets/app00"
        found = api.ask("GET", path)
        found["metadata"].setdefault("annotations", {}).update(told["metadata"]["annotations"])
        api.ask("PUT", path, found)

    def pods(self, api: ApiConnection, name: str) -> None:
        """Half a megabyte of tolerations, a slot far away; gone at once."""
        of = [{"key": f"{name}.{i}", "operator": "Exists", "effect": "NoSchedule"} for i in range(8_000)]
        meta = {"name": name, "annotations": {"vacant.io/slot": "99999"}, "labels": {name: name}}
        spec = {"containers": [{"name": "c", "image": "x"}], "tolerations": of, "schedulerName": name}
        path = f"api/v1/namespaces/{self.namespace}/pods"
        api.ask("POST", path, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        api.ask("DELETE", f"{path}/{name}", {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})

    def clusters(self, api: ApiConnection, name: str) -> None:
        """A mark of a hand-over, a PD that takes connections and says nothing, ten thousand TiKV wanted."""
        mark = Mark(
            operator="7", source="handoff", reason="x", step="evict", since=time.time(), pod_uid=name, store_id=1
        )
        url = f"http://127.0.0.1:{self._silent.getsockname()[1]}"
        meta = {"name": name, "annotations": {"mooring.dev/pd-endpoints": url}}
        meta["annotations"][HANDOFF] = write_marks({f"{name}-tikv-{i}": mark for i in range(10)}) or ""
        spec = {"version": "v8.5.0", "tikv": {"replicas": 10_000}}
        path = TIDB_CLUSTERS.format(self.namespace)
        made = {"apiVersion": "pingcap.com/v1alpha1", "kind": "TidbCluster", "metadata": meta, "spec": spec}
        api.ask("POST", path, made)
        if len(found := api.ask("GET", path)["items"]) > 60:
            api.ask("DELETE", f"{path}/{found[0]['metadata']['name']}")

    def dry_runs(self, api: ApiConnection, name: str) -> None:
        """Modes of any length, reviewed and refused."""
        made = json.loads(self.environment.manifest(name, 1, {ENABLED: "true"}))
        made["metadata"] |= {"namespace": self.namespace, "annotations": {MODE: name * 20_000, ENABLED: "true"}}
        api.ask("POST", f"apis/apps/v1/namespaces/{self.namespace}/deployments?dryRun=All", made)

    def reviews(self, _: ApiConnection, name: str) -> None:
        """Anonymous and dense, as large as one may be and larger."""
        body = (
            b'{"request":{"object":{"spec":{"tolerations":[' + b"{}," * random.choice((900_000, 2_600_000)) + b"{}]}}}}"
        )
        trust = ssl._create_unverified_context()
        url = f"https://127.0.0.1:{self.environment.port}/admit/pods"
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(urllib.request.Request(url, body), timeout=10, context=trust).close()

    def page(self, _: ApiConnection, name: str) -> None:
        with contextlib.suppress(urllib.error.HTTPError):
            url = f"http://127.0.0.1:{self.environment.mooring.http}/api/v1/why/pod/{self.namespace}/{name}"
            urllib.request.urlopen(url, timeout=10).close()


class Watched:
    """The running process twice a second: whether it decides, and the most memory that it ever had."""

    def __init__(self, environment: Environment) -> None:
        self.environment, self.most_mib, self.asked, self.undecided = environment, 0, 0, 0
        self.leader_changes = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Watched":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    def _look(self) -> None:
        while not self._over.wait(0.5):
            if self.leader_changes.is_set():
                continue
            with contextlib.suppress(OSError, IndexError):
                said = Path(f"/proc/{self.environment.mooring.process.pid}/status").read_text()
                self.most_mib = max(self.most_mib, int(said.partition("VmHWM:")[2].split()[0]) // 1024)
            with contextlib.suppress(AssertionError):
                decides = self.environment.mooring.deciding()
                if not self.leader_changes.is_set():
                    self.asked += 1
                    self.undecided += not decides


def moved(environment: Environment) -> float:
    """Seconds from the request, answered, until the pod of somebody else's Deployment serves where it is wanted."""
    to = 1 - environment.on_demand("web")
    environment.label("web", **{MODE: "all-in-on-demand" if to else "all-in-spot"})
    asked = time.monotonic()
    until(lambda: environment.on_demand("web") == to and len(environment.ready("web")) == 1, "moved", every_s=0.1)
    return time.monotonic() - asked


def test_a_hostile_tenant_costs_the_others_nothing(lab: Lab, tmp_path: Path) -> None:
    """All of it at once."""
    environment = Environment(lab, tmp_path)
    environment.tenants.append(tenant := lab.namespace("evil"))
    settings = {**SETTINGS, "pd-hosts": ["127.0.0.1:*"]}
    environment.config.write_text(json.dumps(settings))
    features = "mix=true,handoff=true,drain=true"
    define(lab, Kind.TIDB_CLUSTER)
    try:
        environment.start(features)
        environment.deploy("web", 1, {ENABLED: "true", MODE: "all-in-spot"})
        calm = [moved(environment) for _ in range(CALM)]
        with Tenant(environment, tenant) as hostile, Watched(environment) as watched:
            ends, killed_at = time.monotonic() + SOAK_S, time.monotonic() + SOAK_S / 2
            took, again_s = [], 0.0
            while time.monotonic() < ends or len(took) < CALM:
                took.append(moved(environment))
                if not again_s and time.monotonic() > killed_at:
                    watched.leader_changes.set()
                    environment.mooring.end(signal.SIGKILL)
                    began = time.monotonic()
                    environment.start(features)
                    again_s = time.monotonic() - began
                    watched.leader_changes.clear()
        delay = statistics.median(took) - statistics.median(calm)
        print(
            f"{SOAK_S:g} s: {watched.most_mib} MiB at most; undecided {watched.undecided} of {watched.asked}; led again after "
            f"{again_s:.1f} s; {len(took)} moves took {statistics.median(took):.1f} s ({max(took):.1f} at most), before "
            f"{statistics.median(calm):.1f} ({max(calm):.1f}); attacks {dict(hostile.done)}"
        )
        assert len(hostile.tried) == 6 and all(hostile.done[one] > n / 2 for one, n in hostile.tried.items()), (
            hostile.said
        )
        assert watched.most_mib < MOST_MIB
        assert watched.undecided == 0
        assert again_s < LEADS_AGAIN_S
        assert delay < MOST_DELAY_S
    finally:
        environment.close()
