"""Seed 000's story on the sandbox, with others waiting for the room, and with the replica killed at every write."""

import pytest

from mooring.capabilities.home.policy import HomePolicy
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING, Mark, write_mark
from mooring.process.settings.config import Config
from mooring_lab.stage.rig import Rig
from tests.sim.kill import kill_everywhere, undisturbed
from tests.sim.scenarios.home import NAME, NAMESPACE, HomeScenario

HOME = {"new": ["demo-tidb-0", "demo-tidb-1", "demo-tidb-2"], "home": True, "endpoints": True, "recorded": True}


class Without(HomeScenario):
    """The same day with the feature off."""

    def rig(self) -> Rig:
        return Rig(seed=self.seed, config=Config(features={}))


def test_a_rolling_update_comes_home():
    """H1, H5: new UIDs, same nodes, same local endpoints, although roomier nodes are free; nothing is written for it."""
    ending = undisturbed(HomeScenario(reservations=False))
    assert ending.state == HOME
    assert ending.writes == ()


def test_a_wish_is_enough_where_nothing_speaks_against_it():
    """H6: with `prefer` every candidate passes, and the home's score outweighs the roomier nodes."""
    scenario = HomeScenario(reservations=False)

    async def play(rig: Rig) -> None:
        await scenario.build(rig)
        wish = {"metadata": {"labels": {"mooring.dev/home": "prefer"}}}
        rig.cluster.store.patch(Kind.TIDB_CLUSTER, NAMESPACE, NAME, wish)
        rig.start()
        await rig.until(rig.leads)
        await scenario.act(rig)
        await rig.until(lambda: scenario.done(rig))

    rig = scenario.rig()
    rig.play(play)
    assert scenario.end_state(rig) == HOME


def test_switched_off_it_does_not():
    """H4: the same update without Home ends on other nodes, so the test above can fail."""
    assert undisturbed(Without(reservations=False)).state == {
        **HOME,
        "home": False,
        "endpoints": False,
        "recorded": False,
    }


@pytest.mark.parametrize("operator", [True, False], ids=["with tidb-operator", "without"])
def test_reservations_are_kept_against_another_scheduler(operator):
    """H8: two pods of another scheduler wait for room all along; each member's reservation is held and given back, once."""
    ending = undisturbed(HomeScenario(operator=operator))
    assert ending.state == HOME
    reservations = tuple(w for w in ending.writes if w.startswith("patch Node"))
    assert reservations == tuple(f"patch Node /node-{n}" for n in (2, 2, 1, 1, 0, 0))
    assert set(ending.writes) - set(reservations) == (set() if operator else {"patch TidbCluster tidb/demo"})


@pytest.mark.parametrize("operator", [True, False], ids=["with tidb-operator", "without"])
def test_killed_at_every_write_it_ends_the_same(operator):
    """H8, worked example 6: kill -9 around every write: the members come home and no reservation stays."""
    assert list(kill_everywhere(HomeScenario(operator=operator))) == []


def test_without_reservations_another_scheduler_takes_the_room():
    """The seed's limitation, shown: not held, the first reservation is lost at once."""
    scenario = HomeScenario()

    async def play(rig: Rig) -> None:
        await scenario.build(rig)
        rig.cluster.store.patch(Kind.TIDB_CLUSTER, NAMESPACE, NAME, {"metadata": {"labels": None}})
        rig.start()
        await rig.until(rig.leads)
        await scenario.act(rig)
        await rig.until(lambda: rig.cluster.ready("shop", "greedy") == 4)
        lost = set(rig.cluster.nodes_of("shop", "greedy").values()) & set(scenario.homes.values())
        assert lost == {scenario.homes["demo-tidb-2"]}

    scenario.rig().play(play)


def test_what_we_move_off_a_node_is_not_sent_back():
    """One queue: a member that one of our operators moves goes elsewhere, although its old node is free, and stays there."""
    scenario = HomeScenario(reservations=False)
    name = "demo-tidb-1"

    async def recreated(rig: Rig) -> str:
        uid = scenario._uid(rig, name)
        rig.cluster.store.delete(Kind.POD, NAMESPACE, name)
        await rig.until(
            lambda: scenario._uid(rig, name) not in {"", uid} and rig.cluster.ready(NAMESPACE, "demo-tidb") == 3
        )
        return rig.cluster.nodes_of(NAMESPACE, "demo-tidb")[name]

    async def play(rig: Rig) -> None:
        await scenario.build(rig)
        rig.start()
        await rig.until(rig.leads)
        mark = Mark(
            operator="9",
            source="mix",
            reason="wrong-class",
            step="DeletePod",
            since=rig.clock.now(),
            pod_uid=rig.pod(NAMESPACE, name)["metadata"]["uid"],
        )
        rig.cluster.annotate(Kind.POD, NAMESPACE, name, {LEAVING: write_mark(mark)})
        now = await recreated(rig)
        assert now != scenario.homes[name]
        await rig.until(lambda: scenario.recorded(rig)[name] == now)
        await rig.until(lambda: "mooring.dev/home" not in annotations(rig))
        rig.cluster.add_nodes(2, prefix="bigger-", cpu="32", memory="64Gi")
        assert await recreated(rig) == now

    def annotations(rig: Rig) -> dict:
        return rig.cluster.store.get(Kind.TIDB_CLUSTER, NAMESPACE, NAME)["metadata"].get("annotations") or {}

    scenario.rig().play(play)


def test_a_reservation_ends_when_the_member_does_not_come_back():
    """H8: bounded: with no scheduler for the member, its reservation is given up in time, and the others get in."""
    scenario = HomeScenario()

    async def play(rig: Rig) -> None:
        await scenario.build(rig)
        rig.start()
        await rig.until(rig.leads)
        rig.cluster.scheduler._profiles.pop("tidb-scheduler")
        await scenario.act(rig)
        await rig.until(lambda: bool(scenario.left_overs(rig)))
        await rig.until(
            lambda: not scenario.left_overs(rig), limit_s=20 + 30 + rig.config.policy(HomePolicy).hold_s + 5
        )
        await rig.until(lambda: rig.cluster.ready("shop", "greedy") == 4)

    scenario.rig().play(play)


def test_recreated_before_its_node_was_written_down():
    """H3: the tidb-operator is slow, so nobody has written anything yet; every replica saw where the members were."""
    scenario = HomeScenario(reservations=False)

    async def play(rig: Rig) -> None:
        await scenario.build(rig)
        rig.cluster.tidb_operator.stopped = True  # it lives (it wrote a phase), so it gets a minute to write nodes
        rig.cluster.store.patch(Kind.TIDB_CLUSTER, NAMESPACE, NAME, {"status": {"tidb": {"members": None}}})
        rig.start()
        await rig.until(rig.leads)
        for name in scenario.homes:
            rig.cluster.store.delete(Kind.POD, NAMESPACE, name)
        await rig.until(lambda: scenario.done(rig), limit_s=50)
        assert scenario.recorded(rig) == {}

    rig = scenario.rig()
    rig.play(play)
    assert rig.cluster.nodes_of(NAMESPACE, f"{NAME}-tidb") == scenario.homes
