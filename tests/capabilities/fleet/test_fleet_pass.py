"""One pass of the loop: what is wanted, and whether it may begin just now."""

import pytest

from mooring.capabilities.fleet.live.fleet_pass import Survey, make_pass
from mooring.capabilities.fleet.live.ledger import Decisions, Pending, StoredCluster
from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.capabilities.fleet.live.settings import FleetSettings
from mooring.capabilities.fleet.planner.plan import Action
from mooring.core.model.cluster import Node
from tests.capabilities.fleet.fleet_making import NOW, address, cluster, limits, m, template

POLICY = FleetPolicy()
REPLACE, ADD, REMOVE = Action.REPLACE_CONTROL_PLANE, Action.INCREASE_WORKERS, Action.REMOVE_NON_EXISTENT


def survey(
    *, minimum=1, broken=False, since=0.0, added=(), removed=(), gone=(), replaced=(), back=1.0, revision="r1"
) -> Survey:
    """Three control planes and a worker, two spare machines. `broken`: a control plane, since so many seconds. `added`:
    without a Node yet; `removed`: still with one; `gone`: not in the registry; `replaced`: number and moment; machine 6
    has been in its state for `back` seconds."""
    first = m(1, state="UNHEALTHY" if broken else "HEALTHY", since=since)
    machines = [first, *(m(n, rack=n) for n in range(2, 6)), m(6, rack=6, since=back)]
    pending = Pending({address(n): NOW - 1 for n in added}, {address(n): NOW - 1 for n in removed})
    members = cluster([1, 2, 3], [4]).members
    stored = StoredCluster(Decisions("r1", members), pending=pending, replaced={address(n): at for n, at in replaced})
    settings = FleetSettings(template=template(), revision=revision, constraints=limits(3, minimum))
    nodes = {address(n): Node(address(n), f"u{n}", "1", ready="True") for n in removed}
    known = {one.address: one for one in machines if one.address not in map(address, gone)}
    return Survey(settings, stored, known, nodes, NOW)


@pytest.mark.parametrize(
    ("seen", "changing", "action", "wanted", "settling"),
    [
        (survey(broken=True), False, REPLACE, REPLACE, ""),
        (survey(broken=True), True, Action.NONE, REPLACE, "the control plane is being changed"),
        (survey(broken=True, added=(4,)), False, REPLACE, REPLACE, ""),
        (survey(broken=True, added=(3,)), False, Action.NONE, REPLACE, "10.69.0.3 not Ready yet"),
        (survey(broken=True, removed=(9,)), False, REPLACE, REPLACE, ""),
        (survey(minimum=2, removed=(9,)), False, ADD, ADD, ""),
        (survey(minimum=2, added=(3,), broken=True), False, ADD, REPLACE, "10.69.0.3 not Ready yet"),
        (survey(gone=(4,), added=(4,)), False, REMOVE, REMOVE, ""),
        (survey(minimum=2), False, ADD, ADD, ""),
        (survey(minimum=2), True, ADD, ADD, ""),
        (survey(minimum=2, added=(4,)), True, Action.NONE, ADD, "10.69.0.4 not Ready yet"),
        (survey(), True, Action.NONE, Action.NONE, ""),
    ],
)
def test_one_change_of_the_control_plane_at_a_time_and_workers_beside_it(seen, changing, action, wanted, settling):
    """F3, F9: settling is per concern. A change of the control plane waits for the one under way, and says so; workers
    come meanwhile. A worker that never boots and a Node that nobody deletes delay neither a broken control plane nor
    new workers."""
    made = make_pass(seen, POLICY, changing=changing)
    assert (made.plan.action, made.wanted.action, made.settling) == (action, wanted, settling)
    assert made.quiet is (wanted is Action.NONE)


@pytest.mark.parametrize(
    ("seen", "action"),
    [
        (survey(broken=True, replaced=[(6, NOW - 900)], back=10.0), REPLACE),
        (survey(broken=True, replaced=[(6, NOW - 300)], back=10.0), Action.NONE),
        (survey(broken=True, since=599, replaced=[(6, NOW - 300)], back=10.0), Action.NONE),
        (survey(broken=True, since=600, replaced=[(6, NOW - 300)], back=10.0), REPLACE),
        (survey(broken=True, since=700, replaced=[(6, NOW - 300), (5, NOW - 100)], back=10.0), Action.NONE),
        (survey(broken=True, since=700, replaced=[(1, NOW - 900)]), Action.NONE),
        (survey(broken=True, since=700, replaced=[(1, NOW - 3600)]), REPLACE),
        (survey(broken=True, replaced=[(9, NOW - 60)]), REPLACE),
    ],
)
def test_a_control_plane_that_flaps_is_replaced_with_back_off(seen, action):
    """F14: the first at once; while a replaced one came back soon, the next must have been broken for ten minutes, and
    none is replaced twice in an hour. One that stays broken delays nothing."""
    made = make_pass(seen, POLICY)
    assert made.plan.action is action
    assert bool(made.wanted.notes) is (action is Action.NONE), "and it says so"


def test_a_new_template_goes_after_a_due_repair():
    """F14: as CKE. Once the control plane is whole again it has its turn."""
    assert make_pass(survey(broken=True, revision="r2"), POLICY).plan.action is REPLACE
    assert make_pass(survey(revision="r2"), POLICY).plan.action is Action.REGENERATE
    assert make_pass(survey(revision="r2", added=(4,)), POLICY).settling
