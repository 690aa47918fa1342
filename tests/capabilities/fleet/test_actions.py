"""The seven actions, one by one, as the design says them."""

import pytest

from mooring.capabilities.fleet.planner.decide import decide
from mooring.capabilities.fleet.planner.document import ErrorCode
from mooring.capabilities.fleet.planner.plan import Action, WhenShort
from tests.capabilities.fleet.fleet_making import (
    address,
    cluster,
    cps_of,
    limits,
    m,
    moves,
    node,
    numbers,
    passes,
    template,
    view,
    workers_of,
)


def some(first: int, last: int, **more):
    return [m(n, rack=n, **more) for n in range(first, last + 1)]


# ── initialization ────────────────────────────────────────────────────────────────────────────────────────────────


def test_first_generation_takes_exactly_the_constraints():
    """F5: `control-plane-count` control planes and `minimum-workers` workers, no more."""
    plan = decide(view(some(1, 9), constraints=limits(3, 4, 6)))
    assert plan.action is Action.GENERATE
    assert cps_of(plan) == [1, 2, 3]
    assert workers_of(plan) == [4, 5, 6, 7]
    assert set(moves(plan).values()) == {"add"}


@pytest.mark.parametrize("state", ["UNINITIALIZED", "UNHEALTHY", "UNREACHABLE", "UPDATING", "RETIRING", "RETIRED"])
def test_only_healthy_machines_are_selected(state):
    """F4: whatever is not healthy is no candidate, and the failure names what there is instead."""
    plan = decide(view([m(1), m(2, state=state)]))
    assert plan.error is not None
    assert plan.error.code is ErrorCode.NOT_AVAILABLE
    assert f"1 cs {state}" in plan.error.message
    assert plan.assignments == ()


def test_first_generation_fails_when_short_of_control_planes():
    """F3: the error names the constraint that cannot be met."""
    plan = decide(
        view([m(1, role="ss"), m(2)], template=template(cp=node(cp=True, role="cs")), constraints=limits(2, 0))
    )
    assert plan.error is not None
    assert plan.error.message.startswith("control-plane-count 2 cannot be met, 1 found")
    assert "of role cs" in plan.error.message


# ── 1 remove non-existent ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("planes", "lost"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (3, 3), (0, 0)])
def test_quorum_guard_refuses(planes, lost):
    """F5: survivors × 2 must exceed the current control planes, whatever else is going on."""
    current = cluster(list(range(planes)), [50])
    plan = decide(view(some(lost, 60), current=current, constraints=limits(planes or 1), yes_remove=True))
    assert plan.error is not None
    assert plan.error.code is ErrorCode.TOO_MANY_NON_EXISTENT
    assert not plan.assignments and not plan.changes


@pytest.mark.parametrize(("planes", "lost"), [(3, 1), (4, 1), (5, 2)])
def test_a_minority_of_control_planes_is_replaced(planes, lost):
    """F5: the vanished leave, all at once, and new ones fill up."""
    current = cluster(list(range(planes)), [50])
    plan = decide(view(some(lost, 60), current=current, constraints=limits(planes)))
    assert plan.action is Action.REMOVE_NON_EXISTENT
    assert len(plan.control_planes) == planes
    assert list(moves(plan).values()).count("remove") == lost


def test_vanished_nodes_leave_and_workers_are_filled_up():
    """F5: a removal is followed by filling up to the minimum."""
    plan = decide(view([m(1), m(3), m(4)], current=cluster([1], [2, 3]), constraints=limits(1, 2)))
    assert plan.action is Action.REMOVE_NON_EXISTENT
    assert moves(plan) == {2: "remove", 4: "add"}


def test_a_removal_that_cannot_be_filled_up_is_refused_as_a_whole():
    """F3: under `fail` nothing changes when the constraints cannot be met afterwards."""
    plan = decide(view([m(1), m(3)], current=cluster([1], [2, 3]), constraints=limits(1, 2)))
    assert plan.error is not None and plan.error.code is ErrorCode.NOT_AVAILABLE
    assert plan.unmet[0].constraint == "minimum-workers"
    assert (plan.unmet[0].wanted, plan.unmet[0].have) == (2, 1)


def test_proceed_does_what_can_be_done():
    """F3: under `proceed` the vanished node goes, and what is short is listed."""
    plan = decide(
        view([m(1), m(3)], current=cluster([1], [2, 3]), constraints=limits(1, 2), when_short=WhenShort.PROCEED)
    )
    assert plan.error is None
    assert moves(plan) == {2: "remove"}
    assert [(u.constraint, u.wanted, u.have) for u in plan.unmet] == [("minimum-workers", 2, 1)]


@pytest.mark.parametrize(
    ("workers", "lost", "guarded"), [(4, 3, True), (4, 2, False), (3, 3, False), (5, 3, True), (6, 3, False)]
)
def test_most_workers_vanishing_at_once_needs_a_word(workers, lost, guarded):
    """F5: more than half of four or more is a bad query until somebody confirms."""
    current = cluster([100], list(range(workers)))
    machines = [m(100), *some(lost, workers - 1), *some(200, 210)]
    plan = decide(view(machines, current=current))
    if not guarded:
        assert plan.error is None and len([v for v in moves(plan).values() if v == "remove"]) == lost
        return
    assert plan.error is not None and plan.error.code is ErrorCode.TOO_MANY_NON_EXISTENT
    confirmed = decide(view(machines, current=current, yes_remove=True))
    assert confirmed.error is None and confirmed.action is Action.REMOVE_NON_EXISTENT


def test_a_held_removal_stops_only_itself():
    """F5: in the loop the vanished workers stay, word for word, and the other actions go on."""
    current = cluster([100], [1, 2, 3, 4])
    machines = [m(100), m(1, state="RETIRING"), m(200)]
    plan = decide(view(machines, current=current, constraints=limits(1, 0), hold_removal=True))
    assert plan.action is Action.TAINT
    assert workers_of(plan) == [1, 2, 3, 4]
    assert moves(plan)[1] == "taint"
    assert any("removal blocked: 3 of 4" in n for n in plan.notes)


def test_an_empty_list_removes_nothing():
    """F5: no machine at all trips the guard."""
    plan = decide(view([], current=cluster([1], [2]), when_short=WhenShort.PROCEED, yes_remove=True))
    assert plan.error is not None and plan.error.code is ErrorCode.TOO_MANY_NON_EXISTENT


# ── 2 increase control plane ──────────────────────────────────────────────────────────────────────────────────────


def test_control_planes_are_added_from_unused_machines_first():
    """F5: all missing ones in one pass, workers stay workers."""
    plan = decide(view(some(1, 6), current=cluster([1], [2, 3]), constraints=limits(3)))
    assert plan.action is Action.INCREASE_CONTROL_PLANE
    assert cps_of(plan) == [1, 4, 5]
    assert workers_of(plan) == [2, 3]


def test_workers_are_promoted_while_more_than_the_minimum_remain():
    """F5: with too few unused machines, spare workers change over."""
    plan = decide(view(some(1, 5), current=cluster([1], [2, 3, 4]), constraints=limits(3, 2)))
    assert moves(plan) == {5: "add", 2: "promote"}
    short = decide(view(some(1, 4), current=cluster([1], [2, 3, 4]), constraints=limits(3, 2)))
    assert short.error is not None and "none of 2 workers may be promoted (minimum-workers is 2)" in short.error.message


def test_tainted_machines_become_no_control_plane():
    """F7: neither an unused machine nor a worker with an intolerable taint on its live node."""
    taints = {address(4): ("example.com/maintenance",), address(2): ("example.com/maintenance",)}
    plan = decide(view(some(1, 5), current=cluster([1], [2, 3]), constraints=limits(3, 1), node_taints=taints))
    assert moves(plan) == {5: "add", 3: "promote"}


# ── 3 decrease control plane ──────────────────────────────────────────────────────────────────────────────────────


def test_surplus_control_planes_become_workers():
    """F5: the lowest scores change over, all surplus at once."""
    machines = [m(1, rack=1), m(2, rack=2, state="UNHEALTHY"), m(3, rack=3, days=300), m(4)]
    plan = decide(view(machines, current=cluster([1, 2, 3], [4])))
    assert plan.action is Action.DECREASE_CONTROL_PLANE
    assert cps_of(plan) == [3]
    assert moves(plan) == {2: "demote", 1: "demote"}


def test_at_the_maximum_the_lowest_worker_goes_whichever_it_is():
    """F5: not always the one that was demoted; here the unhealthy worker scores lowest."""
    machines = [m(1, rack=1), m(2, rack=2), m(3, rack=3), m(4, rack=4, state="UNHEALTHY"), m(5, rack=5)]
    plan = decide(view(machines, current=cluster([1, 2, 3], [4, 5]), constraints=limits(2, 1, 2)))
    assert moves(plan) == {3: "demote", 4: "remove"}
    assert workers_of(plan) == [5, 3]


def test_of_equal_scores_the_one_just_demoted_goes():
    """F4: removing it is the smaller change."""
    machines = [m(1, rack=1), m(9, rack=2), m(2, rack=3), m(50, rack=4), m(51, rack=5)]
    plan = decide(view(machines, current=cluster([1, 2], [50, 51]), constraints=limits(1, 1, 2)))
    assert moves(plan) == {2: "remove"}


def test_a_maximum_below_what_is_there_removes_nothing_by_itself():
    """F6: only a decrease of control planes trims to the maximum; until then it is listed as unmet."""
    plan = decide(view(some(1, 5), current=cluster([1], [2, 3, 4]), constraints=limits(1, 1, 2)))
    assert plan.action is Action.NONE
    assert [(u.constraint, u.wanted, u.have) for u in plan.unmet] == [("maximum-workers", 2, 3)]
    trimmed = decide(view(some(1, 5), current=cluster([1, 5], [2, 3, 4]), constraints=limits(1, 1, 2)))
    assert len(trimmed.workers) == 2


# ── 4 replace control plane ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", ["UNHEALTHY", "UNREACHABLE", "RETIRING", "RETIRED"])
def test_a_bad_control_plane_is_demoted_and_a_new_machine_takes_over(state):
    """F5: (1) of the design, one per pass."""
    machines = [m(1, rack=1, state=state), m(2, rack=2), m(3, rack=3, state=state), m(4, rack=4), m(5, rack=5)]
    plan = decide(view(machines, current=cluster([1, 2, 3], [4]), constraints=limits(3)))
    assert plan.action is Action.REPLACE_CONTROL_PLANE
    assert {n: c for n, c in moves(plan).items() if c != "taint"} == {5: "add", 1: "demote"}


@pytest.mark.parametrize("state", ["UPDATING", "UNINITIALIZED"])
def test_a_rebooting_control_plane_is_left_alone(state):
    """F6: rebooting machines are neither removed nor tainted."""
    machines = [m(1, state=state), m(2), m(3), m(4)]
    assert decide(view(machines, current=cluster([1, 2], [3]), constraints=limits(2))).action is Action.NONE


def test_a_tainted_control_plane_is_replaced():
    """F7: (2) of the design, by the taints of the live node."""
    taints = {address(2): ("node.kubernetes.io/not-ready", "example.com/broken")}
    plan = decide(view(some(1, 4), current=cluster([1, 2], [3]), constraints=limits(2), node_taints=taints))
    assert moves(plan) == {4: "add", 2: "demote"}
    assert "example.com/broken" in plan.changes[1].why


def test_without_an_unused_machine_a_worker_is_promoted():
    """F5: it changes places with the bad one, even when the workers are at their minimum."""
    machines = [m(1, state="UNHEALTHY"), m(2), m(3)]
    plan = decide(view(machines, current=cluster([1, 2], [3]), constraints=limits(2, 1)))
    assert moves(plan) == {3: "promote", 1: "demote"}


def test_at_the_maximum_an_unused_machine_still_comes_before_a_worker():
    """F5: and the lowest-scored worker, here the demoted one, leaves."""
    machines = [m(1, rack=1, state="UNHEALTHY"), m(2, rack=2), m(3, rack=3), m(4, rack=4)]
    plan = decide(view(machines, current=cluster([1, 2], [3]), constraints=limits(2, 1, 1)))
    assert moves(plan) == {4: "add", 1: "remove"}
    assert workers_of(plan) == [3]


def test_workers_beyond_the_maximum_from_before_survive_a_replacement():
    """F6: a replacement undoes its own excess, not that of others."""
    machines = [m(1, state="UNHEALTHY"), *some(2, 7)]
    plan = decide(view(machines, current=cluster([1, 2], [3, 4, 5]), constraints=limits(2, 1, 2)))
    assert len(plan.workers) == 3


def test_a_single_control_plane_is_never_replaced():
    """F5: there would be nothing left to take over from."""
    plan = decide(view([m(1, state="UNHEALTHY"), m(2), m(3)], current=cluster([1], [2])))
    assert plan.action is Action.NONE


def test_nobody_to_take_over():
    """F3: under `fail` the pass is refused; under `proceed` the bad one stays and the other actions have their turn."""
    machines = [m(1, state="RETIRING"), m(2), m(3, role="ss", state="RETIRING")]
    made = template(cp=node(cp=True, role="cs"))
    base = {"template": made, "current": cluster([1, 2], [3]), "constraints": limits(2)}
    refused = decide(view(machines, **base))
    assert refused.error is not None and refused.error.code is ErrorCode.NOT_AVAILABLE
    plan = decide(view(machines, when_short=WhenShort.PROCEED, **base))
    assert plan.action is Action.TAINT
    assert moves(plan) == {1: "taint", 3: "taint"}
    assert any("cannot be replaced" in n for n in plan.notes)


# ── 5 increase workers ────────────────────────────────────────────────────────────────────────────────────────────


def test_workers_are_added_until_enough_are_healthy():
    """F5: an unhealthy one stays and is not counted."""
    machines = [m(1), m(2, state="UNHEALTHY"), m(3), *some(4, 6)]
    plan = decide(view(machines, current=cluster([1], [2, 3]), constraints=limits(1, 2)))
    assert plan.action is Action.INCREASE_WORKERS
    assert moves(plan) == {4: "add"}


def test_the_maximum_holds_though_too_few_are_healthy():
    """F3: the total never passes `maximum-workers`; nothing to add is no change."""
    machines = [m(1), m(2, state="UNHEALTHY"), m(3, state="UNHEALTHY"), m(4)]
    assert decide(view(machines, current=cluster([1], [2, 3]), constraints=limits(1, 2, 2))).action is Action.NONE


def test_too_few_workers_and_none_to_add_is_an_error():
    """F3: a constraint that does not hold and cannot be met is never passed over in silence."""
    plan = decide(view([m(1), m(2)], current=cluster([1], [2]), constraints=limits(1, 2)))
    assert plan.error is not None and plan.error.code is ErrorCode.NOT_AVAILABLE
    eased = decide(
        view([m(1), m(2)], current=cluster([1], [2]), constraints=limits(1, 2), when_short=WhenShort.PROCEED)
    )
    assert eased.action is Action.NONE and eased.unmet


# ── 6 decrease workers ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("since", "goes"), [(300, False), (301, True)])
def test_a_retired_worker_waits_for_a_while(since, goes):
    """F6: strictly longer than the wait."""
    machines = [m(1), m(2, state="RETIRED", since=since), m(3)]
    plan = decide(view(machines, current=cluster([1], [2, 3], {2: "retired"})))
    assert (moves(plan) == {2: "remove"}) is goes


def test_at_the_minimum_a_retired_worker_is_replaced():
    """F6: removed and filled up in the same pass, one a pass."""
    machines = [m(1), m(2, state="RETIRED", since=999), m(3, state="RETIRED", since=999), m(4), m(5)]
    current = cluster([1], [2, 3, 4, 5], {2: "retired", 3: "retired"})
    assert moves(decide(view(machines, current=current, constraints=limits(1, 2)))) == {2: "remove"}
    spare = [*machines, m(6), m(7)]
    plan = decide(view(spare, current=current, constraints=limits(1, 4, 4)))
    assert plan.action is Action.DECREASE_WORKERS
    assert moves(plan) == {2: "remove", 6: "add"}


def test_at_the_minimum_with_nothing_to_replace_it_a_retired_worker_stays():
    """F6: left untouched, and a note says so."""
    machines = [m(1), m(2, state="RETIRED", since=999), m(3)]
    plan = decide(view(machines, current=cluster([1], [2, 3], {2: "retired"}), constraints=limits(1, 2)))
    assert plan.action is Action.NONE
    assert any("stays" in n for n in plan.notes)


# ── 7 taint ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("state", "before", "change"),
    [
        ("RETIRING", None, "taint"),
        ("RETIRED", None, "taint"),
        ("RETIRED", "retiring", "taint"),
        ("HEALTHY", "retiring", "untaint"),
        ("UNREACHABLE", "retiring", "untaint"),
        ("UPDATING", "retired", "untaint"),
        ("UNINITIALIZED", "retired", "untaint"),
    ],
)
def test_taints_follow_the_state(state, before, change):
    """F6: retiring and retired are tainted, every other state is not."""
    tainted = {2: before} if before else {}
    plan = decide(view([m(1), m(2, state=state), m(3)], current=cluster([1], [2, 3], tainted)))
    assert plan.action is Action.TAINT
    assert moves(plan)[2] == change


def test_all_taints_change_in_one_pass():
    """F5: the last action is done for every node at once."""
    machines = [m(1), m(2, state="RETIRING"), m(3, state="RETIRING"), m(4)]
    plan = decide(view(machines, current=cluster([1], [2, 3, 4], {4: "retiring"})))
    assert {n: c for n, c in moves(plan).items() if c != "update"} == {2: "taint", 3: "taint", 4: "untaint"}


# ── order, regenerate ─────────────────────────────────────────────────────────────────────────────────────────────


def test_one_action_a_pass_in_the_order_of_the_design():
    """F5: removal, control planes, workers, retired ones: each in a pass of its own."""
    machines = [m(1), m(2, state="UNHEALTHY"), m(5, state="RETIRED", since=999), m(6, state="RETIRING"), *some(10, 20)]
    start = view(machines, current=cluster([1, 2, 3], [4, 5, 6], {6: "retired"}), constraints=limits(3, 3))
    actions = [p.action.value for p in passes(start)]
    assert actions == [
        "remove-non-existent",
        "replace-control-plane",
        "increase-workers",
        "decrease-workers",
        "none",
    ]


def test_regenerate_keeps_the_nodes_and_fills_up():
    """F2: a new template rewrites the same nodes, whatever their health."""
    machines = [m(1, state="UNHEALTHY"), m(2), m(3, state="UNREACHABLE"), m(4)]
    plan = decide(view(machines, current=cluster([1, 2], [3]), constraints=limits(2), regenerate=True))
    assert plan.action is Action.REGENERATE
    assert (cps_of(plan), workers_of(plan)) == ([1, 2], [3])


def test_regenerate_with_a_vanished_machine_is_an_error():
    """F2: it could not be written; `missing-machine` names it."""
    plan = decide(view([m(1), m(2)], current=cluster([1], [2, 3]), regenerate=True))
    assert plan.error is not None and plan.error.code is ErrorCode.MISSING_MACHINE
    assert address(3) in plan.error.message


def test_two_control_planes_demoted_in_one_plan_leave_the_rest_spread():
    """F5, issue 20.13: scores are counted again after the first. Counted once, as CKE does, both would go from rack 2."""
    racks = {1: 1, 2: 1, 3: 2, 4: 2, 5: 3}
    machines = [m(n, rack=rack) for n, rack in racks.items()]
    plan = decide(view(machines, constraints=limits(3, 0), current=cluster([1, 2, 3, 4, 5], [])))
    assert sorted(racks[n] for n in numbers(s.address for s in plan.control_planes)) == [1, 2, 3]
