import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.capabilities.mix.targets import (
    DEPLOYMENT_DEFAULT,
    STATEFUL_SET_DEFAULT,
    Mode,
    Share,
    Target,
    default_target,
)
from mooring.core.model.capacity import NodeClass

MAJORITY = Target(Mode.MAJORITY_IN_ON_DEMAND)
targets = st.one_of(
    st.sampled_from([Target(Mode.ALL_IN_ON_DEMAND), Target(Mode.ALL_IN_SPOT), MAJORITY]),
    st.builds(lambda n: Target(Mode.CUSTOM, Share(n)), st.integers(0, 40)),
    st.builds(lambda n: Target(Mode.CUSTOM, Share(n, percent=True)), st.integers(0, 100)),
)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (MAJORITY, [0, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6]),
        (Target(Mode.CUSTOM, Share(30, percent=True)), [0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3]),
        (Target(Mode.CUSTOM, Share(3)), [0, 1, 2, 3, 3, 3, 3, 3, 3, 3, 3]),
        (Target(Mode.ALL_IN_SPOT), [0] * 11),
        (Target(Mode.ALL_IN_ON_DEMAND), list(range(11))),
        (Target(Mode.CUSTOM, Share(0, percent=True)), [0] * 11),
        (Target(Mode.CUSTOM, Share(100, percent=True)), list(range(11))),
    ],
)
def test_table_of_targets(target, expected):
    """M1: T(R) for R = 0…10 is the design's table; a count is clamped, a percentage rounds up."""
    assert [target.on_demand(r) for r in range(11)] == expected


def test_every_step_adds_at_most_one():
    """M4: for every mode, one more replica adds no or one on-demand replica: classes are prefix-stable."""
    every = [Target(Mode.CUSTOM, Share(p, percent=True)) for p in range(101)]
    every += [Target(Mode.CUSTOM, Share(c)) for c in range(50)] + [MAJORITY, Target(Mode.ALL_IN_ON_DEMAND)]
    for target, k in itertools.product(every, range(300)):
        assert target.on_demand(k + 1) - target.on_demand(k) in {0, 1}, (target, k)


@settings(deadline=None)
@given(target=targets, replicas=st.integers(0, 200))
def test_slots_hold_exactly_the_target(target, replicas):
    """M4: slots 0…R−1 contain exactly T(R) on-demand ones, and the sequence says the same."""
    by_slot = sum(target.class_of(slot) is NodeClass.ON_DEMAND for slot in range(replicas))
    assert by_slot == target.on_demand(replicas) == target.sequence(replicas).count("O")


@settings(deadline=None)
@given(target=targets, old=st.integers(0, 60), new=st.integers(0, 60))
def test_floor_holds_through_a_rollout(target, old, new):
    """M5: two revisions side by side never have fewer on-demand replicas than one of their joint size."""
    assert target.on_demand(old) + target.on_demand(new) >= target.on_demand(old + new)


def test_defaults_by_kind():
    """M2: Deployments go to spot, a StatefulSet keeps its majority, a single StatefulSet replica, on on-demand."""
    assert default_target("Deployment") is DEPLOYMENT_DEFAULT
    assert default_target("Deployment").on_demand(7) == 0
    assert default_target("StatefulSet") is STATEFUL_SET_DEFAULT
    assert [default_target("StatefulSet").on_demand(r) for r in (1, 2, 3, 5)] == [1, 2, 2, 3]
