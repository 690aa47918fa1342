"""Others drain a node, on a real API server with the real kubectl: it ends by itself, and nothing is lost (D1, D2)."""

import asyncio

import pytest

from mooring.capabilities.drain.policy import REPLACE_FIRST
from mooring.core.model.kinds import Kind
from tests.e2e.spine_environment import Environment, pod_ready
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e


class Everybody(Environment):
    """TiKV, PD and, on a node with a member of each, one of everything that a drain meets."""

    features = "handoff=true,drain=true"
    webhook = True

    async def __aenter__(self):
        await super().__aenter__()
        pods = await self.pods()
        on = {name: pods[name]["spec"]["nodeName"] for name in (*self.names, *self.pd_pods)}
        #: Three members of each on four nodes: one at least has both.
        self.tikv, self.pd = next(
            (tikv, pd)
            for tikv in self.names
            for pd in (*self.pd_pods, "")
            if not self.pd_pods or on[tikv] == on.get(pd)
        )
        self.node = on[self.tikv]
        first = {REPLACE_FIRST: "true"}
        await self.api.create(Kind.DEPLOYMENT, self._workload("web", 1, first))
        await self.api.create(Kind.STATEFUL_SET, self._workload("db", 2, first, serviceName="db"))
        budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
        await self.api.create(Kind.PDB, {"metadata": self._named("web"), "spec": budget})
        await self.api.create(Kind.DAEMON_SET, self._workload("agent", None, {}))
        bare = {"metadata": self._named("bare"), "spec": self._spec("bare") | {"nodeName": self.node}}
        await self.api.create(Kind.POD, bare)
        await eventually(self._stands, "all of them are Ready")
        return self

    def _named(self, name, annotations=None):
        return {"namespace": self.namespace, "name": name, "annotations": annotations or {}, "labels": {"app": name}}

    def _spec(self, name):
        here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [self.node]}]}
        prefer = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": here}]}
        return {
            "terminationGracePeriodSeconds": 2,
            "nodeSelector": {"for": self.namespace},
            "affinity": {"nodeAffinity": prefer},
            "containers": [{"name": name, "image": f"example.org/{name}:1"}],
        }

    def _workload(self, name, replicas, annotations, **more):
        spec = {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": self._spec(name)},
            **more,
        }
        return {"metadata": self._named(name, annotations), "spec": spec | ({"replicas": replicas} if replicas else {})}

    async def of(self, app):
        return [p for p in (await self.pods()).values() if p["metadata"]["labels"].get("app") == app]

    async def ready(self, app):
        return sum(pod_ready(p) and "deletionTimestamp" not in p["metadata"] for p in await self.of(app))

    async def _stands(self):
        return await self.ready("web") == 1 and await self.ready("db") == 2 and await self.ready("bare") == 1

    async def asked(self):
        """The API server asks us about evictions."""
        found = await self.api.get(Kind.VALIDATING_WEBHOOK, "", "mooring-mix")
        return any(w["clientConfig"].get("caBundle") for w in found["webhooks"])


async def test_kubectl_drain_ends_by_itself_and_nothing_is_lost(lab, tmp_path):
    """D1, D2: TiKV, the leader of PD, the only replica of a Deployment under `minAvailable: 1`, a StatefulSet, a
    DaemonSet, a bare pod: no leader is cut off, PD's leadership is handed on first, the Deployment is served all the
    time, the StatefulSet misses one at a time, and we delete nothing."""
    async with Everybody(lab, tmp_path, pd_pods=3) as all_:
        all_.placement.pd.hand_over(all_.pd)
        await all_.start()
        await eventually(all_.leads, tell=all_.logs)
        await eventually(all_.asked, "the webhook is installed", tell=all_.logs)
        least = {"web": 1, "db": 2}
        generation = (await all_.api.get(Kind.DEPLOYMENT, all_.namespace, "web"))["metadata"]["generation"]
        uid = await all_.uid(all_.tikv)
        await eventually(lambda: all_.placement.pd.leader == all_.pd, "its PD member leads")
        drain = asyncio.ensure_future(
            asyncio.to_thread(lab.kubectl, "drain", all_.node, "--ignore-daemonsets", "--force", "--timeout=600s")
        )
        while not drain.done():
            for app in least:
                least[app] = min(least[app], await all_.ready(app))
            await asyncio.sleep(0.3)
        drain.result()
        assert least["web"] == 1
        assert least["db"] >= 1
        assert any("leader/transfer" in write for write in all_.toll.writes)
        assert all_.placement.pd.leader != all_.pd
        left = [
            p["metadata"]["labels"].get("app")
            for p in (await all_.pods()).values()
            if p["spec"]["nodeName"] == all_.node
        ]
        assert left == ["agent"]
        assert all_.placement.interrupted() == 0
        assert (await all_.api.get(Kind.DEPLOYMENT, all_.namespace, "web"))["metadata"]["generation"] == generation
        assert not [
            write for write in all_.toll.writes if "eviction" in write or write.startswith("DELETE /api/v1/namespaces")
        ]
        await eventually(lambda: all_.handed_over(all_.tikv, uid), tell=all_.logs)
