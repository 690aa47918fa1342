"""The webhook's certificates rotate while pods are created through it: old and new authority, new leaf, old one gone."""

import asyncio
import base64
import contextlib
import json
import re
import ssl
import time

import pytest

from mooring.kube import HttpKubeApi, Scope, load
from mooring.lab.loopback import free_ports
from mooring.model.kinds import Kind
from mooring.run.assemble import capabilities, make_pd, make_registry
from mooring.run.certificates import PEER_NAME, SETTLED_S, advance, split_bundle
from mooring.run.config import Config
from mooring.run.keeper import SECRET, SINCE
from mooring.run.replica import Replica
from mooring.run.wall import SystemChance, WallClock
from mooring.run.webhooks import NAME
from mooring.serve.webhook import WebhookServer

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]
HOOK = "pods.mooring.dev"
DAY_S = 86400


class Served:
    """One leading replica with its webhook on a port, in this process, so that its next look need not be waited for."""

    def __init__(self, lab, own, port):
        self.lab, self.own, self.port = lab, own, port

    @contextlib.asynccontextmanager
    async def running(self):
        config = Config(namespace=self.own, features={"mix": True}, webhook_url=f"https://127.0.0.1:{self.port}")
        clock, chance = WallClock(), SystemChance()
        scopes = {Kind.CONFIG_MAP: Scope(namespace=self.own)}
        async with HttpKubeApi(load(self.lab.kubeconfig), scopes=scopes) as api:
            self.api = api
            await self._place_certificates()
            self.replica = Replica(
                config,
                api,
                make_pd(clock, chance),
                clock,
                chance,
                identity="rotation",
                capabilities=capabilities(config),
                make_registry=make_registry,
            )
            server = WebhookServer(self.replica.reviewer, self.replica.front, "127.0.0.1", self.port)
            await server.start()
            task = asyncio.create_task(self.replica.run())
            try:
                yield self
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await server.stop()

    async def _place_certificates(self):
        """As an earlier leader left them."""
        self.first = made = advance(None, ["127.0.0.1"], time.time() - DAY_S)
        parts = {"ca.crt": made.bundle, "ca.key": made.authority_key, "tls.crt": made.certificate, "tls.key": made.key}
        secret = {
            "metadata": {"namespace": self.own, "name": SECRET, "annotations": {SINCE: f"{made.since:.0f}"}},
            "data": {name: base64.b64encode(text).decode() for name, text in parts.items()},
        }
        await self.api.create(Kind.SECRET, secret)

    async def bundle(self):
        """The authorities that the API server trusts now."""
        found = await self.api.get(Kind.MUTATING_WEBHOOK, "", NAME)
        return base64.b64decode(found["webhooks"][0]["clientConfig"]["caBundle"])

    async def time_passes(self):
        """The step before has settled: every API server and replica has had the time to see it."""
        patch = {"metadata": {"annotations": {SINCE: f"{time.time() - SETTLED_S - 1:.0f}"}}}
        await self.api.patch(Kind.SECRET, self.own, SECRET, patch)
        await self.replica.keeper.turn()

    async def authority_ages(self, monkeypatch):
        """Two thirds of the authority's life are over, not of the leaf's."""
        with monkeypatch.context() as aged:
            aged.setattr("mooring.run.certificates._old", lambda one, _: one.issuer == one.subject)
            await self.time_passes()


class Load:
    """Pods created through the webhook, and fresh handshakes with what the API server trusts, over and over."""

    def __init__(self, served, namespace):
        self.served, self.namespace = served, namespace
        self.created = self.shaken = 0

    async def create(self, worker):
        for number in range(100_000):
            name = f"p{worker}-{number}"
            # The label is what the match condition looks for: of a Deployment's pods.
            metadata = {"namespace": self.namespace, "name": name, "labels": {"pod-template-hash": "x"}}
            spec = {"containers": [{"name": "c", "image": "example.org/c:1"}], "schedulerName": "nobody"}
            await self.served.api.create(Kind.POD, {"metadata": metadata, "spec": spec}, dry_run=True)
            self.created += 1

    async def shake(self):
        while True:
            context = ssl.create_default_context(cadata=(await self.served.bundle()).decode())
            _, writer = await asyncio.open_connection(
                "127.0.0.1", self.served.port, ssl=context, server_hostname=PEER_NAME
            )
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()
            self.shaken += 1

    async def goes_on(self, tasks):
        """Until thirty more pods and five more handshakes have passed."""
        pods, hands = self.created + 30, self.shaken + 5
        end = time.monotonic() + 90
        while self.created < pods or self.shaken < hands:
            for task in tasks:
                if task.done():
                    task.result()
            assert time.monotonic() < end, (self.created, self.shaken)
            await asyncio.sleep(0.05)


async def calls(lab):
    """By the API server's own count: calls to our webhook by code, and how many failed and were ignored."""
    text = await asyncio.to_thread(lab.kubectl, "get", "--raw", "/metrics")
    ours = [line for line in text.splitlines() if f'name="{HOOK}"' in line]
    failed = sum(float(line.split()[-1]) for line in ours if "webhook_fail_open_count" in line)
    total = {}
    for line in ours:
        if line.startswith("apiserver_admission_webhook_request_total"):
            code = re.search(r'code="(\d+)"', line)[1]
            total[code] = total.get(code, 0) + float(line.split()[-1])
    return failed, total


async def test_certificates_rotate_under_load_without_one_failed_admission(lab, monkeypatch):
    """Each step of a rotation, with pods being created all the while: the API server counts no call that failed."""
    own, shop = lab.namespace("mooring"), lab.namespace("shop")
    (port,) = free_ports(1)
    try:
        async with Served(lab, own, port).running() as served:

            async def installed():
                found = json.loads(lab.kubectl("get", "mutatingwebhookconfigurations", "-o", "json"))["items"]
                return any(one["metadata"]["name"] == NAME for one in found)

            end = time.monotonic() + 60
            while not (await installed() and served.replica.engine.synced):
                assert time.monotonic() < end
                await asyncio.sleep(0.1)
            load_ = Load(served, shop)
            tasks = [asyncio.create_task(load_.create(n)) for n in range(3)]
            tasks.append(asyncio.create_task(load_.shake()))
            try:
                await load_.goes_on(tasks)
                before, counted = await calls(lab)
                old = await served.bundle()
                assert len(split_bundle(old)) == 1
                await served.authority_ages(monkeypatch)
                both = split_bundle(await served.bundle())
                assert len(both) == 2 and both[1] == old, "the new authority is trusted beside the old one"
                assert served.replica.front.material.certificate == served.first.certificate, "with the old leaf"
                await load_.goes_on(tasks)
                await served.time_passes()
                assert served.replica.front.material.certificate != served.first.certificate, "then the new leaf"
                assert split_bundle(await served.bundle()) == both
                await load_.goes_on(tasks)
                await served.time_passes()
                assert split_bundle(await served.bundle()) == both[:1], "and the old authority goes"
                await load_.goes_on(tasks)
                failed, total = await calls(lab)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            assert failed == before
            # Others have used the same name on this API server: only what was added counts.
            added = {
                code: count - counted.get(code, 0) for code, count in total.items() if count > counted.get(code, 0)
            }
            assert set(added) == {"200"} and added["200"] >= 90
    finally:
        hooks = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
        lab.kubectl("delete", hooks, NAME, "--ignore-not-found")
        lab.clear(own, shop)
