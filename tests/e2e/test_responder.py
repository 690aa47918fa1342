"""Kubernetes' own Eviction API on a real API server of 1.37, which ships no controller for it: the test plays that (D6)."""

import asyncio
import json
from datetime import UTC, datetime

import pytest

from mooring.capabilities.drain.policy import REPLACE_FIRST
from mooring.clients.ports import EvictionBlockedError, PatchType, ThrottledError
from mooring.core.model.kinds import RESOURCES, Kind
from mooring.core.model.marks import LEAVING, RESPONDER
from mooring_lab.control.binaries import release
from tests.e2e.test_drain import Everybody
from tests.e2e.waiting import eventually

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        int(release().minor.partition(".")[2]) < 37,
        reason="before Kubernetes 1.37 there are no Evictions of lifecycle.k8s.io: make e2e K8S=1.37",
    ),
]
EVICTOR = "imperative-eviction.k8s.io/evictor"
BY = "upgrade.example.com/nodes"


class Requests(Everybody):
    """Pods are created once Mooring is asked about them; `controller` is the evictionrequest-controller."""

    async def __aenter__(self):
        await super(Everybody, self).__aenter__()
        self.node = self.nodes[0]
        await self.start()
        await eventually(self.leads, tell=self.logs)
        await eventually(self.asked, "the webhook for new pods is installed", tell=self.logs)
        return self

    async def asked(self):
        found = await self.api.get(Kind.MUTATING_WEBHOOK, "", "mooring-mix")
        names = {w["name"] for w in found["webhooks"] if w["clientConfig"].get("caBundle")}
        return "responders.mooring.dev" in names

    async def deploy(self):
        await self.api.create(Kind.DEPLOYMENT, self._workload("web", 1, {REPLACE_FIRST: "true"}))
        await eventually(self._served)
        (pod,) = await self.of("web")
        return pod

    async def _served(self):
        return await self.ready("web") == 1

    async def request(self, pod, intent="Eviction"):
        """By a person, with kubectl."""
        meta = pod["metadata"]
        body = {
            "apiVersion": RESOURCES[Kind.EVICTION].api_version,
            "kind": "EvictionRequest",
            "metadata": {"name": f"upgrade-{meta['name']}", "namespace": self.namespace},
            "spec": {
                "target": {"pod": {"name": meta["name"], "uid": meta["uid"]}},
                "requester": BY,
                "intent": intent,
            },
        }
        await asyncio.to_thread(self.lab.kubectl, "apply", "-f", "-", input=json.dumps(body))

    async def eviction(self):
        return await self.api.get(Kind.EVICTION, self.namespace, "one")

    async def said(self):
        found = (await self.eviction()).get("status", {}).get("responders", [])
        return next((one for one in found if one["name"] == RESPONDER), {})

    async def says(self, key):
        return key in await self.said()

    async def make(self, pod):
        """The controller makes an Eviction of the requests for one pod; the first responder begins."""
        meta, body = pod["metadata"], {"metadata": {"name": "one", "namespace": self.namespace}}
        target = {"pod": {"name": meta["name"], "uid": meta["uid"]}}
        await self.api.create(Kind.EVICTION, body | {"spec": {"target": target}})
        turns = [*pod["spec"]["evictionResponders"], {"name": EVICTOR, "priority": 100}]
        names = [one["name"] for one in turns]
        await self.status(
            requesters=[{"name": BY, "intent": "Eviction"}],
            targetResponders=[{**one, "state": "Inactive" if i else "Active"} for i, one in enumerate(turns)],
            responders=[{"name": name, **({} if i else {"startTime": now()})} for i, name in enumerate(names)],
        )

    async def turn(self, **states):
        """Which state each has: of Mooring, and of Kubernetes' own responder."""
        found = (await self.eviction())["status"]["targetResponders"]
        wanted = {RESPONDER: states["mooring"], EVICTOR: states["evictor"]}
        await self.status(targetResponders=[{**one, "state": wanted[one["name"]]} for one in found])

    async def status(self, **status):
        where = (Kind.EVICTION, self.namespace, "one")
        await self.api.patch(*where, {"status": status}, patch_type=PatchType.STRATEGIC, subresource="status")

    async def evicted(self, pod):
        try:
            await self.api.evict(self.namespace, pod["metadata"]["name"], uid=pod["metadata"]["uid"])
        except (ThrottledError, EvictionBlockedError):
            return False
        return True

    async def marked(self, pod):
        found = await self.pod(pod["metadata"]["name"])
        return found is not None and LEAVING in (found["metadata"].get("annotations") or {})


def now():
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def test_an_eviction_request_is_answered_with_its_replacement_first(lab, tmp_path):
    """D6, D2: the pod names Mooring when it is created; a heartbeat with words, then completed with its replacement
    Ready; Kubernetes' own responder evicts it, and the Deployment of one replica is served all the time."""
    async with Requests(lab, tmp_path) as all_:
        pod = await all_.deploy()
        assert {one["name"]: one["priority"] for one in pod["spec"]["evictionResponders"]}[RESPONDER] > 10_000
        await all_.request(pod)
        await all_.make(pod)
        least = [1]

        async def says(key):
            least[0] = min(least[0], await all_.ready("web"))
            return await all_.says(key)

        await eventually(lambda: says("heartbeatTime"), tell=all_.logs)
        await eventually(lambda: says("completionTime"), tell=all_.logs)
        assert (await all_.said())["message"]
        assert await all_.ready("web") == 2
        await all_.turn(mooring="Completed", evictor="Active")
        await eventually(lambda: all_.evicted(pod), tell=all_.logs)

        async def replaced():
            least[0] = min(least[0], await all_.ready("web"))
            return await all_.pod(pod["metadata"]["name"]) is None

        await eventually(replaced, tell=all_.logs)
        assert least[0] == 1


async def test_a_request_that_is_withdrawn_is_undone(lab, tmp_path):
    """D6: Canceled, the pod is unmarked and serves on as its Deployment's only one."""
    async with Requests(lab, tmp_path) as all_:
        pod = await all_.deploy()
        await all_.request(pod)
        await all_.make(pod)
        await eventually(lambda: all_.marked(pod), tell=all_.logs)
        await all_.request(pod, "Withdrawn")
        await all_.status(requesters=[{"name": BY, "intent": "Withdrawn"}])
        await all_.turn(mooring="Canceled", evictor="Canceled")

        async def undone():
            return not await all_.marked(pod) and len(await all_.of("web")) == 1

        await eventually(undone, tell=all_.logs)


async def test_a_pod_that_nobody_guards_names_nobody(lab, tmp_path):
    """D6: a pod that nobody guards names nobody, and its eviction passes at once."""
    async with Requests(lab, tmp_path) as all_:
        await all_.api.create(Kind.DEPLOYMENT, all_._workload("web", 1, {}))
        await eventually(all_._served)
        (pod,) = await all_.of("web")
        assert "evictionResponders" not in pod["spec"]
        assert await all_.evicted(pod)
