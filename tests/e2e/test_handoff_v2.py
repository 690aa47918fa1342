"""E12 on the real control plane: members of tidb-operator v2, owned by instances, restarted and drained one at a time."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml

import mooring_lab.control
from mooring.clients.ports import AlreadyExistsError, ConflictError, NotFoundError, PortError
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF
from mooring_lab.cluster.controllers.tidb.operator_v2 import API, cluster_v2, instances, pod_name, pod_of
from mooring_lab.cluster.pd import requests
from tests.e2e.spine_environment import Environment, pod_ready
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e
CRDS = Path(mooring_lab.control.__file__).parent / "crds" / "tidb-v2.yaml"
RESTART = "tidb.pingcap.com/restart="
#: Stands for the preStop: nothing here runs the pods, so the API server keeps one until the operator lets it go.
PRE_STOP = "example.org/pre-stop"


class V2Environment(Environment):
    def __init__(self, lab, directory, **how):
        super().__init__(lab, directory, **how)
        self.instances = instances("basic", "tikv", len(self.names))
        self.names = [pod_name(one, "tikv") for one in self.instances]
        self.ended_of_others = 0

    async def __aenter__(self):
        await asyncio.to_thread(self.lab.kubectl, "apply", "-f", str(CRDS))
        for document in yaml.safe_load_all(CRDS.read_text()):
            crd = f"crd/{document['metadata']['name']}"
            await asyncio.to_thread(self.lab.kubectl, "wait", "--for=condition=Established", crd, "--timeout=120s")
        found = await super().__aenter__()
        self.observer._leaders = lambda pod: 0  # its leaders go after the deletion: `interrupted` counts them
        self._operating = asyncio.ensure_future(self._operate())
        return found

    async def __aexit__(self, *how):
        self._operating.cancel()
        await asyncio.gather(self._operating, return_exceptions=True)
        for pod in (await self.pods()).values():
            await self._let_go(pod)
        await super().__aexit__(*how)

    # ── As the operator makes it ──────────────────────────────────────────────────────────────────────────────────

    def _tidb_cluster(self):
        return {**super()._tidb_cluster(), "metadata": {"namespace": self.namespace, "name": "elsewhere"}}

    def _stateful_set(self, component, replicas):
        return super()._stateful_set("other", 0)

    async def _all_ready(self):
        cluster = await self._cluster()
        for instance in self.instances:
            await self._make(cluster, instance)
        return await super()._all_ready()

    async def _cluster(self):
        try:
            return await self.api.get(Kind.TIDB_V2, self.namespace, "demo")
        except NotFoundError:
            made = await self.api.create(Kind.TIDB_V2, cluster_v2(self.namespace, "demo"))
        status = {"id": "", "pd": f"http://basic-pd.{self.namespace}:2379", "dropped": True}
        status["components"] = [{"kind": "TiKV", "replicas": len(self.names)}]
        patch = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "status": status}
        return await self.api.patch(Kind.TIDB_V2, self.namespace, "demo", patch, subresource="status")

    async def _make(self, cluster, instance):
        pod = pod_of(cluster, "tikv", instance)
        if await self.pod(pod["metadata"]["name"]) is not None:
            return
        where = f"/apis/{API}/namespaces/{self.namespace}/tikvs"
        try:
            owner = await self.api.raw(
                "POST", where, {"apiVersion": API, "kind": "TiKV", "metadata": {"name": instance}}
            )
        except (AlreadyExistsError, ConflictError):
            owner = await self.api.raw("GET", f"{where}/{instance}")
        pod["metadata"]["ownerReferences"][0]["uid"] = owner["metadata"]["uid"]
        pod["metadata"]["finalizers"] = [PRE_STOP]
        pod["spec"]["nodeSelector"] = {"for": self.namespace}
        try:
            await self.api.create(Kind.POD, pod)
        except AlreadyExistsError:
            return

    async def _operate(self):
        """Leaders off a pod that leaves, and no other eviction; a pod that is gone is made again."""
        server = self.placement.pd.server
        while True:
            try:
                cluster, pods = await self._cluster(), await self.pods()
                for instance, name in zip(self.instances, self.names, strict=True):
                    pod, store = pods.get(name), self.placement.pd.store_of(name).id
                    leaving = pod is not None and "deletionTimestamp" in pod["metadata"]
                    evicted = store in (server.evict_list() or ())
                    if leaving and not evicted:
                        requests.add_evict_leader(server, store)
                    elif evicted and not leaving:
                        requests.remove_evict_leader(server, store)
                    if leaving and not server.tikv.led[store]:
                        await self._let_go(pod)
                    if pod is None:
                        await self._make(cluster, instance)
            except PortError:
                pass
            await asyncio.sleep(0.2)

    async def _let_go(self, pod):
        if PRE_STOP in pod["metadata"].get("finalizers", ()):
            patch = {"metadata": {"finalizers": None, "uid": pod["metadata"]["uid"]}}
            await self.api.patch(Kind.POD, self.namespace, pod["metadata"]["name"], patch)

    async def left_overs(self):
        cluster = await self.api.get(Kind.TIDB_V2, self.namespace, "demo")
        marked = HANDOFF in cluster["metadata"].get("annotations", {})
        lock = self.placement.pd.server.lock
        return [what for what in ("mark" if marked else "", f"lock {lock}" if lock else "") if what]


async def test_two_restarts_of_v2_one_after_the_other(lab, tmp_path):
    """E12, E7: the operator's own eviction moves the leaders, none is cut off, and Mooring adds no scheduler to PD."""
    async with V2Environment(lab, tmp_path) as environment:
        cluster = await environment.api.get(Kind.TIDB_V2, environment.namespace, "demo")
        assert "dropped" not in cluster["status"] and cluster["status"]["components"], "pruned, as the schema says"
        await environment.start()
        await eventually(environment.leads, tell=environment.logs)
        uids = {name: await environment.uid(name) for name in environment.names[:2]}
        await asyncio.to_thread(lab.kubectl, "annotate", "pods", *uids, RESTART, "-n", environment.namespace)
        for name, uid in uids.items():
            await eventually(lambda name=name, uid=uid: environment.handed_over(name, uid), tell=environment.logs)
        assert environment.most_away <= 1 and environment.placement.interrupted() == 0
        assert not any("evict-leader" in write for write in environment.toll.writes)
        assert any(write.endswith(f"/clusters/{'demo'}") for write in environment.toll.writes), "marked on the Cluster"


async def test_kubectl_drain_takes_a_member_of_v2(lab, tmp_path):
    """E12, D1: the eviction is refused until it is the member's turn, then kubectl takes it, and Mooring deletes none."""
    environment = V2Environment(lab, tmp_path)
    environment.features, environment.webhook = "handoff=true,drain=true", True
    async with environment:
        await environment.start()
        await eventually(environment.leads, tell=environment.logs)

        async def hooked():
            found = await asyncio.to_thread(lab.kubectl, "get", "validatingwebhookconfigurations", "-o", "json")
            return any(one.get("webhooks") for one in json.loads(found)["items"])

        await eventually(hooked, tell=environment.logs)
        name = environment.names[0]
        before = await environment.pod(name)
        drain = ("drain", before["spec"]["nodeName"], "--ignore-daemonsets", "--timeout=300s")
        selected = ("--pod-selector", f"pingcap.com/instance={environment.instances[0]}")
        await asyncio.to_thread(lab.kubectl, *drain, *selected)
        uid = before["metadata"]["uid"]
        await eventually(lambda: environment.handed_over(name, uid), tell=environment.logs)
        assert environment.placement.interrupted() == 0
        assert not any(write.startswith("DELETE") and "/pods/" in write for write in environment.toll.writes)
        assert pod_ready(await environment.pod(name))
