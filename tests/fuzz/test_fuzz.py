"""A few thousand malformed inputs in every run of the tests; `python -m tests.fuzz --inputs 1000000` for many."""

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.__main__ import fuzz
from tests.fuzz.targets import targets


@cache
def all_targets():
    """Made when they are needed: collecting the tests takes long enough."""
    return list(targets())


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_no_input_is_a_defect(seed):
    """Whatever others send or write: an error that is theirs, never a traceback of ours."""
    tracebacks, _, _ = fuzz(all_targets(), 10 * len(all_targets()), seed, weighed=False)
    assert tracebacks == 0
