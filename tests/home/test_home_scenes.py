"""Seed 000's story on the sandbox, with others waiting for the room, and with the replica killed at every write."""

import pytest

from mooring.model.kinds import Kind
from mooring.rehearse.kill import kill_everywhere, undisturbed
from mooring.rehearse.rig import Rig
from mooring.rehearse.scenes.home import NAME, NAMESPACE, HomeScene
from mooring.run.config import Config

HOME = {"new": ["demo-tidb-0", "demo-tidb-1", "demo-tidb-2"], "home": True, "endpoints": True}


class Without(HomeScene):
    """The same day with the feature off."""

    def rig(self) -> Rig:
        return Rig(seed=self.seed, config=Config(features={}))


def test_a_rolling_update_comes_home():
    """H1, H5: new UIDs, same nodes, same local endpoints, although roomier nodes are free; nothing is written for it."""
    ending = undisturbed(HomeScene(seats=False))
    assert ending.state == HOME
    assert ending.writes == ()


def test_switched_off_it_does_not():
    """H4: the same update without Home ends on other nodes, so the test above can fail."""
    assert undisturbed(Without(seats=False)).state == {**HOME, "home": False, "endpoints": False}


@pytest.mark.parametrize("operator", [True, False], ids=["with tidb-operator", "without"])
def test_seats_are_kept_against_another_scheduler(operator):
    """H8: two pods of another scheduler wait for room all along; each member's seat is held and given back, once."""
    ending = undisturbed(HomeScene(operator=operator))
    assert ending.state == HOME
    assert ending.writes == tuple(f"patch Node /node-{n}" for n in (2, 2, 1, 1, 0, 0))


@pytest.mark.parametrize("operator", [True, False], ids=["with tidb-operator", "without"])
def test_killed_at_every_write_it_ends_the_same(operator):
    """H8, worked example 6: kill -9 around every write: the members come home and no seat stays."""
    assert list(kill_everywhere(HomeScene(operator=operator))) == []


def test_without_seats_another_scheduler_takes_the_room():
    """The seed's limitation, shown: not held, the first seat is lost at once."""
    scene = HomeScene()

    async def play(rig: Rig) -> None:
        await scene.build(rig)
        rig.cluster.store.patch(Kind.TIDB_CLUSTER, NAMESPACE, NAME, {"metadata": {"labels": None}})
        rig.start()
        await rig.until(rig.leads)
        await scene.act(rig)
        await rig.until(lambda: rig.cluster.ready("shop", "greedy") == 4)
        lost = set(rig.cluster.nodes_of("shop", "greedy").values()) & set(scene.homes.values())
        assert lost == {scene.homes["demo-tidb-2"]}

    scene.rig().play(play)


def test_a_seat_ends_when_the_member_does_not_come_back():
    """H8: bounded: with no scheduler for the member, its seat is given up in time, and the others get in."""
    scene = HomeScene()

    async def play(rig: Rig) -> None:
        await scene.build(rig)
        rig.start()
        await rig.until(rig.leads)
        rig.cluster.scheduler._profiles.pop("tidb-scheduler")
        await scene.act(rig)
        await rig.until(lambda: bool(scene.left_overs(rig)))
        await rig.until(lambda: not scene.left_overs(rig), limit_s=20 + 30 + rig.config.home.hold_s + 5)
        await rig.until(lambda: rig.cluster.ready("shop", "greedy") == 4)

    scene.rig().play(play)
