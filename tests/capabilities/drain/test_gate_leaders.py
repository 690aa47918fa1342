"""D1, D2, L1: a member of a system with leaders leaves through the gate, a drain or a notice as TiKV's do."""

import asyncio

import pytest

from mooring.core.model.kinds import Kind
from mooring.core.model.leaders import LEADERS, LEADERS_ENDPOINT
from mooring_lab.stage.scenarios.drain import Drain
from tests.capabilities.drain.test_gate_scenarios import SHOP, Least, gated, play, refused

DRIVERS = ["etcd", "patroni", "hook"]


async def system(rig, driver="etcd", replicas=3):
    annotations = {LEADERS: driver}
    if driver == "hook":
        annotations[LEADERS_ENDPOINT] = "http://hook.shop.svc:8080/"
    rig.cluster.stateful_set(SHOP, "db", replicas, annotations=annotations)
    await rig.until(lambda: rig.cluster.ready(SHOP, "db") == replicas)
    await rig.sleep(5.0)
    return rig.cluster.led[SHOP, "db"]


def node_of(rig, name):
    return rig.pod(SHOP, name)["spec"]["nodeName"]


def in_sync(led):
    return sum(led.lag(name) == 0 for name in led.members)


@pytest.mark.parametrize("driver", DRIVERS)
def test_kubectl_drain_takes_the_leader_only_after_it_has_handed_over(driver):
    """`kubectl drain` needs no flag: refused in words until another one leads, then it passes; we evict nothing."""

    async def scenario(rig):
        await gated(rig, nodes=5)
        led = await system(rig, driver)
        drain = Drain(rig, node_of(rig, led.leader))
        await drain.run()
        await rig.until(lambda: in_sync(led) == 3 and not rig.unsettled())
        assert not led.interruptions and led.moves == 1
        assert not any(write.startswith(("evict Pod", "delete Pod")) for write in rig.writes)
        assert drain.refusals

    play(scenario)


def test_three_nodes_drained_at_once_take_one_member_at_a_time():
    """The next goes only when the last is in sync, by the system's own word."""

    async def scenario(rig):
        await gated(rig, nodes=7)
        led = await system(rig)
        nodes = sorted({node_of(rig, f"db-{i}") for i in range(3)})
        least = Least(rig, lambda: in_sync(led))
        drains = [asyncio.ensure_future(Drain(rig, node).run()) for node in nodes]
        await least.watch(lambda: all(one.done() for one in drains))
        for one in drains:
            one.result()
        assert least.seen == 2 and not led.interruptions

    play(scenario)


def test_a_member_whose_loss_breaks_the_quorum_is_kept_beyond_max_hold():
    """D3: another member is down; this one is kept, visibly, where an administrator trusts its namespace."""

    async def scenario(rig):
        await gated(rig, nodes=5)
        led = await system(rig)
        led.silent = {"db-2"}
        await rig.sleep(70.0)
        said = await refused(rig, "db-1")
        assert said
        for _ in range(30):
            await rig.sleep(5.0)
            said = await refused(rig, "db-1")
        assert "kept" in said and "needed" in said
        assert led.running == ["db-0", "db-1", "db-2"]

    play(scenario, max_hold_s=60.0, keep=("shop",))


def test_a_system_that_says_for_ever_that_its_member_leads_holds_a_drain_no_longer_than_max_hold():
    """D3, issue 42: what answers for a tenant's system is the tenant's. Out of the box its namespace is not trusted."""

    async def scenario(rig):
        await gated(rig, nodes=5)
        led = await system(rig)
        led.silent = {"db-2"}
        await rig.sleep(70.0)
        began = rig.clock.now()
        await Drain(rig, node_of(rig, "db-1")).run(limit_s=200.0)
        assert 60.0 <= rig.clock.now() - began <= 75.0

    play(scenario, max_hold_s=60.0)


@pytest.mark.parametrize("how", ["drain", "notice"])
def test_a_node_that_is_emptied_by_mooring_hands_over_first(how):
    """`mooring drain` and an interruption notice ask handoff, which moves leadership before the pod goes."""

    async def scenario(rig):
        await gated(rig, nodes=5)
        led = await system(rig)
        node = node_of(rig, led.leader)
        asked = (
            {"mooring.dev/drain": ""}
            if how == "drain"
            else {"vacant.io/interrupt-at": rig.cluster.timeline.stamp(delta_s=120.0)}
        )
        rig.cluster.annotate(Kind.NODE, "", node, asked)
        await rig.until(lambda: not list(rig.cluster.store.pods_on(node)) and in_sync(led) == 3, limit_s=300.0)
        assert not led.interruptions and led.moves == 1

    play(scenario, features=("drain", "handoff", "mix") if how == "notice" else ("drain", "handoff"))


def test_a_member_that_cannot_go_blocks_its_drain_in_words():
    """One member alone: the drain says that it is blocked, and what to type."""

    async def scenario(rig):
        await gated(rig, nodes=5)
        await system(rig, replicas=1)
        node = node_of(rig, "db-0")
        rig.cluster.annotate(Kind.NODE, "", node, {"mooring.dev/drain": ""})
        key = ("drain", f"node/{node}")
        await rig.until(lambda: rig.leader().engine.verdicts.get(key) is not None)
        await rig.sleep(20.0)
        said = rig.leader().engine.verdicts[key]
        assert said.state == "blocked" and "scale sts db" in said.remedy
        assert rig.pod(SHOP, "db-0") is not None

    play(scenario)
