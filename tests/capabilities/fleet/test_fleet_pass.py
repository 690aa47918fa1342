"""One pass of the loop: what is wanted, and whether it may begin just now."""

import pytest

from mooring.capabilities.fleet.live.fleet_pass import Survey, make_pass
from mooring.capabilities.fleet.live.ledger import Pending, StoredCluster
from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.capabilities.fleet.live.settings import FleetSettings
from mooring.capabilities.fleet.live.store import Decisions
from mooring.capabilities.fleet.planner.plan import Action
from tests.capabilities.fleet.fleet_making import NOW, address, cluster, limits, m, template

POLICY = FleetPolicy()
REPLACE, ADD = Action.REPLACE_CONTROL_PLANE, Action.INCREASE_WORKERS


def survey(*, minimum: int = 1, broken: bool = False, added: tuple[int, ...] = ()) -> Survey:
    """Three control planes and a worker, two spare machines. `broken`: a control plane. `added`: without a Node yet."""
    machines = [m(1, state="UNHEALTHY" if broken else "HEALTHY"), *(m(n, rack=n) for n in range(2, 7))]
    stored = StoredCluster(
        Decisions("r1", cluster([1, 2, 3], [4]).members), pending=Pending(NOW - 1, tuple(map(address, added)))
    )
    settings = FleetSettings(template=template(), revision="r1", constraints=limits(3, minimum))
    return Survey(settings, stored, {one.address: one for one in machines}, {}, NOW)


@pytest.mark.parametrize(
    ("seen", "changing", "action", "wanted", "settling"),
    [
        (survey(broken=True), False, REPLACE, REPLACE, ""),
        (survey(broken=True), True, Action.NONE, REPLACE, "the control plane is being changed"),
        (survey(broken=True, added=(4,)), False, Action.NONE, REPLACE, "10.69.0.4 not Ready yet"),
        (survey(broken=True, added=(4,)), True, Action.NONE, REPLACE, "10.69.0.4 not Ready yet"),
        (survey(minimum=2), False, ADD, ADD, ""),
        (survey(minimum=2), True, ADD, ADD, ""),
        (survey(minimum=2, added=(4,)), True, Action.NONE, ADD, "10.69.0.4 not Ready yet"),
        (survey(), True, Action.NONE, Action.NONE, ""),
    ],
)
def test_one_change_of_the_control_plane_at_a_time_and_workers_beside_it(seen, changing, action, wanted, settling):
    """F3, F9: settling is per concern. A change of the control plane waits for the one under way, and says so; workers
    are added meanwhile. What the last change added has to be Ready before anything."""
    made = make_pass(seen, POLICY, changing=changing)
    assert (made.plan.action, made.wanted.action, made.settling) == (action, wanted, settling)
    assert made.quiet is (wanted is Action.NONE)
