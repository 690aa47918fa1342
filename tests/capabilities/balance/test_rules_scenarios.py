"""T12 on the sandbox's PD: placement rules, TiFlash, low space, and everybody who asks PD to hold still."""

import msgspec
import pytest

from mooring.capabilities.balance import BalancePolicy
from mooring.core.engine.why import explain, render
from mooring.core.model.reasons import Reason
from mooring_lab.cluster.pd.placement import CHECKERS
from tests.sim.scenarios.balance import NAME, NAMESPACE, ScaleOutScenario

KEY = ("balance", f"{NAMESPACE}/{NAME}")


def key(number):
    return f"k{number:08d}".encode().hex().upper() if number else ""


def rule(id_, first, last, **how):
    ranges = {"start_key": key(first), "end_key": "" if last is None else key(last)}
    return {"group_id": "pd", "id": id_, "role": "voter", "count": 3, **ranges, **how}


class RulesScenario(ScaleOutScenario):
    """Three policies and TiFlash: 60 plain regions, 30 with five replicas, 30 that stay off the last zone, and a learner
    of two thirds of them. Store 1 of TiKV holds far too much, and one store is nearly out of space."""

    async def build(self, rig):
        await super().build(rig)
        pd = self.pd(rig)
        server = pd.server
        for store in server.tikv.stores.values():
            store.labels = {"zone": "abc"[store.id % 3], "host": str(store.id)}
        tikv = sorted(server.tikv.stores)
        flash = [pd.attach(f"{NAME}-tiflash-{n}", labels={"engine": "tiflash"}) for n in range(2)]
        for group in list(server.tikv.groups.values()):
            server.tikv.drop_group(group)
        server.hear(list(server.cache))
        within = [s for s in tikv if server.tikv.stores[s].labels["zone"] != "c"]
        where, roles = [], {}
        for number in range(120):
            if number < 60:
                stores = [tikv[0], *_apart(server, tikv, number)]
            elif number < 90:
                stores = tikv[:5]
            else:
                stores = [within[0], within[1], within[2]]
            if number < 80:
                stores = [*stores, flash[0]]
                roles[number] = {flash[0]: "Learner"}
            where.append((stores, stores[0]))
        server.placement.set_rules(
            [
                rule("default", 0, None, location_labels=["zone"]),
                rule("five", 60, 90, count=5, override=True, index=1),
                rule(
                    "zones",
                    90,
                    None,
                    override=True,
                    index=1,
                    label_constraints=[{"key": "zone", "op": "notIn", "values": ["c"]}],
                ),
                {
                    "group_id": "tiflash",
                    "id": "learners",
                    "role": "learner",
                    "count": 1,
                    "start_key": "",
                    "end_key": key(80),
                    "label_constraints": [{"key": "engine", "op": "in", "values": ["tiflash"]}],
                },
            ]
        )
        pd.place(where, roles)
        self.flash, self.tikv = flash, tikv


def _apart(server, stores, number):
    """Two stores more, in the zones where the first is not."""
    zone = lambda store: server.tikv.stores[store].labels["zone"]
    zones = {zone(stores[0]): stores[0]}
    for k in range(len(stores)):
        store = stores[(number + k) % len(stores)]
        zones.setdefault(zone(store), store)
    return list(zones.values())[1:]


def test_after_an_hour_pds_checkers_have_found_nothing_to_do():
    """T12: TiFlash learners and three policies, uneven at first: an hour of ours, and PD's rule checker never acts; no
    region has a voter more or less than its rule says, and the store that is low on space got nothing."""
    scenario = RulesScenario(stores=7, regions=10)
    acted = []

    async def whole(rig):
        await scenario.build(rig)
        server = scenario.pd(rig).server
        full = server.tikv.stores[scenario.tikv[-1]]
        full.free_share = 0.01
        start = server.operators.start
        server.operators.start = lambda op: acted.append((op.desc, op.brief)) or start(op)
        before = {s: len(server.tikv.held[s]) for s in scenario.tikv}
        rig.start()
        await rig.until(rig.leads)
        await rig.sleep(3600)
        held = {s: len(held) for s, held in server.tikv.held.items()}
        assert max(before.values()) - held[scenario.tikv[0]] > 20, "ours did move something"
        assert held[full.id] <= before[full.id]
        assert abs(held[scenario.flash[0]] - held[scenario.flash[1]]) <= 6, "TiFlash is even"
        groups = sorted(server.tikv.groups.values(), key=lambda g: g.start_key)
        voters = [sum(p.role == "Voter" for p in g.peers) for g in groups]
        assert voters == [3] * 60 + [5] * 30 + [3] * 30
        zones = [{server.tikv.stores[p.store_id].labels.get("zone") for p in g.peers} - {None} for g in groups]
        assert {len(z) for z in zones[:60]} == {3} and all("c" not in z for z in zones[90:])
        assert not rig.unsettled()

    scenario.rig().play(whole)
    assert [what for what in acted if what[0] in CHECKERS] == []
    assert any(desc == "admin-move-peer" for desc, _ in acted)


def moves_of(rig):
    return len([w for w in rig.writes if "add_operator" in w])


def why(rig):
    leader = rig.leader()
    found = explain(leader.engine, f"cluster/{NAMESPACE}/{NAME}", now=leader.shell.now())
    return "\n".join(render(msgspec.json.decode(msgspec.json.encode(found))))


def held_still(befalls, until, reason):
    """`befalls(pd)` in the middle of balancing: nothing begins any more, `why` says so; after `until(pd)` it goes on."""
    scenario = ScaleOutScenario(stores=3, regions=60)

    async def whole(rig):
        await scenario.build(rig)
        rig.start()
        await rig.until(rig.leads)
        await scenario.act(rig)
        pd = scenario.pd(rig)
        await rig.until(lambda: moves_of(rig) > 5)
        await befalls(pd)
        await rig.sleep(5)
        asked = moves_of(rig)
        await rig.sleep(40)
        assert moves_of(rig) == asked
        verdict = rig.leader().engine.verdicts[KEY]
        assert verdict.reason == reason, verdict
        said = why(rig)
        assert verdict.detail.split(":")[0] in said and verdict.remedy in said, said
        await until(pd, rig)
        await rig.until(lambda: scenario.balanced(rig), limit_s=2000)
        assert moves_of(rig) > asked

    scenario.rig().play(whole)


def test_halt_scheduling_is_respected():
    """T12: PD is told to hold still, and so are we; `why` names the command that ends it."""

    async def halt(pd):
        pd.server.placement.halted = True

    async def go_on(pd, rig):
        pd.server.placement.halted = False

    held_still(halt, go_on, Reason.PD_HALTED)


def test_a_pause_of_br_is_kept():
    """T12: BR pauses PD's schedulers for five minutes: not shortened, not lengthened, and nothing is moved by us."""
    ends = []

    async def pause(pd):
        for name in ("balance-leader-scheduler", "balance-region-scheduler"):
            pd.server.pause(name, 300)
        ends.append(pd.server.paused["balance-region-scheduler"][1])

    async def go_on(pd, rig):
        assert pd.server.paused["balance-region-scheduler"][1] == ends[0]
        await rig.sleep(max(0.0, ends[0] - pd.timeline.now() - 1))
        assert pd.server.paused["balance-region-scheduler"][1] == ends[0]

    held_still(pause, go_on, Reason.PAUSED_BY_OTHERS)


def test_denied_regions_are_left_alone():
    """T12: half of the keys have the label `schedule=deny`: those regions stay where they are."""
    scenario = ScaleOutScenario(stores=3, regions=60)

    async def whole(rig):
        await scenario.build(rig)
        pd = scenario.pd(rig)
        pd.server.placement.deny(key(30), "")
        still = {
            g.id: sorted(p.store_id for p in g.peers) for g in pd.server.tikv.groups.values() if g.start_key >= key(30)
        }
        rig.start()
        await rig.until(rig.leads)
        await scenario.act(rig)
        await rig.until(lambda: moves_of(rig) > 15)
        await rig.sleep(60)
        assert "1 range of keys with the label schedule=deny" in why(rig)
        assert {g: sorted(p.store_id for p in pd.server.tikv.groups[g].peers) for g in still} == still

    scenario.rig().play(whole)


def test_a_store_that_pd_does_not_empty_stops_nothing():
    """T12: the only TiFlash store is Down, so its learners have nowhere to go and PD does nothing about them: a new TiKV
    store is filled all the same, after two rotations without progress there; `why` says what was waited for."""
    scene = ScaleOutScenario(stores=3, regions=60)

    async def whole(rig):
        await scene.build(rig)
        pd = scene.pd(rig)
        flash = pd.attach(f"{NAME}-tiflash-0", labels={"engine": "tiflash"})
        where = [[p.store_id for p in g.peers] for g in pd.server.tikv.groups.values()]
        for group in list(pd.server.tikv.groups.values()):
            pd.server.tikv.drop_group(group)
        pd.server.hear(list(pd.server.cache))
        pd.place([([*stores, *([flash] if n < 20 else [])], stores[0]) for n, stores in enumerate(where)],
                 {n: {flash: "Learner"} for n in range(20)})  # fmt: skip
        rules = [rule("default", 0, None), rule("learners", 0, 20, group_id="tiflash", role="learner", count=1,
                 label_constraints=[{"key": "engine", "op": "in", "values": ["tiflash"]}])]  # fmt: skip
        pd.server.placement.set_rules(rules)
        pd.pod_gone(f"{NAME}-tiflash-0")
        rig.start()
        await rig.until(rig.leads)
        await rig.until(lambda: pd.server.store(pd.server.tikv.stores[flash]).state == "Down", limit_s=4000)
        await scene.act(rig)
        new = max(pd.server.tikv.stores)
        await rig.sleep(30)
        assert not pd.server.tikv.held[new] and f"PD takes 20 replicas off store {flash} first" in why(rig)
        await rig.until(lambda: len(pd.server.tikv.held[new]) > 25, limit_s=2000)
        assert len(pd.server.tikv.held[flash]) == 20

    scene.rig().play(whole)


@pytest.mark.parametrize("named", [False, True])
def test_repairs_are_left_to_pd_unless_named(named):
    """T12: a store is lost: PD's own checkers make up for it, and no region is balanced before they are done; ours repair
    only where `replica` was asked for by name."""
    policy = BalancePolicy(sources=("balance-leader", "balance-region", *(("replica",) if named else ())))
    scenario = ScaleOutScenario(stores=4, regions=40, policy=policy)
    scenario.started, scenario.beside = [], []

    async def whole(rig):
        await scenario.build(rig)
        rig.start()
        await rig.until(rig.leads)
        await scenario.act(rig)
        await rig.until(lambda: moves_of(rig) > 5)
        pd = scenario.pd(rig)
        start = pd.server.operators.start
        leaving = lambda: any(pd.server.tikv.held[s] for s in pd.server.leaving_stores())
        pd.server.operators.start = lambda op: (
            scenario.started.append(op.desc) or (leaving() and scenario.beside.append(op.desc)) or start(op)
        )
        pd.pod_gone(f"{NAME}-tikv-1")
        lost = pd.store_of(f"{NAME}-tikv-1").id
        await rig.until(lambda: not pd.server.tikv.held[lost], limit_s=4000)

    scenario.rig().play(whole)
    assert "replace-offline-replica" in scenario.started
    assert named or not {"admin-add-peer", "admin-remove-peer"} & set(scenario.started)
    assert named or scenario.beside.count("admin-move-peer") == 0


def test_a_region_without_a_leader_makes_nobody_read_them_all():
    """T12: one region is lost for good: in five minutes it is asked for by its id again and again, and all of them are
    read as often as ever, once a minute."""
    scenario = ScaleOutScenario(stores=3, regions=60)
    whole_reads, single_reads = [], []

    async def whole(rig):
        await scenario.build(rig)
        pd = scenario.pd(rig)
        pd.lose_region(f"{NAME}-tikv-1")
        pd.restart()
        await rig.sleep(60)
        lost = [region.id for region in pd.server.cache.values() if not region.leader_store]
        rig.start()
        await rig.until(rig.leads)
        await rig.sleep(60)
        regions, region = pd.regions, pd.region
        pd.regions = lambda *which: whole_reads.append(which) or regions(*which)
        pd.region = lambda id_: single_reads.append(id_) or region(id_)
        await rig.sleep(300)
        assert set(single_reads) == set(lost) and len(lost) == 1

    scenario.rig().play(whole)
    assert len(whole_reads) <= 6
    assert len(single_reads) >= 30
