"""The gate on the sandbox: others evict, and nothing is lost (D1, D2, D3)."""

import asyncio
import contextlib

import msgspec
import pytest

from mooring.capabilities.drain.descriptor import figures
from mooring.capabilities.drain.policy import REPLACE_FIRST, DrainPolicy, ReplaceFirst
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.mix.labels import CUSTOM, ENABLED, MODE
from mooring.clients.ports import ThrottledError
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING, TERMINATES_AT, Mark, read_mark, write_mark
from mooring.core.model.times import rfc3339
from mooring.install.cleanup.remove import traces
from mooring.process.settings.config import Config
from mooring_lab.cluster.cloud import INTERRUPT_AT
from mooring_lab.cluster.controllers import podstate
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.drain import Drain
from mooring_lab.stage.scenarios.mix import left_behind, slow_template

SHOP = "shop"
FIRST = {REPLACE_FIRST: "true"}


def rig_with(seed=1, features=("drain", "handoff"), **policy):
    config = Config(
        features=dict.fromkeys(features, True),
        policies=(DrainPolicy(**policy), HandoffPolicy(recheck_s=5.0, young_pd_s=10.0)),
    )
    return Rig(seed=seed, config=config)


async def gated(rig, nodes=4):
    rig.cluster.add_nodes(nodes, "n")
    rig.start("first")
    await rig.until(rig.leads)
    await rig.until(lambda: bool(rig.cluster.store.list(Kind.VALIDATING_WEBHOOK)))


async def deployed(rig, name="web", replicas=1, annotations=FIRST, start_s=20.0, **spec):
    template = slow_template(name, start_s)
    rig.cluster.deployment(SHOP, name, replicas, template=template, annotations=annotations, **spec)
    await rig.until(lambda: rig.cluster.ready(SHOP, name) == replicas)


def pods_of(rig, name="web"):
    found = rig.cluster.store.list(Kind.POD, SHOP)
    return [p for p in found if podstate.labels_of(p).get("app") == name and podstate.active(p)]


def serving(rig, name="web"):
    return sum(podstate.ready(p) for p in pods_of(rig, name))


def the_pod(rig, name="web"):
    (pod,) = pods_of(rig, name)
    return pod["metadata"]["name"], pod["spec"]["nodeName"]


async def refused(rig, name, by="descheduler", **how):
    """One try; the words of the refusal, "" when it passed."""
    try:
        await rig.api.as_client(by).evict(SHOP, name, **how)
    except ThrottledError as error:
        return str(error)
    return ""


class Least:
    """The fewest that served at any look."""

    def __init__(self, rig, count):
        self.seen = count()
        self._rig, self._count = rig, count

    async def watch(self, until):
        def holds():
            self.seen = min(self.seen, self._count())
            return until()

        await self._rig.until(holds, limit_s=1200.0)


def play(scenario, **how):
    rig = rig_with(**how)
    rig.play(scenario)
    return rig


def test_a_single_replica_under_min_available_one_is_replaced_before_it_goes():
    """D1, D2 (kubernetes#66811): `kubectl drain` ends by itself, the Service never has nobody, and nothing of the
    Deployment is written."""

    async def scenario(rig):
        await gated(rig)
        await deployed(rig)
        rig.cluster.pdb(SHOP, "web", {"app": "web"}, min_available=1)
        before = rig.cluster.workload(SHOP, "web")["metadata"]["generation"]
        name, node = the_pod(rig)
        drain = Drain(rig, node)
        least = Least(rig, lambda: serving(rig))
        task = asyncio.ensure_future(drain.run())
        await least.watch(task.done)
        task.result()
        assert least.seen == 1
        assert the_pod(rig)[1] != node
        assert rig.cluster.workload(SHOP, "web")["metadata"]["generation"] == before
        assert not any("Deployment" in write for write in rig.writes)
        words = {said for pod, said in drain.refusals if pod == name}
        assert all(": mooring: " in one and "Eviction triggered evacuation" in one for one in words if "mooring" in one)
        await rig.until(lambda: not rig.unsettled() and not left_behind(rig))
        assert not any(write.startswith(("evict Pod", "delete Pod")) for write in rig.writes)

    play(scenario)


def test_an_autoscaler_and_gitops_write_the_deployment_meanwhile():
    """D2: an HPA scales 1 → 3 → 2 while the replacement starts, and GitOps applies its manifest anew every second: the
    drain ends, there is always one that serves, and what they wrote stands."""

    async def scenario(rig):
        await gated(rig)
        await deployed(rig)
        rig.cluster.pdb(SHOP, "web", {"app": "web"}, min_available=1)
        before = rig.cluster.workload(SHOP, "web")["spec"]
        drain = Drain(rig, the_pod(rig)[1])
        least = Least(rig, lambda: serving(rig))
        task = asyncio.ensure_future(drain.run())

        async def others():
            hpa, gitops = rig.api.as_client("hpa"), rig.api.as_client("argocd")
            for second in range(60):
                manifest = {"metadata": {"annotations": FIRST}, "spec": {"template": before["template"]}}
                await gitops.patch(Kind.DEPLOYMENT, SHOP, "web", manifest)
                if second in {8, 16}:
                    await hpa.patch(Kind.DEPLOYMENT, SHOP, "web", {"spec": {"replicas": 3 if second == 8 else 2}})
                await rig.sleep(1.0)

        writing = asyncio.ensure_future(others())
        await least.watch(lambda: task.done() and writing.done())
        task.result()
        writing.result()
        await rig.until(lambda: serving(rig) == 2 and not rig.unsettled() and not left_behind(rig), limit_s=300)
        assert least.seen >= 1
        assert rig.cluster.workload(SHOP, "web")["spec"] == {**before, "replicas": 2}
        assert not any("Deployment" in write for write in rig.writes)

    play(scenario)


def test_without_room_the_client_is_told_and_an_autoscaler_sees_a_pending_pod():
    """D2: the old pod serves on; a node more, and the next try passes."""

    async def scenario(rig):
        await gated(rig, nodes=1)
        await deployed(rig)
        name, node = the_pod(rig)
        rig.cluster.cordon(node)
        await refused(rig, name)
        pending = lambda: [p for p in pods_of(rig) if not podstate.node_of(p)]
        await rig.until(lambda: bool(pending()))
        await rig.sleep(10.0)
        said = await refused(rig, name)
        assert "room" in said, said
        assert serving(rig) == 1
        rig.cluster.add_nodes(1, "new")
        await rig.until(lambda: serving(rig) == 2)
        await rig.sleep(5.0)
        assert await refused(rig, name) == ""
        await rig.until(lambda: serving(rig) == 1 and the_pod(rig)[1] != node)

    play(scenario)


def test_an_on_demand_pod_does_not_go_for_a_replacement_on_spot():
    """D2, M5: a spot pod is evicted and an on-demand node gets notice while the two replacements start: the first that is
    Ready is on spot, and the on-demand pod waits for its own. Karpenter and the descheduler showed it."""

    async def scenario(rig):
        rig.cluster.add_nodes(3, "n", capacity="on-demand")
        rig.cluster.add_nodes(3, "s", capacity="spot")
        rig.start("first")
        await rig.until(rig.leads)
        await rig.until(lambda: bool(rig.cluster.store.list(Kind.MUTATING_WEBHOOK)))
        labels = {ENABLED: "true", MODE: "custom", CUSTOM: "1"}
        await deployed(rig, replicas=3, labels=labels, annotations={})
        safe = lambda: [p for p in pods_of(rig) if podstate.ready(p) and podstate.node_of(p).startswith("n")]
        (old,) = safe()
        spot = next(p for p in pods_of(rig) if podstate.node_of(p).startswith("s"))
        await rig.until(lambda: not rig.unsettled())
        assert await refused(rig, spot["metadata"]["name"])
        await rig.sleep(10.0)
        at = rfc3339(rig.clock.now() + 300.0)
        rig.cluster.annotate(Kind.NODE, "", podstate.node_of(old), {INTERRUPT_AT: at})
        least = Least(rig, lambda: len(safe()))
        await least.watch(lambda: old["metadata"]["uid"] not in {p["metadata"]["uid"] for p in pods_of(rig)})
        assert least.seen == 1

    play(scenario, features=("drain", "mix"))


def test_an_unguarded_pod_passes_at_once():
    """D2: others are let through, unseen by the queue."""

    async def scenario(rig):
        await gated(rig)
        await deployed(rig, annotations={})
        name, _ = the_pod(rig)
        assert await refused(rig, name) == ""
        assert not rig.leader().engine.running and not rig.leader().engine.waiting

    play(scenario)


@pytest.mark.parametrize(
    ("how", "guarded"),
    [
        ({"replace_first": ReplaceFirst(namespaces=(SHOP,))}, True),
        ({"replace_first": ReplaceFirst(labels=("tier=front",))}, True),
        ({"replace_first": ReplaceFirst(labels=("tier=back",))}, False),
    ],
)
def test_an_administrator_guards_by_namespace_or_label(how, guarded):
    """D2: in the settings, without an annotation."""

    async def scenario(rig):
        await gated(rig)
        await deployed(rig, annotations={}, labels={"tier": "front"})
        assert bool(await refused(rig, the_pod(rig)[0])) == guarded

    play(scenario, **how)


def test_an_owner_may_say_no():
    """D2: `mooring.dev/replace-first: "false"` beats the administrator's namespace."""

    async def scenario(rig):
        await gated(rig)
        await deployed(rig, annotations={REPLACE_FIRST: "false"})
        assert await refused(rig, the_pod(rig)[0]) == ""

    play(scenario, replace_first=ReplaceFirst(namespaces=(SHOP,)))


def test_a_stateful_set_goes_one_by_one():
    """D2: each member when all others are Ready."""

    async def scenario(rig):
        await gated(rig, nodes=6)
        rig.cluster.stateful_set(SHOP, "db", 3, template=slow_template("db", 20.0), annotations=FIRST)
        await rig.until(lambda: rig.cluster.ready(SHOP, "db") == 3)
        nodes = {p["spec"]["nodeName"] for p in pods_of(rig, "db")}
        least = Least(rig, lambda: serving(rig, "db"))
        drains = [asyncio.ensure_future(Drain(rig, node).run()) for node in sorted(nodes)]
        await least.watch(lambda: all(one.done() for one in drains))
        for one in drains:
            one.result()
        assert least.seen == 2
        await rig.until(lambda: rig.cluster.ready(SHOP, "db") == 3 and not rig.unsettled() and not left_behind(rig))

    play(scenario)


async def tidb(rig, pd=0):
    cluster = rig.cluster
    cluster.tidb_cluster("tidb", "demo", tidb=0, tikv=3, pd=pd, with_pd=True)
    await rig.sleep(1.0)
    await rig.until(lambda: cluster.ready("tidb", "demo-tikv") == 3)
    if pd:
        await rig.until(lambda: cluster.ready("tidb", "demo-pd") == pd)
    found = cluster.pd["tidb", "demo"]
    found.load(60)
    return found


def test_a_tikv_pod_leaves_without_leaders():
    """D1, E6: the drain takes the pod once its store is proven empty; we delete nothing ourselves."""

    async def scenario(rig):
        await gated(rig, nodes=6)
        pd = await tidb(rig)
        pod = rig.pod("tidb", "demo-tikv-1")
        drain = Drain(rig, pod["spec"]["nodeName"])
        await drain.run()
        await rig.until(lambda: rig.cluster.ready("tidb", "demo-tikv") == 3 and not rig.unsettled())
        assert not pd.interruptions
        assert not any(write.startswith(("evict Pod", "delete Pod")) for write in rig.writes)
        assert not pd.server.evict_list()
        assert any("leaders gone" in said for _, said in drain.refusals)

    play(scenario)


def test_two_tikv_pods_wait_for_each_other():
    """D1, E7: drained at once, members of TiKV leave one after another."""

    async def scenario(rig):
        await gated(rig, nodes=6)
        pd = await tidb(rig)
        nodes = {rig.pod("tidb", f"demo-tikv-{i}")["spec"]["nodeName"] for i in range(3)}
        least = Least(rig, lambda: rig.cluster.ready("tidb", "demo-tikv"))
        drains = [asyncio.ensure_future(Drain(rig, node).run()) for node in sorted(nodes)]
        await least.watch(lambda: all(one.done() for one in drains))
        for one in drains:
            one.result()
        assert least.seen >= 2
        assert not pd.interruptions

    play(scenario)


def test_a_pd_member_leaves_without_leadership():
    """D1: PD's leader is handed on first, and its members leave one by one."""

    async def scenario(rig):
        await gated(rig, nodes=8)
        await tidb(rig, pd=3)
        nodes = {rig.pod("tidb", f"demo-pd-{i}")["spec"]["nodeName"] for i in range(3)}
        least = Least(rig, lambda: rig.cluster.ready("tidb", "demo-pd"))
        drains = [asyncio.ensure_future(Drain(rig, node).run()) for node in sorted(nodes)]
        await least.watch(lambda: all(one.done() for one in drains))
        for one in drains:
            one.result()
        assert least.seen >= 2

    play(scenario)


# ── D3 ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_dry_run_has_no_effect():
    """D3: it passes, and nobody is told."""

    async def scenario(rig):
        await gated(rig)
        await deployed(rig)
        name, _ = the_pod(rig)
        await rig.cluster.api.server.evict(SHOP, name, by="kubectl", dry_run=True)
        await rig.sleep(30.0)
        assert the_pod(rig)[0] == name
        assert not left_behind(rig)

    play(scenario)


def test_without_a_replica_evictions_pass():
    """D3: failurePolicy Ignore; the drain is never held by a Mooring that is gone."""

    async def scenario(rig):
        await gated(rig)
        await deployed(rig)
        _name, node = the_pod(rig)
        rig.kill()
        drain = Drain(rig, node)
        await drain.run(limit_s=60.0)
        assert not drain.refusals

    play(scenario)


def test_without_a_deciding_leader_evictions_pass():
    """D3: the leader was killed, and until its lease is over the replica that follows holds nobody."""

    async def scenario(rig):
        await gated(rig)
        await deployed(rig)
        rig.start("second")
        await rig.until(lambda: not rig.replicas["second"].replica.not_ready())
        rig.kill("first")
        name, _ = the_pod(rig)
        began = rig.clock.now()
        assert await refused(rig, name) == ""
        assert rig.clock.now() - began <= 2.5

    play(scenario)


@pytest.mark.parametrize("what", ["not ready", "pending"])
def test_what_protects_nothing_passes(what):
    """D3: a pod that does not serve."""

    async def scenario(rig):
        await gated(rig)
        start_s = 10_000.0
        cpu = "900" if what == "pending" else "100m"
        rig.cluster.deployment(SHOP, "web", 1, template=slow_template("web", start_s, cpu=cpu), annotations=FIRST)
        await rig.until(lambda: bool(pods_of(rig)))
        await rig.sleep(10.0)
        (pod,) = pods_of(rig)
        assert not podstate.ready(pod)
        assert await refused(rig, pod["metadata"]["name"]) == ""

    play(scenario)


def test_another_uid_passes_to_the_api_server():
    """D3: an eviction that means another pod of the name is answered by the API server (409)."""

    async def scenario(rig):
        await gated(rig)
        await deployed(rig)
        name, _ = the_pod(rig)
        with pytest.raises(Exception, match=r"(?i)precondition|uid"):
            await rig.api.as_client("karpenter").evict(SHOP, name, uid="another")
        assert not left_behind(rig)

    play(scenario)


def test_max_hold_ends_the_waiting_with_a_warning():
    """D3: no replacement ever becomes Ready; after `drain.max-hold-s` the eviction passes, and an Event says so."""

    async def scenario(rig):
        await gated(rig, nodes=2)
        await deployed(rig, start_s=5.0)
        _name, node = the_pod(rig)
        other = next(n for n in ("n0", "n1") if n != node)
        rig.cluster.cordon(other)
        began = rig.clock.now()
        drain = Drain(rig, node)
        await drain.run(limit_s=400.0)
        assert 110.0 <= rig.clock.now() - began <= 190.0
        assert any("no node has room" in said or "not Ready" in said for _, said in drain.refusals)
        events = rig.cluster.store.list(Kind.EVENT, SHOP)
        assert any(e.get("reason") == "HeldLong" and e.get("type") == "Warning" for e in events)

    play(scenario, max_hold_s=120.0)


def test_a_tikv_pod_with_leaders_is_kept_beyond_max_hold():
    """D3: visibly, where an administrator trusts its namespace. Its leaders have nowhere to go."""

    async def scenario(rig):
        await gated(rig, nodes=6)
        rig.cluster.tidb_cluster("tidb", "demo", tidb=0, tikv=1, pd=0, with_pd=True)
        await rig.sleep(1.0)
        await rig.until(lambda: rig.cluster.ready("tidb", "demo-tikv") == 1)
        rig.cluster.pd["tidb", "demo"].load(20)
        await rig.sleep(30.0)
        drain = Drain(rig, rig.pod("tidb", "demo-tikv-0")["spec"]["nodeName"])
        with pytest.raises(AssertionError, match="are left after"):
            await drain.run(limit_s=300.0)
        assert "kept" in drain.refusals[-1][1] and "leaders" in drain.refusals[-1][1]
        notes = {key: note for (name, key), note in rig.leader().engine.notes.items() if name == "drain"}
        assert ("mooring_evictions_held_long", {}, 1.0) in list(figures(notes))
        assert not rig.cluster.pd["tidb", "demo"].interruptions

    play(scenario, max_hold_s=60.0, keep=("tidb",))


@pytest.mark.parametrize(
    "settings", [{}, {"keep": ("elsewhere",)}, {"keep": False}], ids=["default", "another", "none"]
)
def test_a_pd_that_claims_leaders_for_ever_holds_a_drain_no_longer_than_max_hold(settings):
    """D3, issue 42: PD is the tenant's. One store, which never gives its leaders away: without an administrator's word
    for its namespace the drain ends one retry after the deadline, and the Warning says what was lost and which setting
    keeps such a pod."""

    async def scenario(rig):
        await gated(rig, nodes=6)
        rig.cluster.tidb_cluster("tidb", "demo", tidb=0, tikv=1, pd=0, with_pd=True)
        await rig.sleep(1.0)
        await rig.until(lambda: rig.cluster.ready("tidb", "demo-tikv") == 1)
        rig.cluster.pd["tidb", "demo"].load(20)
        await rig.sleep(30.0)
        began = rig.clock.now()
        await Drain(rig, rig.pod("tidb", "demo-tikv-0")["spec"]["nodeName"]).run(limit_s=200.0)
        assert 60.0 <= rig.clock.now() - began <= 75.0
        words = "demo-tikv-0 has 20 leaders, and drain.keep does not name the namespace tidb"
        held = [e for e in rig.cluster.store.list(Kind.EVENT, "tidb") if e.get("reason") == "HeldLong"]
        assert held and all(e["type"] == "Warning" and words in e["message"] for e in held)

    play(scenario, max_hold_s=60.0, **settings)


def stuck(name="web"):
    """No replacement can come: one node is left to it, and that is cordoned."""

    async def begin(rig):
        await gated(rig, nodes=2)
        await deployed(rig, name, start_s=5.0)
        pod, node = the_pod(rig, name)
        rig.cluster.cordon(next(n for n in ("n0", "n1") if n != node))
        return pod, node

    return begin


@pytest.mark.parametrize("how", ["moves its time", "takes it away"])
@pytest.mark.parametrize("fails_over", [False, True], ids=["one leader", "a new leader"])
def test_no_tenant_moves_the_deadline(how, fails_over):
    """Issue 42: the mark is the tenant's to write, and it writes it every two seconds. The deadline counts by the pod's
    uid all the same, for the leader that heard of the first try and for one that only saw the first mark."""

    async def scenario(rig):
        name, node = await stuck()(rig)
        if fails_over:
            rig.start("second")
            await rig.until(lambda: not rig.replicas["second"].replica.not_ready())
        began = rig.clock.now()
        task = asyncio.ensure_future(Drain(rig, node).run(limit_s=300.0))
        while not task.done():
            pod = rig.pod(SHOP, name)
            text = podstate.annotations_of(pod).get(LEAVING) if pod is not None else None
            if text is not None:
                mark = msgspec.structs.replace(read_mark(text), since=rig.clock.now())
                value = write_mark(mark) if how == "moves its time" or fails_over else None
                rig.cluster.annotate(Kind.POD, SHOP, name, {LEAVING: value})
            if fails_over and rig.clock.now() - began > 60.0 and "first" in rig.replicas:
                await rig.stop("first")
            await rig.sleep(2.0)
        task.result()
        assert rig.clock.now() - began <= 120.0 + 30.0

    play(scenario, max_hold_s=120.0)


def test_a_forged_mark_guards_nobody():
    """Issue 42: who is guarded is an administrator's or the owner's word. A pod of a workload that nobody guards passes,
    whatever is written on it."""

    async def scenario(rig):
        await gated(rig)
        await deployed(rig, annotations={})
        name, node = the_pod(rig)
        uid = rig.pod(SHOP, name)["metadata"]["uid"]
        mark = Mark(
            operator="7", source="eviction", reason="evicted", step="request", since=rig.clock.now(), pod_uid=uid,
            node=node, value="prepare",
        )  # fmt: skip
        rig.cluster.annotate(Kind.POD, SHOP, name, {LEAVING: write_mark(mark), REPLACE_FIRST: "true"})
        await rig.sleep(2.0)
        assert await refused(rig, name) == ""

    play(scenario)


@pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.nightly)])
def test_a_hundred_drains_at_once_end_after_the_deadline(count):
    """Issue 42: every node is drained at once, so that no replacement has room anywhere and nothing can be prepared:
    each drain ends one retry after the deadline, as late as one alone."""

    async def scenario(rig):
        await gated(rig, nodes=count)
        await deployed(rig, replicas=count, start_s=5.0)
        nodes = sorted({pod["spec"]["nodeName"] for pod in pods_of(rig)})
        for node in rig.cluster.store.list(Kind.NODE):
            rig.cluster.cordon(node["metadata"]["name"])
        began = rig.clock.now()
        drains = [asyncio.ensure_future(Drain(rig, node).run(limit_s=300.0)) for node in nodes]
        await asyncio.gather(*drains)
        assert len(nodes) > count // 2 and 110.0 <= rig.clock.now() - began <= 150.0

    play(scenario, max_hold_s=120.0)


def test_uninstalling_opens_the_gate_first():
    """Issue 42: the webhook goes before anything else, so that no eviction waits for a Mooring that is about to go."""

    async def scenario(rig):
        name, _ = await stuck()(rig)
        assert await refused(rig, name)
        await rig.until(lambda: bool(left_behind(rig)))
        rig.kill()
        found = await traces(rig.api, rig, "mooring-system")
        hooks = [trace for trace in found if "WebhookConfiguration" in trace.what]
        assert hooks and found[: len(hooks)] == hooks and len(found) > len(hooks)
        for trace in hooks:
            assert trace.undo is not None and await trace.undo() == ""
        assert not any("Webhook" in str(kind) and rig.cluster.store.list(kind) for kind in Kind)

    play(scenario)


def test_a_dead_pd_holds_a_drain_no_longer_than_max_hold():
    """D3, issue 42: a PD that does not answer proves nothing, and keeps nothing for good."""

    async def scenario(rig):
        await gated(rig, nodes=6)
        pd = await tidb(rig)
        await rig.sleep(20.0)
        pd.go_dark()
        began = rig.clock.now()
        await Drain(rig, rig.pod("tidb", "demo-tikv-1")["spec"]["nodeName"]).run(limit_s=400.0)
        assert rig.clock.now() - began >= 60.0

    play(scenario, max_hold_s=60.0)


def test_what_nobody_repeats_is_forgotten():
    """D3: withdrawn after `drain.forget-s`; the pod is given back."""

    async def scenario(rig):
        await gated(rig, nodes=1)
        await deployed(rig)
        name, _ = the_pod(rig)
        assert await refused(rig, name)
        await rig.until(lambda: bool(left_behind(rig)))
        await rig.until(lambda: not left_behind(rig) and not rig.unsettled(), limit_s=200.0)
        await rig.until(lambda: len(pods_of(rig)) == 1)
        await rig.sleep(60.0)
        assert not left_behind(rig)
        assert len(pods_of(rig)) == 1

    play(scenario, forget_s=60.0, prepared_s=600.0)


def test_what_is_prepared_in_vain_is_undone_and_left_alone_for_longer_each_time():
    """D3: nobody comes back within `drain.prepared-s`. Later tries wait for the back-off, and then count again."""

    async def scenario(rig):
        await gated(rig, nodes=6)
        pd = await tidb(rig)
        evict = rig.api.as_client("descheduler").evict
        with pytest.raises(ThrottledError):
            await evict("tidb", "demo-tikv-1")
        await rig.until(lambda: bool(pd.server.evict_list()))
        await rig.until(lambda: not pd.server.evict_list() and not rig.unsettled(), limit_s=300.0)
        assert not left_behind(rig)
        await rig.sleep(5.0)
        with pytest.raises(ThrottledError):
            await evict("tidb", "demo-tikv-1")
        await rig.sleep(3.0)
        with pytest.raises(ThrottledError, match="left alone"):
            await evict("tidb", "demo-tikv-1")
        await rig.sleep(30.0)
        assert not pd.server.evict_list()
        assert not pd.interruptions

    play(scenario, prepared_s=20.0)


def test_a_member_that_just_came_back_is_left_alone_where_nobody_empties_its_node():
    """D3, strimzi drain-cleaner#121: the same member, evicted again and again on a node that is not cordoned."""

    async def scenario(rig):
        await gated(rig, nodes=6)
        pd = await tidb(rig)
        node = rig.pod("tidb", "demo-tikv-1")["spec"]["nodeName"]
        uid = rig.pod("tidb", "demo-tikv-1")["metadata"]["uid"]
        evict = rig.api.as_client("descheduler").evict

        async def again(seconds):
            """The descheduler: every 10 s, for so long."""
            restarts, last = 0, uid
            for _ in range(int(seconds / 10)):
                pod = rig.pod("tidb", "demo-tikv-1")
                if pod is not None:
                    restarts += pod["metadata"]["uid"] != last
                    last = pod["metadata"]["uid"]
                    with contextlib.suppress(ThrottledError):
                        await evict("tidb", "demo-tikv-1")
                await rig.sleep(10.0)
            return restarts

        assert await again(500.0) == 1
        assert not pd.interruptions
        assert node

    play(scenario)


@pytest.mark.parametrize("cap", ["most", "most_per_namespace", "most_per_node", "most_per_workload"])
def test_beyond_the_caps_evictions_pass(cap):
    """D3: of the cluster, of one namespace, node or workload two are held, the third passes."""

    async def scenario(rig):
        await gated(rig, nodes=1 if cap == "most_per_node" else 4)
        await deployed(rig, replicas=3)
        names = sorted(p["metadata"]["name"] for p in pods_of(rig))
        answers = []
        for name in names:
            answers.append(await refused(rig, name))
            await rig.sleep(0.5)
        assert [bool(one) for one in answers] == [True, True, False]

    play(scenario, **{cap: 2})


def test_a_closed_budget_of_a_stateful_set_answers_itself():
    """D1: a replacement cannot come first, so it cannot open the budget; the budget's own words reach the client."""

    async def scenario(rig):
        await gated(rig)
        rig.cluster.stateful_set(SHOP, "db", 2, template=slow_template("db", 5.0), annotations=FIRST)
        await rig.until(lambda: rig.cluster.ready(SHOP, "db") == 2)
        rig.cluster.pdb(SHOP, "db", {"app": "db"}, min_available=2)
        await rig.sleep(10.0)
        with pytest.raises(Exception, match="disruption budget"):
            await rig.api.as_client("kubectl").evict(SHOP, "db-0")
        assert not left_behind(rig)

    play(scenario)


def test_a_new_leader_goes_on():
    """D1: the request is a mark on the pod; the replica stops right after it was written, the next one goes on."""

    async def scenario(rig):
        await gated(rig, nodes=6)
        pd = await tidb(rig)
        rig.start("second")
        drain = Drain(rig, rig.pod("tidb", "demo-tikv-1")["spec"]["nodeName"])
        task = asyncio.ensure_future(drain.run())
        await rig.until(lambda: LEAVING in podstate.annotations_of(rig.pod("tidb", "demo-tikv-1")))
        await rig.stop("first")
        await rig.until(task.done, limit_s=900.0)
        task.result()
        await rig.until(lambda: rig.cluster.ready("tidb", "demo-tikv") == 3 and not rig.unsettled())
        assert not pd.interruptions
        assert not pd.server.evict_list()

    play(scenario)


def karpenter_ends(rig, node, after_s):
    """Its NodeClaim is being deleted, with a terminationGracePeriod."""
    at = rfc3339(rig.clock.now() + after_s)
    metadata = {"name": f"claim-{node}", "annotations": {TERMINATES_AT: at}}
    rig.cluster.store.create(Kind.NODE_CLAIM, {"metadata": metadata, "status": {"nodeName": node}})
    rig.cluster.cordon(node)


def test_leaders_are_off_before_karpenter_deletes_by_force():
    """D3, M8: the moment stands on the NodeClaim alone; the mark of the TiKV pod takes it as its deadline, and the pod
    is gone before, though nobody repeats the eviction."""

    async def scenario(rig):
        await gated(rig, nodes=6)
        pd = await tidb(rig)
        pod = rig.pod("tidb", "demo-tikv-1")
        karpenter_ends(rig, pod["spec"]["nodeName"], 300.0)
        with contextlib.suppress(ThrottledError):
            await rig.api.as_client("karpenter").evict("tidb", "demo-tikv-1")
        gone = lambda: (rig.pod("tidb", "demo-tikv-1") or pod)["metadata"]["uid"] != pod["metadata"]["uid"]
        await rig.until(gone, limit_s=300.0 - pod["spec"].get("terminationGracePeriodSeconds", 30))
        assert not pd.interruptions

    play(scenario)


def test_what_cannot_be_prepared_passes_before_karpenter_deletes_it_by_force():
    """D3: an eviction, with its grace and its budget, is better than none. Until then it is held."""

    async def scenario(rig):
        await gated(rig, nodes=1)
        await deployed(rig)
        name, node = the_pod(rig)
        karpenter_ends(rig, node, 400.0)
        await rig.sleep(5.0)
        assert await refused(rig, name, by="karpenter")
        for _ in range(30):
            await rig.sleep(10.0)
            assert await refused(rig, name, by="karpenter")
        await rig.sleep(40.0)
        assert not await refused(rig, name, by="karpenter")

    play(scenario)
