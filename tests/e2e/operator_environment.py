"""A stand-in for tidb-operator v1.6's controller on a real API server, and a cluster as it and a release tool make it.

It rewrites the status from its own types (what it does not know is lost), acts on `evict-leader`, upgrades TiKV by itself
with evictions of its own, member by member, and ends evictions that it did not begin when the upgrade is over.
"""

import asyncio
import contextlib

from mooring.clients.ports import ConflictError, NotFoundError, PortError
from mooring.core.model.kinds import Kind
from tests.e2e.spine_environment import Environment, pod_ready

EVICT = "tidb.pingcap.com/evict-leader"
REVISION = "controller-revision-hash"


class ReleasedEnvironment(Environment):
    """Pods say `my-release` (Helm, Argo CD), the cluster is `demo`; its StatefulSets belong to it. PD is a real one."""

    def __init__(self, lab, directory):
        super().__init__(lab, directory, real_pd=True)
        self.operator = OperatorStandIn(self)

    def _labels(self, component):
        return {**super()._labels(component), "app.kubernetes.io/instance": "my-release"}

    def _tidb_cluster(self):
        tc = super()._tidb_cluster()
        tc["metadata"]["labels"] = {"app.kubernetes.io/instance": "my-release"}
        return tc

    async def _all_ready(self):
        part = await self.api.get(Kind.STATEFUL_SET, self.namespace, "demo-tikv")
        if not part["metadata"].get("ownerReferences"):
            tc = await self.api.get(Kind.TIDB_CLUSTER, self.namespace, "demo")
            owner = {"apiVersion": "pingcap.com/v1alpha1", "kind": "TidbCluster", "name": "demo", "controller": True}
            reference = {**owner, "uid": tc["metadata"]["uid"]}
            patch = {"metadata": {"ownerReferences": [reference]}}
            await self.api.patch(Kind.STATEFUL_SET, self.namespace, "demo-tikv", patch)
        return await super()._all_ready()

    @property
    def pd(self):
        return self.placement._client

    async def leaders(self, store_id):
        view = await self.placement.look()
        return next(s.leader_count for s in view.stores if s.id == store_id)


class OperatorStandIn:
    def __init__(self, environment):
        self._environment = environment
        self.evicting = set()
        self._upgrading = False
        self._task = None

    async def __aenter__(self):
        self._task = asyncio.ensure_future(self._run())
        return self

    async def __aexit__(self, *_):
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def upgrade(self):
        """A new image, held back until each member's leaders have left."""
        template = {"spec": {"containers": [{"name": "tikv", "image": "example.org/tikv:2"}]}}
        spec = {"template": template, "updateStrategy": partition(3)}
        await self._environment.api.patch(Kind.STATEFUL_SET, self._environment.namespace, "demo-tikv", {"spec": spec})

    async def is_upgraded(self):
        status = (await self._environment.api.get(Kind.STATEFUL_SET, self._environment.namespace, "demo-tikv"))[
            "status"
        ]
        return status["currentRevision"] == status["updateRevision"]

    async def _run(self):
        while True:
            with contextlib.suppress(PortError):  # it tries again, as a controller does
                await self._sync()
            await asyncio.sleep(0.5)

    async def _sync(self):
        api, namespace = self._environment.api, self._environment.namespace
        tc = await api.get(Kind.TIDB_CLUSTER, namespace, "demo")
        part = await api.get(Kind.STATEFUL_SET, namespace, "demo-tikv")
        status = part.get("status") or {}
        upgrading = status.get("currentRevision") != status.get("updateRevision")
        if self._upgrading and not upgrading:
            for store_id in await self._environment.placement.evicting() or ():
                await self._environment.pd.remove_evict_leader(store_id)
        self._upgrading = upgrading
        known = (tc.get("status") or {}).get("tikv", {}).get("evictLeader") or {}
        entries = await self._act_on_annotations(known)
        mine = {"tikv": {"phase": "Upgrade" if upgrading else "Normal", "evictLeader": entries}}
        if tc.get("status") != mine:
            try:
                await api.replace(Kind.TIDB_CLUSTER, {**tc, "status": mine})
            except ConflictError:
                return
        if upgrading:
            await self._upgrade(part, str(status["updateRevision"]))

    async def _store_of(self, name):
        stores = (await self._environment.pd.observe()).stores
        return next((store for store in stores if store.pod_name == name), None)

    async def _act_on_annotations(self, known):
        entries = dict(known)
        for name in self._environment.names:
            pod = await self._environment.pod(name)
            value = ((pod or {}).get("metadata", {}).get("annotations") or {}).get(EVICT)
            store = await self._store_of(name)
            if value in {"none", "delete-pod"} and store is not None:
                entries[name] = {"podCreateTime": pod["metadata"]["creationTimestamp"], "value": value}
                await self._environment.pd.add_evict_leader(store.id)
            elif name in entries and store is not None:
                await self._environment.pd.remove_evict_leader(store.id)
                del entries[name]
        return entries

    async def _upgrade(self, part, revision):
        for ordinal in (2, 1, 0):
            name = f"demo-tikv-{ordinal}"
            pod, store = await self._environment.pod(name), await self._store_of(name)
            if pod is None or store is None or "deletionTimestamp" in pod["metadata"]:
                return
            if pod["metadata"]["labels"].get(REVISION) == revision:
                if not pod_ready(pod) or store.state != "Up":
                    return
                if store.id in self.evicting:
                    self.evicting.discard(store.id)
                    await self._environment.pd.remove_evict_leader(store.id)
                continue
            self.evicting.add(store.id)
            await self._environment.pd.add_evict_leader(store.id)
            if store.leader_count == 0:
                spec = {"spec": {"updateStrategy": partition(ordinal)}}
                try:
                    await self._environment.api.patch(Kind.STATEFUL_SET, self._environment.namespace, "demo-tikv", spec)
                except NotFoundError:
                    return
            return


def partition(ordinal):
    return {"type": "RollingUpdate", "rollingUpdate": {"partition": ordinal}}
