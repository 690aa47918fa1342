"""The environment for a rotation as it happens in production: two replicas behind one address, and calls without end.

The replicas are processes of their own that look at the Secret every second instead of every half minute; nothing else
about them is special. The address is what a Service is: each new connection goes to the next replica that is ready.
"""

import asyncio
import base64
import contextlib
import json
import re
import ssl
import subprocess
import sys
import time

import aiohttp
import yaml
from bench.admission_restart import given_up

from mooring.capabilities.mix.descriptor import TLS_SECRET
from mooring.clients.kube import HttpKubeApi, load
from mooring.clients.ports import NotFoundError
from mooring.core.model.kinds import Kind
from mooring.process.admission.certificates import PEER_NAME, SETTLED_S, split_bundle
from mooring.process.admission.configurations import NAME
from mooring.process.admission.webhook_reconciler import SINCE
from mooring_lab.control.loopback import free_ports
from mooring_lab.demo.onlab.rig import PATIENT_S
from tests.e2e.waiting import eventually

HOOK = "pods.mooring.dev"
LAUNCH = (
    "import mooring.process.admission.webhook_reconciler as k; k.EVERY_S = 1.0; from mooring.cli import main; main()"
)
SETTINGS = {"lease-s": 5, "renew-s": 2.0, "retry-s": 0.5}


class Service:
    """One address for all replicas that are ready; plain connections, so that TLS is between its two ends."""

    def __init__(self):
        self.ports, self._turn, self._open = [], 0, set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=256)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for writer in self._open:
            writer.close()

    async def hang_up(self):
        """Every connection ends, for those on its other end too. Asked for while nothing is under way, as a server
        closes what idles."""
        for writer in self._open:
            writer.write_eof()
        while self._open:
            await asyncio.sleep(0.01)

    async def _accept(self, reader, writer):
        self._open.add(writer)
        try:
            inside, outside = await self._next()
            await asyncio.gather(_copy(reader, outside), _copy(inside, writer))
        except ConnectionError:
            pass
        finally:
            writer.close()
            self._open.discard(writer)

    async def _next(self):
        self._turn += 1
        return await asyncio.open_connection("127.0.0.1", self.ports[self._turn % len(self.ports)])


async def _copy(reader, writer):
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


class One:
    """A replica: its process, its addresses, its log."""

    def __init__(self, lab, own, directory, url, port):
        (http, extender), self.port = free_ports(2), port
        self.url, self.log = f"http://127.0.0.1:{http}", directory / f"replica-{http}.log"
        settings = directory / "settings.yaml"
        settings.write_text(yaml.safe_dump(SETTINGS))
        command = [sys.executable, "-c", LAUNCH, "run", "--kubeconfig", str(lab.kubeconfig), "--namespace", own]
        command += ["--config", str(settings), "--features", "mix=true", "--listen-http", f"127.0.0.1:{http}"]
        command += ["--listen-extender", f"127.0.0.1:{extender}", "--listen-webhook", f"127.0.0.1:{port}"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*command, "--webhook-url", url], stdout=log, stderr=log)

    def told(self, event):
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def trusts(self):
        """How many authorities it trusts by now."""
        found = self.told("webhook.certificates")
        return found[-1].get("authorities") if found else 0

    @property
    def identity(self):
        found = re.search(r"^mooring: (\S+) at http", self.log.read_text(), re.MULTILINE)
        return found[1] if found else ""

    async def leaf(self):
        """What it shows to whoever calls, in DER."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return await handshake(self.port, context)

    async def ready(self):
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self.url}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def passed_on(self):
        """How many requests it has passed on to the one that leads."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/metrics") as answer:
            found = re.search(r'mooring_admissions_total\{outcome="passed-on"\} (\S+)', await answer.text())
        return float(found[1]) if found else 0.0


async def handshake(port, context):
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=PEER_NAME)
    leaf = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        await writer.wait_closed()
    return leaf


class Pair:
    """Two replicas on a real control plane, and what the API server makes of them."""

    def __init__(self, lab, own, directory):
        self.lab, self.own, self.directory = lab, own, directory
        self.ports = free_ports(2)
        #: The one that listens on each port now, and all there ever were.
        self.on, self.every = {}, []

    async def __aenter__(self):
        self.stack = contextlib.AsyncExitStack()
        self.api = await self.stack.enter_async_context(
            HttpKubeApi(load(self.lab.kubeconfig), write_timeout_s=PATIENT_S)
        )
        self.service = await self.stack.enter_async_context(Service())
        self.url = f"https://127.0.0.1:{self.service.port}"
        for port in self.ports:
            self.start(port)
        await self.until(self.stands)
        self.service.ports += self.ports
        return self

    async def __aexit__(self, *_):
        for one in self.every:
            one.process.kill()
            one.process.wait()
        await self.stack.aclose()

    def start(self, port):
        self.on[port] = One(self.lab, self.own, self.directory, self.url, port)
        self.every.append(self.on[port])

    @property
    def alive(self):
        return list(self.on.values())

    async def until(self, holds):
        await eventually(holds, tell=lambda: "\n".join(one.log.read_text()[-2000:] for one in self.every))

    async def stands(self):
        """Both are ready, one leads, and the API server is told where."""
        if not all([await self.on[port].ready() for port in self.ports]):
            return False
        try:
            return await self.leader() is not None and len(await self.bundle()) > 0
        except NotFoundError:
            return False

    async def leader(self):
        """The living one that holds the lease, or None."""
        lease = await self.api.get(Kind.LEASE, self.own, "mooring")
        return next((one for one in self.alive if one.identity == lease["spec"].get("holderIdentity")), None)

    async def bundle(self):
        """The authorities that the API server trusts now."""
        found = await self.api.get(Kind.MUTATING_WEBHOOK, "", NAME)
        return split_bundle(base64.b64decode(found["webhooks"][0]["clientConfig"]["caBundle"]))

    async def time_passes(self):
        """The step before has settled: every API server and replica has had the time to see it."""
        patch = {"metadata": {"annotations": {SINCE: f"{time.time() - SETTLED_S - 1:.0f}"}}}
        await self.api.patch(Kind.SECRET, self.own, TLS_SECRET, patch)

    async def kill_leader(self):
        """As kill -9: nothing is given back. The other one takes over, and a new one comes in its place."""
        await self.until(self.stands)
        leader = await self.leader()
        self.service.ports.remove(leader.port)
        leader.process.kill()
        leader.process.wait()
        self.start(leader.port)
        await self.until(self.stands)
        self.service.ports.append(leader.port)


class Load:
    """Pods created through the webhook, and fresh handshakes with what the API server trusts, over and over."""

    WORKERS = 4

    def __init__(self, pair, namespace):
        self.pair, self.namespace = pair, namespace
        self.created = self.shaken = 0
        self._may, self._under_way = asyncio.Event(), 0
        self._may.set()

    async def __aenter__(self):
        self.tasks = [asyncio.create_task(self._create(number)) for number in range(self.WORKERS)]
        self.tasks.append(asyncio.create_task(self._shake()))
        return self

    async def __aexit__(self, *_):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _create(self, worker):
        # The label is what the match condition looks for: of a Deployment's pods.
        metadata = {"namespace": self.namespace, "name": f"p{worker}", "labels": {"pod-template-hash": "x"}}
        spec = {"containers": [{"name": "c", "image": "example.org/c:1"}], "schedulerName": "nobody"}
        while True:
            await self._may.wait()
            self._under_way += 1
            try:
                await self.pair.api.create(Kind.POD, {"metadata": metadata, "spec": spec}, dry_run=True)
            finally:
                self._under_way -= 1
            self.created += 1

    async def _shake(self):
        while True:
            context = ssl.create_default_context(cadata=b"".join(await self.pair.bundle()).decode())
            for port in tuple(self.pair.service.ports):
                with contextlib.suppress(ConnectionError):  # just killed
                    await handshake(port, context)
                    self.shaken += 1
            await asyncio.sleep(0.05)

    async def begins_anew(self):
        """No connection of before is used any more: the API server shakes hands again, with both."""
        self._may.clear()
        while self._under_way:
            await asyncio.sleep(0.01)
        await self.pair.service.hang_up()
        self._may.set()

    async def goes_on(self):
        """Until forty more pods and ten more handshakes have passed, and the follower has passed on some of them."""
        pods, hands = self.created + 40, self.shaken + 10
        passed = await self._passed_on()
        await self.begins_anew()

        async def enough():
            for task in self.tasks:
                if task.done():
                    task.result()
            return self.created >= pods and self.shaken >= hands and await self._passed_on() > passed

        await self.pair.until(enough)

    async def _passed_on(self):
        return sum([await one.passed_on() for one in self.pair.alive])


async def calls(lab):
    """By the API server's own count: calls to our webhook that failed (not those given up after 2 s on a machine that is
    too busy to answer), and those that were answered."""
    late, text = -1, ""
    while (now := await asyncio.to_thread(given_up, lab)) != late:  # both are of one moment, or are read again
        late, text = now, await asyncio.to_thread(lab.kubectl, "get", "--raw", "/metrics")
    ours = [line for line in text.splitlines() if f'name="{HOOK}"' in line]
    failed = sum(float(line.split()[-1]) for line in ours if "webhook_fail_open_count" in line)
    answered = sum(
        float(line.split()[-1])
        for line in ours
        if line.startswith("apiserver_admission_webhook_request_total") and 'code="200"' in line
    )
    return failed - late, answered
