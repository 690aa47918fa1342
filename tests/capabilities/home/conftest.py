import json
from collections.abc import Mapping
from typing import Any

import pytest

from mooring.capabilities.home import Home
from mooring.capabilities.home.policy import HomePolicy
from mooring.capabilities.home.verbs import Verbs
from mooring.core.model.cluster import Key, Node, Owner, Pod, PodShape, Toleration, Workload
from mooring.core.model.events import Gone, Seen
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import RESERVED_TAINT, Mark, write_mark
from mooring.core.model.tidb import TidbCluster
from mooring.core.world.world import World

TIDB = {"app.kubernetes.io/component": "tidb", "app.kubernetes.io/instance": "demo"}
RESERVATION_TOLERATION = Toleration(RESERVED_TAINT, "Exists", "", "NoSchedule")


class ScenarioBuilder:
    """A small world: a TidbCluster `demo` in namespace `tidb`, its StatefulSet, and nodes n0, n1, …"""

    def __init__(self) -> None:
        self.world = World()
        for index in Home().indexes():
            self.world.register(index)
        self.uids: dict[tuple[Kind, Key], str] = {}
        self.version = 0
        self.on = True
        for i in range(5):
            self.node(f"n{i}")

    def _next(self) -> str:
        self.version += 1
        return str(self.version)

    def see(self, kind: Kind, obj: Any) -> Any:
        self.world.apply(Seen(kind, obj))
        self.uids[kind, obj.key] = obj.uid
        return obj

    def node(self, name: str, **how: Any) -> Node:
        return self.see(Kind.NODE, Node(name, f"{name}-uid", self._next(), **{"ready": "True", **how}))

    def cluster(self, members: Mapping[str, str] | None = None, **how: Any) -> TidbCluster:
        members = members or {}
        fields: dict[str, Any] = {
            "tidb_replicas": 3,
            "tidb_member_nodes": members,
            "tidb_members": tuple(sorted(members)),
        }
        return self.see(Kind.TIDB_CLUSTER, TidbCluster("tidb", "demo", "tc-uid", self._next(), **{**fields, **how}))

    def set(self, name: str = "demo-tidb", replicas: int = 3, **how: Any) -> Workload:
        obj = Workload("StatefulSet", "tidb", name, f"{name}-uid", self._next(), replicas=replicas, **how)
        return self.see(Kind.STATEFUL_SET, obj)

    def pod(self, name: str, node: str = "", *, of: str = "demo-tidb", uid: str = "", **how: Any) -> Pod:
        labels = TIDB if of == "demo-tidb" else {"app": of}
        shape = PodShape(labels=labels, tolerations=how.pop("tolerations", (RESERVATION_TOLERATION,)))
        owner = Owner("StatefulSet", of, f"{of}-uid")
        uid, how = uid or f"{name}-uid", {"phase": "Running" if node else "Pending"} | how
        return self.see(Kind.POD, Pod("tidb", name, uid, self._next(), shape, owner=owner, node=node, **how))

    def gone(self, kind: Kind, name: str, namespace: str = "tidb") -> None:
        key = Key(namespace, name)
        self.world.apply(Gone(kind, key, self.uids[kind, key]))

    def reservation(self, node: str, pod: str, until: float = 1000.0, operator: str = "1") -> Node:
        """A node on which the reservation of `pod` is held."""
        from mooring.capabilities.home.reserve import reservation_taint

        mark = Mark(
            operator=operator, source="home", reason="reserved", step="ReserveNode", since=0.0, pod=pod, pod_uid="old",
            node=node, value="tidb/tidb/demo", deadline=until,
        )  # fmt: skip
        return self.node(
            node, taints=(reservation_taint(pod.partition("/")[2]),), annotations={RESERVED_TAINT: write_mark(mark)}
        )

    def verbs(self, policy: HomePolicy | None = None) -> Verbs:
        return Verbs(self.world, lambda: policy or HomePolicy(), lambda: self.on)

    def ask(
        self, verb: str, pod: Any, names: list[str] | None = None, policy: HomePolicy | None = None, **more: Any
    ) -> Any:
        body = {"Pod": pod, "Nodes": None, "NodeNames": names, **more}
        return json.loads(getattr(self.verbs(policy), verb)(json.dumps(body).encode()).body)


def asked(name: str, labels: Mapping[str, str] = TIDB, owner: str = "demo-tidb", namespace: str = "tidb") -> dict:
    """A pod as kube-scheduler sends it."""
    reference = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": owner,
        "uid": f"{owner}-uid",
        "controller": True,
    }
    return {"metadata": {"name": name, "namespace": namespace, "labels": dict(labels), "ownerReferences": [reference]}}


@pytest.fixture
def scenario() -> ScenarioBuilder:
    return ScenarioBuilder()


@pytest.fixture
def pod_in_request() -> Any:
    return asked
