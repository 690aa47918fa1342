"""What holds for every fleet: constraints, quorum, convergence, no dependence on order."""

import random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.capabilities.fleet.planner.current import Current, parse_cluster
from mooring.capabilities.fleet.planner.decide import decide, write_cluster
from mooring.capabilities.fleet.planner.document import ErrorCode
from mooring.capabilities.fleet.planner.plan import FleetView, WhenShort
from tests.capabilities.fleet.fleet_making import NOW, address, cluster, limits, m, node, passes, template, view

STATES = ["HEALTHY"] * 6 + ["UNHEALTHY", "UNREACHABLE", "UPDATING", "UNINITIALIZED", "RETIRING", "RETIRED"]
TEMPLATES = [
    template(),
    template(node(role="cs"), cp=node(cp=True, role="cs")),
    template(node(role="cs", weight="2"), node(role="ss"), cp=node(cp=True, role="cs")),
    template(node(role="ss", weight="0.5"), node(role="cs"), cp=node(cp=True)),
]


@st.composite
def machine_lists(draw, low=0, high=24):
    count = draw(st.integers(low, high))
    return [
        m(
            n,
            rack=draw(st.integers(0, 4)),
            role=draw(st.sampled_from(["cs", "cs", "ss"])),
            state=draw(st.sampled_from(STATES)),
            days=draw(st.sampled_from([-300, 0, 300, 1200])),
            since=draw(st.sampled_from([0, 1000])),
        )
        for n in range(count)
    ]


@st.composite
def constraint_sets(draw):
    minimum = draw(st.integers(0, 8))
    return limits(draw(st.integers(1, 5)), minimum, draw(st.sampled_from([0, minimum or 1, minimum + 2])))


@st.composite
def views(draw) -> FleetView:
    machines = draw(machine_lists())
    known = list(range(28))  # some of them vanished, or never listed
    chosen = draw(st.lists(st.sampled_from(known), unique=True, max_size=14))
    split = draw(st.integers(0, min(5, len(chosen))))
    current = cluster(chosen[:split], chosen[split:]) if chosen and draw(st.booleans()) else None
    tainted = draw(st.lists(st.integers(0, 27), max_size=3))
    return view(
        machines,
        template=draw(st.sampled_from(TEMPLATES)),
        constraints=draw(constraint_sets()),
        current=current,
        node_taints={address(n): ("example.com/odd",) for n in tainted},
        when_short=draw(st.sampled_from(list(WhenShort))),
        yes_remove=draw(st.booleans()),
        hold_removal=draw(st.booleans()),
    )


@settings(max_examples=200, deadline=None)
@given(views())
def test_constraints_hold_or_the_error_says_which_cannot(v):
    """F3: under `fail` a plan that changes anything satisfies the minimums; an error names what is missing."""
    plan = decide(v)
    if plan.error is not None:
        if plan.error.code is ErrorCode.NOT_AVAILABLE:
            assert plan.error.message.startswith(("control-plane-count ", "minimum-workers "))
        assert plan.assignments == () and plan.changes == ()
        return
    c = v.constraints
    planes, workers = len(plan.control_planes), len(plan.workers)
    short = {u.constraint for u in plan.unmet}
    assert ("control-plane-count" in short) == (planes < c.control_plane_count)
    assert ("minimum-workers" in short) == (workers < c.minimum_workers)
    assert ("maximum-workers" in short) == (0 < c.maximum_workers < workers)
    if v.when_short is WhenShort.FAIL:
        assert short <= {"maximum-workers"}
    assert len({s.address for s in plan.assignments}) == len(plan.assignments)


@settings(max_examples=120, deadline=None)
@given(views())
def test_passes_come_to_an_end_and_stay_there(v):
    """F5: finitely many passes, and a second look without news changes nothing."""
    last = passes(v)[-1]
    assert last.error is not None or last.action == "none"
    if last.error is None:
        assert last.changes == ()


@settings(max_examples=120, deadline=None)
@given(views(), st.randoms(use_true_random=False))
def test_the_order_of_the_list_changes_nothing(v, randomness: random.Random):
    """F11: same machines, same plan."""
    shuffled = list(v.machines)
    randomness.shuffle(shuffled)
    assert decide(v) == decide(msgspec.structs.replace(v, machines=shuffled))


@settings(max_examples=60, deadline=None)
@given(st.lists(machine_lists(low=6), min_size=1, max_size=8), constraint_sets(), st.sampled_from(TEMPLATES))
def test_no_sequence_of_lists_breaks_the_quorum(lists, c, made):
    """F3: from file to file more than half of the control planes existed when it was planned, whatever the registry says."""
    current: Current | None = None
    for machines in lists:
        v = view(machines, template=made, constraints=c, current=current, when_short=WhenShort.PROCEED, yes_remove=True)
        plan = decide(v)
        if plan.error is not None:
            continue
        if current is not None:
            before = [x.address for x in current.members if x.control_plane]
            listed = {x.address for x in machines}
            assert sum(1 for a in before if a in listed) * 2 > len(before)
            taken = set(before) - {s.address for s in plan.control_planes}
            vanished = {a for a in before if a not in listed}
            surplus = max(0, len(before) - len(vanished) - c.control_plane_count)
            # Besides the vanished and an asked-for decrease, at most the one that is being replaced.
            assert len(taken - vanished) <= max(surplus, 1)
        if not plan.control_planes:
            return
        made_current = parse_cluster(write_cluster(v, plan))
        assert isinstance(made_current, Current)
        current = made_current


@settings(max_examples=60, deadline=None)
@given(views())
def test_rebooting_machines_stay_where_they_are(v):
    """F6: UPDATING and UNINITIALIZED nodes are neither tainted nor taken off the control plane for it."""
    plan = decide(v)
    rebooting = {x.address for x in v.machines if x.state in {"UPDATING", "UNINITIALIZED"}}
    for change in plan.changes:
        if change.address in rebooting:
            assert change.change in {"untaint", "update", "demote", "remove"}
            if change.change in {"demote", "remove"}:  # an asked-for decrease, or a taint of the live node
                assert plan.action in {"decrease-control-plane", "replace-control-plane"}


def test_the_same_view_gives_the_same_bytes():
    """F11: plans can be saved and compared."""
    machines = [m(n, rack=n % 5, role="cs" if n % 3 else "ss", days=n * 7) for n in range(60)]
    v = view(machines, template=TEMPLATES[2], constraints=limits(3, 30))
    first, second = decide(v), decide(v)
    assert msgspec.json.encode(write_cluster(v, first)) == msgspec.json.encode(write_cluster(v, second))
    assert v.now == NOW
