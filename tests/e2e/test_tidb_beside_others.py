"""A TiDB cluster that others work on too, on the real control plane and, where there is one, a real PD (else the
sandbox's): local volumes on retiring machines, a lost region, a notice, log backup, tidb-operator's annotations; and a
PD that is told to hold still.

Both stories are played at the same time. Each test has a twin of its name on the sandbox.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest
import yaml

from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF, LEAVING, Mark, read_mark, read_marks, write_mark
from tests.e2e.balance_environment import REGIONS as MANY
from tests.e2e.balance_environment import Environment as BalanceEnvironment
from tests.e2e.spine_environment import Environment
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e
#: Without any change: a process takes a minute to start on a busy machine.
EVICT = "tidb.pingcap.com/evict-leader"
#: Keys from here on have the label schedule=deny.
DENIED = MANY - 60


class LocalEnvironment(Environment):
    """Five TiKV members. Four have a local volume; the fifth's can be mounted on two nodes."""

    features = "handoff=true,mix=true"

    def __init__(self, lab, directory, *, real_pd):
        super().__init__(lab, directory, real_pd=real_pd, tikv=5)
        #: What was seen on the way, for the tests below.
        self.seen = {}

    def _stateful_set(self, component, replicas):
        for number in range(replicas):
            nodes = self.nodes[number : number + 1] if number < replicas - 1 else self.nodes[number:]
            self.lab.kubectl("apply", "-f", "-", input=yaml.safe_dump(self._volume(number, nodes)))
        part = super()._stateful_set(component, replicas)
        spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}
        part["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": spec}]
        container = part["spec"]["template"]["spec"]["containers"][0]
        container["volumeMounts"] = [{"name": "data", "mountPath": "/var/lib/tikv"}]
        return part

    def _volume(self, number, nodes):
        there = {"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"{self.namespace}-{number}", "labels": {"for": self.namespace}},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "claimRef": {"namespace": self.namespace, "name": f"data-demo-tikv-{number}"},
                "local": {"path": "/mnt/disk"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [there]}]}},
            },
        }

    async def __aexit__(self, *how):
        await super().__aexit__(*how)
        self.lab.kubectl("delete", "persistentvolumes", "-l", f"for={self.namespace}", "--wait=false")

    # ── Looking and pulling ───────────────────────────────────────────────────────────────────────────────────────

    async def node_of(self, name):
        return (await self.pod(name))["spec"]["nodeName"]

    async def ask_away(self, name, source="fleet", deadline=None):
        """What fleet, mix and a notice do to a TiKV pod."""
        mark = Mark(
            operator="9", source=source, reason="retiring", step="leaving", since=0.0, pod_uid=await self.uid(name),
            deadline=deadline,
        )  # fmt: skip
        await asyncio.to_thread(self.annotate, name, f"{LEAVING}={write_mark(mark)}")

    async def marks(self):
        tc = await self.api.get(Kind.TIDB_CLUSTER, self.namespace, "demo")
        return read_marks(tc["metadata"].get("annotations", {}).get(HANDOFF, "")) or {}

    async def why(self, subject):
        return json.dumps(await (await eventually(self.leader)).ask(f"/api/v1/why/{subject}"))

    def tell(self):
        leaders = [self.placement.leaders(number) for number in range(5)]
        return f"leaders {leaders}, seen {self.seen}\n{self.logs()}"

    async def until(self, holds):
        await eventually(holds, tell=self.tell)


async def play_handoff(environment):
    """A leader stays on whoever is looked at, so that there is time to look."""
    e, seen = environment, environment.seen
    await e.placement.lose_region()
    await e.start()
    await e.until(e.leads)

    async def tolerated():
        return await e.placement.leaderless() == 1

    await e.until(tolerated)
    await asked_of_both(e)
    seen["doctor"] = await asyncio.to_thread(doctor, e)
    # Two machines retire; their members have local volumes. A third member is restarted.
    uids = {name: await e.uid(name) for name in e.names}
    for name in ("demo-tikv-0", "demo-tikv-1"):
        await asyncio.to_thread(e.lab.kubectl, "cordon", await e.node_of(name))
        await e.ask_away(name)
    e.placement.keep_a_leader("demo-tikv-3")
    await asyncio.to_thread(e.annotate, "demo-tikv-3", "tidb.pingcap.com/restart=")

    async def both_empty():
        if (await e.marks()).keys() & {"demo-tikv-3"} and "flushed" not in seen.get("why", ""):
            seen["why"] = await e.why(f"pod/{e.namespace}/demo-tikv-3")
            if "flushed" in seen["why"]:
                e.placement.keep_a_leader()
        renewed = await e.uid("demo-tikv-3") not in {"", uids["demo-tikv-3"]}
        left = [e.placement.leaders(number) for number in (0, 1)]
        return renewed and left == [0, 0] and (await e.marks()).keys() == {"demo-tikv-0", "demo-tikv-1"}

    await e.until(both_empty)
    seen["restarted with a region lost"] = await tolerated()
    seen["waiting for volumes"] = [await e.uid(name) == uids[name] for name in ("demo-tikv-0", "demo-tikv-1")]
    await noticed(e, uids)
    for name in ("demo-tikv-0", "demo-tikv-1"):
        await asyncio.to_thread(e.lab.kubectl, "uncordon", await e.node_of(name))

    async def over():
        renewed = [await e.uid(name) not in {"", uids[name]} for name in ("demo-tikv-0", "demo-tikv-1", "demo-tikv-4")]
        return all(renewed) and await e._all_ready() and not await e.left_overs()

    await e.until(over)


async def asked_of_both(e):
    """`evict-leader` is known to both operators; nobody else acts on it here."""
    began = time.monotonic()
    await asyncio.to_thread(e.annotate, "demo-tikv-2", f"{EVICT}=none")

    async def begun():
        return 3 in (await e.placement.evicting() or ())

    await e.until(begun)
    e.seen["left to others for"] = time.monotonic() - began
    await asyncio.to_thread(e.annotate, "demo-tikv-2", f"{EVICT}-")

    async def ended():
        return not await e.left_overs()

    await e.until(ended)


async def noticed(e, uids):
    """Mix has asked for the fifth member, which can go elsewhere; then its node gets a notice."""
    e.placement.keep_a_leader("demo-tikv-4")
    await e.ask_away("demo-tikv-4", "mix")

    async def recorded():
        return "demo-tikv-4" in await e.marks()

    await e.until(recorded)
    at = int(time.time()) + 600
    node, text = await e.node_of("demo-tikv-4"), datetime.fromtimestamp(at, UTC).isoformat()
    await asyncio.to_thread(e.lab.kubectl, "annotate", "node", node, f"vacant.io/interrupt-at={text}")

    async def sooner():
        mark, pod = (await e.marks()).get("demo-tikv-4"), await e.pod("demo-tikv-4")
        gone = pod is None or pod["metadata"]["uid"] != uids["demo-tikv-4"]
        request = None if gone else read_mark(pod["metadata"]["annotations"][LEAVING])
        e.seen["deadlines"] = [mark and mark.deadline == at, request and request.deadline == at]
        return gone or all(e.seen["deadlines"])

    await e.until(sooner)
    e.placement.keep_a_leader()


def doctor(e):
    argv = [sys.executable, "-m", "mooring", "doctor", "--kubeconfig", str(e.lab.kubeconfig), "--features", e.features]
    argv += ["--namespace", e.own, "--pd", f"{e.namespace}/demo={e.pd_url}", "--server", e.processes[-1].url]
    said = subprocess.run([*argv, "-o", "json"], capture_output=True, text=True, check=False, timeout=120)
    return said.stdout or said.stderr


# ── A PD that is told to hold still ───────────────────────────────────────────────────────────────────────────────


async def play_balance(environment):
    e = environment
    e.seen = {}
    still = await e.deny(DENIED)
    e.start()
    await eventually(e.stands_aside, tell=e.tell)
    e.stores.add_store()
    await eventually(lambda: e.filled(10), tell=e.tell)
    await e.say("/config", {"halt-scheduling": "true"})
    await held_still(e, "halted", "halt-scheduling is on")
    await e.say("/config", {"halt-scheduling": "false"})
    await eventually(lambda: e.filled(25), tell=e.tell)
    # As BR does, for longer than any pause of ours.
    for name in ("balance-leader-scheduler", "balance-region-scheduler"):
        await e.say(f"/schedulers/{name}", {"delay": 900})
    began = await e.pauses()
    await held_still(e, "paused", "was paused for 900 s, not by Mooring")
    e.seen["pauses"] = (began, await e.pauses())
    for name in ("balance-leader-scheduler", "balance-region-scheduler"):
        await e.say(f"/schedulers/{name}", {"delay": 0})
    await eventually(lambda: e.filled(50), tell=e.tell)
    where = {r.id: sorted(p.store_id for p in r.peers) for r in e.stores.regions()}
    e.seen["denied"] = ({region: where[region] for region in still}, still, await e.why())


async def held_still(e, what, words):
    """`why` says so; from then on nothing of ours begins."""

    async def said():
        e.seen[what] = await e.why()
        return words in e.seen[what]

    await eventually(said, tell=e.tell)
    # What began before `why` said so has been seen by then: the second look from now on begins after it.
    looks = e.looks
    await eventually(lambda: e.looks >= looks + 2, tell=e.tell)
    begun = e.begun()
    await asyncio.sleep(6)
    e.seen[f"begun while {what}"] = e.begun() - begun


# ── The tests ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def play_both(lab, directory):
    real_pd = lab.pd_server is not None
    handoff = LocalEnvironment(lab, directory, real_pd=real_pd)
    balance = BalanceEnvironment(lab, directory, real_pd=real_pd)
    async with contextlib.AsyncExitStack() as stack:
        for environment in (handoff, balance):
            await stack.enter_async_context(environment)
        ends = await asyncio.gather(play_handoff(handoff), play_balance(balance), return_exceptions=True)
    return (handoff, ends[0]), (balance, ends[1])


@pytest.fixture(scope="module")
def played(lab, tmp_path_factory):
    return asyncio.run(play_both(lab, tmp_path_factory.mktemp("beside")))


@pytest.fixture
def handoff(played):
    """A story that did not end well fails here."""
    environment, end = played[0]
    if end is not None:
        raise end
    return environment


@pytest.fixture
def balance(played):
    environment, end = played[1]
    if end is not None:
        raise end
    return environment


def test_members_that_wait_for_their_volumes_keep_nobody_waiting(handoff):
    """E7, O2: two retiring machines with local volumes: both are emptied of leaders and not touched, a third member
    restarts meanwhile, and they follow once they may; nobody's leaders were interrupted, never two were away."""
    assert handoff.seen["waiting for volumes"] == [True, True]
    assert handoff.most_away <= 1
    assert handoff.placement.interrupted() == 0


def test_a_region_without_a_leader_is_no_doubt_about_this_store(handoff):
    """E6: PD lost one region of 24; the restart was proven by the others."""
    assert handoff.seen["restarted with a region lost"]


def test_a_notice_brings_its_deadline_to_a_pod_that_was_asked_away(handoff):
    """O1: the mark on the TidbCluster and the request on the pod carry the notice's deadline."""
    assert handoff.seen["deadlines"] == [True, True]


def test_why_says_that_a_log_backup_is_not_flushed(handoff):
    """E8: while leaders leave before a restart."""
    assert "a log backup is not flushed before the pod is deleted" in handoff.seen["why"]


def test_a_tidb_operator_gets_its_time_to_begin(handoff):
    """E3: ten seconds for tidb-operator, by default, and doctor says who acts."""
    assert handoff.seen["left to others for"] > 8
    assert "what it has not begun within 10 s, Mooring does" in handoff.seen["doctor"]


def test_halt_scheduling_is_respected(balance):
    """T12: nothing of ours begins, and `why` names the command that ends it."""
    assert balance.seen["begun while halted"] == 0
    assert "pd-ctl config set halt-scheduling false" in balance.seen["halted"]


def test_a_pause_of_br_is_kept(balance):
    """T12: a longer pause than ours is neither shortened nor ended, and nothing of ours begins meanwhile."""
    began, later = balance.seen["pauses"]
    assert len(began) >= 2 and began == later
    assert balance.seen["begun while paused"] == 0


def test_denied_regions_are_left_alone(balance):
    """T12: regions with the label schedule=deny stay where they are, and `why` says how many ranges."""
    now, before, why = balance.seen["denied"]
    assert now == before and len(before) == 60
    assert "1 range of keys with the label schedule=deny" in why
