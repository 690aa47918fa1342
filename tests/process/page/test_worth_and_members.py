"""The page beside stores and nodes: members of other systems with leaders, and what mix is worth."""

from mooring.capabilities.mix.policy import MixPolicy
from mooring.capabilities.mix.worth import Price, Prices
from mooring.core.model.kinds import Kind
from mooring.core.model.leaders import LEADERS
from mooring.process.http.frames import Framer
from tests.capabilities.mix.rebalance.mix_stage import Stage
from tests.sim.scenarios.leaders import NAME, NAMESPACE, LeadersScenario


def test_members_of_other_systems_with_leaders_are_rows_beside_the_stores():
    """L1: who leads, who is in sync, what one that is handed over waits for; a row opens the pod's own why."""
    scenario = LeadersScenario("etcd", (0,))

    async def whole(rig):
        await scenario.build(rig)
        rig.start()
        await rig.until(rig.leads)
        framer = Framer(rig.leader)
        await rig.until(lambda: bool(framer.listen()) and scenario.system(rig).leader == "db-0")
        await rig.sleep(30.0)
        found = (await framer.build()).tables["stores"].rows
        assert {name: (row.leaders, row.state, row.subject) for name, row in found.items()} == {
            "data/db/db-0": (1, "Up", "pod/data/db-0"),
            "data/db/db-1": (0, "Up", "pod/data/db-1"),
            "data/db/db-2": (0, "Up", "pod/data/db-2"),
        }
        assert all(row.node and row.limit == 1 and not row.used for row in found.values())
        scenario.system(rig).silent = {"db-2"}
        await rig.sleep(60.0)
        found = (await framer.build()).tables["stores"].rows
        assert "did not answer" in found["data/db/db-2"].state
        scenario.system(rig).silent = {"db-0", "db-1", "db-2"}
        await rig.sleep(60.0)
        found = (await framer.build()).tables["stores"].rows
        assert {row.state for row in found.values()} == {"unanswered"}
        scenario.system(rig).silent = set()
        await scenario.act(rig)
        await rig.until(lambda: bool(scenario.system(rig).moves))
        row = (await framer.build()).tables["stores"].rows["data/db/db-0"]
        assert row.used_by == (("op 1", 1, "op"),) and row.used == row.limit == 1
        rig.cluster.annotate(Kind.STATEFUL_SET, NAMESPACE, NAME, {LEADERS: None})
        await rig.until(lambda: not rig.unsettled(), limit_s=600)
        assert not (await framer.build()).tables["stores"].rows

    scenario.rig().play(whole)


def test_the_page_says_what_mix_is_worth():
    """M12: share of spot and, with prices, the saving, beside the classes of the nodes."""

    async def scenario(stage):
        await stage.deployed("web", 4, "custom", 1)
        said = (await Framer(stage.rig.leader).build()).tables["nodes"].sums["worth"]
        assert said.startswith("75 % of replicas on spot; about ") and "USD a month less" in said
        assert said.endswith("floors: 1 kept, 0 broken")

    Stage(MixPolicy(prices=Prices(currency="USD", cpu=Price(on_demand=0.05, spot=0.02)))).play(scenario)
