"""Informers on a real API server that is killed and restarted, with its etcd compacted and things deleted meanwhile."""

import asyncio
import os
import random
import subprocess
import time

import pytest

from mooring.clients.kube import HttpKubeApi, Informer, InformerSet, Scope, load
from mooring.clients.ports import RefusedError
from mooring.core.model.events import Gone, Listed, Seen
from mooring.core.model.kinds import RESOURCES, Kind, Resource
from mooring_lab.demo.onlab.rig import PATIENT_S
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e


class RealClock:
    now, monotonic = staticmethod(time.time), staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Dice(random.Random):
    def token(self, length: int = 8) -> str:
        return f"{self.getrandbits(4 * length):0{length}x}"


class Told:
    """What a world would know that only listens."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}
        self.gone: list[str] = []
        self.lists = 0

    def __call__(self, event) -> None:
        match event:
            case Listed():
                self.lists += 1
                now = {o.name: o.resource_version for o in event.objects}
                self.gone += sorted(set(self.known) - set(now))
                self.known = now
            case Seen():
                self.known[event.object.name] = event.object.resource_version
            case Gone():
                self.known.pop(event.key.name)
                self.gone.append(event.key.name)


class Gate:
    """The real API behind a network that can be cut: no watch starts while it is shut. Pages only, on demand."""

    def __init__(self, api, *, pages: bool) -> None:
        self.api, self.pages = api, pages
        self.open = asyncio.Event()
        self.open.set()

    async def list(self, kind, **more):
        await self.open.wait()
        return await self.api.list(kind, **more)

    async def watch(self, kind, **more):
        await self.open.wait()
        if self.pages and more.get("initial_events"):
            raise RefusedError(
                "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled", 422
            )
        async for event in self.api.watch(kind, **more):
            yield event


@pytest.fixture
def namespace(lab):
    name = lab.namespace("informer")
    yield name
    lab.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(params=["watch-list", "pages"])
async def followed(lab, namespace, request):
    """An informer of the namespace's ConfigMaps, synced, with three of them there."""
    scopes = {Kind.CONFIG_MAP: Scope(namespace=namespace, label_selector="test=informer")}
    async with HttpKubeApi(load(lab.kubeconfig), scopes=scopes, write_timeout_s=PATIENT_S) as api:
        for name in "abc":
            await make(api, namespace, name)
        told, gate = Told(), Gate(api, pages=request.param == "pages")
        informer = Informer(gate, Kind.CONFIG_MAP, told, RealClock(), Dice(1))
        several = InformerSet([informer])
        assert not several.synced
        task = asyncio.create_task(several.run())
        await eventually(lambda: several.synced)
        assert sorted(told.known) == ["a", "b", "c"]
        assert told.gone == []
        yield api, told, gate, informer
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def make(api, namespace, name):
    meta = {"namespace": namespace, "name": name, "labels": {"test": "informer"}}
    return await api.create(Kind.CONFIG_MAP, {"metadata": meta, "data": {}})


async def in_a_thread(function, *args):
    """The lab's calls block; the informer must go on meanwhile."""
    return await asyncio.get_running_loop().run_in_executor(None, function, *args)


def delete_in_etcd(lab, namespace, name):
    """With the API server down, only etcd itself can forget something."""
    env = {**os.environ, "ETCDCTL_ENDPOINTS": lab.etcd}
    key = f"/registry/configmaps/{namespace}/{name}"
    out = subprocess.run([lab.binaries["etcdctl"], "del", key], env=env, check=True, capture_output=True, text=True)
    assert out.stdout.strip() == "1"


async def test_every_change_is_seen(followed, namespace):
    """A hundred patches, an addition, a deletion: all of it arrives, without a second list."""
    api, told, _, informer = followed
    for n in range(100):
        patched = await api.patch(Kind.CONFIG_MAP, namespace, "a", {"data": {"n": str(n)}})
    await make(api, namespace, "d")
    await api.delete(Kind.CONFIG_MAP, namespace, "b")
    await eventually(lambda: told.gone == ["b"])
    assert sorted(told.known) == ["a", "c", "d"]
    assert told.known["a"] == patched["metadata"]["resourceVersion"]
    assert informer.stats.events == 102
    assert told.lists == 1


async def test_what_was_deleted_while_the_api_server_was_dead_is_reported(lab, followed, namespace):
    """M7: kill -9, a deletion behind its back, a restart: the deletion is told, and the next write is seen."""
    api, told, _, informer = followed
    await in_a_thread(lab.kill, "kube-apiserver")
    await eventually(lambda: informer.stats.failures > 0)
    assert informer.synced
    delete_in_etcd(lab, namespace, "b")
    await in_a_thread(lab.start, "kube-apiserver")
    await eventually(lambda: told.gone == ["b"])
    await make(api, namespace, "d")
    await eventually(lambda: sorted(told.known) == ["a", "c", "d"])
    assert informer.stats.last_error == ""


async def test_a_compacted_history_is_a_relist_with_its_deletes(lab, followed, namespace):
    """M7: cut off, meanwhile things went, etcd forgot how, and the server restarted: 410, relist, deletes told."""
    api, told, gate, informer = followed
    gate.open.clear()
    await in_a_thread(lab.kill, "kube-apiserver")  # ends the running stream
    await in_a_thread(lab.start, "kube-apiserver")
    await api.delete(Kind.CONFIG_MAP, namespace, "a")
    await api.delete(Kind.CONFIG_MAP, namespace, "c")
    await make(api, namespace, "d")
    await in_a_thread(lab.etcd_compact)
    await in_a_thread(lab.restart, "kube-apiserver")
    assert told.gone == []
    syncs = informer.stats.syncs
    gate.open.set()
    await eventually(lambda: told.gone == ["a", "c"])
    assert sorted(told.known) == ["b", "d"]
    assert informer.stats.syncs == syncs + 1
    await api.delete(Kind.CONFIG_MAP, namespace, "d")
    await eventually(lambda: told.gone == ["a", "c", "d"])


class QuickClock(RealClock):
    """Half a minute's patience in two seconds."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 15)


async def test_a_kind_that_is_not_installed_is_empty_until_it_is_there(lab, namespace, monkeypatch):
    """No such CRD: ready all the same, and empty; found once it is installed; empty again once it is removed."""
    # A group of this test's own, so that it does not matter what else is installed.
    monkeypatch.setitem(RESOURCES, Kind.TIDB_CLUSTER, Resource("informer.test", "v1alpha1", "tidbclusters"))
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": schema}
    names = {"plural": "tidbclusters", "singular": "tidbcluster", "kind": "TidbCluster"}
    crd = {
        "metadata": {"name": "tidbclusters.informer.test"},
        "spec": {"group": "informer.test", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    told = Told()
    async with HttpKubeApi(load(lab.kubeconfig), write_timeout_s=PATIENT_S) as api:
        informer = Informer(api, Kind.TIDB_CLUSTER, told, QuickClock(), Dice(1))
        task = asyncio.create_task(informer.run())
        await eventually(lambda: informer.synced)
        assert told.known == {}
        await api.create(Kind.CRD, crd)
        try:
            await eventually(lambda: informer.stats.last_error == "")
            await api.create(Kind.TIDB_CLUSTER, {"metadata": {"namespace": namespace, "name": "demo"}})
            await eventually(lambda: list(told.known) == ["demo"])
        finally:
            await api.delete(Kind.CRD, "", "tidbclusters.informer.test")
        await eventually(lambda: told.gone == ["demo"])
        await eventually(lambda: informer.stats.last_error.endswith("404 page not found"))
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
