"""A small cluster made by hand: workloads, their pods, and a ReplicaSet controller's worth of requests."""

import itertools
import json

import jsonpatch
import pytest

from mooring.capabilities.mix.admission.book import SlotBook
from mooring.capabilities.mix.admission.decide import Decision, MixAdmission, Wait
from mooring.capabilities.mix.admission.reviews import PodRequest, pod_request
from mooring.capabilities.mix.capability import Mix
from mooring.capabilities.mix.labels import CUSTOM, ENABLED, MODE
from mooring.capabilities.mix.policy import MixPolicy
from mooring.clients.wire import kube
from mooring.core.model.cluster import Node, Owner, Pod, ReplicaSet, Workload
from mooring.core.model.events import Gone, Listed, Seen
from mooring.core.model.kinds import Kind
from mooring.core.world.world import World


class Town:
    """A world, an Admission that observes it, and an API server that stores what was admitted."""

    def __init__(self, policy: MixPolicy | None = None, synced: bool = True) -> None:
        policy = policy or MixPolicy()
        self.world = World(policy.capacity)
        for index in Mix(policy).indexes():
            self.world.register(index)
        self.book = self.world.index(SlotBook)
        self.admission = MixAdmission(policy, self.book)
        self.now = 1_000.0
        self._ids = itertools.count(1)
        self.unseen: list[dict] = []
        if synced:
            for kind in (Kind.POD, Kind.NODE, Kind.REPLICA_SET, Kind.DEPLOYMENT, Kind.STATEFUL_SET):
                self.world.apply(Listed(kind, ()))

    def tell(self, event) -> None:
        self.world.apply(event)

    def node(self, name: str, capacity: str) -> None:
        labels = {"node.kubernetes.io/capacity": capacity}
        self.tell(Seen(Kind.NODE, Node(name, f"node-{name}", self._version(), labels, ready="True")))

    def workload(self, kind: str, name: str, replicas: int, mode: str | None = None, custom: str | None = None, **more):
        labels = {ENABLED: "true"} | ({MODE: mode} if mode else {}) | ({CUSTOM: custom} if custom else {})
        labels |= more.pop("labels", {})
        uid = more.pop("uid", f"{kind}-{name}")
        found = Workload(kind, "default", name, uid, self._version(), labels=labels, replicas=replicas, **more)
        self.tell(Seen(Kind(kind), found))
        return found

    def deployment(self, name: str, replicas: int, mode=None, custom=None, *, revision="1", **more) -> Owner:
        deployment = self.workload("Deployment", name, replicas, mode, custom, **more)
        return self.replica_set(deployment, revision, replicas)

    def replica_set(self, deployment: Workload, revision: str, replicas: int) -> Owner:
        name = f"{deployment.name}-{revision}"
        of = Owner("Deployment", deployment.name, deployment.uid)
        self.tell(
            Seen(Kind.REPLICA_SET, ReplicaSet("default", name, f"rs-{name}", self._version(), of, replicas=replicas))
        )
        return Owner("ReplicaSet", name, f"rs-{name}")

    def stateful_set(self, name: str, replicas: int, mode=None, custom=None, **more) -> Owner:
        found = self.workload("StatefulSet", name, replicas, mode, custom, **more)
        return Owner("StatefulSet", name, found.uid)

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────

    def review(self, owner: Owner | None, *, ordinal=None, dry_run=False, **metadata) -> dict:
        spec = metadata.pop("spec", None) or {"containers": [{"name": "c", "image": "x"}]}
        meta = {"namespace": "default", "labels": {"app": "web"}} | metadata
        name = ""
        if owner is not None:
            meta["generateName"] = f"{owner.name}-"
            meta["ownerReferences"] = [
                {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
                | {"controller": True}
            ]
        if ordinal is not None:
            name = meta["name"] = f"{owner.name}-{ordinal}"
        meta = {key: value for key, value in meta.items() if value is not None}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        request = {"uid": f"request-{next(self._ids)}", "operation": "CREATE", "namespace": "default", "name": name}
        return {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": request | {"object": pod, "dryRun": dry_run},
        }

    def decide(self, review: dict, *, patient: bool = False) -> Decision | Wait:
        request: PodRequest = pod_request(json.dumps(review).encode())
        return self.admission.decide(request, self.world, self.now, f"token-{next(self._ids)}", patient=patient)

    def admit(self, owner: Owner, **kwargs) -> dict:
        """Ask, apply the answer as the API server would, and store the pod; the watch has not shown it yet."""
        review = self.review(owner, **kwargs)
        decision = self.decide(review)
        assert isinstance(decision, Decision)
        pod = patched(review, decision)
        number = next(self._ids)
        meta = pod["metadata"]
        meta["name"] = meta.get("name") or f"{meta['generateName']}{number}"
        meta |= {"uid": f"pod-{number}", "resourceVersion": self._version()}
        pod["status"] = {"phase": "Running"}
        self.unseen.append(pod)
        return pod

    def show(self, *pods: dict) -> list[Pod]:
        """The watch shows these (or everything unseen)."""
        shown = list(pods) or self.unseen[:]
        for pod in shown:
            self.unseen.remove(pod)
            self.tell(Seen(Kind.POD, kube.project(Kind.POD, pod)))
        return [self.world.pod(kube.project(Kind.POD, pod).key) for pod in shown]

    def gone(self, pod: dict) -> None:
        self.tell(Gone(Kind.POD, kube.project(Kind.POD, pod).key, pod["metadata"]["uid"]))

    def terminating(self, pod: dict) -> None:
        pod["metadata"] |= {"deletionTimestamp": "2026-11-15T20:10:02Z", "resourceVersion": self._version()}
        self.tell(Seen(Kind.POD, kube.project(Kind.POD, pod)))

    def _version(self) -> str:
        return str(next(self._ids))


def patched(review: dict, decision: Decision) -> dict:
    pod = json.loads(json.dumps(review["request"]["object"]))
    return jsonpatch.apply_patch(pod, json.loads(json.dumps(decision.operations)))


def classes(pods) -> str:
    """`OOs` by slot."""
    by_slot = sorted(pods, key=lambda p: int(p["metadata"]["annotations"]["vacant.io/slot"]))
    return "".join("O" if p["metadata"]["labels"]["vacant.io/affinity"] == "on-demand" else "s" for p in by_slot)


@pytest.fixture
def town() -> Town:
    return Town()


@pytest.fixture(scope="session")
def make_town() -> type[Town]:
    return Town


@pytest.fixture(name="classes")
def classes_fixture():
    return classes


@pytest.fixture(name="patched")
def patched_fixture():
    return patched
