"""The one way in which the tests on the real control plane wait: `tests/e2e/waiting.py`."""

import pytest

from tests.e2e.waiting import CAP_S, LIMIT_S, LOOK_S, Patience, soon_enough


class Clock:
    def __init__(self):
        self.s = 0.0

    def __call__(self):
        return self.s


def ends_at(told):
    """When patience ends, looked at every second, for what is told at that second."""
    clock = Clock()
    patience = Patience("the pod", tell=lambda: told(clock.s), now=clock)
    while clock.s < 2 * CAP_S:
        clock.s += 1
        try:
            patience.look()
        except AssertionError as failed:
            return clock.s, str(failed)
    raise AssertionError("it waited for ever")


def test_what_stands_still_is_waited_for_no_longer_than_the_limit_after_the_first_look():
    """And the failure says what, for how long, and the last state."""
    at, words = ends_at(lambda _: "Pending")
    assert at == LOOK_S + LIMIT_S
    assert words.startswith("the pod did not come to hold in 225 s, the last 180 s without any change")
    assert "Pending" in words


def test_the_limit_starts_again_whenever_the_state_changes():
    at, words = ends_at(lambda s: f"{min(s, 400) // 40:.0f} Ready")
    assert 400 + LIMIT_S <= at < CAP_S
    assert "10 Ready" in words


def test_what_changes_for_ever_ends_all_the_same():
    at, _ = ends_at(str)
    assert at == pytest.approx(CAP_S, abs=LOOK_S)


def test_a_promise_about_time_is_broken_only_by_what_is_late_each_time():
    """A busy machine may be late once; what is broken is late whenever it is tried."""
    late_once = iter([16.0, 9.0, 1.0])
    assert soon_enough(lambda: next(late_once), 15) == 9.0
    with pytest.raises(AssertionError, match=r"longer than 15 s: 16\.0 s, 16\.0 s, 16\.0 s, 16\.0 s"):
        soon_enough(lambda: 16.0, 15)
