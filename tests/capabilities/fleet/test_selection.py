"""Who is chosen: scores, roles and weights, ties."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.capabilities.fleet.planner.decide import decide
from mooring.capabilities.fleet.planner.document import ErrorCode
from mooring.capabilities.fleet.planner.score import Lives, address_number, days_left, life, to_add, to_remove
from mooring.core.model.machine import MachineState
from tests.capabilities.fleet.fleet_making import (
    NOW,
    address,
    cluster,
    cps_of,
    limits,
    m,
    moves,
    node,
    numbers,
    template,
    view,
    workers_of,
)


@pytest.mark.parametrize(
    ("days", "points"),
    [
        (0, 0), (250, 0), (250.99, 0), (251, 1), (500, 1), (501, 2), (1000, 2), (1001, 3), (9999, 3),
        (-250, 0), (-250.99, 0), (-251, -1), (-500, -1), (-501, -2), (-1000, -2), (-1001, -3), (-9999, -3),
    ],
)  # fmt: skip
def test_life_counts_whole_days_to_the_retire_date(days, points):
    """F4: strictly more than 250, 500, 1000 days, cut towards zero; the same below zero."""
    assert life(days_left(m(1, days=days).retire_at, NOW)) == points


def test_a_retire_date_equal_to_the_register_date_is_just_an_old_machine():
    """F4: sabakan fills an absent retire date with the register date: a negative life, still a candidate."""
    plan = decide(view([m(1, days=-300), m(2, days=-300)]))
    assert plan.error is None and len(plan.assignments) == 2


def test_racks_outweigh_life():
    """F4: one machine of the same role in the rack (10) outweighs the whole spread of life (6)."""
    machines = [m(1, rack=1, days=2000), m(2, rack=1, days=2000), m(3, rack=2, days=-2000)]
    assert cps_of(decide(view(machines, constraints=limits(2, 0)))) == [1, 3]


def test_life_decides_between_equal_racks():
    """F4: newer machines are preferred."""
    machines = [m(1, rack=1, days=100), m(2, rack=2, days=600), m(3, rack=3, days=300)]
    assert cps_of(decide(view(machines, constraints=limits(3, 0)))) == [2, 3, 1]


def test_ties_go_to_the_lowest_address_as_a_number():
    """F4: 10.69.0.9 before 10.69.0.10, and 10.69.0.200 before 10.69.1.0."""
    machines = [m(256, rack=4), m(200, rack=3), m(10, rack=1), m(9, rack=2)]
    assert cps_of(decide(view(machines, constraints=limits(4, 0)))) == [9, 10, 200, 256]


def test_removal_ties_go_to_the_highest_address():
    """F4: of equal control planes the highest address is demoted."""
    plan = decide(view([m(9, rack=1), m(10, rack=2), m(3, rack=3)], current=cluster([9, 10], [3])))
    assert moves(plan) == {10: "demote"}


def test_control_planes_are_counted_whatever_their_role_and_apart_from_workers():
    """F4: workers in a rack do not push control planes out of it."""
    machines = [m(1, rack=1, role="cs"), *[m(n, rack=2) for n in (2, 3, 4)], m(5, rack=3, role="ss")]
    plan = decide(view(machines, current=cluster([1], [2, 3]), constraints=limits(2)))
    assert cps_of(plan) == [1, 4]


def test_workers_are_counted_by_role_and_rack():
    """F4: a rack full of another role counts as empty."""
    workers = (node(role="cs"), node(role="ss"))
    machines = [
        m(1, rack=9),
        m(2, rack=1, role="ss"),
        m(3, rack=1, role="cs"),
        m(4, rack=2, role="cs"),
        m(5, rack=1, role="cs"),
    ]
    plan = decide(view(machines, template=template(*workers), current=cluster([1], [2, 4]), constraints=limits(1, 3)))
    assert workers_of(plan) == [2, 4, 3]


def test_without_a_role_all_workers_of_the_rack_count():
    """F4: a single role-less template counts every worker there."""
    machines = [m(1, rack=9), m(2, rack=1, role="ss"), m(3, rack=1, role="cs"), m(4, rack=2, role="cs")]
    plan = decide(view(machines, current=cluster([1], [2]), constraints=limits(1, 2)))
    assert workers_of(plan) == [2, 4]


def test_weights_share_the_workers():
    """F2: 6:3:1 over twenty workers is 12, 6 and 2."""
    workers = (node(role="compute", weight="6.0"), node(role="storage", weight="3.0"), node(role="gpu", weight="1.0"))
    machines = [
        m(n, rack=n % 7, role=r)
        for i, r in enumerate(("compute", "storage", "gpu"))
        for n in range(i * 30, i * 30 + 30)
    ]
    plan = decide(
        view(machines, template=template(*workers, cp=node(cp=True, role="compute")), constraints=limits(3, 20))
    )
    assert Counter(s.machine.role for s in plan.workers) == {"compute": 12, "storage": 6, "gpu": 2}
    assert {s.machine.role for s in plan.control_planes} == {"compute"}


def test_equal_ratios_go_to_the_template_that_comes_first():
    """F2: the order in the file decides."""
    machines = [m(1), m(2, role="ss"), m(3, role="cs")]
    for roles in (("ss", "cs"), ("cs", "ss")):
        plan = decide(view(machines, template=template(*(node(role=r) for r in roles)), constraints=limits(1, 1)))
        assert [s.machine.role for s in plan.workers] == [roles[0]]


def test_an_exhausted_role_does_not_stall_the_others():
    """F10: the next role by ratio takes the turn while the minimum is not met, and the reason says so."""
    workers = (node(role="gpu", weight="5.0"), node(role="ss"), node(role="cs"))
    machines = [m(1), m(2, role="ss"), m(3, role="cs"), m(4, role="ss")]
    plan = decide(view(machines, template=template(*workers), constraints=limits(1, 3)))
    assert workers_of(plan) == [2, 3, 4]
    assert all("since gpu has no spare machine" in c.why for c in plan.changes if "worker" in c.why)


def test_the_role_of_the_control_plane_stays_a_filter():
    """F4: no machine of another role becomes a control plane, however short it gets."""
    plan = decide(view([m(1, role="ss"), m(2, role="ss")], template=template(cp=node(cp=True, role="cs"))))
    assert plan.error is not None and plan.error.code is ErrorCode.NOT_AVAILABLE


def test_a_worker_of_a_role_that_no_template_offers():
    """F10: a clear error that names role and nodes, also when nothing else is to do, and when regenerating."""
    workers = (node(role="cs"), node(role="ss"))
    machines = [m(1), m(2, role="gpu"), m(3)]
    for regenerate in (False, True):
        plan = decide(view(machines, template=template(*workers), current=cluster([1], [2, 3]), regenerate=regenerate))
        assert plan.error is not None and plan.error.code is ErrorCode.INVALID_TEMPLATE
        assert "role gpu: 10.69.0.2" in plan.error.message


def test_demoting_a_control_plane_whose_role_is_not_offered_to_workers():
    """F10: an error, no crash."""
    machines = [m(1, state="UNHEALTHY"), m(2), m(3, role="ss"), m(4)]
    made = template(node(role="ss"), node(role="gpu"), cp=node(cp=True, role="cs"))
    plan = decide(view(machines, template=made, current=cluster([1, 2], [3]), constraints=limits(2)))
    assert plan.error is not None and plan.error.code is ErrorCode.INVALID_TEMPLATE


def test_a_machine_without_an_address_is_left_out_by_name():
    """F10: with live nodes given, too."""
    nameless = m(3).__class__(serial="S-nameless", address="", state=MachineState.HEALTHY)
    plan = decide(view([m(1), m(2), nameless], node_taints={address(1): ("a/b",), "": ("x/y",)}))
    assert plan.error is not None or len(plan.assignments) == 2
    assert plan.notes == ("left out, no IPv4 address: S-nameless",)


def test_every_choice_says_why():
    """F11: the terms of the score and the runner-up."""
    machines = [m(1, rack=1, days=600), m(2, rack=2, days=300), m(3, rack=3)]
    plan = decide(view(machines, constraints=limits(1, 1)))
    assert plan.changes[0].why == (
        "new control plane: score 1002 = (100 − 0 in rack 1) × 10 + 2 (600 days left), "
        "runner-up 10.69.0.2: 1001 = (100 − 0 in rack 2) × 10 + 1 (300 days left)"
    )


def test_a_machine_without_a_retire_date_is_said_to_have_none():
    """F11: not that it retired 20,775 days ago."""
    plain = [
        one.__class__(**{**{f: getattr(one, f) for f in one.__struct_fields__}, "retire_at": 0.0})
        for one in (m(1), m(2))
    ]
    plan = decide(view(plain, constraints=limits(1, 1)))
    assert all("(no retire date)" in change.why for change in plan.changes)


# ── the queue against a plain maximum ─────────────────────────────────────────────────────────────────────────────

fleets = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.sampled_from([-1200, -600, -300, 0, 300, 600, 1200]),
        st.sampled_from(["HEALTHY", "UNHEALTHY", "RETIRED"]),
    ),
    max_size=25,
)


@settings(max_examples=60)
@given(fleets, st.lists(st.integers(0, 4), max_size=12))
def test_the_queue_adds_like_a_plain_maximum(fleet, counted):
    """F4: each pick equals the highest score over all that are left, computed anew."""
    left = [m(n, rack=rack, days=days) for n, (rack, days, _) in enumerate(fleet)]
    counts = Counter(counted)
    queue = to_add(left, dict(counts), Lives(NOW))
    while left:
        score = {x.address: (100 - counts[x.rack]) * 10 + life(days_left(x.retire_at, NOW)) for x in left}
        ranked = sorted(left, key=lambda x: (-score[x.address], address_number(x.address)))
        choice = queue.take()
        assert choice is not None and choice.machine is ranked[0]
        assert choice.score == score[ranked[0].address]
        assert choice.runner_up is (ranked[1] if len(ranked) > 1 else None)
        counts[ranked[0].rack] += 1
        left.remove(ranked[0])
    assert queue.take() is None


@settings(max_examples=60)
@given(fleets)
def test_the_queue_removes_like_a_plain_minimum(fleet):
    """F4: each removal equals the lowest score over all that are left, health included, computed anew."""
    left = [m(n, rack=rack, days=days, state=state) for n, (rack, days, state) in enumerate(fleet)]
    counts = Counter(x.rack for x in left)
    queue = to_remove(left, lambda x: x.rack, dict(counts), Lives(NOW))
    while left:
        score = {
            x.address: (1000 if x.state == "HEALTHY" else 0)
            + (100 - counts[x.rack]) * 10
            + life(days_left(x.retire_at, NOW))
            for x in left
        }
        lowest = min(left, key=lambda x: (score[x.address], -address_number(x.address)))
        choice = queue.take()
        assert choice is not None and choice.machine is lowest
        assert choice.score == score[lowest.address]
        counts[lowest.rack] -= 1
        left.remove(lowest)


def test_more_than_a_hundred_of_a_role_in_a_rack_goes_on_counting():
    """F4: the score falls below zero, it is not cut off."""
    machines = [m(n, rack=1) for n in range(1, 130)] + [m(200, rack=2)]
    plan = decide(view(machines, constraints=limits(1, 120)))
    assert len(plan.workers) == 120 and 200 in numbers(s.address for s in plan.assignments)
