"""A rolling restart of our two replicas on a real API server under 10 pods a second: how many pods are unpatched?

    python -m bench admission_restart

As a Deployment with our manifest does it (maxSurge 1, maxUnavailable 1): a replica leaves the Service, gets SIGTERM
after its preStop of 5 s, and its successor is started meanwhile; the other one follows when that is Ready. The Service
is of type ExternalName and leads to a proxy on loopback, port 443, which does what kube-proxy does: a new connection
goes to a replica that was Ready a second ago, an old one stays. Needs the lab's programs (`make e2e`) and the right to
listen on port 443. The controller-manager is stopped, so that only this bench creates pods.
"""

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

from bench.admission_lab import deployment, found

RATE, ROUNDS = 10.0, 2
#: kubelet's preStop, as in our manifest; and how long a change takes to reach kube-proxy.
PRE_STOP_S, SPREAD_S = 5.0, 1.0


def main() -> None:
    from mooring_lab.control.binaries import find, release
    from mooring_lab.control.cluster import Lab
    from mooring_lab.control.errors import LabError

    with tempfile.TemporaryDirectory(prefix="mooring-bench-") as directory:
        try:
            lab = Lab.up(Path(directory) / "lab", find(release()), foreground=True)
        except LabError as error:
            print(f"admission_restart: the real control plane cannot be started: {error}")
            return
        try:
            found = asyncio.run(measure(lab, ROUNDS))
        except PermissionError as error:
            print(f"admission_restart: port 443 on loopback: {error}")
            return
        finally:
            lab.down()
    print(f"{2 * ROUNDS} replicas restarted one after the other, {RATE:g} pods a second")
    print(f"  pods created   {found.created:>6,}")
    print(f"  without patch  {found.unpatched:>6,}   target 0   {'TOO MANY' if found.unpatched else 'ok'}")
    print(f"  calls given up by the API server after its 2 s: {found.late}; failed otherwise: {found.refused}")


class Replica:
    numbers = itertools.count(1)

    def __init__(self, lab, own: str) -> None:
        from mooring_lab.control.loopback import free_ports

        http, self.port, extender = free_ports(3)
        self.url = f"http://127.0.0.1:{http}"
        command = [sys.executable, "-m", "mooring", "run", "--kubeconfig", str(lab.kubeconfig)]
        command += ["--features", "mix=true", "--namespace", own, "--listen-http", f"127.0.0.1:{http}"]
        command += ["--listen-webhook", f"127.0.0.1:{self.port}", "--listen-extender", f"127.0.0.1:{extender}"]
        with (lab.dir / "logs" / f"restart-{next(self.numbers)}.log").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def _ask(self, path: str) -> dict | None:
        try:
            with urllib.request.urlopen(self.url + path, timeout=3) as answer:
                return json.load(answer) if path.startswith("/api") else {}
        except OSError:
            return None

    async def ready(self) -> bool:
        return await asyncio.to_thread(self._ask, "/readyz") is not None

    async def leads(self) -> bool:
        return bool((await asyncio.to_thread(self._ask, "/api/v1/status") or {}).get("leading"))


class Service:
    """Where new connections go."""

    def __init__(self) -> None:
        self.members: list[Replica] = []
        self._turn = itertools.count()
        self._server: asyncio.Server | None = None
        #: An address of loopback of our own: nobody else on this machine listens on its port 443.
        self.address = f"127.{os.getpid() // 65536 % 128 + 64}.{os.getpid() // 256 % 256}.{os.getpid() % 254 + 1}"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._carry, self.address, 443)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.members:
            writer.close()
            return
        there = self.members[next(self._turn) % len(self.members)]
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", there.port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pipe(reader, far_writer), _pipe(far_reader, writer))


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


def _failed(lab) -> list[str]:
    """What the API server says about calls about pods that it went on without."""
    told = (lab.dir / "logs" / "kube-apiserver.log").read_text(errors="replace").splitlines()
    return [line for line in told if "failing open pods.mooring.dev" in line]


def given_up(lab) -> int:
    """Calls about pods that the API server has given up after its 2 s, by its own log."""
    return sum("deadline exceeded" in line or "i/o timeout" in line for line in _failed(lab))


class Outcome(NamedTuple):
    """`late`: calls that the API server gave up after its 2 s: on a machine that is busy enough nobody answers in time.
    `refused`: calls that failed in another way, such as a connection that a replica behind the Service closed."""

    created: int
    unpatched: int
    late: int
    refused: int


async def measure(lab, rounds: int = 1) -> Outcome:
    service, own, namespace = Service(), lab.namespace("mooring"), lab.namespace("bench")
    replicas: list[Replica] = []
    late, failed = given_up(lab), len(_failed(lab))
    await service.open()
    try:
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": own, "name": "mooring-webhook"}}
        spec = {"type": "ExternalName", "externalName": service.address}
        lab.kubectl("apply", "-f", "-", input=json.dumps(body | {"spec": spec}))
        owner = await _owner(lab, namespace)
        replicas += [Replica(lab, own), Replica(lab, own)]
        for one in replicas:
            await _until(one.ready, "Ready")
        service.members = list(replicas)
        await found(lambda: "mooring-mix" in lab.kubectl("get", "mutatingwebhookconfigurations", "-o", "name"))
        load = Load(lab, namespace, owner)
        await load.until_patched()
        creating = asyncio.create_task(load.run())
        await asyncio.sleep(2.0)
        for _ in range(rounds):
            await _roll(lab, own, service, replicas)
        await asyncio.sleep(5.0)
        assert not creating.done(), creating.exception()
        creating.cancel()
        await asyncio.wait([creating])
        created, unpatched = load.count()
        late = given_up(lab) - late
        return Outcome(created, unpatched, late, len(_failed(lab)) - failed - late)
    finally:
        service.close()
        for one in replicas:
            one.process.terminate()
        for one in replicas:
            await asyncio.to_thread(one.process.wait, 30)
        lab.kubectl("delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "mooring-mix")
        lab.start("kube-controller-manager")
        lab.clear(namespace, own)


async def _roll(lab, own: str, service: Service, replicas: list[Replica]) -> None:
    """The leader first: its successor must take over from it."""
    old = sorted(replicas, key=lambda one: one not in service.members)
    if await old[1].leads():
        old.reverse()
    fresh = [Replica(lab, own), Replica(lab, own)]
    replicas += fresh
    for leaving, coming in zip(old, fresh, strict=True):
        parting = asyncio.create_task(_part(service, leaving))
        await _until(coming.ready, "Ready")
        await asyncio.sleep(SPREAD_S)
        service.members.append(coming)
        await parting
        replicas.remove(leaving)


async def _part(service: Service, leaving: Replica) -> None:
    await asyncio.sleep(SPREAD_S)
    service.members.remove(leaving)
    await asyncio.sleep(PRE_STOP_S - SPREAD_S)
    leaving.process.terminate()
    await asyncio.to_thread(leaving.process.wait, 30)


async def _until(holds, what: str, limit_s: float = 120.0) -> None:
    end = time.monotonic() + limit_s
    while not await holds():
        assert time.monotonic() < end, f"not within {limit_s:g} s: {what}"
        await asyncio.sleep(0.2)


async def _owner(lab, namespace: str) -> dict:
    """A ReplicaSet that is switched on and wants more pods than will be created; nobody else creates any."""

    def sets() -> list:
        return json.loads(lab.kubectl("get", "replicasets", "-n", namespace, "-o", "json"))["items"]

    body = deployment("ours")
    body["metadata"]["namespace"] = namespace
    lab.kubectl("apply", "-f", "-", input=json.dumps(body))
    (owner,) = await found(sets)
    lab.stop("kube-controller-manager")
    many = json.dumps({"spec": {"replicas": 5000}})
    for kind, name in (("replicaset", owner["metadata"]["name"]), ("deployment", "ours")):
        lab.kubectl("patch", kind, name, "-n", namespace, "-p", many)
    return owner


class Load:
    def __init__(self, lab, namespace: str, owner: dict) -> None:
        self._lab = lab
        self._namespace = namespace
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True}
        self._owner = reference | {key: owner["metadata"][key] for key in ("name", "uid")}

    def _pod(self, name: str) -> dict:
        meta = {"namespace": self._namespace, "name": name, "labels": {"app": "ours", "pod-template-hash": "1"}}
        spec = {"containers": [{"name": "c", "image": "x"}], "schedulerName": "nobody"}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta | {"ownerReferences": [self._owner]}}
        return body | {"spec": spec}

    async def until_patched(self) -> None:
        """The API server follows its configurations by a watch: ask until it asks us."""
        numbers = itertools.count()

        async def patched() -> bool:
            pod = json.dumps(self._pod(f"probe-{next(numbers)}"))
            said = await asyncio.to_thread(self._lab.kubectl, "create", "-f", "-", "-o", "json", input=pod)
            return "vacant.io/affinity" in json.loads(said)["metadata"]["labels"]

        await _until(patched, "the API server asks us")

    async def run(self) -> None:
        from mooring.clients.kube import HttpKubeApi, load
        from mooring.clients.ports import UnansweredError
        from mooring.core.model.kinds import Kind

        async with HttpKubeApi(load(str(self._lab.kubeconfig))) as api, asyncio.TaskGroup() as group:

            async def create(number: int) -> None:
                with contextlib.suppress(UnansweredError):
                    await api.create(Kind.POD, self._pod(f"load-{number}"))

            began = time.monotonic()
            for number in itertools.count():
                await asyncio.sleep(max(0.0, began + number / RATE - time.monotonic()))
                group.create_task(create(number))

    def count(self) -> tuple[int, int]:
        listed = json.loads(self._lab.kubectl("get", "pods", "-n", self._namespace, "-o", "json"))["items"]
        labels = [p["metadata"]["labels"] for p in listed if p["metadata"]["name"].startswith("load-")]
        return len(labels), sum("vacant.io/affinity" not in one for one in labels)


if __name__ == "__main__":
    main()
