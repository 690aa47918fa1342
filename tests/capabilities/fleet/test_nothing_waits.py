"""Issue 20, items 8 and 9: a retirement that cannot end stops nobody else."""

from typing import Any

from mooring.capabilities.fleet.planner import keys
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring.core.model.marks import RETIRING
from mooring_lab.cluster.controllers import manifests
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.fleet import (
    cordoned,
    pods_on,
    roles_by_address,
    serial_of,
    set_state,
    stored,
    taints_of,
)
from tests.sim.scenarios.fleet import SHOP, RetireScenario, annotations_of, build_fleet, fleet_config


def bare_pod(rig: Rig, node: str) -> None:
    """What nobody would recreate keeps its node until a person deletes it."""
    spec = {**manifests.pod_template({"app": "keep"})["spec"], "nodeName": node}
    rig.cluster.store.create(Kind.POD, {"metadata": {"namespace": SHOP, "name": f"keep-{node}"}, "spec": spec})


def of_role(rig: Rig, role: str) -> list[str]:
    return sorted(a for a, what in roles_by_address(rig).items() if what == role)


def play(then: Any, *, machines: int = 12, planes: int = 3, workers: int = 6, **policy: Any) -> None:
    rig = Rig(seed=1, config=fleet_config(**policy))

    async def whole(rig: Rig) -> None:
        build_fleet(rig, machines=machines, planes=planes, workers=workers)
        rig.start()
        await rig.until(lambda: len(stored(rig).members) == planes + workers)
        await rig.until(lambda: not stored(rig).pending.added)
        await then(rig)

    rig.play(whole)


def forget(rig: Rig, address: str) -> None:
    del rig.cluster.sabakan.entries[serial_of(rig, address)]


def test_a_blocked_retirement_stops_neither_vanished_nodes_nor_a_broken_control_plane():
    """F9, issue 20.8: the vanished worker leaves, its replacement comes, a broken control plane is replaced, while the
    retirement is still blocked."""

    async def then(rig: Rig) -> None:
        blocked, vanished, *_ = of_role(rig, "worker")
        plane = of_role(rig, "control plane")[0]
        bare_pod(rig, blocked)
        await rig.until(lambda: pods_on(rig, blocked) != [])
        set_state(rig, blocked, MachineState.RETIRING)
        await rig.until(lambda: RETIRING in annotations_of(rig, Kind.NODE, "", blocked), limit_s=90)
        forget(rig, vanished)
        await rig.until(lambda: vanished not in roles_by_address(rig), limit_s=150)
        rig.cluster.store.delete(Kind.NODE, "", vanished)
        await rig.until(lambda: len(of_role(rig, "worker")) >= 6, limit_s=300)
        forget(rig, plane)
        await rig.until(lambda: plane not in of_role(rig, "control plane"), limit_s=300)
        assert len(of_role(rig, "control plane")) == 3
        assert pods_on(rig, blocked) == [f"keep-{blocked}"], "still blocked"
        assert keys.STATE_TAINT not in taints_of(rig, blocked)

    play(then)


def test_blocked_retirements_give_their_places_back():
    """Issue 20.8: with 4 places and more blocked machines than that, one that could go is not kept for hours."""

    async def then(rig: Rig) -> None:
        *blocked, free = of_role(rig, "worker")
        assert len(blocked) == 5
        for address in blocked:
            bare_pod(rig, address)
            set_state(rig, address, MachineState.RETIRING)
        leader = rig.leader()
        await rig.until(lambda: leader.engine.queue.used("fleet") == 4, limit_s=120)
        set_state(rig, free, MachineState.RETIRING)
        await rig.until(lambda: keys.STATE_TAINT in taints_of(rig, free), limit_s=800)
        assert all(cordoned(rig, a) for a in blocked[:4]), "the cordons stay"
        assert not [a for a in blocked if keys.STATE_TAINT in taints_of(rig, a)]

    play(then, workers=6, machines=14)


def test_a_place_given_back_does_not_move_the_time_out():
    """Worked example 3: `retire-timeout` counts from the first cordon, whatever was given back in between."""

    async def then(rig: Rig) -> None:
        node = of_role(rig, "worker")[0]
        bare_pod(rig, node)
        set_state(rig, node, MachineState.RETIRING)
        await rig.until(
            lambda: '"step":"blocked"' in annotations_of(rig, Kind.NODE, "", node).get(RETIRING, ""), limit_s=900
        )
        await rig.until(lambda: keys.STATE_TAINT in taints_of(rig, node), limit_s=3600)
        assert not pods_on(rig, node), "evicted before the taint, not by it"
        assert [w for w in rig.writes if w.startswith("evict Pod")]

    play(then)


def test_a_hand_over_that_takes_longer_than_the_patience_goes_on():
    """Issue 20.8: leaders that leave are progress, whatever the number of pods on the node."""
    scenario = RetireScenario(web=0, regions=60, retire_patience_s=4.0)

    async def whole(rig: Rig) -> None:
        await scenario.build(rig)
        rig.start()
        await rig.until(rig.leads)
        await scenario.act(rig)
        await rig.until(lambda: scenario.done(rig))
        assert not [
            w for w in rig.leader().engine.history.of(f"machine/{serial_of(rig, scenario.n7)}") if "gives its" in w.text
        ]

    scenario.rig().play(whole)
