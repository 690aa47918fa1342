"""An installation whose every request is known: `mooring run` as its ServiceAccount, and the API server's own audit log.

What it says passes a door that loses the answer of its first write to each kind of object, as a network may: only then
does it use the right to look whether a write has happened. The door may also play an API server that cannot stream
lists, as they were before 1.34 and are where that is switched off.
"""

import asyncio
import json
import ssl
import subprocess
import sys

import aiohttp
import yaml
from aiohttp import web

from mooring.clients.kube import load
from mooring.install.manifests import Install, manifests
from mooring.install.rights import rights_of
from mooring_lab.control.loopback import free_ports
from tests.e2e.looking import get
from tests.e2e.spine_environment import SETTINGS as IN_A_HURRY
from tests.e2e.spine_environment import Door
from tests.e2e.waiting import eventually

SETTINGS = {
    "handoff": IN_A_HURRY["handoff"],
    "mix": {"rebalance": {"settle-s": 1.0, "pause-s": 1.0}},
    "fleet": {"query-s": 1.0, "recheck-s": 0.5, "export": {"to": "secret/mooring-fleet-cluster/cluster.yml"}},
}
#: (verb, group, resource with its subresource, where): what RBAC speaks of.
Use = tuple[str, str, str, str]


def granted(features) -> set[Use]:
    found = set()
    for _, right in rights_of(features):
        for group, resource, verb in right.each():
            found.add((verb, group, resource, "own" if right.own else "all"))
    return found


class LostAnswers:
    """The first change of each kind of object is made, and its answer never arrives."""

    def __init__(self):
        self.lost = set()

    def passes(self, what, side, kill):
        method, _, path = what.partition(" ")
        words = path.split("/")
        kind = (method, words[words.index("namespaces") + 2] if "namespaces" in words[:-2] else words[4])
        # The webhook's own things are looked at every time before they are written: there is nothing to find out.
        if side == "before" or method not in {"PATCH", "POST"} or kind[1] in {"secrets", "admissionregistration"}:
            return True
        if kind in self.lost or path.endswith("/eviction"):
            return True
        self.lost.add(kind)
        return False


class OldDoor(Door):
    """No streaming lists behind this one."""

    async def _pass(self, request):
        if "sendInitialEvents" in request.query:
            status = {"kind": "Status", "status": "Failure", "reason": "BadRequest", "code": 400, "message": "unknown"}
            return web.json_response(status, status=400)
        return await super()._pass(request)


class Installation:
    """The rendered account and roles of these features in a namespace of their own, and one process with them."""

    def __init__(self, lab, directory, features):
        self.lab, self.directory, self.features = lab, directory, tuple(features)
        self.own = lab.namespace("mooring")
        self._popen = None

    async def __aenter__(self):
        wanted = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
        wanted |= {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
        install = Install(image="mooring", namespace=self.own, features=frozenset(self.features))
        found = [o for o in manifests(install) if o["kind"] in wanted]
        text = yaml.safe_dump_all(found)
        await asyncio.to_thread(self.lab.kubectl, "apply", "-f", "-", input=text)
        token = await asyncio.to_thread(self.lab.kubectl, "-n", self.own, "create", "token", "mooring")
        context = ssl.create_default_context(cadata=load(self.lab.kubeconfig).ca.read("ca"))
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        door = Door if self.features else OldDoor
        self._door = door(self.lab.apiserver, LostAnswers(), lambda: None, context)
        server = await self._door.open()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "door",
            "clusters": [{"name": "door", "cluster": {"server": server}}],
            "users": [{"name": "door", "user": {"token": token.strip()}}],
            "contexts": [{"name": "door", "context": {"cluster": "door", "user": "door"}}],
        }
        self.kubeconfig = self.directory / "account.kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(config))
        (self.directory / "settings.yaml").write_text(yaml.safe_dump(SETTINGS))
        return self

    async def __aexit__(self, *_):
        await self.stop()
        await self._door.close()
        for kind in ("clusterrole", "clusterrolebinding"):
            self.lab.kubectl("delete", kind, "mooring", "--ignore-not-found")
        hooks = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
        self.lab.kubectl("delete", hooks, "mooring-mix", "--ignore-not-found")
        policies = "validatingadmissionpolicies,validatingadmissionpolicybindings"
        self.lab.kubectl("delete", policies, "mooring-own-account", "--ignore-not-found")
        self.lab.kubectl("delete", "namespace", self.own, "--wait=false")

    async def start(self, *more):
        http, extender, webhook = free_ports(3)
        self.url = f"http://127.0.0.1:{http}"
        self.log = self.directory / "mooring.log"
        argv = [
            *(sys.executable, "-m", "mooring", "run", "--kubeconfig", str(self.kubeconfig), "--namespace", self.own),
            *("--config", str(self.directory / "settings.yaml")),
            *("--features", ",".join(f"{name}=true" for name in self.features)),
            *("--listen-http", f"127.0.0.1:{http}", "--listen-extender", f"127.0.0.1:{extender}"),
            *("--listen-webhook", f"127.0.0.1:{webhook}", "--webhook-url", f"https://127.0.0.1:{webhook}", *more),
        ]
        with self.log.open("ab") as log:
            self._popen = subprocess.Popen(argv, stdout=log, stderr=log)
        await self.until(self.decides)

    async def stop(self):
        if self._popen is not None:
            self._popen.terminate()
            code = await asyncio.to_thread(self._popen.wait, 120)
            self._popen = None
            assert code == 0, self.tell()

    async def decides(self):
        assert self._popen.poll() is None, self.tell()
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self.url}/api/v1/status") as answer:
                return (await answer.json())["deciding"]
        except aiohttp.ClientError:
            return False

    async def kubectl(self, *args, input=None):  # noqa: A002 - as Lab.kubectl calls it
        return await asyncio.to_thread(self.lab.kubectl, *args, input=input)

    async def get(self, *what):
        return await asyncio.to_thread(get, self.lab, *what)

    async def until(self, holds):
        await eventually(holds, tell=self.tell)

    def tell(self):
        return self.log.read_text()[-4000:]

    # ── What the API server says ──────────────────────────────────────────────────────────────────────────────────

    def _asked(self):
        user = f"system:serviceaccount:{self.own}:mooring"
        for line in self.lab.layout.audit.read_text().splitlines():
            entry = json.loads(line)
            ref = entry.get("objectRef", {})
            reviews = ref.get("apiGroup") in {"authorization.k8s.io", "authentication.k8s.io"}
            if entry["user"]["username"] == user and "resource" in ref and not reviews:
                yield entry, ref

    def used(self) -> set[Use]:
        """Every right that was used. `own`: only in our own namespace."""
        wheres = {}
        for entry, ref in self._asked():
            resource = "/".join(filter(None, (ref["resource"], ref.get("subresource", ""))))
            key = (entry["verb"], ref.get("apiGroup", ""), resource)
            wheres.setdefault(key, set()).add("own" if ref.get("namespace") == self.own else "all")
        return {(*key, "own" if where == {"own"} else "all") for key, where in wheres.items()}

    async def told(self):
        """Has an Event been written?"""
        return ("create", "", "events", "all") in self.used()

    def refused(self) -> list[str]:
        return [
            f"{entry['verb']} {ref['resource']} {ref.get('namespace', '')}/{ref.get('name', '')}"
            for entry, ref in self._asked()
            if entry.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid"
        ]
