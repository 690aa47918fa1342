"""Worked examples of the one queue, by name, and the designs' own commands, on the real control plane.

Examples 1 and 6 are in `test_handoff.py` and `test_spine.py`.

`mooring run` as it is, in this process; real API server, scheduler and controller manager; PD and the machine registry
are the sandbox's, over HTTP. The environment is the demo's (`rehearse/onlab`), on the tests' shared lab.
"""

import asyncio
import contextlib
import shlex
import signal
import subprocess
import time
from pathlib import Path

import aiohttp
import msgspec
import pytest
from aiohttp import web

import mooring_lab.control
from mooring.capabilities.balance import BalancePolicy
from mooring.capabilities.fleet.live import ledger, settings
from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.capabilities.fleet.planner import keys
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.mix.labels import AFFINITY, CUSTOM, ENABLED
from mooring.clients.kube import load
from mooring.clients.ports import PortError, RefusedError
from mooring.core.engine.why import explain
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring.process.settings.config import Config
from mooring_lab.cluster.clock import Timeline, WallDriver
from mooring_lab.cluster.controllers import manifests, podstate
from mooring_lab.cluster.controllers.tidb.manifests import tidb_cluster
from mooring_lab.cluster.nodes import node_object
from mooring_lab.cluster.pd import PdSettings, SandboxPd
from mooring_lab.cluster.pd.http import pd_app
from mooring_lab.cluster.pd.requests import take_offline
from mooring_lab.cluster.sabakan.http import sabakan_app
from mooring_lab.control import loopback
from mooring_lab.demo.onlab.rig import LabRig
from mooring_lab.stage.scenarios.fleet import (
    TEMPLATE,
    cordoned,
    pods_on,
    register_nodes,
    roles_by_address,
    stored,
    taints_of,
)
from mooring_lab.stage.scenarios.mix import NAMESPACE as SHOP
from mooring_lab.stage.scenarios.mix import given, left_behind, serving, slow_template, switched_on, uids
from tests.e2e import spine_environment
from tests.e2e.observer import Observer
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e

CRD = Path(mooring_lab.control.__file__).parent / "crds" / "tidbcluster.yaml"
FAIL = "lab.mooring.dev/fail"
TIDB, DEMO = "tidb", "demo"
PD = PdSettings(store_heartbeat_s=1.0, reconnect_s=(0.5, 1.0), collect_every_s=0.5, election_s=(1.0, 2.0))
#: Nothing moves for this long: then it does not move.
STILL_S = 4.0


class Environment:
    """Nodes of our own, one Mooring with these features, and whatever an example puts there; all gone afterwards."""

    def __init__(self, lab, *policies, **config):
        self.lab = lab
        self.nodes = []
        extender, webhook, http = loopback.free_ports(3)
        self._beside = contextlib.AsyncExitStack()
        self.rig = LabRig(
            load(lab.kubeconfig),
            Config(
                namespace=lab.namespace("examples"),
                listen_http=f"127.0.0.1:{http}",
                listen_extender=f"127.0.0.1:{extender}",
                listen_webhook=f"127.0.0.1:{webhook}",
                webhook_url=f"https://127.0.0.1:{webhook}",
                policies=(HandoffPolicy(recheck_s=0.7, prove_s=0.5, young_pd_s=3.0, election_s=2.0), *policies),
                lease_s=10,
                **config,
            ),
            Timeline(time.time()),
        )
        self.cluster = self.rig.cluster

    async def __aenter__(self):
        driving = asyncio.ensure_future(WallDriver(self.cluster.timeline).run())
        self._beside.callback(driving.cancel)
        await self.kubectl(f"kubectl apply -f {CRD}")
        await self.kubectl("kubectl wait --for=condition=Established crd/tidbclusters.pingcap.com --timeout=180s")
        for namespace in (SHOP, TIDB):
            await self.rig.api.create(Kind.NAMESPACE, {"metadata": {"name": namespace}})
        self.rig.mirror.follow()
        await self.rig.mirror.synced()
        fleet = self.rig.config.policy(FleetPolicy).retire_timeout_s
        self.observer = Observer(self.lab, leaders=self._leaders, retire_timeout_s=fleet)
        await asyncio.to_thread(self.observer.__enter__)
        return self

    def _leaders(self, pod):
        pd = self.cluster.pd[TIDB, DEMO]
        store = pd.store_of(pod)
        return len(pd.server.tikv.led[store.id]) if store is not None else 0

    async def __aexit__(self, kind, *_):
        self.observer.stop()
        await self.rig.process.stop()
        await self._beside.aclose()
        await self.kubectl(f"kubectl delete namespace {SHOP} {TIDB} {self.rig.config.namespace} --timeout=180s")
        if self.nodes:
            await self.kubectl(f"kubectl delete node {' '.join(self.nodes)} --ignore-not-found")
        await self.rig.mirror.close()
        await self.rig.api.close()
        if kind is None:
            self.observer.judge()

    async def until(self, holds, **how):
        def alive_and_holds():
            self.rig.process.check()
            return holds()

        await eventually(alive_and_holds, tell=self.rig.story, **how)

    async def kubectl(self, command):
        """As a person types it."""
        return await asyncio.to_thread(self.lab.kubectl, *shlex.split(command)[1:])

    async def add_nodes(self, prefix, count, **how):
        names = [f"{prefix}{number}" for number in range(count)]
        for name in names:
            obj = node_object(name, len(self.nodes), time.time(), labels={"for": "examples"}, **how)
            self.nodes.append(name)
            await self.rig.api.create(Kind.NODE, obj)
        await self.until(lambda: all(self._usable(name) for name in names))
        return names

    def _usable(self, name):
        found = self.rig.mirror.find(Kind.NODE, "", name)
        return found is not None and podstate.ready(found) and not found["spec"].get("taints")

    async def start(self):
        self.rig.process.start()
        await self.until(self.rig.leads)
        if "mix" in self.rig.config.on():
            await eventually(self._asked, "the API server asks us")

    async def _asked(self):
        """Does the API server ask us about workloads already?"""
        wrong = manifests.deployment(SHOP, "probe", 1, manifests.pod_template({"app": "probe"}), labels={ENABLED: "x"})
        try:
            await self.rig.api.create(Kind.DEPLOYMENT, wrong, dry_run=True)
        except RefusedError as refused:
            return ENABLED in str(refused)
        except PortError:
            return False
        return False

    async def deploy(self, name, replicas, labels=None, *, start_s=1.0, **spec):
        template = slow_template(name, start_s, grace_s=1, nodeSelector={"for": "examples"}, **spec)
        await self.rig.api.create(
            Kind.DEPLOYMENT, manifests.deployment(SHOP, name, replicas, template, labels=labels or {})
        )
        await self.until(lambda: self.ready(SHOP, name) == replicas)

    def ready(self, namespace, name):
        try:
            return self.cluster.ready(namespace, name)
        except LookupError:
            return 0

    async def tikv(self, members=3, regions=24):
        """A TidbCluster of TiKV members alone, and its PD."""
        pd = SandboxPd(self.cluster.timeline, seed=3, cluster=DEMO, namespace=TIDB, settings=PD)
        url = await self.serve(pd_app(pd))
        pd.urls = dict.fromkeys(pd.urls, url)
        self.cluster.pd[TIDB, DEMO] = pd
        self.rig.process.use_pd(f"{TIDB}/{DEMO}", url)
        spec = {"replicas": members, "nodeSelector": {"for": "examples"}}
        made = tidb_cluster(TIDB, DEMO, scheduler="default-scheduler", tikv=spec)
        await self.rig.api.create(Kind.TIDB_CLUSTER, made)
        await self.until(lambda: self.ready(TIDB, f"{DEMO}-tikv") == members)
        await self.until(lambda: len(pd.server.tikv.stores) == members)
        pd.load(regions)
        return pd

    async def serve(self, app):
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        self._beside.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return site.name

    def why(self, subject):
        leader = self.rig.leader()
        return explain(leader.engine, subject) if leader is not None else None

    def waiting(self, source):
        leader = self.rig.leader()
        return [o for o in leader.engine.waiting.values() if o.source == source] if leader is not None else []


async def test_worked_example_2_a_fact_parks_a_move_and_the_cure_is_not_blocked_by_its_disease(lab):
    """Worked example 2, M5: parked while another pod is not Ready, run when it is; the broken one itself at once."""
    async with Environment(lab, features={"mix": True}) as environment:
        await environment.add_nodes("exn", 2, capacity="on-demand")
        await environment.add_nodes("exs", 2, capacity="spot")
        await environment.start()
        await environment.deploy("web", 5, switched_on("custom", 2))
        rig, before = environment.rig, uids(environment.rig, "web")
        pods = {p["metadata"]["name"]: podstate.labels_of(p)[AFFINITY] for p in environment.cluster.pods(SHOP, "web")}
        healthy = next(name for name, given_class in sorted(pods.items()) if given_class == "on-demand")
        await environment.kubectl(f"kubectl -n {SHOP} annotate pod {healthy} {FAIL}=ready")
        await environment.until(lambda: environment.ready(SHOP, "web") == 4)
        await environment.kubectl(f"kubectl -n {SHOP} label deploy/web {CUSTOM}=3 --overwrite")
        await environment.until(lambda: len(environment.waiting("mix")) == 1)
        (move,) = environment.waiting("mix")
        assert move.subject != f"pod/{SHOP}/{healthy}"
        assert rig.leader().engine.queue.records.by_id[move.id].parked
        answer = environment.why(move.subject)
        assert answer.state == "waiting"
        assert healthy in answer.answer, "the blocker is named"
        await asyncio.sleep(STILL_S)
        assert uids(rig, "web") == before, "nothing moves while the fact stands"
        await environment.kubectl(f"kubectl -n {SHOP} annotate pod {healthy} {FAIL}-")
        await environment.until(
            lambda: given(rig, "web").count("on-demand") == 3 and environment.ready(SHOP, "web") == 5
        )
        await environment.until(lambda: not left_behind(rig))
        after = uids(rig, "web")
        assert len(before - after) == 1, "exactly the one that was parked"
        assert rig.pod(SHOP, move.subject.rpartition("/")[2]) is None
        # The other way round: the one to move is the one that is broken.
        sick = next(
            p["metadata"]["name"]
            for p in environment.cluster.pods(SHOP, "web")
            if podstate.active(p) and podstate.labels_of(p)[AFFINITY] == "spot"
        )
        await environment.kubectl(f"kubectl -n {SHOP} annotate pod {sick} {FAIL}=ready")
        await environment.until(lambda: environment.ready(SHOP, "web") == 4)
        await environment.kubectl(f"kubectl -n {SHOP} label deploy/web {CUSTOM}=4 --overwrite")
        await environment.until(
            lambda: given(rig, "web").count("on-demand") == 4 and environment.ready(SHOP, "web") == 5
        )
        assert len(after - uids(rig, "web")) == 1, "it, and nobody else"
        await environment.until(lambda: rig.pod(SHOP, sick) is None)


async def test_the_designs_own_commands_typed_as_they_stand_there(lab, tmp_path):
    """E1, E8, O3: story 1, word for word: cordon, annotate, drain; `why` names kubectl-annotate while it is under way."""
    async with Environment(lab, features={"handoff": True}) as environment:
        rig = environment.rig
        await environment.add_nodes("exn", 4)
        pd = await environment.tikv()
        await environment.start()
        pod, where = f"{DEMO}-tikv-0", environment.cluster.nodes_of(TIDB, f"{DEMO}-tikv")
        node, before = where[pod], rig.pod(TIDB, pod)["metadata"]["uid"]
        shell = _Shell(lab, tmp_path, TIDB)
        await shell.type(f"kubectl cordon {node}")
        pd.stick(pod, 1)  # its last leader takes its time: there is something to ask about
        await shell.type(f'kubectl annotate pods {pod} tidb.pingcap.com/restart=""')
        url = f"http://{rig.config.listen_http}/api/v1/why/pod/{TIDB}/{pod}"
        asked = await _line(url, "asked")
        assert asked.startswith("restart by annotation tidb.pingcap.com/restart, ")
        assert asked.endswith(", field manager kubectl-annotate")
        pd.stick(pod, 0)
        await environment.until(lambda: _new_and_ready(environment, pod, before))
        assert environment.cluster.nodes_of(TIDB, f"{DEMO}-tikv")[pod] != node, "rescheduled to another node"
        assert pd.interruptions == []
        await environment.until(lambda: not pd.server.evict_list())
        await shell.type(f"kubectl drain {node} --ignore-daemonsets --timeout=180s")
        assert pods_on(rig, node) == []


class _Shell:
    """A person's shell: KUBECONFIG with the cluster's namespace as its own, and the lab's kubectl on the PATH."""

    def __init__(self, lab, directory, namespace):
        self._config = directory / "kubeconfig"
        self._config.write_bytes(lab.kubeconfig.read_bytes())
        self._env = {
            "PATH": f"{lab.layout.bin}:/usr/bin:/bin",
            "HOME": str(directory),
            "KUBECONFIG": str(self._config),
        }
        subprocess.run(
            ["kubectl", "config", "set-context", "--current", f"--namespace={namespace}"],
            env=self._env,
            check=True,
            capture_output=True,
        )

    async def type(self, line):
        done = await asyncio.to_thread(
            subprocess.run, ["sh", "-c", line], env=self._env, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, f"$ {line}\n{done.stderr}"


async def _line(url, label):
    """The first line of an answer with this label, as soon as there is one."""
    async with aiohttp.ClientSession() as session:

        async def found():
            async with session.get(url) as response:
                lines = (await response.json()).get("lines", ())
            return [line["text"] for line in lines if line["label"] == label]

        return (await eventually(found, f"{label} in {url}"))[0]


def _new_and_ready(environment, pod, before):
    found = environment.rig.pod(TIDB, pod)
    return found is not None and found["metadata"]["uid"] != before and environment.ready(TIDB, f"{DEMO}-tikv") == 3


async def test_worked_example_3_a_retiring_node_is_emptied_gently_and_its_taint_waits_for_the_budget(lab):
    """Worked example 3, O2: cordon, leaders off, pods away, those with emptyDir data as well (issue 20.11), the DaemonSet
    stays, the last is held; then the time-out."""
    # On a busy machine it takes a while until only the last is left, and that must come before the time-out.
    policy = FleetPolicy(query_s=1.0, recheck_s=0.5, retire_timeout_s=45.0)
    async with Environment(lab, policy, features={"fleet": True, "handoff": True}) as environment:
        rig = environment.rig
        names = await environment.add_nodes("exm", 5, rack=1)
        register_nodes(rig, names)
        # The control plane is chosen by address, the lowest first.
        await environment.kubectl(f"kubectl cordon {names[0]}")
        pd = await environment.tikv()
        n7 = environment.cluster.nodes_of(TIDB, f"{DEMO}-tikv")[f"{DEMO}-tikv-1"]
        await _crowd(environment, n7, [name for name in names if name not in {n7, names[0]}])
        url = await environment.serve(sabakan_app(environment.cluster.sabakan))
        limits = "control-plane-count: 1\nminimum-workers: 4\n"
        data = {
            settings.TEMPLATE: TEMPLATE,
            settings.CONSTRAINTS: limits,
            settings.URL: url,
            settings.ENABLED: "true",
        }
        await rig.api.create(Kind.CONFIG_MAP, ledger.new_object(rig.config.namespace, data, settings.NAME))
        await environment.start()
        await environment.until(lambda: len(stored(rig).members) == 5)
        serial = _serial(environment, names.index(n7))
        address = environment.cluster.sabakan.entries[serial].ipv4[0]
        environment.cluster.sabakan.set_state(serial, MachineState.RETIRING)
        early, least = [], [1]

        def emptied():
            pods = [p for p in rig.cluster.store.list(Kind.POD) if p["metadata"].get("labels", {}).get("app") == "solo"]
            least.append(sum(map(podstate.ready, pods)))
            if keys.STATE_TAINT in taints_of(rig, n7):
                early.append(pods_on(rig, n7))
            return {name.split("-")[0] for name in pods_on(rig, n7)} == {"agent", "lock"}

        await environment.until(emptied)
        assert cordoned(rig, n7)
        assert early == [], "the taint waits with the last pod"
        assert min(least) >= 1, "the Deployment of one serves throughout: its replacement comes first"
        assert roles_by_address(rig)[address] == "worker", "and is not in the stored cluster before"
        assert pd.interruptions == [], "no leader was on the TiKV pod when it went"
        await environment.until(lambda: environment.why(f"machine/{serial}").state == "blocked")
        assert environment.why(f"machine/{serial}").reason == "pdb"
        await environment.until(lambda: keys.STATE_TAINT in taints_of(rig, n7))
        await environment.until(lambda: roles_by_address(rig)[address] == "worker, retiring")

        async def told():
            said = await environment.kubectl(
                f"kubectl get events -A --field-selector involvedObject.name={n7} -o jsonpath={{.items[*].message}}"
            )
            return said if "NoExecute" in said else ""

        assert f"{SHOP}/lock-" in await eventually(told, "an Event says so"), "the Event names what it breaks"

        def waits(subject):
            answer = environment.why(subject)
            return (answer.state, answer.reason) == ("waiting", "retiring") and "RETIRED" in answer.answer

        # Issue 20.14: drained and tainted, it is still on its way out of the cluster.
        await environment.until(lambda: waits(f"machine/{serial}") and waits(f"node/{n7}"))


async def test_without_handoff_a_tikv_pod_blocks_its_machine_and_a_person_may_take_the_node_back(lab):
    """Issue 20.9 and 20.10: no NoExecute however late, `blocked` with what to type; uncordoned by hand, nothing more is
    evicted. Issue 20.8: meanwhile a machine that vanishes leaves the cluster."""
    policy = FleetPolicy(query_s=1.0, recheck_s=0.5, retire_timeout_s=5.0)
    async with Environment(lab, policy, features={"fleet": True}) as environment:
        rig = environment.rig
        names = await environment.add_nodes("exm", 6, rack=1)
        register_nodes(rig, names)
        await environment.kubectl(f"kubectl cordon {names[0]}")
        pd = await environment.tikv()
        url = await environment.serve(sabakan_app(environment.cluster.sabakan))
        data = {
            settings.TEMPLATE: TEMPLATE,
            settings.CONSTRAINTS: "control-plane-count: 1\nminimum-workers: 4\n",
            settings.URL: url,
            settings.ENABLED: "true",
        }
        await rig.api.create(Kind.CONFIG_MAP, ledger.new_object(rig.config.namespace, data, settings.NAME))
        await environment.start()
        await environment.until(lambda: len(stored(rig).members) == 5)
        serials = {name: _serial(environment, number) for number, name in enumerate(names)}
        address = {name: environment.cluster.sabakan.entries[serial].ipv4[0] for name, serial in serials.items()}
        workers = [name for name in names if roles_by_address(rig).get(address[name]) == "worker"]
        where = environment.cluster.nodes_of(TIDB, f"{DEMO}-tikv")
        pod, n7 = next((pod, node) for pod, node in sorted(where.items()) if node in workers)
        vanishing = next(name for name in workers if name not in where.values())
        serial = serials[n7]
        environment.cluster.sabakan.set_state(serial, MachineState.RETIRING)
        await environment.until(lambda: cordoned(rig, n7))
        await environment.until(lambda: environment.why(f"machine/{serial}").reason == "feature-off")
        del environment.cluster.sabakan.entries[serials[vanishing]]
        await environment.until(lambda: address[vanishing] not in roles_by_address(rig))
        await asyncio.sleep(policy.retire_timeout_s + 5)
        assert environment.why(f"machine/{serial}").state == "blocked"
        assert keys.STATE_TAINT not in taints_of(rig, n7)
        assert pd.interruptions == []
        await environment.kubectl(f"kubectl uncordon {n7}")
        await environment.until(lambda: environment.why(f"machine/{serial}").reason == "cordoned")
        await environment.until(lambda: not cordoned(rig, n7))
        assert pod in pods_on(rig, n7)


def _serial(environment, number):
    address = node_object("", number, 0)["status"]["addresses"][0]["address"]
    return next(s for s, e in environment.cluster.sabakan.entries.items() if e.ipv4[0] == address)


async def _crowd(environment, n7, others):
    """On n7: three web pods, an agent on every node, a Deployment of one, and a StatefulSet's pod; the last two each under
    a budget that allows none."""
    agent = manifests.pod_template(
        {"app": "agent"}, nodeSelector={"for": "examples"}, tolerations=[{"operator": "Exists"}]
    )
    await environment.rig.api.create(Kind.DAEMON_SET, manifests.daemon_set(SHOP, "agent", agent))
    await environment.kubectl(f"kubectl cordon {' '.join(others)}")
    await environment.deploy("web", 3, volumes=[{"name": "cache", "emptyDir": {}}])
    await environment.deploy("solo", 1)
    template = slow_template("lock", 1.0, grace_s=1, nodeSelector={"for": "examples"})
    await environment.rig.api.create(Kind.STATEFUL_SET, manifests.stateful_set(SHOP, "lock", 1, template))
    await environment.until(lambda: environment.ready(SHOP, "lock") == 1)
    for name in ("solo", "lock"):
        await environment.rig.api.create(Kind.PDB, manifests.pdb(SHOP, name, {"app": name}, min_available=1))
    assert set(environment.cluster.nodes_of(SHOP, "web").values()) == {n7}
    await environment.kubectl(f"kubectl uncordon {' '.join(others)}")


async def test_worked_example_4_a_region_move_waits_for_an_eviction_and_another_move(lab):
    """Worked example 4, T3, T4, T11: on a store of 20, it starts when one of the two ends, not before, and says why."""
    repairing = BalancePolicy(clusters=("*",), sources=("balance-leader", "balance-region", "replica"))
    async with Environment(lab, repairing, features={"handoff": True, "balance": True}) as environment:
        rig = environment.rig
        await environment.add_nodes("exn", 4)
        pd = await environment.tikv(members=4, regions=40)
        # replica-schedule-limit 0: PD's own checker leaves the repair to ours, which is named above.
        pd.server.settings = msgspec.structs.replace(pd.server.settings, region_limit=0)
        await environment.start()
        four = pd.store_of(f"{DEMO}-tikv-3").id
        target = f"store/{TIDB}/{DEMO}/{four}"
        book = Book(rig.leader().engine, target)
        # An eviction that lasts: its last leader does not leave.
        pd.stick(f"{DEMO}-tikv-3", 1)
        await environment.kubectl(f"kubectl -n {TIDB} annotate pod {DEMO}-tikv-3 tidb.pingcap.com/evict-leader=none")
        await environment.until(lambda: bool(book.used("handoff")))
        # Store 1 goes: a region that has no replica on store 4 can only go there.
        take_offline(pd.server, pd.store_of(f"{DEMO}-tikv-0").id)
        await environment.until(lambda: book.look(), every_s=0.02)
        eviction = book.used("handoff")
        for why in book.found.values():
            assert set(eviction) <= set(why.blocked_by), "the eviction is named"
            assert len(why.blocked_by) > len(eviction), "and so is the move"
            assert why.used + why.reserved + why.needs > why.limit == 20
        pd.stick(f"{DEMO}-tikv-3", 0)
        # One that is no longer needed is canceled: then another of them.
        await environment.until(lambda: book.look() and book.promoted_of_found(), every_s=0.02)
        waiting = book.promoted_of_found()[0]
        why = book.found[waiting]
        left = set(why.blocked_by) - book.charged_at[waiting]
        assert left, "not before one of those in front had ended there"
        assert book.most <= 20, "no promotion ever took the store above its limit"
        assert book.most_with_ahead <= 20, "nor took the room of one in front: nobody in front starts later"
        # Nor is anybody left behind.
        await environment.until(lambda: not book.found.keys() & set(rig.leader().engine.queue.waiting))


class Book:
    """What the queue's story says of one store: who was promoted, who ended, and how full it ever was."""

    def __init__(self, engine, target):
        self._engine, self._target = engine, target
        self.promoted = []
        #: Of each that was promoted: who was charged on the store in that moment. An eviction ends there when the
        #: store is empty.
        self.charged_at = {}
        #: When one was promoted: used, and used with what those in front of it wait for.
        self.most = self.most_with_ahead = 0
        #: Those that were seen waiting for it, and why.
        self.found = {}
        engine.history.listeners.append(self._hear)

    def _hear(self, entry):
        if entry.verb == "promoted":
            self.promoted.append(entry.id)
            self.charged_at[entry.id] = set(self.used())
            running, queue = self._engine.running.get(entry.id), self._engine.queue
            if running is not None and running.need.get(self._target):  # else it adds nothing there
                ahead = (one for one in queue.records.waiting() if one.key < running.key and not one.parked)
                self.most = max(self.most, queue.used(self._target))
                reserved = sum(one.need.get(self._target, 0) for one in ahead)
                self.most_with_ahead = max(self.most_with_ahead, queue.used(self._target) + reserved)

    def used(self, source=""):
        """Running operators (of this source) that count on the store."""
        running = self._engine.running.values()
        return [
            r.operator.id
            for r in running
            if source in {"", r.operator.source} and r.operator.phases[r.phase].get(self._target)
        ]

    def look(self):
        """Region moves that wait for the store, behind the eviction and a move that runs there."""
        queue, evictions = self._engine.queue, set(self.used("handoff"))
        for one in queue.waiting:
            why = queue.why(one)
            if why is None or why.target != self._target or one not in self._engine.waiting:
                continue
            if evictions & set(why.blocked_by) and set(why.blocked_by) - evictions:
                self.found.setdefault(one, why)
        return self.found

    def promoted_of_found(self):
        return [one for one in self.found if one in self.promoted]


async def test_worked_example_5_all_spot_nodes_get_notice_at_once(lab):
    """Worked example 5, M8, O1: twelve cordons, floors kept, forty pods of one node replaced in time, housekeeping last."""
    async with Environment(lab, features={"mix": True}) as environment:
        rig = environment.rig
        safe = await environment.add_nodes("exn", 4, capacity="on-demand")
        spot = await environment.add_nodes("exs", 12, capacity="spot")
        await environment.start()
        elsewhere = [*safe, *spot[1:]]
        await environment.kubectl(f"kubectl cordon {' '.join(elsewhere)}")
        await environment.deploy("crowd", 40, switched_on("all-in-spot"), start_s=20.0)
        assert set(environment.cluster.nodes_of(SHOP, "crowd").values()) == {spot[0]}
        await environment.kubectl(f"kubectl uncordon {' '.join(elsewhere)}")
        await environment.deploy("web", 4, switched_on("custom", 2))
        writes, began = len(rig.writes), time.monotonic()
        # A housekeeping wish, and in the same breath everybody's notice.
        await environment.kubectl(f"kubectl -n {SHOP} label deploy/web {CUSTOM}=1 --overwrite")
        environment.cluster.cloud.notice_all_spot(after_s=120.0)
        fewest, floor, housekeeping = 40, 2, []

        def replaced():
            nonlocal fewest, floor
            fewest, floor = min(fewest, serving(rig, "crowd")), min(floor, _on(environment, "web", safe))
            housekeeping.extend(o.id for o in rig.leader().engine.running.values() if o.operator.source == "mix")
            where = environment.cluster.nodes_of(SHOP, "crowd")
            return len(where) == 40 and set(where.values()) <= set(safe) and environment.ready(SHOP, "crowd") == 40

        await rig.until(replaced, limit_s=115.0)
        assert time.monotonic() - began < 120
        assert fewest == 40, "each went after its replacement was Ready"
        assert floor == 2, "the on-demand floor held throughout"
        assert housekeeping == [], "a deadline outranks housekeeping"
        made = rig.writes[writes:]
        first = next(i for i, w in enumerate(made) if w.startswith(("evict Pod", "delete Pod")))
        # Each node once, however often a write had to be made again.
        shut = {w for w in made[:first] if w.startswith("patch Node")}
        assert len(shut) == 12, "all doors shut before the first pod goes"


def _on(environment, name, nodes):
    pods = environment.cluster.pods(SHOP, name)
    return sum(podstate.ready(p) and podstate.active(p) and podstate.node_of(p) in nodes for p in pods)


async def test_worked_example_7_a_paused_leader_wakes_up_while_another_leads(lab, tmp_path):
    """Worked example 7, E7: SIGSTOP in the middle, another takes over, SIGCONT: never two members of TiKV away."""
    async with spine_environment.Environment(lab, tmp_path) as environment:
        old, new = await environment.start(), await environment.start()
        await eventually(environment.leads, tell=environment.logs)
        if not await old.leads():
            old, new = new, old
        uids = {name: await environment.uid(name) for name in ("demo-tikv-0", "demo-tikv-1")}
        await asyncio.to_thread(environment.annotate, "demo-tikv-0", "tidb.pingcap.com/restart=")
        await asyncio.to_thread(environment.annotate, "demo-tikv-1", "tidb.pingcap.com/restart=")

        async def begun():
            return bool(await environment.placement.evicting())

        await eventually(begun, tell=environment.logs)
        old.popen.send_signal(signal.SIGSTOP)
        try:
            await eventually(new.leads, tell=environment.logs)
        finally:
            old.popen.send_signal(signal.SIGCONT)
        for name, uid in uids.items():
            await eventually(lambda name=name, uid=uid: environment.handed_over(name, uid), tell=environment.logs)
        assert environment.most_away <= 1
        assert environment.placement.interrupted() == 0
        assert await new.leads(), "the one that woke up did not take the lead back"
        assert not await old.leads()
