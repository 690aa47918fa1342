"""F10: one bad row of the registry leaves that machine out by name, and stops nothing else."""

import msgspec

from mooring.capabilities.fleet.planner.decide import decide
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.fleet import roles_by_address, serial_of, stored
from tests.capabilities.fleet.fleet_making import cluster, cps_of, limits, m, view, workers_of
from tests.sim.scenarios.fleet import build_fleet, fleet_config


def bad(number, **more):
    return msgspec.structs.replace(m(number, **more), problem="address 10.0.0.1 belongs to several machines")


def test_a_spare_machine_with_a_bad_row_is_not_chosen_and_named():
    """F10: the next best is."""
    plan = decide(view([m(1), bad(2), m(3)]))
    assert sorted([*cps_of(plan), *workers_of(plan)]) == [1, 3]
    assert any("S2" in note and "several machines" in note for note in plan.notes)


def test_a_member_with_a_bad_row_stays_and_the_vanished_one_goes():
    """F10: it is neither gone nor known; the registry still lists it, by serial or address."""
    moved = msgspec.structs.replace(bad(3), address="")
    current = cluster([1], [2, 3, 4])
    members = tuple(
        msgspec.structs.replace(one, serial=f"S{one.address.rpartition('.')[2]}") for one in current.members
    )
    plan = decide(
        view(
            [m(1), bad(2), moved, m(5)],
            current=msgspec.structs.replace(current, members=members),
            constraints=limits(1, 2),
        )
    )
    assert plan.action == "remove-non-existent" and workers_of(plan) == [2, 3]


def test_a_control_plane_with_a_bad_row_does_not_cost_the_quorum():
    """F10, F3: two of three rows are bad, and nothing is taken for gone."""
    plan = decide(view([m(1), bad(2), bad(3), m(4)], current=cluster([1, 2, 3], [4]), constraints=limits(3, 1)))
    assert plan.error is None and plan.action == "none"


def test_in_the_loop_the_others_go_on():
    """F10: two machines share an address; a third that vanishes is replaced all the same, and the two stay."""
    rig = Rig(seed=1, config=fleet_config())

    async def whole(rig: Rig) -> None:
        build_fleet(rig, machines=9, planes=1, workers=4)
        rig.start()
        await rig.until(lambda: len(stored(rig).members) == 5)
        one, two, gone, _ = (a for a, role in roles_by_address(rig).items() if role == "worker")
        answer = rig.cluster.sabakan.machines

        async def machines(query=None):
            rows = await answer(query)
            said = f"address {one} belongs to several machines"
            return tuple(msgspec.structs.replace(r, problem=said) if r.address in {one, two} else r for r in rows)

        rig.cluster.sabakan.machines = machines
        del rig.cluster.sabakan.entries[serial_of(rig, gone)]
        await rig.until(lambda: gone not in roles_by_address(rig), limit_s=150)
        assert {one, two} <= set(roles_by_address(rig)) and len(stored(rig).members) >= 5
        assert not stored(rig).held

    rig.play(whole)
