"""T12 on the sandbox's PD: a store is added and everything spreads under the limit, whatever happens meanwhile."""

from collections import Counter

import pytest

from mooring.capabilities.balance import Summary, foreign
from mooring.capabilities.balance.pause import BALANCE_ANNOTATION, RELEASED
from mooring.core.model.kinds import Kind
from mooring.core.queue import live_settings
from tests.sim.kill import kill_everywhere, undisturbed
from tests.sim.scenarios.balance import LIMIT, NAME, NAMESPACE, ScaleOutScenario


def play(befalls=None, **how):
    """Play the scenario; `befalls(rig, scenario)` happens when about a third of the regions have moved."""
    scenario = ScaleOutScenario(**how)

    async def whole(rig):
        await scenario.build(rig)
        rig.start()
        await rig.until(rig.leads)
        await scenario.act(rig)
        if befalls is not None:
            await rig.until(lambda: scenario.watch(rig) or min(scenario.counts(rig)["regions"]) >= 50)
            await befalls(rig, scenario)
        await rig.until(lambda: scenario.balanced(rig), limit_s=4000)
        scenario.moved = len([w for w in rig.writes if "add_operator" in w])
        await rig.sleep(200)
        scenario.moved_later = len([w for w in rig.writes if "add_operator" in w]) - scenario.moved
        scenario.regions_left = {len(g.peers) for g in scenario.pd(rig).server.tikv.groups.values()}

    scenario.rig().play(whole)
    return scenario


def test_a_new_store_is_filled_under_the_limit():
    """T12: five stores, 300 regions, one store added: balanced, no store above its limit, PD's balancers idle."""
    scenario = play()
    assert 0 < scenario.peak == scenario.peak_of_all <= LIMIT
    assert scenario.intruders == []
    assert scenario.regions_left == {3}
    # 900 peers over six stores: 150 for the new one, and leaders to even out. Nothing goes to and fro.
    assert 150 <= scenario.moved <= 150 + 300 // 4
    assert scenario.moved_later == 0


async def die(rig, scenario):
    """As kill -9, and another starts when its lease has run out."""
    rig.kill()
    for _ in range(12):
        scenario.watch(rig)
        await rig.sleep(0.25)
    rig.start()
    await rig.until(lambda: scenario.watch(rig) or rig.leads())


async def pd_restarts(rig, scenario):
    scenario.pd(rig).restart()
    await rig.sleep(1.0)


async def a_store_is_lost(rig, scenario):
    """Its process is gone for good: after half an hour PD calls it Down, and its peers are made up for elsewhere."""
    scenario.pd(rig).pod_gone(f"{NAME}-tikv-1")


@pytest.mark.parametrize("befalls", [die, pd_restarts, a_store_is_lost])
def test_it_balances_whatever_happens_midway(befalls):
    """T12: the same with us killed, PD restarted, a store lost: balanced in the end, never above the limit."""
    scenario = play(befalls)
    assert 0 < scenario.peak <= LIMIT
    assert scenario.intruders == []
    assert scenario.regions_left == {3}


def heading_for(store, pd):
    """Operators of ours that PD runs and that bring something to this store."""
    running = pd.server.operators.running.values()
    return [op.line() for op in running if op.desc in foreign.OURS and any(s.store == store for s in op.steps[:1])]


def test_what_is_under_way_to_a_store_that_dies_is_canceled():
    """T12: the new store dies while it is being filled: as soon as PD calls it Disconnected, what runs and waits for it
    is taken back, in PD too; nothing waits for its ten minutes, and nothing is sent there any more."""
    scenario = ScaleOutScenario(stores=3, regions=60)

    async def whole(rig):
        await scenario.build(rig)
        rig.start()
        await rig.until(rig.leads)
        await scenario.act(rig)
        pd = scenario.pd(rig)
        store = pd.store_of(f"{NAME}-tikv-3")
        await rig.until(lambda: scenario.watch(rig) or len(heading_for(store.id, pd)) > 1)
        pd.pod_gone(f"{NAME}-tikv-3")
        state = lambda: pd.server.state_of(pd.server.tikv.stores[store.id])
        await rig.until(lambda: scenario.watch(rig) or state() == "Disconnected")
        assert heading_for(store.id, pd), "nothing was under way: this shows nothing"
        await rig.until(lambda: scenario.watch(rig) or not heading_for(store.id, pd), limit_s=5)
        asked = len([w for w in rig.writes if "add_operator" in w])
        await rig.until(lambda: scenario.watch(rig) or not rig.unsettled(), limit_s=10)
        await rig.sleep(60)
        assert len([w for w in rig.writes if "add_operator" in w]) == asked and state() == "Disconnected"
        assert [w for w in rig.writes if "cancel_operator" in w]

    scenario.rig().play(whole)
    assert 0 < scenario.peak <= LIMIT


def lose_what_is_filled(kill=None):
    """The new store dies while it is being filled; `kill`: so do we, at that write."""
    scenario = ScaleOutScenario(stores=3, regions=24)
    written = []

    async def whole(rig):
        await scenario.build(rig)
        rig.start()
        if kill is not None:
            rig.kill_at(*kill)
        await rig.until(rig.leads)
        await scenario.act(rig)
        pd = scenario.pd(rig)
        store = pd.store_of(f"{NAME}-tikv-3").id
        await rig.until(lambda: scenario.watch(rig) or len(heading_for(store, pd)) > 1)
        pd.pod_gone(f"{NAME}-tikv-3")
        if kill is not None:
            await rig.until(lambda: scenario.watch(rig) or not rig.replicas, limit_s=120)
            rig.start()
        await rig.until(lambda: scenario.balanced(rig), limit_s=6000)
        written.extend(rig.writes)

    scenario.rig().play(whole)
    assert 0 < scenario.peak <= LIMIT
    return written


def test_killed_at_a_cancel_it_ends_the_same():
    """T12: kill -9 right before and right after each cancel: what PD still runs is read back and followed, no store is
    above its limit, and in the end everything is off the dead store."""
    cancels = [number for number, what in enumerate(lose_what_is_filled(), 1) if "cancel_operator" in what]
    assert cancels
    for number in cancels:
        for side in ("before", "after"):
            lose_what_is_filled((number, side))


def cost_of(operator, scenario, server):
    summary = Summary(scenario.policy)
    summary.put(server.cache[operator.region_id])
    return foreign.costs(operator.view(), live_settings(), summary)


def test_after_a_restart_ours_wait_for_what_pd_began_by_itself():
    """T12: a restarted PD has forgotten its pauses and balances until it is asked again, for some hundredths of a second;
    what it began is charged: none of ours begins where there is no room beside it, and the limit holds again."""
    begun = []

    async def watched(rig, scenario):
        server = scenario.pd(rig).server
        start = server.operators.start

        def check(operator):
            started = start(operator)
            load = Counter()
            for running in server.operators.running.values():
                load.update(cost_of(running, scenario, server))
            touched = max((load[store] for store in cost_of(operator, scenario, server)), default=0)
            begun.append((server.timeline.monotonic(), operator.desc, touched))
            return started

        server.operators.start = check
        scenario.pd(rig).restart()
        await rig.sleep(1.0)

    play(watched)
    theirs = [at for at, desc, _ in begun if desc.endswith("-scheduler")]
    ours = [most for _, desc, most in begun if desc in foreign.OURS]
    assert theirs, "it balanced by itself for a moment"
    assert max(theirs) - min(theirs) <= 0.2
    assert ours and max(ours) <= LIMIT


@pytest.mark.parametrize("write", [1, 4, 7, 30, 61])
@pytest.mark.parametrize("side", ["before", "after"])
def test_killed_at_a_write_it_ends_the_same(write, side):
    """T12: killed right before or right after a pause or an operator: what PD runs is read back and followed."""
    scenario = ScaleOutScenario(stores=3, regions=60)

    async def whole(rig):
        await scenario.build(rig)
        rig.start()
        rig.kill_at(write, side)
        await scenario.act(rig)
        await rig.until(lambda: scenario.watch(rig) or not rig.replicas or scenario.balanced(rig), limit_s=2000)
        assert not rig.replicas, "there was no such write"
        rig.start()
        await rig.until(lambda: scenario.balanced(rig), limit_s=2000)

    scenario.rig().play(whole)
    assert 0 < scenario.peak <= LIMIT


def test_killed_at_every_write_it_ends_the_same():
    """T12: kill -9 right before and right after every pause and every operator of the scenario: balanced in the end, no
    store above its limit, no region left half moved, and nothing is taken back."""
    scenario = ScaleOutScenario(stores=3, regions=24)
    plain = undisturbed(scenario)
    assert plain.state == {"regions": {("Voter",) * 3}, "taken back": []}
    assert len([w for w in plain.writes if "add_operator" in w]) >= 18
    assert len([w for w in plain.writes if "pause_scheduler" in w]) >= 3
    assert list(kill_everywhere(scenario)) == []


def test_pd_takes_over_when_we_are_gone():
    """T12: killed for good, PD's own balancers are paused a minute at most, and finish the work."""
    scenario = ScaleOutScenario()

    async def whole(rig):
        await scenario.build(rig)
        rig.start()
        await rig.until(rig.leads)
        await scenario.act(rig)
        server = scenario.pd(rig).server
        await rig.until(lambda: min(scenario.counts(rig)["regions"]) >= 20)
        assert server.is_paused("balance-region-scheduler")
        rig.kill()
        await rig.sleep(61)
        assert not any(server.is_paused(name) for name in server.scheduler_names())
        await rig.until(lambda: min(scenario.counts(rig)["regions"]) >= 130)

    scenario.rig().play(whole)


def test_released_pd_is_resumed_at_once_and_left_alone():
    """T12: the annotation resumes PD's schedulers within a second or two; taken away, we are back."""
    scenario = ScaleOutScenario()

    async def whole(rig):
        await scenario.build(rig)
        rig.start()
        await rig.until(rig.leads)
        server = scenario.pd(rig).server
        paused = lambda: {n for n in server.scheduler_names() if server.is_paused(n)}
        await rig.until(lambda: len(paused()) == 2)
        assert paused() == {
            "balance-leader-scheduler",
            "balance-region-scheduler",
        }, "PD's hot scheduler goes on: it moves peers, too"
        rig.cluster.annotate(Kind.TIDB_CLUSTER, NAMESPACE, NAME, {BALANCE_ANNOTATION: RELEASED})
        await rig.until(lambda: not paused(), limit_s=2)
        asked = len(rig.writes)
        await rig.sleep(120)
        assert not paused() and len(rig.writes) == asked
        rig.cluster.annotate(Kind.TIDB_CLUSTER, NAMESPACE, NAME, {BALANCE_ANNOTATION: None})
        await rig.until(lambda: len(paused()) == 2, limit_s=30)

    scenario.rig().play(whole)


def test_leaders_leave_an_evicting_store_and_are_not_brought_back():
    """T12: PD's evict-leader is never paused, and our balancing gives its store no leader."""
    scenario = ScaleOutScenario(stores=4, regions=120)

    async def whole(rig):
        await scenario.build(rig)
        rig.start()
        await rig.until(rig.leads)
        pd = scenario.pd(rig)
        store = pd.store_of(f"{NAME}-tikv-0").id
        await rig.sleep(5)
        await pd.add_evict_leader(store)
        await rig.until(lambda: not pd.server.led_by(store), limit_s=120)
        for _ in range(120):
            await rig.sleep(1)
            assert not pd.server.led_by(store)
        assert not pd.server.is_paused("evict-leader-scheduler")

    scenario.rig().play(whole)


def test_somebody_elses_operators_take_room():
    """T12: what a person asks of PD is charged on the stores it touches, so ours wait for it."""
    scenario = ScaleOutScenario()

    async def whole(rig):
        await scenario.build(rig)
        pd = scenario.pd(rig)
        new = pd.attach(f"{NAME}-tikv-9")
        for region in [r for r in await pd.regions() if r.leader_store == 1][:2]:
            source = region.peers[-1].store_id
            ask = {"name": "transfer-peer", "region_id": region.id, "from_store_id": source, "to_store_id": new}
            await pd.add_operator(ask)
        rig.start()
        await rig.until(rig.leads)
        await rig.until(lambda: scenario.watch(rig) or bool(rig.leader().engine.waiting), limit_s=60)
        for _ in range(100):
            scenario.watch(rig)
            await rig.sleep(0.1)

    scenario.rig().play(whole)
    assert 0 < scenario.peak <= LIMIT


def test_switched_off_midway_what_runs_ends():
    """T12: nothing new is proposed, what PD was asked for is followed to its end, and PD balances by itself again."""
    scenario = ScaleOutScenario(stores=3, regions=60)

    async def whole(rig):
        await scenario.build(rig)
        rig.start()
        await scenario.act(rig)
        await rig.until(lambda: rig.leads() and bool(rig.leader().engine.running))
        rig.leader().shell.switch(frozenset())
        await rig.until(lambda: not rig.unsettled(), limit_s=60)
        await rig.until(lambda: min(scenario.counts(rig)["regions"]) >= 35, limit_s=300)

    scenario.rig().play(whole)


def test_a_hand_over_beside_balancing():
    """T12, E6: a pod is handed over and restarted while our schedulers balance: no leader is interrupted, none comes
    back before its store is, and everything is even in the end."""
    from mooring.capabilities.balance import BalancePolicy
    from mooring.capabilities.handoff.policy import HandoffPolicy
    from mooring.process.settings.config import Config
    from mooring_lab.stage.rig import Rig
    from tests.sim.scenarios.restart import RestartScenario

    scenario = RestartScenario(regions=60)
    config = Config(
        features={"handoff": True, "balance": True},
        policies=(HandoffPolicy(recheck_s=5.0), BalancePolicy(clusters=("*",))),
    )
    rig = Rig(seed=1, config=config)

    def even():
        led = [len(leaders) for leaders in scenario.pd(rig).server.tikv.led.values()]
        return max(led) - min(led) <= 6 and not rig.unsettled()

    async def whole(rig):
        await scenario.build(rig)
        rig.start()
        await rig.until(rig.leads)
        await scenario.act(rig)
        await rig.until(lambda: scenario.done(rig), limit_s=600)
        await rig.until(even, limit_s=300)

    rig.play(whole)
    assert scenario.end_state(rig) == {"new": ["demo-tikv-0"], "ready": 3, "deleted with leaders": 0}
